"""The ways of graphing a callable that a case can be run in."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import rote
from rote.inspect import Report, explain
from rote.runtime.arguments.leaves import flatten, unflatten
from rote.runtime.backends.protocol.base import Session
from rote.runtime.backends.select import PROCESS


class Way(Protocol):
    """One way of graphing callables on one device."""

    exact: bool
    """Results have to equal the plain callable's to the bit and in every property; else nearly, in value."""

    def wrap(self, function: Callable[..., Any]) -> Any:
        """Graph a callable."""
        ...

    def close(self) -> None:
        """Free what was recorded."""
        ...


class Eager:
    """The plain callable."""

    exact = True

    def __init__(self, device: torch.device) -> None:
        """Works on every device."""

    def wrap(self, function: Callable[..., Any]) -> Any:
        """The callable itself."""
        return function

    def close(self) -> None:
        """Nothing was recorded."""


class Rote:
    """``rote.graph`` with its defaults; keeps what was replayed, call by call."""

    exact = True

    def __init__(self, device: torch.device) -> None:
        self._graphs: list[weakref.ref[rote.Graphed]] = []  # a case may delete its wrapper
        self.history: list[list[Report]] = []

    def wrap(self, function: Callable[..., Any]) -> rote.Graphed:
        """Graph a callable and remember it for its report."""
        graphed = rote.graph(function)
        self._graphs.append(weakref.ref(graphed))
        self.history.append([])
        return graphed

    def sample(self) -> None:
        """Keep the reports as they are now."""
        for found, reports in zip(self._graphs, self.history, strict=True):
            graphed = found()
            if graphed is not None:
                reports.append(graphed.report())

    def close(self) -> None:
        """Reset what is still alive."""
        for found in self._graphs:
            graphed = found()
            if graphed is not None:
                graphed.reset()

    def reports(self) -> list[Report]:
        """The last report of each callable that was called."""
        return [reports[-1] for reports in self.history if reports and reports[-1].calls]

    def told(self) -> set[tuple[str, str]]:
        """Code and line of every reason and island that any report ever gave."""
        found: set[tuple[str, str]] = set()
        for report in (each for reports in self.history for each in reports):
            found |= {(reason.code, reason.where) for reason in report.reasons}
            for recording in report.recordings:
                found |= {(island.code, island.where) for island in recording.islands}
        return found

    def explain(self) -> str:
        """The last reports as text."""
        return "\n".join(explain(report) for report in self.reports())

    def late(self) -> list[tuple[int, int]]:
        """Calls and replays of each callable in the last third of its calls, where it was called then."""
        found: list[tuple[int, int]] = []
        for reports in self.history:
            if reports and reports[-1].calls:
                last = reports[-1]
                start = max((each for each in reports if each.calls * 3 <= last.calls * 2), default=None,
                            key=lambda each: each.calls)  # fmt: skip
                calls, replayed = (start.calls, start.replayed) if start is not None else (0, 0)
                found.append((last.calls - calls, last.replayed - replayed))
        return found


class ByHand:
    """A graph captured by hand: the first call warms up, the second is captured, later ones replay.

    As careful as people are: tensors among the arguments are copied into static ones, on every nesting level;
    the static results are returned. On the host the graph is a segment of the host backend, which
    imitates a CUDA graph.
    """

    exact = False

    def __init__(self, device: torch.device) -> None:
        self._capture = _capture_cuda if device.type == "cuda" else _capture_host
        self._made: list[_HandGraph] = []

    def wrap(self, function: Callable[..., Any]) -> Any:
        """Graph a callable."""
        self._made.append(_HandGraph(function, self._capture))
        return self._made[-1]

    def close(self) -> None:
        """Free the graphs."""
        for made in self._made:
            made.free()


class Trusting(ByHand):
    """A graph captured by hand over the caller's own tensors: none is copied, kept alive, or looked at again.

    So work wrappers of serving engines and trainers whose caller is to hand in the same memory each time,
    held weakly or checked in a debug mode only. The second call is captured, later ones replay. (On the host
    the memory lives on.)
    """

    def wrap(self, function: Callable[..., Any]) -> Any:
        """Graph a callable."""
        self._made.append(_HandGraph(function, self._capture, copies=False))
        return self._made[-1]


class _HandGraph:
    def __init__(
        self, function: Callable[..., Any], capture: Callable[..., Any], *, copies: bool = True
    ) -> None:
        self._function = function
        self._capture = capture
        self._copies = copies
        self._calls = 0
        self._static: list[Any] = []
        self._out: Any = None
        self._replay: Callable[[], None] = lambda: None
        self.free: Callable[[], None] = lambda: None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._calls += 1
        if self._calls == 1:
            with _beside():
                return self._function(*args, **kwargs)
        leaves: list[Any] = []
        spec = flatten((args, kwargs), leaves)
        if self._calls == 2:
            self._static = [_clone(leaf) for leaf in leaves] if self._copies else leaves
            args, kwargs = unflatten(spec, iter(self._static))
            self._out, self._replay, self.free = self._capture(lambda: self._function(*args, **kwargs))
            if not self._copies:
                self._static = []
            return self._out
        with torch.no_grad():
            for static, leaf in zip(self._static, leaves, strict=self._copies):
                if isinstance(static, torch.Tensor):
                    static.copy_(leaf)
        self._replay()
        return self._out


@contextmanager
def _beside() -> Iterator[None]:
    """Warm up on a stream of its own, as the documentation of CUDA graphs asks."""
    if not torch.cuda.is_available():
        yield
        return
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield
    torch.cuda.current_stream().wait_stream(side)


def _clone(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.detach().clone().requires_grad_(leaf.requires_grad)


def _capture_cuda(call: Callable[[], Any]) -> tuple[Any, Callable[[], None], Callable[[], None]]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()
    graph.replay()
    return out, graph.replay, graph.reset


class _Capturing(TorchDispatchMode):
    """Hands each operation to a session."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._session.run(func, args, kwargs or {})


def _capture_host(call: Callable[[], Any]) -> tuple[Any, Callable[[], None], Callable[[], None]]:
    backend = PROCESS.of(torch.device("cpu"))
    session = backend.open(exclusive=True)
    try:
        with session.stream(), backend.lock:
            session.begin()
            with _Capturing(session):
                out = call()
            segment = session.end()
    except BaseException:
        session.abort()
        session.release()
        raise
    session.finish()

    def replay() -> None:
        if segment is not None:
            with backend.lock:
                backend.enter_call()
                segment.replay()
                backend.leave_call()

    return out, replay, session.release


class MakeGraphed:
    """``torch.cuda.make_graphed_callables``, made at the second call with copies of its arguments."""

    exact = False

    def __init__(self, device: torch.device) -> None:
        """There is no host version."""

    def wrap(self, function: Callable[..., Any]) -> Any:
        """Graph a callable."""
        calls, graphed = 0, function

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls, graphed
            calls += 1
            if calls == 2:
                samples: list[Any] = []
                spec = flatten(args, samples)
                copies = unflatten(spec, iter([_clone(sample) for sample in samples]))
                graphed = torch.cuda.make_graphed_callables(function, copies)
            return graphed(*args, **kwargs)

        return call

    def close(self) -> None:
        """The graphs die with the callables."""


class Compiled:
    """``torch.compile(mode="reduce-overhead")``."""

    exact = False

    def __init__(self, device: torch.device) -> None:
        """On the host it would have no graphs."""

    def wrap(self, function: Callable[..., Any]) -> Any:
        """Compile a callable."""
        return torch.compile(function, mode="reduce-overhead")

    def close(self) -> None:
        """Forget the compiled code and its graphs."""
        torch._dynamo.reset()


class Dynamo(Compiled):
    """``torch.compile(backend="eager")``: Dynamo's guards and nothing else."""

    def wrap(self, function: Callable[..., Any]) -> Any:
        """Compile a callable."""
        return torch.compile(function, backend="eager")


WAYS: dict[str, Callable[[torch.device], Way]] = {
    "eager": Eager,
    "by hand": ByHand,
    "trusting": Trusting,
    "make_graphed_callables": MakeGraphed,
    "reduce-overhead": Compiled,
    "dynamo": Dynamo,
    "rote": Rote,
}
PEERS = ("by hand", "make_graphed_callables", "reduce-overhead")
"""Ways that need a GPU."""


@contextmanager
def opened(way: Way) -> Iterator[Way]:
    """A way that is closed at the end."""
    try:
        yield way
    finally:
        way.close()
