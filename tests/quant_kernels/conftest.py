"""Triton's interpreter plays the kernels where there is no GPU; where there is one, they are compiled.

Triton decides which when it decorates a function, its own ones included. So it is imported here, with the
interpreter chosen. Where something else imported it before (`torch._dynamo` does), kernels are compiled: so
these tests have a process of their own in `make test`. Triton kernels of other tests stay what they are.
"""

from __future__ import annotations

import importlib.util
import sys

import pytest
import torch

from rote.quant.kernels.launching import interpreted, module

TRITON = importlib.util.find_spec("triton") is not None
CHOICE = "TRITON_INTERPRET"

if TRITON and "triton" not in sys.modules and not torch.cuda.is_available():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CHOICE, "1")
        for name in ("gemm", "held", "spread", "transform", "turns"):
            module(name)


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips where kernels cannot be interpreted."""
    if not TRITON:
        pytest.skip("Triton is not installed")
    if not interpreted(module("gemm").product):
        pytest.skip("kernels are compiled in this process: Triton was imported before, or there is a GPU")
    monkeypatch.setenv(CHOICE, "1")  # some functions ask once more when they are called
