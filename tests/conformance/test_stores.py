"""Numbers stored into tensors: as in eager, and in one segment."""

from __future__ import annotations

import pytest
import torch

import rote


def _indices(x):
    return torch.arange(0, 4, 2, device=x.device)


STORES = {
    "one element": lambda w: w.__setitem__((1, 2), 3.0),
    "an integer": lambda w: w.__setitem__((1, 2), 7),
    "a flag": lambda w: w.__setitem__((0, 0), True),
    "an element of a view": lambda w: w.diagonal().__setitem__(3, -1.5),
    "a sum": lambda w: w.sum().__setitem__((), 2.0),
    "a row": lambda w: w.__setitem__(0, 0.1),
    "a slice": lambda w: w.__setitem__((slice(1, 3), 1), 4.0),
    "chosen rows": lambda w: w.__setitem__(_indices(w), 5.0),
    "chosen elements": lambda w: w.__setitem__((_indices(w), 1), 2),
    "chosen columns": lambda w: w.__setitem__((slice(None), _indices(w)), True),
    "a mask": lambda w: w.__setitem__(w > 2, 0.3),
    "a tensor of a number": lambda w: w.__setitem__((2, 1), torch.tensor(3.25)),
    "put": lambda w: w.index_put_((_indices(w),), torch.tensor(1.5)),
    "put out of place": lambda w: w.copy_(w.index_put((_indices(w),), torch.tensor(1.5))),
    "chosen by a mask": lambda w: w.copy_(torch.where(w == 3, w, torch.tensor(2, dtype=w.dtype))),
    "added up": lambda w: w.index_put_((_indices(w),), torch.tensor(1.5), accumulate=True),
}

TYPED = ("put", "put out of place", "added up")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64, torch.bool])
@pytest.mark.parametrize("store", STORES)
def test_a_number_is_stored(device, store, dtype):
    if dtype is torch.complex64 and store == "a mask":
        pytest.skip("complex numbers have no order")

    def fn(x):
        w = x.clone()
        STORES[store](w)
        return w, w.sum()

    if dtype is not torch.float32 and store in TYPED:
        pytest.skip("the number has another type")
    g = rote.graph(fn)
    for n in range(8):
        x = (torch.arange(16.0, device=device).reshape(4, 4) - n).to(dtype)
        for found, wanted in zip(g(x), fn(x), strict=True):
            assert torch.equal(found, wanted)
    report = g.report()
    assert report.replayed == 6
    assert not any(recording.islands for recording in report.recordings)


def test_what_a_mask_counts_is_an_island(device):
    def fn(x, y):
        w = x.clone()
        w[w > 2] = y
        w.index_put_((w > 1,), y, accumulate=True)
        return w

    g = rote.graph(fn)
    for n in range(8):
        x = torch.arange(16.0, device=device).reshape(4, 4) - n
        assert torch.equal(g(x, x[0, 0]), fn(x, x[0, 0]))
    (recording,) = g.report().recordings
    assert len(recording.islands) == 2
    assert g.report().replayed == 6


def test_a_number_that_changes_is_another_recording(device):
    state = {"value": 1.0}

    def fn(x):
        w = x.clone()
        w[1, 2] = state["value"]
        return w * 2

    g = rote.graph(fn)
    for n in range(18):
        state["value"] = float(n // 6)
        x = torch.full((3, 4), float(n), device=device)
        assert torch.equal(g(x), fn(x))
    assert g.report().replayed > 6


def test_a_host_argument_is_no_constant(device):
    def fn(x, number):
        w = x.clone()
        w[1, 2] = number
        return w * 2

    g = rote.graph(fn)
    for n in range(10):
        x, number = torch.full((3, 4), float(n), device=device), torch.tensor(float(n))
        assert torch.equal(g(x, number), fn(x, number))
