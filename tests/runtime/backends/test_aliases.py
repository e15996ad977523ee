"""Aliases of the caller's tensors: the same memory, and no claim to it."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from rote.runtime.backends.protocol.aliases import OWNING, Aliases


def test_an_alias_is_the_same_memory():
    base = torch.arange(12.0)
    x = base[2:].view(5, 2).t()
    alias = Aliases([x.untyped_storage()]).keep(x)
    assert (alias.shape, alias.stride(), alias.data_ptr()) == (x.shape, x.stride(), x.data_ptr())
    alias.add_(1)
    assert base.tolist() == [0.0, 1.0] + [n + 1.0 for n in range(2, 12)]
    assert alias.untyped_storage().nbytes() == base.untyped_storage().nbytes()


def test_it_keeps_nothing_alive():
    x = torch.zeros(64)
    aliases = Aliases([x.untyped_storage()])
    kept = aliases.keep_all([(x, 1), {"not opened": 2}, x[3:]])
    memory = weakref.ref(x.untyped_storage())
    assert kept[0][1] == 1 and kept[2].shape == (61,)
    del x
    gc.collect()
    assert memory() is None


@pytest.mark.parametrize("make", [lambda x: OWNING, lambda x: Aliases([torch.zeros(1).untyped_storage()])])
def test_other_tensors_are_held(make):
    x = torch.zeros(4)
    kept = make(x).keep(x)
    memory = weakref.ref(x.untyped_storage())
    del x
    gc.collect()
    assert memory() is kept.untyped_storage()


def test_lazy_conjugates_are_held_as_they_are():
    x = torch.tensor([1 + 2j])
    kept = Aliases([x.untyped_storage()]).keep(x.conj())
    assert kept.is_conj() and kept.tolist() == [1 - 2j]


def test_it_is_no_inference_tensor():
    """It may be written in any mode, whatever the tensor was made in."""
    with torch.inference_mode():
        x = torch.zeros(3)
        alias = Aliases([x.untyped_storage()]).keep(x)
    alias.add_(1)
    with torch.inference_mode():
        alias.add_(1)
    assert x.tolist() == [2.0] * 3
