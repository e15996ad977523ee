"""Contents of slots: the form in which they are kept, equality, and text."""

from __future__ import annotations

import numpy
import pytest
import torch

from rote.runtime.objects.marks import Content, TensorMark, mark
from rote.runtime.state.slots import same, show


class Plain:
    """An object of a user's class."""


def test_marks():
    x = torch.ones(2)
    assert mark(x) == TensorMark(id(x), x.data_ptr(), False)
    assert mark({1}) == mark({1}) != mark({True}) and mark({1}) != mark(frozenset({1})) and mark(3) == 3
    large = numpy.zeros(1 << 15)
    assert mark(large) == mark(large) and len(mark(large).value[-1]) < large.nbytes / 2  # a sample
    assert mark(large) != mark(large.copy())


@pytest.mark.parametrize(
    ("was", "now", "equal"),
    [
        (1, 1, True), (1, True, False), (1, 1.0, False), (float("nan"), float("nan"), True), ("a", "a", True),
        ([], [], False), (Content(1), Content(1), True), (Content(1), 1, False), (None, None, True),
        (1.5, 1.5, True), (10**30, 10**30, True), (torch.Size([1]), torch.Size([1]), True),
        (b"a", b"b", False), (0.0, -0.0, False),
    ],
)  # fmt: skip
def test_same(was, now, equal):
    assert same(was, now) is equal


def test_show():
    assert show(1.5) == "1.5" and show("a" * 80) == "'" + "a" * 56 + "..."
    assert show(TensorMark(1, 255, False)) == "a tensor at 0xff"
    assert show(Content(frozenset({1}))) == "{1}"
    assert show(mark(set(range(99)))) == "a set of 99"
    assert show(mark(numpy.zeros((2, 3)))) == "an array float64[2, 3]"
    assert show(Plain()).startswith("a Plain (id 0x")
