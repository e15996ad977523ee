"""What equality of values leaves out: 1 is not True, nor 0.0 -0.0, nor one NaN another."""

from __future__ import annotations

from typing import Any

from ..base.floats import bits_of


def exact(value: Any) -> Any:
    """What tells a value from one that is equal to it."""
    kind = type(value)
    if kind is float or kind is complex:
        return bits_of(value)
    if issubclass(kind, tuple):
        return kind, [exact(each) for each in tuple.__iter__(value)]
    if issubclass(kind, frozenset):  # whose order counts
        return kind, [(each, exact(each)) for each in frozenset.__iter__(value)]
    return kind
