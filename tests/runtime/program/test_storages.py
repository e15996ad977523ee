"""Where the storages of a call come from."""

from __future__ import annotations

import pytest
import torch

from rote.base.location import Site
from rote.runtime.program.storages import EXTERNAL, INPUT, NEW, StorageTable, UnsupportedTensorError

SITE = Site("f.py", 1, "f")


def result(storages, tensor, **kwargs):
    return storages.result(tensor, "op", SITE, **kwargs)


def test_origins():
    storages = StorageTable()
    x, outside, made = (torch.zeros(4) for _ in range(3))
    storages.add_input(0, x, 0)
    assert storages.token(x).origin == (INPUT, 0)
    assert result(storages, made).origin == (NEW, 0)
    assert storages.token(outside).origin == (EXTERNAL, 0)
    assert storages.token(outside).origin == (EXTERNAL, 0)
    assert storages.externals == [outside] and storages.sites[0] == ("op", SITE)


def test_tokens_describe_the_view():
    storages = StorageTable()
    x = torch.zeros(4, 4)
    storages.add_input(0, x, 0)
    whole, part = storages.token(x), storages.token(x[1:, ::2])
    assert whole.origin == part.origin
    assert (part.shape, part.stride, part.offset, part.dtype) == ((3, 2), (4, 2), 4, torch.float32)
    assert part != whole and part == storages.token(x[1:, ::2])


def test_offsets_count_from_the_argument():
    base = torch.zeros(100)
    for start in (0, 40):
        storages = StorageTable()
        x = base[start : start + 10]
        storages.add_input(3, x, start)
        assert storages.token(x[2:5]).offset == 2 and storages.token(x).origin == (INPUT, 3)


def test_arguments_side_by_side_in_one_storage():
    base = torch.zeros(20)
    storages = StorageTable()
    storages.add_input(0, base[:10], 0)
    storages.add_input(1, base[10:], 10)
    assert storages.token(base[3:5])[0] == (INPUT, 0) and storages.token(base[3:5]).offset == 3
    assert storages.token(base[12:14])[0] == (INPUT, 1) and storages.token(base[12:14]).offset == 2
    assert storages.origin(base[10:]) == (INPUT, 1)


def test_new_storages_are_numbered_and_forgotten():
    storages = StorageTable()
    first = torch.zeros(4)
    result(storages, first)
    view = first[1:]
    assert result(storages, view).origin == (NEW, 0)
    second = torch.zeros(4)
    assert result(storages, second).origin == (NEW, 1)
    assert set(storages.alive()) == {0, 1} and storages.knows(first)
    del first
    assert set(storages.alive()) == {0, 1}  # the view holds it
    del view
    assert set(storages.alive()) == {1}
    third = torch.zeros(4)  # may get the handle of the first
    assert result(storages, third).origin == (NEW, 2)


def test_what_has_died_is_not_looked_at_again():
    storages = StorageTable()
    for _ in range(100):
        result(storages, torch.zeros(4))
    kept = torch.zeros(4)
    result(storages, kept)
    assert set(storages.alive()) == {100} and len(storages._watch) == 1


def test_a_number_can_be_given():
    storages = StorageTable()
    a, b = torch.zeros(1), torch.zeros(1)
    assert result(storages, a, number=5).origin == (NEW, 5)
    assert result(storages, b).origin == (NEW, 6)


def test_storages_can_be_found_while_alive():
    storages = StorageTable()
    x, made = torch.zeros(2), torch.zeros(3)
    storages.add_input(0, x, 0)
    result(storages, made)
    assert storages.storage((INPUT, 0))._cdata == x.untyped_storage()._cdata
    assert storages.storage((NEW, 0))._cdata == made.untyped_storage()._cdata
    assert storages.storage((NEW, 9)) is None and storages.origin(torch.zeros(1)) is None


def test_tensors_without_memory():
    with pytest.raises(UnsupportedTensorError, match=r"^sparse_coo$"):
        StorageTable().token(torch.eye(2).to_sparse())
