"""Tensors that look alike are known by one check."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rote.runtime.fingerprint.alike import MOST, Alike
from rote.runtime.pytorch.modes import DispatchMode
from rote.runtime.pytorch.torch_private import leaves_lazy, resolve_lazily


def described(tensor):
    alike = Alike()
    alike.add(tensor)
    return alike


def test_what_looks_the_same_is_known(device):
    alike = described(torch.zeros(4, 6, device=device))
    assert alike.check(torch.ones(4, 6, device=device))
    assert alike.knows(torch.ones(9, 6, device=device)[5:])


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[1:],
        lambda x: x.t(),
        lambda x: x.double(),
        lambda x: x.to("meta"),
        lambda x: x.clone().requires_grad_(),
        lambda x: nn.Parameter(x, requires_grad=False),
        lambda x: torch.complex(x, x).conj().imag,
        lambda x: torch.complex(x, x).conj(),
        lambda x: x.to_sparse(),
    ],
)
def test_what_looks_otherwise_is_not(change, device):
    x = torch.zeros(5, 5, device=device)
    assert not described(x).knows(change(x))
    assert not described(torch.complex(x, x)).knows(change(x))


def test_one_description_has_several_kinds_of_tensors():
    alike, x = Alike(), torch.zeros(3)
    assert not alike.check(x) and not alike.knows(x)
    kinds = [x, x.clone().requires_grad_(), nn.Parameter(x)]
    for kind in kinds * 2:
        alike.add(kind)
    assert len(alike._checks) == len(kinds) and all(map(alike.knows, kinds))
    assert alike.check(kinds[-1]) and not alike.check(x)
    assert alike.knows(x) and alike.check(x)


def test_the_number_of_checks_is_bounded():
    alike = Alike()
    for length in range(2 * MOST):
        alike.add(torch.zeros(length))
    assert len(alike._checks) == MOST


def test_handlers_that_resolve_lazily_tell_lazy_tensors_apart():
    alike, seen = Alike(), []

    class Handler(DispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            before = leaves_lazy()
            resolve_lazily()
            seen.append((before, leaves_lazy(), alike.knows(args[0])))
            if len(seen) == 1:
                alike.add(args[0])
            return func(*args, **(kwargs or {}))

    x = torch.zeros(2)
    lazy = torch.complex(x, x).conj().imag
    assert lazy.is_neg()
    with Handler():
        for tensor in (x, x, lazy):
            torch.ops.aten.alias(tensor)
    assert seen == [(True, False, False), (True, False, True), (True, False, False)]
    assert not leaves_lazy()
