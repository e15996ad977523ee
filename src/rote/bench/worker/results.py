"""Results of calls, kept in files, and compared with those of another process.

Compared are the structure of the result, its tensors (shape, dtype, values to the bit; NaN equals NaN), its
other values, and the arguments that the call wrote. Strides, devices and ``requires_grad`` are not: valid
contenders differ in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...runtime.arguments import flatten, paths
from ...runtime.verify import compare_tensors

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


@dataclass
class Equality:
    """What the comparison of some calls found.

    Attributes:
        largest: The largest difference; infinite where only one side is NaN, None if no numbers differ.
        what: The first difference, as text.
        unseen: The first value of which only the type could be compared.
    """

    calls: int = 0
    bitwise: bool = True
    largest: float | None = None
    what: str = ""
    unseen: str = ""

    def add(self, number: int, found: Iterator[tuple[str, float | None]], unseen: str = "") -> None:
        """Count one call, with its differences, and a value of which only the type was compared."""
        self.calls += 1
        self.unseen = self.unseen or unseen
        for text, largest in found:
            if self.bitwise:
                self.bitwise, self.what = False, f"call {number}: {text}"
            if largest is not None:
                self.largest = max(self.largest or 0.0, largest)


def together(first: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Join two comparisons, as plain values; the second was made after the timed calls."""
    sizes = [each["largest"] for each in (first, later) if each["largest"] is not None]
    return {
        "calls": first["calls"] + later["calls"],
        "bitwise": first["bitwise"] and later["bitwise"],
        "largest": max(sizes, default=None),
        "what": first["what"] or (later["what"] and f"after the timed calls, {later['what']}"),
        "unseen": first["unseen"] or later["unseen"],
    }


class Results:
    """The results of the first calls, in files; the earliest are deleted where all exceed ``most_bytes``."""

    def __init__(self, folder: Path, most_bytes: int = 2**30) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._sizes: dict[int, int] = {}

    def keep(self, number: int, value: Any, written: dict[str, Tensor]) -> None:
        """Write the result of one call."""
        path = self._path(number)
        torch.save(plain(value, written), path)
        self._sizes[number] = path.stat().st_size
        while len(self._sizes) > 1 and sum(self._sizes.values()) > self._most_bytes:
            oldest = min(self._sizes)
            del self._sizes[oldest]
            self._path(oldest).unlink()

    def compare(self, number: int, value: Any, written: dict[str, Tensor], into: Equality) -> None:
        """Compare the result of one call with the kept one, if there is one."""
        path = self._path(number)
        if path.exists():
            ours, theirs = plain(value, written), torch.load(path, weights_only=True)
            into.add(number, differences(ours, theirs), ours["unseen"])

    def _path(self, number: int) -> Path:
        return self._folder / f"call-{number}.pt"


def plain(value: Any, written: dict[str, Tensor]) -> dict[str, Any]:
    """A result and the written arguments, as tensors on the host, plain values and text."""
    leaves: list[Any] = []
    spec = flatten(value, leaves)
    names = paths(spec, "result")
    opaque = (f"{name} ({_kind(leaf)})" for name, leaf in zip(names, leaves, strict=True) if _is_opaque(leaf))
    return {
        "structure": _ADDRESS.sub("", repr(spec)),
        "names": names,
        "leaves": [_leaf(leaf) for leaf in leaves],
        "unseen": next(opaque, ""),
        "written": {name: _leaf(tensor) for name, tensor in written.items()},
    }


def _leaf(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        dense = leaf.detach() if leaf.layout is torch.strided else leaf.detach().to_dense()
        return dense.cpu().clone(memory_format=torch.contiguous_format)
    return f"a {_kind(leaf)}" if _is_opaque(leaf) else leaf


def _is_opaque(leaf: Any) -> bool:
    return not isinstance(leaf, Tensor) and type(leaf) not in _PLAIN


def _kind(leaf: Any) -> str:
    return f"{type(leaf).__module__}.{type(leaf).__qualname__}".removeprefix("builtins.")


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> Iterator[tuple[str, float | None]]:
    """Compare two results of :func:`plain`: texts, each with the largest difference."""
    if ours["structure"] != theirs["structure"]:
        yield "the result has another structure", None
        return
    for name, mine, other in zip(ours["names"], ours["leaves"], theirs["leaves"], strict=True):
        yield from _difference(name, mine, other)
    written, expected = ours["written"], theirs["written"]
    for name in sorted(written.keys() | expected.keys()):
        if name in written and name in expected:
            yield from _difference(name, written[name], expected[name])
        else:
            yield f"{name} is {'not written by eager' if name in written else 'written by eager only'}", None


def _difference(name: str, mine: Any, other: Any) -> Iterator[tuple[str, float | None]]:
    if isinstance(mine, Tensor) and isinstance(other, Tensor):
        for found in compare_tensors(name, mine, other, 0.0):
            yield str(found).replace("in the plain call", "in eager"), found.largest
    elif type(mine) is not type(other) or repr(mine) != repr(other):
        numbers = type(mine) is type(other) and isinstance(mine, (int, float))
        yield f"{name} is {mine!r} and {other!r} in eager", abs(mine - other) if numbers else None
