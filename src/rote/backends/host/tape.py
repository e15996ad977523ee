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
from typing import Any, NamedTuple, cast

import torch

from ...base.identity import identity
from ..aliases import OWNING, Aliases
from .compat import OpOverload, fills_memory
from .forms import Form
from .operations import Catalog, Facts, walk, with_tensors
from .program import Modes
from .refusals import check_tensor
from .storages import Block, Storages

_Tensor = torch.Tensor
_tuple = tuple.__new__  # half the time of a named tuple's own constructor, several times an operation

Looked = tuple[list[torch.UntypedStorage], list[int], list[Form]]
"""Storages of operands, their addresses, and what the operands look like."""


class Place(NamedTuple):
    """A tensor in a storage of the session."""

    block: Block
    form: Form
    offset: int


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
        modes: Those it ran under.
        literal: For a lifted literal, its values as they were at capture.
    """

    facts: Facts
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    products: tuple[Product, ...]
    modes: Modes
    literal: torch.Tensor | None = None


class Tape:
    """The operations of one segment."""

    def __init__(self, storages: Storages, catalog: Catalog, aliases: Aliases = OWNING) -> None:
        self.entries: list[Entry] = []
        self._catalog = catalog
        self._storages = storages
        self._forms = catalog.forms
        self._keep = aliases.keep
        self._aliases: dict[tuple[Any, ...], torch.Tensor] = {}
        self._last: dict[int, Form] = {}  # by address of a storage, the form of the last tensor on it

    def look_at(self, func: OpOverload, operands: Sequence[torch.Tensor]) -> Looked:
        """Look at the operands of an operation.

        Raises:
            CaptureError: One of them has no plain memory on the CPU.
        """
        key_of, last = self._storages.key, self._last
        stored: list[torch.UntypedStorage] = []
        keys: list[int] = []
        forms: list[Form] = []
        for tensor in operands:
            try:
                storage = tensor.untyped_storage()
            except NotImplementedError:
                check_tensor(func, "takes", tensor)
                raise
            key = key_of(storage)
            like = last.get(key)
            if like is None or tensor.is_nested or not (like.check(tensor) or like.knows(tensor)):
                like = last[key] = self._form(func, "takes", tensor)
            stored.append(storage)
            keys.append(key)
            forms.append(like)
        return stored, keys, forms

    def _form(self, func: OpOverload, verb: str, tensor: torch.Tensor, like: Form | None = None) -> Form:
        """What a tensor looks like, which is guessed; it is refused if it has no plain memory."""
        if like is not None and not tensor.is_nested and like.check(tensor):
            return like
        check_tensor(func, verb, tensor)
        return self._forms.of(tensor)

    def _result_form(self, facts: Facts, tensor: torch.Tensor, first: Form | None, number: int) -> Form:
        """What a result looks like, which is guessed: as the last one of the operation on such an operand."""
        guesses, guess = self._forms.guesses, (identity(facts), identity(first), number)
        like = guesses.get(guess, first)
        form = self._form(facts.op, "returns", tensor, like)
        if form is not like:
            guesses[guess] = form
        return form

    def record(
        self,
        facts: Facts,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        operands: Sequence[torch.Tensor],
        looked: Looked,
        out: Any,
    ) -> None:
        """Write down an operation that has just run.

        Args:
            facts: The operation.
            args: Its positional operands.
            kwargs: Its keyword operands.
            operands: The tensors in both, in order.
            looked: What :meth:`look_at` saw of them before.
            out: What it returned.

        Raises:
            CaptureError: A result has no plain memory on the CPU.
        """
        like = looked[2][0] if operands else None  # as after most operations
        returned = (((), out),) if type(out) is _Tensor else tuple(walk(out))
        results = [
            (path, part, self._result_form(facts, part, like, number))
            for number, (path, part) in enumerate(returned)
        ]
        if facts.metadata_only:
            return
        if facts.name == "lift_fresh" and self._lift(facts, args[0]):
            return
        if facts.writes or facts.unsaid_writes:  # which may give an operand other memory
            looked = self.look_at(facts.op, operands)
        made = self._made(looked[1], results)
        if not (made or facts.writes or facts.silent):
            return
        frozen, options = with_tensors(args, kwargs, self._held(operands, looked))
        if facts.makes_memory and not fills_memory():
            return
        if facts.writes or facts.unsaid_writes:
            _note_writes(facts, frozen, options)
        self.entries.append(_tuple(Entry, (facts, frozen, options, made, Modes.now(), None)))
        self._storages.tick()

    def _lift(self, facts: Facts, tensor: torch.Tensor) -> bool:
        storage = tensor.untyped_storage()
        # A storage that cannot be resized is borrowed (from NumPy), so its owner may change it: an input.
        if self._storages.find(storage) is not None or not storage.resizable():
            return False
        block = self._storages.add(storage, self._storages.key(storage))
        made = (Product((), _place(block, storage, self._forms.of(tensor), tensor)),)
        self.entries.append(Entry(facts, (), {}, made, Modes.now(), tensor.clone()))
        self._storages.tick()
        return True

    def _made(
        self, given: Sequence[int], results: Sequence[tuple[tuple[int, ...], torch.Tensor, Form]]
    ) -> tuple[Product, ...]:
        """Where the results lie that are in storages that nobody had before.

        Their storages are watched from now on.

        Args:
            given: Addresses of the operands' storages.
            results: The tensors that the operation returned, each with its path and its form.
        """
        storages, last = self._storages, self._last
        living = storages.living()
        made: dict[int, Block] = {}
        products: list[Product] = []
        for path, tensor, form in results:
            storage = tensor.untyped_storage()
            key = storages.key(storage)
            block = made.get(key)
            if block is None:
                if key in living or key in given:
                    last[key] = form
                    continue
                block = made[key] = storages.add(storage, key)
                last[key] = form
            products.append(_tuple(Product, (path, _place(block, storage, form, tensor))))
        return tuple(products)

    def _held(self, tensors: Sequence[torch.Tensor], looked: Looked) -> list[Place | torch.Tensor]:
        """Operands as they are written down."""
        living = self._storages.living()
        held: list[Place | torch.Tensor] = []
        for tensor, storage, key, form in zip(tensors, *looked, strict=True):
            block = living.get(key)
            held.append(
                self._alias(tensor, key, form) if block is None else _place(block, storage, form, tensor)
            )
        return held

    def _alias(self, tensor: torch.Tensor, address: int, form: Form) -> torch.Tensor:
        key = (address, form, tensor.storage_offset())
        alias = self._aliases.get(key)
        if alias is None:
            alias = self._aliases[key] = self._keep(tensor)
        return alias


def _place(block: Block, storage: torch.UntypedStorage, form: Form, tensor: torch.Tensor) -> Place:
    nbytes = storage.nbytes()
    if nbytes > block.nbytes:
        block.nbytes = nbytes
    return _tuple(Place, (block, form, tensor.storage_offset()))


def places(value: Any) -> Iterator[Place]:
    """The places in a frozen operand."""
    if isinstance(value, Place):
        yield value
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from places(each)


def _note_writes(facts: Facts, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    written = [args[n] if n < len(args) else kwargs.get(name) for n, name in facts.writes]
    if facts.unsaid_writes:
        written.extend([*args, *kwargs.values()])
    for each in written:
        for place in places(each):
            place.block.rewritten = True
