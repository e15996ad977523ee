"""What of each policy of lerobot is graphed: the part that calculates, below queues and Python numbers.

``select_action`` keeps a queue of actions, and in the diffusion policy a history of observations. Every call
changes them, so they stay outside, where they run as they do. ``forward`` of a policy gives losses and reads
them to the host for a log. A value that is new in each step is no path that comes again, so the losses of the
model are what is graphed, and the log is made behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from ...api import Graphed
from ..methods import Hook, Library
from .training import CroppedBefore, LatentApart

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
    put: Callable[[nn.Module, Graph, Callable[..., Any]], Any]


@dataclass(frozen=True)
class PolicyKind:
    """What of policies of one type is graphed: methods of the module that calculates."""

    network: Hook
    parts: tuple[ReplacedMethod, ...]


def _as_it_is(network: nn.Module, graph: Graph, method: Callable[..., Any]) -> Any:
    return graph(method)


def _latent_apart(network: nn.Module, graph: Graph, method: Callable[..., Any]) -> Any:
    return graph(LatentApart(network, method))


def _cropped_before(network: nn.Module, graph: Graph, method: Callable[..., Any]) -> Any:
    return CroppedBefore(network, graph(method))


def _network(name: str) -> Hook:
    return Hook(LEROBOT, name, "its network", nn.Module)


def _chunk(name: str) -> ReplacedMethod:
    return ReplacedMethod(Hook(LEROBOT, name, "the method that denoises a chunk of actions"), _as_it_is)


_LOSSES = "the method that gives losses"
_FLOW = PolicyKind(
    _network("model"),
    (_chunk("sample_actions"), ReplacedMethod(Hook(LEROBOT, "forward", _LOSSES), _as_it_is)),
)

KINDS = {
    "act": PolicyKind(
        _network("model"),
        (
            ReplacedMethod(
                Hook(LEROBOT, "forward", "the method that gives chunks, and what losses are made of"),
                _latent_apart,
            ),
        ),
    ),
    "diffusion": PolicyKind(
        _network("diffusion"),
        (_chunk("generate_actions"), ReplacedMethod(Hook(LEROBOT, "compute_loss", _LOSSES), _cropped_before)),
    ),
    "pi0": _FLOW,
    "pi05": _FLOW,
    "smolvla": _FLOW,
}
"""By the type of a policy, as lerobot's configurations call it."""
