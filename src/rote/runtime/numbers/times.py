"""Numbers that a call reads from the clock, which are in what it leaves and returns (``docs/call.md``).

What does not work: a time among the operands of an operation. The plain call that checks what is computed
reads another one, so nobody could tell a right operand from a wrong one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from ..backends.protocol import NumberCell
from .expressions import Expression, computed_in, value_of

TIME = "time"
"""The kind of a place that is a read of the clock."""
TELL_TIME: Mapping[Any, str] = {
    each: f"time.{each.__name__}"
    for each in (
        time.time, time.time_ns, time.perf_counter, time.perf_counter_ns, time.monotonic, time.monotonic_ns,
        time.process_time, time.process_time_ns, time.thread_time, time.thread_time_ns,
    )
}  # fmt: skip
"""Functions that read it, with their names."""
_SUMS = frozenset({
    "ADD", "SUBTRACT", "MULTIPLY", "UNARY_NEGATIVE", "UNARY_POSITIVE", "float", "abs", "min", "max",
})  # fmt: skip
"""Functions that give a number for all numbers of one type."""
_QUOTIENTS = frozenset({"TRUE_DIVIDE", "FLOOR_DIVIDE", "REMAINDER"})


@dataclass(frozen=True)
class TimeRead:
    """A read of the clock.

    Attributes:
        early: No operation has run before.
    """

    function: Callable[[], Any]
    early: bool

    def now(self) -> Any:
        """The time."""
        return self.function()


def undefined_at(expression: Expression) -> Iterable[Expression] | None:
    """Divisors for which something that is computed from times would be undefined if they were 0.

    None if it may be undefined at some time.
    """
    steps = computed_in(expression, ())
    if not all([each.function in _QUOTIENTS or each.function in _SUMS for each in steps]):
        return None
    return [each.operands[1] for each in steps if each.function in _QUOTIENTS]


class LateCell(NumberCell):
    """A number in what a call leaves behind that is computed when that is handed out, once in a call."""

    __slots__ = ("_at", "_expression", "_given", "_turn", "_value")

    def __init__(self, expression: Expression, turn: Callable[[], int], given: Callable[[int], Any]) -> None:
        self._expression, self._turn, self._given = expression, turn, given
        self._at, self._value = -1, None

    @property
    @override
    def value(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number."""
        if self._at != self._turn():
            self.fill(value_of(self._expression, self._given))
        return self._value

    @override
    def hold(self, value: Any) -> None:
        self.fill(value)

    @override
    def fill(self, value: Any) -> None:
        self._at, self._value = self._turn(), value
