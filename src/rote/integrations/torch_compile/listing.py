"""The compiled graphs that are alive, with their reports."""

from __future__ import annotations

import weakref

from ...api import Graphed


class Listing:
    """What has graphed compiled code, and knows it as long as it is alive."""

    def __init__(self) -> None:
        self._alive = weakref.WeakSet[Graphed]()

    def graphed(self) -> list[Graphed]:
        """The compiled graphs that are alive, each with ``report()``, ``explain()`` and ``reset()``."""
        return sorted(self._alive, key=lambda each: each.__qualname__)

    def explain(self) -> str:
        """The reports of all compiled graphs that are alive, as text."""
        return "\n".join(each.explain() for each in self.graphed())

    def reset(self) -> None:
        """Free everything that was recorded."""
        for each in self.graphed():
            each.reset()
