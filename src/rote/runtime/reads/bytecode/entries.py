"""By which instruction a frame was entered: who gets what its code gives back, and whether C looks at it.

Other code gets what it has called. Other instructions run code in C, and few hand on what it gives.
"""

from __future__ import annotations

from opcode import opmap
from types import FrameType

CALLS, ITERATES, HANDS_ON, GIVES_ITEM, OPERATES, LOOKS = range(6)
"""What the instruction is: a call, of code or of C that runs some; one that hands on what an iterator gives,
which may look at what code gives it; one that hands on what code gives; one that asks an object for an item,
and its key for a hash or an index; an operator, whose method says what it is; any other looks at it."""
_INSTRUCTIONS = {
    CALLS: ("CALL", "PRECALL", "CALL_KW", "CALL_FUNCTION_EX"),
    ITERATES: ("FOR_ITER", "UNPACK_SEQUENCE", "UNPACK_EX", "LIST_EXTEND"),
    HANDS_ON: (
        "LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM", "BEFORE_WITH", "LOAD_SPECIAL", "SEND",
        "GET_ITER",
    ),
    GIVES_ITEM: ("BINARY_SUBSCR", "BINARY_SLICE"),
    OPERATES: (
        "BINARY_OP", "COMPARE_OP", "UNARY_NEGATIVE", "UNARY_INVERT", "UNARY_POSITIVE", "CALL_INTRINSIC_1",
    ),
}  # fmt: skip
_KINDS = {opmap[name]: kind for kind, names in _INSTRUCTIONS.items() for name in names if name in opmap}
_CACHE, _SPREADS = opmap.get("CACHE", 0), opmap["CALL_FUNCTION_EX"]


def entry_of(caller: FrameType) -> int:
    """What the instruction is by which a frame runs code that it has entered."""
    return _KINDS.get(_instruction_of(caller), LOOKS)


def spreads(caller: FrameType) -> bool:
    """Whether that instruction is a call that spreads what it is given."""
    return _instruction_of(caller) == _SPREADS


def _instruction_of(frame: FrameType) -> int:
    """The instruction that runs; Python may stand behind it already, in what it caches there."""
    text, at = frame.f_code.co_code, frame.f_lasti
    while text[at] == _CACHE:
        at -= 2
    return text[at]
