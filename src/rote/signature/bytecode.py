"""What stands in a code object: names, strings, parameters; and by which names code reflects on objects."""

from __future__ import annotations

import dis
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

from ..base.location import Site

NAMESPACE = "__dict__"
BY_NAME = frozenset({"getattr", "hasattr", "setattr", "delattr"})
WHOLE = frozenset({"vars", "dir"})
METHODS = {"__getattribute__": 1, "__getattr__": 1, "__delattr__": 1, "__setattr__": 2}
"""Methods that take the name of an attribute, with the number of their arguments."""
GETTERS = frozenset({"attrgetter", "methodcaller"})
FORMATS = frozenset({"format", "format_map"})
HIDDEN = frozenset({
    "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__dir__", "get_referents",
    "get_referrers", "get_objects", "getattr_static", "getmembers", "getmembers_static",
    "__pydantic_serializer__", "__pydantic_validator__", "__builtins__", "setprofile",
})  # fmt: skip
"""Names by which code in C is asked for attributes, or that lead to such code."""
REFLECTIVE = BY_NAME | WHOLE | METHODS.keys() | GETTERS | HIDDEN | {NAMESPACE}


_FIELDS = re.compile(r"[.\[]([^.\[\]{}!:]+)")
_LONGEST_PATH = 200  # longer is documentation
_STORES = (dis.opmap["STORE_ATTR"], dis.opmap["DELETE_ATTR"])


class CodeFacts(NamedTuple):
    """What one code object, without those defined in it, may read of objects.

    Attributes:
        names: Names and strings in it.
        stored: Names of the attributes that it may store.
        stores_by_name: Those in ``named`` as well.
        changed: Of which of the objects in ``whole`` any attribute may be stored.
        named: Parameters that hold the name of an attribute.
        named_globals: Globals that do.
        whole: Of which objects every attribute may be read: a parameter and attributes from there on.
        free: Variables of the code around it that are taken for its parameters.
        open: Places where every attribute of any object may be read.
    """

    names: frozenset[str]
    stored: frozenset[str] = frozenset()
    stores_by_name: bool = False
    named: tuple[str, ...] = ()
    named_globals: tuple[str, ...] = ()
    whole: tuple[tuple[str, ...], ...] = ()
    changed: frozenset[tuple[str, ...]] = frozenset()
    free: tuple[str, ...] = ()
    open: tuple[Place, ...] = ()


class Place(NamedTuple):
    """A place in code that may read any attribute.

    Attributes:
        site: The line.
        text: What it does.
        calls: The offsets of the instructions by which it calls a builtin function; None if it counts as soon
            as the code runs.
    """

    site: Site
    text: str
    calls: tuple[int, ...] | None = None


def strings(constants: Iterable[Any]) -> Iterator[str]:
    """Every string among constants, and the names of attributes in format strings and dotted names."""
    for constant in constants:
        if isinstance(constant, str):
            yield constant
            if "{" in constant:
                yield from _FIELDS.findall(constant)
            elif "." in constant and len(constant) < _LONGEST_PATH:
                yield from constant.split(".")
        elif isinstance(constant, (tuple, frozenset)):  # what a loop goes over
            yield from strings(constant)


@lru_cache(maxsize=8192)
def fixed_parameters(code: CodeType) -> frozenset[str]:
    """The parameters that hold, wherever they are read, what was passed."""
    parameters = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    parameters -= assigned(dis.get_instructions(code))
    for inner in _inner(code):
        parameters -= {name for name in inner.co_freevars if name in parameters and _assigns(inner, name)}
    return frozenset(parameters)


def _assigns(code: CodeType, name: str) -> bool:
    return name in assigned(dis.get_instructions(code)) or any(
        name in inner.co_freevars and _assigns(inner, name) for inner in _inner(code)
    )


def assigned(instructions: Iterable[dis.Instruction]) -> set[str]:
    """Names of the locals that instructions assign to; some of them name two."""
    found: set[str] = set()
    for each in instructions:
        kind = each.opname
        if ("STORE" in kind or "DELETE" in kind or "CLEAR" in kind) and ("FAST" in kind or "DEREF" in kind):
            found.update(each.argval if isinstance(each.argval, tuple) else (each.argval,))
    return found


def _inner(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def stored_in(code: CodeType, opcodes: bytes) -> frozenset[str]:
    """The attributes that code stores or deletes; to take it apart takes long."""
    if not any(each in opcodes for each in _STORES):
        return frozenset()
    return frozenset(each.argval for each in dis.get_instructions(code) if each.opcode in _STORES)


def matches_positions(code: CodeType) -> bool:
    """Whether a ``case Point(x, y)`` takes its names from the class."""
    return any(each.opname == "MATCH_CLASS" and each.arg for each in dis.get_instructions(code))


def at(code: CodeType, line: int | None) -> Site:
    """A line of code, the first one if it is not known."""
    return Site(code.co_filename, line if line is not None else code.co_firstlineno, code.co_name)
