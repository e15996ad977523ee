"""Opening a capture for a variant: its static inputs, its session, and what if there is no memory."""

from __future__ import annotations

import functools
import weakref

from ..backends.base import Backend, Session
from ..base.location import Site
from ..hazards.rules import Reason
from ..memory.budget import LEDGERS
from ..memory.holding import Account, Holding
from ..signature.key import Call
from .generators import Stands
from .inputs import StaticInputs
from .placement import Spot
from .run import Plan
from .shortage import paused, room_maker, too_large, with_room
from .states import Event
from .variant import Variant


def prepare(
    variant: Variant,
    call: Call,
    spots: tuple[Spot, ...],
    plan: Plan,
    account: Account,
    exclusive: bool,
    site: Site,
) -> tuple[Event | None, Reason] | None:
    """Set a plan up to record a variant from its start.

    Args:
        variant: What is to be recorded.
        call: The call that records it.
        spots: The arguments that are used in place.
        plan: How the call will run; its backend is known.
        account: Whose budget counts.
        exclusive: Give the recording memory that no other one writes.
        site: The caller's line.

    Returns:
        Why the call has to run eagerly instead, if it has, and the event that makes it so for good, if any.
    """
    backend = plan.backend
    assert backend is not None
    why = paused(variant, site)
    if why is not None:
        return None, why
    why = too_large(variant, backend, account, site)
    if why is not None:
        return Event.LIMIT, why
    if variant.holding is None:
        variant.holding = Holding(backend, exclusive, account, weakref.ref(variant), variant.estimate)
    backend.enter_call()
    plan.make_room = room_maker(variant, backend)
    plan.abandon = functools.partial(_abandon, variant, plan)
    why = with_room(functools.partial(_allocate, variant, call, spots, plan, backend), plan.make_room, site)
    return (Event.CAPTURE_FAILED, why) if why is not None else None


def extend(variant: Variant, call: Call, plan: Plan, account: Account) -> None:
    """Set a plan up to record another path of a variant."""
    backend = plan.backend
    assert backend is not None
    plan.session = _open(variant, call, plan, backend, account)
    plan.make_room = room_maker(variant, backend)


def _allocate(variant: Variant, call: Call, spots: tuple[Spot, ...], plan: Plan, backend: Backend) -> None:
    assert variant.holding is not None
    variant.inputs = None  # those of a first try
    variant.inputs = StaticInputs.like(call, spots)
    variant.inputs.written = variant.written
    variant.stands = plan.stands = Stands(call)
    plan.inputs = variant.inputs
    plan.session = _open(variant, call, plan, backend, variant.holding.account)


def _open(variant: Variant, call: Call, plan: Plan, backend: Backend, account: Account) -> Session:
    if variant.inputs is not None:
        plan.aliases = variant.inputs.aliases(call.leaves)
    exclusive = variant.holding.exclusive if variant.holding is not None else False
    sharing = LEDGERS.of(backend).sharing(account, variant.estimate)
    stands = variant.stands.by_number.values() if variant.stands is not None else ()
    generators = (*variant.generators.values(), *stands)
    return backend.open(exclusive=exclusive, generators=generators, sharing=sharing, aliases=plan.aliases)


def _abandon(variant: Variant, plan: Plan) -> None:
    """Give back all that a recording in progress holds."""
    if plan.session is not None:
        plan.session.release()
    variant.release()
