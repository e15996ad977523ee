"""The code that a traced call runs, and what is not known of it."""

from __future__ import annotations

import sys
from importlib import metadata
from importlib.util import find_spec
from types import CodeType, FrameType

import torch

from ....base import Site, identity, is_internal, user_site
from ...pytorch import LAUNCHING
from ...state import TORCHS_OWN
from ..bytecode import Swaps
from ..table import Rows
from .noted import UnseenCode

_OF_PACKAGES = (find_spec, metadata.distribution, metadata.metadata, metadata.version, metadata.requires)
_INSTALLED = frozenset([each.__code__ for each in _OF_PACKAGES])
"""What says whether a package is installed, and which version: nothing that changes while a program runs."""
_QUEUES = "_lazy_call"
"""Functions of PyTorch's that keep what is to be done when a device starts, and who asked for it."""


class RunningCode:
    """What runs while one call is traced.

    Attributes:
        swaps: The functions that run other code meanwhile.
        rows: What is known of C.
        trusts: Code ran of which a declaration or a library says what it does.
    """

    def __init__(self, swaps: Swaps, rows: Rows) -> None:
        self.swaps = swaps
        self.rows = rows
        self.trusts = False
        self._unseen: dict[str, UnseenCode] = {}
        self._late: dict[int, CodeType] = {}

    @property
    def unseen(self) -> tuple[UnseenCode, ...]:
        """What is not known of the call."""
        return tuple(self._unseen.values())

    @property
    def late(self) -> tuple[CodeType, ...]:
        """Python code that ran without being followed."""
        return tuple(self._late.values())

    def frame(self) -> FrameType | None:
        """The innermost frame of code that is followed."""
        at: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        while at is not None and not self.swaps.is_instrumented(at.f_code):
            at = at.f_back
        return at

    def site(self) -> Site:
        """The user's line that runs."""
        return user_site(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]

    def refuse(self, name: str, text: str, *, unknown: bool = False) -> None:
        """Something is not known of the call; ``unknown``: the name is that of a callable or a class in C."""
        if name in self._unseen or _runs_inside(sys._getframe(1), unknown):  # pyright: ignore[reportPrivateUsage]
            return
        if self._looks_for_packages():
            return
        if not self.rows.is_in_pure(self.frame(), self.swaps.original):
            self._unseen[name] = UnseenCode(name, text, self.site(), unknown)

    def _looks_for_packages(self) -> bool:
        """Whether Python finds out if a package is installed, which stays so as what is imported does."""
        at = self.frame()
        while at is not None and is_internal(at.f_code.co_filename):
            if self.swaps.original(at.f_code) in _INSTALLED:
                return True
            at = at.f_back
        return False

    def failed(self, note: str, error: Exception) -> None:
        """A note was not taken: whatever the call is for, it is not known what it has read."""
        self._unseen[note] = UnseenCode(note, f"could not be followed: {error!r} in a note", self.site())

    def ran_apart(self, code: CodeType, frame: FrameType) -> bool:
        """Python code was entered that is not followed; whether that counts."""
        counts = not self.rows.is_in_pure(frame, self.swaps.original)
        if counts:
            self._late[identity(code)] = code
        return counts


def _runs_inside(frame: FrameType | None, unknown: bool) -> bool:
    """Whether a frame runs for PyTorch's internal state, or launches kernels.

    For numpy's own what is unknown is inside, too.

    What is known to read files or clocks does so in numpy as elsewhere.
    """
    inside = TORCHS_OWN if unknown else TORCHS_OWN[:1]
    while frame is not None:
        if identity(frame.f_code) in LAUNCHING:
            return True
        file = frame.f_code.co_filename
        if file.startswith(inside) and file != torch.__file__:
            return True
        if not is_internal(file):
            return False
        if frame.f_code.co_name == _QUEUES:
            return True
        frame = frame.f_back
    return False
