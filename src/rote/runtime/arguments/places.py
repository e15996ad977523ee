"""Slots outside that keys look at, as at arguments, since calls find something else there than before.

A slot whose tensor is replaced from call to call is *carried* (``docs/call.md``): for the time of a recording
it holds what stands for a further argument. So it is no condition which tensor lies there, and what a call
leaves there is an effect like any other. Random generators that are replaced are looked at, too: the
recording draws from one of its own. Slots are attributes of objects, globals, variables of functions around,
and members of containers that lie in such a slot.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from types import CellType, MemberDescriptorType
from typing import Any, NamedTuple

import numpy
import torch

from ..objects import members
from ..state import ATTRIBUTE, CELL, ITEM, Address, lying_in

MOST = 64
"""Slots of which one wrapper takes what lies in them for arguments."""
IN_TURN = 2
"""Tensors in one slot that have recordings of their own; with one more it is carried."""
_MOST_MET = 1 << 14
"""Slots of which it is known what lay in them; objects that are new in each call have others each time."""
_LEAVES = 64
"""Members of a container that is carried."""
_NUMBERS: frozenset[type] = frozenset({int, float, numpy.float64, numpy.float32, numpy.int64, numpy.int32})
_PLAIN = _NUMBERS | {bool, str, type(None)}
_IMMUTABLE = frozenset({torch.dtype, torch.device})
"""What else may lie in a container that is carried."""


class _Nothing:
    """Stands for what lies in an empty slot, or in one whose container is gone."""


NOTHING = _Nothing()


class StatePlace(NamedTuple):
    """A slot outside; its container is asked for, and may be gone.

    If that is the dict of a class, the class is asked for beside it.
    """

    kind: str
    container: Callable[[], Any]
    key: Any
    name: str
    of_class: Callable[[], Any] | None = None

    def now(self) -> Any:
        """What lies there; NOTHING if it is empty."""
        container = self.found()
        if container is None:
            return NOTHING
        try:
            return lying_in(self.kind, container, self.key)
        except (KeyError, IndexError, ValueError, AttributeError, TypeError):
            return NOTHING

    @property
    def address(self) -> Address:
        """Which slot it is, as long as its container lives."""
        return self.kind, id(self.found()), self.key

    def found(self) -> Any:
        """The container; None if it is gone."""
        container = self.container()
        return None if container is NOTHING else container

    @property
    def takes_others(self) -> bool:
        """Whether something else can be put there: of what is of C, some attributes are only read."""
        owner = self.found()
        if self.kind != ATTRIBUTE or isinstance(owner, torch.Tensor):
            return True
        try:
            object.__setattr__(owner, self.key, self.now())
        except (AttributeError, TypeError):
            return False
        return True

    def inside(self, kind: str, key: Any, name: str, *, table: bool) -> StatePlace:
        """A slot of what lies in this one; with ``table`` of the dict of its attributes."""
        now = self.now
        return StatePlace(kind, (lambda: table_of(now())) if table else now, key, name)


def place_of(kind: str, container: Any, key: Any, owner: Any, name: str) -> StatePlace | None:
    """The slot, if it can be looked at without keeping alive what is large.

    If the container is the dict of an object's attributes, ``owner`` is that object.
    """
    whose = container if owner is None else owner
    if kind == CELL and type(container) is CellType:
        return StatePlace(kind, lambda: container, key, name)
    if kind == ITEM and owner is None and _is_namespace(container):
        return StatePlace(kind, lambda: container, key, name)
    if kind == ITEM and isinstance(owner, type):
        of_class = weakref.ref(owner)
        return StatePlace(kind, lambda: _namespace_of(of_class()), key, name, of_class)
    if isinstance(whose, type) or not type(whose).__weakrefoffset__:
        return None
    alive = weakref.ref(whose)
    if kind == ITEM and table_of(whose) is container:
        return StatePlace(kind, lambda: table_of(alive()), key, name)
    return StatePlace(kind, alive, key, name) if kind == ATTRIBUTE and whose is container else None


def table_of(value: Any) -> dict[str, Any] | None:
    """The dict with an object's attributes; None if it has slots alone."""
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None


def _namespace_of(kind: type | None) -> Any:
    """The dict behind the namespace of a class; NOTHING if the class is gone."""
    return NOTHING if kind is None else members.behind(type.__dict__["__dict__"].__get__(kind))


def _is_namespace(value: Any) -> bool:
    """Whether a dict is one of globals."""
    return type(value) is dict and "__name__" in value and "__builtins__" in value


def can_be_carried(value: Any) -> bool:
    """Whether a value is a tensor, or a container of tensors and plain values, not of text alone."""
    held = _held_in(value) or ()
    if type(value) in _PLAIN or _is_member(value):  # a number is followed where it lies
        return False
    return any([type(each) is torch.Tensor or type(each) in _NUMBERS or _is_member(each) for each in held])


def _is_member(value: Any) -> bool:
    """Whether a value is one of an enumeration, or what PyTorch has one object of."""
    return type(value) in _IMMUTABLE or issubclass(type(value), Enum)


def holds_tensors(value: Any) -> bool:
    """Whether a value is a tensor, or a container of tensors and plain values."""
    return bool(_tensors_in(value))


def _stays_carried(value: Any) -> bool:
    """Whether a slot that is carried may hold a value: states that were reset are no tensors."""
    return _held_in(value) is not None


def _tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in a value; none if it holds what is no container and no plain value."""
    return [each for each in _held_in(value) or () if type(each) is torch.Tensor]


def _held_in(value: Any) -> list[Any] | None:
    """The tensors and plain values in a value; None if it holds anything else but containers."""
    found: list[Any] = []
    left, count = [value], 0
    while left:
        each = left.pop()
        kind = type(each)
        if (
            kind in _PLAIN
            or _is_member(each)
            or (kind is torch.Tensor and each.layout is torch.strided and not each.is_nested)
        ):
            found.append(each)
            continue
        members = _members_of(each, kind)
        count += len(members or ())
        if members is None or count > _LEAVES:
            return None
        left.extend(members.values() if isinstance(members, dict) else members)
    return found


def _members_of(value: Any, kind: type) -> list[Any] | tuple[Any, ...] | deque[Any] | dict[Any, Any] | None:
    """What is in a container or in an instance of a dataclass; None for anything else."""
    if kind is list or kind is tuple or kind is deque:
        return value
    if kind is dict or kind is OrderedDict:
        return value if len(value) <= _LEAVES and all([type(key) in _PLAIN for key in value]) else None
    if issubclass(kind, tuple):
        return tuple.__getitem__(value, slice(None))  # a class may have other ways to iterate
    is_object = dataclasses.is_dataclass(kind) and not issubclass(kind, dict)
    return _attributes_of(value, kind) if is_object else None


def _attributes_of(value: Any, kind: type) -> dict[str, Any]:
    """What lies in the dict and in the slots of an object."""
    found = {**(table_of(value) or {})}
    for name, slot in [pair for base in kind.__mro__ for pair in vars(base).items()]:
        if type(slot) is MemberDescriptorType:
            with suppress(AttributeError):
                found[name] = slot.__get__(value)
    return found


class Places:
    """The slots with random generators that are known, of which keys look at the open ones."""

    def __init__(self) -> None:
        self.open: tuple[StatePlace, ...] = ()
        self._met: dict[Address, tuple[StatePlace, Callable[[], Any]]] = {}

    def meet(self, address: Address, place: StatePlace, generator: torch.Generator) -> bool:
        """A call finds a generator in a slot; returns whether another one was met there before."""
        known = self._met.get(address)
        same_slot = known is not None and known[0].container() is place.container()
        self._met[address] = place, reference(generator)
        if known is None or not same_slot or known[1]() is generator:
            return False
        self.open = (*self.open, place)
        return True

    def clear(self) -> None:
        """Forget everything."""
        self.open = ()
        self._met.clear()


def reference(generator: torch.Generator) -> Callable[[], Any]:
    """Refers to a generator, weakly where PyTorch's can be."""
    return weakref.ref(generator) if type(generator).__weakrefoffset__ else lambda: generator


class CarriedSlots:
    """The slots that are carried, and what calls have found in others."""

    def __init__(self) -> None:
        self.open: tuple[StatePlace, ...] = ()
        self._met: dict[Address, list[int | weakref.ref[torch.Tensor]]] = {}
        self._coming: dict[Address, StatePlace] = {}

    def meet(self, address: Address, value: Any) -> bool:
        """A call reads a slot that is not carried; returns whether calls have found others there before."""
        tensors = _tensors_in(value)
        if not tensors:
            return False
        tensor = tensors[-1]
        # A list that is the same may hold other tensors; of a tuple nobody cares which one it is.
        mutable = type(value) in (list, deque, dict)
        known = id(value) if mutable else weakref.ref(tensor)
        if len(self._met) >= _MOST_MET:
            self._met.clear()
        met = self._met.setdefault(address, [])
        if known not in met if mutable else not any([_refers(each, tensor) for each in met]):
            met.append(known)
        return len(met) > IN_TURN

    def meet_length(self, address: Address, length: int) -> bool:
        """A call finds a container that it makes longer; returns whether another one found it as long."""
        met = self._met.setdefault(address, [])
        if length in met:
            return True
        met.append(length)
        return False

    def carry(self, place: StatePlace) -> None:
        """The slot is carried from the next call on."""
        if len(self.open) + len(self._coming) < MOST:
            self._coming[place.address] = place

    def learn(self) -> list[str]:
        """A call is over; returns the names of further slots that are carried from now on."""
        known = {each.address for each in self.open}
        more = [place for address, place in self._coming.items() if address not in known]
        self._coming.clear()
        names = {each.name for each in self.open}
        for place in more:
            name, number = place.name, 1
            while name in names:
                number += 1
                name = f"{place.name} ({number})"
            names.add(name)
            self.open = (*self.open, place._replace(name=name))
        added = [each.name for each in self.open if each.address not in known]
        if added:  # members of what is carried as a whole come with it
            wholes = [each.now() for each in self.open]
            inside = [any([each.found() is whole for whole in wholes]) for each in self.open]
            self.open = tuple([each for each, lies in zip(self.open, inside, strict=True) if not lies])
        return added

    def look(self) -> tuple[tuple[StatePlace, ...], dict[str, Any]]:
        """The slots that hold what can be carried now, and what that is, by their names."""
        found = [(place, place.now()) for place in self.open]
        there = [(place, value) for place, value in found if _stays_carried(value)]
        return tuple([place for place, _ in there]), {place.name: value for place, value in there}

    def clear(self) -> None:
        """Forget everything."""
        self.open = ()
        self._met.clear()
        self._coming.clear()


def _refers(reference: int | weakref.ref[torch.Tensor], tensor: torch.Tensor) -> bool:
    return type(reference) is weakref.ref and reference() is tensor
