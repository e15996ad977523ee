"""What of each policy of lerobot is graphed: the part that calculates, below queues and Python numbers.

``select_action`` keeps a queue of actions, and in the diffusion policy a history of observations. Every call
changes them, so they stay outside, where they run as they do. ``forward`` of a policy gives losses and reads
them to the host for a log. A value that is new in each step is no path that comes again, so the losses of the
model are what is graphed, and the log is made behind it.

Two policies need something for that, with the values and gradients of lerobot's code:

- **ACT** gives the mean and the spread of its latent as two views of one tensor. A recorded graph hands out
  no views of one memory that require grad, so they are copied in what is recorded. ``ACTPolicy.forward`` only
  calculates with them.
- **Diffusion policy** crops pictures at random in training. A crop begins at a place that the host draws, one
  of hundreds, and each would be a path. So pictures are cropped before the recorded part, by the transform of
  the encoder. It comes before all other draws in lerobot's code too, so all draws are what they would be. In
  what is recorded it finds pictures of the size that it would give, draws nothing, and leaves them.

What does not work: to replace the encoder's transform. A copy of the policy, and its evaluation, need it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...api import Graphed
from ..methods import Hook, Library

_IMAGES = "observation.images"
"""Of all cameras together, ``[batch, steps, cameras, 3, height, width]``, in ``DiffusionPolicy.forward``."""


@dataclass(frozen=True, eq=False)
class LatentApart:
    """``forward`` of ACT, whose mean and spread share no memory."""

    network: nn.Module
    forward: Callable[[dict[str, Any]], Any]

    def __call__(self, batch: dict[str, Any]) -> Any:
        """A chunk, and mean and spread of the latent or two times None."""
        chunk, (mean, spread) = self.forward(batch)
        return (chunk, (mean, spread)) if mean is None else (chunk, (mean.clone(), spread.clone()))


@dataclass(frozen=True, eq=False)
class CroppedBefore:
    """``compute_loss`` of a diffusion policy, which is graphed, behind the random crop, which is not."""

    network: nn.Module
    graphed: Graphed

    def __call__(self, batch: dict[str, Tensor]) -> Any:
        """The loss."""
        network: Any = self.network
        if not network.config.image_features or network.config.crop_shape is None:
            return self.graphed(batch)
        encoders = network.rgb_encoder
        if not (network.config.crop_is_random and encoders.training):
            return self.graphed(batch)
        return self.graphed({**batch, _IMAGES: _cropped(encoders, batch[_IMAGES])})


def _cropped(encoders: Any, images: Tensor) -> Tensor:
    """Pictures as the encoders would crop them, in their order."""
    if not isinstance(encoders, nn.ModuleList):
        return encoders.maybe_random_crop(images)
    of_cameras: list[Any] = list(encoders)
    cameras = zip(of_cameras, images.unbind(dim=2), strict=True)
    return torch.stack([encoder.maybe_random_crop(each) for encoder, each in cameras], dim=2)


LEROBOT = Library(
    "lerobot 0.4.4 and 0.6.1",
    "compile_model=False",
    {"base_model": "PeftModel", "module": "DistributedDataParallel", "_orig_mod": "OptimizedModule"},
    lambda owner: (
        f"pass a policy of type {', '.join(KINDS)}; of any other, graph the method that calculates a chunk: "
        "policy.model.METHOD = rote.graph(policy.model.METHOD)"
    ),
)

Graph = Callable[[Callable[..., Any]], Graphed]


@dataclass(frozen=True)
class ReplacedMethod:
    """A method that is graphed.

    Attributes:
        put: From the network, a way to graph and the method, what is put in its place.
    """

    hook: Hook
    put: Callable[[nn.Module, Graph, Callable[..., Any]], Any] = lambda network, graph, method: graph(method)


@dataclass(frozen=True)
class PolicyKind:
    """What of policies of one type is graphed: methods of the module that calculates."""

    network: Hook
    parts: tuple[ReplacedMethod, ...]


def _network(name: str) -> Hook:
    return Hook(LEROBOT, name, "its network", nn.Module)


def _chunk(name: str) -> ReplacedMethod:
    return ReplacedMethod(Hook(LEROBOT, name, "the method that denoises a chunk of actions"))


_LOSSES = "the method that gives losses"
_FLOW = PolicyKind(
    _network("model"), (_chunk("sample_actions"), ReplacedMethod(Hook(LEROBOT, "forward", _LOSSES)))
)

KINDS = {
    "act": PolicyKind(
        _network("model"),
        (
            ReplacedMethod(
                Hook(LEROBOT, "forward", "the method that gives chunks, and what losses are made of"),
                lambda network, graph, method: graph(LatentApart(network, method)),
            ),
        ),
    ),
    "diffusion": PolicyKind(
        _network("diffusion"),
        (
            _chunk("generate_actions"),
            ReplacedMethod(
                Hook(LEROBOT, "compute_loss", _LOSSES),
                lambda network, graph, method: CroppedBefore(network, graph(method)),
            ),
        ),
    ),
    "pi0": _FLOW,
    "pi05": _FLOW,
    "smolvla": _FLOW,
}
"""By the type of a policy, as lerobot's configurations call it."""
