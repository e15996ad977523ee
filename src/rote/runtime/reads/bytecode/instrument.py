"""Code that tells what it reads: the original instructions, with a call to a note before each that may read.

Items are taken from the stack with ``COPY``. Of a call that is the callable and its arguments, and one slot
of a call may hold no object at all, which must not be copied. Which slots those are is followed along the
instructions (:class:`_Stack`). ``LOAD_METHOD`` leaves an object or none there as it likes, so it becomes
``LOAD_ATTR`` with a slot that is always empty.

The bytes of the original are copied, and bytes of notes put between them; only jumps are written anew
(:mod:`.placing`). ``docs/design.md`` says why, and what does not work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from dis import HAVE_ARGUMENT, cmp_op, opmap, stack_effect
from functools import cache, partial
from types import CodeType
from typing import Any

from .lines import handlers_of
from .opcodes import BINARY, IMPORT_STAR, NOTED, OPAQUE, SILENT, UNARY_POSITIVE, NotedOpcode
from .placing import Instruction, Piece, instructions_of, placed, write

_LOADS_CLOSURE = frozenset({"cell", "store_cell", "delete_cell"})
_OF_GLOBALS = frozenset({"name", "store_name", "delete_name"})
"""Notes that get the frame's globals. They do not ask for the frame, since audit hooks would see that."""
_GLOBALS = partial(globals)
"""A profiler is not told of what ``partial`` calls."""
_NAMED = frozenset({
    "attribute", "super_attribute", "name", "store_attribute", "delete_attribute", "store_name",
    "delete_name", "imported", "binary", "match_class", "raised", "text",
})  # fmt: skip
"""Notes that are told the instruction's own argument as well."""
_OF_OPERANDS = frozenset({
    "truth", "iterate", "merged", "length", "unary", "binary", "compare", "item", "contains",
})  # fmt: skip
"""Notes of one or two operands, of which nothing is told if they are plain."""
_BOOLEAN = frozenset({"CONTAINS_OP", "IS_OP", "UNARY_NOT", "TO_BOOL"})
_SINCE_12, _SINCE_13 = sys.version_info >= (3, 12), sys.version_info >= (3, 13)
_COMPARED_BY = 5 if _SINCE_13 else 4 if _SINCE_12 else 0
"""By how many bits the argument of ``COMPARE_OP`` is shifted."""
_CALLABLE_FIRST = _SINCE_13
"""The slot that may be empty lies above the callable, not below it."""
_BESIDE_NAME = {
    "LOAD_GLOBAL": 1, "LOAD_ATTR": int(_SINCE_12), "LOAD_SUPER_ATTR": 2,
}  # fmt: skip
"""The number of low bits of the argument that are flags, not the index of a name."""
_PUSHES_SLOT = frozenset({"LOAD_ATTR", "LOAD_SUPER_ATTR"}) if _SINCE_12 else frozenset[str]()
_MAY_PUSH_SLOT = _PUSHES_SLOT | {"LOAD_GLOBAL"}
_ITEMS = {"LOAD_ATTR": 1, "LOAD_METHOD": 1, "LOAD_SUPER_ATTR": 3}
"""How many items those take from the stack that may push a slot."""
_NONE = frozenset[int]()
_PRECALLS = not _SINCE_12
_LOAD_CELL = opmap["LOAD_FAST" if _SINCE_13 else "LOAD_CLOSURE"]
_LOAD_CONST, _LOAD_ATTR, _COPY, _SWAP, _NOP, _CONTAINS = (
    opmap[name] for name in ("LOAD_CONST", "LOAD_ATTR", "COPY", "SWAP", "NOP", "CONTAINS_OP")
)
_JUMP = opmap["POP_JUMP_IF_FALSE" if _SINCE_12 else "POP_JUMP_FORWARD_IF_FALSE"]
_EMPTY, _POP = write(opmap["PUSH_NULL"]), write(opmap["POP_TOP"])
_MORE_STACK = 8
_CALLABLE_SLOTS = 2
"""Slots of what is to be called: the callable, and the one that may be empty."""
_WITH_SPEC = 4
"""Flag of ``FORMAT_VALUE``: a format lies above the value."""
_CONVERTS = frozenset({"FORMAT_VALUE", "CONVERT_VALUE"})
_CONVERSIONS = ("", "str", "repr", "ascii")
"""How these write a value, by the low bits of their argument."""
_CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})
_BEFORE_CALLS = frozenset({"KW_NAMES", "PRECALL"})
"""They belong to the call behind them, and nothing may be called in between."""


@dataclass(frozen=True)
class Around:
    """What is called besides notes.

    Attributes:
        names: The instructions around which anything is called.
        before: By the name of an instruction and that of its code, what is told the topmost value before it.
        instead: By the name of an instruction, what is given the topmost value before it, and gives another.
        behind: By the name of an instruction, with its operator if it has one (``COMPARE_OP <``), what is
            given the value that it leaves, and gives another for it.
        plain: Types of which notes of operands say nothing; if all operands are of one, none is called.
        changed: Types of values in whose place another may stand behind an instruction, or before it.
    """

    names: frozenset[str] = frozenset()
    before: Callable[[str, str], Callable[[Any], Any] | None] = lambda name, code: None
    instead: Callable[[str], Callable[[Any], Any] | None] = lambda name: None
    behind: Callable[[str], Callable[[Any], Any] | None] = lambda name: None
    plain: frozenset[type] = frozenset()
    changed: frozenset[type] = frozenset()


NOTES_ALONE = Around()


class OpaqueError(Exception):
    """Code that is not followed: the message names the opcode."""


def instrument(code: CodeType, notes: Any, around: Around = NOTES_ALONE) -> CodeType:
    """Make code that calls notes: an object with a method for each note of :data:`.opcodes.NOTED`.

    Args:
        around: What else is called.

    Raises:
        OpaqueError: The code has an instruction that is not followed.
    """
    given = instructions_of(code)
    writer = _Writer(code, given, notes, around)
    pieces = writer.pieces(given)
    depth = code.co_stacksize + _MORE_STACK + writer.stack.most_copied
    return placed(code, pieces, tuple(writer.constants), depth)


class _Writer:
    """Writes the instructions of one code."""

    def __init__(self, code: CodeType, given: list[Instruction], notes: Any, around: Around) -> None:
        self.constants: list[Any] = list(code.co_consts)  # those of the code, and those of notes behind them
        self.stack = _Stack(given, code)  # what is known of the stack where the writer has come to
        self._code = code
        self._notes = notes
        self._around = around
        self._known: dict[Any, bytes] = {}  # what loads a constant
        self._cells = [name for name in code.co_cellvars if name not in code.co_varnames]
        self._first_free = len(code.co_varnames) + len(self._cells)

    def pieces(self, given: list[Instruction]) -> list[Piece]:
        """The instructions, each behind its note."""
        made: list[Piece] = []
        stack = self.stack
        held: list[Instruction] = []  # what says something of the call behind it
        before = ""
        for number, each in enumerate(given):
            name = each.name
            stack.come_to(number)
            if name in _BEFORE_CALLS:
                held.append(each)
                continue
            noted = NOTED.get(name)
            if noted is None and name not in SILENT:
                raise OpaqueError(name if name in OPAQUE else f"{name}, which is not known")
            if name == "CALL_INTRINSIC_1":
                noted = _intrinsic(each.argument)
            text = self._gather(each) if name == "CALL_FUNCTION_EX" else b""
            if noted is not None and not (noted.note == "truth" and before in _BOOLEAN):
                text += self._note(each, noted, held)
            surrounded = name in self._around.names
            told = self._around.before(name, self._code.co_name) if surrounded else None
            if told is not None:
                stack.most_copied = max(stack.most_copied, 1)
                text += self._callable(told) + write(_COPY, 3) + _call(1) + _POP
            if surrounded:
                text += self._exchange(self._around.instead(name))
            for one in held:
                if one.name == "KW_NAMES":  # its own line may be another than that of the call
                    made.append(Piece(b"", _NOP, write(_NOP) * (len(one.text) // 2), -1, one.unit))
                    text += one.text
                else:
                    made.append(Piece(text, one.opcode, one.text, -1, one.unit))
                    text = b""
                stack.pass_instruction(one)
            held.clear()
            own = _replaced(each) + (self._left(each) if surrounded else b"")
            made.append(tuple.__new__(Piece, (text, each.opcode, own, each.target, each.unit)))
            stack.pass_instruction(each)
            before = name
        return made

    def _left(self, each: Instruction) -> bytes:
        """What takes the value that an instruction has left, and leaves another in its place."""
        name, argument = each.name, each.argument
        if name == "BINARY_OP":
            name = f"{name} {BINARY[argument]}"
        elif name == "COMPARE_OP":
            name = f"{name} {cmp_op[argument >> _COMPARED_BY]}"
        elif name == "CALL_INTRINSIC_1" and argument != UNARY_POSITIVE:
            return b""
        return self._exchange(self._around.behind(name))

    def _exchange(self, function: Callable[[Any], Any] | None) -> bytes:
        """What takes the topmost value, and leaves another in its place."""
        if function is None:
            return b""
        self.stack.most_copied = max(self.stack.most_copied, 1)
        swap = write(_SWAP, 2)
        if _CALLABLE_FIRST:
            text = self._load(function) + swap + _EMPTY + swap + _call(1)
        else:
            text = self._load(function) + swap + _EMPTY + write(_SWAP, 3) + swap + _call(1)
        changed = self._around.changed
        return self._is_one_of(changed, 1) + _over(text) + text if changed else text

    def _note(self, each: Instruction, noted: NotedOpcode, held: list[Instruction]) -> bytes:
        """The instructions of one note."""
        note = noted.note
        static, items, depth = self._operands(each, noted, held)
        if noted.each and not items and note not in _NAMED:
            return b""
        if note in _LOADS_CLOSURE and each.argument < self._first_free:
            return b""  # a cell that the frame made itself
        text = self._callable(getattr(self._notes, note))
        if static is not None:
            text += static
        count = static is not None
        if note in _LOADS_CLOSURE:
            text += write(_LOAD_CELL, each.argument)
            count += 1
        if note in _OF_GLOBALS:
            text += self._callable(_GLOBALS) + _call(0)
            count += 1
        pushed = _CALLABLE_SLOTS + count + _names_above(each)
        for number in range(items):
            # Behind the callable may be the slot that is empty: the items above it are one nearer.
            nearer = 1 if number and depth > items else 0
            text += write(_COPY, depth + pushed - nearer)
        count += items
        self.stack.most_copied = max(self.stack.most_copied, count)
        text += _call(count) + _POP
        plain = self._around.plain if note in _OF_OPERANDS else None
        if not plain:
            return text
        guard = self._is_one_of(plain, 1, absent=True) + _over(text)
        if items > 1:
            guard = self._is_one_of(plain, items) + _over(guard) + guard
        return guard + text

    def _is_one_of(self, types: frozenset[type], depth: int, *, absent: bool = False) -> bytes:
        """Push whether the type of an item is one of these types, or is none of them."""
        asks = self._callable(type) + write(_COPY, depth + 2) + _call(1)
        return asks + self._load(types) + write(_CONTAINS, int(absent))

    def _operands(
        self, each: Instruction, noted: NotedOpcode, held: list[Instruction]
    ) -> tuple[bytes | None, int, int]:
        """What a note is told: what loads a constant, the number of items, the depth of the deepest."""
        argument = each.argument
        if noted.note == "call":
            slots = argument + 2
            empty = self.stack.is_empty(slots + _names_above(each), _CALLABLE_FIRST)
            return self._keywords(each, held), slots - empty, slots - (empty and not _CALLABLE_FIRST)
        if noted.note == "call_spread":
            given = 1 + (argument & 1)
            return None, 1 + given, 1 + given + _CALLABLE_FIRST
        static = self._load(self._last(each, noted)) if noted.note in _NAMED else None
        items = noted.items + noted.each * argument
        if each.name == "FORMAT_VALUE" and argument & _WITH_SPEC:
            items += 1
        return static, items, items

    def _keywords(self, each: Instruction, held: list[Instruction]) -> bytes:
        """Push the names of the last arguments of a call, behind the callable of a note."""
        if _names_above(each):
            return write(_COPY, _CALLABLE_SLOTS + 1)
        names = next((one.argument for one in held if one.name == "KW_NAMES"), None)
        return self._load(()) if names is None else write(_LOAD_CONST, names)

    def _last(self, each: Instruction, noted: NotedOpcode) -> Any:
        """The instruction's argument: a name, an operator, or a number."""
        if noted.note == "binary":
            return BINARY[each.argument]
        if noted.note in ("match_class", "raised"):
            return each.argument
        if noted.note == "text":
            converted = _CONVERSIONS[each.argument & 3] if each.name in _CONVERTS else ""
            return converted if each.name == "CONVERT_VALUE" else f"format {converted}".strip()
        return self._code.co_names[each.argument >> _BESIDE_NAME.get(each.name, 0)]

    def _gather(self, each: Instruction) -> bytes:
        """The arguments behind ``*`` become a tuple before the call is noted, as the call itself makes them.

        A note cannot look into an iterator. It says what makes the tuple: a function of C, of which no frame
        is in a traceback, without arguments.
        """
        swap = write(_SWAP, 2)
        around = swap if each.argument & 1 else b""
        text = (b"" if _CALLABLE_FIRST else _EMPTY) + self._callable(self._notes.gather)
        text += write(_COPY, 3 if _CALLABLE_FIRST else 4) + _call(1)
        text += (_EMPTY if _CALLABLE_FIRST else b"") + _call(0) + swap + _POP
        return around + text + around

    def _callable(self, function: Any) -> bytes:
        """Push something that is to be called."""
        load = self._load(function)
        return load + _EMPTY if _CALLABLE_FIRST else _EMPTY + load

    def _load(self, value: Any) -> bytes:
        """Push a constant."""
        key = (type(value), value)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = write(_LOAD_CONST, len(self.constants))
            self.constants.append(value)
        return found


@cache
def _call(count: int) -> bytes:
    """Call what was pushed, with so many arguments."""
    return (write(opmap["PRECALL"], count) if _PRECALLS else b"") + write(opmap["CALL"], count)


def _names_above(each: Instruction) -> int:
    """How many slots of a call lie above its arguments: since Python 3.13 names of arguments do."""
    return int(each.name == "CALL_KW")


def _over(text: bytes) -> bytes:
    """Go over some instructions if what was pushed is false."""
    return write(_JUMP, len(text) // 2)


def _intrinsic(argument: int) -> NotedOpcode | None:
    """What is noted before a function of the interpreter's own."""
    if argument == IMPORT_STAR:
        raise OpaqueError("IMPORT_STAR")
    return NOTED["UNARY_POSITIVE"] if argument == UNARY_POSITIVE else None


def _replaced(each: Instruction) -> bytes:
    """An instruction as it was; one that may leave a method and its object, as one that leaves a callable."""
    name, argument = each.name, each.argument
    if name == "LOAD_METHOD":
        made = write(_LOAD_ATTR, argument)
    elif argument & 1 and name in _PUSHES_SLOT:
        made = each.text.replace(
            bytes((each.opcode, argument & 0xFF)), bytes((each.opcode, argument & 0xFE)), 1
        )
    else:
        return each.text
    return made + _EMPTY + (b"" if _CALLABLE_FIRST else write(_SWAP, 2))


class _Stack:
    """Follows how deep the stack is, and which of its slots are empty."""

    def __init__(self, given: list[Instruction], code: CodeType) -> None:
        self.most_copied = 0  # the most items that any note is given
        self._depth = 0
        self._empty: frozenset[int] = _NONE
        self._at: dict[int, tuple[int, frozenset[int]]] = {}
        self._covered: dict[int, list[tuple[int, int]]] = {}
        begins = {each.unit: number for number, each in enumerate(given)} if code.co_exceptiontable else {}
        for start, target, depth in handlers_of(code.co_exceptiontable):
            self._covered.setdefault(begins[start], []).append((begins[target], depth))

    def is_empty(self, depth: int, callable_first: bool) -> bool:
        """Whether the slot of a call that may be empty is; the call's slots are the topmost ``depth``."""
        return self._depth - depth + callable_first in self._empty

    def come_to(self, number: int) -> None:
        """Where the code may have jumped to, or where what an exception handler covers begins."""
        if number in self._at:
            self._depth, self._empty = self._at[number]
        for target, depth in self._covered.get(number, ()):
            below = self._below(depth >> 1)
            self._at.setdefault(target, ((depth >> 1) + 1 + (depth & 1), below))

    def pass_instruction(self, each: Instruction) -> None:
        """Follow an instruction of the original code."""
        name, argument = each.name, each.argument if each.opcode >= HAVE_ARGUMENT else None
        if each.target >= 0:
            after = self._depth + stack_effect(each.opcode, argument, jump=True)
            self._at.setdefault(each.target, (after, self._below(after)))
        before = self._depth
        if name == "SWAP" and self._empty:  # only code that Dynamo writes moves an empty slot
            top, other = before - 1, before - each.argument
            moved = {top: other, other: top}
            self._empty = frozenset([moved.get(slot, slot) for slot in self._empty])
        self._depth += stack_effect(each.opcode, argument, jump=False)
        # What a call gives lies where its first slot was, which may have been the empty one.
        if self._empty:
            self._empty = self._below(self._depth - (name in _CALLS))
        if name == "PUSH_NULL" or name == "LOAD_METHOD" or (name in _MAY_PUSH_SLOT and each.argument & 1):
            taken = _ITEMS.get(name, 0)
            self._empty |= {before - taken + (_CALLABLE_FIRST and name != "PUSH_NULL")}

    def _below(self, depth: int) -> frozenset[int]:
        if not self._empty:
            return _NONE
        return frozenset([slot for slot in self._empty if slot < depth])
