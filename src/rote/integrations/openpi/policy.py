"""Policies, and ``sample_actions`` of their models.

``sample_actions`` needs no edits. It reads a scalar of the device before each denoising step and after the
last one: eleven values that are always the same, so one path, with a segment between two of them.

openpi compiles the method when a model is made (``pytorch_compile_mode``, by default ``max-autotune``), with
CUDA graphs of PyTorch's own. What is recorded is the method as it is written, with the results of eager, and
the log says so. Nothing was compiled so far: that happens at the first call.

What does not work: ``rote.graph`` of the compiled method. The loop breaks Dynamo's graph, and the code behind
each break is called with the observation, of which Dynamo asks which object it is. So the calls run as
they are compiled. ``torch.compile(model.sample_actions, backend="rote")`` records each of the pieces.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar, Unpack

from torch import nn

from ...api import Graphed, OptionKeywords, graph
from ...base import MisuseError
from ..methods import Hook, held_by
from .library import OPENPI

_T = TypeVar("_T")
_CALLER = "graph_policy"
_OF_MODEL = Hook(OPENPI, "sample_actions", "the method that denoises a chunk of actions")
_OF_POLICY = Hook(OPENPI, "_sample_actions", "that method of its model")
_IS_PYTORCH = Hook(OPENPI, "_is_pytorch_model", "whether the model is one of PyTorch", bool)


def graph_policy(policy: _T, **options: Unpack[OptionKeywords]) -> _T:
    """Graph the action chunks of a policy, in place.

    Every way to the model goes through it: ``policy.infer``, openpi's server, a recorder around the policy.
    Transforms in numpy run as they do. Weights may be loaded or changed later. Where openpi has compiled
    ``sample_actions``, the method as it is written is recorded.

    Args:
        policy: What ``create_trained_policy`` returns, or a ``PI0Pytorch``, pi0 or pi0.5.
        **options: See :class:`rote.Options`.

    Returns:
        The same object.

    Raises:
        MisuseError: The object lacks an attribute that openpi's have, its model is one of JAX, or it is
            graphed.
        OptionError: An option is unknown or has an impossible value.
    """
    hook = _OF_MODEL if isinstance(policy, nn.Module) else _of_policy(policy)
    hook.plain(policy, _CALLER)
    hook.replace(policy, partial(graph, **options), _CALLER)
    return policy


def graphed(policy: Any) -> list[Graphed]:
    """The graphed callables of a policy or a model, each with ``report()``, ``explain()`` and ``reset()``.

    Args:
        policy: What :func:`graph_policy` or :func:`graph_training` was given.
    """
    names = (_OF_POLICY.name, _OF_MODEL.name, "forward")
    return held_by((policy, getattr(policy, "_model", None)), names)


def _of_policy(policy: Any) -> Hook:
    """The hook of a policy, if its model is one of PyTorch."""
    if not _IS_PYTORCH.of(policy, _CALLER):
        raise MisuseError(
            "graph_policy needs a PyTorch model, and that of the policy is one of JAX; convert the "
            "checkpoint with openpi's examples/convert_jax_model_to_pytorch.py"
        )
    return _OF_POLICY
