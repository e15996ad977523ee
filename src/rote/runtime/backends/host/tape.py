"""What a session writes down: operations whose tensors are named by place, not held.

A tensor whose storage a captured operation made is a :class:`TapePlace`: block, type, size, stride, offset.
It becomes memory only when the recording is finished and it is known what outlived it. Every other tensor
(input, parameter, constant, result of an island) is held through an alias: same storage, own metadata, so
that ``t_()``, ``resize_()`` or ``.data =`` on the caller's tensor cannot bend the recording. For arguments
used in place the alias does not own the memory (:mod:`..protocol.aliases`).

Not written down are views (static memory, once aliased, stays aliased), ``empty`` and its kin (they only make
memory), changes of metadata (places are taken after an operation ran, so they contain them), and operations
that neither return a tensor nor write. Storages tell all that, not schemas: whether ``reshape`` or ``to``
aliases depends on its input.

A literal (``torch.tensor(0.0)``) appears as ``lift_fresh`` of a tensor that nobody made. If it is later added
to in place, each replay must start from its first value again, so it counts as made here, from a copy kept
aside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch

from ...operators import Facts
from ..protocol import KERNEL, OWNING, Aliases, KernelLaunch
from .kernels import HostKernel
from .operations import HostOperation, walk, with_tensors
from .program import Modes
from .refusals import check_tensor
from .storages import Block, Form, SessionStorages, form_of
from .torch_private import OpOverload, fills_memory


class TapePlace(NamedTuple):
    """A tensor in a storage of the session."""

    block: Block
    form: Form
    offset: int


class Product(NamedTuple):
    """A tensor that an operation made: where in its return value, and where in memory."""

    path: tuple[int, ...]
    place: TapePlace


class TapeEntry(NamedTuple):
    """One captured operation.

    Attributes:
        args: Positional operands, tensors replaced by places or aliases.
        products: The tensors it made. What it wrote in place is among the operands.
        literal: Of a lifted literal, its values as they were at capture.
    """

    operation: HostOperation
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    products: tuple[Product, ...]
    modes: Modes
    literal: torch.Tensor | None = None

    @property
    def name(self) -> str:
        """The name of the overload."""
        return self.operation.facts.name


class LaunchEntry(NamedTuple):
    """One captured launch of a compiled kernel.

    Attributes:
        tensors: Those that it reads, then those that it writes, as places or aliases.
        given: How many it reads.
    """

    kernel: HostKernel
    tensors: tuple[TapePlace | torch.Tensor, ...]
    given: int
    reals: tuple[float, ...]
    integers: tuple[int, ...]
    modes: Modes

    @property
    def name(self) -> str:
        """Of a kernel that several operations may share."""
        return KERNEL


Entry = TapeEntry | LaunchEntry


class Tape:
    """The operations of one segment."""

    def __init__(self, storages: SessionStorages, aliases: Aliases = OWNING) -> None:
        self.entries: list[Entry] = []
        self._storages = storages
        self._keep = aliases.keep
        self._aliases: dict[tuple[Any, ...], torch.Tensor] = {}

    def record(
        self,
        operation: HostOperation,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        operands: Sequence[torch.Tensor],
        given: Sequence[torch.UntypedStorage],
        out: Any,
    ) -> None:
        """Write down an operation that has just run.

        Raises:
            CaptureError: A result has no plain memory on the CPU.
        """
        facts, results = operation.facts, list(walk(out))
        for _, tensor in results:
            check_tensor(facts.op, "returns", tensor)
        if facts.relocates:
            return
        if facts.name == "aten::lift_fresh" and self._lift(operation, args[0]):
            return
        made = self._made({self._storages.key(storage) for storage in given}, results)
        if not (made or facts.written or operation.silent) or (facts.blank and not fills_memory()):
            return
        frozen, options = with_tensors(args, kwargs, map(self._held, operands))
        if facts.written:
            _note_writes(facts, frozen, options)
        self.entries.append(TapeEntry(operation, frozen, options, made, Modes.now()))
        self._storages.tick()

    def record_launch(self, kernel: HostKernel, launch: KernelLaunch) -> None:
        """Write down a launch that has just run."""
        written = [self._held(tensor) for tensor in launch.made]
        for each in written:
            for place in places(each):
                place.block.rewritten = True
        read = [self._held(tensor) for tensor in launch.given]
        numbers = tuple(launch.reals), tuple(launch.integers)
        self.entries.append(LaunchEntry(kernel, (*read, *written), len(read), *numbers, Modes.now()))
        self._storages.tick()

    def _lift(self, operation: HostOperation, tensor: torch.Tensor) -> bool:
        storage = tensor.untyped_storage()
        # A storage that cannot be resized is borrowed (from NumPy), so its owner may change it: an input.
        if self._storages.find(storage) is not None or not storage.resizable():
            return False
        block = self._storages.add(storage, self._storages.key(storage))
        made = (Product((), _place(block, tensor)),)
        self.entries.append(TapeEntry(operation, (), {}, made, Modes.now(), tensor.clone()))
        self._storages.tick()
        return True

    def _made(
        self, given: set[int], results: Sequence[tuple[tuple[int, ...], torch.Tensor]]
    ) -> tuple[Product, ...]:
        """Where the results lie whose storages nobody had before; those are watched from now on."""
        storages = self._storages
        living = storages.living()
        made: dict[int, Block] = {}
        products: list[Product] = []
        for path, tensor in results:
            if tensor.is_meta:
                continue  # it has no memory
            storage = tensor.untyped_storage()
            key = storages.key(storage)
            if key not in made:
                if key in living or key in given:
                    continue
                made[key] = storages.add(storage, key)
            products.append(Product(path, _place(made[key], tensor)))
        return tuple(products)

    def _held(self, tensor: torch.Tensor) -> TapePlace | torch.Tensor:
        """An operand as it is written down."""
        block = self._storages.find(tensor.untyped_storage())
        return self._alias(tensor) if block is None else _place(block, tensor)

    def _alias(self, tensor: torch.Tensor) -> torch.Tensor:
        key = (self._storages.key(tensor.untyped_storage()), form_of(tensor), tensor.storage_offset())
        alias = self._aliases.get(key)
        if alias is None:
            alias = self._aliases[key] = self._keep(tensor)
        return alias


def look_at(func: OpOverload, operands: Sequence[torch.Tensor]) -> list[torch.UntypedStorage]:
    """The storages of the operands of an operation that is about to run.

    Raises:
        CaptureError: One of them has no plain memory on the CPU.
    """
    for tensor in operands:
        check_tensor(func, "takes", tensor)
    return [tensor.untyped_storage() for tensor in operands]


def _place(block: Block, tensor: torch.Tensor) -> TapePlace:
    block.nbytes = max(block.nbytes, tensor.untyped_storage().nbytes())
    return TapePlace(block, form_of(tensor), int(tensor.storage_offset()))


def places(value: Any) -> Iterator[TapePlace]:
    """The places in a frozen operand."""
    if isinstance(value, TapePlace):
        yield value
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from places(each)


def _note_writes(facts: Facts, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    written = [args[n] if n < len(args) else kwargs.get(name) for n, name in facts.written]
    for each in written:
        for place in places(each):
            place.block.rewritten = True
