"""Opening a capture for a recording: its static inputs, its session, and what if there is no memory."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace

from ...base import Site
from ...hazards.rules import Reason
from ..arguments import Call
from ..backends.protocol import Session
from ..capture import OpenCapture, Plan
from ..memory import BUDGETS, Account, Holding
from ..program import Spot, Stands
from ..recording import Recording, RecordingMemory, StaticInputs
from .shortage import paused, room_maker, too_large, with_room
from .states import LifeEvent


@dataclass(frozen=True)
class Refused:
    """A call that is not recorded although it could be; the event ends the key's life, if there is one."""

    why: Reason
    event: LifeEvent | None = None


def prepare(
    recording: Recording,
    call: Call,
    spots: tuple[Spot, ...],
    plan: Plan,
    account: Account,
    exclusive: bool,
    site: Site,
) -> Plan | Refused:
    """Complete a plan, so that the call records from the start of the tree; or say why it has to run eagerly.

    An exclusive recording gets memory that no other one writes.
    """
    why = paused(recording, site)
    if why is not None:
        return Refused(why)
    why = too_large(recording, plan.backend, account, site)
    if why is not None:
        return Refused(why, LifeEvent.LIMIT)
    held = recording.memory.holding if recording.memory is not None else None
    holding = held or Holding(plan.backend, exclusive, account, weakref.ref(recording), recording.estimate)
    plan.backend.enter_call()
    make_room = room_maker(recording.estimate, holding)
    opened: list[Plan] = []

    def allocate() -> None:
        recording.hold(None)  # the memory of a first try
        inputs = StaticInputs.like(call, spots, recording.accesses.written)
        memory = RecordingMemory(inputs, Stands(call), holding)
        capture = _open(memory, recording, call, make_room, abandons=True)
        recording.hold(memory)
        opened.append(replace(plan, inputs=inputs, stands=memory.stands, capture=capture))

    why = with_room(allocate, make_room, site)
    return opened[0] if why is None else Refused(why, LifeEvent.CAPTURE_FAILED)


def extend(memory: RecordingMemory, recording: Recording, call: Call) -> OpenCapture:
    """Open a capture of another path of a recording."""
    return _open(memory, recording, call, room_maker(recording.estimate, memory.holding), abandons=False)


def _open(
    memory: RecordingMemory,
    recording: Recording,
    call: Call,
    make_room: Callable[[], None],
    *,
    abandons: bool,
) -> OpenCapture:
    aliases = memory.inputs.aliases(call.leaves, recording.lent_storages())
    holding = memory.holding
    sharing = BUDGETS.of(holding.backend).sharing(holding.account, recording.estimate)
    generators = (*recording.accesses.generators.values(), *memory.stands.by_number.values())
    session = holding.backend.open(
        exclusive=holding.exclusive, generators=generators, sharing=sharing, aliases=aliases
    )
    abandon = functools.partial(_abandon, recording, session, memory.inputs) if abandons else None
    return OpenCapture(session, aliases, make_room, abandon)


def _abandon(recording: Recording, session: Session, inputs: StaticInputs) -> None:
    """Give back all that a recording in progress holds; plans still name its inputs."""
    session.release()
    recording.release()
    inputs.release()
