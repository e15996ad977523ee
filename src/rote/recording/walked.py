"""A key of walking a recorded graph back: what is replayed and nothing else takes the hot path.

A walk is a call like any other, made by autograd, on a thread of its own where the device is a GPU. What its
wrapper does around a call of the forward (:mod:`rote.front.paths`) is done here: once a walk was replayed, a
function is written that makes the next one, and it is asked first.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..base.errors import NotReplayedError
from ..hazards.findings import findings_of
from ..memory.holding import Holding
from ..reads import Output
from ..signature.key import Call
from ..signature.source import NOT_MINE
from .contest import NEVER
from .guard_reasons import strict_reasons
from .hot import HotPath
from .result import REPLAYED, Result
from .variant import Variant

if TYPE_CHECKING:
    from .entry import Entry


class Walked:
    """Makes the walks of one key.

    Args:
        entry: The key.
    """

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._hot: HotPath | None = None

    @property
    def dead(self) -> bool:
        """Whether the key can no longer be used."""
        return self._entry.dead

    def answer(self, args: tuple[Any, ...]) -> Any:
        """Make a walk that is a plain replay; the device's lock is not held.

        Returns:
            What :meth:`make` would have had as value; NOT_MINE if it has to decide.
        """
        hot = self._hot  # another thread may release it meanwhile
        return hot.call(args, {}) if hot is not None else NOT_MINE

    def make(self, call: Call) -> Result:
        """Make one walk, with the device's lock held.

        Raises:
            NotReplayedError: In strict mode, after the warm-up, if it would not be replayed from graphs.
            VerificationError: A replay of it was checked and is wrong.
        """
        entry, log = self._entry, self._entry.log
        if log.strict and entry.calls >= entry.limits.warmup + 2:
            variant, reasons = entry.would_replay(call)
            if variant is None or reasons:
                listed = "\n  ".join(str(why) for why in reasons)
                text = f"{entry.name} would not be replayed wholly from graphs (strict mode):\n  {listed}"
                raise NotReplayedError(text, findings_of(reasons, entry.name))
        if log.checks is not None:
            return log.checks.run(entry, call, sys._getframe(1), ())
        result = entry.run(call, sys._getframe(1))
        if result.how is REPLAYED and result.variant is not None:
            self._learn(result.variant, call)
        else:
            self._hot = None
        return result

    def _learn(self, variant: Variant, call: Call) -> None:
        """A walk was replayed: the next one like it need not come this way."""
        entry, log = self._entry, self._entry.log
        path = variant.hot
        if path is None or not path.serves(entry, variant):
            if not HotPath.possible(entry, variant, call) or (
                log.strict and strict_reasons(variant, entry.limits)
            ):
                return
            variant.due = NEVER  # walks are not measured against plain ones
            path = variant.hot = HotPath(entry, variant, call, None, log, log.finish, sorts=False)
        self._hot = path

    def holdings(self) -> list[Holding]:
        """The memory of its recordings."""
        return self._entry.holdings()

    def output(self) -> list[Output]:
        """What its recorded walks wrote to the standard streams."""
        return self._entry.output()

    def release(self) -> None:
        """Free everything."""
        self._hot = None
        self._entry.release()
