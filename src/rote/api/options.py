"""The options of :func:`..graph`, one frozen object."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict, TypeVar

from torch._ops import OpOverload, OpOverloadPacket

from ..base import OptionError
from ..runtime.engine import Limits
from ..runtime.memory import Account, parse_size
from ..runtime.recording import Numerics
from ..runtime.replay import range_of
from ..runtime.verify import Verifier

_BACKENDS = ("auto", "cuda", "host")
_RANGES = ("off", "profiler", "nvtx")
_NUMERICS = ("exact", "probed", "near", "plain")
_COUNTS = {
    "warmup": 1, "max_recordings": 1, "max_paths": 1, "max_keys": 1, "verify": 0, "min_segment_size": 0,
}  # fmt: skip

_SWITCHES = (
    "strict", "strict_output", "keep", "forward", "backward", "parts", "capture_collectives", "enabled",
)  # fmt: skip

_APART = frozenset({
    "enabled", "keep", "max_keys", "parts", "plans", "ranges", "strict", "strict_output", "verify",
    "verify_tolerance", "warmup",
})  # fmt: skip
"""Options that what calls come to does not depend on."""

REMOVED: Mapping[str, str] = {
    "outputs": "results are copies, and there is no other way; leave the option out",
    "chain": "no recording lends its results to another one any more; leave the option out",
    **dict.fromkeys(("shapes", "buckets", "bucket_tolerance"), "use rote.padded(function, axes={...})"),
}
"""Former options, and what to do instead."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


class OptionKeywords(TypedDict, total=False):
    """The fields of :class:`Options`, as the type of ``**options: Unpack[OptionKeywords]``.

    Editors complete them and type checkers check them as they do parameters. Plain parameters would repeat
    the defaults of :class:`Options` in four signatures, and Python would answer an unknown name with a
    TypeError before rote can say what became of it.
    """

    strict: bool
    strict_output: bool
    warmup: int
    max_recordings: int
    max_paths: int
    max_keys: int
    backend: Literal["auto", "cuda", "host"]
    budget: int | str | None
    verify: int
    verify_tolerance: float
    keep: bool
    forward: bool
    backward: bool
    parts: bool
    capture_sizes: Sequence[int | tuple[int, ...]] | None
    min_segment_size: int
    capture_collectives: bool
    numerics: Literal["exact", "probed", "near", "plain"]
    split_ops: Sequence[str | OpOverload[..., Any] | OpOverloadPacket[..., Any]]
    plans: str | os.PathLike[str] | None
    ranges: Literal["off", "profiler", "nvtx"]
    enabled: bool


def shows_options(function: _Function) -> _Function:
    """Put the options and their defaults in place of ``**options``, for ``help`` and interactive shells."""
    signature = inspect.signature(function)
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    options = [
        inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type
        )
        for each in fields(Options)
    ]
    vars(function)["__signature__"] = signature.replace(parameters=[*own, *options])
    return function


def _name_of_overload(op: OpOverload[..., Any] | OpOverloadPacket[..., Any]) -> str:
    """The name of one overload, or that of all."""
    return f"{op._schema.name}.{op._overloadname}" if isinstance(op, OpOverload) else op._qualified_op_name


@dataclass(frozen=True)
class Options:
    """How a callable is graphed.

    Attributes:
        strict: Raise :class:`~..NotReplayedError` for every call after the warm-up that would not be
            replayed wholly from graphs. The warm-up of a key is its first ``warmup + 2`` calls (one for
            lazy initialisation, ``warmup`` observed, one recorded); once one key is through, unseen keys
            raise too.
        strict_output: In strict mode, also refuse calls that write output (``print``, ``logging``,
            ``warnings``, progress bars), which a replay does not repeat.
        warmup: Calls that must agree before one is recorded. The recorded call is compared with them too, so
            with 1 a recording is kept when two calls in a row agree, or a first one does what calls do that
            differ in whole numbers and sizes alone.
        max_recordings: Recordings alive at once for one key (the oldest is dropped for a new one), and how
            many may be replaced before the key runs eagerly.
        max_paths: Ways (combinations of values read by the host) that one recording may have. After 8 new
            ones
            in a row, or half of ``max_paths`` if that is more, the key runs eagerly for a while; after all of
            them for long.
        max_keys: Distinct signatures that are remembered; the least recently used is dropped. After 64 in a
            row without a replay, a new one is traced from its second call on, later from its fourth, and so
            on.
        backend: ``"auto"`` takes CUDA when an argument or a reachable tensor is there, else the host.
        budget: Bytes (or ``"2GiB"``, ``"500 MB"``) that the recordings of this wrapper may hold on each
            device, static inputs included; None for the limit of :func:`..set_budget` alone. A recording that
            exceeds it evicts others: first those that save the fewest operations for each byte, where recent
            replays count more. An evicted one is recorded again when it is needed. A recording that alone
            exceeds the budget runs eagerly. A wrapper with a budget shares no memory with others.
        verify: Check the first replay of each recording, and every ``verify``-th one: run the plain callable
            as well, from the same state and with the same random numbers, and compare everything a user can
            see. A difference raises :class:`~..VerificationError`. 0 checks nothing. A check costs one plain
            call, four copies of all that the call changes (and of the arguments), memory for two of them, and
            a wait for the device. It sees values, shapes, shared memory, gradients, random state and Python
            state under guard. It does not see effects elsewhere (queues, files), backward passes started
            later, or calls that were not checked.
        verify_tolerance: Relative and absolute difference that floating-point values may have in such a
            check. 0 compares bits (NaN equals NaN). Kernels with atomic additions on CUDA need it, or
            ``torch.use_deterministic_algorithms(True)``.
        keep: Keep a recording even if it is slower than plain calls. With False it is measured: after 64,
            512, 4,096... replays a few calls are timed, for which two to ten run plainly. A recording that
            loses twice in a row, by more than 5 % and 2 us, is dropped, and its key runs plainly until
            ``reset()``; the report has both times. Nothing waits for the device. If the program calls
            ``backward`` on the results, the walk back counts as part of the call. Recordings in strict mode
            or with ``verify`` are not measured; see :mod:`..runtime.recording.contest`. With True, keys and
            values that never come again are traced all the same, up to ``max_paths``.
        forward: False, under ``torch.compile`` only, runs compiled forwards plainly and records backwards. A
            callable that ``rote.graph`` is given has no backward of its own: it is walked over the memory of
            a recorded call.
        backward: False records calls only; ``backward()`` through their results runs as plain autograd.
        parts: Where calls are not replayed, modules that the callable calls are graphed by themselves, the
            largest first, in calls without gradients, and with them what ``DistributedDataParallel`` wraps;
            ``report().parts`` says which. The objects stay as they are. A part is dropped if its replays are
            slower than its plain calls, and all that tracing takes stays within the bound for the callable.
            Not in strict mode, with ``verify``, with ``capture_sizes`` or under
            ``torch.compile(backend="rote")``. False leaves them alone.
        capture_sizes: Sizes that are recorded; calls of others run plainly, at once. A number is the length
            of the first axis of the first tensor among the arguments that is no parameter, a tuple those of
            its first axes: ``(1, 2, (4, 128))``. Where ``torch.compile`` compiles for sizes that change, they
            are what changes, in its order. None records all sizes.
        min_segment_size: Operations that a segment must have, views not counted; those of shorter ones are
            launched one by one. What Inductor has compiled is always long enough. A call all of whose
            segments are too short is not recorded.
        capture_collectives: Collectives over NCCL that give no handle (``async_op=False``) are captured with
            what is around them, instead of running between two graphs, which takes their time off the host.
            Ranks need not agree on it, and each may replay or run plainly, where ``NCCL_GRAPH_REGISTER=0`` is
            set for all of them before the first process group is made. Otherwise the first such call raises
            :class:`~..EnvironmentError_`. Recordings with captured collectives stay as they were captured,
            whatever ``numerics`` says. If nothing comes from another rank for the time limit of a group, the
            process ends with a text that names rank, line and collective. On the host it changes nothing.
        numerics: ``"exact"`` leaves operations out that give nothing new, so that every bit is eager's: what
            nobody reads, what an operation has given before (as loops do), what depends on numbers alone.
            The recording is captured anew for that, in its 128th replay, which takes about as long as the
            call that was recorded, and the faster way is kept. The report says how many operations each rule
            has removed, or why none. Then pointwise operations are calculated by compiled kernels, several at
            once: only those that are proved to give PyTorch's bits on the device (of a NaN, that it is one).
            So are attention and products of few rows on Hopper, in the order of cuDNN and cuBLAS.
            Compilers run in other processes; see ``ROTE_COMPILE_WORKERS`` and
            :meth:`.Graphed.wait_until_optimized`. ``"plain"`` replays what was captured.
            ``"probed"`` goes on where ``"exact"`` ends: it also uses what nothing proves, if it gives
            PyTorch's bits on the values of a recorded call in each place, and on hostile values (all
            exponents, infinities, NaN, denormals, zeros with signs): kernels of functions that cannot be
            tried whole, and alternatives of operators (:func:`.register_alternative`).
            ``"near"`` may change bits: operators that have an alternative (attention of few queries) are
            calculated in that way where it comes as near to the exact result, calculated in 64 bits, as the
            operator itself. The report lists each with both errors. Of several alternatives the fastest is
            chosen, by replays; with ``keep`` nothing is timed, and the first is taken.
        split_ops: Operators that run between two segments, by name or as they are: ``("mylib::op",
            "mylib::op.overload", torch.ops.mylib.op)``. Operators with the tag
            ``torch.Tag.cudagraph_unsafe`` do so anyway. Names are those of the dispatcher below autograd:
            ``"aten::addmm"``, not ``"aten::linear"``. Views are never split around. What Inductor has
            compiled together with such an operator runs between two segments as a whole; of code that is
            compiled by another backend than rote's, the name is looked for in its source.
        plans: A directory in which what calls come to is kept for later processes: which numbers change, why
            calls are not replayed, whether the exact tier has won, and its compiled kernels. Recordings are
            made from what each process observes itself, so a false plan costs time and no result. It is made
            if it is missing. None for that of ``ROTE_PLANS``, or for none.
        ranges: Replays stand under the name ``rote: NAME`` in the timelines of other tools: ``"profiler"`` in
            those of ``torch.profiler``, ``"nvtx"`` in Nsight Systems. A range takes the host a few
            microseconds for each replay; ``"off"`` costs nothing.
        enabled: False makes the wrapper a plain call.
    """

    strict: bool = False
    strict_output: bool = False
    warmup: int = 1
    max_recordings: int = 32
    max_paths: int = 16
    max_keys: int = 256
    backend: Literal["auto", "cuda", "host"] = "auto"
    budget: int | str | None = None
    verify: int = 0
    verify_tolerance: float = 0.0
    keep: bool = False
    forward: bool = True
    backward: bool = True
    parts: bool = True
    capture_sizes: Sequence[int | tuple[int, ...]] | None = None
    min_segment_size: int = 0
    capture_collectives: bool = False
    numerics: Literal["exact", "probed", "near", "plain"] = "exact"
    split_ops: Sequence[str | OpOverload[..., Any] | OpOverloadPacket[..., Any]] = ()
    plans: str | os.PathLike[str] | None = None
    ranges: Literal["off", "profiler", "nvtx"] = "off"
    enabled: bool = True

    def __post_init__(self) -> None:
        if self.backend not in _BACKENDS:
            raise OptionError(f"backend={self.backend!r} is not one of {', '.join(map(repr, _BACKENDS))}")
        if self.numerics not in _NUMERICS:
            raise OptionError(f"numerics={self.numerics!r} is not one of {', '.join(map(repr, _NUMERICS))}")
        if self.ranges not in _RANGES:
            raise OptionError(f"ranges={self.ranges!r} is not one of {', '.join(map(repr, _RANGES))}")
        for name, least in _COUNTS.items():
            value: Any = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise OptionError(f"{name}={value!r} must be a whole number of at least {least}")
        parse_size(self.budget, "budget")
        plans: Any = self.plans
        if plans is not None and (not isinstance(plans, (str, os.PathLike)) or not str(plans)):
            raise OptionError(f"plans={self.plans!r} must be the path of a directory, or None")
        self._check_operators()
        self._check_sizes()
        tolerance: Any = self.verify_tolerance
        if type(tolerance) not in (int, float) or not 0 <= tolerance < math.inf:
            raise OptionError(f"verify_tolerance={tolerance!r} must be a finite number of at least 0")
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name}={getattr(self, name)!r} must be True or False")
        if not (self.forward or self.backward):
            raise OptionError("forward=False and backward=False leave nothing to record; use enabled=False")

    def _check_operators(self) -> None:
        given: Any = self.split_ops
        kinds = (OpOverload, OpOverloadPacket)
        if isinstance(given, str) or not all(
            isinstance(each, kinds) or (isinstance(each, str) and "::" in each) for each in given
        ):
            raise OptionError(f'split_ops={given!r} must hold names of operators, as ("mylib::op",)')

    def _check_sizes(self) -> None:
        given: Any = self.capture_sizes
        if given is None:
            return
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise OptionError(f"capture_sizes={given!r} must hold sizes, as (1, 2, (4, 128)), or be None")
        every: list[Any] = [*given]
        numbers = [part for each in every for part in (each if isinstance(each, tuple) else (each,))]
        if not all(type(number) is int and number >= 0 for number in numbers) or () in every:
            raise OptionError(f"capture_sizes={given!r} must hold sizes, as (1, 2, (4, 128)), or be None")

    def operators(self) -> frozenset[str]:
        """The names of the operators in ``split_ops``."""
        return frozenset(
            each if isinstance(each, str) else _name_of_overload(each) for each in self.split_ops
        )

    def verifiers(self) -> tuple[Verifier, Verifier] | tuple[None, None]:
        """Verifiers for calls and for backward passes through them; none where nothing is verified."""
        if not self.verify:
            return None, None
        every, tolerance = self.verify, self.verify_tolerance
        return Verifier(every, tolerance), Verifier(every, tolerance)

    def changed(self) -> dict[str, str]:
        """The options that what calls come to depends on, where they are not as they are by default."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {
            name: repr(value)
            for name, (value, default) in values.items()
            if value != default and name not in _APART
        }

    def limits(self, account: Account, *, strict: bool) -> Limits:
        """The limits of a wrapper's keys; ``strict`` may come from the environment alone.

        Raises:
            EnvironmentError_: The build of PyTorch has no ranges of this kind.
        """
        range_of(self.ranges, "")
        return Limits(
            warmup=self.warmup,
            max_recordings=self.max_recordings,
            max_paths=self.max_paths,
            account=account,
            guess=not strict,
            keep=self.keep or strict or bool(self.verify),
            min_segment=self.min_segment_size,
            split=self.operators(),
            numerics=Numerics[self.numerics.upper()],
            silent=self.strict_output,
            numbers=not self.verify,
            collectives=self.capture_collectives,
            ranges=self.ranges,
        )

    @classmethod
    def make(cls, **wanted: Any) -> Options:
        """Options from keyword arguments; an OptionError names an unknown or former option."""
        known = {field.name for field in fields(cls)}
        for name in wanted:
            if name in REMOVED:
                raise OptionError(f"{name} is no option of rote.graph any more: {REMOVED[name]}")
            if name not in known:
                options = ", ".join(sorted(known))
                raise OptionError(f"{name} is no option of rote.graph; the options are {options}")
        return cls(**wanted)
