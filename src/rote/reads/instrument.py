"""Code that tells what it reads: the original instructions, with a call to a note before each that may read.

A note is told the object and the name, key or operands, and decides nothing: the original instruction follows
as it was, so values, exceptions, their lines and the frame in which they happen are those of the original.

Items are taken from the stack with ``COPY``. Of a call that is the callable and its arguments, and one slot
of a call may hold no object at all, which must not be copied. Which slots those are is followed along the
instructions (:class:`_Stack`). ``LOAD_METHOD`` leaves an object or none there as it likes, so it becomes
``LOAD_ATTR`` with a slot that is always empty.

What does not work: to log tuples without a call (``BUILD_TUPLE``, ``LIST_APPEND``) is four times as quick,
and keeps every value of the call alive, tensors among them. To replace an instruction by a function that does
the same leaves a frame of ours in tracebacks and in the way of who looks at the frame of the caller.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NamedTuple

from bytecode import Bytecode, ConcreteBytecode, ConcreteInstr, Instr, Label
from bytecode.instr import CellVar, TryBegin, TryEnd

from ..base.identity import identity
from .lines import line_table
from .opcodes import NOTED, OPAQUE, OPERATORS, SILENT, Noted

_LOADS_CLOSURE = frozenset({"cell", "store_cell", "delete_cell"})
_OF_GLOBALS = frozenset({"name", "store_name", "delete_name"})
"""Notes that are told the frame's globals; audit hooks are told of who asks for the frame itself."""
_NAMED = frozenset({
    "attribute", "super_attribute", "name", "store_attribute", "delete_attribute", "store_name",
    "delete_name", "imported", "binary", "compare", "match_class", "raised",
})  # fmt: skip
"""Notes that are told the instruction's own argument as well."""
_BOOLEAN = frozenset({"CONTAINS_OP", "IS_OP", "UNARY_NOT", "TO_BOOL"})
_CALLABLE_FIRST = sys.version_info >= (3, 13)
"""The slot that may be empty lies above the callable, not below it."""
_LOAD_CELL = "LOAD_FAST" if sys.version_info >= (3, 13) else "LOAD_CLOSURE"
_PRECALLS = sys.version_info < (3, 12)
_JUMP_IF_FALSE = "POP_JUMP_FORWARD_IF_FALSE" if sys.version_info < (3, 12) else "POP_JUMP_IF_FALSE"
_MORE_STACK = 8
_WITH_SPEC = 4
"""Flag of ``FORMAT_VALUE``: a format lies above the value."""
_CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})
TABLE = "globals()"
"""Instead of the name of a parameter: the globals of the frame."""


class OpaqueError(Exception):
    """Code that is not followed: the message names the opcode."""


class Beginning(NamedTuple):
    """A note at the beginning of code, which says whether it has told all that the code reads.

    Attributes:
        note: The note.
        given: Names of the parameters that it is told, or :data:`TABLE`.
    """

    note: Callable[..., bool]
    given: tuple[str, ...]


def instrument(code: CodeType, notes: Any, beginning: Beginning | None = None) -> CodeType:
    """Make code that calls notes.

    Args:
        code: The code.
        notes: An object with a method for each note of :data:`.opcodes.NOTED`.
        beginning: The note behind which the code as it was follows, if that has told all.

    Raises:
        OpaqueError: The code has an instruction that is not followed.
    """
    given = _taken_apart(code)
    made: list[Any] = []
    stack = _Stack()
    held: list[Any] = []  # KW_NAMES and PRECALL belong to the call behind them
    before = ""
    for each in given:
        if not isinstance(each, Instr):
            made.extend(held)
            held.clear()
            stack.pass_mark(each)
            made.append(each)
            continue
        name = each.name
        if name in ("KW_NAMES", "PRECALL"):
            held.append(each)
            continue
        noted = NOTED.get(name)
        if noted is None and name not in SILENT:
            raise OpaqueError(name if name in OPAQUE else f"{name}, which is not known")
        if name == "CALL_INTRINSIC_1":
            noted = _intrinsic(each.arg)
        if name == "CALL_FUNCTION_EX":
            made.extend(_gather(each, notes))
        if noted is not None and not (noted.note == "truth" and before in _BOOLEAN):
            made.extend(_note(each, noted, notes, stack, held))
        for one in held:
            made.append(one)
            stack.pass_instruction(one)
        held.clear()
        made.extend(_replaced(each))
        stack.pass_instruction(each)
        before = name
    given[:] = made if beginning is None else _both(code, made, beginning)
    concrete = given.to_concrete_bytecode(compute_exception_stack_depths=False)
    assembled = concrete.to_code(
        stacksize=code.co_stacksize + _MORE_STACK + stack.most_copied, compute_exception_stack_depths=False
    )
    return assembled.replace(
        co_linetable=line_table(assembled, [each for each in concrete if _is_placed(each)])
    )


def _intrinsic(argument: Any) -> Noted | None:
    """What is noted before a function of the interpreter's own."""
    name = getattr(argument, "name", str(argument))
    if "IMPORT_STAR" in name:
        raise OpaqueError("IMPORT_STAR")
    return OPERATORS.get(name)


def _both(code: CodeType, noted: list[Any], beginning: Beginning) -> Iterator[Any]:
    """The note at the beginning, then the code as it was, then code that calls notes."""
    begins = 1 + next(at for at, each in enumerate(noted) if getattr(each, "name", "") == "RESUME")
    yield from noted[:begins]
    location, other = noted[begins - 1].location, Label()
    yield from _callable(beginning.note, location)
    for name in beginning.given:
        if name == TABLE:
            yield from _callable(globals, location)
            yield from _call(0, location)
        elif name in code.co_cellvars:
            yield Instr("LOAD_DEREF", CellVar(name), location=location)
        else:
            yield Instr("LOAD_FAST", name, location=location)
    yield from _call(len(beginning.given), location)
    yield Instr(_JUMP_IF_FALSE, other, location=location)
    own = _taken_apart(code)
    yield from own[1 + next(at for at, each in enumerate(own) if getattr(each, "name", "") == "RESUME") :]
    yield other
    yield from noted[begins:]


def _taken_apart(code: CodeType) -> Bytecode:
    """The instructions of code; what handles exceptions knows the depth of the stack from the code itself.

    The library would follow the stack along all branches to find it, which takes twice as long as the rest.
    """
    concrete = ConcreteBytecode.from_code(code)
    depths = [entry.stack_depth for entry in concrete.exception_table]
    given = concrete.to_bytecode()
    begins = [each for each in given if isinstance(each, TryBegin)]
    for begin, depth in zip(begins, depths, strict=True):
        begin.stack_depth = depth
    return given


def _is_placed(each: Any) -> bool:
    return isinstance(each, ConcreteInstr) and each.name not in ("EXTENDED_ARG", "CACHE")


def _replaced(each: Instr) -> Iterator[Any]:
    """An instruction as it was; one that may leave a method and its object, as one that leaves a callable."""
    is_method = each.name == "LOAD_METHOD" or (
        each.name in ("LOAD_ATTR", "LOAD_SUPER_ATTR") and isinstance(each.arg, tuple) and each.arg[0]
    )
    if not is_method:
        yield each
        return
    argument: Any = each.arg
    if each.name == "LOAD_METHOD":
        yield Instr("LOAD_ATTR", argument, location=each.location)
    else:
        yield Instr(each.name, (False, *argument[1:]), location=each.location)
    yield Instr("PUSH_NULL", location=each.location)
    if not _CALLABLE_FIRST:
        yield Instr("SWAP", 2, location=each.location)


def _note(each: Instr, noted: Noted, notes: Any, stack: _Stack, held: list[Any]) -> Iterator[Any]:
    """The instructions of one note."""
    static, items, depth = _operands(each, noted, stack, held)
    if noted.each and not items and noted.note not in _NAMED:
        return
    if noted.note in _LOADS_CLOSURE and type(each.arg).__name__ != "FreeVar":
        return  # a cell that the frame made itself
    location = each.location
    yield from _callable(getattr(notes, noted.note), location)
    pushed = 2
    for value in static:
        yield Instr("LOAD_CONST", value, location=location)
        pushed += 1
    if noted.note in _LOADS_CLOSURE:
        yield Instr(_LOAD_CELL, each.arg, location=location)
        pushed += 1
    if noted.note in _OF_GLOBALS:
        yield from _callable(globals, location)
        yield from _call(0, location)
        pushed += 1
    for number in range(items):
        # Behind the callable may be the slot that is empty: the items above it are one nearer.
        nearer = 1 if number and depth > items else 0
        yield Instr("COPY", depth + pushed - nearer, location=location)
    count = pushed - 2 + items
    stack.most_copied = max(stack.most_copied, count)
    yield from _call(count, location)
    yield Instr("POP_TOP", location=location)


def _gather(each: Instr, notes: Any) -> Iterator[Any]:
    """The arguments behind ``*`` become a tuple before the call is noted, as the call itself makes them one.

    A note cannot look into an iterator. It says what makes the tuple: a function of C, of which no frame is
    in a traceback, without arguments.
    """
    argument: Any = each.arg
    location, on_top = each.location, bool(int(argument) & 1)
    empty, note = Instr("PUSH_NULL", location=location), Instr("LOAD_CONST", notes.gather, location=location)
    if on_top:
        yield Instr("SWAP", 2, location=location)
    yield from () if _CALLABLE_FIRST else (empty,)
    yield from (note, empty) if _CALLABLE_FIRST else (empty, note)
    yield Instr("COPY", 3 if _CALLABLE_FIRST else 4, location=location)
    yield from _call(1, location)
    yield from (empty,) if _CALLABLE_FIRST else ()
    yield from _call(0, location)
    yield Instr("SWAP", 2, location=location)
    yield Instr("POP_TOP", location=location)
    if on_top:
        yield Instr("SWAP", 2, location=location)


def _callable(function: Any, location: Any) -> Iterator[Instr]:
    """Push something that is to be called."""
    parts = [Instr("PUSH_NULL", location=location), Instr("LOAD_CONST", function, location=location)]
    yield from reversed(parts) if _CALLABLE_FIRST else parts


def _call(count: int, location: Any) -> Iterator[Instr]:
    """Call it, with so many arguments."""
    if _PRECALLS:
        yield Instr("PRECALL", count, location=location)
    yield Instr("CALL", count, location=location)


def _last(argument: Any) -> Any:
    """The argument as it is written: the last of several, and the name of an operator."""
    last = argument[-1] if isinstance(argument, tuple) else argument
    return getattr(last, "name", last)  # operators are members of an enum


def _operands(each: Instr, noted: Noted, stack: _Stack, held: list[Any]) -> tuple[list[Any], int, int]:
    """What a note is told: constants, the number of items of the stack, the depth of the deepest."""
    argument: Any = each.arg
    if noted.note == "call":
        keywords = next((one.arg for one in held if one.name == "KW_NAMES"), ())
        count = int(argument)
        names = 1 if each.name == "CALL_KW" else 0
        empty = stack.is_empty(count + 2 + names, _CALLABLE_FIRST)
        return [keywords], count + 2 + names - empty, count + 2 + names - (empty and not _CALLABLE_FIRST)
    if noted.note == "call_spread":
        given = 1 + (int(argument) & 1)
        return [], 1 + given, 1 + given + _CALLABLE_FIRST
    static: list[Any] = []
    if noted.note in _NAMED:
        static = [_last(argument)]
    items = noted.items + noted.each * int(argument if noted.each else 0)
    if each.name == "FORMAT_VALUE" and int(argument) & _WITH_SPEC:
        items += 1
    return static, items, items


class _Stack:
    """Follows how deep the stack is, and which of its slots are empty.

    Attributes:
        most_copied: The most items that any note is given.
    """

    def __init__(self) -> None:
        self.most_copied = 0
        self._depth = 0
        self._empty: frozenset[int] = frozenset()
        self._at: dict[int, tuple[int, frozenset[int]]] = {}

    def is_empty(self, depth: int, callable_first: bool) -> bool:
        """Whether the slot of a call that may be empty is; the call's slots are the topmost ``depth``."""
        return self._depth - depth + callable_first in self._empty

    def pass_mark(self, mark: Any) -> None:
        """A label, or the beginning or end of what an exception handler covers."""
        if isinstance(mark, Label) and identity(mark) in self._at:
            self._depth, self._empty = self._at[identity(mark)]
        elif isinstance(mark, TryBegin):
            depth = self._depth if mark.stack_depth is None else mark.stack_depth  # pyright: ignore
            below = frozenset(slot for slot in self._empty if slot < depth)
            self._at.setdefault(identity(mark.target), (depth + 1 + mark.push_lasti, below))
        elif isinstance(mark, TryEnd):
            pass

    def pass_instruction(self, each: Instr) -> None:
        """Follow an instruction of the original code."""
        if isinstance(each.arg, Label):
            after = self._depth + each.stack_effect(jump=True)
            self._at.setdefault(identity(each.arg), (after, self._below(after)))
        name = each.name
        pushes_empty = name == "PUSH_NULL" or (
            name in ("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_SUPER_ATTR")
            and isinstance(each.arg, tuple)
            and bool(each.arg[0])
        )
        slot = self._depth - (1 if name == "LOAD_ATTR" else 3 if name == "LOAD_SUPER_ATTR" else 0)
        if name == "LOAD_METHOD":
            pushes_empty, slot = True, self._depth - 1
        if pushes_empty and _CALLABLE_FIRST and name != "PUSH_NULL":
            slot += 1
        self._depth += each.stack_effect(jump=False)
        # What a call gives lies where its first slot was, which may have been the empty one.
        self._empty = self._below(self._depth - (name in _CALLS))
        if pushes_empty:
            self._empty |= {slot}

    def _below(self, depth: int) -> frozenset[int]:
        return frozenset(slot for slot in self._empty if slot < depth)
