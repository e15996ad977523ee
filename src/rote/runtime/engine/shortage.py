"""What is done when a recording would need more memory than there is, or than it may have.

It can end in three ways, each with its own reason: a budget that the recording alone exceeds (before, by the
estimate; after, by what it holds), a device without memory, and a recording that is evicted again and again.

The *estimate* comes from the observed calls: the most bytes that tensors made in a call had at one time, plus
the bytes of those alive at its end, plus the arguments. Once recorded, results that died share memory and
results that live have their own, so the two terms together bound what a plan of lifetimes needs. It leaves
out what a kernel takes for itself, rounding by the allocator, and gaps in the plan.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from ...base import CaptureError, MemoryShortageError, Site
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..arguments import TENSOR, Call, extent
from ..backends.protocol import Backend, Session, is_shortage
from ..capture import out_of_memory
from ..memory import BUDGETS, Account, Holding, format_size
from ..program import StorageTable
from ..program.operations import CAPTURED
from ..recording import Recording


def estimate_of(storages: StorageTable, call: Call, backend: Backend | None) -> int:
    """Bytes that a recording of an observed call is expected to need."""
    device = backend.device.type if backend is not None else "cpu"
    placed = sum(
        extent(leaf)[1] - extent(leaf)[0]
        for leaf, kind in zip(call.leaves, call.kinds, strict=True)
        if kind is TENSOR and leaf.device.type == device
    )
    return storages.most_bytes.get(device, 0) + storages.live_bytes.get(device, 0) + placed


def too_large(recording: Recording, backend: Backend, account: Account, site: Site) -> Reason | None:
    """Why a recording is not worth starting: alone it would be larger than a limit."""
    limit = BUDGETS.of(backend).smallest_limit(account)
    if limit is None or recording.estimate <= limit[0]:
        return None
    text = f"a recording would need about {format_size(recording.estimate)}"
    return reason(rules.OVER_BUDGET, f"{text} where {limit[1]} allows {format_size(limit[0])}", site)


def settle(recording: Recording, site: Site) -> Reason | None:
    """After a recording: evict others until the limits hold; returns why it cannot be kept even so."""
    if recording.memory is None:
        return None
    holding = recording.memory.holding
    holding.demand, holding.operations = recording.estimate, recording.operations()
    budget = BUDGETS.of(holding.backend)
    budget.add(holding)
    excess = budget.settle(holding)
    return None if excess is None else reason(rules.OVER_BUDGET, f"with this recording {excess}", site)


def keep(
    holding: Holding, session: Session, make_room: Callable[[], None] | None, site: Site
) -> Reason | None:
    """Freeze what was captured; returns why that cannot be done."""
    act = functools.partial(holding.keep, session)
    try:
        return with_room(act, make_room or (lambda: None), site)
    except CaptureError as error:
        return reason(rules.CAPTURE_FAILED, str(error), site)


def all_short(recording: Recording, least: int, site: Site) -> Reason | None:
    """Why a recording is not made: no graph in it would be worth it."""
    if not least:
        return None
    captured = 0
    for node in recording.root.walk():
        short = node.short_runs(least)
        worth = [each for n, each in enumerate(node.operations) if each.kind == CAPTURED and n not in short]
        if worth:
            return None
        captured += sum(each.kind == CAPTURED for each in node.operations)
    if not captured:
        return None
    text = f"no segment of the call has {least} operations (min_segment_size)"
    return reason(rules.KEPT_OUT, text, site)


def was_evicted(recording: Recording, site: Site | None) -> list[Reason]:
    """Why a call is not replayed, if its recording was evicted."""
    why = recording.evictions.why
    if why is None:
        return []
    return [reason(rules.EVICTED, f"the recording of this call was evicted: {why}", site)]


def paused(recording: Recording, site: Site) -> Reason | None:
    """Why an evicted recording is not made again at this call."""
    evictions = recording.evictions
    if not evictions.waits():
        return None
    text = f"its recording was evicted {evictions.count} times; {evictions.pause} more calls run eagerly"
    return reason(rules.PAUSED, text, site)


def with_room(act: Callable[[], None], make_room: Callable[[], None], site: Site) -> Reason | None:
    """Do something that takes memory; if there is none, make room and try once more.

    Returns:
        Why it failed the second time, or None if it was done.
    """
    try:
        act()
        return None
    except (RuntimeError, MemoryError, MemoryShortageError) as error:
        if not is_shortage(error):
            raise
    make_room()  # out of the handler: the exception's traceback held memory
    try:
        act()
        return None
    except (RuntimeError, MemoryError, MemoryShortageError) as error:
        if not is_shortage(error):
            raise
        return out_of_memory(str(error), site)


def room_maker(estimate: int, holding: Holding) -> Callable[[], None]:
    """Evicts others for a recording that needs so many bytes; its own holding stays."""
    return lambda: BUDGETS.of(holding.backend).make_room(max(estimate, 1), holding)
