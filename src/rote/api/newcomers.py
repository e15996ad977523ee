"""Keys that were not met before: whether to look at their calls.

A key costs a traced call before anything is known of it, and another one to record it. Where every call
brings a new one, a number that counts for example, none of them ever pays, and what rests after a while (see
:mod:`..runtime.engine.patience`) is a key, which is too late. So the keys are counted that were looked at
since one of them was replayed for the first time. After ``PATIENCE`` of them a key has to come twice before
it is looked at, after as many more four times, and so on. Until then it costs a plain call and a number in a
table.

That is seldom enough where no key ever comes again, and soon enough where some do: a program that settles
loses one call for each of its keys, or a few if it took long to settle.

What does not work: to look at no key at all for a while, as keys rest. Of many sizes that are met in turn,
others than the known ones would be met when the rest is over.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

PATIENCE = 64
"""Keys in a row that are looked at and not replayed."""


class Newcomers:
    """Counts the keys of a wrapper, or of all instances' wrappers of one method.

    Args:
        remembered: Keys that were refused and are remembered.

    Attributes:
        times: Calls after which a key is looked at, the last one included.
    """

    def __init__(self, remembered: int) -> None:
        self.times = 1
        self._remembered = remembered
        self._unproven = 0
        self._met: OrderedDict[int, int] = OrderedDict()
        self._lock = threading.Lock()
        self._serial = 0

    def serial(self) -> int:
        """A number that tells the keys of one wrapper from those of others."""
        with self._lock:
            self._serial += 1
            return self._serial

    def admit(self, key: int) -> bool:
        """Whether to look at a call whose key was not looked at before.

        Args:
            key: Its hash. If two keys have the same, one is looked at too soon.
        """
        with self._lock:
            if self._unproven >= PATIENCE:
                self._unproven = 0
                self.times *= 2
            met = self._met.pop(key, 0) + 1
            if met < self.times:
                self._met[key] = met
                if len(self._met) > self._remembered:
                    self._met.popitem(last=False)
                return False
            self._unproven += 1
            return True

    def prove(self) -> None:
        """A key was replayed for the first time."""
        self._unproven = 0

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self.times, self._unproven = 1, 0
            self._met.clear()
