"""State of FSDP's own (``fully_shard``) that calls replace, and that says nothing where no step is under way.

Python does what FSDP does, so a traced call follows that like other code: its state is a condition, and ends
where it began. Not so a table of events, which a backward fills and then replaces by a new one. Nor do the
forwards for which a backward is to come: each is added to a list, also where there are no gradients, and the
next backward empties that. A call without a backward adds to it whatever it holds, and so does a replay.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from operator import is_
from typing import Any, NamedTuple

_FSDP = "torch.distributed.fsdp._fully_shard"
EVENTS = "_last_post_reduce_events"
"""Events of the reductions of one backward, by stream. Seen in torch 2.13; 2.11 keeps one in each group."""
FORWARDS, PLACES = "post_forward_order", "_post_forward_indices"
"""The groups of parameters that forwards have used, in order; and of one of them where it is in that."""
QUEUED = "post_backward_final_callback_queued"
"""What a backward writes."""
RESTS = ""
"""What :func:`under_way` says of a context in which no backward is under way."""


def gathers(module: str) -> bool:
    """Whether a class is FSDP's, by its module: of a parameter that is gathered, or of a context of that.

    What such a thing makes at its first use it keeps.
    """
    return module.startswith(_FSDP)


def under_way(context: weakref.ref[Any]) -> str:
    """What of a backward is left in a context, in a few words."""
    found = context()
    if found is None:
        return "a model that is gone"
    if vars(found).get(EVENTS):
        return "events of a backward that is not over"
    return RESTS


def waiting(owner: weakref.ref[Any], name: str) -> str:
    """Whether forwards wait for a backward, in a few words; ``name`` is the list that says so."""
    found = owner()
    if found is None:
        return "a model that is gone"
    return "forwards whose backward is to come" if getattr(found, name) else RESTS


class LeftForwards(NamedTuple):
    """A step of a replay that leaves behind which forwards there were, as the call does.

    Attributes:
        context: Where they are listed, weakly.
        groups: The groups that they used, weakly.
    """

    context: weakref.ref[Any]
    groups: tuple[weakref.ref[Any], ...]

    def replay(self) -> None:
        """Add them."""
        order = getattr(self.context(), FORWARDS)
        for each in self.groups:
            group = each()
            getattr(group, PLACES).append(len(order))
            order.append(group)


class Forwards:
    """The lists of forwards that one call finds, as they were."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Any, str, list[Any]]] = {}

    def meet(self, owner: Any, name: str) -> bool:
        """A list is about to be looked at, or written; whether it is one."""
        found = vars(owner).get(name)
        if id(owner) not in self._found and type(found) is list:
            self._found[id(owner)] = owner, name, [*found]
        return type(found) is list

    def any(self) -> bool:
        """Whether there are any."""
        return bool(self._found)

    def rested(self) -> list[Callable[[], str]] | None:
        """What asks whether they are empty, if all were before the call and are behind it."""
        if any([before or getattr(owner, name) for owner, name, before in self._found.values()]):
            return None
        return [partial(waiting, weakref.ref(owner), name) for owner, name, _ in self._found.values()]

    def left(self) -> list[LeftForwards] | None:
        """What the call has added to them; None if it has done anything else."""
        steps: list[LeftForwards] = []
        places: dict[int, list[int]] = {}
        for owner, name, before in self._found.values():
            now = getattr(owner, name)
            if len(now) < len(before) or not all(map(is_, before, now)):
                return None
            if name == FORWARDS:
                added = now[len(before) :]
                for place, group in enumerate(added, len(before)):
                    places.setdefault(id(group), []).append(place)
                steps.append(LeftForwards(weakref.ref(owner), tuple(map(weakref.ref, added))))
        for owner, name, before in self._found.values():
            if name == PLACES and getattr(owner, name)[len(before) :] != places.pop(id(owner), []):
                return None
        return steps if not places else None

    def let_go(self) -> None:
        """The call is over."""
        self._found.clear()
