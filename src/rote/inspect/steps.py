"""The steps of one call, with the operations in each: what the page and the trace show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base import NOWHERE, Site
from ..runtime.backends.protocol import KERNEL, Segment
from ..runtime.program import Operation, Reseed, Token
from ..runtime.pytorch import LeftForwards
from ..runtime.recording import Branch, Island, Launched, Node, Recording
from ..runtime.replay import TimedStep
from .modules import ModuleNames

SEGMENT, ISLAND, READ = "segment", "island", "host read"

AHEAD = 16
"""Operations that a device may have left out before the next one that it runs: views, empty memory."""


ANY = ""
"""Stands for a name that is not known."""


@dataclass(frozen=True)
class NodeReport:
    """One node of what a call replays.

    Attributes:
        operator: Its operator; of a kernel that stands for several, all of them.
        module: The path of the module that it belongs to, as far as parameters and lines tell; else empty.
        where: ``file:line`` of the user's line.
        tier: ``"plain"`` as captured, ``"exact"`` captured anew, ``"fused"`` by a compiled kernel,
            ``"proved"`` in another way with the same bits, ``"probed"`` by a kernel or in another way with
            the same bits as far as was tried, ``"near"`` in another way. Empty between segments.
        nbytes: Bytes of its operands and results.
        us: Microseconds; None if nothing was measured.
        shared: They are a share of its segment's, by bytes: nobody sees the nodes of a CUDA graph one by one.
    """

    operator: str
    module: str
    where: str
    text: str
    tier: str
    nbytes: int
    us: float | None = None
    shared: bool = False


@dataclass(frozen=True)
class StepReport:
    """One step of a call: a segment, an island, or a read of the host.

    Attributes:
        us: Microseconds; None if nothing was measured.
    """

    kind: str
    nodes: tuple[NodeReport, ...]
    us: float | None = None


@dataclass(frozen=True)
class CallReport:
    """One way through a recording.

    Attributes:
        us: Microseconds of its steps, or of a call that was not replayed; None if none was made.
    """

    name: str
    key: str
    device: str
    steps: tuple[StepReport, ...]
    us: float | None = None

    @property
    def nodes(self) -> list[NodeReport]:
        """All nodes."""
        return [node for step in self.steps for node in step.nodes]


def _first_way(recording: Recording) -> list[Node]:
    """The stretches from the start to the first end that is recorded."""
    way = [recording.root]
    while way[-1].branch is not None:
        recorded = [child for child in way[-1].edges.values() if child.recorded]
        if not recorded:
            break
        way.append(recorded[0])
    return way


def steps_of(
    recording: Recording, modules: ModuleNames, timed: Sequence[TimedStep] = ()
) -> tuple[StepReport, ...]:
    """What a call does: that which was timed, or the first way through the recording."""
    taken = {id(each.node): each.node for each in timed}
    way = list(taken.values()) if timed else _first_way(recording)
    contents = _contents(recording, way)
    inside = _modules_of(way, modules)
    steps = [(each.node, each.step, each) for each in timed] or [
        (node, step, None) for node in way for step in (*(node.steps or ()), node.branch) if step is not None
    ]
    return tuple([
        _step(node, step, inside, contents, measured)
        for node, step, measured in steps
        if not isinstance(step, (Reseed, LeftForwards))
    ])  # fmt: skip


_Modules = Mapping[tuple[int, int], str]
"""Which module each operation of a way belongs to, by its node and its index."""


def _modules_of(way: Sequence[Node], modules: ModuleNames) -> _Modules:
    found: dict[tuple[int, int], str] = {}
    places = [(node, index) for node in way for index in range(len(node.operations))]
    owners = [modules.owner(_handles(node, node.operations[index])) for node, index in places]
    following, ahead = [""] * len(owners), ""
    for position in reversed(range(len(owners))):
        following[position] = ahead
        ahead = owners[position] or ahead
    last = ""
    for (node, index), owner, then in zip(places, owners, following, strict=True):
        site = node.operations[index].site
        module = owner or (modules.of_line(site, last, then) if isinstance(site, Site) else "")
        found[id(node), index] = module
        last = owner or last
    return found


def _handles(node: Node, operation: Operation) -> list[int]:
    """The storages from outside that an operation reads."""
    storages = node.captured.storages if node.captured is not None else {}
    found = [storages.get(token.origin) for token in operation.tokens]
    alive = [storage for each in found if each is not None and (storage := each()) is not None]
    return [each._cdata for each in alive]


def _contents(recording: Recording, way: Iterable[Node]) -> dict[int, tuple[Launched, ...]]:
    """What each segment runs, by its identity."""
    found: dict[int, tuple[Launched, ...]] = {}
    for node in way:
        for each in node.captured.segments if node.captured is not None else ():
            found[id(each.segment)] = tuple([Launched((index,), "plain") for index in each.modes])
    for stretch in recording.tiers.stretches:
        found.update({id(segment): launched for segment, launched in stretch.contents})
    return found


def _step(
    node: Node,
    step: Segment | Island | Branch,
    inside: _Modules,
    contents: Mapping[int, tuple[Launched, ...]],
    measured: TimedStep | None,
) -> StepReport:
    seconds = measured.timing.seconds() if measured is not None else None
    us = seconds * 1e6 if seconds is not None else None
    if isinstance(step, (Island, Branch)):
        kind = ISLAND if isinstance(step, Island) else READ
        index = _index_of(node, step)
        module = inside.get((id(node), index), "") if index is not None else ""
        nbytes = _nbytes([node.operations[index]]) if index is not None else 0
        alone = NodeReport(step.operation, module, _place(step.site), step.site.text, "", nbytes, us)
        return StepReport(kind, (alone,), us)
    launched = contents.get(id(step), ())
    seen = measured.operations if measured is not None else []
    times = _matched(node, launched, seen) if seen else _shares(node, launched, us)
    us = 1e6 * sum([seconds for _, seconds in seen]) if seen else us  # without what the clock itself takes
    nodes = tuple([
        _node(node, each, inside, time, shared=not seen and time is not None)
        for each, time in zip(launched, times, strict=True)
        if time is not None or not seen
    ])  # fmt: skip
    return StepReport(SEGMENT, nodes, us)


def _index_of(node: Node, step: Island | Branch) -> int | None:
    """Where a step between segments stands among the operations; the last of its name on its line."""
    for index in reversed(range(len(node.operations))):
        operation = node.operations[index]
        if operation.name == step.operation and operation.site == step.site:
            return index
    return None


def _node(node: Node, launched: Launched, inside: _Modules, us: float | None, *, shared: bool) -> NodeReport:
    operations = [node.operations[index] for index in launched.operations]
    last = operations[-1]
    site = last.site if isinstance(last.site, Site) else NOWHERE
    return NodeReport(
        operator=" + ".join(dict.fromkeys([each.name for each in operations])),
        module=inside.get((id(node), launched.operations[-1]), ""),
        where=_place(site),
        text=site.text,
        tier=launched.how,
        nbytes=_nbytes(operations),
        us=us,
        shared=shared,
    )


def _place(site: Site) -> str:
    return str(site) if site.line else ""


def _nbytes(operations: Iterable[Operation]) -> int:
    """Bytes of the operands and results of operations that run as one, each tensor once."""
    tokens: set[Any] = set()
    for each in operations:
        tokens.update(each.tokens, [result for result in each.results if isinstance(result, Token)])
    return sum([token.nbytes for token in tokens])


def _shares(node: Node, launched: Sequence[Launched], us: float | None) -> list[float | None]:
    """The time of a segment, divided by the bytes that its nodes touch."""
    if us is None:
        return [None] * len(launched)
    bytes_of = [1 + _nbytes([node.operations[index] for index in each.operations]) for each in launched]
    return [us * each / sum(bytes_of) for each in bytes_of]


def _matched(
    node: Node, launched: Sequence[Launched], seen: Sequence[tuple[str, float]]
) -> list[float | None]:
    """The times of operations that were seen one by one, put to what was captured, in the same order.

    An operation that a device leaves out (a view) has none. What an operation consists of, and copies to
    where others read a result, count to the one before.
    """
    found: list[float | None] = [None] * len(launched)
    names = [_expected(node, each) for each in launched]
    at = -1
    for name, seconds in seen:
        ahead = range(at + 1, min(at + 1 + AHEAD, len(names)))
        at = next((each for each in ahead if names[each] in (ANY, name)), max(at, 0))
        if found:
            found[at] = (found[at] or 0.0) + seconds * 1e6
    return found


def _expected(node: Node, launched: Launched) -> str:
    """The name of what a device runs first for it."""
    if launched.how in ("near", "proved", "probed") and len(launched.operations) == 1:
        return ANY
    kernel = launched.how in ("fused", "probed")
    return KERNEL if kernel else node.operations[launched.operations[0]].name
