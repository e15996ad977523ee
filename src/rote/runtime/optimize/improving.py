"""Gives a recording its exact tier, right after a replay and under the locks of that call.

Stretches can be run again without anybody noticing: what they write outside, and the generator that they draw
from, are put back. Whatever fails costs a line in the report: the plain tier is not touched, and what others
read is as the replay has left it.

Nothing here asks for gradients. Those that a call leaves in ``.grad``, and what a result has saved for its
backward, lie in memory that the recording holds, so they are shown like results. Who holds a gradient is told
by counting the owners of its memory, so the exact tier must not be one of them.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import torch

from ...base import COLLECTOR
from ..arguments import Call, read_switches
from ..backends.protocol import LoadedKernel, Segment, Session, first_line
from ..fusion import KERNELS, Written
from ..memory import BUDGETS
from ..program import INPUT, Operation, Origin, named_inputs, replaced_kernels
from ..pytorch import plain_functions
from ..recording import (
    CapturedStretch,
    ExactStretch,
    FusedOperations,
    Island,
    KernelModes,
    Launched,
    Node,
    Recording,
    RecordingMemory,
    Removed,
    Step,
)
from .anew import CapturedAnew, Place, Recapture, Received
from .before import Before
from .effects import Effects, LeftAloneError, writes_outside
from .fusing import Fusing
from .near import Gate, Nearing
from .regions import Item, Schedule
from .running import RunningSession
from .shortening import RULES, ShortStretch, shorten


def improve(
    recording: Recording, nodes: Sequence[Node], call: Call, before: Before | None, *, near: bool
) -> None:
    """Optimise the stretches of a way just replayed: each once, and again when its kernels are there.

    Args:
        recording: The recording.
        nodes: The way, from the root.
        call: The call that was replayed.
        before: What it has changed, as that was.
        near: Operations may be calculated in other ways.
    """
    memory, tiers = recording.memory, recording.tiers
    if memory is None:
        return
    waiting = {id(each.node): each for each in tiers.waiting if isinstance(each, Fusing | Nearing)}
    for number, node in enumerate(nodes):
        following = waiting.get(id(node))
        known = tiers.knows(node) or node.captured is None or not node.captured.segments
        if known and following is None:
            continue
        way, later = nodes[: number + 1], nodes[number + 1 :]
        improvement = _Improvement(recording, memory, way, later, call, None if number else before, near=near)
        try:
            # A collection may destroy graphs, which spoils a capture. Tensors may be of the user's classes.
            with COLLECTOR.rests(), plain_functions():
                if following is None:
                    improvement.shorten()
                elif isinstance(following, Fusing):
                    improvement.fuse(following)
                else:
                    improvement.approach(following)
        except Exception as error:
            why = str(error) if isinstance(error, LeftAloneError) else _told(error)
            tiers.leave(node, why)
            if following is not None:
                tiers.arrived(following)
            if isinstance(following, Fusing):
                improvement.offer(following.short)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


class _Improvement:
    """Makes the exact tier of the last stretch of a way."""

    def __init__(
        self,
        recording: Recording,
        memory: RecordingMemory,
        way: Sequence[Node],
        later: Sequence[Node],
        call: Call,
        before: Before | None,
        *,
        near: bool,
    ) -> None:
        self._near = near
        self._recording = recording
        self._memory = memory
        self._way = way
        self._later = later
        self._node = way[-1]
        self._call = call
        self._before = before

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
        if short.after >= short.before:
            tiers.keep_whole(node, replace(_removed(short), after=short.before))
        else:
            tiers.add(self._capture(short, Schedule.plain(short), {}, None))
        fusing = Fusing(node, short, outside, KERNELS.of(self._memory.holding.backend))
        if fusing.saves:
            tiers.wait(fusing)
        else:
            self.offer(short)

    def fuse(self, fusing: Fusing) -> None:
        """Capture the kernels, if they are there.

        Raises:
            LeftAloneError: There will be none.
        """
        tiers = self._recording.tiers
        self._check_recording()
        if not fusing.advance(self._outside()):
            return
        found = fusing.schedule
        if not found.kernels:
            raise LeftAloneError("no kernel may calculate any of its operations")
        if not fusing.saves:
            raise LeftAloneError("with kernels it would launch as much as without")
        self._check_modes(list(self._modes().values()))
        fused = FusedOperations(len(found.kernels), fusing.distinct, len(found.calculated), found.refused)
        kernels = fusing.loaded()
        tiers.add(self._capture(fusing.short, found, kernels, fused))
        tiers.arrived(fusing)
        self.offer(fusing.short, found, kernels, fused)

    def offer(
        self,
        short: ShortStretch,
        schedule: Schedule | None = None,
        kernels: Mapping[Written, LoadedKernel] | None = None,
        fused: FusedOperations | None = None,
    ) -> None:
        """The exact tier is made; have operations calculated in other ways next, where that is asked for."""
        nearing = Nearing(self._node, short, schedule or Schedule.plain(short), kernels or {}, fused)
        if self._near and nearing.offered:
            self._recording.tiers.wait(nearing)

    def approach(self, nearing: Nearing) -> None:
        """Capture the stretch with operations calculated in other ways, where these are as near.

        Raises:
            LeftAloneError: There are none, or it cannot be captured.
        """
        self._check_recording()
        if nearing.idle:
            return
        backend = self._memory.holding.backend
        short, gate = nearing.short, Gate(KERNELS.of(backend))
        node, modes, outside = self._node, self._modes(), self._outside()
        plain = Schedule.plain(short)
        Recapture(
            RunningSession(), short, node, modes, outside, backend, self._before, plain, {},
            self._received(), look=gate.look,
        ).run()  # fmt: skip
        if gate.compiling:
            self._recording.tiers.arrived(nearing)
            self._recording.tiers.wait(replace(nearing, requests=tuple(gate.compiling)))
            return
        if not gate.passed:
            why = next(iter(gate.refused), "none fits")
            raise LeftAloneError(f"no other way to calculate its operations is used: {why}")
        found = self._capture(short, nearing.schedule, nearing.kernels, nearing.fused, gate)
        self._recording.tiers.add(found)
        self._recording.tiers.arrived(nearing)

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
        short: ShortStretch,
        found: Schedule,
        kernels: Mapping[Written, LoadedKernel],
        fused: FusedOperations | None,
        gate: Gate | None = None,
    ) -> ExactStretch:
        """Capture what is left of the stretch, and hold its memory.

        Raises:
            LeftAloneError: It cannot be captured, gives other bits, or takes too much memory.
        """
        node, modes, outside, holding = self._node, self._modes(), self._outside(), self._memory.holding
        captured, steps = self._captured()
        session = self._open()
        try:
            anew = Recapture(
                session, short, node, modes, outside, holding.backend, self._before, found, kernels,
                self._received(), gate.passed if gate is not None else {},
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
        removed = _removed(short, found.stored(short))
        near = gate.found if gate is not None else None
        contents = _contents(anew, found, gate.passed if gate is not None else ())
        return ExactStretch(node, steps, plain, replaced, removed, session, anew.kept, contents, fused, near)

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
        gradients = [each.storage for each in self._recording.gradients.effects if each.storage is not None]
        return holding.backend.open(
            exclusive=False,
            sharing=BUDGETS.of(holding.backend).sharing(holding.account, holding.demand),
            aliases=self._memory.inputs.aliases(self._call.leaves, gradients),
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


def _is_of_a_library(operation: Operation) -> bool:
    return operation.is_of_aten and not (operation.facts.own or operation.facts.transfers)


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
    anew: CapturedAnew, found: Schedule, near: Collection[int]
) -> tuple[tuple[Segment, tuple[Launched, ...]], ...]:
    """What each segment runs."""
    return tuple([
        (segment, tuple([_launched(item, near) for item in run]))
        for segment, run in zip(anew.segments, found.runs, strict=True)
        if segment is not None
    ])  # fmt: skip


def _launched(item: Item, near: Collection[int]) -> Launched:
    if isinstance(item, Written):
        return Launched(tuple(sorted(item.covers)), "fused")
    return Launched((item,), "near" if item in near else "exact")


def _removed(short: ShortStretch, stored: Collection[Origin] = ()) -> Removed:
    by_rule = {rule: short.removed[rule] for rule in RULES}
    shown = short.shown(stored)
    after = short.after - short.shown() + shown
    return Removed(short.before, after, shown, by_rule, short.outside)
