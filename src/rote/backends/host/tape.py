"""What a session writes down: operations whose tensors are named by place, not held.

A tensor whose storage a captured operation made is a :class:`Place`: block, type, size, stride, offset. It
is turned into memory only when the recording is finished and it is known what outlived it. Every other
tensor (input, parameter, constant, result of an island) is held through an alias: same storage, own
metadata, so that ``t_()``, ``resize_()`` or ``.data =`` on the caller's tensor cannot bend the recording. For
arguments used in place the alias does not own the memory (:mod:`..aliases`).

Holding the operation's own tensor objects does not work: autograd takes a gradient over only if nobody else
holds that object, and no lifetime would end before the recording does.

Not written down: views (static memory, once aliased, stays aliased), ``empty`` and its kin (they only make
memory), changes of metadata (places are taken after an operation ran, so they already contain them), and
operations that neither return a tensor nor write. All of it is seen from storages, not from schemas:
whether ``reshape`` or ``to`` aliases depends on its input.

A literal (``torch.tensor(0.0)``) appears as ``lift_fresh`` of a tensor that nobody made. If it is later
added to in place, each replay must start from its first value again, so it counts as made here, from a copy
kept aside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch

from ..aliases import OWNING, Aliases
from .compat import fills_memory
from .operations import IN_PLACE, Catalog, Facts, walk
from .storages import Block, Storages
from .variants import Variant


class Place(NamedTuple):
    """A tensor in a storage of the session."""

    block: Block
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    conj: bool
    neg: bool


class Product(NamedTuple):
    """A tensor that an operation made: where in its return value, and where in memory."""

    path: tuple[int, ...]
    place: Place


class Entry(NamedTuple):
    """One captured operation.

    Attributes:
        facts: The operation.
        args: Positional operands, tensors replaced by places or aliases.
        kwargs: Keyword operands, likewise.
        products: The tensors it made. What it wrote in place is among the operands.
        grad: Grad mode at capture; some CPU kernels choose their arithmetic by it.
        inference: Whether inference mode was on at capture.
        plain: Whether :func:`is_plain` is true of its products.
        variant: The ``out=`` overload that was found to do the same, if any.
        literal: For a lifted literal, its values as they were at capture.
    """

    facts: Facts
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    products: tuple[Product, ...]
    grad: bool
    inference: bool
    plain: bool
    variant: Variant | None = None
    literal: torch.Tensor | None = None


class Tape:
    """The operations of one segment."""

    def __init__(self, storages: Storages, catalog: Catalog, aliases: Aliases = OWNING) -> None:
        self.entries: list[Entry] = []
        self._catalog = catalog
        self._storages = storages
        self._keep = aliases.keep
        self._aliases: dict[tuple[Any, ...], torch.Tensor] = {}

    def record(
        self,
        facts: Facts,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        operands: Sequence[torch.Tensor],
        out: Any,
    ) -> None:
        """Write down an operation that has just run.

        Args:
            facts: The operation.
            args: Its positional operands.
            kwargs: Its keyword operands.
            operands: The tensors in both.
            out: What it returned.
        """
        if facts.metadata_only:
            return
        if facts.name == "lift_fresh" and self._lift(facts, args[0]):
            return
        made = self._made(operands, out)
        if not (made or facts.writes or facts.silent):
            return
        frozen = tuple([self._freeze(each) for each in args])
        options = {k: self._freeze(v) for k, v in kwargs.items()} if kwargs else kwargs
        products = tuple([Product(path, self._place(tensor)) for path, tensor in made])
        if facts.makes_memory and not fills_memory():
            return
        if facts.writes or facts.unsaid_writes:
            _note_writes(facts, frozen, options)
        variant, plain = None, is_plain(products)
        if plain and not (facts.writes or facts.unsaid_writes or facts.name in IN_PLACE):
            variant = self._catalog.variant(facts.op, args, kwargs, [tensor for _, tensor in made])
        self._append(Entry(facts, frozen, options, products, *_modes(), plain, variant))

    def _append(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._storages.tick()

    def _lift(self, facts: Facts, tensor: torch.Tensor) -> bool:
        storage = tensor.untyped_storage()
        # A storage that cannot be resized is borrowed (from NumPy), so its owner may change it: an input.
        if self._storages.find(storage) is not None or not storage.resizable():
            return False
        self._storages.add(storage, self._storages.key(storage))
        products = (Product((), self._place(tensor)),)
        self._append(Entry(facts, (), {}, products, *_modes(), is_plain(products), literal=tensor.clone()))
        return True

    def _made(self, operands: Sequence[torch.Tensor], out: Any) -> list[tuple[tuple[int, ...], torch.Tensor]]:
        """The result's tensors in storages that nobody had before; those are watched from now on."""
        results = [((), out)] if isinstance(out, torch.Tensor) else list(walk(out))
        if not results:
            return []
        storages = self._storages
        given = [storages.key(tensor.untyped_storage()) for tensor in operands]
        made: set[int] = set()
        fresh: list[tuple[tuple[int, ...], torch.Tensor]] = []
        for path, tensor in results:
            storage = tensor.untyped_storage()
            key = storages.key(storage)
            if key in given or (key not in made and storages.at(key) is not None):
                continue
            if key not in made:
                made.add(key)
                storages.add(storage, key)
            fresh.append((path, tensor))
        return fresh

    def _freeze(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            block = self._storages.find(storage)
            return self._alias(value) if block is None else self._place_in(block, storage, value)
        if isinstance(value, (list, tuple)):
            return [self._freeze(each) for each in cast("list[Any] | tuple[Any, ...]", value)]
        return value

    def _place(self, tensor: torch.Tensor) -> Place:
        storage = tensor.untyped_storage()
        block = self._storages.find(storage)
        assert block is not None
        return self._place_in(block, storage, tensor)

    def _place_in(self, block: Block, storage: torch.UntypedStorage, tensor: torch.Tensor) -> Place:
        nbytes = storage.nbytes()
        if nbytes > block.nbytes:
            block.nbytes = nbytes
        return Place(
            block,
            tensor.dtype,
            tuple(tensor.size()),
            tuple(tensor.stride()),
            int(tensor.storage_offset()),
            tensor.is_conj(),
            tensor.is_neg(),
        )

    def _alias(self, tensor: torch.Tensor) -> torch.Tensor:
        key = (
            self._storages.key(tensor.untyped_storage()),
            tensor.dtype,
            tensor.size(),
            tensor.stride(),
            tensor.storage_offset(),
            tensor.is_conj(),
            tensor.is_neg(),
        )
        alias = self._aliases.get(key)
        if alias is None:
            alias = self._aliases[key] = self._keep(tensor)
        return alias


def places(value: Any) -> Iterator[Place]:
    """The places in a frozen operand."""
    if isinstance(value, Place):
        yield value
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from places(each)


def is_plain(products: Sequence[Product]) -> bool:
    """Whether each result lies in memory of its own, none lazily conjugated, no two elements in one spot."""
    for _, place in products:
        if place.conj or place.neg or may_overlap(place):
            return False
    return len(products) < 2 or len({place.block for _, place in products}) == len(products)


def may_overlap(place: Place) -> bool:
    """Whether two elements of the tensor may share memory, as after ``expand``."""
    return _overlaps(place.size, place.stride)


@lru_cache(maxsize=4096)
def _overlaps(size: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    reach = 0
    for step, n in sorted(zip(stride, size, strict=True)):
        if n == 0:
            return False
        if n > 1:
            if step <= reach:
                return True
            reach += (n - 1) * step
    return False


def _modes() -> tuple[bool, bool]:
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled()


def _note_writes(facts: Facts, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    written = [args[n] if n < len(args) else kwargs.get(name) for n, name in facts.writes]
    if facts.unsaid_writes:
        written.extend([*args, *kwargs.values()])
    for each in written:
        for place in places(each):
            place.block.rewritten = True
