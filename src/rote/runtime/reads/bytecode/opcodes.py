"""Which opcodes may read or write something from outside of the call, for each Python that was tried.

Each opcode of a version is in exactly one row: *noted*, with the note that is called before it and the number
of stack items that the note is given; *silent*, since it moves values or makes new ones; or *opaque*, since
what it does is not followed. Code with an opcode of the last kind, or with one that is in no row, is opaque
as a whole. ``tests/reads/test_opcodes.py`` goes through ``dis.opmap``, so a Python with new opcodes fails
there.
"""

from __future__ import annotations

import dis
import sys
from typing import NamedTuple

VERSIONS = ((3, 11), (3, 12), (3, 13))
"""Versions of Python that were tried."""


class NotedOpcode(NamedTuple):
    """What is noted before an opcode.

    Attributes:
        note: The method of the notes that is called.
        items: How many items from the top of the stack it is given, the deepest first.
        each: How many more for each that the instruction's own argument counts.
    """

    note: str
    items: int
    each: int = 0


NOTED: dict[str, NotedOpcode] = {
    "LOAD_ATTR": NotedOpcode("attribute", 1),
    "LOAD_METHOD": NotedOpcode("attribute", 1),
    "LOAD_SUPER_ATTR": NotedOpcode("super_attribute", 3),
    "LOAD_GLOBAL": NotedOpcode("name", 0),
    "LOAD_NAME": NotedOpcode("name", 0),
    "LOAD_FROM_DICT_OR_GLOBALS": NotedOpcode("name", 0),
    "LOAD_DEREF": NotedOpcode("cell", 0),
    "LOAD_CLASSDEREF": NotedOpcode("cell", 0),
    "LOAD_FROM_DICT_OR_DEREF": NotedOpcode("cell", 0),
    "BINARY_SUBSCR": NotedOpcode("item", 2),
    "BINARY_SLICE": NotedOpcode("sliced", 3),
    "STORE_ATTR": NotedOpcode("store_attribute", 2),
    "DELETE_ATTR": NotedOpcode("delete_attribute", 1),
    "STORE_SUBSCR": NotedOpcode("store_item", 3),
    "STORE_SLICE": NotedOpcode("store_slice", 4),
    "DELETE_SUBSCR": NotedOpcode("delete_item", 2),
    "STORE_GLOBAL": NotedOpcode("store_name", 1),
    "DELETE_GLOBAL": NotedOpcode("delete_name", 0),
    "STORE_DEREF": NotedOpcode("store_cell", 1),
    "DELETE_DEREF": NotedOpcode("delete_cell", 0),
    "GET_ITER": NotedOpcode("iterate", 1),
    "GET_YIELD_FROM_ITER": NotedOpcode("iterate", 1),
    "FOR_ITER": NotedOpcode("advance", 1),
    "UNPACK_SEQUENCE": NotedOpcode("iterate", 1),
    "UNPACK_EX": NotedOpcode("iterate", 1),
    "LIST_EXTEND": NotedOpcode("iterate", 1),
    "SET_UPDATE": NotedOpcode("iterate", 1),
    "DICT_UPDATE": NotedOpcode("merged", 1),
    "DICT_MERGE": NotedOpcode("merged", 1),
    "CONTAINS_OP": NotedOpcode("contains", 2),
    "COMPARE_OP": NotedOpcode("compare", 2),
    "IS_OP": NotedOpcode("same", 2),
    "BINARY_OP": NotedOpcode("binary", 2),
    "UNARY_NEGATIVE": NotedOpcode("unary", 1),
    "UNARY_POSITIVE": NotedOpcode("unary", 1),
    "UNARY_INVERT": NotedOpcode("unary", 1),
    "UNARY_NOT": NotedOpcode("truth", 1),
    "TO_BOOL": NotedOpcode("truth", 1),
    "JUMP_IF_FALSE_OR_POP": NotedOpcode("truth", 1),
    "JUMP_IF_TRUE_OR_POP": NotedOpcode("truth", 1),
    "POP_JUMP_IF_FALSE": NotedOpcode("truth", 1),
    "POP_JUMP_IF_TRUE": NotedOpcode("truth", 1),
    "POP_JUMP_FORWARD_IF_FALSE": NotedOpcode("truth", 1),
    "POP_JUMP_FORWARD_IF_TRUE": NotedOpcode("truth", 1),
    "POP_JUMP_BACKWARD_IF_FALSE": NotedOpcode("truth", 1),
    "POP_JUMP_BACKWARD_IF_TRUE": NotedOpcode("truth", 1),
    "FORMAT_VALUE": NotedOpcode("text", 1),
    "FORMAT_SIMPLE": NotedOpcode("text", 1),
    "FORMAT_WITH_SPEC": NotedOpcode("text", 2),
    "CONVERT_VALUE": NotedOpcode("text", 1),
    "CALL": NotedOpcode("call", 0),
    "CALL_KW": NotedOpcode("call", 0),
    "CALL_FUNCTION_EX": NotedOpcode("call_spread", 0),
    "BEFORE_WITH": NotedOpcode("enter", 1),
    "IMPORT_NAME": NotedOpcode("imported", 2),
    "IMPORT_FROM": NotedOpcode("attribute", 1),
    "MATCH_CLASS": NotedOpcode("match_class", 3),
    "MATCH_MAPPING": NotedOpcode("match_kind", 1),
    "MATCH_SEQUENCE": NotedOpcode("match_kind", 1),
    "MATCH_KEYS": NotedOpcode("match_keys", 2),
    "GET_LEN": NotedOpcode("length", 1),
    "RAISE_VARARGS": NotedOpcode("raised", 0, 1),
    "BUILD_MAP": NotedOpcode("pairs", 0, 2),
    "MAP_ADD": NotedOpcode("pairs", 2),
    "BUILD_SET": NotedOpcode("members", 0, 1),
    "SET_ADD": NotedOpcode("members", 1),
    "BUILD_SLICE": NotedOpcode("bounds", 0, 1),
    "SEND": NotedOpcode("sent", 2),
    "CHECK_EXC_MATCH": NotedOpcode("caught", 2),
    "CHECK_EG_MATCH": NotedOpcode("caught", 2),
}
"""Opcodes that are noted, of all versions."""

BINARY = tuple(
    [
        f"{prefix}{name}"
        for prefix in ("", "INPLACE_")
        for name in (
            "ADD", "AND", "FLOOR_DIVIDE", "LSHIFT", "MATRIX_MULTIPLY", "MULTIPLY", "REMAINDER", "OR", "POWER",
            "RSHIFT", "SUBTRACT", "TRUE_DIVIDE", "XOR",
        )
    ]
)  # fmt: skip
"""Operators by the argument of ``BINARY_OP``."""

INTRINSICS = {2: "INTRINSIC_IMPORT_STAR", 5: "INTRINSIC_UNARY_POSITIVE"}
"""Functions of the interpreter's own that read, by the argument of ``CALL_INTRINSIC_1``."""

OPERATORS = {"INTRINSIC_UNARY_POSITIVE": NotedOpcode("unary", 1)}
"""Arguments of ``CALL_INTRINSIC_1`` with which it is noted (``+``, since Python 3.12)."""

SILENT = frozenset({
    "BUILD_CONST_KEY_MAP", "BUILD_LIST", "BUILD_STRING", "BUILD_TUPLE",
    "CACHE", "CALL_INTRINSIC_1", "CALL_INTRINSIC_2", "CLEANUP_THROW",
    "COPY", "COPY_FREE_VARS", "DELETE_FAST", "DELETE_NAME", "END_FOR", "END_SEND", "ENTER_EXECUTOR",
    "EXIT_INIT_CHECK", "EXTENDED_ARG", "INTERPRETER_EXIT", "JUMP", "JUMP_BACKWARD",
    "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_FORWARD", "JUMP_NO_INTERRUPT", "KW_NAMES", "LIST_APPEND",
    "LIST_TO_TUPLE", "LOAD_ASSERTION_ERROR", "LOAD_BUILD_CLASS", "LOAD_CLOSURE", "LOAD_CONST", "LOAD_FAST",
    "LOAD_FAST_AND_CLEAR", "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST", "LOAD_LOCALS", "MAKE_CELL",
    "MAKE_FUNCTION", "NOP", "POP_BLOCK", "POP_EXCEPT", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE",
    "POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE", "POP_JUMP_FORWARD_IF_NONE",
    "POP_JUMP_FORWARD_IF_NOT_NONE", "POP_TOP", "PRECALL", "PREP_RERAISE_STAR", "PRINT_EXPR", "PUSH_EXC_INFO",
    "PUSH_NULL", "RERAISE", "RESERVED", "RESUME", "RETURN_CONST", "RETURN_GENERATOR", "RETURN_VALUE",
    "SETUP_ANNOTATIONS", "SETUP_CLEANUP", "SETUP_FINALLY", "SETUP_WITH", "SET_FUNCTION_ATTRIBUTE",
    "STORE_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_MAYBE_NULL", "STORE_FAST_STORE_FAST", "STORE_NAME",
    "SWAP", "WITH_EXCEPT_START", "YIELD_VALUE",
})  # fmt: skip
"""Opcodes that move values, make new ones, or store where only the call's own code looks."""

OPAQUE = frozenset({
    "ASYNC_GEN_WRAP", "BEFORE_ASYNC_WITH", "END_ASYNC_FOR", "GET_AITER", "GET_ANEXT", "GET_AWAITABLE",
    "IMPORT_STAR", "LOAD_SUPER_METHOD", "LOAD_ZERO_SUPER_ATTR", "LOAD_ZERO_SUPER_METHOD",
})  # fmt: skip
"""Opcodes of coroutines, and those that only a compiler uses between its own steps."""


def is_tried() -> bool:
    """Whether this Python is one of those that were tried."""
    return sys.version_info[:2] in VERSIONS


def unlisted() -> set[str]:
    """Opcodes of this Python that are in no row."""
    names = {name for name in dis.opmap if not name.startswith("INSTRUMENTED_")}
    return names - NOTED.keys() - SILENT - OPAQUE
