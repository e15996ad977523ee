"""What of each policy of lerobot is graphed: the part that calculates, below queues and Python numbers.

``select_action`` keeps a queue of actions, and in the diffusion policy a history of observations. Every call
changes them, so they stay outside, where they run as they do. ``forward`` of a policy gives losses and reads
them to the host for a log. A value that is new in each step is no path that comes again, so the losses of the
model are what is graphed, and the log is made behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from ..methods import Hook, Library

_WRAPPERS = {"base_model": "PeftModel", "module": "DistributedDataParallel", "_orig_mod": "OptimizedModule"}
"""Attributes by which a wrapper of a policy is known."""


def _remedy(owner: Any) -> str:
    for name, wrapper in _WRAPPERS.items():
        if hasattr(owner, name):
            return f"pass what the {wrapper} wraps, its {name}"
    return (
        f"pass a policy of type {', '.join(KINDS)}; of any other, graph the method that calculates a chunk: "
        "policy.model.METHOD = rote.graph(policy.model.METHOD)"
    )


LEROBOT = Library("lerobot 0.4.4 and 0.6.1", _remedy)


@dataclass(frozen=True)
class PolicyKind:
    """What of policies of one type is graphed.

    Attributes:
        network: The module that calculates.
        methods: Its methods: for chunks of actions, and for losses.
    """

    network: Hook
    methods: tuple[Hook, ...]


def _kind(network: str, **methods: str) -> PolicyKind:
    hooks = [Hook(LEROBOT, name, what) for name, what in methods.items()]
    return PolicyKind(Hook(LEROBOT, network, "its network", nn.Module), tuple(hooks))


_FLOW = _kind(
    "model",
    sample_actions="the method that denoises a chunk of actions",
    forward="the method that gives losses",
)

KINDS = {
    "act": _kind("model", forward="the method that gives chunks, and what losses are made of"),
    "diffusion": _kind(
        "diffusion",
        generate_actions="the method that denoises a chunk of actions",
        compute_loss="the method that gives losses",
    ),
    "pi0": _FLOW,
    "pi05": _FLOW,
    "smolvla": _FLOW,
}
"""By the type of a policy, as lerobot's configurations call it."""
