"""Gives a recording its tiers, each right after a replay and under the locks of that call.

Stretches can be run again without anybody noticing: what they write outside, and the generator that they draw
from, are put back. Whatever fails costs a line in the report: the plain tier is not touched, and what others
read is as the replay has left it.

Nothing here asks for gradients. Those that a call leaves in ``.grad``, and what a result has saved for its
backward, lie in memory that the recording holds, so they are shown like results. Who holds a gradient is told
by counting the owners of its memory, so the exact tier must not be one of them.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

import torch

from ...base import COLLECTOR, in_one_line
from ..arguments import Call, read_switches
from ..backends.protocol import Segment, Session
from ..fusion import DeviceKernels, Written, kernels_of
from ..memory import BUDGETS
from ..program import INPUT, Operation, Origin, named_inputs, replaced_kernels
from ..pytorch import plain_functions
from ..recording import (
    AlternativeUses,
    CapturedStretch,
    ExactStretch,
    Island,
    KernelModes,
    Launched,
    Node,
    Numerics,
    Recording,
    RecordingMemory,
    Removed,
    Step,
)
from .alternatives import Alternative
from .anew import CapturedAnew, Place, Recapture, Received
from .before import Before
from .choosing import Choosing
from .effects import Effects, LeftAloneError, OtherBitsError, writes_outside
from .forks import Joint
from .fusing import Composition, Fusing
from .gate import Gate, Look
from .regions import Item, Schedule
from .running import RunningSession
from .shortening import RULES, ShortStretch, shorten

_Made = TypeVar("_Made")
_TRIES = 4
"""How often a capture may give other bits. A tenth of the calls do where a kernel does not repeat itself."""


@dataclass(frozen=True)
class Bounds:
    """What optimising may do.

    Attributes:
        numerics: What may stand in the place of what was captured.
        timed: Versions are timed, and chosen among.
    """

    numerics: Numerics
    timed: bool


def improve(
    recording: Recording, nodes: Sequence[Node], call: Call, before: Before | None, bounds: Bounds
) -> None:
    """Optimise the stretches of a way just replayed: each once, and again when its kernels are there.

    Args:
        nodes: The way, from the root.
        before: What it has changed, as that was.
    """
    memory, tiers = recording.memory, recording.tiers
    if memory is None:
        return
    waiting = {id(each.node): each for each in tiers.waiting if isinstance(each, Fusing | Choosing)}
    refining = {id(each.node) for each in waiting.values() if isinstance(each, Choosing) and each.refines}
    last = [id(node) in refining for node in nodes]
    for number in sorted(range(len(nodes)), key=last.__getitem__):  # further versions gain least
        if tiers.challenged:  # it is timed alone
            return
        node = nodes[number]
        following = waiting.get(id(node))
        known = tiers.knows(node) or node.captured is None or not node.captured.segments
        if known and following is None:
            continue
        way, later = nodes[: number + 1], nodes[number + 1 :]
        improvement = _Improvement(recording, memory, way, later, call, None if number else before, bounds)
        # A collection may destroy graphs, which spoils a capture. Tensors may be of the user's classes.
        with COLLECTOR.rests(), plain_functions():
            improvement.go_on(following)


class _Improvement:
    """Makes the next tier of the last stretch of a way."""

    def __init__(
        self,
        recording: Recording,
        memory: RecordingMemory,
        way: Sequence[Node],
        later: Sequence[Node],
        call: Call,
        before: Before | None,
        bounds: Bounds,
    ) -> None:
        self._bounds = bounds
        self._recording = recording
        self._memory = memory
        self._way = way
        self._later = later
        self._node = way[-1]
        self._call = call
        self._before = before

    def go_on(self, following: Fusing | Choosing | None) -> None:
        """Do what is next for the stretch; what fails costs a line in the report."""
        if following is None:
            self._attempt(self.shorten)
        elif isinstance(following, Choosing):
            if not self._attempt(lambda: self.choose(following)):
                self._recording.tiers.arrived(following)
        elif not self._attempt(lambda: self.fuse(following)):
            self._recording.tiers.arrived(following)
            self._attempt(lambda: self.after(following))

    def _attempt(self, act: Callable[[], None]) -> bool:
        try:
            act()
        except Exception as error:
            why = str(error) if isinstance(error, LeftAloneError) else in_one_line(error)
            self._recording.tiers.leave(self._node, why)
            return False
        return True

    def shorten(self) -> None:
        """Leave out operations that give nothing new, and have the kernels of the others compiled.

        Raises:
            LeftAloneError: The stretch stays as it is.
        """
        self._check_recording()
        node, tiers = self._node, self._recording.tiers
        captured, _ = self._captured()
        effects = Effects.of(node.operations, [each.modes.keys() for each in captured.segments], node.refused)
        modes = self._modes()
        if effects.changes and (len(self._way) > 1 or node.branch is not None):
            raise LeftAloneError("it writes arguments or state, and the host reads values before it ends")
        if len(self._way) > 1 and any([writes_outside(later.operations) for later in self._later]):
            raise LeftAloneError(
                "arguments or state are written after it, and it begins after a value was read"
            )
        outside = self._outside()
        short = shorten(effects, modes, [origin for origin in effects.made if origin in outside])
        self._check_modes([modes[index] for index in effects.each()])
        base = Composition.plain(short)
        if short.after >= short.before:
            tiers.keep_whole(node, replace(_removed(short), after=short.before))
        else:
            tiers.add(self._capture(base))
        fusing = Fusing(node, base, outside, self._device)
        if fusing.saves:
            tiers.wait(fusing)
        else:
            self.after(fusing)

    @property
    def _device(self) -> DeviceKernels:
        return kernels_of(self._memory.holding.backend)

    def fuse(self, fusing: Fusing) -> None:
        """Capture the kernels, if they are there.

        Raises:
            LeftAloneError: There will be none.
        """
        tiers = self._recording.tiers
        self._check_recording()
        outside = self._outside()
        if not fusing.advance(outside):
            return
        if fusing.has_probes:
            self._run(fusing.short, fusing.look, near=False)
            if fusing.refuses:
                fusing.plan(outside)
                return
        found = fusing.composition()
        self._check_modes(list(self._modes().values()))
        tiers.add(self._capture(found))
        tiers.arrived(fusing)
        self.after(fusing, found)

    def after(self, fusing: Fusing, found: Composition | None = None) -> None:
        """Kernels are captured, or there are none; begin what comes next, where that is asked for."""
        tiers, numerics, base = self._recording.tiers, self._bounds.numerics, found or fusing.base
        if numerics >= Numerics.PROBED and not fusing.probed and fusing.has_unproved:
            probing = Fusing(self._node, base, self._outside(), self._device, probed=True)
            if probing.has_probes and probing.saves:
                tiers.wait(probing)
                return
        choosing = Choosing(self._node, base, numerics, on_host=self._device.on_host)
        if choosing.offered:
            tiers.wait(choosing)

    def choose(self, choosing: Choosing) -> None:
        """Capture the next version of the stretch with operations calculated in other ways.

        Raises:
            LeftAloneError: There are none, or it cannot be captured.
        """
        tiers = self._recording.tiers
        self._check_recording()
        if choosing.idle or tiers.open:
            return
        uses = choosing.take_prepared()
        if uses is None:
            choosing.decided(tiers.settled)
            if not choosing.has_next(allowed=self._bounds.timed):
                tiers.arrived(choosing)
                return
            gate = Gate(self._device, choosing.numerics, choosing.wanted)
            if choosing.needs_gate():
                self._run(choosing.base.short, gate.look, near=choosing.numerics is Numerics.NEAR)
                if gate.compiling:
                    choosing.wait_for(gate.compiling)
                    return
            uses = choosing.uses(gate)
        if uses is not None and choosing.join(uses, self._device):
            found = self._capture(choosing.base, uses, choosing.alternatives, choosing.joint)
            tiers.add(found)
            choosing.captured(found)

    def _run(self, short: ShortStretch, look: Look, *, near: bool) -> None:
        """Run what is left of the stretch, as operations; what was replayed may have been ``near`` them."""
        backend, looks = self._memory.holding.backend, [look]  # who looks has seen all in the first run
        _until_equal(
            lambda: Recapture(
                RunningSession(),
                short,
                self._node,
                self._modes(),
                self._outside(),
                backend,
                self._before,
                Schedule.plain(short),
                {},
                self._received(),
                look=looks.pop() if looks else None,
                near=near,
            ).run()
        )

    def _captured(self) -> tuple[CapturedStretch, list[Step]]:
        captured, steps = self._node.captured, self._node.steps
        if captured is None or steps is None:
            raise LeftAloneError("it is not recorded")
        return captured, steps

    def _modes(self) -> dict[int, KernelModes]:
        captured, _ = self._captured()
        return {index: found for each in captured.segments for index, found in each.modes.items()}

    def _capture(
        self,
        base: Composition,
        uses: AlternativeUses | None = None,
        alternatives: Mapping[int, Alternative] = MappingProxyType({}),
        joint: Sequence[Joint] = (),
    ) -> ExactStretch:
        """Capture what is left of the stretch, and hold its memory.

        Raises:
            LeftAloneError: It cannot be captured, gives other bits, or takes too much memory.
        """
        return _until_equal(lambda: self._capture_once(base, uses, alternatives, joint))

    def _capture_once(
        self,
        base: Composition,
        uses: AlternativeUses | None,
        alternatives: Mapping[int, Alternative],
        joint: Sequence[Joint],
    ) -> ExactStretch:
        node, modes, outside, holding = self._node, self._modes(), self._outside(), self._memory.holding
        captured, steps = self._captured()
        session = self._open()
        try:
            anew = Recapture(
                session, base.short, node, modes, outside, holding.backend, self._before, base.schedule,
                base.kernels, self._received(), alternatives, joint,
                near=uses is not None and uses.numerics is Numerics.NEAR,
            ).run()  # fmt: skip
            holding.keep(session, sum([storage.nbytes() for storage in anew.kept]))
            excess = BUDGETS.of(holding.backend).excess(holding)
            if excess is not None:
                raise LeftAloneError(f"with the exact tier {excess}")
        except BaseException:
            holding.give_up(session)
            raise
        plain = self._plain(steps)
        replaced = _replaced(plain, captured, anew)
        removed = _removed(base.short, base.schedule.stored(base.short))
        contents = _contents(anew, base, uses)
        return ExactStretch(
            node, steps, plain, replaced, removed, session, anew.kept, contents, base.fused, uses
        )

    def _received(self) -> Received:
        """What collectives have filled in the replay that was just made, before each segment."""
        captured, steps = self._captured()
        found: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        count, segments = 0, [each.segment for each in captured.segments]
        for step in self._plain(steps):
            if not isinstance(step, Island):
                count += any([step is each for each in segments])
                continue
            if len(step.noted or ()) != len(step.receives):
                raise LeftAloneError(f"it was not noted what {step.operation} at {step.site} gave")
            found.setdefault(count, []).extend(zip(step.receives, step.noted or (), strict=True))
        return found

    def _plain(self, steps: list[Step]) -> list[Step]:
        """The steps as they were captured."""
        found = [each.captured for each in self._recording.tiers.stretches if each.exact is steps]
        return found[0] if found else steps

    # ------------------------------------------------------------------ what is left alone

    def _check_recording(self) -> None:
        recording, accesses = self._recording, self._recording.accesses
        if recording.binds and any(
            [_is_of_a_library(each) for node in self._way for each in node.operations]
        ):
            raise LeftAloneError(
                "operators of a library are in it, and what the call leaves behind may be their doing"
            )
        if accesses.written_arrays:
            raise LeftAloneError("it writes arrays made outside")
        if accesses.generators or self._memory.stands.by_number:
            raise LeftAloneError("it draws from generators that are given or made outside")
        if recording.trusts and self._memory.holding.backend.capabilities.asynchronous:
            text = "it runs code that rote.pure or a library answers for, or TorchScript"
            raise LeftAloneError(f"{text}, which may launch kernels that no operation shows")
        if replaced_kernels():
            raise LeftAloneError("somebody has replaced kernels of PyTorch's operators")

    def _check_modes(self, modes: Sequence[KernelModes]) -> None:
        switches = read_switches()
        if any([each.switches != switches for each in modes]):
            raise LeftAloneError("some of its operations run under other switches of PyTorch's")

    # ------------------------------------------------------------------ memory

    def _open(self) -> Session:
        """Nothing in this memory outlives a replay: what does is copied to where others have it."""
        holding = self._memory.holding
        lent = self._recording.lent_storages()
        return holding.backend.open(
            exclusive=False,
            sharing=BUDGETS.of(holding.backend).sharing(holding.account, holding.demand),
            aliases=self._memory.inputs.aliases(self._call.leaves, lent),
        )

    def _outside(self) -> Mapping[Origin, Place]:
        """The memory that is there besides the segments' own: of arguments, state, and what others hold."""
        leaves = tuple(self._memory.inputs.substitute(self._call.leaves))
        inputs = {
            (INPUT, index): Place(leaves[index].untyped_storage(), start * leaves[index].itemsize)
            for index, start in named_inputs(self._call, leaves)
        }
        found: dict[Origin, Place] = {}
        for node in self._way:
            for origin, reference in node.captured.storages.items() if node.captured is not None else ():
                storage = reference()
                if storage is not None:
                    found[origin] = Place(storage)
        return ChainMap(found, inputs)


def _until_equal(act: Callable[[], _Made]) -> _Made:
    """Do again what gives other bits than the replay.

    Not all kernels of PyTorch repeat themselves: cuDNN's attention gives one of two results for a row now and
    then, plainly, too. What is wrong is so each time.
    """
    for _ in range(_TRIES - 1):
        try:
            return act()
        except OtherBitsError:
            pass
    return act()


def _is_of_a_library(operation: Operation) -> bool:
    if not operation.is_of_aten:
        return False
    facts = operation.facts
    return not (facts.own or facts.transfers or facts.launches)


def _replaced(steps: Sequence[Step], captured: CapturedStretch, anew: CapturedAnew) -> list[Step]:
    """The steps with other segments."""
    other: list[tuple[Segment, Segment | None]] = [
        (each.segment, segment) for each, segment in zip(captured.segments, anew.segments, strict=True)
    ]
    found: list[Step] = []
    for step in steps:
        replaced = [segment for was, segment in other if was is step]
        if not replaced:
            found.append(step)
        elif replaced[0] is not None:
            found.append(replaced[0])
    return found


def _contents(
    anew: CapturedAnew, base: Composition, uses: AlternativeUses | None
) -> tuple[tuple[Segment, tuple[Launched, ...]], ...]:
    """What each segment runs."""
    return tuple([
        (segment, tuple([_launched(item, base.probed, uses) for item in run]))
        for segment, run in zip(anew.segments, base.schedule.runs, strict=True)
        if segment is not None
    ])  # fmt: skip


def _launched(item: Item, probed: Collection[int], uses: AlternativeUses | None) -> Launched:
    if isinstance(item, Written):
        return Launched(tuple(sorted(item.covers)), "fused" if item.covers.isdisjoint(probed) else "probed")
    how = uses.how if uses is not None and item in uses.replaced else "exact"
    return Launched((item,), how)


def _removed(short: ShortStretch, stored: Collection[Origin] = ()) -> Removed:
    by_rule = {rule: short.removed[rule] for rule in RULES}
    shown = short.shown(stored)
    after = short.after - short.shown() + shown
    return Removed(short.before, after, shown, by_rule, short.outside)
