"""What is said of lerobot in messages: the versions that were read, and what to pass instead."""

from __future__ import annotations

from ..methods import Library

TYPES = ("act", "diffusion", "pi0", "pi05", "smolvla")
"""Types of policies, as lerobot's configurations call them, whose parts are known."""

LEROBOT = Library(
    "lerobot 0.4.4 and 0.6.1",
    "compile_model=False",
    {"base_model": "PeftModel", "module": "DistributedDataParallel", "_orig_mod": "OptimizedModule"},
    lambda owner: (
        f"pass a policy of type {', '.join(TYPES)}; of any other, graph the method that calculates a chunk: "
        "policy.model.METHOD = rote.graph(policy.model.METHOD)"
    ),
)
