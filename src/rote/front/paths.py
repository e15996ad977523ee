"""The hot paths of a wrapper: which there are, and when they are thrown away."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from ..backends.base import Lock
from ..recording.entry import Entry
from ..recording.hot import Counts, HotPath
from ..recording.result import Result
from ..recording.variant import Variant
from ..signature.key import Call

if TYPE_CHECKING:
    from .graphed import Graphed

MOST = 4
"""Hot paths that are tried before the general path: two shapes or two modes in turn, for example."""


class Paths:
    """Kept by the general path, which adds one when it has replayed, and clears them when it did more.

    Args:
        graphed: The wrapper.
        lock: Its lock.
        counts: Its counts.
        sorts: The order of keywords does not matter to its callable.

    Attributes:
        known: The hot paths, the newest first.
        finish: Takes the result of a call that was more than a replay.
    """

    def __init__(self, graphed: Graphed, lock: Lock, counts: Counts, *, sorts: bool) -> None:
        self.known: tuple[HotPath, ...] = ()
        self._graphed = weakref.ref(graphed)
        self._lock = lock
        self._counts = counts
        self._sorts = sorts
        self.finish = _Finish(self._graphed)

    def learn(self, entry: Entry, variant: Variant, call: Call) -> None:
        """A call was replayed: the next one like it need not come this way."""
        path = variant.hot
        if path is None or not path.serves(entry, variant):
            if not HotPath.possible(entry, variant, call):
                return
            path = HotPath(entry, variant, call, self._lock, self._counts, self.finish, sorts=self._sorts)
            variant.hot = path
        others = [known for known in self.known if known is not path]
        self.known = (path, *others)[:MOST]

    def clear(self) -> None:
        """The general path did more than replay."""
        self.known = ()


class _Finish:
    """Gives the result of a call that was more than a replay to the wrapper, without keeping that alive."""

    def __init__(self, graphed: weakref.ref[Graphed]) -> None:
        self._graphed = graphed

    def __call__(self, entry: Entry, result: Result) -> Any:
        graphed = self._graphed()
        return graphed.finish(entry, result) if graphed is not None else result.value
