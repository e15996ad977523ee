"""Which padded calls may answer for exact ones.

An argument is padded up to the next size along the axes that the user names, the padded call is replayed, and
the results are cut back to the valid rows. This happens only where it was seen to make no difference:

1. The first calls of a size run as they are, observed. A call is never padded if it writes an argument or a
   tensor made outside, draws random numbers, reads a value on the host, returns a view of an argument or part
   of an autograd graph, keeps something outside, or changes Python state.
2. The same call then runs padded, with five kinds of padding. Its operations have to be the same, with the
   same numbers, and the valid rows have to equal the exact results: bit by bit, unless
   ``tolerance`` allows for rounding, since kernels may add up in another order for another shape. Shapes show
   which dimensions of a result follow the padded axis.
3. After two such calls the *recording* is approved, not the callable: if a guard fails later and another
   recording is made, it is checked as well. And every size is compared once before it is padded: Python code
   may treat one size in another way than its neighbours.
4. Some padded calls are compared again: the 16th of a recording, the 64th, and so on.

What this cannot see is a dependence between rows that no kind of padding shows on the values of the checked
calls, such as a branch for single values inside a kernel (``where(x > 1000, x.mean(), x)``). If a later
comparison finds it, a warning is logged, since earlier padded calls may have been wrong.

Padding costs a copy of the padded arguments and of the cut results, on every call.

Why operations are compared: values may agree by chance: a saturated softmax hides that its input was
multiplied by the number of rows, a sum hides padded rows that add nothing on these values. So the programs
have to agree too: the same operations on the same tensors, with the same numbers. Only in lists of sizes a
padded size, or a multiple of it, may stand for the exact one. And no operation may take a padded tensor and
return one without the padded axis: it would join the rows, or choose among them.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, cast

import torch

from ..api import HeldKey
from ..base import Site, user_site
from ..hazards import rules
from ..hazards.rules import Reason, reason
from ..runtime.arguments import Call, bind, leaves_of
from ..runtime.engine import Answer, Specialization
from ..runtime.program import (
    FOUND,
    INPUT_VIEW,
    OWN,
    PASSED,
    PLAINLY,
    REPLAYED,
    VIEW,
    Number,
    Operand,
    Operation,
    Token,
)
from ..runtime.recording import Recording
from .rows import VARIATIONS, CannotCutError, PaddedAxis, ResultCut, difference, find_cut, pad


def program_difference(
    was: Sequence[Operation], now: Sequence[Operation], sources: Sequence[PaddedAxis]
) -> str | None:
    """The first difference between the operations of the two, as text."""
    for before, after in zip(was, now, strict=False):
        if before.name != after.name:
            return f"{before.name} at {before.site} is {after.name} with padding"
        if not _operands(before, after, sources):
            return f"{before.name} at {before.site} takes another number or tensor with padding"
        if not _same_results(before, after):
            return f"{before.name} at {before.site} has other results with padding"
        if _joins(before, after):
            return f"{before.name} at {before.site} joins rows: its result has no padded axis"
    return None if len(was) == len(now) else "the number of operations depends on the size"


def _joins(was: Operation, now: Operation) -> bool:
    """Whether padding changes the shape of a taken tensor, but not that of a returned one."""
    taken = zip(was.tokens, now.tokens, strict=True)
    if all(before.shape == after.shape for before, after in taken):
        return False
    made = zip(was.results, now.results, strict=True)
    return any(isinstance(before, Token) and before.shape == after.shape for before, after in made)


def _same_results(was: Operation, now: Operation) -> bool:
    return len(was.results) == len(now.results) and all(
        _same_tensor(one, two) if isinstance(one, Token) and isinstance(two, Token) else one == two
        for one, two in zip(was.results, now.results, strict=True)
    )


def _operands(was: Operation, now: Operation, sources: Sequence[PaddedAxis]) -> bool:
    """Whether two operations take the same, where a padded size may stand for the exact one."""
    names = [[name for name, _ in each.named] for each in (was, now)]
    before, after = was.every_operand, now.every_operand
    return (
        names[0] == names[1]
        and len(before) == len(after)
        and all(_alike(one, two, sources) for one, two in zip(before, after, strict=True))
    )


def _alike(was: Operand, now: Operand, sources: Sequence[PaddedAxis]) -> bool:
    if isinstance(was, Token) and isinstance(now, Token):
        return _same_tensor(was, now)
    if was == now:
        return True
    if type(was) is not tuple or type(now) is not tuple:
        return False
    before, after = cast("tuple[Operand, ...]", was), cast("tuple[Operand, ...]", now)
    if len(before) != len(after):
        return False
    sizes = all(type(each) is Number and each.kind is int for each in (*before, *after))
    return all(
        _scaled(one, two, sources) if sizes else _alike(one, two, sources)
        for one, two in zip(before, after, strict=True)
    )


def _same_tensor(was: Token, now: Token) -> bool:
    return (was.origin, was.dtype, was.on_host) == (now.origin, now.dtype, now.on_host)


def _scaled(was: Number, now: Number, sources: Sequence[PaddedAxis]) -> bool:
    return was == now or any(
        was.bits * source.padded == now.bits * source.size  # pyright: ignore[reportOperatorIssue]
        for source in sources
    )


_log = logging.getLogger("rote")

CHECKS = 2
"""Calls of a padded shape that are checked before its recording is used."""

RECHECK = 16
"""Padded calls after which one is compared again; then after four times as many, and so on."""

TRIES = 6
"""A padded shape is given up after so many checked calls without a result (unsteady, not recorded)."""

MAX_TRIED = 1024
"""Keys whose tries are remembered."""


class Checked:
    """The checks of a recording so far."""

    def __init__(self, cut: ResultCut) -> None:
        self.cut = cut
        self.count = 0
        self.uses = 0
        self._sizes: set[tuple[int, ...]] = set()

    def covers(self, sources: list[PaddedAxis]) -> bool:
        """Whether calls of these sizes may be padded."""
        return self.count >= CHECKS and _sizes(sources) in self._sizes and self.cut.fits(sources)

    def use(self) -> bool:
        """Count a padded call; False if it is to be compared instead: the 16th, the 64th, and so on."""
        self.uses += 1
        again = self.uses >= RECHECK and self.uses.bit_length() % 2 and not self.uses & (self.uses - 1)
        return not again

    def add(self, cut: ResultCut, sources: list[PaddedAxis]) -> bool:
        """Note a check that found no difference; False if it contradicts earlier ones."""
        both = self.cut.both(cut)
        if both is None:
            return False
        self.cut, self.count = both, self.count + 1
        self._sizes.add(_sizes(sources))
        return True


def _sizes(sources: list[PaddedAxis]) -> tuple[int, ...]:
    return tuple(source.size for source in sources)


Axis = tuple[str, int]
"""An argument and its axis."""


def _axes(sources: list[PaddedAxis]) -> tuple[Axis, ...]:
    """The padded axes; a cut counts them in this order, so it holds only for calls with the same ones."""
    return tuple((source.name, source.axis) for source in sources)


class Approvals:
    """The checks of the padded calls of one callable; ``verdict`` says why no call is padded any more."""

    def __init__(self, name: str, tolerance: float) -> None:
        self._name = name
        self._tolerance = tolerance
        self.clear()

    def clear(self) -> None:
        """Forget all checks."""
        self.verdict: Reason | None = None
        self._tries: dict[Any, int] = {}
        self._checked: weakref.WeakKeyDictionary[Recording, dict[tuple[Axis, ...], Checked]]
        self._checked = weakref.WeakKeyDictionary()

    def is_fruitless(self, held: HeldKey) -> bool:
        """Whether too many checks of a padded shape had no result."""
        return self._tries.get(held.entry.key, 0) > TRIES

    def cut_for(self, held: HeldKey, sources: list[PaddedAxis]) -> ResultCut | None:
        """The cut for the results of a padded call that can be replayed; None if it cannot, or not yet."""
        checked = self._found(held, held.call, sources)
        if checked is None or not checked.covers(sources) or not checked.use():
            return None
        return checked.cut

    def _found(self, held: HeldKey, call: Call, sources: list[PaddedAxis]) -> Checked | None:
        """The checks of the recording that would replay a call."""
        recording = held.entry.choice.find(call)
        return self._known(recording, sources) if recording is not None and recording.recorded else None

    def _known(self, recording: Recording, sources: list[PaddedAxis]) -> Checked | None:
        """The checks of a recording with these axes padded."""
        return self._checked.get(recording, {}).get(_axes(sources))

    def check(
        self, held: HeldKey, exact: Call, sources: list[PaddedAxis], caller: FrameType
    ) -> tuple[Any, Reason | None]:
        """Run a call as it is, for its result, and padded, to compare the two.

        Returns:
            The result, and why calls like this one are not padded. The result is PLAINLY if the call has to
            run as it is, once the locks are released.
        """
        site, entry = user_site(caller), held.entry
        observer = Specialization(entry.subject, _bound_like(held.call, exact.given))
        result = observer.run(_bound_like(held.call, exact.given), caller)
        why: Reason | None = None
        if len(self._tries) > MAX_TRIED:
            self._tries.clear()
        tries = self._tries[entry.key] = self._tries.get(entry.key, 0) + 1
        if result.recording is not None:
            why = _against(result, site) or self._compare(held, exact, result, sources, caller)
        elif tries > TRIES and result.reasons:
            why = reason(rules.NOT_PADDED, f"its calls are not steady: {result.reasons[0].message}", site)
        observer.release()
        if why is not None:
            self._refuse(why, entry, sources)
        return result.value, why

    def _refuse(self, why: Reason, entry: Specialization, sources: list[PaddedAxis]) -> None:
        """Pad no more, with a warning if calls were padded before."""
        self.verdict = why
        known = [self._known(recording, sources) for recording in entry.recordings]
        uses = sum(checked.uses for checked in known if checked is not None)
        if uses:
            text = "%s: %d calls were padded before, and may differ: %s"
            _log.warning(text, self._name, uses, why)

    def _compare(
        self, held: HeldKey, exact: Call, result: Answer, sources: list[PaddedAxis], caller: FrameType
    ) -> Reason | None:
        """Run the padded call with every kind of padding; returns why it cannot replace the exact one."""
        assert result.recording is not None and result.recording.root.template is not None
        site, was, template = user_site(caller), result.recording.root, result.recording.root.template

        def padded(variation: int) -> Call:
            # New containers: what the call stores there is lost.
            args, kwargs, *_ = exact.rebuild(list(exact.leaves))
            return _bound_like(held.call, pad(args, kwargs, sources, variation))

        def refused(text: str) -> Reason:
            return reason(rules.NOT_PADDED, f"{sources[0]}: {text}", site)

        checked = self._found(held, padded(0), sources)
        cut: ResultCut | None = None
        last: Answer | None = None
        for variation in range(1 if checked is not None and checked.count >= CHECKS else VARIATIONS):
            try:
                last = held.entry.run(padded(variation), caller)
            except Exception as error:
                return refused(f"{type(error).__name__}: {error}")
            if last.value is PLAINLY:
                return None  # nothing to compare with
            if last.recording is not None:
                why = _against(last, site)
                if why is not None:
                    return why
                now = last.recording.root.operations
                text = None if variation else program_difference(was.operations, now, sources)
                if text is not None:
                    return refused(text)
            try:
                cut = find_cut(template, result.value, last.value, sources)
            except CannotCutError as error:
                return refused(str(error))
            if not cut.fits(sources):
                return refused("the results' axes are ambiguous")
            text = difference(result.value, cut.apply(last.value, sources), self._tolerance)
            if text is not None:
                return reason(rules.PADDING_SHOWS, f"{text} when {sources[0]}", site)
        if last is not None and last.how == REPLAYED and last.recording is not None and cut is not None:
            held.entry.subject.ledger.add_replays(1)
            self._tries.pop(held.entry.key, None)
            checked = self._checked.setdefault(last.recording, {}).setdefault(_axes(sources), Checked(cut))
            if not checked.add(cut, sources):
                return refused("the results' axes follow other axes by turns")
        return None


def _bound_like(call: Call, given: tuple[tuple[Any, ...], dict[str, Any]]) -> Call:
    """Take arguments apart as those of another call, with their names in the same order."""
    args, kwargs = given
    return bind(args, {name: kwargs[name] for name in call.given[1]}, call.openings)


def _against(result: Answer, site: Site) -> Reason | None:
    """Why an observed, recorded or replayed call must not be padded."""
    text = next((text for found, text in _obstacles(result) if found), None)
    return reason(rules.NOT_PADDED, text, site) if text is not None else None


def _obstacles(result: Answer) -> Iterator[tuple[object, str]]:
    """What is against padding, each with whether it is so; asked for one after the other."""
    recording = result.recording
    assert recording is not None
    nodes, template = recording.root.walk(), recording.root.template
    yield recording.acts, "the call acts on other processes"
    yield recording.accesses.written, "the call writes an argument"
    yield recording.accesses.writes, "the call writes a tensor made outside"
    yield len(nodes) > 1 or template is None, "the host reads a value of the call"
    assert template is not None
    leaves = template.leaves
    kinds, owned = {leaf.kind for leaf in leaves}, [leaf.index for leaf in leaves if leaf.kind == OWN]
    yield not recording.root.pure and not recording.islands(), "the call draws random numbers"
    yield any(node.effects_key for node in nodes), "the call leaves gradients behind"
    yield template.targets, "the call keeps something outside, or in an argument"
    yield template.needs_given or FOUND in kinds, "the result contains an argument, or an object of the state"
    yield PASSED in kinds or INPUT_VIEW in kinds, "a result is an argument or a view of one"
    yield len(set(owned)) < len(owned) or VIEW in kinds, "two results share memory"
    values = [leaf for leaf in leaves_of(result.value) if isinstance(leaf, torch.Tensor)]
    grad = any(leaf.spent for leaf in leaves) or any(leaf.requires_grad for leaf in values)
    yield grad, "a result requires grad"
