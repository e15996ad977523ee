"""The hot path: one generated function per recording that answers the calls which are plain replays.

A replay takes a GPU two microseconds to be told, and a general path through keys, variants and
templates takes Python twenty times that. So for a recording that has been replayed once, a function is
written that does for this key, this state and this result what the general path would do: check the
arguments and the surroundings (:mod:`..signature.admission`), check the guard (:mod:`..signature.quick`),
place the inputs, launch, hand out. It says NOT_MINE wherever the general path would not have replayed this
recording, or might not; then the general path decides and explains. It never decides anything itself, and
what it does not know how to write (host reads, gradients that are replaced) it leaves to
:meth:`.entry.Entry.replay_variant` once the guard has held.

What is written into the function may change by a lesson of its key (a new path, a new guard, another
recording that is to be preferred) or by the release of the recording; it looks whether there was either.

What does not work: to keep the function with the wrapper and let it mention the wrapper. The two would be a
cycle, and the memory of a wrapper that is deleted would wait for a garbage collection. It mentions the
recording, which lets go of it when released.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..backends.base import Lock
from ..signature.admission import Admission
from ..signature.key import Call
from ..signature.leaves import has_branches
from ..signature.quick import QuickGuard
from ..signature.source import NOT_MINE, Source
from ..signature.switches import Switches
from .compat import in_bad_fork, saving_is_hooked
from .copies import Copies
from .counts import Counting
from .inline import is_hung, is_inline, put_together
from .outputs import copy_of
from .replay import repeats, result_of
from .result import REPLAYED, Result
from .run import tracing
from .template import OWN, PASSED, OutputLeaf

if TYPE_CHECKING:
    from .entry import Entry
    from .variant import Variant


class HotPath:
    """Answers the calls of one key and one state from one recording.

    Args:
        entry: The key.
        variant: The recording, which has just been replayed.
        call: That call.
        lock: The wrapper's lock; None if the device's is enough.
        counts: The wrapper's counts.
        finish: Takes the result of a call that turned out to be more than a replay.
        sorts: The order of the keywords does not matter.

    Attributes:
        call: The function, of positional and keyword arguments. It returns NOT_MINE if the general path has
            to decide, and may return PLAINLY.
    """

    __slots__ = ("__weakref__", "_lessons", "_steps", "call")

    def __init__(
        self,
        entry: Entry,
        variant: Variant,
        call: Call,
        lock: Lock | None,
        counts: Counting,
        finish: Callable[[Entry, Result], Any],
        *,
        sorts: bool,
    ) -> None:
        self._steps = variant.root.steps
        self._lessons = entry.lessons
        writer = _Writer(entry, variant, call, sorts=sorts)
        self.call = writer.write(lock, counts, finish)

    @staticmethod
    def possible(entry: Entry, variant: Variant, call: Call) -> bool:
        """Whether such a function can stand for the general path.

        Not where the general path does more than replay (it notices mutated arguments that keep coming from
        one place), nor where it would prefer another recording that uses arguments in place.
        """
        inputs = variant.inputs
        if not variant.recorded or inputs is None or variant.guard is None or not Admission.possible(call):
            return False
        if entry.choice.guesses.enabled and any(
            group.members[0] in inputs.written for group in inputs.groups
        ):
            return False
        return bool(variant.spots) or not any(other.spots for other in entry.variants)

    def serves(self, entry: Entry, variant: Variant) -> bool:
        """Whether it was made for the recording as it is now."""
        return self._lessons == entry.lessons and self._steps is variant.root.steps

    def drop(self) -> None:
        """The recording is released: let go of everything."""
        self.call = _not_mine
        self._lessons = -1
        self._steps = None


def _not_mine(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return NOT_MINE


class _Writer:
    """Writes the function."""

    def __init__(self, entry: Entry, variant: Variant, call: Call, *, sorts: bool) -> None:
        assert variant.inputs is not None and variant.guard is not None
        self._entry = entry
        self._variant = variant
        self._call = call
        self._inputs = variant.inputs
        self._backend = entry.prepare(call)
        self._source = Source("replay")
        self._admission = Admission(self._source, call, sorts=sorts)
        self._guard = QuickGuard(variant.guard, Switches(call.key[3][7]) if Switches.readable() else None)
        self._copies: Copies | None = None
        stands = variant.stands
        self._stands = stands if stands is not None and stands.by_number else None

    def write(
        self, lock: Lock | None, counts: Counting, finish: Callable[[Entry, Result], Any]
    ) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
        source, constant = self._source, self._source.constant
        # Before the trace could see how arguments are looked at, and before CUDA is asked anything.
        source.refuse(f"{constant(tracing.get)}()")
        source.refuse(f"{constant(in_bad_fork)}()")
        self._admission.write()
        self._copies = self._choose_copies() if self._is_plain() else None
        if self._copies is None or not self._copies.write_sharing_late(self._admission):
            self._admission.write_sharing()
        self._switches()
        own = () if lock is None or self._is_alone() else (lock,)
        locks = (*own, self._backend.lock)
        for held in locks:
            source.refuse(f"not {constant(held.acquire)}(False)")
            source.line("try:")
            source.indent()
        self._state()
        if self._copies is not None:
            self._unless_gradients_stand(constant(counts), constant(finish))
            self._replay(self._copies, constant(counts))
        else:
            self._leave_to_entry(constant(counts), constant(finish))
        for held in reversed(locks):
            source.indent(-1)
            source.line("finally:")
            source.line(f"    {constant(held.release)}()")
        return source.compile()

    def _is_plain(self) -> bool:
        """Whether the replay itself can be written out: no host reads, gradients shown where they lie."""
        root, variant = self._variant.root, self._variant
        return (
            root.branch is None
            and root.template is not None
            and (not variant.effects or (variant.keeps_gradients and not variant.copies_gradients))
        )

    def _is_alone(self) -> bool:
        """Whether the replay touches nothing but the recording, so that the device's lock is enough.

        Another thread may release the recording meanwhile. CUDA graphs are destroyed by whoever has the
        device's lock, and the recording's tensors are kept by this function.
        """
        variant = self._variant
        plain = self._is_plain() and is_inline(variant) and not variant.islands()
        more = variant.effects or variant.keeps_gradients or variant.writes
        return self._backend.capabilities.asynchronous and plain and not more

    def _choose_copies(self) -> Copies:
        """What the segments copy themselves: arguments that are not in place, results that are new.

        An argument that is written goes back to the caller even if the call is interrupted. So its copy has
        to be made before, not with the launch.
        """
        root, inputs, leaves = self._variant.root, self._inputs, self._admission.leaves
        pairs = (inputs.pairs() or []) if not inputs.written else []
        owns = is_inline(self._variant) or is_hung(self._variant)
        parts = root.template.leaves if root.template is not None and owns else ()
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
        source, variant, constant = self._source, self._variant, self._source.constant
        name, entry = constant(variant), constant(self._entry)
        source.refuse(f"{constant(variant.root)}.steps is not {constant(variant.root.steps)}")
        source.refuse(f"{entry}.lessons != {constant(self._entry.lessons)} or {entry}.dead")
        source.refuse(f"{name}.replays >= {name}.due")  # to be measured
        if variant.keeps_graph or variant.root.backward is not None or variant.root.edges:
            source.refuse(f"{constant(variant.occupancy)}.taken")
        if variant.keeps_gradients:
            source.line(f"stands = {name}.gradients_stand()")
            source.refuse(f"not stands and not {name}.gradients_hold()")
        for spot in variant.spots:
            source.refuse(f"not {constant(spot.holds)}({self._leaves()})")
        self._sharing()
        if has_branches(self._call.spec) and (variant.root.edges or variant.binds):
            source.refuse(f"{name}.is_given_state({self._as_call()})")
        if self._stands is not None and (variant.generators or self._stands.several_on_devices):
            source.refuse(f"{name}.draws_from({self._generators()})")
        self._guard.write(source)

    def _switches(self) -> None:
        """Modes and switches that decide what the callable would compute, and hooks on what it would save."""
        self._admission.write_switches(named=not Switches.readable())  # the guard looks at them
        if self._call.key[3][0]:
            self._source.refuse(f"{self._source.constant(saving_is_hooked)}()")

    def _sharing(self) -> None:
        """No argument that is copied shares memory with state, where that matters."""
        variant, source = self._variant, self._source
        leaves = self._call.leaves
        if variant.array_ranges and any([isinstance(leaf, torch.Tensor) and leaf.is_cpu for leaf in leaves]):
            source.refuse(f"{source.constant(variant.lies_in_arrays)}({self._leaves()})")
        if not variant.depends_on_sharing:
            return
        in_place = {member for spot in variant.spots for member in spot.members}
        state, reaches = source.constant(variant.handles()), source.constant(variant.reaches)
        for position in self._admission.tensors():
            if position not in in_place:
                handle = self._admission.handle(position)
                source.refuse(f"{handle} in {state} and {reaches}({handle})")

    def _unless_gradients_stand(self, counts: str, finish: str) -> None:
        """Gradients that somebody changed, or holds, since the last replay are for the general path."""
        if self._variant.effects:
            self._source.line("if not stands:")
            self._source.indent()
            self._leave_to_entry(counts, finish)
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
        self._enter()
        if self._stands is not None:
            self._source.line(f"{self._source.constant(self._stands.take)}({self._generators()})")
        copies.place(self._inputs, self._admission.leaves)
        if self._variant.root.steps:
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

    def _replay(self, copies: Copies, counts: str) -> None:
        source, variant, constant = self._source, self._variant, self._source.constant
        gives = [f"{constant(self._stands.give)}({self._generators()})"] if self._stands is not None else []
        back = [f"{constant(self._inputs.copy_back)}({self._leaves()})"] if self._inputs.written else []
        after = "; ".join([*back, *gives])
        steps = len(variant.root.steps or ())
        guarded = after or repeats(variant, self._backend)
        if guarded:  # an operation raised: what was written before it stays written, as in eager
            source.line("try:")
            source.indent()
        self._begin(copies)
        counted = [f"{counts}.calls += 1", f"{constant(self._entry)}.calls += 1"]
        for line in [] if self._is_alone() else counted:  # an island may raise
            source.line(line)
        for index in range(1, steps):
            copies.launch(index)
        if guarded:
            source.indent(-1)
            source.line(f"except {'BaseException' if after else 'Exception'}:")
            source.line(f"    {after}; raise" if after else f"    return {constant(NOT_MINE)}")
        for line in gives:
            source.line(line)
        if variant.writes:  # the result notes the versions of what its backward needs
            source.line(f"{constant(variant.note_writes)}({constant(variant.root.counted)})")
        source.line(f"value = {self._result(copies)}")
        if variant.effects:
            source.line(f"if not {constant(variant)}.gradients_stand():")
            source.line(f"    {constant(variant)}.show_gradients({constant(variant.root.effects)})")
        if self._backend.current_stream is None:  # with streams, the next call waits for this one's
            source.line(f"{constant(self._backend.leave_call)}()")
        source.line(f"{constant(variant)}.replays += 1")
        for line in counted if self._is_alone() else []:  # at once, or a report would see a call half counted
            source.line(line)
        source.line(f"{counts}.replayed += 1")
        source.line("return value")

    def _leave_to_entry(self, counts: str, finish: str) -> None:
        source, variant, constant = self._source, self._variant, self._source.constant
        entry, replay = constant(self._entry), constant(self._entry.replay_variant)
        source.line(f"{counts}.calls += 1")
        source.line(f"{entry}.calls += 1")
        frame = f"{constant(sys._getframe)}(2)"
        source.line(f"result = {replay}({constant(variant)}, {self._as_call()}, {frame})")
        source.line(f"if result.how is {constant(REPLAYED)}:")
        source.line(f"    {counts}.replayed += 1")
        source.line("    return result.value")
        source.line(f"return {finish}({entry}, result)")

    def _as_call(self) -> str:
        """The call, taken apart as the general path does it."""
        constant, call = self._source.constant, self._call
        parts = f"{constant(call.spec)}, {self._leaves()}, {constant(call.kinds)}, {constant(call.key)}"
        if not call.opened:
            return f"{constant(Call)}({parts}, (args, kwargs))"
        opened = f"None, (), {constant(call.openings)}, {constant(call.opened)}"
        places = zip(call.state, self._admission.state, strict=True)
        state = "".join([f"({constant(place)}, {name}), " for (place, _), name in places])
        return f"{constant(Call)}({parts}, (args, kwargs), {opened}, state=({state}))"

    # ------------------------------------------------------------------ the result

    def _result(self, copies: Copies) -> str:
        """The expression that makes the caller's result."""
        root, source, constant = self._variant.root, self._source, self._source.constant
        template = root.template
        assert template is not None
        if is_inline(self._variant):
            parts = iter([self._part(leaf, copies) for leaf in template.leaves])
            return put_together(source, template.spec, parts)
        if is_hung(self._variant):
            assert root.backward is not None
            own = {n: self._part(leaf, copies) for n, leaf in enumerate(template.leaves) if leaf.kind == OWN}
            source.line(f"made = {{{', '.join([f'{n}: {part}' for n, part in own.items()])}}}")
            source.line(f"{constant(root.backward.attach)}({self._as_call()}, made)")
            leaves = enumerate(template.leaves)
            parts = iter([f"made[{n}]" if n in own else self._part(leaf, copies) for n, leaf in leaves])
            return put_together(source, template.spec, parts)
        given = f"{constant(template)}, {constant(self._inputs)}, {self._as_call()}"
        return f"{constant(result_of)}({given}, {constant(root.backward)}, {constant(root.counted)})"

    def _part(self, leaf: OutputLeaf, copies: Copies) -> str:
        constant = self._source.constant
        if leaf.kind == PASSED:
            return self._admission.leaves[leaf.index]
        if leaf.kind != OWN:
            return constant(leaf.value)
        made = copies.result(leaf.value)
        if made is not None:
            return made
        if leaf.value.is_contiguous():
            return f"{constant(leaf.value.clone)}()"
        return f"{constant(copy_of)}({constant(leaf.value)})"
