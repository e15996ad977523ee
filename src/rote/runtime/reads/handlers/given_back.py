"""Who gets what Python code gives back: other Python code, or C, which may look at it.

That depends on the instruction by which the caller has entered the code. A call says whose code it enters;
any other code below it was called by C. Other instructions run code in C, and few hand on what it gives.
"""

from __future__ import annotations

from opcode import opmap
from types import CodeType, FrameType
from typing import Any

from ....base import identity
from ...numbers import TrackedNumbers
from ..trace import Trace, is_readable

ANY = 0
"""Stands for the code of every function: what is called hands on what any code gives that it runs."""


def _opcodes(*names: str) -> frozenset[int]:
    return frozenset([opmap[each] for each in names if each in opmap])


_SPREADS = _opcodes("CALL_FUNCTION_EX")
_CACHE = opmap.get("CACHE", 0)
_CALLS = _opcodes("CALL", "PRECALL", "CALL_KW", "CALL_FUNCTION_EX")
_ITERATES = _opcodes("FOR_ITER", "UNPACK_SEQUENCE", "UNPACK_EX", "LIST_EXTEND")
"""Instructions that hand on what an iterator gives, which may look at what code has given it."""
_HANDS_ON = _opcodes(
    "LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM", "BEFORE_WITH", "LOAD_SPECIAL", "SEND",
    "GET_ITER",
)  # fmt: skip
"""Those that hand on what the code gives that they run."""
_ITEMS = _opcodes("BINARY_SUBSCR", "BINARY_SLICE", "BINARY_OP")
"""Those that ask an object for an item, and hand that on; they hash keys, and ask them for an index, too."""
_OPERATORS = _opcodes(
    "BINARY_OP", "COMPARE_OP", "UNARY_NEGATIVE", "UNARY_INVERT", "UNARY_POSITIVE", "CALL_INTRINSIC_1"
)
"""Those that hand on what the method of an operator gives."""


_LOOKED_AT = frozenset({
    "__contains__", "__dir__", "__eq__", "__exit__", "__ge__", "__gt__", "__instancecheck__", "__le__",
    "__lt__", "__ne__", "__subclasscheck__", "__subclasshook__",
})  # fmt: skip
"""Methods of which C takes what they give for true or false, or as names."""


def is_looked_at(trace: Trace, frame: FrameType, value: Any) -> bool:
    """Whether C looks into a container from outside that a frame is about to give back to it."""
    if not is_readable(value) or not trace.outside.has(value):
        return False
    caller = frame.f_back
    if caller is None or not trace.running.swaps.is_instrumented(caller.f_code):
        return False
    if frame.f_code.co_name in _LOOKED_AT:
        return True
    by = _instruction_of(caller)
    return all([by not in each for each in (_CALLS, _ITERATES, _HANDS_ON, _ITEMS, _OPERATORS)]) or (
        by in _SPREADS and frame.f_code.co_name == "keys"
    )


def _instruction_of(frame: FrameType) -> int:
    """The instruction that runs; Python may stand behind it already, in what it caches there."""
    text, at = frame.f_code.co_code, frame.f_lasti
    while text[at] == _CACHE:
        at -= 2
    return text[at]


def begin_call(trace: Trace, numbers: TrackedNumbers) -> None:
    """Code is about to call something."""
    numbers.entered[identity(trace.running.frame())] = set()


def enter(trace: Trace, numbers: TrackedNumbers, code: CodeType | None) -> None:
    """A call gets what code gives that it enters, or any (None)."""
    which = ANY if code is None else identity(trace.running.swaps.original(code))
    numbers.entered.setdefault(identity(trace.running.frame()), set()).add(which)


def hands_on(trace: Trace, numbers: TrackedNumbers, frame: FrameType) -> bool:
    """Whether nobody looks at what a frame is about to give back, until other code is told of it."""
    caller = frame.f_back
    if caller is None or not trace.running.swaps.is_instrumented(caller.f_code):
        return True
    by, name = _instruction_of(caller), frame.f_code.co_name
    which = identity(trace.running.swaps.original(frame.f_code))
    if by in _CALLS:
        known = numbers.entered.get(identity(caller), ())
        return ANY in known or which in known
    if by in _ITERATES and numbers.mapped.get(which, False):
        return True
    if by in _HANDS_ON or (by in _ITEMS and name in ("__getitem__", "__missing__")):
        return True
    return by in _OPERATORS and name.startswith("__") and name != "__index__"
