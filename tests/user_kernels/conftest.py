"""Triton's interpreter plays the kernels where there is no GPU, as in ``tests/quant_kernels``."""

from __future__ import annotations

import importlib.util
import sys

import pytest
import torch


def _fits() -> bool:
    """Whether Triton's own functions are what kernels have to be, or become it: interpreted without a GPU."""
    language = sys.modules.get("triton.language")
    return (
        language is None or torch.cuda.is_available() or type(language.sum).__name__ == "InterpretedFunction"
    )


if importlib.util.find_spec("triton") is not None and _fits():
    with pytest.MonkeyPatch.context() as patch:
        if not torch.cuda.is_available():
            patch.setenv("TRITON_INTERPRET", "1")
        importlib.import_module("tests.user_kernels.kernels")


@pytest.fixture(autouse=True)
def _plays(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips where kernels cannot run on the device."""
    kernels = pytest.importorskip("tests.user_kernels.kernels", reason="Triton is not installed")
    if device.type == "cpu":
        if type(kernels.add).__name__ != "InterpretedFunction":
            pytest.skip("kernels are compiled in this process: Triton was imported before, or there is a GPU")
        monkeypatch.setenv("TRITON_INTERPRET", "1")  # some functions ask once more when they are called
