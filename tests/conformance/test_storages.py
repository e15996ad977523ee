"""Storages that the call reads and writes, and tensors that it gives another shape or storage in place."""

from __future__ import annotations

import pytest
import torch

from rote.testing import compare

pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")


def inputs(device):
    return [(torch.arange(4.0, device=device) + n % 3 - 2,) for n in range(14)]


def _byte(x: torch.Tensor) -> torch.Tensor:
    return x * x.untyped_storage()[3]


def _byte_inside(x: torch.Tensor) -> torch.Tensor:
    return x * (x + 1).untyped_storage()[7]


def _number(x: torch.Tensor) -> torch.Tensor:
    return x * x.storage()[1]


def _list(x: torch.Tensor) -> torch.Tensor:
    return x * sum((x * 2).storage().tolist())


def _bytes(x: torch.Tensor) -> torch.Tensor:
    return x * sum((x * 2).untyped_storage().tolist())


def _branch(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if (x * 2).untyped_storage()[7] > 64 else x - 1


@pytest.mark.parametrize("fn", [_byte, _byte_inside, _number, _list, _bytes, _branch])
def test_a_read_of_a_storage_is_a_host_read(device, fn):
    g = compare(fn, inputs(device))
    assert g.report().replayed >= 2, g.explain()


@pytest.mark.parametrize("fn", [
    lambda x: x * x.untyped_storage().nbytes(), lambda x: x * x.untyped_storage().size(),
    lambda x: x * len(x.untyped_storage()), lambda x: x * x.untyped_storage().__len__(),
    lambda x: x * x.storage().size(), lambda x: x * len(x.storage()), lambda x: x * x.storage().nbytes(),
    lambda x: x * (x.untyped_storage()._cdata > 0), lambda x: x * (x.storage()._cdata > 0),
    lambda x: x * (x.untyped_storage().data_ptr() > 0), lambda x: x * (x.storage().data_ptr() > 0),
])  # fmt: skip
def test_what_is_around_a_tensor_is_no_condition(device, fn):
    fn(torch.ones(1))  # PyTorch warns once, and remembers it
    g = compare(fn, [(torch.ones(4 + n // 3, device=device)[:2],) for n in range(12)])
    assert g.report().replayed == 0
    assert "storage" in str(g.report().reasons).lower()


def _set(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.untyped_storage()[3] = 65
    return y + 1


def _fill(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.untyped_storage().fill_(0)
    return y + 1


def _transposed(x: torch.Tensor) -> torch.Tensor:
    y = (x * 2).view(2, 2).clone().t_()
    return y + 1 if y.sum() > 0 else y


def _unsqueezed(x: torch.Tensor) -> torch.Tensor:
    y = (x * 2).unsqueeze_(0)
    return y if y.sum() > 0 else y * 1


def _resized(x: torch.Tensor) -> torch.Tensor:
    y = (x * 2).resize_(3)
    return y + 1 if y.sum() > 0 else y


def _grown(x: torch.Tensor) -> torch.Tensor:
    y = (x * 2).resize_(3, 3).fill_(2)
    return y + 1 if x.sum() > 0 else y


def _given(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    z = torch.zeros(1, device=x.device).set_(y)
    return z + 1 if z.sum() > 0 else z * y


def _assigned(x: torch.Tensor) -> torch.Tensor:
    y, z = x * 2, torch.zeros(1, device=x.device)
    z.data = y
    return z + 1 if z.sum() > 0 else z * y


@pytest.mark.parametrize("fn", [_set, _fill, _transposed, _unsqueezed, _resized, _grown, _given, _assigned])
def test_a_change_in_place(device, fn):
    """Where Python takes over in the middle, a tensor is as the call has left it, not as it was made."""
    g = compare(fn, inputs(device))
    assert g.report().replayed >= 8, g.explain()
