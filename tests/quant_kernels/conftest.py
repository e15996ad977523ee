"""Triton's interpreter plays the kernels where there is no GPU; where there is one, they are compiled.

The interpreter has to be chosen before Triton decorates the first kernel, so a process has one or the other.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import pytest
import torch

TRITON = importlib.util.find_spec("triton") is not None
if TRITON and not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips where kernels cannot be interpreted."""
    if not TRITON:
        pytest.skip("Triton is not installed")
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("kernels are compiled in this process")
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        """Bounds of loops are arrays of one number, which NumPy 2.4 does not take for an index any more."""
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patched)
