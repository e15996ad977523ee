"""Gives a recording its exact tier, right after a replay and under the locks of that call.

Only recordings without gradients are looked at. Their stretches can be run again without anybody noticing:
what they write outside, and the generator that they draw from, are put back. Whatever fails costs a line in
the report: the plain tier is not touched, and what others read is as the replay has left it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...base import COLLECTOR
from ..arguments import TENSOR, Call, read_switches
from ..backends.protocol import Segment, Session, first_line
from ..memory import BUDGETS
from ..program import INPUT, Origin, named_inputs, replaced_kernels
from ..pytorch import plain_functions
from ..recording import (
    CapturedStretch,
    ExactStretch,
    KernelModes,
    Node,
    Recording,
    RecordingMemory,
    Removed,
    Step,
)
from .anew import CapturedAnew, Place, Recapture
from .before import Before
from .effects import Effects, LeftAloneError
from .shortening import RULES, ShortStretch, shorten


def improve(recording: Recording, nodes: Sequence[Node], call: Call, before: Before | None) -> None:
    """Optimise the stretches of a way that has just been replayed, each once.

    Args:
        recording: The recording.
        nodes: The way, from the root.
        call: The call that was replayed.
        before: What it has changed, as that was.
    """
    memory, tiers = recording.memory, recording.tiers
    if memory is None:
        return
    for number, node in enumerate(nodes):
        if tiers.knows(node) or node.captured is None or not node.captured.segments:
            continue
        try:
            # A collection may destroy graphs, which spoils a capture. Tensors may be of the user's classes.
            with COLLECTOR.rests(), plain_functions():
                made = _Improvement(
                    recording, memory, nodes[: number + 1], call, None if number else before
                ).make()
            if isinstance(made, Removed):
                tiers.keep_whole(node, made)
            else:
                tiers.add(made)
        except LeftAloneError as why:
            tiers.leave(node, str(why))
        except Exception as error:
            tiers.leave(node, f"{type(error).__name__}: {first_line(error)}")


class _Improvement:
    """Makes the exact tier of the last stretch of a way."""

    def __init__(
        self,
        recording: Recording,
        memory: RecordingMemory,
        way: Sequence[Node],
        call: Call,
        before: Before | None,
    ) -> None:
        self._recording = recording
        self._memory = memory
        self._way = way
        self._node = way[-1]
        self._call = call
        self._before = before

    def make(self) -> ExactStretch | Removed:
        """Shorten the stretch, capture what is left, and hold its memory.

        Returns:
            The exact tier; only what there is where nothing can be removed.

        Raises:
            LeftAloneError: It stays as it is.
        """
        self._check_recording()
        node, captured, steps = self._node, self._node.captured, self._node.steps
        if captured is None or steps is None:
            raise LeftAloneError("it is not recorded")
        effects = Effects.of(node.operations, [each.modes.keys() for each in captured.segments], node.refused)
        modes = {index: found for each in captured.segments for index, found in each.modes.items()}
        if effects.changes and (len(self._way) > 1 or node.branch is not None):
            raise LeftAloneError("it writes arguments or state, and the host reads values before it ends")
        outside = self._outside()
        short = shorten(effects, modes, [origin for origin in effects.made if origin in outside])
        if short.after >= short.before:
            return replace(_removed(short), after=short.before)
        self._check_modes([modes[index] for index in effects.each()])
        holding = self._memory.holding
        session = self._open()
        try:
            recapture = Recapture(session, short, node, modes, outside, holding.backend, self._before)
            anew = recapture.run()
            holding.keep(session, sum([storage.nbytes() for storage in anew.kept]))
            excess = BUDGETS.of(holding.backend).excess(holding)
            if excess is not None:
                raise LeftAloneError(f"with the exact tier {excess}")
        except BaseException:
            holding.give_up(session)
            raise
        return ExactStretch(
            node, steps, _replaced(steps, captured, anew), _removed(short), session, anew.kept
        )

    # ------------------------------------------------------------------ what is left alone

    def _check_recording(self) -> None:
        recording, accesses = self._recording, self._recording.accesses
        ends = [node.template for node in recording.root.walk()]
        tracked = any([end is not None and end.tracked for end in ends]) or recording.backwards()
        if recording.keeps_graph or recording.keeps_gradients or recording.gradients.effects or tracked:
            raise LeftAloneError("its results may require grad, or it reads or replaces gradients")
        if accesses.written_arrays:
            raise LeftAloneError("it writes arrays made outside")
        if accesses.generators or self._memory.stands.by_number:
            raise LeftAloneError("it draws from generators that are given or made outside")
        if self._memory.holding.exclusive:
            raise LeftAloneError("values in its memory outlive a call")
        if recording.trusts and self._memory.holding.backend.capabilities.asynchronous:
            text = "it runs code that rote.pure or a library answers for, or TorchScript"
            raise LeftAloneError(f"{text}, which may launch kernels that no operation shows")
        if replaced_kernels():
            raise LeftAloneError("somebody has replaced kernels of PyTorch's operators")

    def _check_modes(self, modes: Sequence[KernelModes]) -> None:
        switches = read_switches()
        if any([each.switches != switches for each in modes]):
            raise LeftAloneError("some of its operations run under other switches of PyTorch's")
        if any([each.grad for each in modes]) and self._may_track():
            raise LeftAloneError("it runs in grad mode on tensors that require grad")

    def _may_track(self) -> bool:
        leaves = [
            leaf for leaf, kind in zip(self._call.leaves, self._call.kinds, strict=True) if kind is TENSOR
        ]
        return any([tensor.requires_grad for tensor in (*leaves, *self._recording.accesses.alive().values())])

    # ------------------------------------------------------------------ memory

    def _open(self) -> Session:
        holding = self._memory.holding
        return holding.backend.open(
            exclusive=False,
            sharing=BUDGETS.of(holding.backend).sharing(holding.account, holding.demand),
            aliases=self._memory.inputs.aliases(self._call.leaves),
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


def _removed(short: ShortStretch) -> Removed:
    by_rule = {rule: short.removed[rule] for rule in RULES}
    return Removed(short.before, short.after, short.shown, by_rule, short.outside)
