"""What runs for a callable that is declared pure is not looked into, from wherever else it is known."""

from __future__ import annotations

import _bz2
import _lsprof
import _lzma
import _opcode
import dis
import faulthandler
from collections import deque
from pathlib import Path

import pytest
import torch

import rote


def doubled(x: torch.Tensor, file: Path) -> torch.Tensor:
    return x * float(file.read_text())


@pytest.mark.parametrize("how", ["function", "method", "class"])
def test_code_that_is_followed_elsewhere(how: str, tmp_path: Path):
    file = tmp_path / "factor"
    file.write_text("2")
    first = rote.graph(lambda x: doubled(x, file))
    for _ in range(3):
        first(torch.ones(3))
    assert first.report().reasons[0].code == "RT218"

    class Reader:
        def read(self) -> float:
            return float(file.read_text())

    reader = Reader()
    read = rote.pure(lambda: float(file.read_text())) if how == "function" else reader.read
    if how != "function":
        rote.pure(Reader if how == "class" else reader.read)
    g = rote.graph(lambda x: x * read())
    for _ in range(6):
        assert g(torch.ones(3)).tolist() == [2.0] * 3
    assert g.report().replayed >= 3, g.explain()


def test_the_same_outside_of_it_still_counts(tmp_path: Path):
    file = tmp_path / "factor"
    file.write_text("2")
    read = rote.pure(lambda: float(file.read_text()))
    g = rote.graph(lambda x: x * read() * float(file.read_text()))
    for _ in range(6):
        assert g(torch.ones(3)).tolist() == [4.0] * 3
    assert g.report().replayed == 0 and g.report().reasons[0].code == "RT218"


def unknown_things(x: torch.Tensor) -> torch.Tensor:
    size = len(_bz2.BZ2Compressor().compress(b"a"))
    effect = _opcode.stack_effect(dis.opmap["POP_TOP"])
    return x * (size - effect) * _lzma.is_check_supported(_lzma.CHECK_NONE)


def test_all_that_is_unknown_is_told_at_once_ready_to_paste(where):
    g = rote.graph(unknown_things)
    for _ in range(4):
        g(torch.ones(3))
    (why,) = g.report().reasons
    first, second, third = (where(unknown_things, text) for text in ("_bz2", "_opcode", "_lzma"))
    assert (why.code, why.where, why.count) == ("RT218", first, 4)
    assert why.message == (
        "the call calls _bz2.BZ2Compressor, of which nothing is known; nor of "
        f"_bz2.BZ2Compressor.compress at {first}, _opcode.stack_effect at {second}, "
        f"_lzma.is_check_supported at {third}"
    )
    line = why.remedy[why.remedy.index("rote.pure(") :].removesuffix(".")
    names = "_bz2.BZ2Compressor, _bz2.BZ2Compressor.compress, _opcode.stack_effect, _lzma.is_check_supported"
    assert line == f"rote.pure({names})"
    eval(line, {"rote": rote, "_bz2": _bz2, "_opcode": _opcode, "_lzma": _lzma})
    for _ in range(4):
        assert g(torch.ones(3)).tolist() == [1.0] * 3
    assert g.report().replayed >= 2, g.explain()


def test_an_object_of_an_unknown_class():
    held = _lsprof.Profiler()
    g = rote.graph(lambda x: x * (2 if held else 3))
    for _ in range(4):
        g(torch.ones(3))
    for why in g.report().reasons:
        assert "rote.pure(_lsprof.Profiler" in why.remedy
        rote.pure(_lsprof.Profiler)
    g = rote.graph(lambda x: x * (2 if held else 3))
    for _ in range(4):
        g(torch.ones(3))
    assert g.report().replayed == 2, g.explain()


def test_a_module():
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * (1 + faulthandler.is_enabled())

    def replayed() -> int:
        g = rote.graph(fn)
        for _ in range(4):
            assert torch.equal(g(torch.ones(3)), fn(torch.ones(3)))
        return g.report().replayed

    assert replayed() == 0
    rote.pure(faulthandler)
    assert replayed() == 2


class Scale:
    value = 2.0

    def now(self) -> float:
        return self.value


@pytest.mark.parametrize("how", ["function", "method", "class", "C"])
def test_a_check_finds_what_was_declared_and_is_not_so(how: str):
    scale, waiting = Scale(), deque([1.0] * 3 + [2.0] * 40)
    read = {"function": lambda: scale.value, "C": waiting.popleft}.get(how, scale.now)
    rote.pure(Scale if how == "class" else read)
    g = rote.graph(lambda x: x * read(), verify=1)
    with pytest.raises(rote.VerificationError, match="is not what the plain call gives"):
        for n in range(12):
            scale.value = 2.0 + (n > 5)
            g(torch.ones(3))
    unchecked = rote.graph(lambda x: x * read())
    for _ in range(4):
        unchecked(torch.ones(3))
    assert unchecked.report().replayed == 2
