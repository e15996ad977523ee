"""How early a recording's first segment may be launched: before all is known that decides whether it may.

A launch too early does no harm where the segment writes nothing but the recording's memory, on a device that
goes on by itself. So the device is at work while the rest is asked: modes and switches, and where the guard
is long the values in it. What must be known before is that the tensors which are read are there.
"""

from __future__ import annotations

LONG_GUARD = 500
"""Slots from which checking the guard takes longer (about 20 us) than it takes to launch a segment early."""

VAIN = 3
"""Launches in vain that are put up with."""


class Early:
    """What of a replay may come after its launch.

    Attributes:
        switches: Modes and switches.
        values: The values under guard as well.
    """

    __slots__ = ("_vain", "switches", "values")

    def __init__(self) -> None:
        self.switches = self.values = False
        self._vain = 0

    def decide(self, harmless: bool, size: int) -> None:
        """After a recording.

        Args:
            harmless: The first segment may be launched in vain.
            size: Of the guard; 0 where it is to come first in any case.
        """
        self.switches, self.values = harmless, harmless and size >= LONG_GUARD
        self._vain = 0

    def was_vain(self, replays: int) -> bool:
        """A launch was in vain; whether that is too often, and everything is asked before from now on.

        Two recordings of the same arguments in two modes are called in turn, for example.

        Args:
            replays: How often the recording was replayed.
        """
        self._vain += 1
        if self._vain < VAIN or self._vain * 16 <= replays:
            return False
        self.switches = self.values = False
        return True
