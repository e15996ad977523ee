"""How long a key is tried: traced calls have to lead to replays.

A traced call takes longer than a plain one, many times as long where operations are small. That pays if what
it met comes again. So the calls are counted that met something new, a state or a value read on the host that
no call before had met, unless at least ``PAYS`` replays lie between one and the next. After too many in a row
the key rests: it runs plainly, and is looked at again when the rest is over, which is ever longer
(:mod:`.states`). So a program that settles after n calls is picked up before call 3n or so.

Keys that do not come again have nothing to rest from: see :mod:`rote.front.newcomers`.

What does not work: to measure traced calls against plain ones, as replays are (:mod:`.contest`). Every one
of them would lose; what they are worth is known only later.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..base.location import Site
from ..hazards import rules
from ..hazards.rules import Reason, reason
from .result import Limits
from .states import PATIENCE, Event, Life
from .unseen import Unseen
from .variant import Variant

if TYPE_CHECKING:
    from .pupil import Pupil

PAYS = 4
"""Replays that pay for a call that met something new."""

MAX_OBSERVED = 8
"""Variants of a key that were observed but never recorded; the oldest is forgotten beyond that."""


class Patience:
    """What one key's traced calls have led to.

    Args:
        life: The key's.
        limits: Bounds.
        variants: The key's list.
    """

    def __init__(self, life: Life, limits: Limits, variants: list[Variant]) -> None:
        self._life = life
        self._limits = limits
        self._variants = variants
        self._replays = self._settled = 0

    def settled(self) -> bool:
        """Whether enough was replayed since the last call that was not steady."""
        before, self._settled = self._settled, sum(variant.replays for variant in self._variants)
        return self._settled >= before + PAYS

    def paid(self) -> bool:
        """Whether enough was replayed since the last call that asked."""
        before, self._replays = self._replays, sum(variant.replays for variant in self._variants)
        return self._replays >= before + PAYS

    def spend(self, unseen: Unseen) -> Reason | None:
        """A call read a value that none before had; why the key rests from now on, if it does.

        With ``keep=True`` it never does: the values that may be kept are the only bound then.
        """
        if self._limits.keep:
            return None
        count = self._life.unseen(max(PATIENCE, self._limits.max_paths // 2))
        return unseen.give_up(count, self._life.resting) if count else None


def overdrawn(pupil: Pupil, variant: Variant, site: Site) -> tuple[Event, Reason] | None:
    """Whether a key has more ways or recordings than it may have, and why; old recordings are dropped.

    Args:
        pupil: The key.
        variant: The one that has just been observed or recorded.
        site: The caller's line.
    """
    limits = pupil.limits
    if variant.root.paths() > limits.max_paths:
        text = f"{variant.root.paths()} ways were seen"
        widest = max(variant.root.walk(), key=lambda node: len(node.edges))
        where = widest.events[-1].site if widest.events else site
        event = Event.LIMIT if limits.keep else Event.CROWDED
        return event, widest.excess or reason(rules.TOO_MANY_PATHS, text, where)
    for old in [other for other in pupil.variants if other.gone and other is not variant]:
        old.release()
        pupil.variants.remove(old)
        pupil.evictions += old.replays < PAYS
    recorded = [other for other in pupil.variants if other.recorded]
    for old in recorded[limits.max_recordings :]:
        old.release()
        pupil.variants.remove(old)
        pupil.evictions += 1
    fresh = [other for other in recorded if not other.replays]
    unused = sum(not other.holds() for other in fresh) if len(fresh) > MAX_OBSERVED else 0
    if pupil.evictions <= limits.max_recordings and unused <= MAX_OBSERVED:
        return None
    text = f"{pupil.evictions} recordings were replaced (max_recordings={limits.max_recordings})"
    if unused > MAX_OBSERVED:
        text = f"{unused} recordings were never replayed, their state did not come back"
    last = pupil.last_mismatch
    if last is not None:
        text += f"; the last time {last.message}"
    why = reason(rules.TOO_MANY_RECORDINGS, text, site)
    if last is not None and last.code in (rules.HYPERPARAMETER.code, rules.GRADIENT_MOVED.code):
        why = replace(why, where=last.where, remedy=last.remedy)
    return Event.LIMIT, why
