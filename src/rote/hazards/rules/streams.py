"""Streams: synchronisation, new streams and events, graphs in graphs, other threads."""

from __future__ import annotations

from ..finding import Severity
from .rule import Finder, Group, Rule

REFUSED = Rule(
    "RT131",
    "operation refused while capturing",
    "Nothing has to be done: it runs between two segments. To keep it inside, use a variant that does not "
    "wait for the host, where there is one (torch.linalg.inv_ex, cholesky_ex, solve_ex).",
    Severity.ISLAND,
    Group.STREAMS,
    Finder.TRIAL | Finder.RUNTIME,
    """
    An operation that a capture refuses although its schema does not say so, for example ``torch.linalg.inv``
    on CUDA, which checks its result on the host. So are operators that their author has tagged
    ``torch.Tag.cudagraph_unsafe``, and those named in ``split_ops``.

    Why: Captured by hand it fails. rote remembers the operation and runs it between two segments.

    Limits: Without a tag known only after a capture has failed once.

    Bad::

        return torch.linalg.inv(a) @ x

    Good::

        return torch.linalg.solve_ex(a, x[:, None]).result
    """,
)
CAPTURE_FAILED = Rule(
    "RT132",
    "capture failed",
    "Remove synchronisation, new streams and allocations by hand from the callable.",
    Severity.STOPS,
    Group.STREAMS,
    Finder.RUNTIME,
    """
    A capture ended with an error that belongs to no single operation: work went to a stream of the
    callable's own, memory was allocated past PyTorch.

    Why: The call can't be recorded; it runs eagerly from then on.

    Limits: The line is that of the last operation before the error; the cause may lie before it.

    Unchecked: What a driver refuses and no rule knows is seen by capturing, which needs the device.

    Bad::

        with torch.cuda.stream(side):
            half = x.exp()
        y = x * 2
        torch.cuda.current_stream().wait_stream(side)
        return y + half

    Good::

        half = x.exp()
        return x * 2 + half
    """,
)
SYNCHRONIZE = Rule(
    "RT133",
    "synchronisation inside the call",
    "Drop the line; wait outside, after the call.",
    Severity.STOPS,
    Group.STREAMS,
    Finder.SCAN | Finder.TRIAL,
    """
    ``torch.cuda.synchronize()``, ``stream.synchronize()``, ``event.synchronize()``, ``event.query()``,
    ``event.elapsed_time(...)`` inside the call.

    Why: Nothing runs during a capture, so there is nothing to wait for: CUDA refuses and the capture is
    lost.

    Limits: A wait inside a library is found by the trial and the runtime.

    Bad::

        y = x.exp()
        torch.cuda.synchronize()
        return y

    Good::

        y = x.exp()
        return y
    """,
)
STREAM_INSIDE = Rule(
    "RT134",
    "stream switched inside the call",
    "Use the current stream; a graph orders the work by itself.",
    Severity.STOPS,
    Group.STREAMS,
    Finder.SCAN | Finder.TRIAL,
    """
    ``torch.cuda.Stream()``, ``with torch.cuda.stream(side):`` inside the call.

    Why: Work on a stream that was not forked from the capturing one is not captured, or fails the capture;
    a fork that is not joined again ends it with "unjoined work". rote runs such calls eagerly (RT132).

    Limits: A fork and join done right (``wait_stream`` both ways) is captured by a graph made by hand, and
    reported with a lower severity.

    Bad::

        with torch.cuda.stream(self.side):
            half = x.exp()
        return x * 2 + half

    Good::

        half = x.exp()
        return x * 2 + half
    """,
)
EVENT_INSIDE = Rule(
    "RT135",
    "event made or recorded inside the call",
    "Record events around the call.",
    Severity.SPEED,
    Group.STREAMS,
    Finder.SCAN,
    """
    ``torch.cuda.Event(...)`` and ``event.record()`` inside the call.

    Why: An event recorded during a capture marks a place in the graph and no time: waiting for it, asking it
    or timing with it fails (RT133). Replays record no event that Python could see.

    Limits: Events of other libraries are not seen.

    Bad::

        start = torch.cuda.Event(enable_timing=True)
        start.record()
        return x.exp()

    Good::

        return x.exp()
    """,
)
NESTED_CAPTURE = Rule(
    "RT136",
    "graph inside a graph",
    "Graph the outermost callable only, or give each part its own graph and chain them outside.",
    Severity.STOPS,
    Group.STREAMS,
    Finder.SCAN | Finder.TRIAL,
    """
    ``torch.cuda.graph(...)``, ``make_graphed_callables``, ``graph.replay()``, ``torch.compile`` with
    ``mode="reduce-overhead"`` inside a call that is captured itself.

    Why: A stream that is capturing can't begin another capture or launch a graph that PyTorch replays.

    Limits: A graphed callable that is called by another one under ``rote.graph`` is run plainly while the
    outer one records; nothing is wrong with that, and it is not reported. Nor is one that is called while
    the caller captures a graph by hand: it is run plainly and becomes part of that graph.

    Bad::

        self.captured.replay()
        return self.static_output + x

    Good::

        return self.layer(x) + x
    """,
)
THREAD_INSIDE = Rule(
    "RT137",
    "thread started inside the call",
    "Do the work in the thread that calls, or outside.",
    Severity.WRONG,
    Group.STREAMS,
    Finder.SCAN | Finder.TRIAL,
    """
    ``threading.Thread(...)``, a ``ThreadPoolExecutor``, ``asyncio.run`` inside the call.

    Why: What another thread launches goes to another stream or fails the capture, and it is not replayed:
    no Python runs then.

    Limits: Threads of libraries (data loaders, autograd) are not reported.

    Bad::

        with ThreadPoolExecutor() as pool:
            halves = list(pool.map(torch.exp, x.chunk(2)))
        return torch.cat(halves)

    Good::

        halves = [half.exp() for half in x.chunk(2)]
        return torch.cat(halves)
    """,
)
PROFILED = Rule(
    "RT138",
    "profiler or range marker inside the call",
    "Put the profiler or the marker around the call.",
    Severity.SPEED,
    Group.STREAMS,
    Finder.SCAN,
    """
    ``torch.profiler.profile``, ``torch.profiler.record_function``, ``torch.cuda.nvtx.range_push`` inside the
    call.

    Why: Markers are host calls: replays have none, so a timeline shows them for the first calls only.

    Limits: Harmless otherwise.

    Bad::

        with torch.profiler.record_function("head"):
            return x.exp()

    Good::

        return x.exp()
    """,
)
