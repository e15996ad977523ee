"""How long the operations of a call on the host take by themselves, dispatch and Python left out.

The times come from plain calls under the profiler: in a marked call every operation is called from Python,
out of cold caches, and takes up to twice as long. The same operations are found by name, the n-th of a name
there being the n-th here. Where a name is not met equally often (PyTorch takes some short cuts only where no
mode is active), its operations keep the time they had in the marked call.

What does not work: taking off what the profiler adds to an event. It is about 0.2 us, and what can be
measured of it on a machine that does other things too is larger than that.
"""

from __future__ import annotations

from .mode import MARK, AskedOperation
from .trace import ProfilerTrace, outermost


def inside(calls: list[ProfilerTrace], marked: ProfilerTrace, asked: list[AskedOperation]) -> list[float]:
    """Microseconds inside each operation, the least of all plain calls; none for a view."""
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
    """Times of the operations that have one of the names and lie in no other such one."""
    found: dict[str, list[float]] = {}
    for span in outermost([span for span in call.operations if span.name in names]):
        found.setdefault(span.name, []).append(span.length)
    return found


def in_marked(marked: ProfilerTrace, number: int) -> list[float]:
    """Times inside the ``number`` ranges of a marked call: those of the operations right below each."""
    owners = marked.owners()
    found = [0.0] * number
    marks = {span.id for span in marked.ranges if span.name.startswith(MARK)}
    for span in outermost([span for span in marked.operations if span.id in owners and span.id not in marks]):
        found[owners[span.id]] += span.length
    return found
