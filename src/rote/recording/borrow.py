"""Outputs that are the graph's own memory, lent until the next replay overwrites it.

A borrowed tensor carries its lease. Every use goes through ``__torch_function__``, which looks at the lease
first, so reading a stale tensor raises instead of showing the values of another call; views of it carry the
same lease. Metadata (shape, dtype, device) stays readable.

What this does not see: memory handed to C++ that keeps the pointer (``data_ptr()`` taken while it was valid).
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import torch

from ..base.errors import StaleOutputError
from ..base.location import Site
from .compat import plain_functions

_METADATA = frozenset({
    "shape", "dtype", "device", "layout", "ndim", "requires_grad", "is_cuda", "grad_fn", "is_leaf",
    "size", "dim", "numel", "stride", "storage_offset", "is_contiguous", "__len__", "is_floating_point",
    "is_meta",
})  # fmt: skip


_ESCAPING = frozenset({"as_subclass", "set_", "data", "numpy", "__array__", "__dlpack__"})
"""Functions whose result would be an alias without a lease: they get a copy."""


class Lease:
    """How long an output may be read.

    Args:
        owner: Name of the callable.
        site: Line of the call that produced the output.
    """

    def __init__(self, owner: str, site: Site) -> None:
        self.owner = owner
        self.site = site
        self.ended: str | None = None
        with _register:
            _open.add(self)

    def end(self, why: str) -> None:
        """From now on reading raises, naming ``why``."""
        if self.ended is None:
            self.ended = why

    def check(self, made: str) -> None:
        """Raise if the memory is no longer the output's.

        Args:
            made: The operation that made the output, and its line.

        Raises:
            StaleOutputError: It was overwritten, or a new step began.
        """
        if self.ended is not None:
            raise StaleOutputError(
                f"this output of {self.owner}, made by {made} in the call at {self.site}, is stale: "
                f"{self.ended}. "
                'Clone it before that, or use outputs="safe".'
            )


_open: weakref.WeakSet[Lease] = weakref.WeakSet()
_register = threading.Lock()


def end_step(site: Site) -> None:
    """End every lease: a new step begins."""
    with _register:
        leases = list(_open)
        _open.clear()
    for lease in leases:
        lease.end(f"rote.step() at {site} began a new step")


class BorrowedTensor(torch.Tensor):
    """A tensor in a recording's memory, readable while its lease lasts."""

    lease: Lease
    made: str

    def __rote_plain__(self) -> torch.Tensor:
        """The plain tensor, for a graphed callable that takes it as an argument.

        Raises:
            StaleOutputError: The lease has ended.
        """
        self.lease.check(self.made)
        with plain_functions():
            return self.as_subclass(torch.Tensor)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        lent = _lent((*args, *kwargs.values()))
        with plain_functions():
            if _name(func) not in _METADATA:
                for tensor in lent:
                    tensor.lease.check(tensor.made)
            if _name(func) in _ESCAPING and lent:
                args, kwargs = _own(args), {key: _own(value) for key, value in kwargs.items()}
            return _wrap(func(*args, **kwargs), lent)


def lend(tensor: torch.Tensor, lease: Lease, made: str) -> BorrowedTensor:
    """Give out memory of a recording under a lease.

    Args:
        tensor: The memory.
        lease: How long it may be read.
        made: The operation that made it, and its line.
    """
    with plain_functions():
        borrowed = tensor.detach().as_subclass(BorrowedTensor)
        borrowed.lease = lease
        borrowed.made = made
    return borrowed


def _name(func: Any) -> str:
    owner = getattr(func, "__self__", None)
    return str(getattr(owner, "__name__", getattr(func, "__name__", "")))


def _lent(values: Any) -> list[BorrowedTensor]:
    found: list[BorrowedTensor] = []
    for value in values:
        if isinstance(value, BorrowedTensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(_lent(value))
    return found


def _own(value: Any) -> Any:
    """Copies in place of borrowed tensors."""
    if isinstance(value, BorrowedTensor):
        return value.as_subclass(torch.Tensor).clone()
    if isinstance(value, (list, tuple)):
        return type(value)([_own(item) for item in value])
    return value


def _wrap(out: Any, lent: list[BorrowedTensor]) -> Any:
    """Results that look at borrowed memory are borrowed too."""
    if isinstance(out, (list, tuple)) and not isinstance(out, torch.Size):
        return type(out)([_wrap(item, lent) for item in out])
    if not isinstance(out, torch.Tensor) or isinstance(out, BorrowedTensor):
        return out
    for tensor in lent:
        if out.layout is torch.strided and out.untyped_storage()._cdata == tensor.untyped_storage()._cdata:
            return lend(out, tensor.lease, tensor.made)
    return out
