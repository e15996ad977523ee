"""Outputs that are the graph's own memory, lent until the next replay overwrites it.

A borrowed tensor carries its lease. Every use goes through ``__torch_function__``, which looks at the lease
first, so reading a stale tensor raises instead of showing the values of another call; views of it carry the
same lease. Metadata (shape, dtype, device) stays readable.

What this does not see: memory handed to C++ that keeps the pointer (``data_ptr()`` taken while it was valid).
"""

from __future__ import annotations

import threading
from operator import is_
from typing import Any

import torch

from ..base.errors import StaleOutputError
from ..base.location import Mark, Site
from ..signature.compat import plain_functions
from ..signature.key import Call
from ..signature.leaves import flatten, unflatten
from .compat import alias_as

_METADATA = frozenset({
    "shape", "dtype", "device", "layout", "ndim", "requires_grad", "is_cuda", "grad_fn", "is_leaf",
    "size", "dim", "numel", "stride", "storage_offset", "is_contiguous", "__len__", "is_floating_point",
    "is_meta",
})  # fmt: skip


_ESCAPING = frozenset({"as_subclass", "set_", "data", "numpy", "__array__", "__dlpack__"})
"""Functions whose result would be an alias without a lease: they get a copy."""


class _Step:
    """The time between two calls of ``rote.step()``: a lease made in it ends with it."""

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended: str | None = None


class _Steps:
    """Which step it is. A lease is made at every call, so leases know their step, and no step its leases."""

    def __init__(self) -> None:
        self.now = _Step()
        self._lock = threading.Lock()

    def end(self, why: str) -> None:
        """Begin another one."""
        with self._lock:
            self.now, ended = _Step(), self.now
        ended.ended = why


_steps = _Steps()


class Lease:
    """How long an output may be read.

    Args:
        owner: Name of the callable.
        site: Line of the call that produced the output.
    """

    __slots__ = ("__weakref__", "_overwriter", "_step", "_why", "owner", "site")

    def __init__(self, owner: str, site: Site | Mark) -> None:
        self.owner = owner
        self.site = site
        self._why: str | None = None
        self._overwriter: tuple[int, Site | Mark] | None = None
        self._step = _steps.now

    @property
    def lasts(self) -> bool:
        """Whether the output may still be read."""
        return self._overwriter is None and self._why is None and self._step.ended is None

    def end(self, why: str) -> None:
        """From now on reading raises, naming ``why``."""
        if self.lasts:
            self._why = why

    def overwrite(self, call: int, site: Site | Mark) -> None:
        """Another call of the owner writes there. Made at every call, and its text hardly ever read.

        Args:
            call: Its number.
            site: Its line.
        """
        if self.lasts:
            self._overwriter = (call, site)

    def check(self, made: str) -> None:
        """Raise if the memory is no longer the output's.

        Args:
            made: The operation that made the output, and its line.

        Raises:
            StaleOutputError: It was overwritten, or a new step began.
        """
        if not self.lasts:
            raise StaleOutputError(
                f"this output of {self.owner}, made by {made} in the call at {self.site}, is stale: "
                f"{self._reason()}. "
                'Clone it before that, or use outputs="safe".'
            )

    def _reason(self) -> str | None:
        if self._overwriter is None:
            return self._why or self._step.ended
        call, site = self._overwriter
        return f"call {call} of {self.owner} at {site} overwrote it"


def end_step(site: Site) -> None:
    """End every lease: a new step begins."""
    _steps.end(f"rote.step() at {site} began a new step")


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
    borrowed = alias_as(tensor, BorrowedTensor)
    borrowed.lease = lease
    borrowed.made = made
    return borrowed


def went_stale(call: Call) -> bool:
    """Whether a borrowed argument's lease has ended since the call began."""
    return any(not lent.lease.lasts for _, lent in call.borrowed)


def with_stale_copied(call: Call) -> Call:
    """A call whose borrowed arguments lie in memory that is about to be overwritten, with copies of those.

    A recording that gets its own output back reads it before it writes there. What it then has to write back
    into the argument, or to return of it, needs memory of its own; the caller's tensor is stale by then.
    """
    stale = {index for index, lent in call.borrowed if not lent.lease.lasts}
    storages: dict[int, torch.UntypedStorage] = {}
    leaves = list(call.leaves)
    for index in stale:
        leaf: torch.Tensor = leaves[index]
        storage = leaf.untyped_storage()
        copy = storages.get(storage._cdata)
        if copy is None:
            copy = storages[storage._cdata] = storage.clone()
        fresh = torch.empty(0, dtype=leaf.dtype, device=leaf.device)
        leaves[index] = fresh.set_(copy, leaf.storage_offset(), leaf.shape, leaf.stride())
    return call._replace(leaves=tuple(leaves))


def lend_again(value: Any, leaves: tuple[Any, ...], borrowed: tuple[tuple[int, BorrowedTensor], ...]) -> Any:
    """A result that contains a borrowed argument, or looks at its memory, under the argument's lease.

    Args:
        value: What a callable returned that was called with plain tensors.
        leaves: Its arguments.
        borrowed: Which of them were borrowed, and the tensors with their leases.
    """
    handles = {leaves[index].untyped_storage()._cdata: lent for index, lent in borrowed}
    same = {id(leaves[index]): lent for index, lent in borrowed}
    parts: list[Any] = []
    spec = flatten(value, parts)
    found = [_again(part, handles, same) for part in parts]
    return value if all(map(is_, parts, found)) else unflatten(spec, iter(found))


def _again(part: Any, handles: dict[int, BorrowedTensor], same: dict[int, BorrowedTensor]) -> Any:
    if not isinstance(part, torch.Tensor) or isinstance(part, BorrowedTensor):
        return part
    if id(part) in same:
        return same[id(part)]
    lent = handles.get(part.untyped_storage()._cdata) if part.layout is torch.strided else None
    return lend(part, lent.lease, lent.made) if lent is not None else part


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
