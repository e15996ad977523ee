"""What CUDA would refuse is refused, before it runs, with a message that names it and the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from rote.base.errors import CaptureError
from rote.runtime.backends.host.backend import HostBackend
from rote.runtime.backends.host.session import HostSession

X = torch.arange(6.0).view(2, 3)
MASK = X > 2
HOST_READ = "it reads a tensor's value on the host, which would have to wait for the device"
DYNAMIC = "the shape of its result depends on values"
INDEXED = "it indexes with a Boolean mask, and how many elements that selects depends on values"

REFUSED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "item": (lambda: X.sum().item(), "aten._local_scalar_dense.default|aten.item.default", HOST_READ),
    "bool": (lambda: bool(X.sum()), "aten._local_scalar_dense.default|aten.is_nonzero.default", HOST_READ),
    "equal": (lambda: torch.equal(X, X), "aten.equal.default", HOST_READ),
    "allclose": (lambda: torch.allclose(X, X), "aten.(_local_scalar_dense|allclose).default", HOST_READ),
    "nonzero": (lambda: X.nonzero(), "aten.nonzero.default", DYNAMIC),
    "where": (lambda: torch.where(MASK), "aten.nonzero.*", DYNAMIC),
    "masked_select": (lambda: X.masked_select(MASK), "aten.masked_select.default", DYNAMIC),
    "unique": (lambda: X.unique(), "aten._unique2.default", DYNAMIC),
    "bincount": (lambda: torch.bincount(X.view(-1).long()), "aten.bincount.default", DYNAMIC),
    "repeat_interleave": (
        lambda: X.repeat_interleave(torch.tensor([1, 2]), 0),
        "aten.repeat_interleave.Tensor",
        DYNAMIC,
    ),
    "mask_index": (lambda: X[MASK], "aten.index.Tensor", INDEXED),
    "byte_index": (lambda: X[MASK.byte()], "aten.index.Tensor", INDEXED),
    "mask_store": (lambda: X.clone().__setitem__(MASK, X[:, 0]), "aten.index_put_.default", INDEXED),
    "mask_add": (
        lambda: X.clone().index_put_((MASK,), torch.tensor(1.0), accumulate=True),
        "aten.index_put_.default",
        INDEXED,
    ),
    "to_meta": (
        lambda: X.to("meta"),
        "aten._to_copy.default|aten.to.dtype_layout",
        r"it moves data between devices \(from cpu to meta\)",
    ),
    "made_on_meta": (lambda: torch.ones(3, device="meta"), "aten.ones.default", "it moves data"),
    "meta": (lambda: META + 1, "aten.add.Tensor", "it takes a tensor on meta; a host recording"),
    "sparse": (
        lambda: torch.sparse_coo_tensor(size=(2, 3)),
        "aten.sparse_coo_tensor.size",
        "it returns a tensor of layout sparse_coo",
    ),
    "waiting": (
        lambda: X.to_sparse(),
        "aten._to_sparse.default",
        "it waits for the device: the number of elements that are not zero is read on the host",
    ),
    "checked": (lambda: torch.linalg.inv(torch.eye(2)), "aten._linalg_check_errors.default", HOST_READ),
    "takes_sparse": (lambda: SPARSE * 2, "aten.mul.Tensor", "it takes .* sparse_coo, which has no storage"),
    "quantized": (
        lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.qint8),
        "aten.quantize_per_tensor.default",
        "it returns a quantized tensor, whose scale is not part of its memory",
    ),
}
META = torch.ones(3, device="meta")
SPARSE = X.to_sparse()


@pytest.mark.parametrize("modes", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", REFUSED)
def test_refused(session: HostSession, drive: Any, name: str, modes: Any) -> None:
    call, operation, reason = REFUSED[name]
    session.begin()
    with modes(), drive(session), pytest.raises(CaptureError, match=reason) as caught:
        call()
    session.abort()
    refused = "was refused while a segment was being captured on the host, as CUDA would refuse it: "
    assert caught.match(rf"^({operation}) {refused}")
    assert str(caught.value).endswith(". Let it run between two segments, or move it out of the callable.")


ALLOWED: dict[str, Callable[[], Any]] = {
    "repeat_with_size": lambda: X.repeat_interleave(torch.tensor([1, 2]), 0, output_size=3),
    "integer_index": lambda: X[torch.tensor([0, 1])],
    "integer_store": lambda: X.clone().index_put_((torch.tensor([0]),), torch.tensor(9.0)),
    "masked_fill": lambda: X.masked_fill(MASK, 0.0),
    "masked_number": lambda: X.clone().__setitem__(MASK, 0.0),
    "to_cpu": lambda: X.to("cpu", torch.float64),
    "metadata": lambda: (X + 1).is_same_size(X),
}


@pytest.mark.parametrize("modes", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", ALLOWED)
def test_allowed(record: Any, name: str, modes: Any) -> None:
    with modes():
        record(ALLOWED[name])


def test_higher_order_operations(session: HostSession) -> None:
    session.begin()
    with pytest.raises(CaptureError, match=r"cond was refused .* it is a CondOp, not an operator overload"):
        session.run(torch.ops.higher_order.cond, (), {})  # type: ignore[arg-type]


def test_a_refused_operation_has_not_run(backend: HostBackend, drive: Any) -> None:
    session = backend.open(exclusive=False)
    x = torch.zeros(3)
    session.begin()
    with drive(session), pytest.raises(CaptureError):
        x.index_put_((torch.tensor([True, False, True]),), torch.ones(2))
    assert x.eq(0).all()


def test_an_error_of_the_operation_itself_passes_through(session: HostSession, drive: Any) -> None:
    session.begin()
    with drive(session), pytest.raises(RuntimeError, match="size of tensor"):
        torch.ones(2) + torch.ones(3)
    assert session.end() is not None  # the two factories
