"""Operations that raise, where the callable catches it and goes another way."""

from __future__ import annotations

from ...hazards import rules
from ...hazards.rules import Severity
from ...runtime.operators import short
from .notes import TrialNotes
from .places import CodePlace, here


class RaisedOperation:
    """What the operations of one run raised."""

    def __init__(self) -> None:
        self._found: list[tuple[CodePlace, str]] = []

    def add(self, operation: str, error: Exception) -> None:
        """An operation raises; whether the callable catches it is known when the call is over."""
        name = short(operation.replace("aten.", "aten::", 1))
        self._found.append((here(), f"{name} raises {type(error).__name__}, and the call goes another way"))

    def caught(self, notes: TrialNotes) -> None:
        """The call has returned, so it caught them all.

        What raises for its shapes does so in every call, and a graph of the other way is right. rote records
        no such call, so it costs what graphs would gain.
        """
        for place, text in self._found:
            notes.add(rules.OPERATION_RAISES, text, place=place, severity=Severity.SPEED)
