"""What runs for a callable that is declared pure is not looked into, from wherever else it is known."""

from __future__ import annotations

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
