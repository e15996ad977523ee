"""Floats are the same if their bits are: a NaN with another sign or payload is another number."""

from __future__ import annotations

import functools
import struct
from types import SimpleNamespace

import pytest
import torch

import rote

NAN = float("nan")
NEGATIVE = struct.unpack("d", struct.pack("Q", 0xFFF8000000000000))[0]
PAYLOAD = struct.unpack("d", struct.pack("Q", 0x7FF8000000000001))[0]
PAIRS = {
    "sign": (torch.float64, NAN, NEGATIVE),
    "payload": (torch.float64, NAN, PAYLOAD),
    "zero": (torch.complex128, complex(1.0, 0.0), complex(1.0, -0.0)),
}


def bits(value):
    """The bits of a result."""
    return torch.view_as_real(value).view(torch.int64) if value.is_complex() else value.view(torch.int64)


def filled(x, number):
    return torch.full_like(x, number)


def as_argument():
    return filled, lambda x, number: (x, number)


def in_a_list():
    held = [None]

    def put(x, number):
        held[0] = number
        return (x,)

    return lambda x: filled(x, held[0]), put


def in_a_closure():
    number = None

    def put(x, each):
        nonlocal number
        number = each
        return (x,)

    return lambda x: filled(x, number), put


def in_an_attribute():
    held = SimpleNamespace(number=None)

    def put(x, number):
        held.number = number
        return (x,)

    return lambda x: filled(x, held.number), put


def in_a_tuple():
    held = [(None, 1)]

    def put(x, number):
        held[0] = (number, 1)
        return (x,)

    return lambda x: filled(x, held[0][0]), put


def read_from_a_tensor():
    return (
        lambda x, value: filled(x, value.item()),
        lambda x, number: (x, torch.tensor(number, dtype=x.dtype, device=x.device)),
    )


def read_as_a_list():
    return (
        lambda x, value: filled(x, value.tolist()[0]),
        lambda x, number: (x, torch.tensor([number], dtype=x.dtype, device=x.device)),
    )


def from_a_cache():
    held = {}
    cached = functools.cache(lambda: held["number"])

    def put(x, number):
        cached.cache_clear()
        held["number"] = number
        cached()
        return (x,)

    return lambda x: filled(x, cached()), put


PLACES = [
    as_argument, in_a_list, in_a_closure, in_an_attribute, in_a_tuple, read_from_a_tensor, read_as_a_list,
    from_a_cache,
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("pair", PAIRS)
def test_a_number_with_other_bits_is_another_one(device, place, pair):
    fn, put = place()
    graphed = rote.graph(fn)
    dtype, one, other = PAIRS[pair]
    x = torch.zeros(2, dtype=dtype, device=device)
    for number in (one, one, one, one, other, other, one):
        given = put(x, number)
        assert torch.equal(bits(graphed(*given)), bits(fn(*given)))


def test_a_complex_nan_is_itself(device):
    graphed = rote.graph(filled, keep=True)
    for _ in range(6):
        graphed(torch.zeros(2, dtype=torch.complex64, device=device), complex(NEGATIVE, 1.0))
    assert graphed.report().replayed == 4
