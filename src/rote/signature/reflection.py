"""Which attributes a piece of code may read: those it names, and what it reflects on.

Python reads an attribute of an instance by a name that stands in the bytecode (``co_names``), by a string
(``getattr(x, "n")``, a constant like any other), or by *reflection*: a name that is computed, or all of an
object at once (``vars(x)``, ``x.__dict__``). The names are easy. Of each reflection it is found out, by
following the values on the stack through straight pieces of bytecode, what it is applied to:

- a name that is constant, or a parameter of the function: then it is known when the function is entered;
- an object that is a parameter of the function, or lies in an attribute of one: all of it counts as read;
- anything else: every attribute of every object counts as read, if the place is reached.

Nothing is concluded from what is not understood: an instruction that is not known forgets the stack, and a
``getattr`` that was not seen to be called with a known name, because it was stored, passed on or lost, stays
unsettled. A parameter counts only if nothing assigns to it; in a comprehension that has code of its own, the
parameters of the function around it count as well.

What does not work: to leave it to the names. Dataclasses, configurations and modules all reflect somewhere,
mostly on ``self``, so a rule without objects would give every attribute up in nearly every program.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from functools import lru_cache
from types import CodeType
from typing import Any

from ..base.location import Site
from .bytecode import (
    BY_NAME,
    FORMATS,
    GETTERS,
    METHODS,
    NAMESPACE,
    REFLECTIVE,
    WHOLE,
    CodeFacts,
    Place,
    assigned,
    at,
    fixed_parameters,
    matches_positions,
    stored_in,
    strings,
)

_QUOTED = REFLECTIVE - {NAMESPACE, *METHODS, "__dir__", "__reduce__", "__getstate__", "__setstate__", "dir"}
"""What gives access to a reflecting function where it stands in quotes."""
_LOOKUPS = frozenset({"get", "pop", "setdefault", "__contains__", "__getitem__"})
_ONLY_READING = frozenset({"get", "__contains__", "__getitem__", "keys", "values", "items"})
_MATCH_CLASS = dis.opmap.get("MATCH_CLASS")
_READING = frozenset({"getattr", "hasattr", "dir", "__getattribute__", "__getattr__", *GETTERS, *FORMATS})
_STORING = frozenset({"setattr", "delattr", "__setattr__", "__delattr__", "vars", NAMESPACE})
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})

_NOTHING = frozenset({
    "RESUME", "NOP", "CACHE", "PRECALL", "COPY_FREE_VARS", "MAKE_CELL", "EXTENDED_ARG", "NOT_TAKEN",
})  # fmt: skip
_EFFECTS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("COMPARE_OP", "IS_OP", "BINARY_OP"), (2, 1)),
    **dict.fromkeys(("UNARY_NOT", "UNARY_NEGATIVE", "UNARY_INVERT", "TO_BOOL", "GET_ITER", "LIST_TO_TUPLE",
                     "FORMAT_SIMPLE", "CONVERT_VALUE"), (1, 1)),
    **dict.fromkeys(("POP_TOP", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP", "STORE_FAST", "STORE_DEREF",
                     "STORE_GLOBAL", "STORE_NAME"), (1, 0)),
}  # fmt: skip
"""How many values an instruction takes, and how many unknown ones it leaves."""

_Value = tuple[Any, ...] | None
"""What lies on the stack: ``("object", parameter, attribute...)``, ``("constant", value)``, ``("global",
name)``, ``("super", of)``, ``("reflection", token)``, ``("lookup", token)``; None for what is not known."""
_NULL: tuple[Any, ...] = ("null",)


@lru_cache(maxsize=8192)
def facts_of(code: CodeType) -> CodeFacts:
    """What a code object may read."""
    names = frozenset(strings(code.co_consts)).union(code.co_names)
    opcodes = code.co_code[::2]
    by_name = not _STORING.isdisjoint(names)
    found = CodeFacts(names, names if by_name else stored_in(code, opcodes), by_name)
    quoted = _QUOTED & (names - set(code.co_names))
    if quoted:
        place = Place(at(code, None), f"has {sorted(quoted)[0]!r} as a string")
        return found._replace(open=(place,))
    if _MATCH_CLASS is not None and _MATCH_CLASS in opcodes and matches_positions(code):
        return found._replace(open=(Place(at(code, None), "matches a class by position"),))
    if REFLECTIVE.isdisjoint(code.co_names) and FORMATS.isdisjoint(code.co_names):
        return found
    return _Reader(code).read(found)


class _Token:
    """One place where a reflecting function, or the namespace of an object, comes to lie on the stack."""

    def __init__(self, name: str, base: _Value, site: Site) -> None:
        self.name = name
        self.base = base
        self.site = site
        self.settled = False
        self.only_reads = name in _READING
        self.calls: tuple[int, ...] | None = None


class _Reader:
    """Follows the values on the stack through one code object."""

    def __init__(self, code: CodeType) -> None:
        self._code = code
        self._instructions = list(dis.get_instructions(code))
        self._parameters = fixed_parameters(code)
        comprehends = code.co_name in _COMPREHENSIONS
        self._around = frozenset(code.co_freevars if comprehends else ()) - assigned(self._instructions)
        self._stack: list[_Value] = []
        self._tokens: list[_Token] = []
        self._line: int | None = None
        self._keywords = 0
        self._offset = self._before = 0
        self._changed: set[tuple[str, ...]] = set()
        self._named: set[str] = set()
        self._named_globals: set[str] = set()
        self._whole: set[tuple[str, ...]] = set()

    def read(self, facts: CodeFacts) -> CodeFacts:
        """Go through the code once."""
        for instruction in self._instructions:
            line = instruction.positions.lineno if instruction.positions is not None else None
            self._line = line if line is not None else self._line
            self._offset = instruction.offset
            if instruction.is_jump_target:
                self._stack.clear()
            if instruction.opname not in _NOTHING:
                self._step(instruction)
            self._before = instruction.offset
        places: list[Place] = []
        for token in self._tokens:
            base = token.base if token.name == NAMESPACE else None
            if not token.settled and not self._take_whole(base, stores=not token.only_reads):
                text = f"uses {token.name} on what is no plain parameter"
                places.append(Place(token.site, text, token.calls))
        return facts._replace(
            named=tuple(sorted(self._named)),
            named_globals=tuple(sorted(self._named_globals)),
            whole=tuple(sorted(self._whole)),
            free=tuple(sorted(self._around & (self._named | {path[0] for path in self._whole}))),
            open=tuple(places),
            changed=frozenset(self._changed),
        )

    # ------------------------------------------------------------------ the stack

    def _pop(self) -> _Value:
        return self._stack.pop() if self._stack else None

    def _take(self, count: int) -> list[_Value]:
        """The uppermost values, the lowest first."""
        return [self._pop() for _ in range(count)][::-1]

    def _step(self, instruction: dis.Instruction) -> None:
        taken = instruction.opname.startswith("POP_JUMP")
        effect = (1, 0) if taken else _EFFECTS.get(instruction.opname)
        if effect is not None and instruction.argrepr != "[]":
            self._take(effect[0])
            self._stack += [None] * effect[1]
            if instruction.opcode in dis.hasname and instruction.argval in REFLECTIVE | FORMATS:
                self._reflection(instruction.argval, None)
            if "JUMP" in instruction.opname:  # what is not taken from the stack here is taken on two ways
                self._stack = [None if _holds_token(value) else value for value in self._stack]
            return
        handler = _HANDLERS.get(instruction.opname)
        if handler is None:
            self._stack.clear()
            if instruction.opcode in dis.hasname and instruction.argval in REFLECTIVE | FORMATS:
                self._reflection(instruction.argval, None)  # IMPORT_FROM and the like
        else:
            handler(self, instruction)

    # ------------------------------------------------------------------ instructions

    def _constant(self, instruction: dis.Instruction) -> None:
        self._stack.append(("constant", instruction.argval))

    def _local(self, instruction: dis.Instruction) -> None:
        names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
        for name in names:
            known = name in self._parameters or name in self._around
            self._stack.append(("object", name) if known else None)

    def _global(self, instruction: dis.Instruction) -> None:
        name = instruction.argval
        if instruction.opname == "LOAD_GLOBAL" and (instruction.arg or 0) & 1:
            self._stack.append(_NULL)
        self._stack.append(self._reflection(name, None) if name in REFLECTIVE else ("global", name))

    def _attribute(self, instruction: dis.Instruction) -> None:
        base = self._pop()
        method = instruction.opname == "LOAD_METHOD" or (
            _METHOD_FLAG and instruction.opname == "LOAD_ATTR" and (instruction.arg or 0) & 1
        )
        self._load(instruction.argval, base, bool(method))

    def _super_attribute(self, instruction: dis.Instruction) -> None:
        _, _, of = self._take(3)
        self._load(instruction.argval, ("super", of), bool((instruction.arg or 0) & 1))

    def _load(self, name: str, base: _Value, method: bool) -> None:
        namespace = self._namespace(base)
        if namespace is not None:
            self._stack.append(("lookup", namespace) if name in _LOOKUPS else None)
            namespace.only_reads = name in _ONLY_READING
        elif name in REFLECTIVE or name in FORMATS:
            self._stack.append(self._reflection(name, base))
        else:
            self._stack.append((*base, name) if base is not None and base[0] == "object" else None)
        if method:
            self._stack.append(_NULL)

    def _subscript(self, instruction: dis.Instruction) -> None:
        container, key = self._take(2)
        self._look_up(container, key)
        self._stack.append(None)

    def _contains(self, instruction: dis.Instruction) -> None:
        key, container = self._take(2)
        self._look_up(container, key)
        self._stack.append(None)

    def _change_item(self, instruction: dis.Instruction) -> None:
        *_, container, key = self._take(3 if instruction.opname == "STORE_SUBSCR" else 2)
        self._look_up(container, key, only_reads=False)

    def _store_attribute(self, instruction: dis.Instruction) -> None:
        base = self._pop()
        if instruction.opname == "STORE_ATTR":
            self._pop()
        if instruction.argval in REFLECTIVE:
            self._reflection(instruction.argval, base)

    def _build(self, instruction: dis.Instruction) -> None:
        count = instruction.arg or 0
        each = {"BUILD_MAP": 2 * count, "BUILD_CONST_KEY_MAP": count + 1}
        self._take(each.get(instruction.opname, count))
        self._stack.append(None)

    def _format(self, instruction: dis.Instruction) -> None:
        self._take(2 if (instruction.arg or 0) & 4 else 1)
        self._stack.append(None)

    def _copy(self, instruction: dis.Instruction) -> None:
        depth = instruction.arg or 1
        value = self._stack[-depth] if len(self._stack) >= depth else None
        if _holds_token(value):  # of two, one may get lost
            self._stack[-depth] = value = None
        self._stack.append(value)

    def _swap(self, instruction: dis.Instruction) -> None:
        depth = instruction.arg or 1
        self._stack[:0] = [None] * (depth - len(self._stack))
        self._stack[-depth], self._stack[-1] = self._stack[-1], self._stack[-depth]

    def _keyword_names(self, instruction: dis.Instruction) -> None:
        self._keywords = len(self._code.co_consts[instruction.arg or 0])

    def _call(self, instruction: dis.Instruction) -> None:
        keywords, self._keywords = self._keywords, 0
        if instruction.opname == "CALL_KW":
            names = self._pop()
            keywords = len(names[1]) if names is not None and names[0] == "constant" else 1
        arguments = self._take(instruction.arg or 0)
        callee = next((each for each in self._take(2) if each is not None and each is not _NULL), None)
        self._stack.append(self._called(callee, arguments, keywords))

    # ------------------------------------------------------------------ what they mean

    def _reflection(self, name: str, base: _Value) -> _Value:
        token = _Token(name, base, at(self._code, self._line))
        self._tokens.append(token)
        return ("reflection", token)

    @staticmethod
    def _namespace(value: _Value) -> _Token | None:
        """The token of a value that is the namespace of an object."""
        found = value is not None and value[0] == "reflection" and value[1].name == NAMESPACE
        return value[1] if found and value is not None else None

    def _look_up(self, container: _Value, key: _Value, *, only_reads: bool = True) -> None:
        token = self._namespace(container)
        if token is not None:
            token.settled = self._is_known(key)
            token.only_reads = only_reads

    def _called(self, callee: _Value, arguments: list[_Value], keywords: int) -> _Value:
        """What is known of the result of a call."""
        if callee == ("global", "super"):
            return self._super(arguments)
        if callee is None or callee[0] not in ("reflection", "lookup"):
            return None
        token: _Token = callee[1]
        if keywords and token.name not in FORMATS:
            return None
        if (token.base is None and token.name in BY_NAME | WHOLE) or token.name in FORMATS:
            token.calls = (self._before, self._offset)
        if callee[0] == "lookup":
            token.settled = bool(arguments) and self._is_known(arguments[0])
        else:
            token.settled = self._settles(token, arguments)
        return None

    def _super(self, arguments: list[_Value]) -> _Value:
        if len(arguments) == 2:
            return ("super", arguments[1])
        first = self._code.co_varnames[0] if self._code.co_argcount else ""
        return ("super", ("object", first)) if not arguments and first in self._parameters else None

    def _settles(self, token: _Token, arguments: list[_Value]) -> bool:
        """Whether it is known what a call of a reflecting function reads."""
        name, count = token.name, len(arguments)
        if name in BY_NAME and count >= 2:
            return self._by_name(token, arguments[0], arguments[1])
        if name in WHOLE:
            return not count or self._take_whole(arguments[0], stores=name == "vars")
        if name in METHODS and count == METHODS[name]:
            return self._by_name(token, token.base, arguments[0])
        if name in METHODS and count == METHODS[name] + 1:
            return self._by_name(token, arguments[0], arguments[1])
        if name in GETTERS and arguments:
            known = arguments if name == "attrgetter" else arguments[:1]
            return all(each is not None and each[0] == "constant" and _is_name(each[1]) for each in known)
        if name in FORMATS:
            return token.base is not None and token.base[0] == "constant"
        return False

    def _by_name(self, token: _Token, target: _Value, name: _Value) -> bool:
        if name is not None and name[0] == "constant" and name[1] in REFLECTIVE | FORMATS:
            return token.name == "hasattr" or (name[1] == NAMESPACE and self._take_whole(target, stores=True))
        if self._is_known(name):
            return True
        return self._take_whole(target, stores=not token.only_reads)

    def _is_known(self, name: _Value) -> bool:
        """Whether the name of an attribute is known here, or at the entry."""
        if name is None:
            return False
        parameter = name[0] == "object" and len(name) == 2
        if parameter:
            self._named.add(name[1])
        elif name[0] == "global":
            self._named_globals.add(name[1])
        return parameter or name[0] == "global" or (name[0] == "constant" and _is_name(name[1]))

    def _take_whole(self, target: _Value, *, stores: bool) -> bool:
        """Count every attribute of an object as read; False if it is not known which object it is."""
        while target is not None and target[0] == "super":
            target = target[1]
        if target is None or target[0] != "object":
            return False
        self._whole.add(target[1:])
        if stores:
            self._changed.add(target[1:])
        return True


def _is_name(constant: Any) -> bool:
    """Whether a constant is the name of an attribute that gives access to no others."""
    parts = constant.split(".") if isinstance(constant, str) else []
    return (REFLECTIVE | FORMATS).isdisjoint(parts)


def _holds_token(value: _Value) -> bool:
    return value is not None and value[0] in ("reflection", "lookup")


_Handler = Callable[[_Reader, dis.Instruction], None]
# pyright: reportPrivateUsage=false
_HANDLERS: dict[str, _Handler] = {
    **dict.fromkeys(("LOAD_CONST", "LOAD_SMALL_INT"), _Reader._constant),
    **dict.fromkeys(("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_FAST_LOAD_FAST",
                     "LOAD_FAST_BORROW_LOAD_FAST_BORROW", "LOAD_DEREF", "LOAD_CLOSURE"), _Reader._local),
    **dict.fromkeys(("LOAD_GLOBAL", "LOAD_NAME"), _Reader._global),
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD"), _Reader._attribute),
    **dict.fromkeys(("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_STRING", "BUILD_SLICE", "BUILD_MAP",
                     "BUILD_CONST_KEY_MAP"), _Reader._build),
    **dict.fromkeys(("STORE_ATTR", "DELETE_ATTR"), _Reader._store_attribute),
    **dict.fromkeys(("CALL", "CALL_KW"), _Reader._call),
    **dict.fromkeys(("BINARY_SUBSCR", "BINARY_OP"), _Reader._subscript),
    "PUSH_NULL": lambda reader, _: reader._stack.append(_NULL),
    "LOAD_SUPER_ATTR": _Reader._super_attribute,
    "CONTAINS_OP": _Reader._contains,
    **dict.fromkeys(("STORE_SUBSCR", "DELETE_SUBSCR"), _Reader._change_item),
    "FORMAT_VALUE": _Reader._format,
    "COPY": _Reader._copy,
    "SWAP": _Reader._swap,
    "KW_NAMES": _Reader._keyword_names,
}  # fmt: skip

_METHOD_FLAG = sys.version_info >= (3, 12)
"""Whether ``LOAD_ATTR`` says itself that a method is loaded (Python 3.12)."""
