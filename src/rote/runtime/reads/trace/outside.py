"""The objects outside of a traced call, and what the call reads of them.

An object is *outside* if it was found in something outside. Roots are the callable, its arguments, globals
and builtins. The call made all other objects, provided that all its code is followed and all C callables are
known. So they need no condition. Objects outside are held until the call ends, so an identity stands for one
object. Tensors are not held, since a recording depends on their lifetimes; they are tracked in other ways.

Nothing here runs code of the user's: containers are asked through the methods of the builtin class, classes
through their namespaces.
"""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from types import BuiltinMethodType, FunctionType, MappingProxyType, MethodType, MethodWrapperType, ModuleType
from typing import Any

import numpy
import torch
from torch.utils.hooks import RemovableHandle

from ....base import identity, is_own, user_site
from ...arguments import StatePlace, Target, place_of, table_of
from ...numbers import GLOBAL_GENERATORS, NumberSource, can_be_copied
from ...objects import (
    ARRAY_BYTES,
    Content,
    Itself,
    Position,
    TensorMark,
    base_of,
    is_bound_method,
    is_empty_stage_table,
    mark,
    members,
    pointer_of,
    said_module,
    said_name,
    text_of,
)
from ...pytorch import (
    BUFFERS,
    EVENTS,
    FORWARDS,
    LOCAL,
    PLACES,
    RESTS,
    SPREAD_AS,
    SPREAD_BY,
    EmptyStorages,
    Forwards,
    gathers,
    is_wrapper,
    plain_functions,
    sharding_settings,
    under_way,
)
from ...state import (
    ASKED,
    ATTRIBUTE,
    CELL,
    DEFINED,
    HELD,
    ITEM,
    KIND,
    LAST,
    LENGTH,
    LOOKED,
    MISSING,
    NUMBERS,
    ORDER,
    VARIABLE,
    WHETHER,
    Argument,
    Names,
    Read,
    Reads,
    address_of,
    answer,
    lying_in,
)
from ..table import lookup
from .followed import FollowedNumbers
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
    SHARDED,
    SPREAD,
    STAGED,
    STANDS,
    Traits,
    is_readable,
)
from .running import RunningCode
from .written import Slots, WrittenSlot, is_same

COMPARED_BYTES = 1 << 24
"""Arrays up to this size are compared in full before each replay; that takes up to a millisecond."""
SLOTS = frozenset({ITEM, ATTRIBUTE, CELL, LAST})
"""Kinds of slots that one value lies in."""
_LYING = SLOTS | {VARIABLE}
_MOST_LAST = 32
"""Members before the end of a list that are found there by replays."""
_DEPTH = 6
"""Containers in containers through which a slot is found again."""
_FROZEN = (frozenset, BuiltinMethodType, MethodWrapperType)
"""Types of objects that are compared by what they hold, and hold it for good."""
_BOUND = frozenset({MethodType, BuiltinMethodType, MethodWrapperType})
"""Types of methods that belong to one object."""
_KEPT_BY_GENERATORS, _COUNTER = "gauss_next", "next_id"
"""Where a random generator keeps a number for its next call, and PyTorch the number of its next hook."""
_NO_CONDITIONS = frozenset({_KEPT_BY_GENERATORS, _COUNTER, EVENTS, FORWARDS, PLACES, *BUFFERS})
_OF_HANDLES = gc.get_referents(vars(RemovableHandle))[0]


class Outside(dict[int, Any]):
    """The objects that were there before one call, by identity; ``meet`` is told of tensors among them.

    Attributes:
        slots: What the call has written of it.
        running: What runs.
        followed: The numbers that change.
    """

    def __init__(
        self,
        kinds: dict[type, int],
        slots: Slots,
        running: RunningCode,
        followed: FollowedNumbers,
        meet: Callable[[Any], None],
    ) -> None:
        super().__init__()
        self.names = Names()
        self.reads: dict[tuple[str, int, Any], Read] = {}
        self.pinned: set[int] = set()
        self.given = Given()  # arguments that are taken apart
        self.arguments: dict[int, str] = {}  # names of tensors that are arguments, by identity
        self.tensors: set[int] = set()  # identities of those, and of the tensors that were met outside
        # arrays that the call has made over memory of tensors, by identity, and what to call if one is read
        self._memory: dict[int, Any] = {}  # of arrays from outside: what owns it, which is no one's else
        # slots whose numbers are followed, by the identity of what lay there
        self._taken: dict[int, list[Read]] = {}
        self.under_tensors: dict[int, Any] = {}  # arrays of the call's of which tensors are made, by address
        self.lent: dict[int, tuple[Any, Callable[[bool], bool]]] = {}
        self.reads_arrays = False  # Python or C reads numbers of arrays among the arguments, or writes some
        self.emptied = EmptyStorages()
        self.forwards = Forwards()
        self.resting: dict[int, Callable[[], str]] = {}  # contexts of FSDP's, and what asks whether they rest
        self.tells_tensors = False  # it was asked whether an argument is another tensor
        # arguments that are known by their identity, and whose death is noticed
        self.anchored: set[int] = set()
        # containers, by their identity, with keys under which members were read
        self.members: set[tuple[int, Any]] = set()
        self.replaced: list[tuple[str, Any, Any, Any, str]] = []  # slots whose values change
        self.moved: list[Any] = []  # containers of tensors whose members the call moves, and finds moved
        self.staged: list[Any] = []  # empty tables of scalers, which the call fills unnoticed
        self.kinds = kinds
        self._traits = Traits(kinds)
        self.slots = slots
        self.running = running
        self._numbers = followed.numbers
        self.followed = followed
        self._meet_tensor = meet
        self._held: list[Any] = []  # whose identity is in a key
        self._found_tensors: dict[int, tuple[Any, int, str]] = {}  # where a tensor was found in no slot

    # ------------------------------------------------------------------ what is outside

    def find(self, value: Any, owner: Any, suffix: str) -> None:
        """Something was found in an object that is outside; ``owner`` is that object, or None for a root.

        What is compared by what it holds is a condition: no slot tells of it. As no slot leads to it, nothing
        can be found in its place.
        """
        self.pinned.add(identity(value))
        self._note_tensor(value, owner, suffix)
        self._meet(value, owner, suffix)

    def pin(self, value: Any) -> None:
        """Note that identity may matter: an equal object is no substitute."""
        self.pinned.add(identity(value))

    def has_pinned(self, *values: Any) -> bool:
        """Whether all of these objects are pinned."""
        return self.pinned.issuperset(map(identity, values))

    def find_part(self, value: Any, owner: Any, suffix: str) -> None:
        """Something was found in a function or a method, which is made of it for good."""
        if identity(owner) in self.pinned:
            self.pin(value)
        self._note_tensor(value, owner, suffix)
        self._meet(value, owner, suffix)

    def _note_tensor(self, value: Any, owner: Any, suffix: str) -> None:
        """Note a tensor that was found in an object, but in no slot."""
        if owner is not None and self._traits[type(value)] & MEETS:
            self._found_tensors[identity(value)] = value, identity(owner), suffix

    def _meet(self, value: Any, owner: Any, suffix: str) -> None:
        if identity(value) in self:
            if owner is not None and self.given.numbers:
                self._find_again(value, owner, suffix)
            return
        self._find(value, owner, suffix)
        held = self.by_content(type(value)) and identity(value) in self
        known = held and any(value is each for each in GLOBAL_GENERATORS)
        if held and not known and not self.is_tensors(value) and not self.followed.is_drawn_from(value):
            self.read_held(value)

    def read_tensors(self) -> None:
        """The call is over: where a tensor lies to which no slot leads is a condition."""
        if not self._found_tensors:
            return
        marks = [read.value for read in self.reads.values()]
        known = {mark.identity for mark in marks if type(mark) is TensorMark}
        for which, (value, whose, suffix) in self._found_tensors.items():
            if which not in known and which not in self.arguments:
                found = Read(HELD, value, None, self._marked(value), whose, suffix, self.names)
                self.reads[HELD, which, None] = found
        self._found_tensors.clear()

    def read_held(self, value: Any) -> None:
        """Note what an object outside holds, as a whole."""
        address = (HELD, identity(value), None)
        if address not in self.reads and (form := mark(value)) is not value:
            self.reads[address] = Read(HELD, value, None, form, identity(value), "", self.names)
            self._read_numbers(value)

    def _find(self, value: Any, owner: Any, suffix: str) -> None:
        if self.given.numbers and owner is not None:
            self._find_again(value, owner, suffix)
        which, trait = identity(value), self._traits[type(value)]
        if trait & SPREAD:  # a slice has made numbers of its bounds where it is used
            for part in (value.start, value.stop, value.step):
                self._find(part, owner, suffix)
        if which in self or not trait & FINDS:
            return
        if trait & NUMBERED:
            self._meet_array(value)
        if self.kinds[type(value)] == CONTAINER and self._traits[type(owner)] & COMPILES:
            return
        if trait & STAGED and is_empty_stage_table(value):  # a scaler fills it, and leaves a new one
            self.staged.append(value)
            return
        self[which] = value
        self.names[which] = (identity(owner) if owner is not None else 0, suffix)
        if trait & BINDS and is_bound_method(value):
            # It is called with that, which nobody reads.
            if type(value.__func__) is FunctionType:
                self.find_part(value.__func__, value, "")
            self.find_part(value.__self__, value, "")
        elif type(value) in _BOUND and self.kinds[type(value.__self__)] not in (CLASS, MODULE):
            self.find(value.__self__, value, ".__self__")

    def _find_again(self, value: Any, owner: Any, suffix: str) -> None:
        """Something outside leads to an argument that is taken apart, which is another one in each call."""
        given = self.given
        if identity(owner) not in given.numbers and (
            identity(value) in given.numbers or identity(value) in given.originals
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
        self.running.refuse(name, f"depends on which object {name} is: it {does}")

    def lend(self, array: Any, stray: Callable[[bool], bool]) -> None:
        """The call has made an array over a tensor's memory; ``stray`` says if it may be read, or written."""
        self.lent[identity(array)] = array, stray

    def is_tensors(self, array: Any) -> bool:
        """Whether an array is over memory that the program knows: an argument's, or that of a tensor."""
        return type(array) is numpy.ndarray and self._lender(array) is not None

    def makes_tensor(self, array: Any) -> None:
        """A tensor is about to be made of an array: if the call made that, its numbers follow from reads."""
        if self._is_own(array):
            self.under_tensors[pointer_of(array)] = array

    def has_made(self, pointer: int) -> bool:
        """Whether an array of the call's own lies at an address, of which a tensor is made."""
        return pointer in self.under_tensors

    def has_filled(self, array: Any) -> bool:
        """Whether the call has made an array of which a copy is as good, and no tensor lies over it."""
        if type(array) is not numpy.ndarray or not can_be_copied(array) or not self._is_own(array):
            return False
        base = base_of(array)
        if not self._taken.keys().isdisjoint((identity(array), identity(base))):
            return False
        return not any([base_of(each) is base for each in self.under_tensors.values()])

    def _is_own(self, array: Any) -> bool:
        """Whether the call has made an array, not over the memory of something else."""
        base = base_of(array)
        known = self.has(array) or identity(base) in self._memory
        ours = not known and base.flags.owndata and not array.dtype.hasobject
        return ours and array.nbytes <= COMPARED_BYTES and not self.is_tensors(array)

    def _lender(self, array: Any) -> Any:
        """The argument, or the array that the call has made of a tensor, of which an array is a view."""
        if identity(array) in self.lent or self.given.objects.get(identity(array)) is numpy.ndarray:
            return array
        known = [*[each for each, _ in self.lent.values()], *self.given.arrays()]
        if array.base is None or not known:
            return None
        base = base_of(array)
        return next((each for each in known if base_of(each) is base), None)

    def stray(self, array: Any, *, writes: bool = False) -> None:
        """An array is read, or written, by Python or C: if it is over such memory, no recording sees that."""
        lender = self._lender(array) if type(array) is numpy.ndarray else None
        if lender is None:
            return
        lent = self.lent.get(identity(lender))
        if lent is not None:
            lent[1](writes)
            return
        if self.followed.follows_arrays:
            return
        self.reads_arrays = True
        name = self.given.name_of(lender) or ""
        self.running.refuse(name, f"reads numbers of {name}, an array, in Python or in numpy")

    def find_table(self, table: dict[str, Any], value: Any) -> None:
        """The dict of an object's attributes is outside as the object is; it is read where it lies."""
        self._find(table, value, "")

    def find_tags(self, table: dict[str, Any], value: Any) -> None:
        """The attributes of a tensor are written: which tensors are outside shows when the call is over."""
        self.find(table, None, self.arguments.get(identity(value), "a tensor"))
        self.slots.carriers[identity(table)] = weakref.ref(value)

    def has(self, value: Any) -> bool:
        """Whether an object was there before the call."""
        return identity(value) in self

    def has_tensor(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor was found outside, or is an argument."""
        return bool(self._slots_with(tensor)) or identity(tensor) in self.arguments

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a slot that the call has read and never written holds a tensor."""
        return any([address not in self.slots.written for address in self._slots_with(tensor)])

    def is_apart(self, container: Any) -> bool:
        """Whether a container was found in a slot, and nobody has read it as attributes or as globals."""
        reads, where = self.reads.values(), identity(container)
        found = any([each.value is container and each.kind in _LYING for each in reads])
        read = [each.owner for each in reads if each.container is container]
        return found and {*read} <= {where} and (type(container) is list or "__builtins__" not in container)

    def told_by_slots(self) -> set[int]:
        """Identities of objects of which a condition says which they are: they lay in slots that were read.

        Or a tuple or a bound method lay there, which has its parts for good.
        """
        found, left = set[int](), [each.value for each in self.reads.values() if each.kind in _LYING]
        while left:
            value = left.pop()
            found.add(identity(value))
            left += members.values(value) if issubclass(type(value), tuple) else ()
            left += (value.__self__,) if type(value) is MethodType else ()
        return found

    def _slots_with(self, tensor: torch.Tensor) -> list[tuple[str, int, Any]]:
        """The slots that were read, in which a tensor lay."""
        form, reads = self._marked(tensor), self.reads.items()
        return [address for address, read in reads if type(read.value) is TensorMark and read.value == form]

    def may_be_argument(self, left: Any, right: Any) -> bool:
        """Whether one of two objects is a tensor among the arguments, and the other may be from outside."""
        given = [identity(each) in self.arguments for each in (left, right)]
        return left is right if all(given) else any(given)

    def tell(self, tensor: Any) -> None:
        """Which tensor this is matters, beside others: that an argument is none from outside."""
        self.tells_tensors = self.tells_tensors or identity(tensor) in self.arguments

    def has_generator(self, generator: Any) -> bool:
        """Whether a random generator was there before the call."""
        return self.has(generator) or any(generator is each for each in GLOBAL_GENERATORS)

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

    def forget(self, values: Iterable[Any]) -> None:
        """Hold some objects no longer: the call, which is not recorded, drops them."""
        which = set(map(identity, values))
        self._held = [each for each in self._held if identity(each) not in which]
        for each in which:
            self.pop(each, None)
        for address, read in [*self.reads.items()]:
            if not which.isdisjoint((address[1], identity(read.value))):
                del self.reads[address]

    def name(self, value: Any, suffix: str = "") -> str:
        """The name of an object, as the user would write it."""
        return self.names.path(identity(value), suffix)

    def form(self, value: Any) -> Any:
        """The form in which a value is compared: of most objects it is their identity."""
        return self._marked(value) if self.by_content(type(value)) else value

    def _marked(self, value: Any) -> Any:
        """The form in which a value is kept; a tensor lies where it lay before the call gave it memory."""
        form = mark(value)
        if type(form) is TensorMark and form.address and self.emptied.any():
            with plain_functions():
                emptied = self.emptied.has(value.untyped_storage())
            return form._replace(address=0) if emptied else form
        return form

    def by_content(self, kind: type) -> bool:
        """Whether instances of a type are compared by what they hold."""
        return bool(self._traits[kind] & BY_CONTENT)

    def can_stand(self, value: Any) -> bool:
        """Whether an object is compared by what it holds, and may hold something else later."""
        kind, trait = type(value), self._traits[type(value)]
        return bool(trait & BY_CONTENT) and not (trait & (MEETS | STAGED) or issubclass(kind, _FROZEN))

    def is_left(self, each: WrittenSlot, now: Any) -> bool:
        """Whether a slot holds what it held before the call has written it.

        That is the very object where it can be changed: somebody may hold the one that lay there. An equal
        array that the call has made is taken for the one that lay there: no replay makes another.
        """
        if not is_same(each.was, self.form(now)):
            return False
        known = self.has(now) or type(now) is set
        return now is each.itself or not ((known and self.can_stand(now)) or self.is_tensors(now))

    def keep(self, value: Any, left: WrittenSlot) -> bool:
        """The call leaves an object where it lay before. False if a replay might leave an equal one there.

        Which object it is becomes a condition of the slots in which the call has found it, beside what it
        holds. One that was found in this slot alone stays there, whichever it is.
        """
        if not self.can_stand(value):
            return True
        reads = self.reads.items()
        found = [where for where, read in reads if read.value is value or self._lay_in(read) is value]
        if not found:
            return not self.has(value)
        if found == [left.address]:
            return True
        if self.given.branch(left.container) is not None:
            return False
        self.read_held(value)
        slot = Read(*left[:3], value, left.owner, left.suffix, self.names)
        self.reads.update({where: self.reads[where]._replace(value=value) for where in found})
        self.reads[left.address] = slot
        return True

    def _lay_in(self, read: Read) -> Any:
        """What the call has found in a slot, of what is compared by what it holds."""
        where = read.kind, identity(read.container), read.key
        if read.kind not in _LYING or type(read.value) not in (Content, Position):
            return None
        if where in self.slots.written:
            return self.slots.written[where].itself
        try:
            return lying_in(read.kind, read.container, read.key)
        except (LookupError, ValueError, AttributeError):
            return None

    def can_compare(self, value: Any) -> bool:
        """Whether it can be told if an object was changed."""
        return is_readable(value) or self.by_content(type(value))

    # ------------------------------------------------------------------ what is read

    def read(self, kind: str, container: Any, key: Any, value: Any, suffix: str, owner: Any = None) -> None:
        """Note one read of something outside, unless the call has written it.

        The suffix is what the user writes behind the name of the owner, by default the container itself.
        """
        where = identity(container)
        address, trait = (kind, where, key), self._traits[type(value)]
        given, slots = self.given, self.slots
        if (given.objects or given.watched or trait & GENERATES) and self._reads_given(
            address, container, value, suffix, owner
        ):
            return
        if kind == LENGTH and self._measures(container, suffix):
            return
        if where in slots.keyed and not (kind == LENGTH and type(container) is list):  # that stays as long
            self.look_at_key(container)
        if slots.growing and where in slots.growing and not slots.was_there(kind, container, key):
            slots.looked.add(where)  # what is read may be the call's own
            return
        if slots.last and kind == ITEM and (where, key) in slots.last:  # an argument, at this length
            self.read(LENGTH, container, None, Content(members.length(container)), " (length)")
            return
        if kind == LENGTH and where in slots.stored:
            self._read_stored(container, slots.stored[where])
        if (
            address in self.reads
            or address in slots.written
            or (where in slots.changed and slots.has_changed(kind, where))
            or where in slots.own
            or address in slots.carried  # it is an argument, or the call's own
            or (type(key) is str and key in _NO_CONDITIONS and self.is_no_condition(container, key, owner))
        ):
            return
        whose = container if owner is None else owner
        if self._numbers is not None and self._takes(kind, container, key, value, whose, suffix):
            return
        if where in slots.stored and kind in (LENGTH, ORDER):
            before = [key for key, _ in slots.contents_before(container)]
            value = Content(len(before) if kind == LENGTH else tuple(before))
        if trait & HOLDS and kind in SLOTS and type(key) is not Itself and given.finds(address, value):
            self.replaced.append((kind, container, key, owner, suffix))
        if trait & STANDS:
            value = stood_for(value)
        form = self._marked(value) if trait & BY_CONTENT and not self.followed.is_drawn_from(value) else value
        found = (kind, container, key, form, identity(whose), suffix, self.names)
        self.reads[address] = tuple.__new__(Read, found)  # in half the time of Read(...)
        if trait & MEETS:
            self.tensors.add(identity(value))
            self._meet_tensor(value)
        if trait & (FINDS | SPREAD):
            self._find(value, whose, suffix)
        if trait & NUMBERED:
            self._read_numbers(value)
            self._meet_array(value)
        if trait & SHARDED:
            self.names.setdefault(identity(value), (identity(whose), suffix))
            self._read_sharded(value)

    def _measures(self, container: Any, suffix: str) -> bool:
        """Whether it is followed how long a container is, since calls make it longer."""
        where, slots, numbers = identity(container), self.slots, self._numbers
        if numbers is None or where in slots.changed or where in self.anchored or self.given.holds(where):
            return False
        before, added = slots.length_before(container)
        if not self.followed.measures(container, before, added, self.name(container, suffix)):
            return False
        if where in slots.stored:
            self._read_stored(container, slots.stored[where])
        self.pin(container)
        self.hold(container)
        return True

    def read_last(self, container: Any, back: int) -> bool:
        """Note a read of a member that is known by how far it lies before the end, if such are followed.

        What the call has added itself is no condition.
        """
        where, slots = identity(container), self.slots
        if where in slots.changed:
            return False
        before, added = slots.length_before(container)
        if where in slots.growing and back <= min(added, members.length(container)):
            return True
        back -= added
        self.look_at_key(container)
        if (
            back > min(before, _MOST_LAST)
            or not _ends_at_last(container)
            or not self._measures(container, "")
        ):
            return False
        if (ITEM, where, before - back) in slots.written:
            return True
        value = members.member(container, before - back)
        if self._numbers is not None:
            self._numbers.ask_length(container, back)
            self._numbers.leaves_last(address_of(LAST, container, back), value)
        self.read(LAST, container, back, value, f"[-{back}]")
        return True

    def read_from_end(self, container: Any, index: int) -> bool:
        """Note a read of a member at a number that changes as the length does, if such are followed."""
        numbers, where, length = self._numbers, identity(container), members.length(container)
        if numbers is None or not _ends_at_last(container) or not 0 <= index < length:
            return False
        written = where in self.slots.changed or where in self.slots.growing
        if written or not numbers.may_keep_distance(container, index):
            return False
        read = where, length - index, user_site()
        if not numbers.knows_distance(read) or not self.read_last(container, length - index):
            return False
        place = NumberSource(LENGTH, container, None, self.name(container, ""))
        numbers.keep_distance(read, place, length, index)
        return True

    def look_at_key(self, container: Any) -> None:
        """What is stored under a number that is followed may be read now: the number is looked at."""
        key = self.slots.keyed.pop(identity(container), None)
        if self._numbers is not None:
            self._numbers.pin(key)

    def _read_stored(self, container: Any, stored: dict[Any, bool]) -> None:
        """How long a mapping is after the call has stored keys depends on which of them it had before."""
        where = identity(container)
        if (numbers := self._numbers) is not None and numbers.has_asked_keys(container):
            return
        if numbers is not None and where in self.slots.keyed:
            for present in stored.values():
                numbers.ask_key(container, self.slots.keyed[where], present=present)
            return
        for key, present in stored.items():
            found = Read(DEFINED, container, key, WHETHER[present], where, f"[{text_of(key)}]", self.names)
            self.reads.setdefault((DEFINED, where, key), found)
        stored.clear()  # it is told

    def _read_sharded(self, tensor: Any) -> None:
        """Note what C reads of a tensor of which each process has a part: that part, and how it is spread.

        Operations meet the part alone, which requires no grad.
        """
        self.read(ATTRIBUTE, tensor, "requires_grad", tensor.requires_grad, ".requires_grad")
        self.read(ATTRIBUTE, tensor, LOCAL, getattr(tensor, LOCAL), f".{LOCAL}")
        spread = getattr(tensor, SPREAD_AS)
        self.read(ATTRIBUTE, tensor, SPREAD_AS, spread, f".{SPREAD_AS}")
        self.pin(spread)
        table = vars(spread)
        for name in SPREAD_BY:
            self.read(ITEM, table, name, table[name], f".{name}", spread)
            self.pin(table[name])

    def ask_sharding(self) -> None:
        """Note what settings say of operations on tensors of which each process has a part."""
        said = answer(sharding_settings())
        self.read(ASKED, sharding_settings, (), said, "what the settings say of operations on DTensor")

    def knows_spread(self, tensor: torch.Tensor) -> bool:
        """Whether the call has read which part this process has of a tensor, and how it is spread."""
        return (ATTRIBUTE, identity(tensor), SPREAD_AS) in self.reads

    def _reads_given(
        self, address: tuple[str, int, Any], container: Any, value: Any, suffix: str, owner: Any
    ) -> bool:
        """Whether the key tells of what is read, as it is an argument's, or a generator in a known slot."""
        (kind, where, key), given, slots = address, self.given, self.slots
        whose = container if owner is None else owner
        if (
            (where in given.objects or where in given.watched)
            and address not in slots.written
            and given.read(kind, container, key, stood_for(value), self.name(whose, suffix))
        ):
            return True
        if type(value) is torch.Generator and address not in slots.written and where not in slots.changed:
            if given.slots.get(address) is value:
                return True
            given.meet_in(kind, container, key, value, owner, self.name(whose, suffix))
        return False

    def is_no_condition(self, container: Any, key: Any, owner: Any) -> bool:
        """Whether a slot has a counter that makes no difference, or a number that a generator will give.

        Or a table of FSDP's, which is empty when no backward is under way: then that is the condition. Or
        what ``DistributedDataParallel`` lists anew in each forward, and what is a condition where it lies.
        """
        if key in BUFFERS:
            return is_wrapper(owner)
        if key in (FORWARDS, PLACES):
            return gathers(said_module(type(owner))) and self.forwards.meet(owner, key)
        if key == EVENTS:
            return gathers(said_module(type(owner))) and self._rests(owner)
        if key == _COUNTER:
            return container is _OF_HANDLES
        generator = self.followed.keeper(container) if key == _KEPT_BY_GENERATORS else None
        if generator is not None:
            self.pin(generator)
        return generator is not None

    def _rests(self, context: Any) -> bool:
        """Whether no backward of FSDP's was under way in a context when the call began."""
        if identity(context) not in self.resting:
            ask = partial(under_way, weakref.ref(context))
            if ask() != RESTS:
                return False
            self.resting[identity(context)] = ask
            self.find(ask, None, "what FSDP does")
            self.answers(ask, RESTS)
        return True

    def _takes(self, kind: str, container: Any, key: Any, value: Any, owner: Any, suffix: str) -> bool:
        """Whether a slot has a number that changes from call to call, and is followed."""
        numbers = self._numbers
        if numbers is None or type(key) is Itself or address_of(kind, container, key) not in numbers.wanted:
            return False
        if identity(container) in self.anchored:
            return False
        name, at = self.name(owner, suffix), None
        if kind == LAST:
            at = Target(ITEM, container, self.slots.length_before(container)[0] - key, name)
        takes = self.followed.takes(kind, container, key, value, owner, name, at)
        if takes:
            self.hold((container, value))
            read = Read(kind, container, key, value, identity(owner), suffix, self.names)
            self._taken.setdefault(identity(value), []).append(read)
            self.names.setdefault(identity(value), (identity(owner), suffix))
        return takes

    def has_taken(self, array: Any) -> bool:
        """Whether an array lies in a slot outside whose numbers are followed."""
        return identity(array) in self._taken and type(array) is numpy.ndarray

    def looks_at_another(self, value: Any) -> bool:
        """Whether it is an array over the memory of one that lies outside."""
        base = base_of(value) if type(value) is numpy.ndarray else value
        return base is not value and (identity(base) in self._memory or self.has_taken(base))

    def slots_of(self, array: Any) -> list[Read]:
        """The slots in which the call has found an array."""
        return [each for each in self.reads.values() if each.kind in SLOTS and self._lay_in(each) is array]

    def keep_arrays(self) -> None:
        """The call writes to an array that is followed: which one it is is a condition, as of all others.

        One of them that is put in place later may look at its memory.
        """
        written = [each.container for each in self.slots.changed.values() if self.has_taken(each.container)]
        for each in [one for array in written for one in self._taken[identity(array)]]:
            self.reads[each.kind, identity(each.container), each.key] = each
        for where, read in [*self.reads.items()] if written else ():
            if type(found := self._lay_in(read)) is numpy.ndarray:
                self.read_held(found)
                self.reads[where] = read._replace(value=found)

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
            self.absent(container, key, f"[{text_of(key)}]")
        else:
            self.read(ITEM, container, key, value, f"[{text_of(key)}]")

    def absent(self, container: Any, key: Any, suffix: str, owner: Any = None) -> None:
        """Note that something is not there, if nobody fills it in when it is first asked for."""
        if self._traits[type(owner)] & COMPILES:  # operators
            return
        self.read(DEFINED, container, key, WHETHER[False], suffix, owner)

    def present(self, container: Any, key: Any, suffix: str) -> None:
        """Note that there is something, whatever it is, unless the call has put it there or has read it."""
        address = address_of(ITEM, container, key)
        self.look_at_key(container)
        if address not in self.slots.written and address not in self.reads:
            self.read(DEFINED, container, key, WHETHER[True], suffix)

    def kind(self, value: Any) -> None:
        """Note the class of an object that is outside, if it can become another one."""
        kind = type(value)
        if lookup.can_change(kind) or issubclass(kind, ModuleType):
            self.find(kind, None, said_name(kind))  # by its own name, not by that of an instance
            self.read(KIND, value, None, kind, " (its class)")

    def _read_numbers(self, array: Any) -> None:
        """Of a large array the form in which it is compared is a sample: note all of it."""
        if not self._traits[type(array)] & NUMBERED or array.dtype.hasobject:
            return
        if array.nbytes > COMPARED_BYTES:
            name = self.name(array)
            text = f"reads {name}, an array of {array.nbytes >> 20} MB; pass it in as a tensor"
            self.running.refuse(name, text)
        elif array.nbytes > ARRAY_BYTES:
            self.read(NUMBERS, array, None, Content(array.tobytes()), " (its numbers)")

    def _meet_array(self, array: Any) -> None:
        base = base_of(array)
        self._memory[identity(base)] = base
        if self._numbers is not None:
            self._numbers.meet(array)

    def look_into(self, array: Any) -> None:
        """The numbers of an array outside are read in Python, whatever else is made of it."""
        if array.dtype.hasobject or (NUMBERS, identity(array), LOOKED) in self.reads or not self.has(array):
            return
        self.read(NUMBERS, array, LOOKED, Content(array.tobytes()), " (its numbers)")

    def ask(self, function: Any, key: Any, suffix: str) -> None:
        """Note what a function of C says, which takes no arguments that change; it is asked again later.

        The key is its arguments, or the name of a method of an object that is given for the function.
        """
        self.hold(function)
        said = function(*key) if type(key) is tuple else getattr(function, key)()
        self.read(ASKED, function, key, answer(said), suffix)

    def answers(self, function: Callable[[], str], said: str) -> None:
        """Note what a function of rote's own says, which is asked again later."""
        self.hold(function)
        self.read(ASKED, function, (), answer(said), "")

    # ------------------------------------------------------------------ the end

    def carry_replaced(self) -> None:
        """Slots whose values are replaced from call to call are carried, if they can be found again."""
        for each in self.replaced:
            self._carry(*each)
        for container in self.moved:
            around = next((read for read in self.reads.values() if read.value is container), None)
            if around is not None:  # what moves inside is carried with all of the container
                owner = self.get(around.owner)
                self._carry(around.kind, around.container, around.key, owner, around.suffix)

    def _carry(self, kind: str, container: Any, key: Any, owner: Any, suffix: str) -> None:
        where = identity(container)
        if where in self.slots.changed or (where in self.slots.growing and kind != LAST):
            return  # its members move from slot to slot
        owners = self.names.owners(where if owner is None else identity(owner))
        if where in self.anchored or any([self.given.holds(each) for each in owners]):
            return  # the next call has another argument there
        place = self._place(kind, container, key, owner, suffix)
        if place is not None and place.takes_others:
            self.given.carry(place)

    def find_place(self, value: Any) -> StatePlace | None:
        """A slot in which an object lay when the call has read it, if a replay can find it there."""
        found = (each for each in self.reads.values() if each.value is value and each.kind in SLOTS)
        read = next(found, None)
        if read is None or identity(read.container) in self.slots.carriers:
            return None
        if issubclass(type(self.get(read.owner)), type):
            return None  # another object there may say what is to be given instead
        return self._place(read.kind, read.container, read.key, self.get(read.owner), read.suffix)

    def _place(
        self, kind: str, container: Any, key: Any, owner: Any, suffix: str, depth: int = _DEPTH
    ) -> StatePlace | None:
        """A slot outside, or one of a container that lies in such a slot, as the call has read it."""
        owner = None if owner is container else owner
        name = self.name(container if owner is None else owner, suffix)
        place = place_of(kind, container, key, owner, name)
        if place is not None:
            self.pin(container if owner is None else owner)  # it is found by which object that is
            self.pin(container)
        if place is not None or not depth:
            return place
        table = owner is not None and table_of(owner) is container
        whose = owner if table else container
        around = next((read for read in self.reads.values() if read.value is whose), None)
        if around is None:
            return None
        owner = self.get(around.owner)
        found = self._place(around.kind, around.container, around.key, owner, around.suffix, depth - 1)
        return found.inside(kind, key, name, table=table) if found is not None else None

    def all_reads(self) -> Reads:
        """What was read, in order, in the form in which it is kept."""
        found = [
            read._replace(container=Argument(read.container)) if where in self.anchored else read
            for (_, where, _), read in self.reads.items()
        ]
        # What the call has made may be gone, and its identity another's.
        return Reads.of(found, self.pinned & self.keys())

    def let_go(self) -> None:
        """The call is over: nothing is held any more."""
        self.forwards.let_go()
        for held in (
            self,
            self.reads,
            self._held,
            self._taken,
            self._memory,
            self.replaced,
            self.moved,
            self.lent,
            self.staged,
        ):
            held.clear()
        self.given = Given()


def _ends_at_last(container: Any) -> bool:
    """Whether what is added to a container goes behind its last member, and moves none."""
    return type(container) is list or (type(container) is deque and container.maxlen is None)


def stood_for(value: Any) -> Any:
    """The original of a function that rote replaces while the call runs."""
    if type(value) is FunctionType and is_own(value.__code__.co_filename):
        return value.__dict__.get("__wrapped__", value)
    return value
