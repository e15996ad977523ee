"""The numbers of one traced call that are followed (``docs/call.md``).

A number that is known to change is replaced by a copy (:mod:`.fresh`), and with it goes an expression. The
copy lies where the number lay until the call is over, so all code finds it there, Python or C. Whatever looks
at a number in another way asks for its *outcome*: that its expression has this value is a condition of the
recording then. Where it is not known what looks, all numbers that the call was given are such conditions
(:meth:`TrackedNumbers.stop`): then the call depends on them as on any state. ``docs/design.md`` says what
does not work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any

import numpy
from typing_extensions import override

from ...base import Lines, Site, identity
from ..backends.protocol import NumberCell
from ..objects import base_of, pointer_of
from ..state import ATTRIBUTE, CELL, LAST, LENGTH, Address, address_of
from ..state import ITEM as STATE_ITEM
from .arrays import (
    HANDED,
    ITEM,
    MEMBERS,
    NAMED,
    SAME,
    SLICED,
    STORED,
    SliceForm,
    array_token,
    can_be_filled,
    copied,
    handed_in,
    is_array,
    kind_of,
    with_handed,
)
from .computation import (
    ARRAY,
    DRAWN,
    LENT,
    NO_LINES,
    READ,
    Computation,
    FollowedCall,
    NumberRead,
    NumberSource,
    Path,
    ReadingLines,
)
from .draws import Draw, DrawnNumber, DrawnValues, numbers_in
from .expressions import (
    FROM_TABLE,
    FUNCTIONS,
    HAS,
    KINDS,
    LISTED,
    MOST_STEPS,
    PAIRED,
    SCALARS,
    STRICT,
    TEXTS,
    TRUTHS,
    Applied,
    Expression,
    Fixed,
    GivenNumber,
    KeysOf,
    tells,
    value_of,
)
from .fresh import fresh
from .gathered import Gathered
from .items import MOST_ITEMS, gives_items, iterated
from .parts import is_data, is_sequence, is_told_by_content, parts_of
from .times import TIME, LateCell, TimeRead, undefined_at

_AT_END = frozenset({LAST, LENGTH})
FEW = 3
"""Values of a number that have recordings of their own; with one more it changes from call to call."""
_NAN = "a number is NaN"
_LARGEST_SUMMAND = 1 << 62
"""Integers that are added to times: floats are made of them."""
_MOST = 2000
"""How many containers and objects are looked into; beyond that nothing is followed any more."""
_CONTAINERS = frozenset({list, tuple, set, frozenset, dict, slice, deque})
_SEQUENCES = frozenset({list, tuple})
SLOTS = frozenset({STATE_ITEM, ATTRIBUTE, CELL})
"""Kinds of places that are slots outside."""
FOLLOWED = SCALARS | {numpy.ndarray}
"""Types of what may be followed."""
_MADE = TEXTS | {numpy.ndarray}
"""Types of what is followed only if it was computed."""
_READ = KINDS | {list}
"""Types of what is read from tensors: a number, or several."""
_RESULTS = SCALARS | TRUTHS
_DATA = frozenset({str, bytes, bool, type(None), complex, type(Ellipsis), bytearray, range})


@dataclass(frozen=True)
class Computed:
    """A number in operands, in what a tensor is made of, or in a result, that each replay computes."""

    expression: Expression
    cell: NumberCell = field(compare=False)

    @property
    def value(self) -> Any:
        """The number, in the last call."""
        return self.cell.value

    @property
    def lies_in_cell(self) -> bool:
        """Whether a replay hands out what lies there when it has begun, no copy and no array of a tensor."""
        return type(self.cell) is NumberCell and type(self.value) is not numpy.ndarray

    @property
    def is_time(self) -> bool:
        """Whether it is computed from what the clock says."""
        return type(self.cell) is LateCell

    @property
    def orders(self) -> frozenset[int]:
        """The arrays of tensors from which it is computed, by their order."""
        return self.cell.orders if type(self.cell) is LentCell else frozenset()

    def made(self, lent: Mapping[int, Any]) -> Any:
        """What a replay hands out, with the arrays of its tensors: an array is the caller's own."""
        value = self.cell.made(lent) if type(self.cell) is LentCell else self.value
        return copied(value) if type(value) is numpy.ndarray else value

    def __repr__(self) -> str:
        return f"{self.value!r}, which is computed"


class LentCell(NumberCell):
    """What a call leaves behind that is computed from arrays of its tensors: when that is handed out.

    Args:
        given: The numbers that the present call was given.
        orders: Which of those are arrays of tensors: how many others were made before.
    """

    __slots__ = ("_expression", "_given", "_orders")

    def __init__(
        self, expression: Expression, given: Callable[[int], Any], orders: Mapping[int, int]
    ) -> None:
        self._expression, self._given, self._orders = expression, given, orders

    @property
    @override
    def value(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the present call has computed, if that was one that is not followed."""
        return value_of(self._expression, self._given)

    @property
    def orders(self) -> frozenset[int]:
        """The arrays of tensors from which it is computed, by their order."""
        return frozenset(self._orders.values())

    @override
    def hold(self, value: Any) -> None:
        pass

    @override
    def fill(self, value: Any) -> None:
        pass

    def made(self, lent: Mapping[int, Any]) -> Any:
        """The same of a replay, with the arrays of its tensors by their order."""

        def given(number: int) -> Any:
            order = self._orders.get(number)
            return self._given(number) if order is None else lent[order]

        return value_of(self._expression, given)


class TrackedNumbers:
    """What is followed in one traced call.

    Args:
        wanted: Slots outside whose number is known to change.
        leaves: Argument leaves whose number is known to change.
        reading: Reads of numbers which are known to change.
        computation: What earlier calls have computed.
        follows: Numbers are followed. Else they run as they are, to do what earlier calls have computed;
            slots are left out of what the call reads all the same.
        draws: Numbers that are drawn from the host's generators are followed, too.
        clock: So are those that are read from the clock.
        arrays: So are arrays among the arguments.

    Attributes:
        places: Where numbers come from, in this call and in earlier ones.
        values: Those that this call was given, by the number of their place.
        outcomes: What expressions have to give, in order.
        cells: The numbers that a replay has to compute.
        stopped: Why nothing is followed any more.
    """

    def __init__(
        self,
        wanted: frozenset[tuple[str, int, Any]],
        leaves: frozenset[int],
        reading: ReadingLines = NO_LINES,
        computation: Computation | None = None,
        *,
        follows: bool = True,
        draws: bool = False,
        clock: bool = False,
        arrays: bool = False,
    ) -> None:
        self.wanted, self.leaves, self.reading, self.follows = wanted, leaves, reading, follows
        # in which those lie
        self.containers = frozenset([container for kind, container, _ in wanted if kind not in _AT_END])
        self._computation = computation if computation is not None else Computation(reading)
        self._steps: dict[Expression, None] = {}  # what was computed, in order
        self._values: dict[Expression, Any] = {}  # what some of it gave
        self._taken = 0  # reads at a position
        self._reads: list[NumberRead] = []
        self.taken: set[tuple[Path, int]] = set()  # reads at a position that changes, with the way to them
        self._ended: set[tuple[int, int, Site]] = set()  # reads of members by how far they lie before the end
        self._indexed: set[int] = set()  # lists that are read at such numbers, of which no length is
        self.longer: list[Address] = []  # lengths of those that the call makes longer
        self._index: Any = None  # by which the instruction reads a list that calls make longer
        self.strayed: dict[Lines, None] = {}  # of these, what has made those that are not understood
        self._next: tuple[NumberSource, Any] | None = None
        self.handed: list[Any] = []  # numbers that were given, and maybe to C, not to Python code
        self.asks_for_one = False
        self.places = list(self._computation.places)
        self._numbers = {place.address: number for number, place in enumerate(self.places)}
        self.values: dict[int, Any] = {}
        self.outcomes: dict[Expression, Fixed] = {}
        self.cells: dict[Expression, NumberCell] = {}
        self.stopped: str | None = None
        self.waits = False  # the next call may follow what has stopped this one
        self.owed: dict[int, Any] = {}  # numbers that a function of PyTorch's was given, by identity
        self.draws, self.clock, self.arrays = draws, clock, arrays
        self._under: dict[int, Any] = {}  # memory of arguments and tensors, by the identity of its array
        self._passing: set[int] = set()  # of these, those of numbers that were read
        self._shown: dict[int, Any] = {}  # memory that may be looked at in a way that is not told
        # arrays that were found in slots, with their number, and of these those that are written
        self._kept: dict[int, tuple[Any, int]] = {}
        self.filled: dict[int, Any] = {}
        self._stale: dict[int, Any] = {}  # views of arrays that were written since
        self._others: list[Any] = []  # other arrays from outside
        self._picked_from: list[Any] = []  # arrays that are not followed, of which parts are
        self.has_arrays = False  # some of what is followed are those
        self.dispatched = False  # an operation has run
        self.ends = False
        self._draws: list[Draw] = []
        self._times: list[TimeRead] = []
        # what is drawn or computed now by code that is none of the call's, and the frame that has called it
        self.drawing: tuple[Draw | TimeRead | tuple[str, tuple[Any, ...]], Any] | None = None
        self._filled: Any = None  # the list or array into which it is drawn
        # what comes next of what is shuffled: its order, and how it was computed and what it was before
        self._shuffled: tuple[Any, Expression, Any] | None = None
        self._branched = False
        self._one_way = True  # so far it has gone as all calls have
        self._branches = self._before_draws = 0  # reads so far, and before what was drawn last
        self.missed = False  # it draws where other ways may draw otherwise
        self.strays = False  # it goes another way than a call that has drawn behind it
        self._lent = 0  # arrays that it has made of tensors
        self.at_work = False  # a note is being taken: what runs meanwhile is none of the call's
        self.owed_in: Any = None  # the frame that has called it
        self.gathered = Gathered()
        self.iterated: tuple[Any, ...] = ()  # arrays over which the next instruction makes something
        self._known: dict[int, tuple[Any, Expression, Any]] = {}  # by identity: it, how, what it stands for
        self._given: dict[Any, Any] = {}  # copies by place
        # frames that call something, by identity, and whose code they get it from; what maps have called,
        # and whether nobody else has it called by C
        self.entered: dict[int, set[int]] = {}
        self.mapped: dict[int, bool] = {}
        self.asks_length = 0  # identity of the frame that asks an object of Python's how long it is
        self._answer: Any = None
        self.left: set[Address] = set()  # slots with numbers that the next call finds to be others
        self.falls_short = False  # a list is shorter than the call asks for the last of it
        # containers that somebody asks now how long they are, by their identity: how long they were before
        # the call, and how many members it has added
        self.lengths: dict[int, tuple[Any, int]] = {}
        # what the next instruction computes, where a note says so
        self._operands: tuple[str, tuple[Any, ...]] | None = None

    # ------------------------------------------------------------------ instructions

    def compute_next(self, function: str, operands: tuple[Any, ...]) -> None:
        """The next instruction computes with numbers; where it is a call, the function is named."""
        if any(each is HANDED or self.expression(each) is not None for each in _leaves(operands)):
            self._operands = function, operands

    def look_up_next(self, table: tuple[Any, ...]) -> None:
        """The next instruction reads a table at a place that C gets from a tensor."""
        self._operands = FROM_TABLE, (table, HANDED)

    def with_handed(self, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """Operands of the last instruction, with the numbers that C alone has got meanwhile."""
        asked = handed_in(operands[-1])
        if not asked or [*map(type, self.handed)] != [int] * asked:
            return operands
        last = with_handed(operands[-1], iter(self.handed))
        self.handed.clear()
        return (*operands[:-1], last)

    @property
    def computes_next(self) -> bool:
        """Whether it is known what the next instruction computes with."""
        return self._operands is not None

    def take_operands(self) -> tuple[str, tuple[Any, ...]] | None:
        """What the last instruction has computed with."""
        found, self._operands = self._operands, None
        return found

    def drop_operands(self) -> None:
        """Another instruction is told of, and nobody has seen what the last one gave: it may have raised."""
        found = self.take_operands()
        self.pin(*_leaves(found[1] if found is not None else ()))
        if found is not None and any([type(each) is numpy.ndarray for each in found[1]]):
            self.stop("what was computed from an array was not seen")

    # ------------------------------------------------------------------ items of arrays

    def follows_items(self, value: Any) -> bool:
        """Whether something is an array whose numbers are followed one by one."""
        return type(value) is numpy.ndarray and self.expression(value) is not None and gives_items(value)

    def take_iterated(self, value: Any) -> Any:
        """Something goes over arrays, or holds what one has: what stands for it."""
        arrays, self.iterated = self.iterated, ()
        if self.stopped is not None:
            return value
        made, known = iterated(value, arrays, self._item)
        self.pin(*[each for each in arrays if all([each is not one for one in known])])
        return made

    def _item(self, array: Any, index: int) -> Any:
        found = array[index]
        return found if self.ends else self.compute(ITEM, (array, (index,)), found)

    def leave_iterated(self) -> None:
        """Nobody has seen what was made."""
        arrays, self.iterated = self.iterated, ()
        self.pin(*arrays)

    # ------------------------------------------------------------------ numbers

    def take(self, place: NumberSource, value: Any) -> Any:
        """The call is given a number from a place: the object that it gets instead."""
        key = place.address
        if key in self._given:
            return self._given[key]
        if value != value:  # it is hashed and looked up by which object it is
            self.stopped = self.stopped or _NAN
        copy = fresh(value) if self.stopped is None else None
        if copy is None:
            self.stopped = self.stopped or f"no copy of {value!r} can be made"
            return value
        self._given[key] = copy
        self._know_given(place, copy, copy, value)
        return copy

    def measure(self, place: NumberSource, before: int, added: int) -> None:
        """It is asked how long a container is; who knows what becomes of that takes it at once.

        Args:
            place: The container.
            before: How long it was before the call.
            added: How many members the call has added.
        """
        self.lengths[identity(place.container)] = self.take(place, before), added

    def measured(self, container: Any) -> tuple[str, tuple[Any, ...]] | None:
        """How the length of a container that is asked now follows from what it was before the call."""
        before, added = self.lengths.pop(identity(container), (None, 0))
        if self.expression(before) is None:
            return None
        most = container.maxlen if type(container) is deque else None
        if most is None:
            return "ADD", (before, added)
        return "min", (self.compute("ADD", (before, added), before + added), most)

    def ask_length(self, container: Any, least: int) -> None:
        """A container that is asked how long it is was at least so long before the call, which is all."""
        before, _ = self.lengths.pop(identity(container), (None, 0))
        if self.expression(before) is not None:
            self.ask("<=", least, before)

    def may_keep_distance(self, container: Any, index: int) -> bool:
        """Whether a list may be read at a number that is as far from its end in each call."""
        if not self.follows:
            return bool(self._computation.ended)
        if self.expression(index) is None:
            return False
        if address_of(LENGTH, container, None) in self.wanted:
            return True
        self._indexed.add(identity(container))
        return False

    def knows_distance(self, read: tuple[int, int, Site]) -> bool:
        """Whether a member is read so, as far as calls that were followed tell."""
        return self.follows or read in self._computation.ended

    def keep_distance(
        self, read: tuple[int, int, Site], place: NumberSource, length: int, index: int
    ) -> None:
        """A member is read so: how far it lies from the end is a condition."""
        self._ended.add(read)
        if self.follows:
            self._index = index
            self.ask("SUBTRACT", index, self.take(place, length))

    def takes_index(self, index: Any) -> bool:
        """Whether that is all that is asked of the number at which the instruction reads."""
        taken, self._index = self._index is index and index is not None, None
        return taken

    def lengthen(self, container: Any) -> None:
        """The call makes a container longer, which it may have read at such a number."""
        if identity(container) in self._indexed:
            self.longer.append(address_of(LENGTH, container, None))

    @property
    def lacks_ends(self) -> bool:
        """Whether the call reads otherwise than at the distances from an end that calls have had."""
        return not self.follows and not self._computation.ended <= self._ended

    def leaves_last(self, address: Address, value: Any) -> None:
        """A member before the end of a list is read, where the next call finds another one."""
        if type(value) in KINDS and address not in self.wanted:
            self.left.add(address)

    def ask_key(self, mapping: Any, key: Any, *, present: bool) -> None:
        """It matters whether a mapping had a key before the call."""
        asked = self._applied(HAS, Fixed.of(KeysOf(mapping)), self._part(key))
        self.outcomes.setdefault(asked, Fixed.of(present))

    def has_asked_keys(self, mapping: Any) -> bool:
        """Whether the call does what others have computed, who have asked whether a mapping has a key."""
        return not self.follows and Fixed.of(KeysOf(mapping)) in self._computation.mappings

    def answers_length(self, caller: Any, value: Any) -> bool:
        """A method says how long its object is; whether it is C that asks, and gives that to its caller."""
        if self.asks_length != identity(caller) or type(value) is not int or self._answer is not None:
            return False
        self._answer = value
        return True

    def take_answer(self, value: Any) -> Any:
        """C has given how long an object is: what stands for it."""
        answer, self._answer, self.asks_length = self._answer, None, 0
        if type(value) is int and value == answer:
            return answer
        self.pin(answer)
        return value

    def leave_lengths(self) -> None:
        """What becomes of lengths is not known: they are looked at."""
        self.pin(*[before for before, _ in self.lengths.values()])
        self.lengths.clear()

    def _know_given(self, place: NumberSource, known: Any, value: Any, stands: Any) -> None:
        number = self._numbers.setdefault(place.address, len(self.places))
        if number == len(self.places):
            self.places.append(place)
        elif place.kind == DRAWN:  # between other numbers than an earlier call, perhaps
            self.places[number] = place
        self.values[number] = value
        self._known[identity(known)] = known, GivenNumber(number), stands

    def take_array(self, place: NumberSource, array: Any) -> None:
        """The call is given an array from a place."""
        if self.stopped is None and identity(array) not in self._kept:
            self.has_arrays = True
            if place.kind != DRAWN:
                self._under[identity(base_of(array))] = base_of(array)
            if place.kind == ARRAY:
                self._others.append(array)
            elif place.kind in SLOTS:
                self._stand_apart(array)
            self._know_given(place, array, copied(array), array)
            if place.kind in SLOTS:
                self._kept[identity(array)] = array, self._numbers[place.address]

    def _stand_apart(self, array: Any) -> None:
        """An array from outside is met: it does not lie in the memory of one that was written."""
        if any([numpy.may_share_memory(array, each) for each in self.filled.values()]):
            self.stop("what is written to an array is read through another one")

    def meet(self, array: Any) -> None:
        """The call finds an array outside that is not followed."""
        if self.follows and self.stopped is None and identity(array) not in self._kept:
            self._stand_apart(array)
            self._others.append(array)

    def is_given(self, array: Any) -> bool:
        """Whether an array lies in memory that the call has not made: others may write there, and read it."""
        return identity(base_of(array)) in self._under

    def expression(self, value: Any) -> Expression | None:
        """How a number was computed; None of what is not followed."""
        found = self._known.get(identity(value)) if type(value) in FOLLOWED else None
        if found is None and self._stale and identity(value) in self._stale:
            self.stop("a view of an array is looked at that was written meanwhile")
        return found[1] if found is not None else None

    def original(self, value: Any) -> Any:
        """The object for which a followed number stands."""
        found = self._known.get(identity(value)) if type(value) in SCALARS else None
        return found[2] if found is not None else value

    def compute(self, function: str, operands: tuple[Any, ...], result: Any) -> Any:
        """A function of numbers gave a result: the object that stands for it.

        What cannot be computed again is known by its value; what gives another result than it did was noted
        in the wrong place, and nothing is followed any more.
        """
        found = [self._part(each) for each in operands]
        if self.stopped is not None or not any([each.given for each in found]):
            return result
        again = self._again(function, operands)
        if Fixed.of(again) != Fixed.of(result):
            self.stop(f"{function} gave {result!r} and gives {again!r}")
            return result
        if type(result) is numpy.ndarray and any([result is each for each in operands]):
            if not (function in NAMED and operands[0] in SAME):
                self.stop("an array is written by a function of numpy's")
            return result
        made = self._applied(function, *found)
        if len(self._steps) >= MOST_STEPS and made not in self._steps:
            self.stop("more is computed than a replay computes")
            return result
        listed = type(result) is list and len(result) <= MOST_ITEMS and {*map(type, result)} <= KINDS
        if not (type(result) in _RESULTS or is_array(result) or listed):
            self.pin_inside(*operands)
            return result
        self._steps[made] = None
        if self.has_arrays and not self._is_as_computed(result, made):
            self.stop("an array was written that is followed")
            return result
        if type(result) is numpy.ndarray:
            self.has_arrays = True
            self._known[identity(result)] = result, made, result
            return result
        if type(result) is list:
            return self._members_of(made, result)
        copy = None if type(result) in TRUTHS else fresh(result)
        if copy is None:
            self.outcomes.setdefault(made, Fixed.of(result))
            return result
        self._known[identity(copy)] = copy, made, result
        return copy

    def _members_of(self, made: Applied, result: list[Any]) -> list[Any]:
        """A list that was computed: what stands for its members lies in it."""
        copies = [fresh(each) for each in result]
        if any([each is None for each in copies]):
            self.outcomes.setdefault(made, Fixed.of(result))
            return result
        self._know_members(copies, made, iter([*result]))
        result[:] = copies
        return result

    def _applied(self, function: str, *operands: Expression) -> Applied:
        return self._computation.applied(function, operands)

    def _again(self, function: str, operands: tuple[Any, ...]) -> Any:
        """What a replay would compute of operands; code in Python that runs for it is none of the call's."""
        if function in NAMED:  # an array behind the first one may be what is written
            operands = (*operands[:3], *[copied(each) if is_array(each) else each for each in operands[3:]])
        at_work, self.at_work = self.at_work, True
        try:
            with STRICT():
                return FUNCTIONS[function](*operands)
        except Exception:
            return self
        finally:
            self.at_work = at_work

    def _part(self, value: Any) -> Expression:
        """How an operand was computed, which may be a few of them."""
        known = self.expression(value)
        if known is not None:
            return known
        sliced = type(value) is SliceForm
        listed = sliced or type(value) in _SEQUENCES
        members = value.values() if type(value) is dict else value if listed else ()
        parts = [self._part(each) for each in members]
        if any([each.given for each in parts]):
            if type(value) is dict:
                return self._applied(PAIRED, Fixed.of(tuple(value)), *parts)
            made = SLICED if sliced else LISTED if type(value) is list else MEMBERS
            return self._applied(made, *parts)
        is_followed = self.has_arrays and type(value) is numpy.ndarray and self.arrays_over(pointer_of(value))
        if is_followed and not self._is_picked_from(value):
            self.stop("part of an array is read that is followed, in a way that is not")
        return Fixed.of(value)

    def _is_picked_from(self, array: Any) -> bool:
        """Whether what is followed in an array are parts that the call has taken of it, and not written."""
        picked = any([array is each for each in self._picked_from])
        return picked and not any([numpy.may_share_memory(array, each) for each in self.filled.values()])

    def holds_array(self, operands: Iterable[Any]) -> bool:
        """Whether an array that is followed is among operands."""
        for each in operands:
            if type(each) in (list, tuple):
                if self.holds_array(each):
                    return True
            elif type(each) is numpy.ndarray and self.expression(each) is not None:
                return True
        return False

    def leads(self, key: Any) -> bool:
        """Whether a number that is followed is in an index."""
        if type(key) is slice:
            key = (key.start, key.stop, key.step)
        if type(key) is tuple:
            return any(map(self.leads, key))
        return key is HANDED or (type(key) in KINDS and self.expression(key) is not None)

    def arrays_over(self, pointer: int) -> list[Any]:
        """The arrays that are followed, in whose memory an address lies."""
        arrays = [each for each, *_ in self._known.values() if type(each) is numpy.ndarray]
        return [each for each in arrays if 0 <= pointer - pointer_of(base_of(each)) <= base_of(each).nbytes]

    def show(self, value: Any) -> None:
        """Something may go on looking at the memory of an array, and is not told: a view, or an iterator."""
        if type(value) is numpy.ndarray:
            base = base_of(value)
            self._shown[identity(base)] = base

    def write(self, function: str, array: Any, *operands: Any) -> bool:
        """The call is about to write to an array of its own: whether it is followed what that holds then."""
        known, base = self.expression(array), base_of(array)
        if self.stopped is not None or not self._can_write(base):
            return False
        part = known if array is not base else None
        if array is not base and not self._is_item(part, base):
            return False
        found = [known or Fixed.of(array), *map(self._part, operands)]
        if not any([each.given for each in found]):
            return False
        again = self._again(function, (array, *operands))
        if (
            len(self._steps) >= MOST_STEPS
            or again is self
            or (known is not None and not self._is_as_computed(array, known))
        ):
            return False
        made = whole = self._applied(function, *found)
        if isinstance(part, Applied):
            whole = self._applied(STORED, *part.operands, made)
            made = self._applied(ITEM, whole, part.operands[1])
        views = [each for each, *_ in self._known.values() if type(each) is numpy.ndarray]
        for view in [each for each in views if each is not base and base_of(each) is base]:
            self._stale[identity(view)] = view
            del self._known[identity(view)]
        self._steps[whole], self.has_arrays = None, True
        self._known[identity(base)] = base, whole, base
        if array is not base:
            del self._stale[identity(array)]
            self._known[identity(array)] = array, made, array
        if identity(base) in self._kept:
            self.filled[identity(base)] = base
        return True

    def _can_write(self, array: Any) -> bool:
        """Whether an array has memory of its own that nobody looks at who is not told."""
        which = identity(array)
        if not is_array(array) or array.base is not None or which in self._shown:
            return False
        if not (array.flags.c_contiguous and array.flags.writeable):
            return False
        if which in self._kept:
            return can_be_filled(array) and self._is_apart(array)
        return which not in self._under

    def _is_item(self, known: Expression | None, array: Any) -> bool:
        """Whether something is what lies at an index of an array now."""
        if not isinstance(known, Applied) or known.function != ITEM:
            return False
        return known.operands[0] == self.expression(array)

    def _is_apart(self, array: Any) -> bool:
        """Whether an array from outside shares its memory with none that the call has found there."""
        others = [*self._others, *[each for each in self.kept if each is not array]]
        return not any([numpy.may_share_memory(array, each) for each in others])

    @property
    def kept(self) -> list[Any]:
        """The arrays outside that are followed."""
        return [array for array, _ in self._kept.values()]

    @property
    def looked_at(self) -> list[Any]:
        """The arrays over whose memory others may lie that are followed."""
        return [*self.kept, *self._picked_from]

    def pick_from(self, array: Any) -> None:
        """A part of an array that is not followed is taken at an index that is."""
        self._picked_from.append(array)

    def keeps(self, array: Any) -> bool:
        """Whether it is followed what an array outside holds, and what is written to it."""
        return self.stopped is None and identity(array) in self._kept

    def left_in(self, array: Any) -> Any:
        """What a written array outside holds at the end, in memory of its own; None if that is not known."""
        if not self.follows:
            return copied(array)
        if self.stopped is not None or identity(array) not in self.filled:
            return None
        left = copied(array)
        self._known[identity(left)] = left, self._known[identity(array)][1], left
        return left

    def _is_as_computed(self, value: Any, expression: Expression) -> bool:
        """Whether something is what was computed, and nobody has written to an array on the way."""
        at_work, self.at_work = self.at_work, True
        try:
            return Fixed.of(value_of(expression, self.values.__getitem__, self._values)) == Fixed.of(value)
        finally:
            self.at_work = at_work

    def computed(self, value: Any) -> Computed | None:
        """A followed number as a replay computes it."""
        expression = self.expression(value)
        if expression is None or self.stopped is not None:
            return None
        if type(value) is numpy.ndarray and not self._is_as_computed(value, expression):
            self.stop("an array was written that is followed")
            return None
        return self._computed(expression, value)

    def converted(self, value: Any, kind: type, *, less: bool = False) -> Computed | None:
        """The same, as C makes a float of an integer; ``less`` one, as derivatives have it."""
        expression = self.expression(value)
        if expression is None or self.stopped is not None:
            return None
        if type(value) is not kind:
            expression, value = self._applied(kind.__name__, expression), kind(value)
        if less:
            expression, value = self._applied("SUBTRACT", expression, Fixed.of(kind(1))), value - kind(1)
        return self._computed(expression, value)

    def linear(self, terms: Iterable[tuple[int, int]], more: int) -> Any:
        """So many times some numbers and some more, as a replay computes it; where it follows none, that."""
        parts, value = list[Expression](), more
        for number, factor in terms:
            value, expression = value + number * factor, self.expression(number)
            if expression is None:
                more += number * factor
            else:
                parts.append(
                    expression if factor == 1 else self._applied("MULTIPLY", expression, Fixed.of(factor))
                )
        if not parts:
            return value
        parts += [Fixed.of(int(more))] if more else []
        return self._computed(reduce(partial(self._applied, "ADD"), parts), value)

    def takes_next(self, lines: Lines, path: Path, *, moves: bool) -> bool:
        """A tensor is read at a position: whether that is one which changes; it is known of a known call."""
        order, self._taken = (path, self._taken), self._taken + 1
        if not self.follows:
            return order in self._computation.taken
        if not moves or self.stopped is not None or lines in self.reading.fixed:
            return False
        self.taken.add(order)
        return True

    def _computed(self, expression: Expression, value: Any) -> Computed:
        cell = self.cells.get(expression) or self._computation.cells.get(expression)
        if self.is_time(expression):
            computation = self._computation
            cell = cell or LateCell(expression, computation.now, computation.given)
            if not self.ends or not self._is_defined(expression):
                self.stop("a time becomes an operand, or what is computed from one may be undefined")
        elif orders := self._lent_in(expression):
            if self.ends:
                cell = cell or LentCell(expression, self._computation.given, orders)
            else:  # what the cell holds is of this call alone
                cell = NumberCell(value)
                self.stop("what numpy has made of a tensor becomes an operand")
        cell = cell or NumberCell(value)
        cell.hold(self.original(value))
        self.cells[expression] = cell
        return Computed(expression, cell)

    def _is_defined(self, expression: Expression) -> bool:
        """Whether something is computed from times that has a value at each; what that takes is asked."""
        divisors = undefined_at(expression)
        if divisors is None or any(map(self.is_time, divisors)):
            return False
        for each in divisors:
            self.outcomes.setdefault(self._applied("!=", each, Fixed.of(0)), Fixed.of(True))
        for number in expression.given:
            if type(self.values[number]) is int and self.places[number].kind != TIME:
                known = self._applied("abs", GivenNumber(number))
                self.outcomes.setdefault(
                    self._applied("<=", known, Fixed.of(_LARGEST_SUMMAND)), Fixed.of(True)
                )
        return all([abs(self.values[number]) <= _LARGEST_SUMMAND for number in expression.given])

    # ------------------------------------------------------------------ numbers that are drawn

    def is_found_at_once(self, value: Any) -> bool:
        """Whether a number is known when a call begins."""
        return all([self.places[each].kind not in (READ, LENT, TIME) for each in self._part(value).given])

    def draw_next(self, draw: Draw, args: tuple[Any, ...], frame: Any, filled: Any = None) -> None:
        """A function is called that draws numbers, perhaps into a list or an array; its code is its own."""
        self.missed = self.missed or not self._one_way
        if type(filled) is numpy.ndarray and identity(base_of(filled)) in self._shown:
            self.stop("an array is written of which something else was made")
            return
        given = [] if draw.fills or not (draw.args or draw.named) else [*map(self._part, args)]
        if any([each.given for each in given]):
            draw = replace(draw, computed=tuple(given))
        if self.draws and self._one_way:
            self.drawing, self._filled = (draw, frame), filled
            if draw.orders:
                self._shuffled = draw.ahead(), self._part(filled), copied(filled)

    def read_clock(self, function: Any, frame: Any) -> None:
        """A function is called that reads the clock."""
        if self.clock:
            self.drawing = TimeRead(function, early=not self.dispatched), frame

    @property
    def times(self) -> int:
        """How often the call has read the clock."""
        return len(self._times)

    def settle_times(self) -> None:
        """No two calls read the same time, so nothing may depend on one."""
        if any([self.is_time(each) or self._lent_in(each) for each in self.outcomes]):
            self.stop("the call depends on the time, or on what numpy has made of a tensor")

    def is_time(self, expression: Expression) -> bool:
        """Whether something is computed from what the clock said."""
        return any([self.places[number].kind == TIME for number in expression.given])

    def _lent_in(self, expression: Expression) -> dict[int, int]:
        """The arrays of tensors from which something is computed: their order, by their place."""
        places = {number: self.places[number] for number in expression.given}
        return {number: place.key for number, place in places.items() if place.kind == LENT}

    def lend(self, array: Any) -> bool:
        """The call makes an array of a tensor; whether it is told what is computed from that."""
        if not self.arrays or self.stopped is not None or self._branched:
            return False
        order, self._lent = self._lent, self._lent + 1
        if self.follows:
            self.take_array(NumberSource(LENT, None, order, ".numpy()"), array)
        else:
            self._computation.lend(order, array)
        return True

    def hands_out(self, value: Any) -> bool:
        """Whether an array may be part of a result, or is kept, and replays make it."""
        if type(value) is not numpy.ndarray or self.stopped is not None or not value.flags.writeable:
            return False
        if not self.follows:
            return True
        return self.expression(value) is not None and identity(base_of(value)) not in self._under

    def computes_apart(self, function: str, operands: tuple[Any, ...], frame: Any) -> None:
        """A function of numbers or arrays is called whose code is its own."""
        if any([self._part(each).given for each in operands]):
            self.drawing = (function, operands), frame
        else:
            self._inside(operands)

    def gives(self, source: Any, value: Any) -> bool:
        """A generator gives a value; whether nobody looks at it but what is computed of all that it gives."""
        gathering = self.gathered.taking(source)
        if gathering is None or not gathering.function:
            return gathering is not None
        if type(value) in (TEXTS if gathering.texts else KINDS | TRUTHS):
            gathering.values.append(value)
            return True
        self.gathered.leave(gathering)
        self.pin(*gathering.values)
        return False

    def take_gathered(self, caller: Any, value: Any) -> Any:
        """A function has returned that took all that a generator gave: the object for what it gave."""
        for each in reversed(found := self.gathered.end(caller)):
            if each is found[0] and each.function and type(value) in (TEXTS if each.texts else KINDS):
                return self.compute(each.function, tuple(each.values), value)
            self.pin(*each.values)
        return value

    def leave_gathered(self, caller: Any) -> None:
        """Such a function has raised."""
        for each in self.gathered.end(caller):
            self.pin(*each.values)

    def leave_apart(self) -> None:
        """Such a function has given something else than a number, or has raised."""
        drawing, self.drawing = self.drawing, None
        if drawing is not None and isinstance(drawing[0], tuple):
            self.pin_inside(*drawing[0][1])

    def take_drawn(self, value: Any) -> Any:
        """The function has given a number, or several: the object for it, or what holds those for them."""
        drawing, self.drawing = self.drawing, None
        if drawing is None or self.stopped is not None:
            return value
        if isinstance(drawing[0], tuple):
            return self.compute(*drawing[0], value)
        if isinstance(drawing[0], TimeRead):
            if type(value) not in KINDS:
                return value
            order, name = len(self._times), f"{drawing[0].function.__name__}()"
            self._times.append(drawing[0])
            key = (order, drawing[0].function, drawing[0].early)
            return self.take(NumberSource(TIME, drawing[0], key, name), value)
        filled, self._filled = self._filled, None
        if filled is None:
            return self._take_drawn(drawing[0], value)
        if drawing[0].orders:
            self._take_shuffled(drawing[0], filled)
        else:
            self._take_drawn(drawing[0], filled)
        return value

    def _take_shuffled(self, draw: Draw, array: Any) -> None:
        """An array was shuffled: it is what it was, in an order that was drawn."""
        shuffled, self._shuffled = self._shuffled, None
        if shuffled is None or array_token(shuffled[2][shuffled[0]]) != array_token(array):
            self.stop("an array was shuffled in an order that is not known")
            return
        order, before, _ = shuffled
        self._take_drawn(draw, order)
        if (drawn := self.expression(order)) is None:
            return
        made = self._applied(ITEM, before, self._applied(MEMBERS, drawn))
        self._steps[made], self._known[identity(array)] = None, (array, made, array)

    def _take_drawn(self, draw: Draw, value: Any) -> Any:
        found, drawn, order = numbers_in(value), DrawnValues(draw, value), len(self._draws)
        if not found:
            return value
        self._draws.append(draw)
        self._before_draws = self._branches
        if type(value) is numpy.ndarray:
            self.take_array(NumberSource(DRAWN, DrawnNumber(drawn, 0), (order, 0), f"{draw.name}()"), value)
            return value
        taken = [
            self.take(NumberSource(DRAWN, DrawnNumber(drawn, index), (order, index), f"{draw.name}()"), each)
            for index, each in enumerate(found)
        ]
        if type(value) is list:
            value[:] = taken
            return value
        return tuple(taken) if type(value) is tuple else taken[0]

    @property
    def drawn(self) -> Sequence[Draw]:
        """What the call draws that replays draw as well."""
        return self._draws if self.follows else self._computation.draws

    def branch(self) -> None:
        """The host reads a value."""
        self.leave_unseen()
        self._branched = True

    def go_on(self, *, alone: bool) -> None:
        """Behind a read: draws are not followed where other ways may draw otherwise.

        Args:
            alone: It goes on as all calls have that came here.
        """
        self._branches += 1
        if not alone:
            self._one_way = False
            self.strays = self.strays or self._branches <= self._computation.before_draws

    # ------------------------------------------------------------------ numbers that are read

    def reads(self, operation: str, lines: Lines, value: Any, path: Path) -> NumberRead | None:
        """The call reads a number from a tensor; None if it is not one that changes."""
        is_known = type(value) in _READ or type(value) is numpy.ndarray
        if lines not in self.reading or self.stopped is not None or not is_known:
            return None
        order = len(self._reads)
        way = self._computation.reader(path, order)(value)
        return self._note_read(operation, lines, NumberRead(path, order, way), value)

    def reader(self, read: NumberRead) -> Callable[[Any], int]:
        """What says at each replay on which way a call goes on; it holds nothing of this one."""
        return self._computation.reader(read.path, read.order)

    def read_again(self, operation: str, lines: Lines, read: NumberRead) -> Any:
        """A call that follows what has run comes to a read: the number that was read there."""
        number = self._numbers.get(_place_of(read.order).address)
        value = self.values[number] if number in self.values else self._computation.number(read.order)
        self._note_read(operation, lines, read, value)
        return value

    def _note_read(self, operation: str, lines: Lines, read: NumberRead, value: Any) -> NumberRead:
        self._reads.append(read)
        if self.follows:
            self._next = _place_of(read.order, f"{operation} at {lines[-1]}", lines), value
        return read

    def leave_unseen(self) -> None:
        """A number that was read came to no Python code: C goes by its value, which is a condition."""
        if self._next is not None:
            self._pin_read(self.read(self._next[1]))

    def _pin_read(self, value: Any) -> None:
        self.pin(*_leaves(value))

    def undisturbed(self, read: Callable[[], Any]) -> Any:
        """What a function of PyTorch reads. What rote runs for that is told of, too, and asks for nothing."""
        asks = self.asks_for_one
        found = read()
        self.asks_for_one = asks
        return found

    def hand(self, value: Any) -> Any:
        """A function has given what it read: to the instruction that called it, or to C, which did."""
        self.handed.append(value)
        return value

    def arrive(self, value: Any) -> None:
        """What an instruction has called gave a value: the number, if that was all that it asked for."""
        if self.asks_for_one and len(self.handed) == 1 and self.handed[0] is value:
            self.handed.clear()

    def leave_handed(self) -> None:
        """What C has got and did not hand on is looked at."""
        for each in self.handed:
            self._pin_read(each)
        self.handed.clear()

    def begin_again(self) -> None:
        """The call runs once more from its start, on the same objects."""
        self._taken, self._branched, self.drawing, self._lent = 0, False, None, 0
        for which, (array, number) in self._kept.items():
            self._known[which] = array, GivenNumber(number), array
        for held in (self.filled, self._shown, self._stale):
            held.clear()
        self._one_way, self.missed, self.strays = True, False, False
        self._branches = self._before_draws = 0
        self._reads.clear()
        self._draws.clear()
        self._times.clear()
        self.dispatched = False
        self._next = None
        self.handed.clear()
        self._operands = None
        self.take_owed()
        self.iterated = ()
        self.lengths.clear()
        self.asks_length, self._answer = 0, None
        self.gathered.clear()

    def read(self, value: Any) -> Any:
        """A function of PyTorch has given a number, or a list: what stands for it, if it was just read."""
        found, self._next = self._next, None
        if found is None:
            return value
        place = found[0]
        if self.stopped is not None or type(value) not in _READ:
            self.stop("a read gave something else than a number")
            return value
        return self._take_list(place, value) if type(value) is list else self.take(place, value)

    def read_array(self, array: Any) -> None:
        """An array was made of a tensor, maybe of numbers that were just read; C may have asked for it."""
        found, self._next = self._next, None
        if found is not None:
            self.take_array(found[0], array)
            self._passing.add(identity(base_of(array)))
            self.hand(array)

    def _take_list(self, place: NumberSource, values: list[Any]) -> list[Any]:
        """The call reads several numbers at once: a nested list of the objects that it gets instead."""
        key = place.address
        if key not in self._given:
            numbers = [*_leaves(values)]
            if any([each != each for each in numbers]):
                self.stopped = self.stopped or _NAN
            copies = [fresh(each) for each in numbers] if self.stopped is None else [None]
            if any([each is None for each in copies]):
                self.stopped = self.stopped or "no copy of a number can be made"
                return values
            known = self._given[key] = _nested(values, iter(copies))
            self._know_given(place, known, _nested(values, iter(numbers)), values)
            self._know_members(known, self._known[identity(known)][1], iter(numbers))
        return _nested(values, _leaves(self._given[key]))

    def _know_members(self, copies: list[Any], source: Expression, stands: Iterator[Any]) -> None:
        for index, copy in enumerate(copies):
            part = self._applied(FROM_TABLE, source, Fixed.of(index))
            if type(copy) is list:
                self._know_members(copy, part, stands)
            else:
                self._known[identity(copy)] = copy, part, next(stands)

    # ------------------------------------------------------------------ other looks

    def pin(self, *values: Any) -> None:
        """Somebody looks at numbers: their values are conditions."""
        for value in values:
            self.show(value)
            expression = self.expression(value)
            if expression is not None:
                self.outcomes.setdefault(expression, Fixed.of(value))

    def pin_computed(self, *operands: Any) -> None:
        """What was to compute operands at each replay does not: their values are conditions."""
        for each in operands:
            if type(each) is list:
                self.pin_computed(*each)
            elif type(each) is Computed:
                self.outcomes.setdefault(each.expression, Fixed.of(each.value))

    def ask(self, function: str, *operands: Any) -> None:
        """C compares numbers, or sees their difference alone: what comes out is a condition."""
        known = [self.expression(each) for each in operands]
        parts = [Fixed.of(each) if part is None else part for each, part in zip(operands, known, strict=True)]
        self.outcomes.setdefault(self._applied(function, *parts), Fixed.of(FUNCTIONS[function](*operands)))

    def pin_inside(self, *values: Any, objects: bool = False) -> bool:
        """Somebody compares, hashes or writes values, or looks into whatever they lead to (``objects``).

        What C tells apart by what it holds is looked into: containers, and classes that derive from them.

        Returns:
            False if they hold what was not looked into.
        """
        found, unknown = self._inside(values, objects=objects)
        self.pin(*found)
        return not unknown

    def _inside(self, values: Iterable[Any], *, objects: bool = False) -> tuple[list[Any], list[Any]]:
        """The numbers in values and their members, and what of these was not looked into."""
        left, unknown, met, found = list(values), list[Any](), set[int](), list[Any]()
        while left:
            value = left.pop()
            kind = type(value)
            if kind in KINDS or (kind in _MADE and self.expression(value) is not None):
                found.append(value)
                continue
            if kind in _DATA or identity(value) in met or (kind not in _CONTAINERS and is_data(value)):
                self.show(value)
                continue
            if kind not in _CONTAINERS and not (objects or is_told_by_content(kind)):
                unknown.append(value)
                continue
            met.add(identity(value))
            if len(met) > _MOST:
                self.stop("numbers may lie in one of many objects")
                return found, [value]
            parts = parts_of(value)
            if parts is None:
                unknown.append(value)
            left.extend(parts or ())
        return found, unknown

    def owe(self, *values: Any) -> None:
        """A function of PyTorch's gets numbers: what becomes no operand of an operation is looked at.

        Of other objects it may ask the members, of whatever class they are.
        """
        found, unknown = self._inside(values)
        for value in found:
            if self.expression(value) is not None:
                self.owed[identity(value)] = value
        sequences = [each for each in unknown if is_sequence(each)]
        if sequences and not self.pin_inside(*sequences, objects=True):
            self.stop("PyTorch is given a sequence, and may see numbers in it")

    def settle_owed(self) -> None:
        """The function has come to nothing that takes the numbers as operands."""
        self.leave_apart()
        if self.owed:
            self.pin(*self.take_owed())

    def take_owed(self, *some: Any) -> list[Any]:
        """The numbers that a function was given, or some of them, for one who knows what becomes of them."""
        taken = self.owed.keys() & set(map(identity, some)) if some else [*self.owed]
        owed = [self.owed.pop(each) for each in taken]
        if not self.owed:
            self.owed_in = None  # it keeps what its variables hold
        return owed

    def wait(self) -> None:
        """An array outside is written that may be followed in the next call: this one says nothing."""
        if self.stopped is None:
            self.stop("an array outside is written that is not followed")
            self.waits = self.stopped is not None

    def stop(self, why: str) -> None:
        """It is not known what looks at numbers, if there are any yet."""
        if self.stopped is None and self.follows and self.values:
            self.stopped = why

    # ------------------------------------------------------------------ the end

    def end(self) -> None:
        """The call is over: what follows is in what it leaves behind and returns."""
        self.drop_operands()
        self.leave_unseen()
        self.leave_handed()
        self.leave_iterated()
        self.leave_lengths()
        self.settle_owed()
        self.pin(*self.gathered.clear())
        self.ends = True

    def let_go(self) -> None:
        """It is known what the call returns: arrays of tensors that were read would keep those alive."""
        self._operands = None
        for key, (value, *_) in [*self._known.items()]:
            if type(value) is numpy.ndarray and identity(base_of(value)) in self._passing:
                del self._known[key]
        for each in self._passing:
            self._under.pop(each, None)
        for held in (self._passing, self._shown, self._stale):
            held.clear()

    def finish(self) -> Computation:
        """What a replay has to compute and to ask, on this way and on those of earlier calls."""
        kinds = {number: kind_of(value) for number, value in self.values.items()}
        self._computation.learn(
            FollowedCall(
                tuple(self.places),
                kinds,
                tuple(self._reads),
                self.outcomes,
                self.cells,
                tuple(self._steps),
                frozenset(self.taken),
                self._before_draws,
                {self._kept[which][1]: array for which, array in self.filled.items()},
                frozenset(self._ended),
            )
        )
        return self._computation

    def by_value(self) -> list[NumberSource]:
        """The places whose number itself is a condition."""
        if self.stopped is not None:
            return [self.places[number] for number in self.values] if self.stopped is not _NAN else []
        told = {tells(each) for each, value in self.outcomes.items() if value.kind not in TRUTHS}
        return [self.places[number] for number in self.values if number in told]

    @property
    def asks_alone(self) -> bool:
        """Whether there are conditions on numbers, each the outcome of a comparison, and none a value."""
        return bool(self.outcomes) and all([value.kind in TRUTHS for value in self.outcomes.values()])


def _leaves(value: Any) -> Iterator[Any]:
    """What lies in lists, tuples and dicts in each other."""
    if type(value) is dict:
        value = tuple(value.values())
    if type(value) not in _SEQUENCES and type(value) is not SliceForm:
        yield value
    else:
        for each in value:
            yield from _leaves(each)


def _nested(form: list[Any], values: Iterator[Any]) -> list[Any]:
    """A nested list of such a form with other values."""
    return [_nested(each, values) if type(each) is list else next(values) for each in form]


def _place_of(order: int, name: str = "", lines: Lines | None = None) -> NumberSource:
    """The place of the number that a call reads behind so many others."""
    return NumberSource(READ, None, order, name, lines)
