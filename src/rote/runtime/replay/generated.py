"""The hot path: one generated function per recording that answers the calls which are plain replays.

A replay takes a GPU two microseconds to be told, and a general path through keys, recordings and templates
takes Python twenty times that. So once a recording was replayed, a function is written that does for this
key, this state and this result what the general path would do: check the arguments and the surroundings
(:mod:`..arguments.admission`), check the guard (:mod:`..conditions.quick`), place the inputs, launch, hand
out. It returns NOT_MINE wherever the general path would not have replayed this recording, or might not; then
the general path decides and explains. The function never decides anything itself. What it cannot write (host
reads, gradients that are replaced) it leaves to the general path of the key once the guard has held.

A lesson of the key (a new path, a new guard, another recording that is to be preferred) or the release of the
recording may change what was written; the function looks whether there was either.

What does not work: to keep the function with the wrapper and let it mention the wrapper. The two would be a
cycle, and the memory of a wrapper that is deleted would wait for a garbage collection. It mentions the
recording, which lets go of it when released.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import FrameType
from typing import Any, Protocol

import torch
from torch.profiler import record_function

from ...base import EnvironmentError_, InternalError
from ..arguments import NOT_MINE, Admission, Call, Source, Switches, has_branches, tracing
from ..backends.protocol import Backend, Lock
from ..conditions import QuickGuard
from ..program import OWN, REPLAYED, Result, in_bad_fork, renamable, saving_is_hooked
from ..recording import Copies, Recording, Writing, can_be_written, write_parts, write_together
from .general import repeats, result_of, takes_back

Range = Callable[[], AbstractContextManager[Any]]
"""Makes the range of one replay."""


def range_of(kind: str, name: str) -> Range | None:
    """What names the replays of a callable; None where nothing does.

    Args:
        kind: ``"profiler"`` for ``torch.profiler``, ``"nvtx"`` for Nsight Systems, or ``"off"``.

    Raises:
        EnvironmentError_: This build of PyTorch has no NVTX.
    """
    if kind == "off":
        return None
    if kind == "profiler":
        return partial(record_function, f"rote: {name}")
    if torch.version.cuda is None:
        raise EnvironmentError_("ranges='nvtx' needs a build of PyTorch for CUDA; ranges='profiler' does not")
    return partial(_nvtx_range, f"rote: {name}")


@contextmanager
def _nvtx_range(name: str) -> Generator[None]:
    """A range of that name as it is; PyTorch's own would take braces in it for places to fill."""
    torch.cuda.nvtx.range_push(name)
    try:
        yield
    finally:
        torch.cuda.nvtx.range_pop()


class Counting(Protocol):
    """What counts calls, and those of them that were replayed."""

    calls: int
    replayed: int
    due: bool


class Counts:
    """What a wrapper counts at every call; ``compared`` are plain calls that replays are compared with."""

    __slots__ = ("calls", "compared", "due", "replayed")

    def __init__(self) -> None:
        self.calls = self.replayed = self.compared = 0
        self.due = False


class KeyCounts:
    """What is counted of one key, and read by the functions that are generated for it.

    Attributes:
        lessons: The calls that were more than a replay, or were to be.
        dead: An argument that is a part of the key has died: no call has this key any more.
    """

    __slots__ = ("calls", "dead", "lessons")

    def __init__(self) -> None:
        self.calls = self.lessons = 0
        self.dead = False


General = Callable[[Recording, Call, FrameType], Result]
"""The general path of a key: replays a recording whose guard has held, or goes on from there."""

Finish = Callable[[Result], Any]
"""Takes the result of a call that turned out to be more than a replay."""

Answering = Callable[[tuple[Any, ...], dict[str, Any]], Any]
"""A function that answers calls, of positional and keyword arguments."""


class HotPath:
    """Answers the calls of one key and one state from one recording.

    Attributes:
        call: Of positional and keyword arguments. It returns NOT_MINE if the general path has to decide, and
            may return PLAINLY.
        answers: The function that was generated; ``call`` is another one while calls are timed.
    """

    __slots__ = ("__weakref__", "_lessons", "_steps", "answers", "call")

    def __init__(self, key: KeyCounts, recording: Recording, call: Answering) -> None:
        self._steps = recording.root.steps
        self._lessons = key.lessons
        self.call = self.answers = call
        recording.when_released(self.drop)

    @staticmethod
    def possible(recording: Recording, call: Call, others: Iterable[Recording], *, guesses: bool) -> bool:
        """Whether such a function can stand for the general path.

        It cannot where the general path does more than replay (it notices mutated arguments that keep coming
        from one place, if the key guesses), nor where it would prefer another recording that uses arguments
        in place.
        """
        memory = recording.memory
        if not recording.recorded or memory is None or not Admission.possible(call):
            return False
        inputs = memory.inputs
        if guesses and any(group.members[0] in inputs.written for group in inputs.groups):
            return False
        return bool(recording.spots) or not any(other.spots for other in others)

    def serves(self, key: KeyCounts, recording: Recording) -> bool:
        """Whether it was made for the recording as it is now."""
        return self._lessons == key.lessons and self._steps is recording.root.steps

    def drop(self) -> None:
        """The recording is released: let go of everything."""
        self.call = self.answers = _not_mine
        self._lessons = -1
        self._steps = None


def _not_mine(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return NOT_MINE


class ReplayWriter:
    """Writes the function.

    Args:
        recording: The recording, which has just been replayed.
        general: The general path of the key.
        finish: Takes the result of a call that turned out to be more than a replay.
        sorts: The order of the keywords does not matter.
        named: The range around a replay; None if there is none.
    """

    def __init__(
        self,
        key: KeyCounts,
        recording: Recording,
        call: Call,
        backend: Backend,
        general: General,
        counts: Counting,
        finish: Finish,
        *,
        sorts: bool,
        named: Range | None = None,
    ) -> None:
        memory = recording.memory
        if memory is None:
            raise InternalError("a function was to be generated for a recording without memory")
        self._key = key
        self._recording = recording
        self._general = general
        self._named = named
        self._call = call
        self._inputs = memory.inputs
        self._backend = backend
        self._source = Source("replay")
        self._counts, self._finish = self._source.constant(counts), self._source.constant(finish)
        self._admission = Admission(self._source, call, sorts=sorts)
        self._guard = QuickGuard(
            recording.guard.python, Switches(call.key.ambient.switches) if Switches.readable() else None
        )
        self._copies: Copies | None = None
        self._stands = memory.stands if memory.stands.by_number else None

    def write(self, lock: Lock | None) -> Answering:
        """The function; ``lock`` is the wrapper's, None if the device's is enough."""
        source, constant = self._source, self._source.constant
        # Before the trace could see how arguments are looked at, and before CUDA is asked anything.
        source.refuse(f"{constant(tracing.get)}()")
        source.refuse(f"{constant(in_bad_fork)}()")
        self._admission.write()
        self._copies = self._choose_copies() if self._is_plain() else None
        if self._copies is None or not self._copies.write_sharing_late(self._admission):
            self._admission.write_sharing()
        self._switches()
        locks = (lock, self._backend.lock) if lock is not None else (self._backend.lock,)
        for held in locks:
            source.refuse(f"not {constant(held.acquire)}(False)")
            source.line("try:")
            source.indent()
        if self._copies is not None:
            # What another thread has left to be released goes here: behind the look at the state it might be
            # this recording. The general path enters by itself.
            self._enter()
        self._state()
        if self._copies is not None:
            self._unless_gradients_stand()
            if self._named is not None:
                source.line(f"with {constant(self._named)}():")
                source.indent()
            self._replay(self._copies)
            if self._named is not None:
                source.indent(-1)
        else:
            self._leave_to_general()
        for held in reversed(locks):
            source.indent(-1)
            source.line("finally:")
            source.line(f"    {constant(held.release)}()")
        return source.compile()

    def _is_plain(self) -> bool:
        """Whether the replay itself can be written out: no host reads, gradients shown where they lie."""
        root, recording = self._recording.root, self._recording
        return (
            root.branch is None
            and root.template is not None
            and (
                not recording.gradients.effects
                or (recording.keeps_gradients and not recording.gradients.copies)
            )
        )

    def _choose_copies(self) -> Copies:
        """What the segments copy themselves: arguments that are not in place, results that are new.

        An argument that is written goes back to the caller even if the call is interrupted. So its copy has
        to be made before, not with the launch.
        """
        root, inputs, leaves = self._recording.root, self._inputs, self._admission.leaves
        pairs = (inputs.pairs() or []) if not inputs.written else []
        parts = root.template.leaves if root.template is not None and self._writes_result() else ()
        return Copies(
            self._source,
            root.steps or [],
            self._backend.device,
            {leaves[member]: target for member, target in pairs},
            [leaf.value for leaf in parts if leaf.kind == OWN],
        )

    # ------------------------------------------------------------------ may it be replayed?

    def _state(self) -> None:
        """What is not in the key: the recording is there and free, and arguments and guard fit."""
        source, recording, constant = self._source, self._recording, self._source.constant
        name, key = constant(recording), constant(self._key)
        source.refuse(f"{constant(recording.root)}.steps is not {constant(recording.root.steps)}")
        source.refuse(f"{key}.lessons != {constant(self._key.lessons)} or {key}.dead")
        if recording.keeps_graph or recording.root.backward is not None or recording.root.edges:
            source.refuse(f"{constant(recording.occupancy)}.taken")
        if recording.keeps_gradients:
            source.line(f"stands = {constant(recording.gradients.stand)}()")
            source.refuse(f"not stands and not {name}.gradients_hold()")
        if recording.passes_hooks:
            source.refuse(f"not {name}.hooks_hold()")
        if recording.accesses.rebound:
            source.refuse(f"not {constant(recording.accesses.are_alone)}()")
        for spot in recording.spots:
            source.refuse(f"not {constant(spot.holds)}({self._leaves()})")
        if recording.bound:
            source.refuse(f"{name}.is_given_another({self._leaves()})")
        self._sharing()
        if has_branches(self._call.spec) and (recording.root.edges or recording.binds):
            source.refuse(f"{name}.is_given_state({self._as_call()})")
        if self._stands is not None and (recording.accesses.generators or self._stands.several_on_devices):
            source.refuse(f"{name}.draws_from({self._generators()})")
        source.refuse(f"not {constant(self._guard.holds)}()")
        source.line(f"if {name}.replays >= {name}.due:")  # to be measured
        source.line(f"    {self._counts}.due = True")
        source.line("    return NOT_MINE")
        if recording.computation is not None:  # the last one: it may have drawn numbers
            source.refuse(f"not {constant(recording.computation.take)}({self._leaves()})")

    def _switches(self) -> None:
        """Modes and switches that decide what the callable would compute, and hooks on what it would save."""
        self._admission.write_switches(named=not Switches.readable())  # the guard looks at them
        if self._call.key.ambient.grad:
            self._source.refuse(f"{self._source.constant(saving_is_hooked)}()")

    def _sharing(self) -> None:
        """No argument that is copied shares memory with state, where that matters."""
        recording, source = self._recording, self._source
        leaves = self._call.leaves
        if recording.guard.array_ranges and any(
            [isinstance(leaf, torch.Tensor) and leaf.is_cpu for leaf in leaves]
        ):
            source.refuse(f"{source.constant(recording.lies_in_arrays)}({self._leaves()})")
        depends = recording.depends_on_sharing
        if not depends and not recording.root.edges and not recording.tells_tensors:
            return
        apart = renamable(self._call) if recording.root.edges else range(len(leaves))
        in_place = {member for spot in recording.spots for member in spot.members}
        state, reaches = source.constant(recording.handles()), source.constant(recording.reaches)
        for position in self._admission.tensors():
            if position not in in_place:
                handle = self._admission.handle(position)
                shares = f"{handle} in {state} and {reaches}({handle})"
                if not depends and position in apart:
                    has_read = source.constant(recording.guard.has_read)
                    shares = f"{has_read}({self._admission.leaves[position]})"
                source.refuse(shares)

    def _unless_gradients_stand(self) -> None:
        """Gradients that somebody changed, or holds, since the last replay are for the general path."""
        if self._recording.gradients.effects:
            self._source.line("if not stands:")
            self._source.indent()
            self._leave_to_general()
            self._source.indent(-1)

    def _leaves(self) -> str:
        leaves = self._admission.leaves
        return f"({', '.join(leaves)}{',' if leaves else ''})"

    def _generators(self) -> str:
        """The random generators that the recording has stands for."""
        call, admission = self._call, self._admission
        given = [number for number, each in enumerate(call.branches()) if type(each) is torch.Generator]
        names = dict(zip(given, admission.generators, strict=True))
        names.update([(~number, name) for number, name in enumerate(admission.state)])
        return f"({''.join([f'{names[number]}, ' for number in call.generators()])})"

    # ------------------------------------------------------------------ the replay

    def _begin(self, copies: Copies) -> None:
        """Place the inputs and launch the first step."""
        copies.prepare()
        if self._stands is not None:
            self._source.line(f"{self._source.constant(self._stands.take)}({self._generators()})")
        copies.place(self._inputs, self._admission.leaves)
        if self._recording.root.steps:
            copies.launch(0)

    def _enter(self) -> None:
        """Order the call after the last replay; nearly always that ran on the same stream."""
        source, constant, backend = self._source, self._source.constant, self._backend
        if backend.current_stream is None:
            source.line("stream = 0")
            return
        if backend.device.index != self._admission.stream:
            source.line(f"stream = {constant(backend.current_stream)}()")
        source.line(f"if stream != {constant(backend)}.entered: {constant(backend.enter_call)}()")

    def _replay(self, copies: Copies) -> None:
        counts, source, recording = self._counts, self._source, self._recording
        constant = source.constant
        gives = [f"{constant(self._stands.give)}({self._generators()})"] if self._stands is not None else []
        back = [f"{constant(self._inputs.copy_back)}({self._leaves()})"] if self._inputs.written else []
        after = "; ".join([*back, *gives])
        steps = len(recording.root.steps or ())
        undoes = not self._backend.capabilities.asynchronous and not recording.acts
        again = repeats(recording, self._backend)
        guarded = after or undoes or again
        if guarded:  # where one that raised is not undone, what was written before stays written, as in eager
            source.line("try:")
            source.indent()
        self._begin(copies)
        source.line(f"{counts}.calls += 1")  # an island may raise
        source.line(f"{constant(self._key)}.calls += 1")
        for index in range(1, steps):
            copies.launch(index)
        if guarded:
            source.indent(-1)
            source.line(f"except {'BaseException' if after else 'Exception'} as error:")
            if recording.computation is not None and recording.computation.draws:
                source.line(f"    {constant(recording.computation.put_back)}()")
            if undoes:
                undone = f"{constant(takes_back)}({constant(recording)}, error)"
                source.line(f"    if {undone}: return {constant(NOT_MINE)}")
            back = f"return {constant(NOT_MINE)}" if again else "raise"
            source.line(f"    {after}; raise" if after else f"    {back}")
        for line in gives:
            source.line(line)
        if recording.accesses.writes:  # the result notes the versions of what its backward needs
            source.line(f"{constant(recording.accesses.count_writes)}({constant(recording.root.counted)})")
        source.line(f"value = {self._result(copies)}")
        if recording.gradients.effects:
            source.line(f"if not {constant(recording.gradients.stand)}():")
            source.line(f"    {constant(recording)}.show_gradients({constant(recording.root.effects)})")
        # Where nothing is ordered but this stream, the next call waits for it.
        ordered = (
            "" if self._backend.current_stream is None else f"if {constant(self._backend)}.entered is None: "
        )
        source.line(f"{ordered}{constant(self._backend.leave_call)}()")
        source.line(f"{constant(recording)}.replays += 1")
        source.line(f"{counts}.replayed += 1")
        source.line("return value")

    def _leave_to_general(self) -> None:
        counts, source, recording = self._counts, self._source, self._recording
        constant = source.constant
        replay = constant(self._general)
        source.line(f"{counts}.calls += 1")
        source.line(f"{constant(self._key)}.calls += 1")
        frame = f"{constant(sys._getframe)}(2)"
        source.line(f"result = {replay}({constant(recording)}, {self._as_call()}, {frame})")
        source.line(f"if result.how is {constant(REPLAYED)}:")
        source.line(f"    {counts}.replayed += 1")
        source.line("    return result.value")
        source.line(f"return {self._finish}(result)")

    def _as_call(self) -> str:
        """The call, taken apart as the general path does it."""
        constant, call = self._source.constant, self._call
        parts = f"{constant(call.spec)}, {self._leaves()}, {constant(call.kinds)}, {constant(call.key)}"
        given = self._admission.given + (f", apart={constant(call.apart)}" if call.apart else "")
        if not call.opened and not call.carried:
            return f"{constant(Call)}({parts}, {given}, openings={constant(call.openings)})"
        opened = f"None, (), {constant(call.openings)}, {constant(call.opened)}"
        carried = f"carried={constant(call.carried)}"
        places = zip(call.state, self._admission.state, strict=True)
        state = "".join([f"({constant(place)}, {name}), " for (place, _), name in places])
        given = self._admission.given
        apart = f"apart={constant(call.apart)}"
        return f"{constant(Call)}({parts}, {given}, {opened}, state=({state}), {carried}, {apart})"

    # ------------------------------------------------------------------ the result

    def _writes_result(self) -> bool:
        """Whether an expression makes the result: its copies are all there is to do besides."""
        root = self._recording.root
        template = root.template
        if template is None or self._inputs.written or not can_be_written(template):
            return False
        if root.backward is not None:  # the copies are hung into the caller's graph
            return not torch.is_inference_mode_enabled()
        return not template.tracked

    def _result(self, copies: Copies) -> str:
        """The expression that makes the caller's result."""
        root, source, constant = self._recording.root, self._source, self._source.constant
        template, backward = root.template, root.backward
        if template is None or not self._writes_result():
            given = f"{constant(template)}, {constant(self._inputs)}, {self._as_call()}"
            return f"{constant(result_of)}({given}, {constant(backward)}, {constant(root.counted)})"
        parts = write_parts(template, Writing(source, self._admission.leaves, copies.result))
        if backward is not None:
            own = {n: parts[n] for n, leaf in enumerate(template.leaves) if leaf.kind == OWN}
            source.line(f"made = {{{', '.join([f'{n}: {part}' for n, part in own.items()])}}}")
            source.line(f"{constant(backward.attach)}({self._as_call()}, made)")
            parts = [f"made[{n}]" if n in own else part for n, part in enumerate(parts)]
        return write_together(source, template.spec, iter(parts))
