"""To which of its pointers a kernel of Triton stores, by its code as Triton prints it.

Each line is an operation with the types of its values. A pointer is joined with what an operation makes of
it, and with whatever else a loop or a choice may put in its place: with too much rather than too little. What
is loaded is no pointer. Where anything else makes pointers or takes them (numbers that become pointers,
tables of pointers, calls, descriptors, jumps), nothing is known of the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_POINTER, _OF_POINTERS, _DESCRIPTOR = "!tt.ptr", "!tt.ptr<!tt.ptr", "tensordesc"
_FUNCTION = "tt.func "
_LOCATION = re.compile(r" loc\((?:[^()]|\([^()]*\))*\)")
_PARAMETER = re.compile(r"(%[\w.$-]+): (!?[\w.]+)")
_VALUE = re.compile(r"%[\w.$-]+")
_OPERATION = re.compile(r"^\s*(?:%[^=]*= )?\"?([a-z_]+\.[\w.]+)")
_STORES = frozenset({"tt.store", "tt.atomic_rmw", "tt.atomic_cas"})
"""The first operand of each is the pointer, and none of them gives one."""
_LOADS = "tt.load"
_OF_FIRST = frozenset({"tt.addptr", "tt.advance", "tt.make_tensor_ptr"})
"""Their other operands are offsets and sizes, which pointers share."""
_OF_ALL = frozenset({
    "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.bitcast", "tt.cat", "tt.join",
    "tt.split",
})  # fmt: skip
_CHOICE = "arith.select"
_GIVES_ON = frozenset({"scf.yield", "scf.condition"})
"""Their values are those of the region around them."""
_REGIONS = {"scf.for": "iter_args(", "scf.while": "scf.while", "scf.if": "{"}
"""What stands before the values that a region is given."""


@dataclass(frozen=True)
class Stores:
    """To which of a kernel's pointers it stores.

    Attributes:
        pointers: How many it is given.
        stored: The numbers of those to which it stores.
    """

    pointers: int
    stored: frozenset[int]


def stores(code: str) -> Stores | None:
    """To which of its pointers a kernel stores; None if that is not known.

    Args:
        code: The kernel in Triton's own dialect (``ttir``).
    """
    lines = [_LOCATION.sub("", line) for line in code.splitlines() if not line.startswith("#loc")]
    heads = [line for line in lines if _FUNCTION in line]
    if len(heads) != 1 or _OF_POINTERS in code:
        return None
    joined, stored, regions = dict[str, str](), list[str](), list[str]()
    for line in lines[lines.index(heads[0]) + 1 :]:
        if line.lstrip().startswith("}"):
            if not regions:
                break
            around = regions.pop()
        else:
            around = regions[-1] if regions else ""
        values = _VALUE.findall(line)
        if line.endswith("{"):
            regions.append(around if line.lstrip().startswith("}") else "".join(values[:1]))
        if _POINTER not in line and _DESCRIPTOR not in line:
            continue
        match = _OPERATION.match(line)
        operation = match.group(1) if match is not None else ""
        if operation == _LOADS:
            continue
        if match is not None and operation in _STORES:
            stored.append(_VALUE.findall(line[match.end() :])[0])
        elif operation in _GIVES_ON:
            _join(joined, [around, *values])
        elif (alike := _alike(operation, line, values)) is not None:
            _join(joined, alike)
        else:
            return None
    parameters = [match.group(1) for match in _PARAMETER.finditer(heads[0]) if match.group(2) == _POINTER]
    known, roots = {_root(joined, each) for each in parameters}, {_root(joined, each) for each in stored}
    if not roots <= known:
        return None
    numbers = [number for number, each in enumerate(parameters) if _root(joined, each) in roots]
    return Stores(len(parameters), frozenset(numbers))


def _alike(operation: str, line: str, values: list[str]) -> list[str] | None:
    """The values of an operation that may be the same pointer, its result first; None if it is not known."""
    if operation in _OF_FIRST:
        return values[:2]
    if operation in _OF_ALL:
        return values
    if operation == _CHOICE:
        return [values[0], *values[2:]]
    if operation in _REGIONS:
        return [values[0], *_VALUE.findall(line.partition(_REGIONS[operation])[2])]
    return None


def _join(joined: dict[str, str], values: list[str]) -> None:
    for each in values[1:]:
        joined[_root(joined, each)] = _root(joined, values[0])


def _root(joined: Mapping[str, str], value: str) -> str:
    while joined.get(value, value) != value:
        value = joined[value]
    return value
