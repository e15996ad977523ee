"""What is said of openpi in messages: the version that was read, and what to pass instead."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..methods import Library

_WRAPPERS = {"_policy": "PolicyRecorder", "module": "DistributedDataParallel"}
"""Attributes by which a wrapper of openpi's own, or of its training script, is known."""


def _remedy(owner: Any) -> str:
    for name, wrapper in _WRAPPERS.items():
        if hasattr(owner, name):
            return f"pass what the {wrapper} wraps, its {name}"
    method = "sample_actions" if isinstance(owner, nn.Module) else "_sample_actions"
    return (
        "pass what create_trained_policy returns, or a PI0Pytorch; with another version of openpi, graph the "
        f"method itself: rote.graph(....{method})"
    )


OPENPI = Library("openpi at commit 15a9616 (2026-06-16)", _remedy)
"""The newest version that was read; the attributes are the same since PyTorch models came (2025-08-28)."""
