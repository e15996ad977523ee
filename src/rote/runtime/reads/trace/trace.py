"""The trace of one call: what lies outside of it, what it read there and what it wrote.

An object is *outside* if it was found in something outside. Roots are the callable, its arguments, globals
and builtins. The call made all other objects, provided that all its code is followed and all C callables are
known. So they need no condition. The trace holds objects outside until the call ends, so an identity stands
for one object. It does not hold tensors, since a recording depends on their lifetimes; they are tracked in
other ways.

A slot that the call has written is no condition when the call reads it later. The trace keeps the value
before the first write and compares it with the value at the end. If they differ, that is an *effect*.

Nothing here runs code of the user's: containers are asked through the methods of the builtin class, classes
through their namespaces.
"""

from __future__ import annotations

import gc
import itertools
import random
import sys
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import is_
from types import (
    BuiltinMethodType,
    CodeType,
    FrameType,
    FunctionType,
    MappingProxyType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any, NamedTuple, cast

import torch
from torch.utils.hooks import RemovableHandle

from ....base import InternalError, Site, cut, identity, is_internal, is_own, user_site
from ...arguments import (
    APPENDED,
    CONTENTS,
    DELETED,
    Bound,
    Call,
    ClassTarget,
    GivenParts,
    GivenTarget,
    Made,
    Marking,
    StatePlace,
    Tag,
    Target,
    can_be_carried,
    can_be_laid,
    leaves_of,
    place_of,
    read_from,
    table_of,
)
from ...arguments import address_of as generator_address
from ...numbers import (
    GLOBAL_GENERATORS,
    KINDS,
    TELL_TIME,
    TRUTHS,
    DrawnFrom,
    NumberSource,
    TrackedNumbers,
    can_draw,
)
from ...objects import (
    ARRAY_BYTES,
    UNSET,
    Content,
    Position,
    TensorMark,
    base_of,
    exact,
    is_bound_method,
    is_empty_stage_table,
    mark,
    members,
    module_of,
    pointer_of,
    said_module,
    said_name,
    scripted,
)
from ...pytorch import LEFT_ALONE, Contact, GroupCall, Switch, scripted_names
from ...state import (
    ASKED,
    ATTRIBUTE,
    BULK,
    CELL,
    DEFINED,
    HELD,
    ITEM,
    KIND,
    LENGTH,
    LOOKED,
    MISSING,
    NUMBERS,
    ORDER,
    PASSES_ON,
    SCRIPTED,
    TORCHS_OWN,
    Address,
    Argument,
    Names,
    Read,
    Reads,
    address_of,
    answer,
    same,
    show,
)
from ..bytecode import MODULE_CALL, Swaps
from ..table import Rows, lookup
from .given import Given
from .kinds import (
    BINDS,
    BY_CONTENT,
    CLASS,
    COMPILES,
    CONTAINER,
    FINDS,
    GENERATES,
    HOLDS,
    MEETS,
    MODULE,
    NUMBERED,
    PLAIN,
    PLAIN_TYPES,
    SPREAD,
    STAGED,
    STANDS,
    TENSOR,
    Traits,
    is_compilers,
    is_readable,
    table,
)
from .noted import Effect, Noted, Output, Setting, UnseenCode

_SLOTS = frozenset({ITEM, ATTRIBUTE, CELL})
"""Kinds of slots that one value lies in."""
_MAPPINGS = (dict, OrderedDict, defaultdict, Counter)
_OF_SIZE = frozenset({LENGTH, ORDER, KIND})
"""Kinds of reads of a container that say nothing of what its members are."""
_DEPTH = 6
"""Containers in containers through which a slot is found again."""
_COMPARED_BYTES = 1 << 24
"""Arrays up to this size are compared in full before each replay; that takes up to a millisecond."""
_OURS = f"{__name__.partition('.')[0]}."
_FROM_TEXT = "<string>"
"""The file of code that was made of text, as the methods of named tuples are."""
_ABSENT, _PRESENT = Content(False), Content(True)
_COUNTERS = frozenset({"next_id"})
"""Counters that number PyTorch's hook handles; the value makes no difference."""
OF_CLASS = frozenset({"__class__", "__dict__", "__code__"})
"""Attributes that give an object another class, other attributes or other code."""
_QUEUES = "_lazy_call"
"""Functions of PyTorch's that keep what is to be done when a device starts, and who asked for it."""
_BOUND = frozenset({MethodType, BuiltinMethodType, MethodWrapperType})
"""Types of methods that belong to one object."""

_KEPT_BY_GENERATORS, _GAUSS = "gauss_next", random.Random.gauss.__code__

SPECIAL = "special"
"""Marks classes whose special methods are noted."""

_Addresses = Collection[tuple[str, int, Any]]
Aside = Callable[[Callable[[], Any]], Any]
"""Runs what is no part of the traced call, with no mode of rote's in force."""


class _Written(NamedTuple):
    """One slot, or all of a container, before it was first written."""

    kind: str
    container: Any
    key: Any
    was: Any
    owner: int
    site: Site

    @property
    def address(self) -> tuple[str, int, Any]:
        """Which slot it is, among those of one call."""
        return self.kind, identity(self.container), self.key

    @property
    def suffix(self) -> str:
        """What the user writes behind the name of the owner."""
        if self.kind == CELL:
            return ""
        member = self.kind == ITEM and self.owner == identity(self.container)
        return f"[{shown(self.key)}]" if member else f".{self.key}"

    def now(self) -> Any:
        """What lies in it; UNSET or MISSING if nothing does."""
        try:
            return read_from(self.kind, self.container, self.key)
        except (KeyError, IndexError, ValueError, AttributeError):
            return UNSET if self.kind == ATTRIBUTE else MISSING


@dataclass
class _Growing:
    """A list or a deque outside to which members are added: what it was, and how many are added."""

    written: _Written
    count: int = 0


@dataclass(frozen=True)
class _Binding:
    """Slots that a call has bound, and what lies in them, in the form in which a result is taken apart."""

    marking: Marking
    targets: list[Target] = field(default_factory=list[Target])
    parts: list[Any] = field(default_factory=list[Any])

    def add(self, target: Target, part: Any) -> None:
        """Something lies in a slot."""
        self.targets.append(target)
        self.parts.append(self.marking.mark(part))


class Trace:
    """What one call reads and writes."""

    def __init__(
        self,
        swaps: Swaps,
        rows: Rows,
        answers: weakref.WeakValueDictionary[Any, Any],
        meet: Callable[[Any], None],
        aside: Aside,
        numbers: TrackedNumbers | None = None,
    ) -> None:
        self.swaps = swaps
        self.numbers = numbers  # what of them changes from call to call, if anything does
        # slots of such numbers, by address: what stands there, and for what
        self._laid: dict[Address, tuple[Target, Any, Any]] = {}
        self.rows = rows
        self._answers = answers
        self._meet_tensor = meet
        self._aside = aside
        self._switches: list[Switch] = []  # what the wrappers around the code that runs say to Dynamo
        self._has_switched = False
        # what was noted already, so that it is not looked at again; keys are the notes' own
        self.seen: set[Any] = set()
        # containers outside, by their identity, with keys under which members were read
        self.members: set[tuple[int, Any]] = set()
        # callables, by their identity, of which nothing is new when they are called again
        self.called: set[int] = set()
        self.tells_tensors = False  # it asked whether an argument is another tensor
        self.trusts = False  # it ran code of which a declaration or a library says what it does
        # functions whose reads one note has told, with what they were given
        self.told: set[tuple[Any, ...]] = set()
        self._told_of: set[int] = set()
        self.outside: dict[int, Any] = {}  # objects that were there before the call, by identity
        self.kinds = table()  # the class of thing by type
        self._traits = Traits(self.kinds)
        # objects outside whose class and whose table of attributes are noted: that table, by identity
        self.tables: dict[int, dict[str, Any]] = {}
        # attributes of which classes have said all when another instance is asked, and what is left to note
        self.settled: dict[tuple[type, str], str] = {}
        self._names = Names()
        self._reads: dict[tuple[str, int, Any], Read] = {}
        self._written: dict[tuple[str, int, Any], _Written] = {}
        self._changed: dict[int, _Written] = {}
        self._growing: dict[int, _Growing] = {}
        self._scripts: dict[int, Any] = {}
        self._looked: set[int] = set()  # what grew and was read afterwards
        self._extended: set[int] = set()  # mappings to which a key was added
        self._bound: set[tuple[str, int, Any]] = set()
        self._carried: dict[tuple[str, int, Any], Any] = {}  # what was laid into slots before the call
        self._taken_back: set[tuple[str, int, Any]] = set()
        self._replaced: list[tuple[str, Any, Any, Any, str]] = []  # slots whose values change
        self._held: list[Any] = []  # whose identity is in a key
        self._carriers: dict[int, weakref.ref[Any]] = {}  # tensors by the identity of their attributes
        self._namespaces: dict[type, dict[str, Any]] = {}
        self._subclasses: dict[int, tuple[type, ...]] = {}  # of bases, before the call made its first one
        self._own: set[int] = set()  # identities of namespaces of classes that the call has made
        self._slots: dict[tuple[type, str, type | None], Any] = {}  # of classes, as they were looked up
        self._found: dict[tuple[type, str], Any] = {}  # the same, of which nothing is read
        self._unseen: dict[str, UnseenCode] = {}
        self._late: dict[int, CodeType] = {}
        self._output: dict[Output, None] = {}
        self._draws: Site | None = None
        self._times = 0  # reads of the clock
        self._drawn: dict[int, DrawnFrom] = {}  # random generators outside, by identity
        self._contact: Contact | None = None
        self.collective: GroupCall | None = None  # that is about to be made
        self.arguments: dict[int, str] = {}  # names of tensors that are arguments, by identity
        # arguments that are known by their identity, and whose death is noticed
        self.anchored: set[int] = set()
        self.given = Given()  # arguments that are taken apart
        self.settings: list[Setting] = []  # where the call has set random generators, in order
        # notes that something is about to be called: names of the last arguments, it, its arguments
        self.call: Callable[..., None] = rows.called(self)
        # identity of the exception that the caller is handling, and keeps; None if there is none
        self.handled: int | None = None
        self.around: Trace | None = None  # the trace of a call around this one, on the same thread
        self.at_work = False  # a note is being taken: what runs meanwhile is none of the call's
        # where ``print`` was called last: the identity of the frame, and its instruction
        self.printing: tuple[int, int] | None = None
        self._arrays: dict[int, Any] = {}  # made by the call, of which tensors are made, by their address
        self._pinned: set[int] = set()

    # ------------------------------------------------------------------ what is outside

    def find(self, value: Any, owner: Any, suffix: str) -> None:
        """Something was found in an object that is outside; ``owner`` is that object, or None for a root.

        What is compared by what it holds is a condition: no slot tells of it. As no slot leads to it, nothing
        can be found in its place.
        """
        self.pin(value)
        self._meet(value, owner, suffix)

    def pin(self, value: Any) -> None:
        """Note that identity may matter: an equal object is no substitute."""
        self._pinned.add(identity(value))

    def has_pinned(self, *values: Any) -> bool:
        """Whether all of these objects are pinned."""
        return self._pinned.issuperset(map(identity, values))

    def find_part(self, value: Any, owner: Any, suffix: str) -> None:
        """Something was found in a function or a method, which is made of it for good."""
        if identity(owner) in self._pinned:
            self.pin(value)
        self._meet(value, owner, suffix)

    def _meet(self, value: Any, owner: Any, suffix: str) -> None:
        if identity(value) in self.outside:
            if owner is not None and self.given.objects:
                self._find_again(value, owner, suffix)
            return
        self._find(value, owner, suffix)
        if self.by_content(type(value)) and identity(value) in self.outside:
            self.held(value)

    def held(self, value: Any) -> None:
        """Note what an object outside holds, as a whole."""
        if not any(value is each for each in GLOBAL_GENERATORS) and not self.is_drawn_from(value):
            self._read_held(value)

    def _read_held(self, value: Any) -> None:
        address = (HELD, identity(value), None)
        if address not in self._reads and (form := mark(value)) is not value:
            self._reads[address] = Read(HELD, value, None, form, identity(value), "", self._names)
            self._read_numbers(value)

    def _find_again(self, value: Any, owner: Any, suffix: str) -> None:
        """Something outside leads to an argument that is taken apart, which is another one in each call."""
        given = self.given
        if identity(owner) not in given.objects and (
            identity(value) in given.objects or identity(value) in given.originals
        ):
            self.identify(value, f"finds it in {self.name(owner, suffix)}, too")

    def identify(self, value: Any, does: str) -> None:
        """Refuse a recording that depends on the identity of an argument that is taken apart.

        Each call has another object there.
        """
        name = self.given.name_of(value)
        if name is None:
            return
        self.given.close(value, does)
        self.refuse(name, f"depends on which object {name} is: it {does}")

    def take_back(self, places: Sequence[StatePlace]) -> None:
        """What was given lies in these slots again, in place of what stood for it."""
        self._taken_back.update([(place.kind, identity(place.found()), place.key) for place in places])

    def take(self, call: Call, given: GivenParts, stood: Mapping[int, torch.Tensor]) -> None:
        """The callable is about to be called with these arguments, perhaps once more."""
        names = call.names() if stood else []
        self.arguments.update({identity(each): names[index] for index, each in stood.items()})
        before, self.given = self.given, Given()
        self.told.clear()
        self._taken_back.clear()
        self._lay_again()
        self._times = 0
        for each in self._drawn.values():
            each.put_back()
        error = sys.exc_info()[1]
        self.handled = None if error is None else identity(error)
        for each in self._growing.values():  # an attempt that is made again
            each.written.container.clear()
            each.written.container.extend(each.written.was)
        self._growing.clear()
        for written in (self._written, self._changed):
            for address, each in list(written.items()):
                if before.branch(each.container) is not None:
                    del written[address]  # pyright: ignore[reportArgumentType]
        for place in call.carried:
            container = place.found()
            self._carried[place.kind, identity(container), place.key] = given[2][place.name]
            self._held.append(container)
            self.pin(container)  # what lies in another one's slot is not carried
        for name, value in self.given.take(call, given):
            if self.has(value) and identity(value) not in before.objects:
                self.identify(value, "finds it in another argument, too")
            self.find(value, None, name)
        for value in self.given.shared:
            self.identify(value, "shares its attributes with another argument")

    def _find(self, value: Any, owner: Any, suffix: str) -> None:
        if self.given.objects and owner is not None:
            self._find_again(value, owner, suffix)
        which, trait = identity(value), self._traits[type(value)]
        for part in _bounds(value) if trait & SPREAD else ():
            self._find(part, owner, suffix)
        if which in self.outside or not trait & FINDS:
            return
        if self.kinds[type(value)] == CONTAINER and self._traits[type(owner)] & COMPILES:
            return
        if trait & STAGED and is_empty_stage_table(value):  # a scaler fills it, and leaves a new one
            return
        self.outside[which] = value
        self._names[which] = (identity(owner) if owner is not None else 0, suffix)
        if trait & BINDS and is_bound_method(value):
            # It is called with that, which nobody reads.
            if type(value.__func__) is FunctionType:
                self.find_part(value.__func__, value, "")
            self.find_part(value.__self__, value, "")
        elif type(value) in _BOUND and self.kinds[type(value.__self__)] not in (CLASS, MODULE):
            self.find(value.__self__, value, ".__self__")

    def find_table(self, table: dict[str, Any], value: Any) -> None:
        """The dict of an object's attributes is outside as the object is; it is read where it lies."""
        self._find(table, value, "")

    def find_tags(self, table: dict[str, Any], value: Any) -> None:
        """The attributes of a tensor are written: which tensors are outside shows when the call is over."""
        self.find(table, None, self.arguments.get(identity(value), "a tensor"))
        self._carriers[identity(table)] = weakref.ref(value)

    def has(self, value: Any) -> bool:
        """Whether an object was there before the call."""
        return identity(value) in self.outside

    def behind(self, value: Any) -> Any:
        """The mapping that a read-only view shows; else the value itself."""
        while type(value) is MappingProxyType:
            shown = members.behind(value)
            if self.has(value):
                self.find(shown, value, "")
            value = shown
        return value

    def hold(self, value: Any) -> None:
        """Keep the identity of an object its own until the call is over."""
        self._held.append(value)

    def name(self, value: Any, suffix: str = "") -> str:
        """The name of an object, as the user would write it."""
        return self._names.path(identity(value), suffix)

    # ------------------------------------------------------------------ reads

    def read(self, kind: str, container: Any, key: Any, value: Any, suffix: str, owner: Any = None) -> None:
        """Note one read of something outside, unless the call has written it.

        The suffix is what the user writes behind the name of the owner, by default the container itself.
        """
        where = identity(container)
        address, trait = (kind, where, key), self._traits[type(value)]
        given = self.given
        if (given.objects or given.watched or trait & GENERATES) and self._reads_given(
            address, container, value, suffix, owner
        ):
            return
        if self._growing and where in self._growing:
            self._looked.add(where)  # what is read may be the call's own
            return
        if (
            address in self._reads
            or address in self._written
            or where in self._changed
            or where in self._own
            or address in self._carried  # it is an argument, or the call's own
            or self._keeps_state(container, key)
            or (type(key) is str and key in _COUNTERS and container is self.namespace(RemovableHandle))
        ):
            return
        whose = container if owner is None else owner
        if self.numbers is not None and self._takes(kind, container, key, value, whose, suffix):
            return
        if where in self._extended and kind in (LENGTH, ORDER):
            before = [key for key, _ in self._contents_before(container)]
            value = Content(len(before) if kind == LENGTH else tuple(before))
        if trait & HOLDS and kind in _SLOTS and given.finds(address, value):
            self._replaced.append((kind, container, key, owner, suffix))
        if trait & STANDS:
            value = stood_for(value)
        form = mark(value) if trait & BY_CONTENT and not self.is_drawn_from(value) else value
        found = (kind, container, key, form, identity(whose), suffix, self._names)
        self._reads[address] = tuple.__new__(Read, found)  # in half the time of Read(...)
        if trait & MEETS:
            self._meet_tensor(value)
        if trait & (FINDS | SPREAD):
            self._find(value, whose, suffix)
        if trait & NUMBERED:
            self._read_numbers(value)

    def _reads_given(
        self, address: tuple[str, int, Any], container: Any, value: Any, suffix: str, owner: Any
    ) -> bool:
        """Whether the key tells of what is read, as it is an argument's, or a generator in a known slot."""
        (kind, where, key), given = address, self.given
        whose = container if owner is None else owner
        if (
            (where in given.objects or where in given.watched)
            and address not in self._written
            and given.read(kind, container, key, stood_for(value), self.name(whose, suffix))
        ):
            return True
        if type(value) is torch.Generator and address not in self._written and where not in self._changed:
            if given.slots.get(address) is value:
                return True
            given.meet_in(kind, container, key, value, owner, self.name(whose, suffix))
        return False

    def read_attribute(self, table: dict[str, Any], name: str, owner: Any) -> None:
        """Note a read of what an object outside has in its table under a name, or has not."""
        if name in table:
            self.read(ITEM, table, name, table[name], f".{name}", owner)
        else:
            self.absent(table, name, f".{name}", owner)

    def read_member(self, container: dict[Any, Any], key: Any) -> None:
        """Note a read of what a dict outside, or a class derived from it, has under a key, or has not."""
        if type(key) is str or type(key) is int:
            self.members.add((identity(container), key))
        value = dict.get(container, key, MISSING)
        if value is MISSING:
            self.absent(container, key, f"[{shown(key)}]")
        else:
            self.read(ITEM, container, key, value, f"[{shown(key)}]")

    def _carry(self, kind: str, container: Any, key: Any, owner: Any, suffix: str) -> None:
        """What lies in a slot is replaced from call to call: it is carried, if it can be found again."""
        where = identity(container)
        if where in self._changed or where in self._growing:
            return  # its members move from slot to slot
        owners = self._names.owners(where if owner is None else identity(owner))
        if where in self.anchored or any([self.given.holds(each) for each in owners]):
            return  # the next call has another argument there
        place = self._place(kind, container, key, owner, suffix)
        if place is not None:
            self.given.carry(place)

    def _place(
        self, kind: str, container: Any, key: Any, owner: Any, suffix: str, depth: int = _DEPTH
    ) -> StatePlace | None:
        """A slot outside, or one of a container that lies in such a slot, as the call has read it."""
        owner = None if owner is container else owner
        name = self.name(container if owner is None else owner, suffix)
        place = place_of(kind, container, key, owner, name)
        if place is not None or not depth:
            return place
        table = owner is not None and table_of(owner) is container
        whose = owner if table else container
        around = next((read for read in self._reads.values() if read.value is whose), None)
        if around is None:
            return None
        owner = self.outside.get(around.owner)
        found = self._place(around.kind, around.container, around.key, owner, around.suffix, depth - 1)
        return found.inside(kind, key, name, table=table) if found is not None else None

    def _takes(self, kind: str, container: Any, key: Any, value: Any, owner: Any, suffix: str) -> bool:
        """Whether a slot has a number that changes from call to call, which is no condition then.

        What is followed instead is laid into the slot until the call is over: whoever reads it there, Python
        or C, has it. An equal number is as good, and the slot gets its own again.
        """
        numbers, address = self.numbers, address_of(kind, container, key)
        if numbers is None or address not in numbers.wanted or identity(container) in self.anchored:
            return False
        if type(value) not in KINDS or (not numbers.follows and numbers.stopped is not None):
            return False
        if address in self._laid:
            return self._laid[address][1] is value
        target = self._target(kind, container, key, owner, self.name(owner, suffix))
        if not can_be_laid(target):
            return False
        if numbers.follows:
            stands = numbers.take(NumberSource(kind, container, key, target.name), value)
            if stands is value:
                return False
            target.write(stands)
            self._laid[address] = target, stands, value
        self._held.append(container)
        return True

    def _lay_again(self) -> None:
        """The call begins once more: its slots hold what it has found there."""
        for target, stands, value in self._laid.values():
            if target.read() is value:
                target.write(stands)

    def _put_back(self) -> None:
        """Slots that hold what stood for a number get that number again, where others may ask which it is."""
        numbers = self.numbers
        for each in self._written.values() if numbers is not None and numbers.follows else ():
            left = each.now()
            if type(left) in KINDS and numbers is not None and numbers.original(left) is not left:
                owner = self.outside.get(each.owner)
                self._target(each.kind, each.container, each.key, owner, "").write(numbers.original(left))
        for target, stands, value in self._laid.values():
            if target.read() is stands:
                target.write(value)
        self._laid.clear()

    def _read_numbers(self, array: Any) -> None:
        """Of a large array the form in which it is compared is a sample: note all of it."""
        if not self._traits[type(array)] & NUMBERED or array.dtype.hasobject:
            return
        if array.nbytes > _COMPARED_BYTES:
            name = self.name(array)
            self.refuse(name, f"reads {name}, an array of {array.nbytes >> 20} MB; pass it in as a tensor")
        elif array.nbytes > ARRAY_BYTES:
            self.read(NUMBERS, array, None, Content(array.tobytes()), " (its numbers)")

    def look_into(self, array: Any) -> None:
        """The numbers of an array outside are read in Python, whatever else is made of it."""
        if array.dtype.hasobject or (NUMBERS, identity(array), LOOKED) in self._reads or not self.has(array):
            return
        self.read(NUMBERS, array, LOOKED, Content(array.tobytes()), " (its numbers)")

    def makes_tensor(self, array: Any) -> None:
        """A tensor is about to be made of an array: if the call made that, its numbers follow from reads."""
        base = base_of(array)
        ours = not (self.has(array) or self.has(base)) and base.flags.owndata and not array.dtype.hasobject
        if ours and array.nbytes <= _COMPARED_BYTES:
            self._arrays[pointer_of(array)] = array

    def has_made(self, pointer: int) -> bool:
        """Whether an array of the call's own lies at an address, of which a tensor is made."""
        return pointer in self._arrays

    def _form(self, value: Any) -> Any:
        """The form in which a value is compared: of most objects it is their identity."""
        return mark(value) if self.by_content(type(value)) else value

    def by_content(self, kind: type) -> bool:
        """Whether instances of a type are compared by what they hold."""
        return bool(self._traits[kind] & BY_CONTENT)

    def can_compare(self, value: Any) -> bool:
        """Whether it can be told if an object was changed."""
        return is_readable(value) or self.by_content(type(value))

    def absent(self, container: Any, key: Any, suffix: str, owner: Any = None) -> None:
        """Note that something is not there, if nobody fills it in when it is first asked for."""
        if self._traits[type(owner)] & COMPILES:  # operators
            return
        self.read(DEFINED, container, key, _ABSENT, suffix, owner)

    def present(self, container: Any, key: Any, suffix: str) -> None:
        """Note that there is something, whatever it is, unless the call has put it there or has read it."""
        address = address_of(ITEM, container, key)
        if address not in self._written and address not in self._reads:
            self.read(DEFINED, container, key, _PRESENT, suffix)

    def makes_class(self, bases: tuple[Any, ...]) -> None:
        """A class is about to be made; those that the first base has by now were there before.

        They are held until the call is over, so that no other class gets the identity of one.
        """
        base = bases[0] if bases else object
        if issubclass(type(base), type) and identity(base) not in self._subclasses:
            self._subclasses[identity(base)] = lookup.subclasses(base)

    def has_made_class(self, kind: type) -> bool:
        """Whether the call has made a class, by a class statement or by ``type(name, bases, namespace)``."""
        if not self._subclasses or self.has(kind):
            return False
        base = lookup.first_base(kind)
        before = self._subclasses.get(identity(base)) if base is not None else None
        return before is not None and not any(each is kind for each in before)

    def namespace(self, kind: type) -> dict[str, Any]:
        """The dict behind the namespace of a class: views of it are new each time.

        The class is outside, unless the call has made it; nothing that is in it is a condition then.
        """
        found = self._namespaces.get(kind)
        if found is None:
            found = self._namespaces[kind] = gc.get_referents(lookup.namespace(kind))[0]
            if self.has_made_class(kind):
                self._own.add(identity(found))
                self.hold(found)
                return found
            name = said_name(kind)
            self.find(kind, None, name)
            if lookup.can_change(kind):
                self.read(ATTRIBUTE, kind, "__mro__", lookup.bases(kind), ".__mro__")
        return found

    def kind(self, value: Any) -> None:
        """Note the class of an object that is outside, if it can become another one."""
        kind = type(value)
        if lookup.can_change(kind) or issubclass(kind, ModuleType):
            self.find(kind, None, said_name(kind))  # by its own name, not by that of an instance
            self.read(KIND, value, None, kind, " (its class)")

    def in_class(self, kind: type, name: str) -> Any:
        """What a class has under a name, or MISSING; that is no read."""
        value = self._found.get((kind, name), self)
        if value is self:
            value = self._found[kind, name] = lookup.find(kind, name).value
        return value

    def is_by_identity(self, value: Any) -> bool:
        """Whether an object is found and compared by which it is, and all its class says of that is noted."""
        kind, which = type(value), identity(value)
        if (SPECIAL, kind) not in self.seen or which in self.given.objects:
            return False
        if which in self.outside and which not in self._pinned:
            return False
        return self.in_class(kind, "__eq__") is object.__eq__ and (
            self.in_class(kind, "__hash__") is object.__hash__
        )

    def class_slot(self, kind: type, name: str, after: type | None = None) -> Any:
        """Note what a class has under a name, itself or from a base; returns it, or MISSING."""
        slot = (kind, name, after)
        value = self._slots.get(slot, self)
        if value is self:
            value = self._slots[slot] = self._read_class(kind, name, after)
        return value

    def _read_class(self, kind: type, name: str, after: type | None) -> Any:
        found = lookup.find(kind, name, after)
        if found.owner is not None and is_compilers(said_module(found.owner)):
            return found.value
        for passed in found.passed:
            if lookup.can_change(passed):
                self.absent(self.namespace(passed), name, f".{name}", passed)
        owner = found.owner
        if owner is not None:
            table = self.namespace(owner)
            if lookup.can_change(owner):
                self.read(ITEM, table, name, found.value, f".{name}", owner)
            else:
                self.find(found.value, owner, f".{name}")
        return found.value

    # ------------------------------------------------------------------ writes

    def ask(self, function: Any, key: Any, suffix: str) -> None:
        """Note what a function of C says, which takes no arguments that change; it is asked again later.

        The key is its arguments, or the name of a method of an object that is given for the function.
        """
        self.hold(function)
        said = function(*key) if type(key) is tuple else getattr(function, key)()
        self.read(ASKED, function, key, answer(said), suffix)

    def same_answer(self, key: tuple[Any, ...], function: Callable[[], str]) -> Callable[[], str]:
        """What an earlier trace has asked in place of ``function``, if that is still asked by a recording.

        A guard of two calls would ask both.
        """
        return self._answers.setdefault(key, function)

    def answers(self, function: Callable[[], str], said: str) -> None:
        """Note what a function of rote's own says, which is asked again later."""
        self.hold(function)
        self.read(ASKED, function, (), answer(said), "")

    def write(self, kind: str, container: Any, key: Any, owner: Any) -> None:
        """A slot is about to be written."""
        if issubclass(type(owner), type) or (type(key) is str and key in OF_CLASS):
            self._forget_classes()
        if not (self.has(owner) or self.has(container) or self.given.branch(container) is not None):
            return
        if is_compilers(said_module(owner if issubclass(type(owner), type) else type(owner))):
            return
        self.pin(owner)
        self.pin(container)
        self._forget_told(container)
        address = (kind, identity(container), key)
        if (
            address in self._written
            or identity(container) in self._changed
            or self._keeps_state(container, key)
        ):
            return
        if type(key) is str and key in _COUNTERS and container is self.namespace(RemovableHandle):
            return
        read = self._reads.get(address)  # as it was then: what lies there may have been filled since
        slot = _Written(kind, container, key, None, identity(owner), self._site())
        was = read.value if read is not None else self._form(slot.now())
        if was is MISSING and kind == ITEM:
            self._extended.add(identity(container))
        self._written[address] = slot._replace(was=was)
        self._held.append(container)

    def _forget_classes(self) -> None:
        """What was found by way of classes may be another from now on: it is noted anew."""
        for known in (
            *(self._slots, self._found, self.seen, self.called, self.told, self.settled, self.tables),
        ):
            known.clear()

    def _forget_told(self, container: Any) -> None:
        """A container is written: what was told of functions that look into it may be another from now on."""
        if identity(container) in self._told_of:
            self.told.clear()
            self._told_of.clear()

    def tell(self, what: tuple[Any, ...], containers: Iterable[Any]) -> None:
        """All is told of a function, as long as some containers outside are not written, nor a class."""
        self.told.add(what)
        self._told_of.update(map(identity, containers))

    def wrote(self, kind: str, container: Any, key: Any) -> bool:
        """Whether the call has written a slot."""
        return (kind, identity(container), key) in self._written

    def change(self, container: Any) -> None:
        """Any member of a container that is outside is about to be written."""
        outside = self.has(container) or self.given.branch(container) is not None
        if outside:
            self.pin(container)
            self._forget_told(container)
        if outside and identity(container) not in self._changed:
            growing = self._growing.get(identity(container))
            was = self._take_written(container) if growing is None else growing.written.was
            slot = _Written("", container, None, was, identity(container), self._site())
            self._changed[identity(container)] = slot

    def _take_written(self, container: Any) -> Any:
        """What a container held before the call; what was written of it is told with the rest from now on."""
        was = self._contents_before(container)
        for address in [address for address, each in self._written.items() if _is_in(each, container)]:
            del self._written[address]
        return was

    def _contents_before(self, container: Any) -> Any:
        """What a container held before single members of it were written."""
        written = {each.key: each.was for each in self._written.values() if _is_in(each, container)}
        was = contents(container)
        if not written or type(was) is not tuple:
            return was
        if issubclass(type(container), dict):
            before = [(key, written.get(key, value)) for key, value in was]
            return tuple([pair for pair in before if pair[1] is not MISSING])
        return tuple([written.get(place, value) for place, value in enumerate(was)])

    def appends(self, container: Any, count: int) -> bool:
        """Members are about to be added to a list or a deque; whether a replay can add its own."""
        where = identity(container)
        known = type(container) in (list, deque) and self.has(container) and count >= 0
        known = known and not _is_in_operation(self.frame())  # a replay that runs a kernel appends by itself
        if not known or where in self._changed or self.given.branch(container) is not None:
            return False
        moves = type(container) is deque and any([_is_in(each, container) for each in self._written.values()])
        if moves or self._moves_numbers(container):
            return False  # what is written there, or followed, moves
        if where not in self._growing:
            self.pin(container)
            self.members -= {each for each in self.members if each[0] == where}
            was = members.keys(container)
            self._growing[where] = _Growing(_Written("", container, None, was, where, self._site()))
        self._forget_told(container)
        self._growing[where].count += count
        return True

    # ------------------------------------------------------------------ compiled code

    @property
    def switched(self) -> Switch | None:
        """What the innermost wrapper around the code that runs says to Dynamo; None without one."""
        return self._switches[-1] if self._switches else None

    def switch(self, switch: Switch) -> None:
        """A wrapper is entered that switches Dynamo on or off."""
        self._switches.append(switch)
        self._has_switched = True
        self.settled.clear()
        self.called.clear()  # of each function that is called now it matters what Dynamo would run

    def switch_back(self, function: Any) -> None:
        """What a wrapper has called is over."""
        if self._switches and self._switches[-1].function is function:
            self._switches.pop()
            self.settled.clear()
            self.called.clear()

    def run_aside(self, call: Callable[[], Any]) -> Any:
        """Run what is no part of the call, with every function as it is."""
        before, self.at_work = self.at_work, True
        try:
            with self.swaps.withdrawn():
                return self._aside(call)
        finally:
            self.at_work = before

    # ------------------------------------------------------------------ what is not known

    def refuse(self, name: str, text: str, *, unknown: bool = False) -> None:
        """Something is not known of the call; ``unknown``: the name is that of a callable or a class in C."""
        if name in self._unseen or _is_torchs_own(sys._getframe(1)):  # pyright: ignore[reportPrivateUsage]
            return
        if not self.rows.is_in_pure(self.frame(), self.original):
            self._unseen[name] = UnseenCode(name, text, self._site(), unknown)

    def acts(self, name: str) -> None:
        """A function in C of PyTorch's distributed code is about to be called."""
        self._contact = self._contact or Contact(name, self._site(), wraps=False)

    def take_collective(self) -> GroupCall | None:
        """The collective that was about to be made, and is."""
        found, self.collective = self.collective, None
        return found

    def writes_output(self, output: Output) -> None:
        """The call writes something for somebody to read, once in a line that is enough to tell."""
        self._output[output] = None

    def runs_script(self, script: Any) -> None:
        """Code of TorchScript is about to run: it reads attributes that lie in C++, of any of its modules."""
        if identity(script) in self._scripts:
            return
        self._scripts[identity(script)] = script
        for value in list(self.outside.values()):
            if issubclass(type(value), torch.jit.ScriptModule):
                self._read_script(value)

    def _read_script(self, module: torch.jit.ScriptModule) -> None:
        for name in scripted_names(module):
            self.read(SCRIPTED, module, name, scripted(module, name), f".{name}")
        for name, each in module.named_children():
            self.find(each, module, f".{name}")
            self._read_script(cast(torch.jit.ScriptModule, each))

    def sets(self, generator: torch.Generator, state: Any) -> None:
        """The call sets the state of a random generator, perhaps to what a tensor holds."""
        address = generator_address(generator)
        self.settings.append(Setting(address, self.has(generator), state, self._site()))

    def finds_tensor(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor was found outside, or is an argument."""
        form = mark(tensor)
        found = any([type(read.value) is TensorMark and read.value == form for read in self._reads.values()])
        return found or identity(tensor) in self.arguments

    def may_be_argument(self, left: Any, right: Any) -> bool:
        """Whether one of two objects is a tensor among the arguments, and the other may be from outside."""
        given = [identity(each) in self.arguments for each in (left, right)]
        return left is right if all(given) else any(given)

    def is_drawn_from(self, value: Any) -> bool:
        """Whether replays draw from a random generator: which one it is matters, not where it is."""
        return self.numbers is not None and self.numbers.draws and can_draw(value)

    def finds_generator(self, generator: Any) -> bool:
        """Whether a random generator was there before the call."""
        return self.has(generator) or any(generator is each for each in GLOBAL_GENERATORS)

    def looks_at_state(self, generator: Any) -> None:
        """A generator is not drawn from but looked at, or set: nothing is drawn from it by replays, too."""
        if self.is_drawn_from(generator):
            self.refuse(self.name(generator), "looks at the state of a random generator, or sets it")

    def draws(self, generator: Any, *, draws: bool) -> None:
        """The call draws a number from a random generator made outside, or sets it.

        A call that leaves the generator as it was is right where it is that.
        """
        of_process = any(generator is each for each in GLOBAL_GENERATORS)
        self._draws = self._draws or self._site()
        if identity(generator) not in self._drawn and can_draw(generator):
            self._drawn[identity(generator)] = DrawnFrom.of(generator)
        if draws and self.is_drawn_from(generator):
            self.pin(generator)
            return
        self.looks_at_state(generator)
        if of_process:
            self.find(generator, None, f"the generator of {type(generator).__module__.partition('.')[0]}")
            self._read_held(generator)
        else:
            self.change(generator)

    def _keeps_state(self, container: Any, key: Any) -> bool:
        """Whether a slot is where a generator that replays draw from keeps a number for the next call."""
        if key != _KEPT_BY_GENERATORS or self.numbers is None or not self.numbers.draws:
            return False
        frame = self.frame()
        if frame is None or self.original(frame.f_code) is not _GAUSS:
            return False
        generator = frame.f_locals.get("self")
        if not self.is_drawn_from(generator) or lookup.attributes_of(generator) is not container:
            return False
        self.draws(generator, draws=True)
        return True

    def failed(self, note: str, error: Exception) -> None:
        """A note was not taken: whatever the call is for, it is not known what it has read."""
        self._unseen[note] = UnseenCode(note, f"could not be followed: {error!r} in a note", self._site())

    def is_tool(self, code: CodeType) -> bool:
        """Whether code is of what takes notes."""
        file = code.co_filename
        if file != _FROM_TEXT:
            return is_own(file)
        return identity(code) in _makers_of_tuples()

    def ran_apart(self, code: CodeType, frame: FrameType) -> bool:
        """Python code was entered that is not followed; whether that counts."""
        counts = not self.rows.is_in_pure(frame, self.original)
        if counts:
            self._late[identity(code)] = code
        return counts

    def entered(self, code: CodeType, frame: FrameType) -> None:
        """Code that C calls was entered: the names by which a class has it are read."""
        try:
            value = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            kind: Any = value if issubclass(type(value), type) else type(value)
            if (kind, identity(code)) not in self.seen:
                self.hold((kind, code))
                self.seen.add((kind, identity(code)))
                for name in _names_of(kind, code, self.original):
                    self.class_slot(kind, name)
        except Exception as error:  # the call itself is none the worse for it
            self.failed("entered", error)

    def original(self, code: CodeType) -> CodeType:
        """What code was before it was made to tell what it reads."""
        return self.swaps.original(code)

    def runs(self, function: Any) -> None:
        """Something is about to be called: if it is Python code, it is followed."""
        bound = is_bound_method(function) or issubclass(type(function), (staticmethod, classmethod))
        target = function.__func__ if bound else function
        if type(target) is FunctionType:
            if target is not function and identity(function) in self.outside:
                (self.find_part if type(function) is MethodType else self.find)(target, function, "")
            self._follow(target)

    def _follow(self, function: FunctionType) -> None:
        code = function.__code__
        known = self.swaps.is_instrumented(code)
        apart = identity(code) in PASSES_ON or is_own(code.co_filename)
        if not known and (apart or self.rows.is_pure(function)):
            self.trusts = self.trusts or not apart
            return
        which = identity(function)
        if which in self.outside and which not in self.called:
            self.called.add(which)
            self._read_function(function)
        switch = self.switched
        compiles = switch is not None and switch.backend is not None
        chooses = compiles and not LEFT_ALONE.runs_as_it_is(self.original(code))
        if not known or chooses:
            tracks = self.numbers is not None and self.numbers.follows
            why = self.swaps.replace(function, chooses=chooses, tracks=tracks)
            if why is not None:
                name = f"{function.__module__}.{function.__qualname__}"
                self.refuse(name, f"runs {name}, which cannot be followed: {why}")

    def _read_function(self, function: FunctionType) -> None:
        """What is read of a function when it is called."""
        if function is not MODULE_CALL:  # that may get a prologue at any time
            self.read(ATTRIBUTE, function, "__code__", self.swaps.original(function.__code__), ".__code__")
        self.read(ATTRIBUTE, function, "__defaults__", function.__defaults__, ".__defaults__")
        for index, value in enumerate(function.__defaults__ or ()):
            self.find_part(value, function, f".__defaults__[{index}]")
        self.read(ATTRIBUTE, function, "__kwdefaults__", function.__kwdefaults__, ".__kwdefaults__")
        for key, value in (function.__kwdefaults__ or {}).items():
            self.read(ITEM, function.__kwdefaults__, key, value, f"[{key!r}]")
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            self.find_part(cell, function, f".{name}")

    def frame(self) -> FrameType | None:
        """The innermost frame of code that is followed."""
        at: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        while at is not None and not self.swaps.is_instrumented(at.f_code):
            at = at.f_back
        return at

    def _site(self) -> Site:
        return user_site(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]

    # ------------------------------------------------------------------ the end

    def reads_clock(self, function: Any) -> bool:
        """Whether replays read the clock, as the call is about to."""
        if self.numbers is None or not self.numbers.clock or function not in TELL_TIME:
            return False
        self._times += 1
        return True

    def finish(self) -> Noted:
        """All that was noted; nothing is held any more."""
        if self.numbers is not None and self.numbers.follows and self._times != self.numbers.times:
            self.refuse("the clock", "has the clock read by a function in C")
        self._identify_kept()
        effects = tuple(self._effects())
        self._put_back()
        for each in self._replaced:
            self._carry(*each)
        found = self._reads.values()
        # What the call has made may be gone, and its identity another's.
        pinned = self._pinned & self.outside.keys()
        reads = Reads.of(map(self._kept, found) if self.anchored else found, pinned)
        unseen, late = tuple(self._unseen.values()), tuple(self._late.values())
        output, missing = tuple(self._output), tuple(self.given.missing)
        scripts = tuple(self._scripts.values())
        noted = Noted(
            reads, effects, unseen, late, output, self._draws, missing, scripts, self._contact,
            self._has_switched, self.trusts or bool(scripts), self.tells_tensors,
        )  # fmt: skip
        for held in (
            *(self.outside, self._reads, self._written, self._changed, self._growing, self._scripts),
            *(self._namespaces, self._slots, self._found, self._carriers, self._arrays, self._held),
            *(self._carried, self._taken_back, self._replaced, self._drawn),
        ):
            held.clear()
        self.given = Given()
        self._aside = _over  # it leads to what ran the call
        return noted

    def bound(self, value: Any, often: _Addresses = (), *, others: bool = True) -> Any:
        """The call has returned: its result, with the slots outside that it has bound to something else.

        A slot that it has read before holds what an earlier call has left, and is no such slot. Slots that
        calls have often bound to something else are bound if nothing changes, too; ``others`` need a change.
        """
        binding = _Binding(Marking(self.given.number_of, self.has))
        value = binding.marking.mark(value)
        for each in self._written.values():
            number = self.given.branch(each.container)
            if identity(each.container) in self._carriers:
                self._tag(binding, each, value)
            elif number is not None:
                self._bind_given(binding, each, number)
            else:
                self._bind(binding, each, often, others)
        for each in self._changed.values():
            number = self.given.branch(each.container)
            if number is not None:
                self._fill_given(binding, each, number)
            else:
                self._fill(binding, each, often, others)
        for each in self._growing.values():
            self._grow(binding, each, often, others)
        self._pin_inside((value, binding.parts))
        return Bound(value, tuple(binding.targets), tuple(binding.parts)) if binding.targets else value

    def _pin_inside(self, value: Any) -> None:
        """What a replay hands out or binds is the object that it is."""
        met, left = set[int](), [value]
        while left:
            part = left.pop()
            if self.kinds[type(part)] in (PLAIN, TENSOR) or identity(part) in met:
                continue
            met.add(identity(part))
            self.pin(part)
            if type(part) is Made:
                left.extend(part.values)
            elif is_readable(part):
                left.extend(members.values(part))

    def _bind(self, binding: _Binding, each: _Written, often: _Addresses, others: bool) -> None:
        """A slot outside was written."""
        now = self._left_in(each)
        can = each.address not in self._reads and self._can_bind(each, now, binding.marking)
        if not can and not (self.given.rebuilt and self.given.number_of(now) is not None):
            return
        if (
            (self.numbers is not None and self.numbers.expression(now) is not None)
            or each.address in often
            or (others and not _same(each.was, self._form(now)))
        ):
            owner, name = self.outside.get(each.owner), self._names.path(each.owner, each.suffix)
            binding.add(self._target(each.kind, each.container, each.key, owner, name), now)
            if can:
                self._bound.add(each.address)

    def _target(self, kind: str, container: Any, key: Any, owner: Any, name: str) -> Target:
        """A slot outside, as it is written."""
        if kind == ITEM and issubclass(type(owner), type):
            return ClassTarget(owner, container, key, name)
        return Target(kind, container, key, name)

    def _tag(self, binding: _Binding, each: _Written, value: Any) -> None:
        """An attribute of a tensor was set: if that is part of the result, what is set is a part, too."""
        now, tensor = each.now(), self._carriers[identity(each.container)]()
        position = next((place for place, leaf in enumerate(leaves_of(value)) if leaf is tensor), None)
        known = tensor is None or identity(tensor) in self.arguments or each.was is not MISSING
        if known or position is None or not self._can_be_made(now, binding.marking):
            return
        binding.targets.append(Tag(position, each.key, f"result.{each.key}"))
        binding.parts.append((tensor, binding.marking.mark(now)))
        self._bound.add(each.address)

    def _grow(self, binding: _Binding, each: _Growing, often: _Addresses, others: bool) -> None:
        """Members were added to a list or a deque, and it was not read afterwards: they are parts."""
        found, where = each.written.container, identity(each.written.container)
        now = members.keys(found)
        size = found.maxlen if type(found) is deque else None
        count = each.count if size is None else min(each.count, size)
        added = now[len(now) - count :]
        kept = (*each.written.was, *added)
        expected = kept if size is None else kept[len(kept) - min(size, len(kept)) :]
        as_added = len(now) == len(expected) and all(map(is_, now, expected))
        if where in self._looked or where in self._changed or not as_added or not count:
            return
        leaves = leaves_of(binding.marking.mark(added))
        if any([isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves]):
            return  # what keeps the graphs of all calls alive
        target = Target(APPENDED, found, count, self.name(found))
        if self._can_be_made(added, binding.marking) and (others or target.address in often):
            binding.add(target, added)
            self._bound.add((APPENDED, where, None))

    def _bind_given(self, binding: _Binding, each: _Written, number: int) -> None:
        """A slot of an argument was written: what lies in it now, or that nothing does, is a part."""
        if identity(each.container) in self._changed or each.kind not in (ITEM, ATTRIBUTE):
            return
        now = each.now()
        gone = now is MISSING or now is UNSET
        can = gone or self._can_be_made(now, binding.marking)
        if not (can or self.given.rebuilt):
            return
        table = each.container is not self.given.of(number)
        kind, name = DELETED if gone else each.kind, self.given.names[number] + each.suffix
        binding.add(GivenTarget(kind, number, each.key, name, table=table), None if gone else now)
        if can:
            self._bound.add(each.address)

    def _fill(self, binding: _Binding, each: _Written, often: _Addresses, others: bool) -> None:
        """A list, deque or dict outside was changed: all that it holds is a part.

        If anything of it was read before, that is how long it is, or plain values that stay where they are
        beside numbers that change: else an earlier call has left what is read.
        """
        found = each.container
        asked = [read for address, read in self._reads.items() if address[1] == identity(found)]
        plain = all([read.kind in _OF_SIZE or _is_left(read) for read in asked])
        if type(found) not in (list, deque, *_MAPPINGS) or not plain:
            return
        keys = members.keys(found) if type(found) in _MAPPINGS else None
        held = members.values(found)
        plain = all([type(key) in PLAIN_TYPES for key in keys or ()])
        target = Target(CONTENTS, found, keys, self._names.path(each.owner, ""))
        if asked and not self._moves_numbers(found):
            return
        if plain and self._can_be_made(held, binding.marking) and (others or target.address in often):
            binding.add(target, held)
            self._bound.add(each.address)

    def _moves_numbers(self, container: Any) -> bool:
        """Whether a container outside has numbers that change from call to call."""
        numbers = self.numbers
        return numbers is not None and address_of(ITEM, container, None)[1] in numbers.containers

    def _fill_given(self, binding: _Binding, each: _Written, number: int) -> None:
        """A list or dict among the arguments was changed: all that it holds is a part."""
        found = each.container
        table = found is not self.given.of(number)
        own = not table and isinstance(found, (list, dict))
        if not (own or type(found) is dict) or _same_members(each.was, contents(found)):
            return
        held = members.values(found)
        keys = members.keys(found) if isinstance(found, dict) else None
        can = not table and self._can_be_made(held, binding.marking)
        can = can and all([type(key) in PLAIN_TYPES for key in keys or ()])
        if not (can or self.given.rebuilt):
            return
        binding.add(GivenTarget(CONTENTS, number, keys, self.given.names[number], table=table), held)
        if can:
            self._bound.add(each.address)

    def _can_bind(self, each: _Written, now: Any, marking: Marking) -> bool:
        asked = ((kind, identity(each.container), None) in self._reads for kind in (LENGTH, ORDER))
        if each.was is MISSING and any(asked):
            return False  # it grows, and the call reads how far
        if identity(each.container) in self._changed:
            return False
        of_class = issubclass(type(self.outside.get(each.owner)), type)
        if of_class and type(now) not in (*PLAIN_TYPES, *KINDS):
            return False  # what a class holds may be asked for what it gives instead
        return self._can_be_made(now, marking)

    def _can_be_made(self, value: Any, marking: Marking, inside: tuple[int, ...] = ()) -> bool:
        """Whether a replay can write an equal value into a slot."""
        kind = type(value)
        if kind in PLAIN_TYPES or kind in KINDS | TRUTHS or kind is torch.Tensor:
            return True
        if identity(value) in self.given.leaves:
            return True
        if self.given.number_of(value) is not None:
            return True
        parts = marking.parts_of(value)
        if parts is None or identity(value) in inside or (self.has(value) and kind is not tuple):
            return False
        if issubclass(kind, dict) and not all([type(key) in PLAIN_TYPES for key in value]):
            return False
        return all([self._can_be_made(part, marking, (*inside, identity(value))) for part in parts])

    def _kept(self, read: Read) -> Read:
        """What was read, with the object in the form in which it is kept."""
        if identity(read.container) not in self.anchored:
            return read
        return read._replace(container=Argument(read.container))

    def _as_it_is(self, each: _Written, now: Any) -> Read:
        """The condition that a slot holds this before a replay, or is empty."""
        kind, value = each.kind, now
        if now is MISSING and kind == ITEM:
            kind, value = DEFINED, Content(False)
        return Read(kind, each.container, each.key, value, each.owner, each.suffix, self._names)

    def _as_it_was(self, found: Any, was: Any) -> Iterable[Read]:
        """Conditions before a replay on a container that the call changes and restores."""

        def read(kind: str, key: Any, value: Any, suffix: str = "") -> Read:
            return Read(kind, found, key, value, identity(found), suffix, self._names)

        if type(was) is not tuple:
            yield read(HELD, None, was)
            return
        if issubclass(type(found), (set, frozenset)):
            yield read(BULK, None, Content(was))
            return
        yield read(LENGTH, None, Content(len(was)), " (length)")
        pairs: Iterable[tuple[Any, Any]] = enumerate(was)
        if issubclass(type(found), dict):
            yield read(ORDER, None, Content(tuple([key for key, _ in was])), " (order)")
            pairs = was
        for key, value in pairs:
            yield read(ITEM, key, self._form(value), f"[{shown(key)}]")

    def _identify_kept(self) -> None:
        """What is state and taken apart lies in another slot now: which object it is matters there."""
        if not self.given.slots:
            return
        written = [each.now() for each in self._written.values()]
        grown = [each.written for each in self._growing.values()]
        filled = [contents(each.container) for each in (*self._changed.values(), *grown)]
        members = [part for each in filled if type(each) is tuple for part in each]
        pairs = [part for each in members if type(each) is tuple for part in each]
        for value in (*written, *members, *pairs):
            if self.given.is_state(value):
                self.identify(value, "keeps it somewhere else, too")

    def _drawn_otherwise(self) -> Iterable[Effect]:
        """Generators that are elsewhere than behind what replays draw."""
        for each in self._drawn.values():
            known = any(each.generator is one for one in GLOBAL_GENERATORS)  # they are looked at apart
            if known or not self.is_drawn_from(each.generator) or self.numbers is None:
                continue
            if not each.is_behind(self.numbers.drawn):
                which = identity(each.generator)
                address = address_of(HELD, each.generator, None)
                name, site = self._names.path(which, ""), self._draws or self._site()
                yield Effect(name, "at one state", "at another", site, address)

    def _effects(self) -> Iterable[Effect]:
        yield from self._drawn_otherwise()
        for where, grown in self._growing.items():
            if (APPENDED, where, None) not in self._bound:
                yield from self._changes(grown.written)
        for each in self._written.values():
            carrier = self._carriers.get(identity(each.container))
            if each.address in self._bound or (carrier is not None and carrier() is None):
                continue  # the latter: the call has made it, and nobody has it
            left = self._left_in(each)
            if each.address in self._carried and left is self._carried[each.address]:
                continue  # it is as it was given, whatever that is
            if left is not each.was:  # what an object outside holds is written where it lies
                self._leaves_numbers(left)
            now = self._form(left)
            if not _same(each.was, now):
                yield self._effect(each, each.suffix, each.was, now)
                continue
            read = self._as_it_is(each, now)  # a replay leaves it as the call does, if it is so before
            if self.given.branch(each.container) is not None:
                self.given.read(read.kind, read.container, read.key, now, read.name)
            else:
                self._reads.setdefault(_key(read), read)
        for each in self._changed.values():
            if each.address not in self._bound:
                self._leaves_numbers(contents(each.container))
                yield from self._changes(each)

    def _left_in(self, each: _Written) -> Any:
        """What a slot held when the call returned."""
        return self._carried[each.address] if each.address in self._taken_back else each.now()

    def _leaves_numbers(self, left: Any) -> None:
        """What a call leaves outside, and a replay does not, is the same in each call."""
        if self.numbers is None or not self.numbers.follows:
            return
        if not self.numbers.pin_inside(left, objects=True):
            self.numbers.stop("something is left outside that may hold numbers, and cannot be looked into")

    def _changes(self, each: _Written) -> Iterable[Effect]:
        """The effect on a container, if it is not as it was."""
        now = contents(each.container)
        if type(now) is Position and each.was.agrees(now):  # how far it is was looked at, and that is all
            held = now._replace(asked=True)
            read = Read(HELD, each.container, None, held, each.owner, "", self._names)
            self._reads[_key(read)] = read
        elif not _same_members(each.was, now):
            yield self._effect(each, *_changed(each.container, each.was, now))
        elif self.given.branch(each.container) is None:  # what is emptied at first is not read by that
            for read in self._as_it_was(each.container, each.was):
                self._reads.setdefault(_key(read), read)

    def _effect(self, each: _Written, suffix: str, was: Any, now: Any) -> Effect:
        number = self.given.branch(each.container)
        if number is None and _has_tensors(each.now() if each.kind else contents(each.container)):
            self.given.fills(self._names.owners(each.owner))
        replaced = each.kind in _SLOTS and each.address in self._reads
        if number is None and replaced and can_be_carried(each.now()):
            owner = self.outside.get(each.owner)
            self._replaced.append((each.kind, each.container, each.key, owner, each.suffix))
        path = self._names.path(each.owner, suffix)
        name = path if number is None else self.given.names[number] + suffix
        address = address_of(each.kind, each.container, each.key)
        left = self._other_numbers(each) if number is None else ()
        return Effect(name, _text(was), _text(now), each.site, address, number is not None, left)

    def _other_numbers(self, each: _Written) -> tuple[Address, ...]:
        """The slots that have changed, and had numbers and have numbers."""
        if each.kind:
            pairs = [(each.kind, each.key, each.was, each.now())]
        elif type(each.container) in _MAPPINGS:
            now = dict(members.items(each.container))
            pairs = [(ITEM, key, was, now.get(key)) for key, was in each.was]
        elif type(each.container) in (list, deque):
            now = members.keys(each.container)
            pairs = [(ITEM, *each) for each in zip(itertools.count(), each.was, now)]
        else:
            pairs = []
        return tuple(
            [
                address_of(kind, each.container, key)
                for kind, key, was, now in pairs
                if type(was) is type(now) and type(was) in KINDS and not _same(was, now)
            ]
        )


def _is_in(each: _Written, container: Any) -> bool:
    return each.kind == ITEM and each.container is container


def shown(key: Any) -> str:
    """A key, as the user would write it; of an object its class."""
    return repr(key) if type(key) in PLAIN_TYPES else f"<{type(key).__name__}>"


def _is_left(read: Read) -> bool:
    """Whether a plain value that was read in a container lies there still."""
    try:
        return read.kind == ITEM and _same(read.value, read_from(ITEM, read.container, read.key))
    except LookupError:
        return False


def _over(call: Callable[[], Any]) -> Any:
    raise InternalError("something is to run beside a call that is over")


def _key(read: Read) -> tuple[str, int, Any]:
    """Which slot was read, among the reads of one call."""
    return read.kind, identity(read.container), read.key


def _names_of(kind: type, code: CodeType, original: Callable[[CodeType], CodeType]) -> list[str]:
    """Under which names a class and its bases have a method of this code."""
    named = [pair for each in lookup.bases(kind) for pair in lookup.namespace(each).items()]
    found = [(name, getattr(value, "__func__", value)) for name, value in named if not lookup.is_in_c(value)]
    return [name for name, value in found if type(value) is FunctionType and original(value.__code__) is code]


def _bounds(value: slice) -> tuple[Any, ...]:
    """What a slice has made numbers of where it is used."""
    return value.start, value.stop, value.step


def _is_in_operation(frame: FrameType | None) -> bool:
    """Whether code is a kernel: it runs below an operation that is dispatched."""
    while frame is not None:
        if frame.f_code.co_name == "__torch_dispatch__" and is_own(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


@cache
def _makers_of_tuples() -> frozenset[int]:
    """The code by which named tuples of ours are made, by its identity: thousands are in a traced call."""
    ours = [kind for kind in tuple.__subclasses__() if said_module(kind).startswith(_OURS)]
    made = [kind.__new__ for kind in ours if module_of(kind)]
    codes = [each.__code__ for each in made if type(each) is FunctionType]
    return frozenset(identity(code) for code in codes if code.co_filename == _FROM_TEXT)


def _is_torchs_own(frame: FrameType | None) -> bool:
    """Whether a frame runs for PyTorch's internal state."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(TORCHS_OWN) and file != torch.__file__:
            return True
        if not is_internal(file):
            return False
        if frame.f_code.co_name == _QUEUES:
            return True
        frame = frame.f_back
    return False


def handled_kind() -> str | None:
    """The class of the exception that is being handled where this is called, by its name."""
    kind = sys.exc_info()[0]
    return None if kind is None else said_name(kind)


def stood_for(value: Any) -> Any:
    """The original of a function that rote replaces while the call runs."""
    if type(value) is FunctionType and is_own(value.__code__.co_filename):
        return value.__dict__.get("__wrapped__", value)
    return value


def contents(value: Any) -> Any:
    """What a container holds, in a form that can be compared."""
    if issubclass(type(value), dict):
        return members.items(value)
    if issubclass(type(value), (list, tuple, set, frozenset)) or type(value).__name__ == "deque":
        return members.keys(value)
    return mark(value)


def _has_tensors(value: Any, depth: int = 2) -> bool:
    """Whether something is a tensor, or a tuple or a list in which there is one not far down."""
    if not depth or type(value) not in (tuple, list):
        return isinstance(value, torch.Tensor)
    return any([_has_tensors(each, depth - 1) for each in value])


def _same(was: Any, now: Any) -> bool:
    if was is now:
        return True
    if type(was) in (Content, TensorMark, Position):
        return same(was, now)
    if type(was) is not type(now) or (type(was) not in PLAIN_TYPES and type(was) not in KINDS):
        return False
    return (was == now and exact(was) == exact(now)) or (was != was and now != now)


def _same_members(was: Any, now: Any) -> bool:
    if type(was) is Position:
        return was.agrees(now)
    if type(was) is not tuple or type(now) is not tuple:
        return _same(was, now)
    if len(was) != len(now):
        return False
    return all(map(_same_member, was, now))


def _same_member(was: Any, now: Any) -> bool:
    """Whether one member is as it was; members of a mapping are pairs."""
    return _same_members(was, now) if type(was) is tuple and type(now) is tuple else _same(was, now)


def _changed(container: Any, was: Any, now: Any) -> tuple[str, Any, Any]:
    """What to say of a container that has changed: what it is about, and what that was and is."""
    if type(was) is not tuple or type(now) is not tuple:
        return "", was, now
    if len(was) != len(now):
        return " (length)", len(was), len(now)
    if issubclass(type(container), (set, frozenset)):
        return "", Content(frozenset(was)), Content(frozenset(now))
    index = list(map(_same_member, was, now)).index(False)
    if not issubclass(type(container), dict):
        return f"[{index}]", was[index], now[index]
    (key, value), (other, later) = was[index], now[index]
    return (f"[{shown(key)}]", value, later) if _same(key, other) else (" (order)", key, other)


def _text(value: Any) -> str:
    if value is MISSING or value is UNSET:
        return "not there"
    if type(value) in PLAIN_TYPES:
        text = repr(value)
        return cut(text, 60)
    if type(value) in (Position, TensorMark, Content):
        return show(value)
    return f"{len(value)} long" if type(value) is tuple else f"a {type(value).__name__}"
