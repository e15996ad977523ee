"""Objects of the user's classes among the arguments: known by identity, or taken apart by what calls read.

``docs/call.md`` says when a class is opened. A class is closed again where a call does something for which it
matters which object it is, or reads the numbers of an array in Python or numpy. Of an array the key has what
it has of a tensor over the same memory.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from enum import Enum
from threading import local
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, SimpleNamespace
from typing import Any

import numpy
import torch

from ..objects import has_parts_in_c, members, module_of, text_of
from .places import CarriedSlots, Places, StatePlace, table_of

_CLOSED = (torch.nn.Module, torch.optim.Optimizer, torch.Tensor, type, Enum, BaseException, local)
_CONTAINERS = (OrderedDict, dict, list, tuple)
"""Builtin containers from which a class may be derived: its instances are their members and attributes."""
_OF_C = (torch.Generator, numpy.ndarray)
"""Classes of C whose instances are taken apart in ways of their own."""
_RUN_CODE = ("__del__", "__next__", "__torch_dispatch__")
"""Methods of classes whose instances cannot be made again unnoticed, or have a meaning of their own."""
_C_GETTER = FunctionType.__dict__["__code__"]


def is_openable(kind: type) -> bool:
    """Whether instances of a class are their attributes and nothing else."""
    if (
        kind in (object, *_CONTAINERS)
        or issubclass(kind, _CLOSED)
        or module_of(kind).partition(".")[0] == "rote"
    ):
        return False
    bases = [each for each in kind.__mro__ if each is not SimpleNamespace]
    if any(name in vars(each) for name in _RUN_CODE for each in bases):
        return False
    if any(type(vars(each).get("__dict__", _C_GETTER)) is not GetSetDescriptorType for each in bases):
        return False
    return all([not has_parts_in_c(each) for each in bases if each not in (object, *_CONTAINERS)])


def slots_of(kind: type) -> dict[str, Any]:
    """The slots of a class's instances, by name."""
    found: dict[str, Any] = {}
    if kind is torch.Generator:
        return found  # where it lies is nothing that it holds
    for each in reversed([each for each in kind.__mro__ if _adds_slots(each)]):
        members = [(name, slot) for name, slot in vars(each).items() if type(slot) is MemberDescriptorType]
        found.update([(name, slot) for name, slot in members if name != "__dict__"])
    return found


def _adds_slots(cls: type) -> bool:
    """Whether instances are larger than those of the base, by more than a dict and weak references.

    A class may have hundreds of names, and a call makes objects: they are looked at where there may be slots.
    """
    base = cls.__base__
    if base is None or cls.__itemsize__:  # the fields of C's tuples are members, and take no room
        return base is not None
    new = [cls.__dictoffset__ > 0 >= base.__dictoffset__, cls.__weakrefoffset__ > 0 >= base.__weakrefoffset__]
    return cls.__basicsize__ != base.__basicsize__ + sum(new) * tuple.__itemsize__


def parts_of(value: Any) -> list[Any]:
    """A container; of an object the dict with its attributes as well."""
    table = table_of(value)
    return [value] if table is None else [value, table]


class Opening:
    """How instances of a class are taken apart: by these attributes, or by all in order."""

    __slots__ = ("_holds", "_names", "_slots")

    def __init__(self, kind: type, names: Iterable[str] | None) -> None:
        self._slots = slots_of(kind)
        self._holds = issubclass(kind, _CONTAINERS)
        self._names = None if names is None else tuple(sorted(names))

    def has(self, name: str | None) -> bool:
        """Whether an attribute is a leaf where there is one; None asks for all of them, in order."""
        return self._names is None or name in self._names

    def look(self, value: Any) -> tuple[tuple[Name, ...], list[Any]]:
        """Names and values of all members of an object, and of the opened attributes that it has."""
        if not self._holds:
            return self._attributes(value)
        keys = members.keys(value) if isinstance(value, dict) else range(members.length(value))
        names, held = self._attributes(value)
        return (*[(type(key), key) for key in keys], *names), [*members.values(value), *held]

    def _attributes(self, value: Any) -> tuple[tuple[str, ...], list[Any]]:
        table = table_of(value) or {}
        names = self._names if self._names is not None else (*self._slots, *table)
        if not self._slots:
            found = [name for name in names if name in table]
            return tuple(found), [table[name] for name in found]
        pairs = [(name, attribute_of(value, name, table, self._slots)) for name in names]
        pairs = [pair for pair in pairs if pair[1] is not _UNSET]
        return tuple([name for name, _ in pairs]), [each for _, each in pairs]


DEVICE, SEED, DEFAULT = "device", "initial_seed()", "is_default"
"""What there is to a random generator: always the device and the last, the seed if a call asks for it."""


class OfGenerators(Opening):
    """How random generators are taken apart: by what calls have asked of them, and two more."""

    __slots__ = ("_told",)

    def __init__(self, names: Iterable[str] | None) -> None:
        super().__init__(torch.Generator, {DEVICE, DEFAULT, *(names or ())})
        self._told = tuple(sorted({DEVICE, DEFAULT, *(names or ())}))

    def look(self, value: Any) -> tuple[tuple[Name, ...], list[Any]]:
        """What a generator says of itself, and which default one it is."""
        return self._told, [told_of(value, name) for name in self._told]


def told_of(generator: torch.Generator, name: str) -> Any:
    """What a random generator says of itself."""
    if name == SEED:
        return generator.initial_seed()
    return generator.device if name == DEVICE else is_default(generator)


def is_default(generator: torch.Generator) -> bool:
    """Whether it is a generator from which PyTorch draws where it is given none."""
    return is_default_at(address_of(generator))


def is_default_at(address: int) -> bool:
    """Whether such a generator lies there."""
    return address == _OF_HOST or any([address == address_of(each) for each in torch.cuda.default_generators])


def address_of(generator: Any) -> int:
    """Where a generator lies, whichever Python object is asked."""
    return generator._cdata


_OF_HOST = address_of(torch.default_generator)


def opening_of(kind: type, names: Iterable[str] | None) -> Opening:
    """How instances of a class are taken apart, by which of their attributes."""
    return OfGenerators(names) if kind is torch.Generator else Opening(kind, names)


def _told(opening: Opening, generator: torch.Generator) -> tuple[Any, ...]:
    """What a generator says of itself, with names."""
    names, values = opening.look(generator)
    return tuple(zip(names, values, strict=True))


_UNSET: Any = object()
Name = str | tuple[type, Any]
"""Of an attribute; of a member the type of its key, and the key."""


def attribute_of(value: Any, name: str, table: dict[str, Any] | None, slots: dict[str, Any]) -> Any:
    """An attribute of an object, as it lies in it."""
    if name in slots:
        try:
            return slots[name].__get__(value)
        except AttributeError:
            return _UNSET
    return (table or {}).get(name, _UNSET)


def member_of(value: Any, name: Name) -> Any:
    """An attribute or a member that an object has, as it lies in it."""
    if isinstance(name, tuple):
        return members.member(value, name[1])
    return attribute_of(value, name, table_of(value), slots_of(type(value)))


def put_member(value: Any, name: Name, new: Any) -> None:
    """Lay something into an attribute or a member of an object, past its class's own ways to set it."""
    if isinstance(name, tuple):
        members.put(value, name[1], new)
    elif (slot := slots_of(type(value)).get(name)) is not None:
        slot.__set__(value, new)
    else:
        object.__getattribute__(value, "__dict__")[name] = new


def made_of(kind: type, names: Iterable[Name], values: Iterable[Any]) -> Any:
    """An object of a class with these attributes and members, made without running code of the class."""
    pairs = [*zip(names, values, strict=True)]
    held = [(name, value) for name, value in pairs if type(name) is tuple]
    made = _bare(kind, [value for _, value in held])
    for name, value in pairs:
        if type(name) is str or isinstance(made, dict):
            put_member(made, name, value)
    return made


def _bare(kind: type, held: Iterable[Any]) -> Any:
    """An object without attributes; one of a class of tuples or lists with its members."""
    if issubclass(kind, tuple):
        return tuple.__new__(kind, held)
    bases: tuple[Any, ...] = (SimpleNamespace, *_CONTAINERS)
    base = next((each for each in bases if issubclass(kind, each)), object)
    made = base.__new__(kind)
    if issubclass(kind, list):
        list.extend(made, held)
    return made


def name_of(name: Name, prefix: str) -> str:
    """An attribute or a member of something, as a user would write it."""
    return f"{prefix}.{name}" if type(name) is str else f"{prefix}[{text_of(name[1])}]"


def another(value: Any) -> Any:
    """An object of the same class with the same attributes, made without running code of the class."""
    kind = type(value)
    holds = issubclass(kind, _CONTAINERS)
    made = _bare(kind, members.values(value) if holds else ())
    for key, held in members.items(value) if issubclass(kind, dict) else ():
        members.put(made, key, held)
    table, fresh = table_of(value), table_of(made)
    if table is not None and fresh is not None:
        fresh.update(table)
    slots = slots_of(kind)
    for name, slot in slots.items():
        held = attribute_of(value, name, None, slots)
        if held is not _UNSET:
            slot.__set__(made, held)
    return made


_FEW = 2
"""Objects of one class that are known by their identity, each with recordings of its own."""


def _seen() -> bool:
    """What was not met before, or cannot be referred to weakly, is not gone."""
    return True


def _reference(value: Any) -> Callable[[], Any]:
    return weakref.ref(value) if type(value).__weakrefoffset__ else _seen


class Openings:
    """Which classes of arguments are taken apart, and by which attributes.

    Attributes:
        closed: Classes whose instances are known by their identity for good, and why.
        places: The slots of random generators outside that keys look at.
        carried: The slots whose tensors are taken for arguments.
        numbers: Leaves that are numbers which change from call to call, by the structure of the arguments.
        apart: Leaves that are tensors which share memory and are not written, in the same way.
        gradients: Whether calls ask tensors for their ``.grad``; keys tell then which of them have one.
    """

    def __init__(self) -> None:
        self.open: dict[type, Opening] = {}
        self.closed: dict[type, str] = {}
        self.places = Places()
        self.carried = CarriedSlots()
        self.numbers: dict[Any, frozenset[int]] = {}
        self.apart: dict[Any, frozenset[int]] = {}
        self.gradients = False
        self._fixed: set[tuple[Any, int]] = set()
        self._read: dict[type, set[str] | None] = {}
        self._inner: set[type] = set()
        self._filled: set[type] = set()
        self._met: dict[type, dict[int, Callable[[], Any]]] = {}

    def may_open(self, kind: type) -> bool:
        """Whether instances of a class could be taken apart."""
        opens = kind in _OF_C or (is_openable(kind) and not issubclass(kind, tuple))
        return opens and kind not in self.closed

    def find_inside(self, kind: type) -> None:
        """A call has read an instance of a class from another object: the two are opened together."""
        self._inner.add(kind)

    def note(self, kind: type, name: str | None) -> None:
        """A call has read an attribute of an instance; all of them, in order, if the name is None."""
        known = self._read.setdefault(kind, set())
        if name is None:
            self._read[kind] = None
        elif known is not None:
            known.add(name)

    def fill(self, kind: type) -> None:
        """A call has left tensors in an instance that it reads there: each call finds others.

        As attributes under guard they keep each call from being recorded. As leaves they are arguments.
        """
        self._filled.add(kind)

    def meet(self, values: list[Any]) -> bool:
        """Objects come that are in no key; returns whether that opens a class.

        It does if an earlier instance is gone, or if there are too many of them.
        """
        fresh: set[type] = set()
        for value in values:
            kind = type(value)
            if kind in self.open or not self.may_open(kind):
                continue
            earlier = self._met.setdefault(kind, {})
            if (
                earlier.pop(id(value), _seen)() is None
                or any([known() is None for known in earlier.values()])
                or len(earlier) >= _FEW
            ):
                fresh.add(kind)
            earlier[id(value)] = _reference(value)
        if not fresh:
            return False
        self._open(fresh)
        return True

    def _open(self, fresh: Iterable[type]) -> None:
        for kind in fresh:
            self._met.pop(kind, None)
        more = {each for each in (*fresh, *self._inner) if self.may_open(each)}
        self.open = {**self.open, **{kind: opening_of(kind, self._read.get(kind, set())) for kind in more}}

    def meet_in(self, place: StatePlace, address: tuple[str, int, Any], generator: torch.Generator) -> None:
        """A call finds a random generator in a slot outside; it is opened if another one lay there before."""
        kind = torch.Generator
        if self.may_open(kind) and self.places.meet(address, place, generator) and kind not in self.open:
            self.open = {**self.open, kind: opening_of(kind, self._read.get(kind, set()))}

    def look(self) -> tuple[tuple[StatePlace, torch.Generator, tuple[Any, ...]], ...]:
        """The generators in the slots that keys look at, what each says of itself, and its slot's number."""
        opening = self.open.get(torch.Generator)
        if opening is None or not self.places.open:
            return ()
        found = [(number, place, place.now()) for number, place in enumerate(self.places.open)]
        there = [(number, place, each) for number, place, each in found if type(each) is torch.Generator]
        return tuple([(place, each, (number, *_told(opening, each))) for number, place, each in there])

    def vary(self, spec: Any, leaves: Iterable[int]) -> bool:
        """Numbers differ between two calls; returns whether the key no longer has the numbers themselves."""
        fresh = {each for each in leaves if (spec, each) not in self._fixed}
        known = self.numbers.get(spec, frozenset())
        if not fresh - known:
            return False
        self.numbers[spec] = known | fresh
        return True

    def fix(self, spec: Any, leaves: Iterable[int]) -> None:
        """The key has these numbers themselves, whatever comes: calls depend on their values."""
        self._fixed.update([(spec, each) for each in leaves])
        self.numbers[spec] = self.numbers.get(spec, frozenset()).difference(leaves)

    def are_fixed(self, spec: Any, leaves: Iterable[int]) -> bool:
        """Whether calls depend on the values of all these numbers."""
        return all([(spec, each) in self._fixed for each in leaves])

    def tell_apart(self, spec: Any, leaves: frozenset[int]) -> bool:
        """Calls differ in how some tensors share memory, and write none; whether keys leave that out now."""
        known = self.apart.get(spec)
        if known is None:
            self.apart[spec] = leaves
        return known is None

    def keep_together(self, spec: Any) -> None:
        """A call writes a tensor that may share memory with another one: the key says which do."""
        self.apart[spec] = frozenset()

    def learn(self) -> list[str]:
        """A call is over: what it showed is in the key of the next one.

        Returns:
            Names of further slots that are carried: no key that there is has another call.
        """
        if filled := self._filled - self.open.keys():
            self._open(filled)
        self._filled.clear()
        for kind, opening in self.open.items():
            names = self._read.get(kind, set())
            if not all([opening.has(name) for name in (names if names is not None else (None,))]):
                self.open = {**self.open, kind: opening_of(kind, names)}
        return self.carried.learn()

    def close(self, kind: type, why: str) -> None:
        """It matters which object an instance of a class is: its instances are no longer taken apart."""
        self.closed[kind] = why
        if kind is torch.Generator:
            self.places.clear()
        self.open = {each: opening for each, opening in self.open.items() if each is not kind}

    def close_all(self, why: str) -> None:
        """The open classes cannot be taken apart."""
        for kind in list(self.open):
            self.close(kind, why)

    def clear(self) -> None:
        """Forget everything."""
        self.open = {}
        self.places.clear()
        self.carried.clear()
        self.numbers.clear()
        self._fixed.clear()
        self.gradients = False
        for each in (self.closed, self._read, self._inner, self._filled, self._met):
            each.clear()
