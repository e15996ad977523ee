"""Is a callable launch-bound, and what would a graph gain? Measured on the plain callable.

Three kinds of calls are made, since none can be trusted with everything:

- plain calls, timed one by one: only their host time is true;
- calls under ``torch.profiler``: when the device works and when it is idle. Kernels take the same time there;
- calls under the profiler *and* a dispatch mode: which line of the user asks for which operation. The mode
  makes the host several times as slow, so only shares are used: host time by line is scaled to sum up to that
  of a plain call.

What does not work: Python stacks of the profiler (``with_stack``) name functions, not lines, and
synchronising after each operation for the times of kernels measures the synchronisation.
"""

from __future__ import annotations

import gzip
import json
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.profiler import ProfilerActivity, record_function

from ...base import MisuseError, OptionError, Site
from ...runtime.objects import is_graphed
from .costs import inside, sums
from .mode import MARK, AskingMode
from .result import Profile
from .torch_private import profiler_is_running
from .trace import CALL, DONE, MARKED, ProfilerTrace, covered, outermost, read

WARM = 3
"""Calls before anything is measured, the last under the dispatch mode: it learns the devices."""

CALLS = 20
"""Timed plain calls."""

WATCHED = 2
"""Calls under the profiler, plain and marked each. The first of each warms the profiler and its caches."""

MOST_WATCHED, WATCHED_S = 20, 0.1
"""On the host, plain calls under the profiler go on for this long. Their least times count there, and the
least of two calls is too long by half: it shows a tiny call as one with no gap."""

Call = Callable[[], object]


def profile(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Profile:
    """Measure what a call costs and how much of it a graph could save. Nothing is recorded.

    The callable is really called, 27 times, on a CPU up to 45 (``Profile.calls_made``), with the same
    arguments each time: state, gradients and random number generators change as by so many plain calls.

    Args:
        fn: The plain callable: not what :func:`...graph` returned.
        *args: Its positional arguments.
        **kwargs: Its keyword arguments.

    Returns:
        The figures, with a verdict in a sentence; ``print`` shows a table.

    Raises:
        MisuseError: ``fn`` can't be called, is graphed or returns a generator, or a profiler is already
            running.
    """
    return profile_calls(fn, args, kwargs)


def profile_calls(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    calls: int = CALLS,
    name: str | None = None,
    outside: Site | None = None,
) -> Profile:
    """:func:`profile` with a chosen number of timed calls; 7 more are made, on a CPU up to 25.

    ``name`` replaces the function's own in the tables. ``outside`` replaces the caller's line for operations
    that PyTorch's own code asks for, without code of the user around it.

    Raises:
        MisuseError: As :func:`profile` does.
        OptionError: ``calls`` is less than 1.
    """
    if not callable(fn):
        raise MisuseError(f"profile() takes a callable and its arguments, not a {type(fn).__name__}")
    if is_graphed(fn):
        raise MisuseError("profile() measures before recording: give it the plain callable, __wrapped__")
    if profiler_is_running():
        raise MisuseError("a profiler is running, and there can be only one: leave it before rote.profile()")
    if calls < 1:
        raise OptionError(f"calls={calls}: at least one call has to be timed")

    def call() -> object:
        return fn(*args, **kwargs)

    devices = _warm(call, (args, kwargs))
    host, total = _timed(call, devices, calls)
    plain = WATCHED
    if not devices:
        plain = max(WATCHED, min(MOST_WATCHED, int(WATCHED_S / statistics.median(total))))
    events, mode = _watched(call, devices, plain, outside)
    return _profile(name or _name(fn), devices, host, total, events, mode)


def _warm(call: Call, arguments: Any) -> list[torch.device]:
    """Make the first calls; returns the GPUs that they use."""
    for _ in range(WARM - 1):
        refuse_unread(call())
    with AskingMode() as mode:
        mode.note_devices((arguments, call()))  # kernels past the dispatcher have tensors, too
    return sorted(mode.devices, key=str)


def _timed(call: Call, devices: list[torch.device], calls: int) -> tuple[list[float], list[float]]:
    """Seconds of each plain call: until it returned, and until the device was done."""
    host, total = list[float](), list[float]()
    for _ in range(calls):
        _wait(devices)
        start = time.perf_counter()
        call()
        host.append(time.perf_counter() - start)
        _wait(devices)
        total.append(time.perf_counter() - start)
    return host, total


def _watched(
    call: Call, devices: list[torch.device], plain: int, outside: Site | None
) -> tuple[dict[str, Any], AskingMode]:
    """The profiler's events, and the operations of the last marked call."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if devices else [])]
    modes = [AskingMode(outside) for _ in range(WATCHED)]
    with torch.profiler.profile(activities=activities, acc_events=True) as profiler:
        for _ in range(plain):
            with record_function(CALL):
                call()
            with record_function(DONE):
                _wait(devices)
        for mode in modes:
            with record_function(MARKED), mode:
                call()
            with record_function(DONE):
                _wait(devices)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        modes[-1].take_least(modes[:-1])
        return json.loads(path.read_text()), modes[-1]


def _wait(devices: list[torch.device]) -> None:
    for device in devices:
        torch.cuda.synchronize(device)


def _profile(
    name: str,
    devices: list[torch.device],
    host_s: list[float],
    total_s: list[float],
    events: dict[str, Any],
    mode: AskingMode,
) -> Profile:
    total, host = statistics.median(total_s) * 1e6, statistics.median(host_s) * 1e6
    trace = read(events["traceEvents"])
    calls, marked = _calls(trace, CALL), _calls(trace, MARKED)[-1]
    plain = calls[-1]
    on_gpu = bool(plain.device)
    found = sums(marked, mode, inside(calls, marked, mode.asked), host, on_gpu)
    busy = covered(plain.device) if on_gpu else found.inside_us
    waits = [wait for wait in plain.waits if wait.start <= plain.named(CALL)[0].end]
    return Profile(
        name=name,
        backend="cuda" if on_gpu else "host",
        device=torch.cuda.get_device_name(devices[0]) if on_gpu else "cpu",
        calls_timed=len(total_s),
        calls_made=WARM + len(total_s) + len(calls) + WATCHED,
        total_us=total,
        p99_us=p99(total_s) * 1e6,
        host_us=host,
        busy_us=min(busy, total),
        synchronized_us=covered(waits),
        synchronizations=len(waits),
        operations=len(mode.asked),
        kernels=len(plain.device),
        by_operation=found.by_operation,
        by_line=found.by_line,
        spans=_spans(plain),
        _events=_packed(events, found.labels),
    )


def _calls(trace: ProfilerTrace, name: str) -> list[ProfilerTrace]:
    """The calls of a kind, each until the device was done."""
    ends = trace.named(DONE)
    spans = [(call, next(end for end in ends if end.start >= call.end)) for call in trace.named(name)]
    return [trace.window(call.start, done.end) for call, done in spans]


def _spans(plain: ProfilerTrace) -> dict[str, list[tuple[float, float]]]:
    start = plain.named(CALL)[0].start
    rows = {"host": outermost(plain.operations), "device": plain.device}
    return {row: [(span.start - start, span.length) for span in spans] for row, spans in rows.items()}


def _packed(events: dict[str, Any], labels: list[str]) -> bytes:
    """The trace, with marked ranges named after the user's lines."""

    def named(event: dict[str, Any]) -> dict[str, Any]:
        name = event.get("name", "")
        number = int(name.removeprefix(MARK)) if name.startswith(MARK) else len(labels)
        return event | {"name": labels[number]} if number < len(labels) else event  # an earlier call had more

    trace = events | {"traceEvents": [named(event) for event in events["traceEvents"]]}
    return gzip.compress(json.dumps(trace).encode(), compresslevel=1)


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__qualname__", None) or type(fn).__name__


def p99(times: Sequence[float]) -> float:
    """The 99th percentile: the least time that 99 % of them do not exceed; of fewer than 100 the longest."""
    return float(numpy.percentile(times, 99, method="inverted_cdf"))


def refuse_unread(result: Any) -> None:
    """Raise a MisuseError for a generator or a coroutine: its code has not run yet."""
    if isinstance(result, Coroutine):
        result.close()  # or Python warns that nobody awaited it
        instead = "runs it to its end, as lambda *args: asyncio.run(fn(*args))"
    elif isinstance(result, AsyncGenerator):
        instead = "reads it to its end, in a coroutine for asyncio.run"
    elif isinstance(result, Generator):
        instead = "reads it to its end, as lambda *args: list(fn(*args))"
    else:
        return
    kind = type(result).__name__
    article = "an" if kind.startswith("a") else "a"
    found = f"the callable returned {article} {kind}, which has run nothing yet"
    raise MisuseError(f"{found}: measure a function that {instead}")
