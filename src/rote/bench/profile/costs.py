"""The costs of a marked call, added up by operation and by the user's line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...base import NOWHERE, Site, cut
from .mode import MARK, AskedOperation, AskingMode
from .trace import ProfilerTrace, outermost

AFTER = "after the last operation"
PAST = "past the dispatcher"
"""Device work that no operation launched: a kernel that the program launches by itself."""


@dataclass(frozen=True)
class OperationCost:
    """The cost of one operation or one line in each call.

    Attributes:
        name: The operation as ``aten::add``, or the line as ``file:line``.
        text: The source line; empty for an operation.
        operations: Number of operations it asks for.
        kernels: Number of kernels, copies and fills they launch; 0 on the host.
        busy_us: Time the device works for it; on the host, time inside the operations without views.
        host_us: Time of the host since the operation before, and through this one, with dispatch and Python.
            A line that only waits or computes in Python counts towards the next operation's line.
    """

    name: str
    text: str
    operations: int
    kernels: int
    busy_us: float
    host_us: float

    def line(self, longest: int) -> str:
        """The source line, cut to some characters."""
        return cut(self.text, longest)


@dataclass(frozen=True)
class Sums:
    """The costs of one call, the most expensive first; labels are ``file:line operation``.

    ``inside_us`` is time inside the operations on the host, without dispatch.
    """

    inside_us: float
    labels: list[str]
    by_operation: tuple[OperationCost, ...]
    by_line: tuple[OperationCost, ...]


@dataclass
class _Sum:
    text: str = ""
    operations: int = 0
    kernels: int = 0
    busy_us: float = 0.0
    host_us: float = 0.0


def sums(marked: ProfilerTrace, mode: AskingMode, inside: list[float], host_us: float, on_gpu: bool) -> Sums:
    """Add up a marked call.

    ``inside`` are microseconds in each operation on the host. Host times are scaled to sum up to ``host_us``,
    that of a plain call. With ``on_gpu`` the device's time counts, else that of the operations on the host.
    """
    owners = marked.owners()
    kernels = [0] * len(mode.asked)
    busy = [0.0] * len(mode.asked) if on_gpu else list(inside)
    past = _Sum()
    for span in marked.device:
        number = owners.get(span.id)
        if number is None:
            past.kernels, past.busy_us = past.kernels + 1, past.busy_us + span.length
        else:
            kernels[number] += 1
            busy[number] += span.length
    spent = sum(each.waited_us + each.took_us for each in mode.asked) + mode.rest_us
    scale = host_us / spent if spent else 0.0
    rest = _Sum(host_us=mode.rest_us * scale)

    def grouped(key: Callable[[AskedOperation], str]) -> dict[str, _Sum]:
        found: dict[str, _Sum] = {}
        for number, each in enumerate(mode.asked):
            row = found.setdefault(key(each), _Sum())
            row.operations += 1
            row.kernels += kernels[number]
            row.busy_us += busy[number]
            row.host_us += (each.waited_us + each.took_us) * scale
        return found | ({PAST: past} if past.kernels else {})

    lines = grouped(lambda each: _place(each.site)) | {AFTER: rest}
    for each in mode.asked:
        lines[_place(each.site)].text = each.site.text
    labels = [f"{_place(each.site)} {each.name}" for each in mode.asked]
    by_operation = grouped(lambda each: each.name)
    return Sums(sum(inside), labels, _sorted(by_operation, on_gpu), _sorted(lines, on_gpu))


def _sorted(found: dict[str, _Sum], on_gpu: bool) -> tuple[OperationCost, ...]:
    """The most expensive first: by host time, on a GPU by the device's if that is longer."""
    costs = [OperationCost(name, **vars(row)) for name, row in found.items()]
    return tuple(sorted(costs, key=lambda cost: -max(cost.host_us, cost.busy_us if on_gpu else 0.0)))


def _place(site: Site) -> str:
    return "no line of the user" if site is NOWHERE else str(site)


def inside(calls: list[ProfilerTrace], marked: ProfilerTrace, asked: list[AskedOperation]) -> list[float]:
    """Microseconds inside each operation on the host, without dispatch and Python; 0 for a view.

    The times are the least of plain calls under the profiler: in a marked call every operation is called from
    Python, with cold caches, and takes up to twice as long. Operations are matched by name: the n-th of a
    name there is the n-th here. Where a name does not come equally often (PyTorch takes some short cuts only
    without a mode), its operations keep their times in the marked call.

    What does not work is to subtract what the profiler adds to an event: it is about 0.2 us, and a
    measurement of it is off by more.
    """
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
