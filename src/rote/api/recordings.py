"""The part of a report on each recording."""

from __future__ import annotations

from collections.abc import Iterable

from ..inspect import InputReport, IslandReport, OutputReport, RecordingReport, tier_report
from ..runtime.backends import PROCESS
from ..runtime.engine import Specialization
from ..runtime.memory import BUDGETS, Account
from ..runtime.program import InputFacts
from ..runtime.recording import Recording


def recording_reports(entries: Iterable[Specialization], account: Account) -> tuple[RecordingReport, ...]:
    """The recordings of all keys."""
    held = _bytes_held(account)
    return tuple(
        _report(entry, variant, sum(held.get(id(holding), 0) for holding in variant.holdings()))
        for entry in entries
        for variant in entry.recordings
        if variant.recorded
    )


def output_reports(entries: Iterable[Specialization]) -> tuple[OutputReport, ...]:
    """The lines of recorded calls that write to the standard streams."""
    found = dict.fromkeys(each for entry in entries for each in entry.output())
    return tuple(OutputReport(each.what, str(each.site)) for each in found)


def _report(entry: Specialization, variant: Recording, nbytes: int) -> RecordingReport:
    parts = (*variant.islands(), *variant.branches())
    figures = variant.contest.figures
    return RecordingReport(
        key=entry.description,
        segments=len(variant.segments()),
        operations=variant.operations(),
        paths=variant.recorded_paths(),
        islands=tuple(IslandReport(part.operation, str(part.site), part.code) for part in parts),
        bytes_held=nbytes,
        replays=variant.replays,
        estimate=variant.estimate,
        evictions=variant.evictions.count,
        inputs=tuple(_input(fact) for fact in variant.facts),
        replay_us=figures.replay_s * 1e6 if figures is not None else None,
        plain_us=figures.plain_s * 1e6 if figures is not None else None,
        with_backward=figures is not None and figures.walked,
        tier=tier_report(variant),
    )


def _input(fact: InputFacts) -> InputReport:
    place = "in place" if fact.in_place else "copied"
    return InputReport(fact.name, fact.kind, place, str(fact.mutated) if fact.mutated is not None else "")


def _bytes_held(account: Account) -> dict[int, int]:
    """Bytes of every recording of an account, by identity of its holding."""
    found: dict[int, int] = {}
    for backend, budget in BUDGETS.all():
        taken = PROCESS.take(backend.lock)  # another thread that traces a call may wait for this one
        try:
            found.update({id(holding): nbytes for holding, nbytes in budget.by_recording(account).items()})
        finally:
            if taken:
                backend.lock.release()
    return found
