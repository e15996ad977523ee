"""Constructors in C that make an instance of a class of tensors: ``Named(data)``, ``Named(3, 4)``.

They have an operation make a tensor, and take it for the instance. One that a dispatch mode has seen has an
object of Python's already. PyTorch takes it only if that object is an instance of the class, and raises else.
"""

from __future__ import annotations

import dis
import sys
from dataclasses import dataclass
from types import FrameType

from ...base import is_own

_CALLS = "CALL"
"""How the names of instructions begin that call something."""


@dataclass(frozen=True, eq=False)
class ConstructorCall:
    """A call of a class of tensors.

    Attributes:
        kind: The class.
        frame: Whose code calls it.
        place: The instruction, in bytes from the beginning of the code.
    """

    kind: type
    frame: FrameType
    place: int

    @classmethod
    def of(cls, kind: type, frame: FrameType) -> ConstructorCall:
        """The next call that a frame makes."""
        behind = [each for each in dis.get_instructions(frame.f_code) if each.offset > frame.f_lasti]
        calls = [each.offset for each in behind if each.opname.startswith(_CALLS)]
        return cls(kind, frame, calls[0] if calls else -1)

    def runs(self) -> bool:
        """Whether it is what runs now, and not Python code that it has called."""
        at: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        while at is not None and is_own(at.f_code.co_filename):
            at = at.f_back
        return at is not None and at is self.frame and at.f_lasti == self.place
