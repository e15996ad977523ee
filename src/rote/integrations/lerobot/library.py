"""What is said of lerobot in messages: the versions that were read, and what to pass instead."""

from __future__ import annotations

from typing import Any

from ..methods import Library

_WRAPPERS = {"base_model": "PeftModel", "module": "DistributedDataParallel", "_orig_mod": "OptimizedModule"}
"""Attributes by which a wrapper of a policy is known."""

TYPES = ("act", "diffusion", "pi0", "pi05", "smolvla")
"""Types of policies, as lerobot's configurations call them, whose parts are known."""


def _remedy(owner: Any) -> str:
    for name, wrapper in _WRAPPERS.items():
        if hasattr(owner, name):
            return f"pass what the {wrapper} wraps, its {name}"
    return (
        f"pass a policy of type {', '.join(TYPES)}; of any other, graph the method that calculates a chunk: "
        "policy.model.METHOD = rote.graph(policy.model.METHOD)"
    )


LEROBOT = Library("lerobot 0.4.4 and 0.6.1", _remedy)
