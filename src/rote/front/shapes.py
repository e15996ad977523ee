"""``shapes="buckets"``: calls of many sizes share the recordings of a few.

An argument is padded up to the next bucket along the axes that the user names, the padded call is replayed,
and the results are cut back to the valid rows. That is only done where it was seen to make no difference:

1. The first calls of a bucket run as they are, observed. A call that writes an argument or a tensor made
   outside, draws random numbers, reads a value on the host, hands out a view of an argument or part of an
   autograd graph, or changes Python state, is never padded.
2. The same call then runs padded, with five kinds of padding. Its operations have to be the same, with the
   same numbers (see :mod:`.likeness`), and the valid rows have to equal the exact results: bit by bit, unless
   ``bucket_tolerance`` allows for rounding, since kernels may add up in another order for another shape.
   Which dimensions of a result follow the padded axis is seen by comparing shapes.
3. After two such calls the *recording* is approved, not the callable: if a guard fails later and another
   recording is made, that one is checked as well. And every size is compared once before it is padded, since
   Python code may do something else for one size than for its neighbours.
4. Some padded calls are compared again: the 16th of a recording, the 64th, and so on.

What this cannot see: a dependence between rows that no kind of padding shows on the values of the checked
calls. A branch taken for single values inside a kernel (``where(x > 1000, x.mean(), x)``) is one. If a later
comparison finds it, a warning is logged, since padded calls before may have been wrong.

Padding costs a copy of the padded arguments and of the results that are cut, on every call.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from ..base.location import Site, user_site
from ..hazards import rules
from ..hazards.rules import Reason, reason
from ..recording.entry import Entry
from ..recording.result import PLAINLY, REPLAYED, Result
from ..recording.template import INPUT_VIEW, OWN, PASSED, VIEW
from ..recording.variant import Variant
from ..signature.key import Call, bind, is_plain
from ..signature.leaves import flatten
from .buckets import Axes, Sizes
from .callables import positions
from .likeness import program_difference
from .padding import VARIATIONS, CannotCutError, Cut, Source, difference, find_cut, pad

if TYPE_CHECKING:
    from .graphed import Graphed

_log = logging.getLogger("rote")

CHECKS = 2
"""Calls of a bucket that are checked before its recording is used."""

RECHECK = 16
"""Padded calls after which one is compared again; then after four times as many, and so on."""

TRIES = 6
"""Checked calls of a bucket that lead nowhere (no steady call, no recording) after which none is padded."""


MAX_TRIED = 1024
"""Keys whose tries are remembered."""


class Checked:
    """What checks of a recording have shown so far.

    Args:
        cut: How its results are cut.
    """

    def __init__(self, cut: Cut) -> None:
        self.cut = cut
        self.count = 0
        self.uses = 0
        self._sizes: set[tuple[int, ...]] = set()

    def covers(self, sources: list[Source]) -> bool:
        """Whether calls of these sizes may be padded."""
        return self.count >= CHECKS and _sizes(sources) in self._sizes and self.cut.fits(sources)

    def use(self) -> bool:
        """Count a padded call; False if it is to be compared instead: the 16th, the 64th, and so on."""
        self.uses += 1
        again = self.uses >= RECHECK and self.uses.bit_length() % 2 and not self.uses & (self.uses - 1)
        return not again

    def add(self, cut: Cut, sources: list[Source]) -> bool:
        """Note a check that found no difference; False if it contradicts earlier ones."""
        both = self.cut.both(cut)
        if both is None:
            return False
        self.cut, self.count = both, self.count + 1
        self._sizes.add(_sizes(sources))
        return True


def _sizes(sources: list[Source]) -> tuple[int, ...]:
    return tuple(source.size for source in sources)


Axis = tuple[str, int]
"""An argument and its axis."""


def _axes(sources: list[Source]) -> tuple[Axis, ...]:
    """What is padded; a cut counts its sources in this order, so it is right for calls of the same only."""
    return tuple((source.name, source.axis) for source in sources)


class ShapePolicy:
    """Pads the calls of one wrapper.

    Args:
        function: The callable.
        buckets: For each argument the axes and their sizes.
        tolerance: See ``bucket_tolerance`` in :class:`rote.Options`.

    Raises:
        OptionError: ``buckets`` names something that is no parameter.
    """

    def __init__(self, function: Any, buckets: Mapping[str, Axes], tolerance: float) -> None:
        self._positions = positions(function, list(buckets))
        self._sizes = {
            name: {axis: Sizes(sizes) for axis, sizes in axes.items()} for name, axes in buckets.items()
        }
        self._tolerance = tolerance
        self.clear()

    def clear(self) -> None:
        """Forget all checks."""
        self._verdict: Reason | None = None
        self._tries: dict[Any, int] = {}
        self._checked: weakref.WeakKeyDictionary[Variant, dict[tuple[Axis, ...], Checked]]
        self._checked = weakref.WeakKeyDictionary()

    # ------------------------------------------------------------------ a call

    def call(self, graphed: Graphed, args: tuple[Any, ...], kwargs: dict[str, Any], caller: FrameType) -> Any:
        """Make a call, padded if that was seen to make no difference. The wrapper's lock is held."""
        sources, why = self._sources(args, kwargs, caller)
        if why is None and sources and self._verdict is not None:
            why = self._verdict
        if why is not None:
            graphed.note(why)
        if why is not None or not sources:
            return graphed.call_exactly(args, kwargs, caller)
        try:
            exact = bind(args, kwargs)
            if exact.foreign is not None or exact.key[2]:  # arguments that share memory may be one object
                return graphed.call_exactly(args, kwargs, caller)
            call = _padded(*pad(args, kwargs, sources))
        except RecursionError:  # a container that contains itself
            return graphed.call_exactly(args, kwargs, caller)
        except RuntimeError as error:  # a type that cannot be joined, or no memory
            text = f"{sources[0]}: {type(error).__name__}: {error}"
            graphed.note(reason(rules.NOT_PADDED, text, user_site(caller)))
            return graphed.call_exactly(args, kwargs, caller)
        if self._tries.get(call.key, 0) > TRIES:
            return graphed.call_exactly(args, kwargs, caller)
        return graphed.call_padded(exact, call, sources, caller)

    def cut_for(self, entry: Entry, call: Call, sources: list[Source]) -> Cut | None:
        """How to cut the results of a padded call that can be replayed; None if it cannot, or not yet."""
        variant = entry.choice.find(call)
        if variant is None or not variant.recorded:
            return None
        checked = self._known(variant, sources)
        if checked is None or not checked.covers(sources) or not checked.use():
            return None
        return checked.cut

    def _known(self, variant: Variant, sources: list[Source]) -> Checked | None:
        """What is known of a recording with these axes padded."""
        return self._checked.get(variant, {}).get(_axes(sources))

    def _sources(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], caller: FrameType
    ) -> tuple[list[Source], Reason | None]:
        """The axes that are smaller than their buckets, and why the call cannot be padded."""
        found: list[Source] = []
        for name, axes in self._sizes.items():
            place = name if name in kwargs else self._positions[name]
            given = kwargs.get(name) if isinstance(place, str) else args[place] if place < len(args) else None
            if not isinstance(given, torch.Tensor):
                continue
            for axis, sizes in axes.items():
                source, why = _source(name, place, axis, given, sizes, caller)
                if why is not None:
                    return [], why
                if source is not None:
                    found.append(source)
        return found, None

    # ------------------------------------------------------------------ checking

    def check(
        self, graphed: Graphed, exact: Call, entry: Entry, sources: list[Source], caller: FrameType
    ) -> Any:
        """Run a call as it is, for its result, and padded, to see whether that makes a difference.

        Args:
            graphed: The wrapper.
            exact: The call.
            entry: The key of the padded call.
            sources: What is padded.
            caller: The caller's frame.

        Returns:
            The result; PLAINLY if the call has to run as it is, once the locks are given back.
        """
        site = user_site(caller)
        observer = graphed.new_entry(exact)
        result = observer.run(exact, caller)
        why: Reason | None = None
        if len(self._tries) > MAX_TRIED:
            self._tries.clear()
        tries = self._tries[entry.key] = self._tries.get(entry.key, 0) + 1
        if result.variant is not None:
            why = _against(result, site) or self._compare(exact, result, entry, sources, caller)
        elif tries > TRIES and result.reasons:
            why = reason(rules.NOT_PADDED, f"its calls are not steady: {result.reasons[0].message}", site)
        observer.release()
        if why is not None:
            self._refuse(graphed, why, entry, sources)
        text = f"{sources[0]}: the call ran as it is, to be compared with the padded one"
        graphed.note(why or reason(rules.BUCKET_CHECKED, text, site))
        return result.value

    def _refuse(self, graphed: Graphed, why: Reason, entry: Entry, sources: list[Source]) -> None:
        """Pad no more; say so if calls were padded before."""
        self._verdict = why
        known = [self._known(variant, sources) for variant in entry.variants]
        uses = sum(checked.uses for checked in known if checked is not None)
        if uses:
            text = "%s: %d calls were padded before, and may differ: %s"
            _log.warning(text, repr(graphed), uses, why)  # a log must not keep the wrapper alive

    def _compare(
        self, exact: Call, result: Result, entry: Entry, sources: list[Source], caller: FrameType
    ) -> Reason | None:
        """Run the padded call with every kind of padding; why it must not take the exact one's place."""
        assert result.variant is not None and result.variant.root.template is not None
        site, template = user_site(caller), result.variant.root.template
        args, kwargs = exact.given
        known = entry.choice.find(_padded(*pad(args, kwargs, sources)))
        checked = self._known(known, sources) if known is not None and known.recorded else None
        cut: Cut | None = None
        last: Result | None = None
        for variation in range(1 if checked is not None and checked.count >= CHECKS else VARIATIONS):
            try:
                last = entry.run(_padded(*pad(args, kwargs, sources, variation)), caller)
            except Exception as error:
                return reason(rules.NOT_PADDED, f"{sources[0]}: {type(error).__name__}: {error}", site)
            if last.value is PLAINLY:
                return None  # nothing to compare with
            why = _against(last, site) if last.variant is not None else None
            if why is not None:
                return why
            if last.variant is not None and not variation:
                text = program_difference(result.variant.root.events, last.variant.root.events, sources)
                if text is not None:
                    return reason(rules.NOT_PADDED, f"{sources[0]}: {text}", site)
            try:
                cut = find_cut(template, result.value, last.value, sources)
            except CannotCutError as error:
                return reason(rules.NOT_PADDED, f"{sources[0]}: {error}", site)
            if cut.fits(sources):
                text = difference(result.value, cut.apply(last.value, sources), self._tolerance)
                if text is not None:
                    return reason(rules.PADDING_SHOWS, f"{text} when {sources[0]}", site)
            else:
                return reason(rules.NOT_PADDED, f"{sources[0]}: the results' axes are ambiguous", site)
        if last is not None and last.how == REPLAYED and last.variant is not None and cut is not None:
            self._tries.pop(entry.key, None)
            checked = self._checked.setdefault(last.variant, {}).setdefault(_axes(sources), Checked(cut))
            if not checked.add(cut, sources):
                text = f"{sources[0]}: the results' axes follow other axes by turns"
                return reason(rules.NOT_PADDED, text, site)
        return None


def _against(result: Result, site: Site) -> Reason | None:
    """What speaks against padding a call that was observed, recorded or replayed."""
    variant = result.variant
    assert variant is not None
    nodes = variant.root.walk()
    template = variant.root.template
    kinds = {leaf.kind for leaf in template.leaves} if template is not None else set[str]()
    owned = [leaf.index for leaf in template.leaves if leaf.kind == OWN] if template is not None else []
    text: str | None = None
    if variant.written:
        text = "the call writes an argument"
    elif variant.writes:
        text = "the call writes a tensor made outside"
    elif len(nodes) > 1 or template is None:
        text = "the host reads a value of the call"
    elif not variant.root.pure and not variant.islands():
        text = "the call draws random numbers"
    elif any(node.effects_key for node in nodes):
        text = "the call leaves gradients behind"
    elif PASSED in kinds or INPUT_VIEW in kinds:
        text = "a result is an argument or a view of one"
    elif len(set(owned)) < len(owned) or VIEW in kinds:
        text = "two results share memory"
    elif any(leaf.spent for leaf in template.leaves) or _requires_grad(result.value):
        text = "a result requires grad"
    return reason(rules.NOT_PADDED, text, site) if text is not None else None


def _requires_grad(value: Any) -> bool:
    leaves: list[Any] = []
    flatten(value, leaves)
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)


def _source(
    name: str, place: int | str, axis: int, tensor: torch.Tensor, sizes: Sizes, caller: FrameType
) -> tuple[Source | None, Reason | None]:
    if axis >= tensor.dim():
        text = f"{name} has {tensor.dim()} dimensions, so there is no axis {axis}"
        return None, reason(rules.NOT_PADDED, text, user_site(caller))
    size = tensor.shape[axis]
    bucket = sizes.bucket(size)
    if bucket is None:
        text = f"axis {axis} of {name} is {size}, the largest bucket is {sizes.largest}"
        return None, reason(rules.NO_BUCKET, text, user_site(caller))
    if bucket == size:
        return None, None
    why: str | None = None
    if not is_plain(tensor) or tensor.requires_grad or type(tensor) is not torch.Tensor:
        why = f"{name} requires grad or is no plain tensor"
    elif not tensor.is_contiguous() or not tensor.numel():
        why = f"{name} is empty or not contiguous"
    if why is not None:
        return None, reason(rules.NOT_PADDED, why, user_site(caller))
    return Source(name, place, axis, size, bucket), None


def _padded(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """Take padded arguments apart, which nobody but the callable sees."""
    return bind(args, kwargs)._replace(padded=True)
