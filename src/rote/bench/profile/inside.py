"""Time inside the operations of a call on the host, without dispatch and Python.

The times come from plain calls under the profiler: in a marked call every operation is called from Python,
with cold caches, and takes up to twice as long. Operations are matched by name: the n-th of a name there is
the n-th here. Where a name does not come equally often (PyTorch takes some short cuts only without a mode),
its operations keep their times in the marked call.

What does not work is to subtract what the profiler adds to an event: it is about 0.2 us, and a measurement of
it is off by more.
"""

from __future__ import annotations

from .mode import MARK, AskedOperation
from .trace import ProfilerTrace, outermost


def inside(calls: list[ProfilerTrace], marked: ProfilerTrace, asked: list[AskedOperation]) -> list[float]:
    """Microseconds inside each operation, the least of all plain calls; 0 for a view."""
    found = in_marked(marked, len(asked))
    numbers: dict[str, list[int]] = {}
    for number, each in enumerate(asked):
        numbers.setdefault(each.name, []).append(number)
    plain = [by_name(call, set(numbers)) for call in calls]
    for name, places in numbers.items():
        times = [each[name] for each in plain if len(each.get(name, ())) == len(places)]
        for at, number in enumerate(places):
            found[number] = min((each[at] for each in times), default=found[number])
    return [0.0 if each.view else time for each, time in zip(asked, found, strict=True)]


def by_name(call: ProfilerTrace, names: set[str]) -> dict[str, list[float]]:
    """Times of the operations that have one of the names, without those nested in another of them."""
    found: dict[str, list[float]] = {}
    for span in outermost([span for span in call.operations if span.name in names]):
        found.setdefault(span.name, []).append(span.length)
    return found


def in_marked(marked: ProfilerTrace, number: int) -> list[float]:
    """Times inside the ``number`` ranges of a marked call: of the operations right below each."""
    owners = marked.owners()
    found = [0.0] * number
    marks = {span.id for span in marked.ranges if span.name.startswith(MARK)}
    for span in outermost([span for span in marked.operations if span.id in owners and span.id not in marks]):
        found[owners[span.id]] += span.length
    return found
