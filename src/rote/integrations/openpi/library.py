"""What is said of openpi in messages: the version that was read, and what to pass instead."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..methods import Library


def _remedy(owner: Any) -> str:
    method = "sample_actions" if isinstance(owner, nn.Module) else "_sample_actions"
    return (
        "pass what create_trained_policy returns, or a PI0Pytorch; with another version of openpi, graph the "
        f"method itself: rote.graph(....{method})"
    )


OPENPI = Library(
    "openpi at commit 15a9616 (2026-06-16)",
    "pytorch_compile_mode=None",
    {"_policy": "PolicyRecorder", "module": "DistributedDataParallel"},
    _remedy,
)
"""The newest version that was read; the attributes are the same since PyTorch models came (2025-08-28)."""
