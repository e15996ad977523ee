"""A value that the host read and no earlier call had read at that place.

The call runs Python from there on, and from its second time on the value is a path of its own. Every value
begins so. Where all values are new, no path is taken again, and calls are traced ever more seldom
(:mod:`...engine.ledger`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ....base import cut
from ....hazards import rules
from ....hazards.rules import Reason, reason
from ...program import NUMBER, Operation, Raised, Value, value_of
from ...recording import Node

SHOWN = 3
"""How many of the last values are named."""

WIDEST = 40
"""Characters of a value that are shown."""

REMEDY = (
    "Return the tensor and read it outside, or keep it on the device: each value is a path, from its second "
    "time on."
)

INDEX = (
    " To index with a tensor of no dimension (x[step]) reads it; x.index_select(0, step.view(1))[0] does not."
)

CHECKED = (
    "Each way in which it fails is a path, from its second time on. torch.linalg.cholesky_ex, inv_ex and "
    "solve_ex return a status on the device instead."
)


class UnseenValue(NamedTuple):
    """A read that led to no known stretch.

    Attributes:
        before: Its last values in earlier calls, as text.
        more: How many other values it had.
        excess: The reason for too many values, where it is a known one.
        remedy: What to write instead, if the reason is unknown.
    """

    read: Operation
    value: str
    before: tuple[str, ...]
    more: int
    excess: Reason | None
    remedy: str
    is_float: bool

    @classmethod
    def of(cls, node: Node, read: Operation, edge: Any, out: Any) -> UnseenValue:
        """Note a value before it gets an edge."""
        valued = [known for known in node.edges if known[0] != NUMBER][-SHOWN:]
        before = tuple(_shown(known) for known in reversed(valued))
        more = len(node.edges) - len(valued)
        value = out if edge[0] == NUMBER else value_of(edge)
        number = type(value) is int and "[" in read.site.text  # it may be an index
        remedy = CHECKED if isinstance(value, Raised) else REMEDY + INDEX * number
        shown = _text_of(value) if edge[0] == NUMBER else _shown(edge)
        return cls(read, shown, before, more, node.excess, remedy, type(value) is float)

    @property
    def known(self) -> int:
        """How many values it had in earlier calls."""
        return len(self.before) + self.more

    def reason(self) -> Reason:
        """Why the call was no replay."""
        text = f"{self}, which was not seen before ({self._met()})"
        remedy = self.excess.remedy if self.excess is not None else self.remedy
        return Reason(rules.NOT_YET.code, text, self.read.site, remedy)

    def in_vain(self) -> Reason:
        """Why calls are no longer traced, if too many were."""
        if self.excess is not None:
            return self.excess
        text = f"calls read values not seen before: {self} ({self._met()})"
        return reason(rules.TOO_MANY_PATHS, text, self.read.site)

    def _met(self) -> str:
        if not self.before:
            return f"before: {self.more} other ways"
        others = f" and {self.more} more" if self.more else ""
        return f"before: {', '.join(self.before)}{others}"

    def __str__(self) -> str:
        return f"{self.read.name} gave {self.value}"


def _shown(edge: Any) -> str:
    """A value or shapes, for people."""
    value: Any = value_of(edge)
    if edge[0] != "shape":
        return _text_of(value)
    return cut(
        ", ".join(repr(p.value) if isinstance(p, Value) else f"shape {list(p[0])}" for p in value), WIDEST
    )


def _text_of(value: Any) -> str:
    text = (
        f"{value:.6g}"
        if isinstance(value, float)
        else repr(value.thaw() if hasattr(value, "thaw") else value)
    )
    return cut(text, WIDEST)  # lists are frozen
