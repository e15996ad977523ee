"""One replayed call, made a second time, plainly, and compared in all that shows; see :mod:`.verify`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ...base import Site, VerificationError
from ...hazards import findings_of, rules
from ...hazards.rules import reason
from ..arguments import (
    APPENDED,
    CONTENTS,
    GRADIENT,
    Bound,
    Call,
    GivenTarget,
    LeftGradient,
    Marking,
    SlotsBefore,
    Tag,
    Target,
    all_in,
    explain_ambient,
    flatten,
    read_ambient,
    returned,
)
from ..backends.protocol import Backend
from ..engine import LifeEvent, Specialization
from ..program import FOUND, Template, versions_kept
from ..pytorch import has_memory
from ..reads import WATCH
from ..reads.trace import Effect
from ..recording import Recording
from ..state import LENGTH, address_of
from .locate import Located, Locator, Tensors
from .mismatch import Mismatch, attributes_of, compare_attributes, compare_results, compare_tensors
from .plain import plainly
from .surface import Moment, Surface

OUT_OF_MEMORY = (MemoryError, torch.OutOfMemoryError)

Counted = list[tuple[str, torch.Tensor, int]]

SHOWN = 5
"""Differences that a message lists."""


class Check:
    """One call made twice: made before the replay, with :meth:`compare` after it."""

    def __init__(
        self, entry: Specialization, recording: Recording, call: Call, backend: Backend, tolerance: float
    ) -> None:
        self._function = entry.subject.function
        self._entry = entry
        self._recording = recording
        self._call = call
        self._backend = backend
        self._tolerance = tolerance
        self._attributes = [attributes_of(leaf) for leaf in call.leaves]
        self._effects: tuple[Effect, ...] = ()  # of the plain call
        self._exact = recording.tiers.exact
        backend.enter_call()
        self._surface = Surface(recording, call, backend)
        self._before = self._surface.first()
        self._growing = [target.container for target in recording.binds if target.kind == APPENDED]
        left = [target.number for target in recording.binds if isinstance(target, LeftGradient)]
        self._asked = [(call.names()[number], call.leaves[number]) for number in dict.fromkeys(left)]
        turned = recording.binds  # a replay finds other values there than it leaves
        self._held = SlotsBefore([*all_in([*call.branches(), *self._growing]), *turned], call.branches())
        self._hold_gradients(self._held)

    def compare(self, replayed: Any, site: Site) -> None:
        """Run the callable plainly and compare; afterwards the state is that of one call.

        Raises:
            VerificationError: Something differs.
            MemoryError: There is no memory for the comparison (or PyTorch's own error of that kind).
        """
        surface, before = self._surface, self._before
        grown = SlotsBefore([*all_in(self._growing), *self._recording.binds], self._call.branches())
        self._hold_gradients(grown)
        given = [(leaf.requires_grad, leaf.grad) for _, leaf in self._asked]
        bounds = [Bound(replayed, targets, self._parts(targets, replayed)) for targets in self._bound()]
        left = [self._with(replayed, bound.targets, bound.parts) for bound in bounds]
        kept, chosen = [surface.keep(each) for each in left], 0
        after = surface.read()
        surface.complete(before, after)
        try:
            surface.write(before)
            self._held.put_back()
            counted = self._count()
            plain, error = self._run_plainly()
            now = surface.read(contents=False)
            if error is not None:
                text = f"raises {type(error).__name__} when it is made plainly: {error}"
                found = [Mismatch("the call", text)]
            else:  # the way with the slots of the plain call, or else the first one
                slots = plain.targets if type(plain) is Bound else ()
                chosen = next((i for i, bound in enumerate(bounds) if bound.targets == slots), 0)
                found = self._mismatches(left[chosen], plain, kept[chosen], after, now, counted)
                found += self._compare_left(given)
        except OUT_OF_MEMORY:  # a check needs twice the memory; the replay stands
            surface.write(after)
            grown.put_back()
            raise
        if not found:
            surface.write(after)  # the same within the tolerance
            if bounds[chosen].targets:
                bounds[chosen].put(self._call.branches())
            grown.put_back()
            self._backend.leave_call()
            return
        self._fail(found, returned(plain), error, counted, site)

    def _bound(self) -> list[tuple[Target, ...]]:
        """The slots that each way of the recording binds, without repetition."""
        ways = [[each for each in made.targets if each.kind != GRADIENT] for made in self._templates()]
        return [*dict.fromkeys(map(tuple, ways))]

    def _templates(self) -> list[Template]:
        """The results of each way of the recording."""
        return [node.template for node in self._recording.root.walk() if node.template is not None]

    def _parts(self, targets: tuple[Target, ...], value: Any) -> tuple[Any, ...]:
        """The values in some slots now, those of a result among them."""
        branches, leaves = self._call.branches(), list[Any]()
        flatten(self._with(value, (), ()), leaves, cuts=True)
        return tuple(
            [
                each.look(branches)
                if isinstance(each, GivenTarget)
                else each.look(leaves)
                if isinstance(each, Tag)
                else each.read()
                for each in targets
            ]
        )

    def _with(self, value: Any, targets: tuple[Target, ...], parts: tuple[Any, ...]) -> Any:
        """A result in the form in which it is taken apart, with the values of slots."""
        branches = self._call.branches()
        numbers = {id(branch): number for number, branch in reversed([*enumerate(branches)])}
        outputs = [leaf for each in self._templates() for leaf in each.leaves]
        kept = {id(leaf.value()): leaf.value for leaf in outputs if leaf.kind == FOUND}
        marking = Marking(
            lambda each: numbers.get(id(each)), lambda each: id(each) in kept, lambda each: kept[id(each)]
        )
        value = marking.mark(value)
        return Bound(value, targets, tuple([marking.mark(part) for part in parts])) if targets else value

    def _count(self) -> Counted:
        """The version counters of reachable tensors: writes to them show nowhere else."""
        guard, surface = self._recording.guard.python, self._surface
        replaced = surface.replaced()
        return [
            (name, tensor, tensor._version)
            for name, tensor in guard.reachable()
            if has_memory(tensor)
            and not tensor.is_inference()
            and tensor.untyped_storage()._cdata not in surface.handles
            and id(tensor) not in replaced
        ]

    def _run_plainly(self) -> tuple[Any, Exception | None]:
        args, kwargs = self._call.arguments
        trace = self._entry.subject.follow(self._call)
        trace.take(self._call, self._call.given, {})
        self._call.lay(self._call.given)
        try:
            with versions_kept(self._surface.tensors()), plainly(self._backend):
                value = self._function(*args, **kwargs)
                often = {target.address for targets in self._bound() for target in targets}
                return trace.bound(value, often, others=False), None
        except OUT_OF_MEMORY:
            raise
        except Exception as error:
            return None, error
        finally:
            self._effects = WATCH.end(trace).effects

    # ------------------------------------------------------------------ comparing

    def _mismatches(
        self, replayed: Any, plain: Any, kept: list[Any], after: Moment, now: Moment, counted: Counted
    ) -> list[Mismatch]:
        """All differences, in the order in which the caller sees them."""
        leaves = enumerate(zip(self._call.names(), self._call.leaves, strict=True))
        tensors = [(place, *each) for place, each in leaves if isinstance(each[1], torch.Tensor)]
        # Of an array the storage does not tell what lies in its memory.
        arguments = {name: leaf for place, name, leaf in tensors if place not in self._call.arrays}
        found = list(compare_results(replayed, plain, kept, arguments, self._tolerance))
        found += self._compare_spans(after)
        found += self._compare_gradients(after, now)
        text = "is another one than after the plain call"
        found += [Mismatch(name, text) for name in after.random.differing(now.random)]
        found += [Mismatch(name, text, python=True) for name in after.random.differing_on_host(now.random)]
        text = "is written by the plain call and not by the replay"
        found += [Mismatch(name, text) for name, _ in _written(counted)]
        self._surface.write_gradients(after)  # the guard looks at gradients too
        found += self._compare_python()
        self._surface.write_gradients(now)
        return found

    def _compare_spans(self, after: Moment) -> Iterator[Mismatch]:
        for span, replayed in zip(self._surface.spans, after.contents, strict=True):
            if torch.equal(replayed, span.memory):
                continue
            for name, tensor in span.tensors:
                yield from compare_tensors(
                    name, span.look(tensor, replayed), span.look(tensor), self._tolerance
                )

    def _compare_gradients(self, after: Moment, now: Moment) -> Iterator[Mismatch]:
        slots = zip(self._surface.slots, after.gradients, now.gradients, strict=True)
        for (name, _), replayed, plain in slots:
            if replayed is plain:
                continue
            if replayed is None or plain is None:
                text = f"is {_outline(replayed)} and {_outline(plain)} in the plain call"
                yield Mismatch(f"{name}.grad", text)
            else:
                yield from compare_tensors(f"{name}.grad", replayed, plain, self._tolerance)

    def _hold_gradients(self, slots: SlotsBefore) -> None:
        for _, leaf in self._asked:
            slots.hold(GRADIENT, leaf, None)

    def _compare_left(self, given: list[tuple[bool, Any]]) -> Iterator[Mismatch]:
        """What the replay and the plain call have left in the ``.grad`` of arguments."""
        for (name, leaf), (asked, gradient) in zip(self._asked, given, strict=True):
            if asked is not leaf.requires_grad:
                yield Mismatch(name, f"requires grad is {asked} and {leaf.requires_grad} in the plain call")
            if (gradient is None) is not (leaf.grad is None):
                text = f"is {_outline(gradient)} and {_outline(leaf.grad)} in the plain call"
                yield Mismatch(f"{name}.grad", text)
            elif gradient is not None:
                yield from compare_tensors(f"{name}.grad", gradient, leaf.grad, self._tolerance)

    def _compare_python(self) -> Iterator[Mismatch]:
        recording, call = self._recording, self._call
        for effect in self._effects[:SHOWN]:  # a recorded call has none
            text = f"was {effect.was} and is {effect.now} after the plain call"
            yield Mismatch(effect.name, text, python=True, site=effect.site)
        if not self._effects and not recording.holds():
            bound = {address_of(each.kind, each.container, each.key) for each in recording.binds}
            filled = [each.container for each in recording.binds if each.kind in (APPENDED, CONTENTS)]
            bound |= {address_of(LENGTH, each, None) for each in filled}
            for difference in recording.explain(bound or None)[:SHOWN]:
                text = f"was {difference.was} and is {difference.now} after the plain call"
                yield Mismatch(difference.name, text, python=True)
        changed = explain_ambient(call.key.ambient, read_ambient())
        if changed is not None:
            text = f"are changed by the plain call: {changed}"
            yield Mismatch("the surroundings of the call", text, python=True)
        for name, leaf, known in zip(call.names(), call.leaves, self._attributes, strict=True):
            yield from compare_attributes(name, leaf, known)
        binds = any([isinstance(each, GivenTarget) for each in recording.binds])
        if not binds and call.is_changed():
            text = "is changed by the plain call"
            yield Mismatch("a container among the arguments", text, python=True)

    # ------------------------------------------------------------------ failing

    def _fail(
        self, found: list[Mismatch], plain: Any, error: Exception | None, counted: Counted, site: Site
    ) -> None:
        """Give the recording up, look for the operation, and raise."""
        entry, first = self._entry, found[0]
        text = f"{first} (call {entry.calls})"
        entry.give_up(LifeEvent.REFUTED, reason(rules.REPLAY_DIFFERS, text, site))
        where = self._locate(found, plain, error, _written(counted), site)
        listed = "\n  ".join(str(item) for item in found[:SHOWN])
        rest = f"\n  and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise VerificationError(
            f"the replay of {entry.name} in call {entry.calls} at {site} is not what the plain call gives:\n"
            f"  {listed}{rest}\n{where.text}",
            output=first.name,
            difference=first.largest,
            operation=where.operation,
            where=where.place,
            cause=str(where.why),
            findings=findings_of([where.why]),
        ) from error

    def _locate(
        self, found: list[Mismatch], plain: Any, error: Exception | None, written: Tensors, site: Site
    ) -> Located:
        locator = Locator(self._entry, self._recording, self._call, self._backend, exact=self._exact)
        if error is not None:
            return locator.error(error)
        state = next((item for item in found if item.python), None)
        if state is not None:
            return locator.state(state)
        for name, tensor in written:  # they keep what the plain call left there
            self._surface.add(name, tensor)
        return locator.locate(self._surface, self._before, plain, written, site)


def _written(counted: Counted) -> Tensors:
    """The tensors whose version has changed."""
    return [(name, tensor) for name, tensor, version in counted if tensor._version != version]


def _outline(gradient: torch.Tensor | None) -> str:
    return "None" if gradient is None else f"a {list(gradient.shape)} tensor"
