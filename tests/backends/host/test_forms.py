"""Forms of tensors: one for all that look alike."""

from __future__ import annotations

import pytest
import torch

from rote.backends.host import forms
from rote.backends.host.forms import Forms


def test_tensors_that_look_alike_have_one_form() -> None:
    known = Forms()
    x = torch.randn(4, 3)
    assert known.of(x) is known.of(torch.zeros(4, 3)) is known.of(torch.randn(8, 3)[4:])
    z = torch.randn(4, 3, dtype=torch.complex64)
    others = [x.t(), x.double(), x[:, :2], x.expand(2, 4, 3), z, z.conj(), z.conj().imag, z.imag]
    assert len({id(known.of(each)) for each in (x, *others)}) == 1 + len(others)


def test_what_follows_from_a_form() -> None:
    known = Forms()
    z = torch.randn(4, 3, dtype=torch.complex64)
    assert known.of(z).plain and not known.of(z).overlaps
    assert known.of(z.conj()).conj and not known.of(z.conj()).plain
    assert known.of(z.conj().imag).neg and not known.of(z.conj().imag).plain
    rows = torch.arange(4.0).expand(3, 4)
    assert known.of(rows).overlaps and not known.of(rows).plain


def test_a_full_table_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "MAX_FORMS", 3)
    known = Forms()
    x = torch.zeros(1)
    first = known.of(x)
    for size in range(2, 5):
        known.of(torch.zeros(size))
    assert known.of(x) is not first and known.of(x).size == (1,)
