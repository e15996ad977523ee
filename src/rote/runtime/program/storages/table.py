"""Which storages a call has met, and where each came from.

Operations are compared between calls by the *origin* of their operands, not by address: the third tensor the
call made, the storage of argument 0, the second external tensor. Storages are followed by weak reference, so
that observing a call changes no lifetime (autograd steals a gradient only when nobody else holds it).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn.parameter import UninitializedTensorMixin  # pyright: ignore

from ....base import Site
from ...pytorch import is_lazy_zero, is_wrapped, stands_for_others
from .looks import Look, Looks

INPUT, EXTERNAL, NEW = "input", "external", "new"

Origin = tuple[str, int]

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


class Token(NamedTuple):
    """A tensor as seen by an operation: where its memory comes from and how it looks at it."""

    origin: Origin
    look: Look
    offset: int

    @property
    def dtype(self) -> torch.dtype:
        """Data type."""
        return self.look.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""
        return self.look.shape

    @property
    def stride(self) -> tuple[int, ...]:
        """Strides in elements."""
        return self.look.stride

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def on_host(self) -> bool:
        """Whether it is a CPU tensor."""
        return self.look.on_host

    @property
    def made(self) -> int | None:
        """Number of the storage, if the call made it."""
        return self.origin[1] if self.origin[0] == NEW else None


_SEEDS = frozenset({torch.int64, torch.uint64})
"""Types of seeds of random numbers."""


class UnsupportedTensorError(Exception):
    """A tensor without plain memory (sparse, nested, a wrapper subclass) reached an operation."""


class StorageTable:
    """Origins of the storages of one call.

    A weak reference to each storage, whose callback is the ``append`` of a list, notes its death there: no
    Python code runs when a tensor dies. The list is worked off before anything is looked up.

    Args:
        looks: What the tensors of earlier calls looked like.
        meet: Called with each tensor made outside, when it is an operand for the first time.

    Attributes:
        made: Number of storages that the call has made.
        most_bytes: The most that :attr:`live_bytes` were.
    """

    def __init__(
        self, looks: Looks | None = None, meet: Callable[[torch.Tensor], None] = lambda tensor: None
    ) -> None:
        self.looks = looks if looks is not None else Looks()
        self._meet = meet
        self._origins: dict[int, Origin] = {}
        self._watch: dict[int, _Watched] = {}
        self._pinned: dict[Origin, torch.UntypedStorage] = {}
        self.made = 0
        self._inputs: dict[int, list[tuple[int, int]]] = {}
        self._given: dict[int, torch.Tensor] = {}
        self.host_memory: set[int] = set()
        self.externals: list[torch.Tensor] = []
        self.external_sites: list[tuple[str, Site]] = []
        self.sites: dict[int, tuple[str, Site]] = {}
        self._live: dict[str, int] = {}
        self.most_bytes: dict[str, int] = {}
        self.told: Callable[[torch.Tensor], None] | None = None  # of each tensor that is described
        self._gone: list[_Watched] = []

    def add_input(self, index: int, tensor: torch.Tensor, start: int) -> None:
        """Register the storage of an argument; the first argument of a shared storage names it.

        Args:
            start: First element of the storage that arguments cover; offsets count from there.
        """
        storage, origin = _storage(tensor), (INPUT, index)
        self._forget_gone()
        self._origins.setdefault(storage._cdata, origin)
        self._pinned[origin] = storage
        self._given[index] = tensor
        self._inputs.setdefault(storage._cdata, []).append((start * tensor.itemsize, index))
        self._inputs[storage._cdata].sort()

    @property
    def live_bytes(self) -> dict[str, int]:
        """Bytes of the storages made in the call that are alive, by type of device."""
        self._forget_gone()
        return self._live

    def input_dtype(self, index: int) -> torch.dtype:
        """Data type of an argument."""
        return self._given[index].dtype

    def add_host_memory(self, tensor: torch.Tensor) -> None:
        """Register a tensor over a numpy array."""
        self.host_memory.add(self.add_external(tensor)[1])

    def add_external(self, tensor: torch.Tensor) -> Origin:
        """Register a storage that existed before the call and is no argument."""
        if is_lazy_zero(tensor):  # one that a graph has saved
            raise UnsupportedTensorError("forward-mode zero")
        self._forget_gone()
        self._meet(tensor)
        storage, origin = _storage(tensor), (EXTERNAL, len(self.externals))
        self.externals.append(tensor)
        self._origins[storage._cdata] = origin
        self._pinned[origin] = storage
        return origin

    def note_readers(self, operation: str, site: Site) -> None:
        """Note the operation that was the first to read the newest external tensors."""
        while len(self.external_sites) < len(self.externals):
            self.external_sites.append((operation, site))

    def token(self, tensor: torch.Tensor) -> Token:
        """Describe an operand; an unknown storage is external."""
        if self.told is not None:
            self.told(tensor)
        if self._gone:
            self._forget_gone()
        handle = _storage(tensor)._cdata
        look, origin = self._look(tensor), self._origins.get(handle)
        if origin is None:
            origin = self.add_external(tensor)
        return self._placed(tensor, origin, handle, look)

    def _look(self, tensor: torch.Tensor) -> Look:
        try:
            return self.looks.of(tensor)
        except RuntimeError as error:  # it has memory, but no shape
            raise UnsupportedTensorError("nested") from error

    def _placed(self, tensor: torch.Tensor, origin: Origin, handle: int, look: Look) -> Token:
        offset: Any = tensor.storage_offset()
        if origin[0] is INPUT:
            origin, start = self._input(tensor, handle)
            offset -= start // tensor.itemsize
        elif look.dtype in _SEEDS and origin[0] is NEW and self._is_seed(tensor, origin[1]):
            look, offset = self.looks.shared(Look(look.dtype, (), (), False)), 0
        return Token(origin, look, offset)

    def _is_seed(self, tensor: torch.Tensor, number: int) -> bool:
        """Whether it is the seed of an attention: on the host in eager, on the device in a capture."""
        return tensor.numel() <= 2 and "attention" in self.sites[number][0]

    def result(self, tensor: torch.Tensor, operation: str, site: Site, number: int | None = None) -> Token:
        """Describe a result; an unknown storage was made by the operation."""
        if self._gone:
            self._forget_gone()
        storage = _storage(tensor)
        handle = storage._cdata
        origin = self._origins.get(handle)
        if origin is None:
            if number is None:
                number = self.made
            if number >= self.made:
                self.made = number + 1
            self.sites[number] = (operation, site)
            origin = (NEW, number)
            self._follow(storage, handle, origin, "cpu" if tensor.is_cpu else tensor.device.type)
        return self._placed(tensor, origin, handle, self._look(tensor))

    def _input(self, tensor: torch.Tensor, handle: int) -> tuple[Origin, int]:
        """Which argument a tensor over an argument's storage looks at, and where that argument starts."""
        return self._argument_at(handle, tensor.storage_offset() * tensor.itemsize)

    def _argument_at(self, handle: int, byte: Any) -> tuple[Origin, int]:
        begins = self._inputs[handle]
        start, index = next((item for item in reversed(begins) if item[0] <= byte), begins[0])
        return (INPUT, index), start

    def as_named_here(self, token: Token) -> Token:
        """A tensor of a call whose arguments share memory in another way, as this call would describe it."""
        if token.origin[0] is not INPUT:
            return token
        handle, size = self._pinned[token.origin]._cdata, token.dtype.itemsize
        begin = next(start for start, index in self._inputs[handle] if index == token.origin[1])
        origin, start = self._argument_at(handle, begin + token.offset * size)
        return token._replace(origin=origin, offset=token.offset + (begin - start) // size)

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether the storage was met before."""
        self._forget_gone()
        return _storage(tensor)._cdata in self._origins

    def origin(self, tensor: torch.Tensor) -> Origin | None:
        """Where a tensor's memory comes from, or None if the call never met it."""
        handle = _storage(tensor)._cdata
        self._forget_gone()
        origin = self._origins.get(handle)
        return self._input(tensor, handle)[0] if origin is not None and origin[0] is INPUT else origin

    def home(self, origin: Origin) -> torch.Tensor | None:
        """The tensor by which a storage from before the call was met first."""
        if origin[0] is EXTERNAL:
            return self.externals[origin[1]]
        return self._given.get(origin[1]) if origin[0] is INPUT else None

    def storage(self, origin: Origin) -> torch.UntypedStorage | None:
        """The storage of an origin, while it is alive."""
        if origin in self._pinned:
            return self._pinned[origin]
        reference = self._watch.get(origin[1]) if origin[0] == NEW else None
        return reference() if reference is not None else None

    def number_of(self, storage: torch.UntypedStorage) -> int | None:
        """The number of a storage, if the call has made it."""
        self._forget_gone()
        origin = self._origins.get(storage._cdata)
        return origin[1] if origin is not None and origin[0] is NEW else None

    def forget(self, storage: torch.UntypedStorage) -> None:
        """The memory of a storage is another one from now on, or gone."""
        self._forget_gone()
        handle = storage._cdata
        origin = self._origins.pop(handle, None)
        watched = self._watch.pop(origin[1], None) if origin is not None and origin[0] is NEW else None
        if watched is not None:
            self._live[watched.kind] -= watched.nbytes

    def alive(self) -> dict[int, torch.UntypedStorage]:
        """Storages made in the call that are still alive, by number."""
        self._forget_gone()
        found: dict[int, torch.UntypedStorage] = {}
        for number, reference in list(self._watch.items()):
            storage = reference()
            if storage is not None:
                found[number] = storage
        return found

    def references(self) -> dict[Origin, weakref.ref[torch.UntypedStorage]]:
        """The storages made outside, and those made in the call that are alive, by origin."""
        found = {(NEW, number): weakref.ref(storage) for number, storage in self.alive().items()}
        outside = [origin for origin in self._pinned if origin[0] is EXTERNAL]
        return {**found, **{origin: weakref.ref(self._pinned[origin]) for origin in outside}}

    def _forget_gone(self) -> None:
        """Forget the storages that have died: others may have their addresses by now."""
        dead, origins, watch = self._gone, self._origins, self._watch
        while dead:
            gone = dead.pop()
            handle, origin = gone.handle, gone.origin
            self._live[gone.kind] -= gone.nbytes
            if origins.get(handle) is origin:
                del origins[handle]
            if watch.get(origin[1]) is gone:
                del watch[origin[1]]

    def _follow(self, storage: torch.UntypedStorage, handle: int, origin: Origin, kind: str) -> None:
        self._origins[handle] = origin
        nbytes = storage.nbytes()
        live = self._live.get(kind, 0) + nbytes
        self._live[kind] = live
        if live > self.most_bytes.get(kind, 0):
            self.most_bytes[kind] = live
        watched = self._watch[origin[1]] = _Watched(storage, self._gone.append)
        watched.handle, watched.origin, watched.kind, watched.nbytes = handle, origin, kind, nbytes


class _Watched(weakref.ref[torch.UntypedStorage]):
    """A weak reference that knows what it referred to."""

    __slots__ = ("handle", "kind", "nbytes", "origin")

    handle: int
    origin: Origin
    kind: str
    nbytes: int


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    kind = type(tensor)
    if kind not in _PLAIN:
        if isinstance(tensor, UninitializedTensorMixin):
            raise UnsupportedTensorError("uninitialised")
        if stands_for_others(tensor):
            raise UnsupportedTensorError(kind.__name__)
    if is_wrapped(tensor):
        raise UnsupportedTensorError("wrapped")
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError) as error:
        raise UnsupportedTensorError(str(tensor.layout).removeprefix("torch.")) from error
