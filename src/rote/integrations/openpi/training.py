"""``forward`` of a model in training: losses, with the backward outside.

Two things in it cannot be replayed, so neither is in what is recorded.

- Images are augmented first. A random crop begins at a place that the host reads, one of 169, and a rotation
  is left out where its angle is small: each pair would be a path. So ``_preprocess_observation`` runs as it
  is, before the recorded part, and draws what it would. What it gives is handed on through the method of the
  same name.
- Activations are checkpointed: ``train_pytorch.py`` asks for it, and the layers force it in training. A
  checkpoint runs Python in the backward, and a recorded backward runs none. So it is off while the recorded
  part runs as Python code. Values and gradients have the same bits, and activations stay in memory.

What does not work: to switch checkpointing off once. ``model.train()`` brings it back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, Unpack

from torch import Tensor, nn

from ...api import Graphed, OptionKeywords, graph
from ..methods import Hook
from .library import OPENPI

_M = TypeVar("_M", bound=nn.Module)
_CALLER = "graph_training"
_FORWARD = Hook(OPENPI, "forward", "the method that gives losses")
_PREPARE = Hook(OPENPI, "_preprocess_observation", "the method that augments images")
_LAYERS = Hook(OPENPI, "paligemma_with_expert", "the module with both transformers", nn.Module)
_CHECKPOINTS = Hook(OPENPI, "gradient_checkpointing_enabled", "whether parts are checkpointed", bool)


@dataclass(frozen=True)
class PreparedObservation:
    """An observation that went through ``_preprocess_observation``; it stands for one that did not."""

    parts: Any


@dataclass(frozen=True, eq=False)
class PrepareOnce:
    """In the place of ``model._preprocess_observation``: hands on what is prepared."""

    prepare: Callable[..., Any]

    def __call__(self, observation: Any, *, train: bool = True) -> Any:
        """Images, their masks, tokens, their mask and the state."""
        if isinstance(observation, PreparedObservation):
            return observation.parts
        return self.prepare(observation, train=train)


@dataclass(frozen=True, eq=False)
class TrainingForward:
    """What is recorded: losses of prepared observations, without checkpoints."""

    model: Any
    forward: Callable[..., Any]

    def __call__(self, parts: Any, actions: Tensor, noise: Tensor | None, time: Tensor | None) -> Any:
        """Losses, as ``forward`` gives them."""
        model, layers = self.model, self.model.paligemma_with_expert
        checkpoints, training = model.gradient_checkpointing_enabled, layers.training
        # of this module alone, not of its children
        model.gradient_checkpointing_enabled = layers.training = False
        try:
            return self.forward(PreparedObservation(parts), actions, noise=noise, time=time)
        finally:
            model.gradient_checkpointing_enabled, layers.training = checkpoints, training


@dataclass(frozen=True, eq=False)
class GraphedForward:
    """In the place of ``model.forward``. A copy of the model has one of its own."""

    prepare: Callable[..., Any]
    graphed: Graphed

    def __call__(
        self, observation: Any, actions: Tensor, noise: Tensor | None = None, time: Tensor | None = None
    ) -> Any:
        """Losses, as ``forward`` gives them: ``[batch, action_horizon, action_dim]``."""
        return self.graphed(self.prepare(observation, train=True), actions, noise, time)


def graph_training(model: _M, **options: Unpack[OptionKeywords]) -> _M:
    """Graph the losses of a model and their backward, in place.

    ``model(observation, actions)`` replays, and so does ``loss.backward()`` through it. Augmentation runs as
    it is, before. Activations are not checkpointed. For several processes the model is graphed before it is
    wrapped: ``DistributedDataParallel(graph_training(model))``.

    Args:
        model: A ``PI0Pytorch``, pi0 or pi0.5.
        **options: See :class:`rote.Options`.

    Returns:
        The same model.

    Raises:
        MisuseError: The model lacks an attribute that openpi's has, or it is graphed.
        OptionError: An option is unknown or has an impossible value.
    """
    forward, prepare = _FORWARD.plain(model, _CALLER), _PREPARE.of(model, _CALLER)
    for hook in (_LAYERS, _CHECKPOINTS):
        hook.of(model, _CALLER)
    made = graph(TrainingForward(model, forward), **options)
    placed: Any = model
    placed._preprocess_observation = PrepareOnce(prepare)
    placed.forward = GraphedForward(prepare, made)
    return model
