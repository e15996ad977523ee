"""The guard of a replay: the verdict of :class:`.guards.Guard`, in a few microseconds.

A module has some ten containers and perhaps two slots that matter, and a guard over each slot costs the more
the larger the model is. So the containers are asked whether they changed at all: a dict whose version is the
recorded one holds what it held. That covers attributes, parameters, buffers, children, hooks and globals;
what is left are lists, closure cells, and what is compared by content: sets, most of them (:mod:`.sets`). A
dict that changes and yet holds what is under guard (a namespace in which other things happen) is looked into
slot by slot from then on.

A version says nothing about the tensors themselves, which may be given other memory where they lie
(``.data = ...``). So they are read word by word, and the versions and lengths of containers with them
(:mod:`.words`): two or three questions for a model of any kind, 0.5 us for four linear layers, where asking
each for its address, its metadata and its version took 3 us. PyTorch's switches (:mod:`.switches`) are read
with them. What cannot be read so is asked by name.

It is never the last word: where a version, an identity or a flag differs, the plain guard decides, and if
that holds, the new versions are the recorded ones. So the two agree on every state.

What does not work: comparing ``dict.values()`` with recorded ones by ``==``. It takes identity for equality
and is the quickest of all, but it asks tensors for equality where they differ, and it takes 1 for ``True``.
"""

from __future__ import annotations

from itertools import compress
from operator import call, getitem, is_
from typing import Any

import torch

from .classes import UNSET
from .compat import metadata_check
from .dicts import Dicts
from .guards import Guard
from .held import Held
from .layout import find_layout
from .marks import Content, TensorMark
from .reads import Argument
from .sets import Sets
from .slots import now_in, read, same
from .snapshot import ATTRIBUTE, BULK, CELL, DEFINED, ITEM, KIND, LENGTH, ORDER, VARIABLE, Entry
from .source import Source
from .switches import Switches
from .words import EVERYTHING, NEVER, NOTHING, Stage, Words, is_readable, joined, portions

_data_ptr = torch.Tensor.data_ptr

_INLINED = 6
"""Portions of words up to which they are read by the text of the replay itself."""
_OF_KEYS = (BULK, DEFINED, LENGTH, ORDER)
"""Kinds of slots that say what a container has, and nothing of what is in its members."""

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)

MANY = 1
"""Tensors from which they are read word by word, where that is possible at all: a single one takes 0.3 us,
asked by name 0.8 us."""


class QuickGuard:
    """Checks a guard.

    Args:
        guard: What decides in the end.
        switches: Switches that have to hold as well.

    Attributes:
        words: Where the words of each stage are and what they were, if they are all there is to be asked;
            otherwise words that never are what they were.
    """

    def __init__(self, guard: Guard, switches: Switches | None = None) -> None:
        self._guard = guard
        self._switches = switches
        self._dicts = Dicts()
        self._stages: tuple[Stage, ...] = (NEVER,)
        self._containers: tuple[Stage, ...] = (NEVER,)
        self._is_apart = self._is_read = self._is_short = False
        self._depth = 1
        self.words: tuple[Any, ...] = ()
        self._sort()
        self._look()
        self._look_at_tensors()
        self._forget()

    def _sort(self) -> None:
        """Choose how each slot is checked."""
        self._cells: list[Any] = []
        self._cell_values: list[Any] = []
        self._tensor_cells: list[Any] = []
        self._tensor_cell_ids: list[int] = []
        self._owners: list[Any] = []
        self._names: list[str] = []
        self._attributes: list[Any] = []
        self._variables: list[Any] = []
        self._variable_values: list[Any] = []
        self._slow: list[Entry] = []
        self._sets = Sets()
        self._held = held = Held()
        covered = self._dicts.cover(self._guard)
        guard = self._guard
        lengths = [entry for entry in guard.lengths if id(entry.container) not in covered]
        lengths = [entry for entry in lengths if not held.take_length(entry.container, entry.value.value)]
        self._length_containers = [entry.container for entry in lengths]
        self._length_values = [entry.value.value for entry in lengths]
        rest = [index for index, entry in enumerate(guard.items) if id(entry.container) not in covered]
        self._rest_read = [index for index in rest if held.take_member(*guard.items[index][1:3])]
        self._rest = sorted({*rest}.difference(self._rest_read))
        self._rest_containers = [guard.items[index].container for index in self._rest]
        self._rest_keys = [guard.items[index].key for index in self._rest]
        slots = [entry for entry in guard.slots if id(entry.container) not in covered]
        slots_read = [held.take_member(entry.container, entry.key) for entry in slots]
        self._slot_ids_read = [entry.value.identity for entry in compress(slots, slots_read)]
        slots = [entry for entry, taken in zip(slots, slots_read, strict=True) if not taken]
        self._slot_containers = [entry.container for entry in slots]
        self._slot_keys = [entry.key for entry in slots]
        self._slot_ids = [entry.value.identity for entry in slots]
        orders = [entry for entry in guard.orders if id(entry.container) not in covered]
        self._order_containers = [entry.container for entry in orders]
        self._order_values = [entry.value.value for entry in orders]
        for entry in guard.slow:
            self._sort_slow(entry, covered)
        checks = (  # functions: methods would be a cycle, and keep alive what the guard looks at
            (self._rest, QuickGuard._rest_same),
            (self._slot_ids, QuickGuard._slots_same),
            (self._length_values, QuickGuard._lengths_same),
            (self._order_values, QuickGuard._orders_same),
            (self._cells, QuickGuard._cells_same),
            (self._tensor_cells, QuickGuard._tensor_cells_same),
            (self._owners, QuickGuard._attributes_same),
            (self._variables, QuickGuard._variables_same),
            (self._slow, QuickGuard._slow_same),
        )
        self._checks = [check for parts, check in checks if parts]

    def _sort_slow(self, entry: Entry, covered: set[int]) -> None:
        value, covers = entry.value, id(entry.container) in covered
        plain = not isinstance(value, (Content, TensorMark)) and read(entry) is value
        if type(entry.container) is Argument:
            self._slow.append(entry)
            return
        if covers and (entry.kind in _OF_KEYS or (entry.kind == ITEM and plain)):
            return
        if (covers or entry.kind == BULK) and self._sets.take(entry):
            return
        if entry.kind == CELL and isinstance(value, TensorMark) and self._is_watched(value):
            if not self._held.take_cell(entry.container, value.identity):
                self._tensor_cells.append(entry.container)
                self._tensor_cell_ids.append(value.identity)
        elif plain and entry.kind == CELL:
            if not self._held.take_cell(entry.container, id(value)):
                self._cells.append(entry.container)
                self._cell_values.append(value)
        elif plain and entry.kind == KIND:
            held = self._held
            if not (
                held.take_table(entry.container, value) if entry.key else held.take_kind(entry.container)
            ):
                self._slow.append(entry)
        elif plain and entry.kind == ATTRIBUTE and value is not UNSET:
            if self._held.take_attribute(entry.container, entry.key, value):
                return
            self._owners.append(entry.container)
            self._names.append(entry.key)
            self._attributes.append(value)
        elif plain and entry.kind == VARIABLE:
            self._variables.append(entry.container)
            self._variable_values.append(value)
        else:
            self._slow.append(entry)

    def _is_watched(self, mark: TensorMark) -> bool:
        """Whether a tensor is read in place, so that it is asked for its address anyway."""
        guard = self._guard
        return any(
            address == mark.address and id(reference()) == mark.identity
            for reference, address in zip(guard.references, guard.addresses, strict=True)
        )

    def _look(self) -> None:
        """Note which objects lie in the slots that are looked into."""
        self._rest_values = [self._guard.item_values[index] for index in self._rest]
        self._sets.look()

    def _look_at_tensors(self) -> None:
        """Note how the tensors are now."""
        guard = self._guard
        found = {id(tensor): (reference, address, tensor)
                 for reference, address in zip(guard.references, guard.addresses, strict=True)
                 if (tensor := reference()) is not None}  # fmt: skip
        layout = find_layout() if len(found) >= MANY else None
        read = [
            tensor
            for _, address, tensor in found.values()
            if layout is not None
            and type(tensor) in _PLAIN
            and tensor.data_ptr() == address
            and is_readable(layout, tensor)
        ]
        self._words = Words(layout, read, flags=guard.asks_flags) if layout is not None else None
        for tensor in read:
            del found[id(tensor)]
        self._references = [reference for reference, _, _ in found.values()]
        self._addresses = [address for _, address, _ in found.values()]
        asked = [tensor for _, _, tensor in found.values()]
        plain = all(type(tensor) in _PLAIN for tensor in asked)
        self._metadata = metadata_check(asked) if plain else None

    # ------------------------------------------------------------------ checking

    def write(self, source: Source) -> None:
        """Write that a call is refused unless :meth:`holds`, whose stages are written out if they are all."""
        constant = source.constant
        if not self.holds() or not self._is_short:
            source.refuse(f"not {constant(self.holds)}()")
            return
        self._depth = len(self._stages)
        self._show()
        parts = [(f"at{n}", f"was{n}") for n in range(self._depth)]
        source.line(f"{', '.join([name for part in parts for name in part])} = {constant(self)}.words")
        memory = constant(EVERYTHING)
        differs = " or ".join([f"{memory}[{where}].tobytes() != {were}" for where, were in parts])
        source.refuse(f"({constant(self._guard)}.dead or {differs}) and not {constant(self.holds)}()")

    def holds(self) -> bool:
        """Whether everything is as it was."""
        if self._guard.dead:
            return False
        if self._is_apart and not self._dicts.same():
            return self._ask()
        for read_words, where, were in self._stages:
            if read_words(where).tobytes() != were:
                return self._ask()
        return self._is_read or (self._asked_same() and self._others_same()) or self._ask()

    def tensors_hold(self) -> bool:
        """Whether the tensors that are read in place are alive, at the same addresses and look the same.

        Whether they still lie in their slots is part of :meth:`values_hold`.
        """
        return self._tensors_same() or self._ask()

    def values_hold(self) -> bool:
        """Whether the plain values and the containers are as they were."""
        if self._is_apart and not self._dicts.same():
            return self._ask()
        for read_words, where, were in self._containers:
            if read_words(where).tobytes() != were:
                return self._ask()
        return self._others_same() or self._ask()

    def _ask(self) -> bool:
        """The plain guard decides; if it holds, what there was before it looked is what is compared with."""
        if self._switches is not None and not self._switches.holds():
            return False  # and nothing is forgotten: they may be set for a part of the calls
        was = self._dicts.forget()
        self._forget()
        now = self._dicts.look()
        if not self._tensors_same():
            self._look_at_tensors()
        if not self._guard.holds():
            return False
        self._look()
        if self._sets.thawed():  # since the slots were sorted
            self._sort()
            self._look()
        elif self._dicts.adopt(was, now):
            self._join()
        else:
            self._sort()
            self._look()
        return True

    def _forget(self) -> None:
        """Nothing is known: whatever is asked, the plain guard decides."""
        self._stages = self._containers = (NEVER,)
        self._is_apart, self.words = False, NEVER[1:] * self._depth

    def _join(self) -> None:
        """Containers are there as objects are: what is known of both is read at once."""
        values = self._guard.item_values
        heads, members = self._held.stages(
            [*[id(values[index]) for index in self._rest_read], *self._slot_ids_read]
        )
        switches = self._switches.words if self._switches is not None else NOTHING
        heads = joined(joined(self._dicts.words, switches), heads)
        self._containers = (*portions(heads), *portions(members))
        first, second, *others = self._words.stages if self._words is not None else (NOTHING, NOTHING)
        stages = (joined(first, heads), joined(second, members), *others)
        self._stages = tuple([part for each in stages for part in portions(each)]) or (NOTHING,)
        self._is_apart = self._dicts.apart
        self._is_read = not (self._references or self._dicts.empties or self._sets.entries or self._checks)
        self._is_short = self._is_read and len(self._stages) <= _INLINED and not self._is_apart
        self._show()

    def _show(self) -> None:
        """Let the text that was written read the words, if it has as many stages."""
        if self._is_short and len(self._stages) == self._depth:
            self.words = tuple([part for _, *parts in self._stages for part in parts])

    def _tensors_same(self) -> bool:
        if self._guard.dead:
            return False
        if self._words is not None and not self._words.same():
            return False
        return self._asked_same()

    def _asked_same(self) -> bool:
        """Whether the tensors whose words are not read are as they were."""
        if not self._references:
            return True
        if self._metadata is None:
            return False
        tensors: list[Any] = list(map(call, self._references))
        # In this order: where a class has changed, a tensor may answer in its own way, with the user's code.
        return self._metadata(*tensors) and list(map(_data_ptr, tensors)) == self._addresses

    def _others_same(self) -> bool:
        """Whether what is not read word by word is as it was."""
        if any(self._dicts.empties) or (self._sets.entries and not self._sets.same()):
            return False
        try:
            for check in self._checks:
                if not check(self):
                    return False
        except (KeyError, IndexError, ValueError, AttributeError):  # a slot is gone
            return False
        return True

    # What few guards have: lists, ordered mappings, closures, attributes, what is compared by content.

    def _rest_same(self) -> bool:
        return all(map(is_, map(getitem, self._rest_containers, self._rest_keys), self._rest_values))

    def _slots_same(self) -> bool:
        return list(map(id, map(getitem, self._slot_containers, self._slot_keys))) == self._slot_ids

    def _lengths_same(self) -> bool:
        return list(map(len, self._length_containers)) == self._length_values

    def _orders_same(self) -> bool:
        return list(map(tuple, self._order_containers)) == self._order_values

    def _cells_same(self) -> bool:
        return all(map(is_, [cell.cell_contents for cell in self._cells], self._cell_values))

    def _tensor_cells_same(self) -> bool:
        return [id(cell.cell_contents) for cell in self._tensor_cells] == self._tensor_cell_ids

    def _attributes_same(self) -> bool:
        return all(map(is_, map(getattr, self._owners, self._names), self._attributes))

    def _variables_same(self) -> bool:
        return all(map(is_, [variable.get(UNSET) for variable in self._variables], self._variable_values))

    def _slow_same(self) -> bool:
        return all([same(entry.value, now_in(entry)) for entry in self._slow])
