"""``rote.padded``."""

from __future__ import annotations

import inspect
import json
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Any, Unpack, overload

import torch
from torch.compiler import is_dynamo_compiling

from ..api import (
    Graphed,
    GraphedMethod,
    OptionKeywords,
    ReasonCounts,
    ReasonReport,
    Report,
    call_traced,
    dress,
    explain_reasons,
    graph,
    method_in_trace,
    place_of,
    shows_options,
)
from ..base import MisuseError, OptionError, user_site
from ..hazards import Findings, rules
from ..hazards.rules import Reason, reason
from ..runtime.arguments import NOT_MINE, bind, has_gradient, is_plain
from ..runtime.program import PLAINLY
from .approvals import Approvals
from .rows import PaddedAxis, pad

POWERS, LEARN = "powers", "learn"

MAX_LEARNT = 8
"""The most learnt sizes of one axis."""

OFTEN = 3
"""Calls with a size after which it is learnt."""

Axes = Mapping[str, Mapping[int, Sequence[int] | str]]
"""For each argument the axes, and for each axis the ascending sizes, ``"powers"`` or ``"learn"``."""


class AxisSizes:
    """The sizes to which one axis is padded.

    With ``"learn"``, a size that comes ``OFTEN`` times is learnt (``MAX_LEARNT`` at most). Others are padded
    to the next learnt size, or to the next power of two if it is smaller, so their number stays bounded.
    """

    def __init__(self, given: Sequence[int] | str) -> None:
        self._given = given if isinstance(given, str) else tuple(given)
        self._seen: Counter[int] = Counter()
        self._learnt: set[int] = set()

    @property
    def largest(self) -> int | None:
        """The largest one, if there is one."""
        return None if isinstance(self._given, str) else self._given[-1]

    def size_for(self, size: int) -> int | None:
        """The size to which a size is padded, or None if it is larger than all."""
        if not isinstance(self._given, str):
            return next((found for found in self._given if found >= size), None)
        power = 1 << max(size - 1, 0).bit_length()
        if self._given == POWERS:
            return power
        self._learn(size)
        return min((found for found in self._learnt if size <= found <= power), default=power)

    def _learn(self, size: int) -> None:
        if size in self._learnt or len(self._learnt) >= MAX_LEARNT:
            return
        self._seen[size] += 1
        if self._seen[size] >= OFTEN:
            self._learnt.add(size)
        elif len(self._seen) > 1024:  # sizes that came once are not kept for ever
            self._seen.clear()


def check_axes(axes: Any) -> None:
    """Raise an OptionError if ``axes`` is no dict of dicts, or has an impossible size."""
    if not isinstance(axes, Mapping) or not axes:
        raise OptionError(f"axes={axes!r} must be a dict of argument names, as in {{'x': {{0: [1, 2, 4]}}}}")
    for name, sizes_of in axes.items():
        if not isinstance(name, str) or not isinstance(sizes_of, Mapping) or not sizes_of:
            raise OptionError(f"axes[{name!r}]={sizes_of!r} must be a dict of axes, as in {{0: [1, 2, 4]}}")
        for axis, sizes in sizes_of.items():
            _check_axis(f"axes[{name!r}][{axis!r}]", axis, sizes)


def _check_axis(where: str, axis: Any, sizes: Any) -> None:
    if type(axis) is not int or axis < 0:
        raise OptionError(f"{where}: an axis must be a whole number of at least 0")
    if isinstance(sizes, str):
        if sizes not in (POWERS, LEARN):
            raise OptionError(f"{where}={sizes!r} must be a list of sizes, {POWERS!r} or {LEARN!r}")
        return
    numbers: list[Any] = list(sizes) if isinstance(sizes, Sequence) else []
    if not numbers or any(type(size) is not int or size < 1 for size in numbers):
        raise OptionError(f"{where}={sizes!r} must be a list of whole numbers of at least 1")
    if numbers != sorted(set(numbers)):
        raise OptionError(f"{where}={sizes!r} must ascend")


@dataclass(frozen=True)
class PaddedReport:
    """The whole report.

    Attributes:
        name: The callable.
        calls: All calls.
        padded: Calls that were padded, and their results cut.
        checked: Calls that ran as they are, and padded as well, to compare the two.
        exact: Calls that only ran as they are: they needed no padding, or the reasons say why not.
        reasons: Why calls were not padded, most frequent first.
        graphed: The report of the graphed callable, which makes the padded and the exact calls.
    """

    name: str
    calls: int
    padded: int
    checked: int
    exact: int
    reasons: tuple[ReasonReport, ...]
    graphed: Report

    def findings(self) -> Findings:
        """The obstacles to padding, and to replays wholly from graphs."""
        return Findings(
            [*(reason.finding() for reason in self.reasons), *self.graphed.findings()], target=self.name
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists and values."""
        return asdict(self)

    def to_json(self, *, indent: int | None = 2) -> str:
        """The report as JSON."""
        return json.dumps(self.to_dict(), indent=indent)

    def __str__(self) -> str:
        counts = f"{self.calls} calls, {self.padded} padded, {self.checked} checked, {self.exact} as they are"
        return "\n".join([f"{self.name}, padded: {counts}", *explain_reasons(self.reasons)])


NEVER = 1 << 30
"""Position of a parameter that is only given by keyword."""

Wrapper = Graphed | GraphedMethod


class PaddedCalls:
    """Pads the calls of one graphed callable."""

    def __init__(self, name: str, positions: Mapping[str, int], axes: Axes, tolerance: float) -> None:
        self._name = name
        self._positions = positions
        self._sizes = {
            argument: {axis: AxisSizes(sizes) for axis, sizes in each.items()}
            for argument, each in axes.items()
        }
        self._approvals = Approvals(name, tolerance)
        self._tally = ReasonCounts()
        self._lock = threading.Lock()  # for counts and sizes: no code of the user runs meanwhile
        self._calls = self._padded = self._checked = 0

    def call(self, graphed: Wrapper, args: tuple[Any, ...], kwargs: dict[str, Any], caller: FrameType) -> Any:
        """Make a call, padded if checks have found no difference.

        Returns:
            The result. NOT_MINE if the graphed callable has to be called, PLAINLY if the callable itself.
        """
        if graphed.stands_aside():
            return NOT_MINE
        with self._lock:
            self._calls += 1
            sources = self._sources(args, kwargs, caller)
        if isinstance(sources, Reason):
            return self._leave(sources)
        if not sources:
            return NOT_MINE
        if self._approvals.verdict is not None:
            return self._leave(self._approvals.verdict)
        try:
            exact = bind(args, kwargs)
        except RecursionError:  # a container that contains itself
            return NOT_MINE
        if exact.foreign is not None or exact.key[2]:  # arguments that share memory may be one object
            return NOT_MINE
        try:
            longer = pad(args, kwargs, sources)
        except RuntimeError as error:  # a type that cannot be joined, or no memory
            text = f"{sources[0]}: {type(error).__name__}: {error}"
            return self._leave(reason(rules.NOT_PADDED, text, user_site(caller)))
        with graphed.hold(*longer, caller) as held:
            if held is None or self._approvals.is_fruitless(held):
                return NOT_MINE
            cut = self._approvals.cut_for(held, sources)
            if cut is not None:
                value = held.answer()
                with self._lock:
                    self._padded += 1
                return value if value is PLAINLY else cut.apply(value, sources)
            value, why = self._approvals.check(held, exact, sources, caller)
        text = f"{sources[0]}: the call ran as it is, to be compared with the padded one"
        self._leave(why or reason(rules.PADDING_CHECKED, text, user_site(caller)))
        with self._lock:
            self._checked += 1
        return value

    def _leave(self, why: Reason) -> Any:
        """Note why a call is not padded."""
        with self._lock:
            self._tally.add([why])
        return NOT_MINE

    def _sources(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], caller: FrameType
    ) -> list[PaddedAxis] | Reason:
        """The axes to pad, or why the call cannot be padded."""
        found: list[PaddedAxis] = []
        for name, axes in self._sizes.items():
            place = name if name in kwargs else self._positions[name]
            given = kwargs.get(name) if isinstance(place, str) else args[place] if place < len(args) else None
            if not isinstance(given, torch.Tensor):
                continue
            for axis, sizes in axes.items():
                source = _source(name, place, axis, given, sizes, caller)
                if isinstance(source, Reason):
                    return source
                if source is not None:
                    found.append(source)
        return found

    def report(self, graphed: Wrapper) -> PaddedReport:
        """All that happened so far."""
        with self._lock:
            calls, padded, checked = self._calls, self._padded, self._checked
            reasons = self._tally.reports()
        exact = calls - padded - checked
        return PaddedReport(self._name, calls, padded, checked, exact, reasons, graphed.report())

    def clear(self) -> None:
        """Forget all observations but the learnt sizes."""
        with self._lock:
            self._approvals.clear()
            self._tally.clear()
            self._calls = self._padded = self._checked = 0


def _source(
    name: str, place: int | str, axis: int, tensor: torch.Tensor, sizes: AxisSizes, caller: FrameType
) -> PaddedAxis | Reason | None:
    """The axis to pad, if its size is not right; or why it cannot be padded."""
    if axis >= tensor.dim():
        text = f"{name} has {tensor.dim()} dimensions, so there is no axis {axis}"
        return reason(rules.NOT_PADDED, text, user_site(caller))
    size = tensor.shape[axis]
    wanted = sizes.size_for(size)
    if wanted is None:
        text = f"axis {axis} of {name} is {size}, the largest size is {sizes.largest}"
        return reason(rules.TOO_LARGE_TO_PAD, text, user_site(caller))
    if wanted == size:
        return None
    if not is_plain(tensor) or tensor.requires_grad or type(tensor) is not torch.Tensor:
        text = f"{name} requires grad or is no plain tensor"
    elif has_gradient(tensor):
        text = f"{name} has a gradient"
    elif not tensor.is_contiguous() or not tensor.numel():
        text = f"{name} is empty or not contiguous"
    else:
        return PaddedAxis(name, place, axis, size, wanted)
    return reason(rules.NOT_PADDED, text, user_site(caller))


class Padded:
    """A graphed callable whose calls of many sizes share the recordings of a few; made by :func:`padded`.

    Attributes that it does not have itself are those of the graphed callable. It is never a module, even if
    it wraps one.
    """

    def __init__(
        self,
        graphed: Wrapper,
        positions: Mapping[str, int],
        axes: Axes,
        tolerance: float,
        calls: PaddedCalls | None = None,
    ) -> None:
        self._graphed = graphed
        self._plain, self._enabled = graphed.traced
        self._settings = positions, axes, tolerance
        self._calls = calls or PaddedCalls(graphed.report().name, positions, axes, tolerance)
        self._bound: weakref.WeakKeyDictionary[Graphed, PaddedCalls] = weakref.WeakKeyDictionary()
        dress(self, graphed.__wrapped__)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the callable, padded if checks have found no difference.

        Raises:
            Exception: What the graphed callable raises.
        """
        if is_dynamo_compiling():
            return self.call_in_trace(args, kwargs)
        value = self._calls.call(self._graphed, args, kwargs, sys._getframe(1))
        if value is NOT_MINE:
            return self._graphed(*args, **kwargs)
        return self._graphed.call_plainly(args, kwargs) if value is PLAINLY else value

    def call_in_trace(self, args: tuple[Any, ...], kwargs: dict[str, Any], instance: Any = None) -> Any:
        """Call the callable in a function that Dynamo traces; ``instance`` is that of a graphed method."""
        return call_traced(self, self._plain, args, kwargs, instance, encloses=self._enabled)

    def report(self) -> PaddedReport:
        """How many calls were padded, why others were not, and the report of the graphed callable."""
        return self._calls.report(self._graphed)

    def explain(self) -> str:
        """The same as text, with what to do."""
        return f"{self.report()}\n{self._graphed.explain()}"

    def findings(self) -> Any:
        """The obstacles to padding and to replays, in the form of :func:`..check`."""
        return self.report().findings()

    def reset(self) -> None:
        """Free all recordings and forget all observations."""
        self._graphed.reset()
        for calls in (self._calls, *self._bound.values()):
            calls.clear()

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As a method, it gives each instance a graphed callable and checks of its own."""
        if instance is None or not isinstance(self._graphed, Graphed):
            return self
        if is_dynamo_compiling():
            return method_in_trace(self, instance)
        method = self._graphed.__get__(instance, owner)
        positions, axes, tolerance = self._settings
        bound = {name: place - 1 for name, place in positions.items()}
        calls = self._bound.get(method.graphed)
        made = Padded(method, bound, axes, tolerance, calls)
        if calls is None:
            self._bound[method.graphed] = made._calls
        return made

    def __getattr__(self, name: str) -> Any:
        graphed = self.__dict__.get("_graphed")
        if graphed is None:
            raise AttributeError(name)
        return getattr(graphed, name)

    def __repr__(self) -> str:
        return f"<rote.padded of {self._graphed!r}>"

    def __reduce__(self) -> Any:
        """Copy and pickle the callable, padded in the same way."""
        name, found = place_of(self._graphed.__wrapped__)
        return name if found is self else (Padded, (self._graphed, *self._settings))


@overload
def padded(
    function: Callable[..., Any], /, *, axes: Axes, tolerance: float = 0.0, **options: Unpack[OptionKeywords]
) -> Padded: ...
@overload
def padded(
    *, axes: Axes, tolerance: float = 0.0, **options: Unpack[OptionKeywords]
) -> Callable[[Callable[..., Any]], Padded]: ...
@shows_options
def padded(
    function: Callable[..., Any] | None = None,
    /,
    *,
    axes: Axes,
    tolerance: float = 0.0,
    **options: Unpack[OptionKeywords],
) -> Any:
    """Let calls of many sizes share the recordings of a few.

    Arguments are padded with copies of their last row up to the next size, the padded call is replayed, and
    the results are cut. This happens only where the first calls, run both ways, give equal valid rows; other
    calls run as they are. See :mod:`.approvals`. The report says how many calls were padded, and why others
    were not.

    It works on whatever :func:`..graph` works on, on its results, and as a decorator.

    Args:
        function: The callable to graph, or a graphed one, which keeps its options.
        axes: For each argument, by the name of its parameter, the axes to pad and their sizes:
            ``{"x": {0: [1, 2, 4, 8]}}``. Instead of a list, ``"powers"`` takes powers of two and ``"learn"``
            also the most frequent sizes, 8 at most. Calls larger than the last size run as they are.
        tolerance: Largest difference of a padded call's valid rows that counts as equal, as a part of the
            largest value of that result. With 0 they have to be equal bit by bit, which kernels that add up
            in another order for another shape (matrix products, often) are not.
        **options: See :class:`..Options`.

    Returns:
        A callable with the same arguments, and ``report()``, ``explain()`` and ``reset()``.

    Raises:
        OptionError: ``axes`` names no parameter or an impossible size, or an option is unknown or impossible.
        MisuseError: ``function`` is not callable, or padded already.
    """
    check_axes(axes)
    if type(tolerance) not in (int, float) or not 0 <= tolerance < 1:
        raise OptionError(f"tolerance={tolerance!r} must be at least 0 and less than 1")
    if function is None:
        graph(**options)  # raises now if an option is wrong
        return lambda wrapped: padded(wrapped, axes=axes, tolerance=tolerance, **options)
    if isinstance(function, Padded):
        raise MisuseError("this callable is padded already; pass the plain or the graphed one to rote.padded")
    if isinstance(function, (Graphed, GraphedMethod)):
        if options:
            raise OptionError(f"this callable is graphed already; give {', '.join(options)} to rote.graph")
        graphed = function
    else:
        graphed = graph(function, **options)
    return Padded(graphed, _positions(graphed.__wrapped__, list(axes)), axes, tolerance)


def _positions(function: Any, names: list[str]) -> dict[str, int]:
    """The position of each named parameter, or ``NEVER``; an OptionError if a name is no parameter."""
    target: Any = function.forward if isinstance(function, torch.nn.Module) else function
    method = getattr(target, "__func__", None)
    try:
        parameters = list(inspect.signature(method or target).parameters.values())[method is not None :]
    except (TypeError, ValueError):
        parameters = []
    ordered = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = [each.name for each in parameters if each.kind in ordered]
    known = {each.name for each in parameters if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)}
    anything = any(each.kind is each.VAR_KEYWORD for each in parameters)
    for name in names:
        if name not in known and not anything:
            raise OptionError(f"axes names {name!r}, which is no parameter; those are {sorted(known)}")
    return {name: positional.index(name) if name in positional else NEVER for name in names}
