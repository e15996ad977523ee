"""Where the features of norms and linear layers go during calibration: what smoothing may be folded into.

A divisor can move from a layer's input to the module that the input comes from (its *source*: a norm or a
linear layer) only if each column of the input is a multiple of one feature of the source, and if nothing else
reads that feature. Names prove neither. So every ATen operation that gets memory with features is looked at:
``flow_rules`` knows those that leave features apart (a product with a gate, attention over values, a copy of
heads for grouped queries) and carries the map of features along. Any other operation counts as a reader of
the source, as do the model's caller and code that keeps a tensor after the call. One such reader, ever, and
nothing is folded into that source.

Features belong to memory, not to tensors, so views need no rule, and a write through one view shows in the
others. Not seen are: code that gets an address and not a tensor (NumPy, kernels called past the dispatcher),
hooks on all modules of the process, code that takes a norm's weight without calling the norm, and ways
through the model that calibration never took. Nothing is followed on a second thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from threading import get_ident
from typing import Any, cast
from weakref import ReferenceType, ref

import torch
from torch import Tensor, UntypedStorage

from ..numerics import Operations, is_view, is_wrapper
from .flow_rules import NOTHING, SHAPES_ONLY, OpCall, rule_for

RETURNED = "its caller"
KEPT = "what keeps it when the call is over (a cache, an attribute; autograd, without torch.no_grad())"
MIXED = "{}, which takes its features in more than one order, or others as well"


class _HeldFeatures:
    """The features of one source in a piece of memory; memory with those of several is not followed."""

    def __init__(self, source: str, features: Tensor, tensor: Tensor) -> None:
        self.source = source
        self._features, self._geometry = features, _geometry(tensor)
        self._itemsize = tensor.dtype.itemsize
        self._size = tensor.untyped_storage().nbytes() // self._itemsize
        self._all: Tensor | None = None

    def map_of(self, x: Tensor) -> Tensor | None:
        """The map of a tensor in this memory; None if it reads the bytes as another type."""
        if x.dtype.itemsize != self._itemsize:
            return None
        if _geometry(x) == self._geometry:
            return self._features
        if self._all is None:
            whole = torch.full((self._size,), NOTHING, dtype=torch.int32, device=self._features.device)
            whole.as_strided(*self._geometry).copy_(self._features)
            self._all = whole
        return self._all.as_strided(*_geometry(x))


class Flows(Operations):
    """Follows the features of sources; calls ``read`` with a source and a reader that is no linear layer."""

    def __init__(self, read: Callable[[str, str], None]) -> None:
        super().__init__()
        self._read = read
        self._held: dict[int, tuple[ReferenceType[UntypedStorage], _HeldFeatures]] = {}
        self._quiet = 0
        self._hushed = False
        self._thread = get_ident()

    @contextmanager
    def quiet(self) -> Generator[None]:
        """Operations inside are no readers, and not followed."""
        self._quiet += 1
        try:
            yield
        finally:
            self._quiet -= 1

    def hush(self, on: bool) -> None:
        """The same for a layer's operations between two hooks, which are not nested."""
        self._hushed = on

    def made(self, source: str, output: Tensor) -> None:
        """A source returned features along the last dimension."""
        if get_ident() != self._thread:
            return
        with self.quiet():
            for other in self._sources((output,)) - {source}:
                self._read(other, source)
            features = torch.arange(output.shape[-1], dtype=torch.int32, device=output.device)
            self._hold(source, features.expand(output.shape), output)

    def columns(self, x: Tensor, reader: str) -> tuple[str, Tensor | None] | None:
        """The source of a linear layer's input ``(..., in)``, and its feature of each column.

        The columns have the shape ``(in,)``, and are None for an input without rows. The result is None
        without a source, or where rows differ in their features.
        """
        held = self._find(x)
        if held is None or get_ident() != self._thread:
            return None
        with self.quiet():
            features = held.map_of(x)
            rows = None if features is None else features.reshape(-1, x.shape[-1] or 1)
            if rows is not None and not len(rows):
                return held.source, None
            if rows is not None and bool((rows == rows[:1]).all()) and not bool((rows[0] == NOTHING).any()):
                return held.source, rows[0].cpu()
        self._read(held.source, MIXED.format(reader))
        return None

    def returned(self, result: object) -> None:
        """The model's caller got a result."""
        for source in self._sources(result):
            self._read(source, RETURNED)

    def kept(self) -> None:
        """A batch is over: memory that is still alive has an owner who can read it."""
        for source in {held.source for storage, held in self._held.values() if storage() is not None}:
            self._read(source, KEPT)
        self.clear()

    def clear(self) -> None:
        """Forget all memory."""
        self._held.clear()
        self._hushed = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        known = isinstance(func, torch._ops.OpOverload)
        if known and any(map(is_wrapper, types)):
            return NotImplemented  # tensors that wrap others call again with those
        sources = frozenset[str]()
        if not self._quiet and not self._hushed:
            sources = self._sources((args, kwargs))
        if not sources:
            return func(*args, **kwargs)
        if known and torch.is_inference_mode_enabled():  # in other modes autograd decomposes
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        first = next(_tensors(result), None)
        name = func._schema.name if known else str(func)
        for source in sources - self._carried(func, name, args, kwargs, first):
            self._read(source, name)
        return result

    def _carried(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor | None
    ) -> frozenset[str]:
        """The sources whose features an operation ignores, or leaves apart in its result."""
        nothing = frozenset[str]()
        namespace, _, name = name.partition("::")
        if namespace != "aten":
            return nothing
        if name in SHAPES_ONLY or is_view(func):
            same = result is None or result.dtype == args[0].dtype
            return self._sources(args) if same or name in SHAPES_ONLY else nothing
        rule = rule_for(name)
        if rule is None or result is None or not result.is_floating_point():
            return nothing
        if func._schema.is_mutable and (result is not args[0] or "out" in kwargs or not _is_whole(result)):
            return nothing
        call = OpCall(func, args, kwargs, result, self._map_of)
        carried = self._sources(rule.carried(call))
        features = rule.map_result(call) if len(carried) == 1 else None
        if features is None:
            return nothing
        (source,) = carried
        self._hold(source, features.to(result.device), result)
        return carried - self._sources(rule.read(call))

    def _hold(self, source: str, features: Tensor, tensor: Tensor) -> None:
        storage = _storage(tensor)
        if storage is not None:
            key = id(storage)
            forget = ref(storage, lambda dead: self._forget(key, dead))
            self._held[key] = (forget, _HeldFeatures(source, features, tensor))

    def _forget(self, key: int, dead: ReferenceType[UntypedStorage]) -> None:
        if key in self._held and self._held[key][0] is dead:
            del self._held[key]

    def _find(self, x: object) -> _HeldFeatures | None:
        storage = _storage(x)
        found = None if storage is None else self._held.get(id(storage))
        return found[1] if found is not None and found[0]() is storage else None

    def _map_of(self, x: object) -> Tensor | None:
        held = self._find(x)
        return None if held is None else held.map_of(cast(Tensor, x))

    def _sources(self, value: object) -> frozenset[str]:
        found = (self._find(x) for x in _tensors(value)) if self._held else ()
        return frozenset(held.source for held in found if held is not None)


def _geometry(x: Tensor) -> tuple[torch.Size, tuple[int, ...], int]:
    return x.size(), x.stride(), int(x.storage_offset())


def _is_whole(x: Tensor) -> bool:
    return x.numel() * x.dtype.itemsize == x.untyped_storage().nbytes()


def _storage(x: object) -> UntypedStorage | None:
    """The memory of a tensor, if it has its own."""
    if not isinstance(x, Tensor) or x.layout is not torch.strided:
        return None
    try:
        return x.untyped_storage()
    except (NotImplementedError, RuntimeError):  # of tensors that wrap others
        return None


def _tensors(value: object) -> Iterator[Tensor]:
    """The tensors in nested containers."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from _tensors(tuple(cast(Mapping[Any, object], value).values()))
    elif isinstance(value, list | tuple):
        for item in cast("list[object]", value):
            yield from _tensors(item)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _tensors(getattr(value, field.name, None))
