"""Operators on images in other ways: what turns is played by Triton's interpreter, and all of it is compiled.

The interpreter knows no instructions of PTX, so group norms are compared on GPUs alone.
"""

from __future__ import annotations

import pytest
import torch
from tests.runtime.fusion import interpreter
from tests.runtime.optimize.noted import Noted

from rote.runtime.compiling import COMPILERS, Binary
from rote.runtime.optimize import ALTERNATIVES
from rote.runtime.optimize.alternatives.images.group_norm import GroupNorm
from rote.runtime.optimize.alternatives.images.turning import MatrixTurn

pytest.importorskip("triton")

TURNS = [(1, 64, 64), (3, 70, 9), (2, 300, 16), (1, 17, 200), (2, 65, 130)]


def test_rows_become_columns(tmp_path):
    noted = Noted()
    given = [(torch.randn(turned).half(), torch.randn(turned[2]).half()) for turned in TURNS]
    for (matrices, rows, columns), (x, bias) in zip(TURNS, given, strict=True):
        shape, strides = (matrices, columns, rows), (rows * columns, rows, 1)
        for added in (None, bias):
            turn = MatrixTurn(matrices, rows, columns, torch.half, True, 90, biased=added is not None)
            turn.run(noted, x, shape, strides, added)
    played = interpreter.played(noted.launches, tmp_path)
    for (x, bias), plain, biased in zip(given, played[::2], played[1::2], strict=True):
        assert torch.equal(plain[-1], x.mT)
        assert torch.equal(biased[-1], (x + bias).mT)


def test_they_are_compiled_without_a_gpu():
    x, scaled = torch.empty(2, 64, 33, 31).half(), torch.empty(64).half()
    sources = [MatrixTurn(2, 64, 100, torch.half, True, 90, biased=True).source]
    for weight, bias in ((scaled, scaled), (None, scaled)):
        sources += GroupNorm(x, weight, bias, 2, 64, 33 * 31, 4, 1e-5, 90).sources
    job = COMPILERS.get().submit(sources)
    assert job.wait(120)
    for binary in job.results().values():
        assert isinstance(binary, Binary) and binary.code[:4] == b"\x7fELF", binary


def test_nothing_is_turned_on_the_host():
    x, weight = torch.empty(2, 64, 16, 16).half(), torch.empty(64, 64, 3, 3).half()
    settings = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    given = {
        "convolution": (x, weight, None, *settings),
        "native_group_norm": (x, weight[0, :, 0, 0].contiguous(), None, 2, 64, 256, 4, 1e-5),
        "native_layer_norm": (x.flatten(2).mT, [64], None, None, 1e-5),
    }
    for operator, operands in given.items():
        (each,) = ALTERNATIVES.of(f"aten::{operator}")
        assert not each.fits(*operands)
