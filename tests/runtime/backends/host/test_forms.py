"""Forms of tensors: one for all that look alike."""

from __future__ import annotations

import torch

from rote.runtime.backends.host.storages import form_of


def test_tensors_that_look_alike_have_one_form() -> None:
    x = torch.randn(4, 3)
    assert form_of(x) == form_of(torch.zeros(4, 3)) == form_of(torch.randn(8, 3)[4:])
    z = torch.randn(4, 3, dtype=torch.complex64)
    others = [x.t(), x.double(), x[:, :2], x.expand(2, 4, 3), z, z.conj(), z.conj().imag, z.imag]
    assert len({form_of(each) for each in (x, *others)}) == 1 + len(others)


def test_what_follows_from_a_form() -> None:
    z = torch.randn(4, 3, dtype=torch.complex64)
    assert form_of(z).plain and not form_of(z).overlaps
    assert form_of(z.conj()).conj and not form_of(z.conj()).plain
    assert form_of(z.conj().imag).neg and not form_of(z.conj().imag).plain
    rows = torch.arange(4.0).expand(3, 4)
    assert form_of(rows).overlaps and not form_of(rows).plain
    assert form_of(rows[:, :0]).plain
