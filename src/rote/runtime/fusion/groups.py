"""Which kernels calculate a group of operations.

A group is a set of operations that may run one after the other at one place. Those whose results somebody
needs outside are stored, and each is calculated from what lies in memory before the group. Results of one
number of elements are stored by one kernel, whether they have to do with each other or not: where kernels are
small, a launch is what costs. What has to be in memory in between makes a second level of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from ..program import Origin
from .body import Loaded
from .positions import ElementPosition
from .rows import RowOrder
from .rules import NoKernelError
from .writing import BodyWriter, Fusible, ToMemoryError, Written

MOST_VALUES = 128
"""Values of one kernel."""
MOST_TENSORS = 24
"""Tensors that one kernel takes."""

Home = Callable[[Origin], Origin]
"""The storage that has the contents of a storage."""


@dataclass(frozen=True)
class Stored:
    """A result that is stored.

    Attributes:
        loads: The storages that it is calculated from.
        values: How many values that takes.
        order: How rows are added up for it, if they are.
    """

    each: Fusible
    loads: frozenset[Origin]
    values: int
    order: RowOrder | None = None


def plan_group(
    group: Sequence[Fusible], needed: Collection[int], home: Home, *, on_host: bool
) -> list[Written | Fusible]:
    """The kernels of a group, in order; an operation alone where PyTorch's own kernel is as good.

    Args:
        needed: Those whose results are needed outside of the group.
        home: The storage that has the contents of a storage.

    Raises:
        NoKernelError: Some operation cannot be written.
    """
    return _Planning(group, needed, home, on_host).run()


class _Planning:
    """Plans one group."""

    def __init__(self, group: Sequence[Fusible], needed: Collection[int], home: Home, on_host: bool) -> None:
        self._group = group
        self._made = {each.result.origin: each for each in group}
        self._needed = needed
        self._home = home
        self._on_host = on_host
        self._in_memory = {each.index for each in group if each.order is not None and each.index in needed}

    def run(self) -> list[Written | Fusible]:
        stored = self._settle()
        found: list[Written | Fusible] = []
        for kernel in self._kernels(stored):
            if kernel[0].each.order is not None:
                found.append(kernel[0].each)
                continue
            written = self._write(kernel)
            alone = len(kernel) == 1 and written.covers == frozenset({kernel[0].each.index})
            found.append(kernel[0].each if alone and (self._on_host or _is_quick(written)) else written)
        return found

    def _settle(self) -> list[Stored]:
        """What is stored, once it is known what has to be in memory."""
        while True:
            try:
                return [
                    self._measure(each)
                    for each in self._group
                    if each.index in self._needed or each.index in self._in_memory
                ]
            except ToMemoryError as why:
                if why.index in self._in_memory:
                    raise NoKernelError("an operand has no position that a kernel can write") from None
                self._in_memory.add(why.index)

    def _writer(self, count: int) -> BodyWriter:
        return BodyWriter(self._made, self._home, self._in_memory, count, on_host=self._on_host)

    def _measure(self, each: Fusible) -> Stored:
        if each.order is not None:
            return self._measure_rows(each)
        writer = self._writer(each.count)
        writer.store(each, ElementPosition.same(each.count))
        if writer.size > MOST_VALUES or writer.tensors > MOST_TENSORS:
            inside = [self._made.get(self._home(token.origin)) for token in each.operation.tokens]
            known = [one.index for one in inside if one is not None and one.index not in self._in_memory]
            if not known:
                raise NoKernelError("it takes too many tensors")
            raise ToMemoryError(max(known))
        return Stored(each, frozenset(writer.loads), writer.size, writer.order)

    def _measure_rows(self, each: Fusible) -> Stored:
        """Sums of rows that are in memory are PyTorch's; what they add up is in memory as well."""
        origin = self._home(each.operation.tokens[0].origin)
        made = self._made.get(origin)
        if made is not None and made.index not in self._in_memory:
            raise ToMemoryError(made.index)
        return Stored(each, frozenset((origin,)), 1)

    def _write(self, kernel: Sequence[Stored]) -> Written:
        writer = self._writer(kernel[0].each.count)
        for stored in kernel:
            writer.store(stored.each, ElementPosition.same(stored.each.count))
        return writer.finish()

    def _kernels(self, stored: Iterable[Stored]) -> list[list[Stored]]:
        """Results by the kernels that store them, in an order in which these may run."""
        levels: dict[Origin, int] = {}
        kernels: dict[tuple[int, int], list[list[Stored]]] = {}
        for each in stored:
            before = [levels[origin] + 1 for origin in each.loads if origin in levels]
            level = levels[each.each.result.origin] = max(before, default=0)
            open_ones = kernels.setdefault((level, each.each.count), [[]])
            if open_ones[-1] and not _fits(open_ones[-1], each):
                open_ones.append([])
            open_ones[-1].append(each)
        return [
            kernel for _, found in sorted(kernels.items(), key=lambda item: item[0][0]) for kernel in found
        ]


def _is_quick(alone: Written) -> bool:
    """Whether PyTorch's own kernel loads vectors; the one for other layouts is slower than one of ours."""
    loads = [value for value in alone.body.values if isinstance(value, Loaded)]
    return all([each.position == ElementPosition.same(alone.body.count) for each in loads])


def _fits(kernel: Sequence[Stored], more: Stored) -> bool:
    """Whether a kernel may store another result, and stays small with it."""
    orders = {each.order for each in (*kernel, more) if each.order is not None}
    if len(orders) > 1 or any([each.each.order is not None for each in (*kernel, more)]):
        return False
    loads = more.loads.union(*[each.loads for each in kernel])
    values = more.values + sum([each.values for each in kernel])
    return values <= MOST_VALUES and len(loads) + len(kernel) + 1 <= MOST_TENSORS


Planned = list[Written | Fusible]


@dataclass(frozen=True)
class _Known:
    """A plan, and the group that it was made for.

    Attributes:
        planned: The plan; a reason if there is none.
        origins: The storages, in the order in which they come in the group.
    """

    planned: Planned | str
    group: tuple[Fusible, ...]
    origins: tuple[Origin, ...]


class GroupPlans:
    """The plans of one stretch. Groups that are alike are planned once: layers differ in their memory.

    Of 60 layers with 600 operations that takes 0.1 s, where all groups planned one by one take 0.6 s.

    Args:
        home: The storage that has the contents of a storage.
    """

    def __init__(self, home: Home, *, on_host: bool) -> None:
        self._home = home
        self._on_host = on_host
        self._known: dict[Hashable, _Known] = {}

    def plan(self, group: Sequence[Fusible], needed: Collection[int]) -> Planned:
        """The kernels of a group; see :func:`.plan_group`.

        Raises:
            NoKernelError: Some operation cannot be written.
        """
        names: dict[Origin, int] = {}
        key = tuple([self._described(each, each.index in needed, names) for each in group])
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _Known(self._fresh(group, needed), tuple(group), tuple(names))
        if isinstance(known.planned, str):
            raise NoKernelError(known.planned)
        origins = dict(zip(known.origins, names, strict=True))
        members = {was.index: now for was, now in zip(known.group, group, strict=True)}
        return [_moved(each, origins, members) for each in known.planned]

    def _fresh(self, group: Sequence[Fusible], needed: Collection[int]) -> Planned | str:
        try:
            return plan_group(group, needed, self._home, on_host=self._on_host)
        except NoKernelError as why:
            return str(why)

    def _described(self, each: Fusible, needed: bool, names: dict[Origin, int]) -> Hashable:
        """An operation of a group; storages are told apart by when they come."""
        origins = [token.origin for token in (*each.operation.tokens, each.result)]
        return (each.form, needed, *[names.setdefault(self._home(origin), len(names)) for origin in origins])


def _moved(
    each: Written | Fusible, origins: dict[Origin, Origin], members: dict[int, Fusible]
) -> Written | Fusible:
    """A part of a plan, for another group."""
    if isinstance(each, Fusible):
        return members[each.index]
    return replace(
        each,
        reads=tuple([(origins[origin], dtype) for origin, dtype in each.reads]),
        stores=tuple([members[index].index for index in each.stores]),
        covers=frozenset([members[index].index for index in each.covers]),
    )
