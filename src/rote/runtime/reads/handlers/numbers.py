"""What becomes of the numbers that a call is given: arithmetic is followed, every other look is an outcome.

Code of a call whose numbers are followed is instrumented once more: its notes come here first, and what they
are told goes to the ordinary notes before. These lay what is followed into the slot outside that is about to
be read (:meth:`..trace.outside.Outside.read`), so whoever reads there has it. Behind instructions that make a
number a function takes what they leave, and leaves the followed object for it.

A number may be seen in four ways. Instructions are told here, each. Functions of C are known to compute with
numbers (:data:`...numbers.CALLED`), to move them (:data:`_MOVES`), or belong to PyTorch, and then the
function mode of :mod:`...capture` says whether the number has become an operand. Any other function sees what
it is given: numbers in that are outcomes. Where it is given what may lead elsewhere, as a function of the
user's or an object, nothing is followed any more. Last, C takes numbers that Python code returns to it; so
what is yielded is an outcome, and what is returned by a method that C calls by its name.

What does not work: to exchange what an instruction has read behind it. C reads as well (``sum``, ``popleft``,
iteration), and each instruction that reads has to say under which key.
"""

from __future__ import annotations

import abc
import bisect
import builtins
import io
import itertools
import json
import operator
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import cache, partial, reduce
from inspect import CO_GENERATOR
from itertools import pairwise
from pathlib import Path
from string import Formatter
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any
from weakref import ReferenceType

import numpy
import torch

from ....base import identity, is_instance, is_own
from ...numbers import (
    BINARY,
    CALLED,
    COMPARED,
    FOLLOWED,
    FROM_TABLE,
    FUNCTION,
    IN_PLACE,
    ITEM,
    JOINED,
    JOINED_BY,
    KINDS,
    LENGTH,
    LOOKED_UP,
    METHOD,
    METHODS,
    NAME_OF,
    OF_MEMBERS,
    OF_TEXTS,
    OVER_ITEMS,
    ROW_LENGTH,
    STORED,
    STORED_ALONG,
    TELL_TIME,
    TEXTS,
    TRUTHS,
    UNARY,
    UNITS,
    UNITS_OF_MEMBERS,
    WRITE_AT,
    WRITES,
    WRITES_BY_NAME,
    Draw,
    TrackedNumbers,
    as_handed,
    can_be_filled,
    index_form,
    is_array,
    is_data,
    takes_names,
)
from ...objects import ARRAY_FACTS, base_of, is_of_pybind, is_standard, is_view, pointer_of
from ...pytorch import calls_python
from ...state import ITEM as STATE_ITEM
from ...state import PASSES_ON, PROFILE, get_profile, set_profile
from ..bytecode import CALLS, GIVES_ITEM, HANDS_ON, ITERATES, OPERATES, Around, entry_of
from ..table import NAMES, lookup
from ..trace import Trace
from .containers import OPERATORS_AS_METHODS, content, whole

_NUMBERS = KINDS | TRUTHS
_CONTAINERS = frozenset({list, tuple, set, frozenset, dict, slice})
_LOOKED_INTO = KINDS | TEXTS | _CONTAINERS
"""Types of what leaves Python code with numbers that C may look at."""
_KEEP_NUMBERS = frozenset({list, tuple, deque, type({}.values()), type(OrderedDict[Any, Any]().values())})
"""Containers whose members are numbers as they are, in an order that is theirs."""
_CONSTANTS = frozenset({bool, type(None)})
_JOINED = frozenset({list, tuple})
"""Containers whose sum holds what they hold."""
_WRITTEN = frozenset({int, float, bool, str, type(None)})
"""Types of what becomes text in one way only, whatever is set in Python or numpy."""
_MOST_WRITTEN, _DEEPEST_WRITTEN = 64, 4
"""Members of a container that is written as text, and how deep they may lie."""
_FIELD = re.compile(r"%\((\w+)\)[-#0 +]*\d*(?:\.\d+)?[diouxXeEfFgGcrsa]|%%|[^%]")
"""What a text consists of that takes what it writes from a dict."""
_NAME = re.compile(r"\w*")
"""What is written in a field of a format is the whole argument of such a name."""
_HARMLESS, _CODECS = (frozenset(NAMES[each]) for each in ("harmless_methods", "codecs"))
_WRITE_THEMSELVES = ("__format__", "__str__", "__repr__")
"""Methods by which objects write themselves as text; who lacks one has the next."""
_WRITTEN_BY: Mapping[Any, Sequence[str]] = {
    **{key: _WRITE_THEMSELVES for key in (format, "format")},
    **{key: _WRITE_THEMSELVES[1:] for key in (str, "str", "format str")},
    **{key: _WRITE_THEMSELVES[2:] for key in (repr, "repr", "format repr")},
}  # fmt: skip
"""Which of them a function asks, or an f-string with a conversion, and hands on what they give."""
_BUFFERS = frozenset({io.BufferedWriter, io.BufferedRandom, io.BytesIO, io.FileIO})
_OF_JSON = frozenset({"allow_nan", "check_circular", "ensure_ascii", "indent", "separators", "sort_keys"})
"""Settings of JSON that are data."""
_DRAWN_WITH = KINDS | _JOINED | {numpy.ndarray}
"""Types of what a draw is given that is computed again."""
_COMPUTED = _NUMBERS | TEXTS | {numpy.ndarray}
_GIVEN = _COMPUTED | {list, tuple, type(None)} | OVER_ITEMS
"""Types of what is changed where a call has given it."""
_STORES = frozenset({list, dict, OrderedDict, defaultdict})
"""Containers in which something may lie under a number that is computed."""
_MERGED = frozenset({dict, OrderedDict, defaultdict})
"""Containers that take over what another one holds."""
_LARGEST_TABLE = 4096
_TABLES, _TOLD = _JOINED | {dict}, _NUMBERS | TEXTS
"""Tables, and what may lie in one."""
_TENSORS = (torch.Tensor,)
_STOPS = frozenset({eval, exec, compile, dir, input, open, breakpoint})
"""Builtin functions that may see what they are not given."""
_C_FUNCTIONS = (
    BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, MethodWrapperType,
)  # fmt: skip
_GIVE_ONE = ("item", "tolist", "numpy", "__int__", "__float__")
"""Methods that read one number, a list or an array, and give that very object."""
_ASKING = (builtins.id, operator.is_, operator.is_not)
_IDENTITIES: Mapping[str, Any] = {each.__name__: each for each in _ASKING}
"""What tells objects apart that are equal."""
_OF_MEMORY = frozenset({
    torch.from_numpy, torch.Tensor, torch.FloatTensor, torch.DoubleTensor, torch.HalfTensor, torch.LongTensor,
    torch.IntTensor, torch.ShortTensor, torch.CharTensor, torch.ByteTensor, torch.BoolTensor,
})  # fmt: skip
"""What makes a tensor over the memory of an array, of which operations make one of another type."""
_CALLS_BACK = frozenset({"apply_", "map_", "map2_", "apply"})
"""Methods of PyTorch's that give numbers to a function of Python's and take what it returns."""
_OF_ITERTOOLS: tuple[type, ...] = (
    itertools.chain, itertools.islice, itertools.cycle, itertools.pairwise, itertools.product,
    itertools.zip_longest, itertools.combinations, itertools.permutations,
)  # fmt: skip
_HELD: tuple[Any, ...] = (
    (), [], {}, "", b"", bytearray(), set[Any](), frozenset[Any](), range(0), range(1 << 70), deque[Any](),
    OrderedDict[Any, Any](),
)  # fmt: skip
_VIEWS: tuple[Any, ...] = tuple(
    view for each in ({}, OrderedDict[Any, Any]()) for view in (each.keys(), each.values(), each.items())
)
_HOLD: frozenset[type] = frozenset(map(type, (*_HELD, *_VIEWS)))
"""Containers of C, and views of such."""
_HANDS_ON: frozenset[type] = frozenset({
    *_HOLD, *[type(iter(each)) for each in (*_HELD, *_VIEWS)],
    *[type(reversed(each)) for each in (*_HELD, *_VIEWS) if hasattr(type(each), "__reversed__")],
    GeneratorType, zip, enumerate, reversed, *_OF_ITERTOOLS, itertools.count, itertools.repeat,
})  # fmt: skip
"""Classes of C whose own way of iterating gives what they hold, and runs none but code that is followed."""

_CACHED: type = type(cache(lambda: None))
_COMPARE = frozenset({*_JOINED, dict, set, frozenset, Counter, OrderedDict, defaultdict, deque})
"""Containers that find a number by comparison alone, in a row or behind its hash."""
_MOST_COMPARED = 32
_PLACES = {bisect.bisect_right: ("<=", "<"), bisect.bisect_left: ("<", "<=")}
"""How what bisection finds compares with the numbers before and behind it."""

_OF_NUMPY: type = type(numpy.clip)
"""The type of numpy's functions in Python that others may replace for their own arrays."""
_IN_NUMPY = frozenset({numpy.ufunc, _OF_NUMPY, BuiltinFunctionType, FunctionType})
"""Types of numpy's functions."""
_OF_NUMBERS = (
    numpy.array, numpy.asarray, numpy.full, numpy.arange, numpy.linspace, numpy.logspace, numpy.geomspace,
)  # fmt: skip
"""Functions of numpy's that make an array of numbers of Python's."""
_FIELDS_OF_C = (MemberDescriptorType, GetSetDescriptorType)
_NOTHING: frozenset[int] = frozenset()
_ABSTRACT: Any = abc.ABCMeta.__instancecheck__
"""Asks a function in C, which has no public name."""
_EVERY = range(1 << 16)
_ERRORS = [
    each for each in vars(builtins).values()
    if isinstance(each, type) and issubclass(each, BaseException)
    and (each is BaseException or not any([isinstance(own, _FIELDS_OF_C) for own in vars(each).values()]))
]  # fmt: skip
"""Classes of exceptions that keep what they are called with, and make nothing of it."""
_HOLD_ALL: frozenset[Any] = frozenset({
    ReferenceType.__new__, ReferenceType.__init__,
    *[vars(each)[name] for each in _ERRORS for name in ("__new__", "__init__") if name in vars(each)],
})  # fmt: skip
"""What makes weak references and exceptions."""
_MOVES: Mapping[Any, Container[int]] = {
    isinstance: frozenset({0}), issubclass: _NOTHING, callable: frozenset({0}), type: frozenset({0}),
    getattr: frozenset({2}), vars: _NOTHING, hasattr: _NOTHING, setattr: frozenset({2}), delattr: _NOTHING,
    super: _NOTHING, object: _NOTHING, property: _NOTHING, staticmethod: _NOTHING, classmethod: _NOTHING,
    list.append: frozenset({1}), list.insert: frozenset({2}), list.pop: _NOTHING, list.copy: _NOTHING,
    list.reverse: _NOTHING, list.clear: _NOTHING, dict.get: frozenset({2}), dict.setdefault: frozenset({2}),
    dict.pop: frozenset({2}), dict.keys: _NOTHING, dict.values: _NOTHING, dict.items: _NOTHING, dict.copy:
    _NOTHING, dict.clear: _NOTHING, object.__setattr__: frozenset({2}), object.__getattribute__: _NOTHING,
    object.__new__: frozenset({1, 2, 3, 4}), type.__instancecheck__: frozenset({1}), type.__subclasscheck__:
    _NOTHING, object.__init__: _NOTHING, object.__init_subclass__: _NOTHING, OrderedDict.values: _NOTHING,
    OrderedDict.items: _NOTHING, OrderedDict.keys: _NOTHING, OrderedDict.copy: _NOTHING, deque.append:
    frozenset({1}), _ABSTRACT.__globals__["_abc_instancecheck"]: frozenset({1}),
    _ABSTRACT.__globals__["_abc_subclasscheck"]: _NOTHING,
    list.__getitem__: _NOTHING, slice: _EVERY, partial: _EVERY, itertools.repeat: frozenset({0}),
    ContextVar.get: frozenset({1}), ContextVar.set: frozenset({1}), deque.appendleft: frozenset({1}),
    deque.pop: _NOTHING, deque.popleft: _NOTHING, deque.clear: _NOTHING,
    deque.copy: _NOTHING, deque.__getitem__: _NOTHING, deque.reverse: _NOTHING, deque.rotate: _NOTHING,
    dict.popitem: _NOTHING, OrderedDict.popitem: _NOTHING, OrderedDict.pop: frozenset({2}),
    OrderedDict.clear: _NOTHING, OrderedDict.setdefault: frozenset({2}), OrderedDict.move_to_end: _NOTHING,
    set.copy: _NOTHING, set.clear: _NOTHING, set.pop: _NOTHING, frozenset.copy: _NOTHING,
    ContextVar.reset: frozenset({1}), dict.__setitem__: frozenset({2}),
    OrderedDict.__setitem__: frozenset({2}),
    dict.__getitem__: _NOTHING, dict.__contains__: _NOTHING,
    type({}.keys()).__contains__: _NOTHING, FunctionType.__get__: frozenset({0, 1, 2}),
    MethodType: _EVERY, **dict.fromkeys(_HOLD_ALL, _EVERY),
}  # fmt: skip
"""Functions that look at none of the arguments at these places, and call no code that is not followed."""
_ITERATES = frozenset({
    list, tuple, zip, enumerate, iter, next, reversed, list.extend, deque, deque.extend, deque.extendleft,
    *_OF_ITERTOOLS,
})  # fmt: skip
"""Functions that hand on what they iterate, and look at none of it."""
_GIVES_ITEMS = frozenset({list, tuple, zip, enumerate})
"""Those whose result goes over the numbers of an array, or holds them."""
_TAKE = frozenset({list, tuple, next})
"""Functions that keep what a generator gives, or hand it on."""
_MAKES_EMPTY = frozenset({
    object.__new__, object.__init__, dict.__new__, OrderedDict.__new__, list.__new__, set.__new__,
    SimpleNamespace.__new__, *_HOLD_ALL,
})  # fmt: skip
"""What makes objects, and looks at no argument."""
_MADE_AS: Mapping[Any, type] = {
    list.__init__: list, tuple.__new__: tuple, deque.__init__: deque, set.__init__: set,
    frozenset.__new__: frozenset, dict.__init__: dict, OrderedDict.__init__: OrderedDict,
    SimpleNamespace.__init__: dict,
}  # fmt: skip
"""What fills an object with what its class is called with, behind the object or the class."""
_COMPARES = frozenset({
    set.add, set.discard, set.remove, hash, list.index, list.count, list.remove, deque.index, deque.count,
    deque.remove,
})  # fmt: skip
"""Functions that hash what they are given, or ask whether it is equal to something."""
_CONSUMES = frozenset({any, all, sum, set, frozenset, set.update})
"""Functions that look at what they iterate."""
_LOOK_ALONE = (int, float, bool, str, bytes, tuple, list, set, frozenset, len, ord, abs, repr)
"""Classes and functions that look at what they are given, as C does; code that they run is followed."""
_FILLS = frozenset({dict, OrderedDict, dict.update, OrderedDict.update, dict.__ior__})
"""Functions that take over what a mapping holds, and look at pairs."""
_ANY = 0
"""Stands for the code of every function: what is called hands on what any code gives that it runs."""
_GIVES_ATTRIBUTES = frozenset({getattr, object.__getattribute__})
"""Functions that hand on what code gives that they run for an attribute."""
_SLOTS_OF_C = frozenset({
    "__call__", "__getattr__", "__getattribute__", "__getitem__", "__get__", "__enter__", "__missing__",
    "__init__",
})  # fmt: skip
"""Methods whose result C hands on as it is."""

_TOLD_AS_THEY_LEAVE = frozenset({*_WRITE_THEMSELVES, "__len__"})
"""Methods whose result is told as it leaves them, since C may hand it on."""
_TOLD_BEFORE = frozenset({
    "BINARY_SUBSCR", "BINARY_SLICE", "IS_OP", "FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC",
    "CONVERT_VALUE", "BUILD_STRING",
})  # fmt: skip
"""Instructions of which the note says what they compute."""

_UNPACKS, _GIVE = ("UNPACK_SEQUENCE", "UNPACK_EX"), ("CALL", "CALL_KW", "CALL_FUNCTION_EX")
_LEAVE = ("YIELD_VALUE", "RETURN_VALUE", "GET_ITER", "BINARY_OP", "COMPARE_OP")
_SURROUNDED = _TOLD_BEFORE.union(_UNPACKS, _GIVE, _LEAVE, UNARY)
"""Instructions of whose operands or results more is to be known than their notes are told."""

_RUNTIME = str(Path(__file__).parents[2])
"""Where code lies that stands around a traced call, and looks at no object of the user's for a number."""

Handler = Callable[..., None]


class TrackingNotes:
    """The notes of code whose numbers are followed: an attribute for each note, and what is called around."""

    def __init__(self, notes: Any, names: Iterable[str]) -> None:
        self._trace: Callable[[], Trace | None] = notes.trace
        self._gather = notes.gather
        for name in names:
            told = _HANDLERS.get(name, _looked_at), getattr(notes, name)
            setattr(self, name, notes.write("*given", self._told, told))
        unpacks = dict.fromkeys(_UNPACKS, self._iterates).get
        self.around = Around(_SURROUNDED, self._before, unpacks, self._behind, changed=_GIVEN)

    def _numbers(self) -> TrackedNumbers | None:
        trace = self._trace()
        numbers = trace.numbers if trace is not None else None
        return numbers if numbers is not None and numbers.follows and numbers.stopped is None else None

    def _told(self, told: tuple[Handler, Callable[..., None]], trace: Trace, *given: Any) -> None:
        """An instruction is told: by the handler of its note here, and by the ordinary note."""
        numbers, (handler, original) = trace.numbers, told
        if numbers is None or not numbers.follows:
            original(*given)
        elif numbers.stopped is not None:  # but their copies are there still
            if handler is _same:
                _identified(numbers, operator.is_, given)
            elif handler is _called and type(given[1]) is BuiltinFunctionType:
                _identified(numbers, given[1], given[2:])
            original(*given)
        elif not numbers.at_work:  # else a note runs code of the standard library that is instrumented, too
            if numbers.drawing is not None:
                if _is_below(numbers.drawing[1]) and trace.running.frame() is not numbers.drawing[1]:
                    original(*given)
                    return
                numbers.leave_apart()
            if numbers.owed and not _is_below(numbers.owed_in):
                numbers.settle_owed()
            if numbers.computes_next:
                numbers.drop_operands()
            if numbers.iterated:
                numbers.leave_iterated()
            if numbers.lengths:
                numbers.leave_lengths()
            if numbers.asks_length and self._asks(numbers):
                numbers.take_answer(None)
            if numbers.handed:
                numbers.leave_handed()
            if numbers.gathered:
                numbers.leave_gathered(trace.running.frame())
            numbers.at_work = True
            try:
                original(*given)  # what it finds outside to be followed lies there from now on
                # what looks at an array may go on doing so once that is followed
                if numbers.values or handler not in _ASK_OF_KNOWN or numpy.ndarray in map(type, given):
                    handler(trace, numbers, *given)
            except Exception as error:  # it must not reach the user's call
                numbers.stop(f"a note failed: {error!r}")
            finally:
                numbers.at_work = False

    def _before(self, name: str, code: str) -> Callable[[Any], None] | None:
        """What is told a value that leaves Python code for C, or that C hashes."""
        method = code.startswith("__") and code.endswith("__") and code not in _SLOTS_OF_C
        if name == "YIELD_VALUE":
            return self._yields
        if name == "RETURN_VALUE" and code in _WRITE_THEMSELVES:
            return self._writes
        if name == "RETURN_VALUE" and code == "__len__":
            return self._counts
        return self._leaves if name == "RETURN_VALUE" and method else None

    def gather(self, args: Any) -> Callable[[], Any]:
        """See :meth:`.notes.Notes.gather`: C takes what is spread into arguments."""
        numbers, trace = self._numbers(), self._trace()
        if numbers is not None and trace is not None:
            _unprofiled(_begin_call, trace, numbers)
            _unprofiled(_iterated, trace, numbers, (args,))
        return self._gather(args)

    def _yields(self, value: Any) -> None:
        numbers, trace = self._numbers(), self._trace()
        frame = trace.running.frame() if trace is not None else None
        if numbers is None or (numbers.gathered and numbers.gives(frame, value)):
            return
        if type(value) in _LOOKED_INTO or is_instance(value, (tuple, list, set, frozenset, dict)):
            numbers.pin_inside(value)

    def _writes(self, value: Any) -> None:
        numbers, trace = self._numbers(), self._trace()
        frame = trace.running.frame() if trace is not None else None
        if numbers is None or frame is None or not numbers.gathered.is_written(frame.f_back):
            self._leaves(value)

    def _counts(self, value: Any) -> None:
        numbers, trace = self._numbers(), self._trace()
        frame = trace.running.frame() if trace is not None else None
        if numbers is None or frame is None or not numbers.answers_length(frame.f_back, value):
            self._leaves(value)

    def _leaves(self, value: Any) -> None:
        numbers = self._numbers()
        if numbers is not None and type(value) in _LOOKED_INTO:
            numbers.pin_inside(value)

    def _behind(self, name: str) -> Callable[[Any], Any] | None:
        """What takes the value that an instruction leaves."""
        kind, _, operator = name.partition(" ")
        if kind in _GIVE:
            return self._given
        if kind == "GET_ITER":
            return self._iterates
        if kind in _TOLD_BEFORE:
            return partial(self._computed, "")
        if kind == "BINARY_OP" and operator.removeprefix("INPLACE_") in BINARY:
            return partial(self._computed, operator.removeprefix("INPLACE_"))
        if (kind == "COMPARE_OP" and operator in COMPARED) or kind in UNARY:
            return partial(self._computed, operator or kind)
        return None

    def _given(self, value: Any) -> Any:
        """What a call has given: what is drawn, or computed."""
        numbers = self._numbers()
        if numbers is not None and numbers.asks_length and self._asks(numbers):
            return numbers.take_answer(value)
        if numbers is not None and numbers.handed:
            numbers.arrive(value)
        if numbers is not None and numbers.drawing is not None:
            trace = self._trace()
            here = trace is not None and trace.running.frame() is numbers.drawing[1]
            return _unprofiled(numbers.take_drawn, value) if here else value
        if numbers is not None and numbers.gathered and (trace := self._trace()) is not None:
            value = _unprofiled(numbers.take_gathered, trace.running.frame(), value)
        if numbers is not None and numbers.iterated:
            return _unprofiled(numbers.take_iterated, value)
        return self._computed("", value)

    def _asks(self, numbers: TrackedNumbers) -> bool:
        """Whether the present frame has asked an object how long it is."""
        trace = self._trace()
        return trace is not None and numbers.asks_length == identity(trace.running.frame())

    def _iterates(self, value: Any) -> Any:
        """What goes over an array that is followed."""
        numbers = self._numbers()
        return (
            _unprofiled(numbers.take_iterated, value) if numbers is not None and numbers.iterated else value
        )

    def _computed(self, function: str, value: Any) -> Any:
        return _unprofiled(self._result, function, value) if type(value) in _COMPUTED else value

    def _result(self, function: str, value: Any) -> Any:
        trace = self._trace()
        numbers = trace.numbers if trace is not None else None
        found = numbers.take_operands() if numbers is not None else None
        if numbers is None or found is None:
            return value
        name, operands = found
        if name in _IDENTITIES:
            return _told_apart(numbers, _IDENTITIES[name], operands, value)
        if bool(name) is bool(function):  # of calls the note says which function it is, and of them alone
            return value
        return numbers.compute(name or function, numbers.with_handed(operands), value)


def _unprofiled(function: Callable[..., Any], *args: Any) -> Any:
    """What is done with what was given is none of the call's."""
    profiler = get_profile()
    if type(profiler) is not MethodType or profiler.__func__ is not PROFILE:
        return function(*args)
    set_profile(None)
    try:
        return function(*args)
    finally:
        set_profile(profiler)


def _is_below(frame: FrameType | None) -> bool:
    """Whether code runs that a frame has called."""
    at = sys._getframe(3).f_back  # pyright: ignore[reportPrivateUsage]
    while at is not None and at is not frame:
        at = at.f_back
    return at is not None


# ---------------------------------------------------------------------- what instructions do


def _looked_at(trace: Trace, numbers: TrackedNumbers, *given: Any) -> None:
    """The instruction may look at all that it is given."""
    numbers.pin_inside(*given)


def _moved(trace: Trace, numbers: TrackedNumbers, *given: Any) -> None:
    """The instruction hands on what it is given."""


def _iterates(trace: Trace, numbers: TrackedNumbers, value: Any) -> None:
    """The instruction hands on what it iterates; what is iterated may compute that in C."""
    if numbers.follows_items(value):
        numbers.iterated = (value,)
        return
    _iterated(trace, numbers, (value,))
    if type(value) is GeneratorType:
        _gather(trace, numbers, "", value)


def _attribute(trace: Trace, numbers: TrackedNumbers, name: str, owner: Any) -> None:
    if type(owner) not in FOLLOWED:
        return
    is_fact = type(owner) is numpy.ndarray and name in ARRAY_FACTS
    if type(lookup.find(type(owner), name).value) is not MethodDescriptorType and not is_fact:
        numbers.pin(owner)  # of a method its call tells


def _item(trace: Trace, numbers: TrackedNumbers, owner: Any, key: Any) -> None:
    if type(owner) is numpy.ndarray:
        key = as_handed(key, lambda end: is_instance(end, _TENSORS))
    if is_instance(owner, _TENSORS):
        _owe(trace, numbers, key)
    elif type(owner) in TEXTS:
        numbers.pin_inside(owner, key)
    elif type(owner) is numpy.ndarray and (numbers.holds_array((owner, key)) or numbers.leads(key)):
        form = index_form(key) if is_array(owner) else None
        if form is not None and numbers.expression(owner) is None:
            content(trace, owner)
            numbers.pick_from(owner)
        numbers.pin_inside(owner, key) if form is None else numbers.compute_next(ITEM, (owner, form))
    elif numbers.expression(key) is not None and _is_table(trace, numbers, owner):
        numbers.compute_next(FROM_TABLE, (owner.copy() if type(owner) is not tuple else owner, key))
    elif is_instance(key, _TENSORS) and type(owner) in _JOINED and _is_table(trace, numbers, owner):
        numbers.look_up_next(tuple(owner))  # C asks the tensor for its number
    elif not numbers.takes_index(key):
        numbers.pin_inside(key)
        if type(owner) is numpy.ndarray and is_view(owner, key):
            numbers.show(owner)


def _is_table(trace: Trace, numbers: TrackedNumbers, owner: Any) -> bool:
    """Whether something has few numbers and texts, none of which is followed: then it is read as a whole."""
    if type(owner) is numpy.ndarray:
        fits = owner.ndim == 1 and owner.size <= _LARGEST_TABLE and not owner.dtype.hasobject
    else:
        parts = itertools.chain(owner, owner.values()) if type(owner) is dict else owner
        fits = type(owner) in _TABLES and len(owner) <= _LARGEST_TABLE and _are_fixed(numbers, parts, _TOLD)
    if fits:
        content(trace, owner)
    return fits


def _is_looked_up(trace: Trace, numbers: TrackedNumbers, owner: Any, key: Any, instead: Any = None) -> bool:
    """Whether it is followed what a table has for a key, or has something in its place for."""
    plain = instead is None or type(instead) in _TOLD
    return plain and numbers.expression(key) is not None and _is_table(trace, numbers, owner)


def _sliced(trace: Trace, numbers: TrackedNumbers, owner: Any, start: Any, end: Any) -> None:
    """Python 3.12 makes no slice of two bounds."""
    _item(trace, numbers, owner, slice(start, end))


def _store_slice(trace: Trace, numbers: TrackedNumbers, new: Any, owner: Any, start: Any, end: Any) -> None:
    _store_item(trace, numbers, new, owner, slice(start, end))


def _store_item(trace: Trace, numbers: TrackedNumbers, new: Any, owner: Any, key: Any) -> None:
    if is_instance(owner, _TENSORS):
        _owe(trace, numbers, new, key)
    elif type(owner) is numpy.ndarray:
        _put(trace, numbers, STORED, owner, key, new)
    else:
        if not _stores_under(trace, numbers, owner, key):
            numbers.pin_inside(key)
        _given_to_container(numbers, owner, "__setitem__", new)


def _stores_under(trace: Trace, numbers: TrackedNumbers, owner: Any, key: Any) -> bool:
    """Whether replays can store something under a key that they compute."""
    kind = type(owner)
    if type(key) not in (int, str) or numbers.expression(key) is None or kind not in _STORES:
        return False
    if kind is list and not 0 <= key < len(owner):
        return False
    before = trace.writes.length_before(owner)
    if before is not None:  # what the call has added itself
        length = numbers.measured(owner) if key >= before else None
        if length is not None:
            numbers.ask("==", key, numbers.compute("ADD", (length[1][0], key - before), key + 0))
        return length is not None
    if not trace.writes.store(owner, key):
        return False
    if kind is list:
        length = numbers.measured(owner)
        numbers.ask("<=", 0, key)
        numbers.ask("<", key, numbers.compute(*length, len(owner)) if length is not None else len(owner))
    return True


def _delete_item(trace: Trace, numbers: TrackedNumbers, owner: Any, key: Any) -> None:
    numbers.pin_inside(key)
    _given_to_container(numbers, owner, "__delitem__", owner)


def _given_to_container(numbers: TrackedNumbers, owner: Any, name: str, given: Any) -> None:
    """A container may look at what an instruction gives it, unless it is of C or its code is followed."""
    method = lookup.find(type(owner), name).value
    if type(method) is not FunctionType and getattr(method, "__objclass__", None) not in _HOLD:
        numbers.pin_inside(given)


def _put(trace: Trace, numbers: TrackedNumbers, function: str, array: Any, key: Any, new: Any) -> None:
    """Something is put into an array."""
    form = index_form(key) if type(array) is numpy.ndarray else None
    if form is None or not _follows_writes(trace, numbers, function, array, form, new):
        _written(numbers, array)
        numbers.pin_inside(key, new)


def _follows_writes(trace: Trace, numbers: TrackedNumbers, function: str, array: Any, *operands: Any) -> bool:
    """Whether it is followed what an array holds that the call has made, once it is written."""
    base = base_of(array) if type(array) is numpy.ndarray else array
    known = trace.outside.has(base) or trace.outside.is_tensors(array)
    if trace.outside.has(base) and not numbers.keeps(base) and can_be_filled(base):
        numbers.wait()
    return (not known or numbers.keeps(base)) and numbers.write(function, array, *operands)


def _store_attribute(trace: Trace, numbers: TrackedNumbers, name: str, new: Any, owner: Any) -> None:
    if isinstance(lookup.find(type(owner), name).value, GetSetDescriptorType):
        if type(owner) is numpy.ndarray:
            _written(numbers, owner)
        numbers.pin_inside(new)


def _binary(trace: Trace, numbers: TrackedNumbers, operator: str, one: Any, other: Any) -> None:
    if operator.startswith("INPLACE_") and type(one) is numpy.ndarray:
        if operator not in IN_PLACE or not _follows_writes(trace, numbers, operator, one, other):
            _written(numbers, one)
            numbers.pin_inside(other)
        return
    texts = _text_of(numbers, operator.removeprefix("INPLACE_"), one, other)
    if texts is not None:
        numbers.compute_next("", texts)
        return
    if _answers_by_code(operator, one, other):
        return
    joined = operator.endswith("ADD") and type(one) in (*_JOINED, deque) and type(other) in _JOINED
    merged = operator.endswith("OR") and type(one) in _MERGED and type(other) in _MERGED
    if not joined and not merged:
        _operands(trace, numbers, (one, other))


def _answers_by_code(operator: str, one: Any, other: Any) -> bool:
    """Whether two named tuples of one class have an operator in Python: its code is followed."""
    kind, name = type(one), OPERATORS_AS_METHODS.get(operator.removeprefix("INPLACE_"))
    if name is None or type(other) is not kind or not issubclass(kind, tuple):
        return False
    own, in_place = [lookup.find(kind, f"__{each}__").value for each in (name, f"i{name}")]
    return type(own) is FunctionType and (type(in_place) is FunctionType or in_place is lookup.MISSING)


def _text_of(numbers: TrackedNumbers, operator: str, text: Any, other: Any) -> tuple[Any, Any] | None:
    """A text, and what is written in one way only, of which an operator makes another text."""
    if type(text) is not str:
        return None
    if operator == "ADD":
        return (text, other) if type(other) is str else None
    if operator != "REMAINDER":
        return None
    if type(other) is dict and numbers.expression(text) is None and _FIELD.sub("", text) == "":
        names = {each: None for each in _FIELD.findall(text) if each}
        other = {each: other[each] for each in names if each in other}  # C looks at no other
    return (text, other) if _is_written(other) else None


def _is_written(value: Any, deep: int = _DEEPEST_WRITTEN) -> bool:
    """Whether a value becomes text in one way only: a number, a text, or a container of Python's of such."""
    if type(value) is dict:
        value = [*value, *value.values()]
    if type(value) not in _JOINED:
        return type(value) in _WRITTEN
    return deep > 0 and len(value) <= _MOST_WRITTEN and all([_is_written(each, deep - 1) for each in value])


def _formatted(trace: Trace, numbers: TrackedNumbers, how: str, value: Any, *form: Any) -> None:
    """An f-string writes a value; ``n`` in a format asks the locale."""
    if _is_written(value) and not any(["n" in each for each in form]):
        numbers.compute_next(how, (value, *form))
        return
    known = numbers.pin_inside(value, *form)
    if not any(form) and _writes_itself(type(value), _WRITTEN_BY.get(how, ())):
        _have_written(trace, numbers)
    elif not known and not _writes_itself(type(value), _WRITE_THEMSELVES, alone=False):
        numbers.stop(f"a {type(value).__name__} is written as text by C")


def _have_written(trace: Trace, numbers: TrackedNumbers) -> None:
    """An object writes itself as text, which C hands on as it is."""
    if (caller := trace.running.frame()) is not None:
        numbers.gathered.write(caller)


def _writes_itself(kind: type, names: Sequence[str], *, alone: bool = True) -> bool:
    """Whether Python code, which is followed, writes an object as text; or ``object``, if not ``alone``."""
    found = [lookup.find(kind, name) for name in names]
    own = next((each.value for each in found if each.owner is not object), None)
    return not alone if own is None else type(own) is FunctionType


def _joined(trace: Trace, numbers: TrackedNumbers, *texts: Any) -> None:
    numbers.compute_next(JOINED, texts)


def _written(numbers: TrackedNumbers, array: Any) -> None:
    """An array is written."""
    if numbers.has_arrays and numbers.arrays_over(pointer_of(array)):
        numbers.stop("an array is written that is followed")


def _compare(trace: Trace, numbers: TrackedNumbers, one: Any, other: Any) -> None:
    if type(one) is type(other) and _is_row(one) and _is_row(other):
        numbers.compute_next("", (one, other))
    else:
        _operands(trace, numbers, (one, other))


def _is_row(value: Any) -> bool:
    """Whether something is a list or a tuple of few numbers and texts: they are compared one by one."""
    fits = type(value) in (list, tuple) and len(value) <= _MOST_COMPARED
    return fits and all([type(each) in _NUMBERS or type(each) in _WRITTEN for each in value])


def _unary(trace: Trace, numbers: TrackedNumbers, value: Any) -> None:
    _operands(trace, numbers, (value,))


def _operands(trace: Trace, numbers: TrackedNumbers, operands: tuple[Any, ...]) -> None:
    """Numbers are computed with; a tensor's operand may become one of an operation."""
    if any([is_instance(each, _TENSORS) for each in operands]):
        _owe(trace, numbers, *operands)
    elif all([type(each) in _NUMBERS or is_array(each) for each in operands]):
        numbers.compute_next("", operands)
    elif not numbers.pin_inside(*operands) and any(
        [numbers.expression(each) is not None for each in operands]
    ):
        numbers.stop("a number is an operand of an object")


def _truth(trace: Trace, numbers: TrackedNumbers, value: Any) -> None:
    if type(value) in _CONSTANTS:
        return
    if (found := numbers.measured(value)) is not None:
        value = numbers.compute(*found, len(value))
    if numbers.expression(value) is not None:
        numbers.compute("bool", (value,), bool(value))
    else:
        numbers.pin(value)  # what its methods return is told where they do


def _length(trace: Trace, numbers: TrackedNumbers, value: Any) -> None:
    numbers.pin(value)


def _contains(trace: Trace, numbers: TrackedNumbers, key: Any, owner: Any) -> None:
    if _may_be_among(numbers, key, owner):
        whole(trace, owner)
        for each in owner:
            numbers.ask("==", each, key)
        return
    if type(key) is str and type(owner) is dict and numbers.expression(key) is None:
        return
    # What lies in a hashed container as a key was hashed before.
    numbers.pin_inside(key)
    asked = lookup.find(type(owner), "__contains__").value
    if type(asked) is not FunctionType and not issubclass(type(owner), (dict, set)):
        _consumed(numbers, [owner])


def _may_be_among(numbers: TrackedNumbers, key: Any, owner: Any) -> bool:
    """Whether a number that is followed is looked for among a few that are not, by comparison with each."""
    if type(key) not in _NUMBERS or key != key or numbers.expression(key) is None:
        return False
    return type(owner) in _COMPARE and len(owner) <= _MOST_COMPARED and _are_fixed(numbers, owner)


def _same(trace: Trace, numbers: TrackedNumbers, one: Any, other: Any) -> None:
    if type(one) in FOLLOWED or type(other) in FOLLOWED:
        _identified(numbers, operator.is_, (one, other))


def _pairs(trace: Trace, numbers: TrackedNumbers, *given: Any) -> None:
    numbers.pin_inside(*given[::2])


def _hashed(trace: Trace, numbers: TrackedNumbers, value: Any) -> None:
    _consumed(numbers, [value])


def _given_back(trace: Trace, numbers: TrackedNumbers, value: Any) -> None:
    """Code gives a value back, perhaps to C; numbers of methods that C calls by their names are looked at."""
    if value is None or is_instance(value, _TENSORS):
        return
    frame = trace.running.frame()
    if frame is None or frame.f_code.co_flags & CO_GENERATOR or _hands_back(trace, numbers, frame):
        return
    if frame.f_code.co_name not in _TOLD_AS_THEY_LEAVE:
        numbers.pin_inside(value, objects=type(value) in _HANDS_ON)


def _begin_call(trace: Trace, numbers: TrackedNumbers) -> None:
    """Code is about to call something: nobody's results are handed on to it yet."""
    numbers.entered[identity(trace.running.frame())] = set()


def _enter(trace: Trace, numbers: TrackedNumbers, code: CodeType | None) -> None:
    """A call gets what code gives that it enters, or any (None)."""
    which = _ANY if code is None else identity(trace.running.swaps.original(code))
    numbers.entered.setdefault(identity(trace.running.frame()), set()).add(which)


def _hands_back(trace: Trace, numbers: TrackedNumbers, frame: FrameType) -> bool:
    """Whether nobody looks at what a frame is about to give back, until other code is told of it."""
    caller, name = frame.f_back, frame.f_code.co_name
    if caller is None or not trace.running.swaps.is_instrumented(caller.f_code):
        return True
    by, which = entry_of(caller), identity(trace.running.swaps.original(frame.f_code))
    if by == CALLS:
        known = numbers.entered.get(identity(caller), ())
        return _ANY in known or which in known
    if by == ITERATES:
        return numbers.mapped.get(which, False)
    asks = by in (GIVES_ITEM, OPERATES) and name in ("__getitem__", "__missing__")
    operates = by == OPERATES and name.startswith("__") and name != "__index__"
    return by == HANDS_ON or asks or operates


def _called(trace: Trace, numbers: TrackedNumbers, names: tuple[str, ...], function: Any, *args: Any) -> None:
    _begin_call(trace, numbers)
    _call(trace, numbers, function, args, names)


def _called_spread(
    trace: Trace, numbers: TrackedNumbers, function: Any, args: Any, kwargs: Any = None
) -> None:
    _begin_call(trace, numbers)
    if type(args) not in (tuple, list) or type(kwargs) not in (dict, type(None)):
        numbers.stop("a function is called with arguments that are not there yet")
        return
    named = kwargs or {}
    _call(trace, numbers, function, (*args, *named.values()), tuple(named))


_HANDLERS: dict[str, Handler] = {
    "attribute": _attribute, "item": _item, "store_item": _store_item, "delete_item": _delete_item,
    "sliced": _sliced,
    "store_slice": _store_slice,
    "store_attribute": _store_attribute, "binary": _binary, "compare": _compare, "unary": _unary,
    "truth": _truth, "length": _length, "contains": _contains, "same": _same, "pairs": _pairs,
    "text": _formatted, "joined": _joined, "call": _called, "call_spread": _called_spread,
    "iterate": _iterates, "advance": _iterates, "hashed": _hashed, "given_back": _given_back,
    **dict.fromkeys((
        "name", "cell", "enter", "merged", "imported", "super_attribute", "store_name",
        "delete_name", "store_cell", "delete_cell", "delete_attribute", "bounds",
    ), _moved),
}  # fmt: skip
_ASK_OF_KNOWN = frozenset({
    _looked_at, _moved, _attribute, _store_attribute, _store_item, _delete_item, _binary, _compare, _unary,
    _truth, _length, _contains, _same, _pairs, _joined, _given_back, _hashed,
})  # fmt: skip
"""Handlers that do nothing as long as nothing is followed."""


# ---------------------------------------------------------------------- what calls do


def _call(
    trace: Trace, numbers: TrackedNumbers, function: Any, args: tuple[Any, ...], names: tuple[str, ...]
) -> None:
    """Something is called; the last ones of the arguments have names."""
    kind = type(function)
    if (
        kind is FunctionType
        and not numbers.has_arrays
        and function is not json.dumps
        and function not in NAME_OF
    ):
        numbers.asks_for_one = False
        _into_python(trace, numbers, function, args)
        return
    named = len(names)
    numbers.asks_for_one = _gives_one(function)
    draw = _draw_of(function, args, names) if numbers.draws else None
    if draw is not None and trace.outside.has_generator(draw.generator):
        for each in args if (draw.args or draw.named) and not draw.orders else ():
            whole(trace, each)
            known = type(each) in _DRAWN_WITH and not draw.fills
            if not (known and numbers.is_found_at_once(each)):
                numbers.pin_inside(each)
        filled = args[0] if draw.fills else None
        if filled is None or not trace.outside.has(filled):
            numbers.draw_next(draw, args, trace.running.frame(), filled)
        return
    if numbers.clock and type(function) is BuiltinFunctionType and function in TELL_TIME:
        numbers.read_clock(function, trace.running.frame())
        return
    applied = _on_arrays(function, args, names)
    if applied is not None:
        numbers.computes_apart(*applied, trace.running.frame())
        return
    if _is_shown(trace, numbers, function, args, names) or _writes_by_name(
        trace, numbers, function, args, names
    ):
        return
    if type(function) is MethodType:
        function, args = function.__func__, (function.__self__, *args)
    if is_of_pybind(function) and not is_instance(function, _C_FUNCTIONS):
        function = function.__func__
    if type(function) is partial:
        bound = function.keywords
        _call(trace, numbers, function.func, (*function.args, *args, *bound.values()), (*names, *bound))
    elif type(function) is FunctionType:
        _into_python(trace, numbers, function, args)
    elif numbers.has_arrays and [*map(type, args)] == [numpy.ndarray] and _is_of_memory(function):
        numbers.show(args[0])  # the tensor is met with its memory
    elif is_instance(function, type):
        _construct(trace, numbers, function, args, named)
    elif is_instance(function, _C_FUNCTIONS) or type(function) is numpy.ufunc:
        _into_c(trace, numbers, function, args, named)
    elif function is numpy.put_along_axis and len(args) == 4 and not named:
        array, *operands = args
        if not _follows_writes(trace, numbers, STORED_ALONG, array, *operands):
            _written(numbers, array)
            numbers.pin_inside(*operands)
    elif type(function) is _OF_NUMPY and not named and _is_unit(trace, numbers, function, args):
        return
    else:
        cached = function.__wrapped__ if type(function) is _CACHED else None
        found = lookup.find(type(function), "__call__").value
        if type(function) is ReferenceType:  # it gives what it refers to, and looks at nothing
            return
        if type(cached) is FunctionType:  # what it is given is hashed
            numbers.pin_inside(*args)
            _into_python(trace, numbers, cached, args)
        elif type(found) is FunctionType and type(function) is not torch.jit.ScriptFunction:
            _into_python(trace, numbers, found, args)
        else:
            _unknown(trace, numbers, function, args if _has_none(function) else (function, *args))


def _is_of_memory(function: Any) -> bool:
    return any([function is each for each in _OF_MEMORY])


def _gives_one(function: Any) -> bool:
    """Whether all that a function asks of a tensor is what it gives as it is: a number, or a list."""
    of_c = is_instance(function, _C_FUNCTIONS) and function.__name__ in _GIVE_ONE
    return of_c or any([function is each for each in (int, float)])


def _on_arrays(
    function: Any, args: tuple[Any, ...], names: tuple[str, ...]
) -> tuple[str, tuple[Any, ...]] | None:
    """What a function of numpy's or a method of an array computes of arrays, in the form of operands."""
    if type(function) is BuiltinFunctionType and type(function.__self__) is numpy.ndarray:
        if function.__name__ not in METHODS:
            return None
        how, name, args = METHOD, function.__name__, (function.__self__, *args)
    elif type(function) in _IN_NUMPY and function in NAME_OF:
        how, name = FUNCTION, NAME_OF[function]
    else:
        return None
    known = takes_names(names) and all(map(_is_of_array, args))
    known = known and (_holds_array(args) or any([function is each for each in _OF_NUMBERS]))
    return (how, (name, names, *args)) if known else None


def _holds_array(values: Sequence[Any]) -> bool:
    return any([
        _holds_array(each) if type(each) in _JOINED else type(each) is numpy.ndarray for each in values
    ])  # fmt: skip


def _is_of_array(value: Any) -> bool:
    """Whether it is an array, a number or a setting, or a few of them."""
    if type(value) in _JOINED:
        return len(value) <= _MOST_COMPARED and all(map(_is_of_array, value))
    kinds = (*_NUMBERS, str, type(None), type, numpy.dtype)
    return is_array(value) or is_instance(value, kinds)


def _draw_of(function: Any, args: tuple[Any, ...], names: tuple[str, ...]) -> Draw | None:
    """What a call draws, if it is known to draw numbers."""
    count = len(args) - len(names)
    return Draw.of(function, args[:count], dict(zip(names, args[count:], strict=True)))


def _is_unit(trace: Trace, numbers: TrackedNumbers, function: Any, args: tuple[Any, ...]) -> bool:
    """Whether a function of numpy's is one of numbers alone, or of all in a container, and is given such."""
    if function in UNITS and all([type(each) in _NUMBERS or _is_fixed(numbers, each) for each in args]):
        numbers.computes_apart(UNITS[function], args, trace.running.frame())
    elif function in UNITS_OF_MEMBERS and (members := _numbers_in(args)):
        numbers.computes_apart(UNITS_OF_MEMBERS[function], members, trace.running.frame())
    return numbers.drawing is not None


def _is_fixed(numbers: TrackedNumbers, value: Any) -> bool:
    """Whether a value is a list or a tuple of numbers none of which is followed."""
    return type(value) in _JOINED and _are_fixed(numbers, value)


def _are_fixed(numbers: TrackedNumbers, values: Iterable[Any], kinds: Container[type] = _NUMBERS) -> bool:
    return all([type(each) in kinds and numbers.expression(each) is None for each in values])


def _into_python(
    trace: Trace, numbers: TrackedNumbers, function: FunctionType, args: tuple[Any, ...]
) -> None:
    """Python code is called: it is followed, or it sees what it likes; rote's own sees what it is given."""
    code = function.__code__
    if trace.running.swaps.is_tracking(code):
        _enter(trace, numbers, code)
        caller = trace.running.frame()
        if caller is not None and {code.co_name, caller.f_code.co_name}.issubset(_WRITE_THEMSELVES):
            numbers.gathered.write(caller)  # which may hand it on
        return
    looks_away = identity(code) in PASSES_ON or code.co_filename.startswith(_RUNTIME)
    if looks_away or is_own(code.co_filename):
        if not (numbers.pin_inside(*args) or looks_away):
            numbers.stop(f"{function.__qualname__} is given an object, and may see numbers in it")
    else:
        numbers.stop(f"{function.__qualname__} is not followed")


def _construct(trace: Trace, numbers: TrackedNumbers, kind: type, args: tuple[Any, ...], named: int) -> None:
    """A class is called."""
    if kind is bool and len(args) == 1 and type(args[0]) not in _NUMBERS:
        _truth(trace, numbers, args[0])
        return
    if kind is str and args and type(args[0]) is type:  # its name
        numbers.pin_inside(*args[1:])
        return
    known = (WRITES, CALLED, _MOVES, _ITERATES, _CONSUMES, _FILLS)
    if kind is map or any([kind in each for each in known]):
        _into_c(trace, numbers, kind, args, named)
        return
    maker = lookup.find(type(kind), "__call__").value
    if type(maker) is FunctionType:  # of its metaclass
        trace.callables.run(maker)
        _into_python(trace, numbers, maker, args)
    else:
        _make(trace, numbers, kind, args, named)


def _make(trace: Trace, numbers: TrackedNumbers, kind: type, args: tuple[Any, ...], named: int) -> None:
    """An object is made as ``type`` makes one."""
    makers = [lookup.find(kind, name).value for name in ("__new__", "__init__")]
    in_c = [each for each in makers if type(each) not in (FunctionType, staticmethod)]
    if all([_is_of_c_itself(each) and (each in _MAKES_EMPTY or each in _MADE_AS) for each in in_c]):
        for each in makers:
            if _is_of_c_itself(each) and each in _MADE_AS:
                _into_c(trace, numbers, _MADE_AS[each], args, named)
            made = each.__func__ if type(each) is staticmethod else each
            if type(made) is FunctionType:
                trace.callables.run(made)
                _into_python(trace, numbers, made, args)
        return
    _unknown(trace, numbers, kind, args)


def _is_of_c_itself(maker: Any) -> bool:
    """Whether a maker is of a class of C's; methods of pybind cannot be looked up."""
    return type(maker) in (WrapperDescriptorType, BuiltinFunctionType)


def _into_c(trace: Trace, numbers: TrackedNumbers, function: Any, args: tuple[Any, ...], named: int) -> None:
    """C is called."""
    if is_instance(function, (BuiltinFunctionType, MethodWrapperType)):
        owner, described = function.__self__, _descriptor(function)
        if described is not None:
            function, args = described, (owner, *args)
    if function in WRITES and not named and _writes(function, args):
        numbers.compute_next(WRITES[function], args)
    elif function is numpy.ufunc.at and len(args) == 4 and not named and args[0] in WRITE_AT:
        _put(trace, numbers, WRITE_AT[args[0]], args[1], args[2], args[3])
    elif function in OF_TEXTS and not named and all(map(_is_written, args)):
        numbers.compute_next(OF_TEXTS[function], args)
    elif function is str.join and [*map(type, args)] == [str, GeneratorType]:
        _gather(trace, numbers, JOINED_BY, args[1], (args[0],))
    elif function in _WRITTEN_BY and len(args) == 1 and _writes_itself(type(args[0]), _WRITTEN_BY[function]):
        _have_written(trace, numbers)
    elif function in CALLED and all([type(each) in _NUMBERS for each in args]) and not named:
        numbers.compute_next(CALLED[function], args)
    elif function in OF_MEMBERS and (members := _numbers_in(args)) and not named:
        numbers.compute_next(OF_MEMBERS[function], members)
    elif (function in OF_MEMBERS or function in _TAKE) and [*map(type, args)] == [GeneratorType]:
        _gather(trace, numbers, OF_MEMBERS.get(function, ""), args[0])
    elif function in _PLACES and not named and _has_a_place(numbers, args):
        _placed(numbers, function, *args)
    elif _is_of_torch(function):
        if function.__name__ in _CALLS_BACK:
            numbers.stop(f"{function.__name__} calls Python code")
        _owe(trace, numbers, *args)
    elif function in _STOPS:
        numbers.stop(f"{function.__name__} may see any number")
    elif function in _IDENTITIES.values():
        _identified(numbers, function, args)
    elif function is type.__call__ and args and is_instance(args[0], type):
        _make(trace, numbers, args[0], args[1:], named)
    elif function in _MADE_AS:
        _into_c(trace, numbers, _MADE_AS[function], args[1:], named)
    elif function is dict.get and not named and _is_looked_up(trace, numbers, *args):
        numbers.compute_next(LOOKED_UP, (args[0].copy(), *args[1:]))
    elif function in _MOVES:
        moved = _MOVES[function]
        if function in _GIVES_ATTRIBUTES:
            _enter(trace, numbers, None)
        if 0 not in moved:
            numbers.pin(*args[:1])  # what a container holds is not looked at, or was when it was hashed
        numbers.pin_inside(*[each for place, each in enumerate(args) if place and place not in moved])
    elif function in _COMPARES:  # an object's own methods say what they look at
        numbers.pin_inside(*args)
    elif function in _ITERATES:
        items = function in _GIVES_ITEMS and not named
        arrays = tuple([each for each in args if items and numbers.follows_items(each)])
        _iterated(trace, numbers, tuple([each for each in args if all([each is not one for one in arrays])]))
        numbers.iterated = arrays
    elif function in (map, reduce) and not named and len(args) > 1 and _hands_on_all(trace, numbers, *args):
        _iterated(trace, numbers, args[1:])
    elif function in _FILLS:
        _filled(
            trace, numbers, [each for each in args[: len(args) - named] if not issubclass(type(each), dict)]
        )
    elif function in _CONSUMES:
        _consumed(numbers, args)
    elif function is len and [*map(type, args)] == [str]:
        numbers.compute_next(LENGTH, args)
    elif function is len and len(args) == 1 and (length := numbers.measured(args[0])) is not None:
        numbers.compute_next(*length)
    elif function is len:
        for each in args:
            if not is_array(each):  # its shape is the same in all calls
                numbers.pin(each)
            if type(lookup.find(type(each), "__len__").value) is FunctionType:
                numbers.asks_length = identity(trace.running.frame())
    else:
        _unknown(trace, numbers, function, args)


def _gather(
    trace: Trace, numbers: TrackedNumbers, function: str, generator: Any, first: tuple[str, ...] = ()
) -> None:
    """A loop, or C, takes what a generator gives; behind a text, that is texts."""
    caller = trace.running.frame()
    if caller is not None:
        numbers.gathered.begin(function, caller, generator, first, texts=bool(first))


_TELL_LENGTHS = {"write": LENGTH, "writerow": ROW_LENGTH}
"""Methods that give how much they have written."""


def _is_shown(
    trace: Trace, numbers: TrackedNumbers, function: Any, args: tuple[Any, ...], names: tuple[str, ...]
) -> bool:
    """Whether C writes numbers and texts to a standard stream, if that is of C: no replay repeats it."""
    if type(function) is not BuiltinFunctionType:
        return False
    if any([trace.writes.wrote(STATE_ITEM, vars(sys), name) for name in ("stdout", "stderr")]):
        return False
    if function is print:
        file = args[names.index("file") - len(names)] if "file" in names else None
        stream = sys.stdout if file is None else file
        looked_at = tuple([each for each in args if each is not file and not _is_written(each)])
        known = is_standard(stream) and _is_of_c(stream)
        if trace.writes.has_told(stream):
            return True
        if known and looked_at:
            _unknown(trace, numbers, function, looked_at)
        return known
    stream = function.__self__
    if stream is None or type(stream) is ModuleType:
        return False
    if trace.writes.has_told(stream):
        if function.__name__ in _TELL_LENGTHS:
            numbers.computes_apart(_TELL_LENGTHS[function.__name__], args, trace.running.frame())
        return True
    if names or not is_standard(stream) or not _is_of_c(stream):
        return False
    if function.__name__ == "write" and [*map(type, args)] == [str]:
        numbers.computes_apart(LENGTH, args, trace.running.frame())  # so much is written
        return True
    return function.__name__ in _HARMLESS and not args


def _is_of_c(stream: Any) -> bool:
    """Whether a stream hands what is written to no code but C and Python's own codecs."""
    if lookup.find(type(stream), "write").value is not io.TextIOWrapper.write:
        return False
    known = stream.encoding in _CODECS and stream.errors in _CODECS
    buffer = stream.buffer
    return (
        known and type(buffer) in _BUFFERS and type(getattr(buffer, "raw", None)) in (io.FileIO, type(None))
    )


def _writes_by_name(
    trace: Trace, numbers: TrackedNumbers, function: Any, args: tuple[Any, ...], names: tuple[str, ...]
) -> bool:
    """Whether a function writes as text what is written in one way only, some of which is given by name."""
    if type(function) is FunctionType and function is json.dumps:
        count = len(args) - len(names)
        if count != 1 or not _OF_JSON.issuperset(names) or not all(map(_is_written, args)):
            return False
        numbers.computes_apart(WRITES_BY_NAME[function], (names, *args), trace.running.frame())
        return numbers.drawing is not None
    if type(function) is not BuiltinFunctionType or type(function.__self__) is not str or not names:
        return False
    form, named = function.__self__, function.__name__ == "format"
    if named and "{" in form:
        args, names = _written_by(form, args, names)
    known = named and numbers.expression(form) is None and _is_simple(form) and all(map(_is_written, args))
    if known:
        numbers.compute_next(WRITES_BY_NAME[str.format], (names, form, *args))
    return known


def _writes(function: Any, args: tuple[Any, ...]) -> bool:
    """Whether a function writes as text what is written in one way only."""
    if function is str.join:
        texts = args[1] if len(args) == 2 and type(args[0]) is str and type(args[1]) in _JOINED else (None,)
        return all([type(each) is str for each in texts])
    if not args or not all(map(_is_written, args)):
        return False
    if function is str.format:
        return type(args[0]) is str and _is_simple(args[0])
    return function is not format or all([type(each) is str and "n" not in each for each in args[1:]])


def _is_simple(form: str) -> bool:
    """Whether fields of a format name whole arguments, and none asks the locale."""
    try:
        fields = [(name, spec) for _, name, spec, _ in Formatter().parse(form) if name is not None]
    except ValueError:
        return False
    return all([_NAME.fullmatch(name) is not None and "n" not in (spec or "") for name, spec in fields])


def _written_by(
    form: str, args: tuple[Any, ...], names: tuple[str, ...]
) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """Of what a format is given by name, what it writes: C looks at no other."""
    fields = [(name, spec or "") for _, name, spec, _ in Formatter().parse(form) if name is not None]
    if any(["{" in spec for _, spec in fields]):
        return args, names
    used, count = {name for name, _ in fields}, len(args) - len(names)
    named = [(name, each) for name, each in zip(names, args[count:], strict=True) if name in used]
    return (*args[:count], *[each for _, each in named]), tuple([name for name, _ in named])


def _has_a_place(numbers: TrackedNumbers, args: tuple[Any, ...]) -> bool:
    """Whether these are a sorted list of fixed numbers, and a number that is equal to itself."""
    if len(args) != 2 or type(args[1]) not in _NUMBERS or args[1] != args[1]:
        return False
    items = args[0]
    return _is_fixed(numbers, items) and all([one <= other for one, other in pairwise(items)])


def _placed(numbers: TrackedNumbers, function: Any, items: Sequence[Any], value: Any) -> None:
    """It is asked where in a list a number belongs: between which two of them."""
    before, behind = _PLACES[function]
    place = function(items, value)
    if place:
        numbers.ask(before, items[place - 1], value)
    if place < len(items):
        numbers.ask(behind, value, items[place])


def _numbers_in(args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The members of the only argument, if that is a container of Python's of numbers."""
    if len(args) != 1 or type(args[0]) not in _KEEP_NUMBERS:
        return None
    found = tuple(args[0])
    return found if all([type(each) in _NUMBERS for each in found]) else None


def _identified(numbers: TrackedNumbers, function: Any, args: tuple[Any, ...]) -> None:
    """It may be asked which objects numbers are."""
    if _IDENTITIES.get(function.__name__) is function:
        numbers.compute_next(function.__name__, args)


def _told_apart(numbers: TrackedNumbers, function: Any, operands: tuple[Any, ...], value: Any) -> Any:
    """The answer for the objects for which numbers stand; ``value`` may be its contrary, of ``is not``."""
    numbers.stop("it is asked which object a number is")
    given, meant = function(*operands), function(*map(numbers.original, operands))
    return meant if function is builtins.id else value is not (given is not meant)


def _descriptor(function: Any) -> Any:
    """What is in the class of the object to which a method in C is bound; None for a function."""
    owner, name = function.__self__, function.__name__
    if isinstance(owner, ModuleType) or owner is None:
        return None
    of = getattr(function, "__objclass__", None)
    for kind in lookup.bases(type(owner)) if of is None else (of,):
        found = lookup.namespace(kind).get(name)
        if isinstance(found, (MethodDescriptorType, WrapperDescriptorType)):
            return found
    return None


def _iterated(trace: Trace, numbers: TrackedNumbers, args: tuple[Any, ...]) -> None:
    """C iterates objects, and hands on what they give.

    Which class an object has does not matter, but who answers: a method of Python's is followed, and those of
    Python's own containers and iterators run nothing else.
    """
    for each in args:
        numbers.pin(each)
        known = type(each) in _NUMBERS or each is None or is_data(each) or is_instance(each, type)
        if type(each) is map:
            function, *sources = map.__reduce__(each)[1]
            known = _hands_on_all(trace, numbers, function, *sources)
            _iterated(trace, numbers, tuple(sources))
        if not (known or _hands_on(type(each))):
            numbers.stop(f"a {type(each).__name__} is iterated")


def _hands_on_all(trace: Trace, numbers: TrackedNumbers, function: Any, *sources: Any) -> bool:
    """Whether C hands members to a function that is known or followed, and gives what that returns."""
    if type(function) is BuiltinFunctionType and (moved := _MOVES.get(_descriptor(function))) is not None:
        numbers.pin_inside(*[each for place, each in enumerate(sources, 1) if place not in moved])
        return True
    if _looks_alone(function):
        return _shown_to_c(numbers, _owner(function), *sources)
    function = function.__func__ if type(function) is MethodType else function
    if type(function) is not FunctionType:
        return False
    _into_python(trace, numbers, function, ())
    numbers.mapped.setdefault(identity(trace.running.swaps.original(function.__code__)), True)
    return True


def _shown_to_c(numbers: TrackedNumbers, *given: Any) -> bool:
    """Whether it is known which numbers are in what C looks at; of a generator it sees what that yields."""
    return numbers.pin_inside(*[each for each in given if type(each) is not GeneratorType], objects=True)


def _looks_alone(function: Any) -> bool:
    """Whether C looks at what it is given, at most, each time that other code of C calls it."""
    if any([function is each for each in _LOOK_ALONE]):
        return True
    if type(function) not in _C_FUNCTIONS or function.__name__ in _GIVE_ONE:
        return False
    known = _descriptor(function) if _owner(function) is not None else None
    does_more = (*_STOPS, *_ASKING, *WRITES, *_MADE_AS, type.__call__, numpy.ufunc.at)
    calls_back = _is_of_torch(function) and function.__name__ in _CALLS_BACK
    return not calls_back and all([each is not function and each is not known for each in does_more])


def _owner(function: Any) -> Any:
    """The object to which a function in C is bound; None for one of a module."""
    owner = getattr(function, "__self__", None)
    return None if isinstance(owner, ModuleType) else owner


def _filled(trace: Trace, numbers: TrackedNumbers, args: Iterable[Any]) -> None:
    """C fills a dict with pairs: it looks at keys, and hands values on."""
    for each in args:
        sources = zip.__reduce__(each)[1] if type(each) is zip else ()
        if len(sources) == 2:
            keys, values = sources
            _consumed(numbers, [keys])
            _iterated(trace, numbers, (values,))
        elif type(each) in (list, tuple) and all([type(pair) is tuple and len(pair) == 2 for pair in each]):
            numbers.pin_inside(*[key for key, _ in each])
        else:
            _consumed(numbers, [each])


def _consumed(numbers: TrackedNumbers, args: Iterable[Any]) -> None:
    """C looks at all that it iterates."""
    for each in args:
        kind, asked = type(each), lookup.find(type(each), "__iter__").value
        if kind in (*_CONTAINERS, *_NUMBERS, str, bytes, range):
            numbers.pin_inside(each)
        elif type(asked) is WrapperDescriptorType and asked.__objclass__ in _HOLD:
            numbers.pin_inside([*asked(each)])
        elif is_data(each) or each is None or kind is GeneratorType or _yields(asked):
            numbers.pin(each)  # an array, which holds its numbers itself
        elif kind is map and _looks_alone(map.__reduce__(each)[1][0]):
            function, *sources = map.__reduce__(each)[1]
            if not _shown_to_c(numbers, _owner(function), *sources):
                numbers.stop("what a map gives is looked through")
        elif kind not in _HANDS_ON or not numbers.pin_inside(each, objects=True):
            numbers.stop(f"a {kind.__name__} is looked through")


def _yields(method: Any) -> bool:
    """Whether a method is a generator: what it gives is looked at where it gives it."""
    return type(method) is FunctionType and bool(method.__code__.co_flags & CO_GENERATOR)


def _hands_on(kind: type) -> bool:
    """Whether it is known what runs when an object is iterated, and when an iterator is advanced."""
    asked, *others = (lookup.find(kind, name).value for name in ("__iter__", "__next__"))
    return _answers(asked) and all([each is lookup.MISSING or _answers(each) for each in others])


def _answers(found: Any) -> bool:
    if type(found) is WrapperDescriptorType:
        return found.__objclass__ in _HANDS_ON
    return type(found) is FunctionType


def _unknown(trace: Trace, numbers: TrackedNumbers, function: Any, given: tuple[Any, ...]) -> None:
    """Something is called of which nothing is known here.

    Of a generator C sees what it yields, which is looked at there.
    """
    for each in given:
        if type(each) is FunctionType:
            numbers.mapped[identity(trace.running.swaps.original(each.__code__))] = False
    given = tuple([each for each in given if type(each) is not GeneratorType])
    if not numbers.pin_inside(*given, objects=True):
        name = getattr(function, "__qualname__", type(function).__qualname__)
        numbers.stop(f"{name} is given an object, and may see numbers in it")


def _has_none(function: Any) -> bool:
    """Whether a function sees no numbers but those that it is given."""
    scripted = type(function) is torch.jit.ScriptFunction
    return type(function) is _OF_NUMPY or (scripted and not calls_python(function))


def _is_of_torch(function: Any) -> bool:
    """Whether a function of C is PyTorch's."""
    of_class = getattr(function, "__objclass__", None)
    if of_class is not None:
        return of_class.__module__.partition(".")[0] == "torch"
    owner, module = getattr(function, "__self__", None), getattr(function, "__module__", None)
    if isinstance(module, str) and module.partition(".")[0] == "torch":
        return True
    if isinstance(owner, ModuleType):
        return owner.__name__.partition(".")[0] == "torch"
    kind = owner if isinstance(owner, type) else type(owner)
    return kind.__module__.partition(".")[0] == "torch" or kind.__name__.startswith("_VariableFunctions")


def _owe(trace: Trace, numbers: TrackedNumbers, *given: Any) -> None:
    """PyTorch gets numbers; code that it runs to get them where they belong is below the present frame."""
    numbers.owe(*given)
    if numbers.owed:
        numbers.owed_in = trace.running.frame()
