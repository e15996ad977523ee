"""One piece of Python state, as texts.

In a text ``$s`` is the piece, wherever it lives, ``$kind`` a name for a class or function of its own, ``$a``
a tensor made before, and ``$n`` a small number. A read is an expression that gives a number.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """One piece of state.

    Attributes:
        name: What it is.
        value: The expression that makes it.
        reads: Expressions inside the callable.
        moves: Lines of the caller.
        watch: What the user can see of it, as an expression that gives plain values.
        writes: Statements inside the callable.
        setup: Lines before ``value``: classes and functions.
        tensor: Whether the reads give tensors of four numbers.
    """

    name: str
    value: str
    reads: tuple[str, ...]
    moves: tuple[str, ...]
    watch: str = "0"
    writes: tuple[str, ...] = ()
    setup: str = ""
    tensor: bool = False
