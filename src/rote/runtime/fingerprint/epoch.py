"""Whether any dict under guard has changed, in one read.

PyTorch numbers the changes of the dicts it watches, all in one sequence
(:func:`..pytorch.torch_private.dict_version`). A dict that was never seen gets the next number; if that is
the one after the last such number, nothing changed in between. One sequence has one place where it is read,
or each reader would be a change to the others.

Where those numbers can be read in the dicts themselves (:func:`.layout.find_version`), this is not needed.

Threads may read at once: a late one makes the next reading differ, never agree.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..pytorch import dict_version, numbers_watched_dicts


class Epoch:
    """Counts the moments at which watched dicts were seen to have changed."""

    def __init__(self) -> None:
        self._number = 0
        self._next = -1

    def reader(self) -> Callable[[], int] | None:
        """Reads a number that stays while no watched dict changes; None where that cannot be told."""
        version = dict_version()
        if version is None or not numbers_watched_dicts():
            return None
        return partial(self._read, version)

    def _read(self, version: Callable[[dict[Any, Any]], int]) -> int:
        seen = version({})
        if seen != self._next:
            self._number += 1
        self._next = seen + 1
        return self._number


EPOCH = Epoch()
"""One per process, since the process has one sequence."""
