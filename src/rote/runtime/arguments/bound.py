"""What a call leaves outside of itself beside its result: slots that it binds to what it has made.

A recorded call binds them again at each replay. So the bound values are taken apart, copied and handed out
with the result, as further parts of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from types import CellType, MemberDescriptorType
from typing import Any, NamedTuple

import numpy

from ...base import identity, is_instance
from ..objects import keys, put, refill, values
from ..state import ATTRIBUTE, CELL, ITEM, LAST, VARIABLE, lying_in
from .opened import parts_of, slots_of, table_of
from .places import StatePlace

CONTENTS = "contents"
"""All that a list or a dict holds."""
MEMORY = "memory"
"""What a tensor looks at (``tensor.data``)."""
FILLED = "filled"
"""The numbers of an array."""
APPENDED = "appended"
"""The last members of a list or a deque, by their number."""
STORED = "stored"
"""What lies under a key that is computed: the key, and that."""
TOLD = "told"
"""What is written to a stream: by which functions, each with the names of its last arguments."""
TAGGED = "tagged"
"""An attribute of a tensor of the result."""
GRADIENT = "gradient"
"""What an argument has in its ``.grad``, and whether it requires grad."""
DELETED = "deleted"
"""What lay under a key, or in an attribute, is gone."""
SLOT = "slot"
"""One of ``__slots__``; the key is its descriptor."""
CLASS_SLOT = "class"
"""An attribute of a class: Python itself has to set it, as it keeps what it has looked up in classes."""


def assign(kind: str, container: Any, key: Any, value: Any) -> None:
    """Put a value into a slot, past what the user's classes make of it."""
    if kind == ITEM:
        if not isinstance(container, tuple):
            put(container, key, value)
    elif kind == ATTRIBUTE:
        (type if isinstance(container, type) else object).__setattr__(container, key, value)
    elif kind == CELL:
        container.cell_contents = value
    elif kind == VARIABLE:
        container.set(value)
    elif kind == APPENDED:
        container.extend(value)
    elif kind == STORED:
        put(container, *value)
    elif kind == CONTENTS:
        refill(container, key, value)
    elif kind == FILLED:
        numpy.copyto(container, value)
    elif kind == SLOT:
        key.__set__(container, value)
    elif kind == MEMORY:
        container.data = value
    elif kind == GRADIENT:
        container.requires_grad_(value[0]).grad = value[1]
    elif kind == CLASS_SLOT:
        type.__setattr__(container, key, value)
    elif kind == TOLD:
        for (function, names, fixed), given in zip(key, value, strict=True):
            count = len(given) - len(names)
            function(*given[:count], **dict(zip(names, given[count:], strict=True)), **dict(fixed))


def remove(container: Any, key: Any) -> None:
    """Leave a slot empty; ``key`` may be the descriptor of one of ``__slots__``."""
    if type(key) is MemberDescriptorType:
        with suppress(AttributeError):
            key.__delete__(container)
    elif type(container) is CellType:
        del container.cell_contents
    elif isinstance(container, dict):
        container.pop(key, None)
    elif isinstance(container, type):
        if key in vars(container):
            type.__delattr__(container, key)
    elif not isinstance(container, ContextVar):  # a call sets that before it reads it
        with suppress(AttributeError):
            object.__delattr__(container, key)


def read_from(kind: str, container: Any, key: Any) -> Any:
    """What lies in a slot.

    Raises:
        KeyError, IndexError, ValueError, AttributeError: The slot is empty.
    """
    if kind == CONTENTS:
        return values(container)
    if kind == APPENDED:
        return tuple(container)[-key:]
    if kind == FILLED:
        return container.copy()
    if kind == SLOT:
        return key.__get__(container)
    if kind == MEMORY:
        return container.data
    if kind == GRADIENT:
        return container.requires_grad, container.grad
    if kind == CLASS_SLOT:
        return vars(container)[key]
    return container.get() if kind == VARIABLE else lying_in(kind, container, key)


class Target:
    """A slot that a call binds; where all of a dict is bound, the key is its keys."""

    __slots__ = ("container", "key", "kind", "name")

    def __init__(self, kind: str, container: Any, key: Any, name: str) -> None:
        self.kind = kind
        self.container = container
        self.key = key
        self.name = name

    def write(self, value: Any) -> None:
        """Put something into it."""
        assign(self.kind, self.container, self.key, value)

    def read(self) -> Any:
        """What lies in it; None if it is empty."""
        try:
            return read_from(self.kind, self.container, self.key)
        except (KeyError, IndexError, ValueError, AttributeError):
            return None

    @property
    def address(self) -> tuple[str, int, Any]:
        """Which slot it is, as long as the container lives."""
        return self.kind, identity(self.container), self.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)


def can_be_laid(target: Target) -> bool:
    """Whether an equal number may be put into a slot that has one, and nobody is told of that."""
    kind, container = target.kind, target.container
    if kind == ATTRIBUTE:
        return type(slots_of(type(container)).get(target.key)) is MemberDescriptorType
    return kind in (CELL, CLASS_SLOT) or (kind == ITEM and isinstance(container, (dict, list, deque)))


class Laid:
    """What stands in slots until a call is over. An equal value is as good, if each gets its own again."""

    def __init__(self) -> None:
        # what stands there, and for what, by the address of the slot
        self._held: dict[tuple[str, int, Any], tuple[Target, Any, Any]] = {}

    def lay(self, target: Target, stands: Any, value: Any) -> None:
        """Put something into a slot in the place of a value."""
        target.write(stands)
        if stands is not value:
            _, _, first = self._held.get(target.address, (target, stands, value))
            self._held[target.address] = target, stands, first

    def standing(self, address: tuple[str, int, Any]) -> Any:
        """What stands in a slot; None if nothing does."""
        return self._held[address][1] if address in self._held else None

    def lay_again(self) -> None:
        """Where a slot holds its own again, let the other stand there."""
        for target, stands, value in self._held.values():
            if target.read() is value:
                target.write(stands)

    def take_back(self) -> list[tuple[str, int, Any]]:
        """Where a slot still holds what stood there, put its own into it again; returns those slots."""
        found: list[tuple[str, int, Any]] = []
        for address, (target, stands, value) in reversed(self._held.items()):
            if target.read() is stands:
                target.write(value)
                found.append(address)
        self._held.clear()
        return found


class ClassTarget(Target):
    """An attribute of a class that a call binds; ``table`` is the dict in which it lies."""

    __slots__ = ("table",)

    def __init__(self, owner: type, table: dict[str, Any], key: str, name: str) -> None:
        super().__init__(CLASS_SLOT, owner, key, name)
        self.table = table

    @property
    def address(self) -> tuple[str, int, Any]:
        """Which slot it is, as reads of it have it."""
        return ITEM, identity(self.table), self.key


def target_at(place: StatePlace) -> Target | None:
    """A slot, to be written; None if its container is gone."""
    container, of_class = place.found(), place.of_class
    if container is None or of_class is None:
        if container is not None and place.kind == LAST:  # where it lies now, however much is appended
            return Target(ITEM, container, len(container) - place.key, place.name)
        return None if container is None else Target(place.kind, container, place.key, place.name)
    return ClassTarget(of_class(), container, place.key, place.name)


class Tag(Target):
    """An attribute that a call sets on a tensor of its result; its part is the tensor, and the value set.

    ``position`` is the tensor's among the leaves of the result.
    """

    __slots__ = ("position",)

    def __init__(self, position: int, key: str, name: str) -> None:
        super().__init__(TAGGED, None, key, name)
        self.position = position

    @property
    def address(self) -> tuple[str, int, Any]:
        """Which slot it is."""
        return self.kind, self.position, self.key

    def look(self, leaves: Sequence[Any]) -> tuple[Any, Any]:
        """The tensor among the leaves of a result, and the value set."""
        return leaves[self.position], vars(leaves[self.position]).get(self.key)


class LeftGradient(Target):
    """What a call leaves in the ``.grad`` of an argument; its part is the argument, and what lies there.

    Args:
        number: The leaf of the arguments.
        asked: Whether it requires grad then.
    """

    __slots__ = ("number",)

    def __init__(self, number: int, name: str, *, asked: bool) -> None:
        super().__init__(GRADIENT, None, asked, f"{name}.grad")
        self.number = number

    @property
    def address(self) -> tuple[str, int, Any]:
        """Which slot it is."""
        return self.kind, self.number, self.key

    def look(self, leaves: Sequence[Any]) -> tuple[Any, Any]:
        """The present call's argument, and what lies there."""
        return leaves[self.number], leaves[self.number].grad


class GivenTarget(Target):
    """A slot of an argument that a call binds: in each call that of its own argument.

    Args:
        number: The branch of the arguments in which it is.
        key: Its key; where all of a dict is bound, the keys of the dict.
        name: What the user would write.
        table: It is in the dict of an object's attributes.
    """

    __slots__ = ("number", "table")

    def __init__(self, kind: str, number: int, key: Any, name: str, *, table: bool) -> None:
        super().__init__(kind, None, key, name)
        self.number = number
        self.table = table

    @property
    def address(self) -> tuple[str, int, Any]:
        """Which slot it is; no object has such an identity."""
        return self.kind, ~self.number, (self.table, self.key)

    def lies_in(self, branches: Sequence[Any]) -> Any:
        """The container in the present call's argument."""
        branch = branches[self.number]
        return table_of(branch) if self.table else branch

    def put(self, value: Any, branches: Sequence[Any]) -> None:
        """Lay something into the slot of the present call's argument."""
        container = self.lies_in(branches)
        if self.kind != DELETED:
            assign(self.kind, container, self.key, value)
        else:
            in_dict = isinstance(container, dict)
            remove(container, self.key if in_dict else slots_of(type(container))[self.key])

    def look(self, branches: Sequence[Any]) -> Any:
        """What lies in the slot of the present call's argument; None if it is empty."""
        container = self.lies_in(branches)
        return Target(self.kind, container, self.key, self.name).read() if self.kind != DELETED else None


class SlotsBefore:
    """What lies in slots that a call may bind, to be put back."""

    def __init__(self, targets: Iterable[Target], branches: Sequence[Any] = ()) -> None:
        self._held: list[tuple[str, Any, Any, Any]] = []
        for target in targets:
            if not isinstance(target, (Tag, LeftGradient)):
                given = isinstance(target, GivenTarget)
                container = target.lies_in(branches) if given else target.container
                self.hold(target.kind, container, target.key)

    def hold(self, kind: str, container: Any, key: Any) -> None:
        """Keep what lies in one more slot; what is written to a stream is no slot."""
        if kind == TOLD:
            return
        if kind in (CONTENTS, APPENDED, STORED, DELETED) and isinstance(container, (list, dict, deque, set)):
            names = keys(container) if isinstance(container, dict) else None
            self._held.append((CONTENTS, container, names, values(container)))
            return
        try:
            self._held.append((kind, container, key, read_from(kind, container, key)))
        except (LookupError, ValueError, AttributeError):
            self._held.append((DELETED, container, key, None))

    def put_back(self) -> None:
        """Nothing is bound yet."""
        for kind, container, key, value in reversed(self._held):
            if kind == DELETED:
                remove(container, key)
            else:
                try:
                    assign(kind, container, key, value)
                except (AttributeError, TypeError):
                    found = read_from(kind, container, key)
                    # A class of C makes its text anew each time that it is asked for it.
                    if found is not value and not (type(found) is type(value) is str and found == value):
                        raise  # else the slot refused the call as well


def all_in(branches: Iterable[Any]) -> Iterator[Target]:
    """The slots of containers and objects: all that they hold."""
    for branch in branches:
        for part in parts_of(branch):
            if is_instance(part, (list, dict, deque)):
                yield Target(CONTENTS, part, None, "")
        for slot in slots_of(type(branch)).values():
            yield Target(SLOT, branch, slot, "")


class StandingLeaves:
    """Other leaves and tuples in the containers and objects of a call's arguments, until the call is over.

    The callable has the caller's own containers: it may compare them with others, or find them elsewhere.

    Args:
        branches: The containers and objects, with their own leaves in them.
        stands: Pairs of what is to stand there, and the leaf for which it stands.
    """

    def __init__(self, branches: Iterable[Any], stands: Iterable[tuple[Any, Any]]) -> None:
        self._branches = [each for each in branches if not is_instance(each, tuple)]
        self._own: dict[int, tuple[Any, Any]] = {}
        self._before = SlotsBefore(all_in(self._branches))
        self.add(stands)

    def add(self, stands: Iterable[tuple[Any, Any]]) -> None:
        """More stands there for something else."""
        self._own.update({id(stand): (stand, own) for stand, own in stands if stand is not own})

    def put_back(self) -> None:
        """Everything is as it was before the call."""
        self._before.put_back()

    def take_back(self) -> None:
        """Wherever something stands for a leaf or a tuple by now, that lies there again."""
        for target in all_in(self._branches):
            if target.kind != CONTENTS:
                self._take_back(target)
                continue
            container = target.container
            for key in keys(container) if is_instance(container, dict) else range(len(values(container))):
                self._take_back(Target(ITEM, container, key, ""))

    def _take_back(self, target: Target) -> None:
        stand, own = self._own.get(id(value := target.read()), (None, None))
        if stand is not None and stand is value:
            target.write(own)


class Bound(NamedTuple):
    """A result, with what the call has bound.

    Attributes:
        value: What the callable returned.
        targets: The slots, in the order in which they were bound first.
    """

    value: Any
    targets: tuple[Target, ...]
    parts: tuple[Any, ...]

    def put(self, branches: Sequence[Any] = (), *, ran: bool = False) -> Any:
        """Bind all; returns what the callable returned.

        If the callable ``ran``, it has bound all already, to values in the recording's memory. ``branches``
        are the containers and objects among the arguments.
        """
        for target, part in zip(self.targets, self.parts, strict=True):
            if isinstance(target, GivenTarget):
                target.put(part, branches)
            elif isinstance(target, Tag):
                vars(part[0])[target.key] = part[1]
            elif isinstance(target, LeftGradient):
                assign(GRADIENT, part[0], None, (target.key, part[1]))
            elif ran and target.kind == TOLD:
                continue
            elif ran and target.kind == APPENDED:
                for place, each in enumerate(part, -len(part)):
                    target.container[place] = each
            else:
                assign(target.kind, target.container, target.key, part)
        return self.value


def returned(value: Any) -> Any:
    """What the callable returned, without the values it bound to slots."""
    return value.value if type(value) is Bound else value
