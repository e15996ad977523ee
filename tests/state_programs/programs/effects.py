"""What a call leaves behind outside: attributes, items, counters, files."""

from __future__ import annotations

import collections
import contextlib
import heapq
import io
import logging
import os
import queue
import random
import socket
import subprocess
import sys
import tempfile
import types
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy
import torch
from tests.footguns.case import Wrap, full
from tests.state_programs.program import put, state, turns
from torch import nn

Items = Iterator[Any]


@state("effects")
def attribute_bound_to_a_result(wrap: Wrap, device: torch.device) -> Items:
    """``self.last = y`` in each call; the user reads it, and empties it."""
    o = types.SimpleNamespace(last=None)

    def fn(x: torch.Tensor) -> torch.Tensor:
        o.last = x * 2
        return o.last + 1

    yield from turns(wrap(fn), device, put(o, last=None), watch=lambda: o.last)


@state("effects")
def attribute_bound_to_a_number(wrap: Wrap, device: torch.device) -> Items:
    """``self.mode = "train"`` in each call; changed outside in between."""
    o = types.SimpleNamespace(mode="a", n=0)

    def fn(x: torch.Tensor) -> torch.Tensor:
        o.mode, o.n = "b", 3
        return x * 2

    yield from turns(wrap(fn), device, put(o, mode="c"), put(o, n=5), watch=lambda: (o.mode, o.n))


@state("effects")
def attribute_deleted(wrap: Wrap, device: torch.device) -> Items:
    """The call deletes an attribute that the caller sets."""
    o = types.SimpleNamespace()
    g = wrap(lambda x: (vars(o).pop("pending", None), x * 2)[1])
    for n in range(7):
        if n % 2:
            o.pending = n
        yield g(full(n, device)), sorted(vars(o))


@state("effects")
def counter_of_calls(wrap: Wrap, device: torch.device) -> Items:
    """A counter that no tensor depends on."""
    o = types.SimpleNamespace(n=0)

    def fn(x: torch.Tensor) -> torch.Tensor:
        o.n += 1
        return x * 2

    yield from turns(wrap(fn), device, put(o, n=100), watch=lambda: o.n)


@state("effects")
def counter_modulo(wrap: Wrap, device: torch.device) -> Items:
    """A counter that decides every third time."""
    o = types.SimpleNamespace(n=0)

    def fn(x: torch.Tensor) -> torch.Tensor:
        o.n += 1
        return x * (2.5 if o.n % 3 == 0 else 1.5)

    yield from turns(wrap(fn), device, before=9, watch=lambda: o.n)


@state("effects")
def item_of_an_argument(wrap: Wrap, device: torch.device) -> Items:
    """``d["y"] = y; return d``."""

    def fn(d: dict[str, Any]) -> dict[str, Any]:
        d["y"] = d["x"] * 2
        return d

    g = wrap(fn)
    for n in range(7):
        d = {"x": full(n, device)}
        out = g(d)
        yield out, out is d, sorted(d)


@state("effects")
def attribute_of_an_argument(wrap: Wrap, device: torch.device) -> Items:
    """``batch.y = y`` on an argument."""

    def fn(batch: Any) -> torch.Tensor:
        batch.y = batch.x * 2
        return batch.y + 1

    g = wrap(fn)
    for n in range(7):
        batch = types.SimpleNamespace(x=full(n, device))
        yield g(batch), batch.y


@state("effects")
def attribute_of_a_dataclass(wrap: Wrap, device: torch.device) -> Items:
    """A field of a dataclass argument is rebound; the argument is returned."""

    @dataclass
    class Batch:
        x: torch.Tensor
        done: bool = False

    def fn(batch: Batch) -> Batch:
        batch.x = batch.x * 2
        batch.done = True
        return batch

    g = wrap(fn)
    for n in range(7):
        batch = Batch(full(n, device))
        out = g(batch)
        yield out.x, batch.x, batch.done, out is batch


@state("effects")
def attribute_on_a_result(wrap: Wrap, device: torch.device) -> Items:
    """``out.kind = "x"`` on the tensor that is returned."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        out = x * 2
        out.kind = "logits"  # type: ignore[attr-defined]
        return out

    g = wrap(fn)
    for n in range(6):
        out = g(full(n, device))
        yield out, getattr(out, "kind", None)


@state("effects")
def list_argument_extended(wrap: Wrap, device: torch.device) -> Items:
    """The call appends to a list argument."""

    def fn(x: torch.Tensor, outs: list[torch.Tensor]) -> None:
        outs.append(x * 2)

    g = wrap(fn)
    for n in range(6):
        outs: list[torch.Tensor] = []
        g(full(n, device), outs)
        yield outs
    kept: list[torch.Tensor] = []
    for n in range(5):
        g(full(n, device), kept)
        yield len(kept), list(kept)


@state("effects")
def list_appended(wrap: Wrap, device: torch.device) -> Items:
    """Results are appended to a list outside, which the user empties."""
    kept: list[torch.Tensor] = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        kept.append(x * 2)
        return x + 1

    yield from turns(wrap(fn), device, kept.clear, watch=lambda: list(kept))


@state("effects")
def deque_full(wrap: Wrap, device: torch.device) -> Items:
    """Results are appended to a full deque: its length never changes."""
    kept: deque[Any] = deque([0] * 3, maxlen=3)

    def fn(x: torch.Tensor) -> torch.Tensor:
        kept.append(x * 2)
        return x + 1

    yield from turns(wrap(fn), device, kept.clear, watch=lambda: list(kept))


@state("effects")
def set_added(wrap: Wrap, device: torch.device) -> Items:
    """``seen.add`` of one and the same value; the user empties the set."""
    seen: set[str] = set()

    def fn(x: torch.Tensor) -> torch.Tensor:
        seen.add("called")
        return x * 2

    yield from turns(wrap(fn), device, seen.clear, watch=lambda: sorted(seen))


@state("effects")
def dict_updated(wrap: Wrap, device: torch.device) -> Items:
    """``setdefault``, ``update`` and ``pop`` of a dict outside."""
    cfg: dict[str, Any] = {}

    def fn(x: torch.Tensor) -> torch.Tensor:
        k = cfg.setdefault("k", 1.5)
        cfg.update(last="fn")
        return x * k + cfg.pop("once", 0.0)

    yield from turns(
        wrap(fn), device, lambda: cfg.update(once=5.0, k=2.5), cfg.clear, watch=lambda: dict(cfg)
    )


@state("effects")
def dict_order_changed_inside(wrap: Wrap, device: torch.device) -> Items:
    """A least-recently-used dict: the call moves its key to the end."""
    cache = collections.OrderedDict(a=1.5, b=2.5)

    def fn(x: torch.Tensor) -> torch.Tensor:
        cache.move_to_end("a")
        return x * cache["a"]

    change = lambda: cache.move_to_end("b")  # noqa: E731
    yield from turns(wrap(fn), device, change, change, watch=lambda: list(cache))


@state("effects")
def counter_of_names(wrap: Wrap, device: torch.device) -> Items:
    """A ``Counter`` and a default dict count."""
    counts: Any = collections.Counter()
    lists: Any = collections.defaultdict(list)

    def fn(x: torch.Tensor) -> torch.Tensor:
        counts["calls"] += 1
        lists["sizes"].append(x.shape[0])
        return x * 2

    yield from turns(wrap(fn), device, counts.clear, watch=lambda: (dict(counts), dict(lists)))


@state("effects")
def heap_pushed(wrap: Wrap, device: torch.device) -> Items:
    """``heapq.heappush`` and ``random.shuffle`` of lists outside."""
    heap: list[int] = []
    order = list(range(5))

    def fn(x: torch.Tensor) -> torch.Tensor:
        heapq.heappush(heap, len(heap))
        random.shuffle(order)
        return x * 2

    yield from turns(wrap(fn), device, heap.clear, watch=lambda: (list(heap), list(order)))


@state("effects")
def list_sorted_in_place(wrap: Wrap, device: torch.device) -> Items:
    """A list is sorted in place by the call, and mixed outside."""
    order = [3, 1, 2]

    def fn(x: torch.Tensor) -> torch.Tensor:
        order.sort()
        return x * order[0]

    yield from turns(wrap(fn), device, lambda: order.insert(0, 9), order.reverse, watch=lambda: list(order))


@state("effects")
def global_written(wrap: Wrap, device: torch.device) -> Items:
    """A global is bound by the call."""
    names: dict[str, Any] = {"last": None}
    exec("def fn(x):\n    global last\n    last = x * 2\n    return x + 1", names)
    yield from turns(wrap(names["fn"]), device, lambda: names.update(last=None), watch=lambda: names["last"])


@state("effects")
def closure_written(wrap: Wrap, device: torch.device) -> Items:
    """A variable of the enclosing function is bound by the call."""
    last = None

    def fn(x: torch.Tensor) -> torch.Tensor:
        nonlocal last
        last = x.shape[0]
        return x * 2

    def forget() -> None:
        nonlocal last
        last = None

    yield from turns(wrap(fn), device, forget, watch=lambda: last)


@state("effects")
def class_attribute_written(wrap: Wrap, device: torch.device) -> Items:
    """A class attribute counts."""

    class Net:
        calls = 0

    def fn(x: torch.Tensor) -> torch.Tensor:
        Net.calls += 1
        return x * 2

    yield from turns(wrap(fn), device, put(Net, calls=50), watch=lambda: Net.calls)


@state("effects")
def property_written(wrap: Wrap, device: torch.device) -> Items:
    """A property's setter keeps what it was given."""

    class Net:
        def __init__(self) -> None:
            self.log: list[float] = []

        @property
        def k(self) -> float:
            return self.log[-1]

        @k.setter
        def k(self, value: float) -> None:
            self.log.append(value)

    o = Net()

    def fn(x: torch.Tensor) -> torch.Tensor:
        o.k = 1.5
        return x * o.k

    yield from turns(wrap(fn), device, o.log.clear, watch=lambda: list(o.log))


@state("effects")
def mock_called(wrap: Wrap, device: torch.device) -> Items:
    """A mock counts its calls."""
    m = mock.MagicMock()

    def fn(x: torch.Tensor) -> torch.Tensor:
        m.step(3)
        return x * 2

    yield from turns(wrap(fn), device, m.reset_mock, watch=lambda: m.step.call_count)


@state("effects")
def callback_called(wrap: Wrap, device: torch.device) -> Items:
    """A callback notes each call; another one takes its place."""
    seen: list[str] = []
    o = types.SimpleNamespace(callback=lambda: seen.append("a"))

    def fn(x: torch.Tensor) -> torch.Tensor:
        o.callback()
        return x * 2

    yield from turns(wrap(fn), device, put(o, callback=lambda: seen.append("b")), watch=lambda: list(seen))


@state("effects")
def bound_append(wrap: Wrap, device: torch.device) -> Items:
    """``append`` of a list held in a variable."""
    seen: list[int] = []
    note = seen.append

    def fn(x: torch.Tensor) -> torch.Tensor:
        note(1)
        return x * 2

    yield from turns(wrap(fn), device, seen.clear, watch=lambda: list(seen))


@state("effects")
def file_written(wrap: Wrap, device: torch.device) -> Items:
    """A line is appended to a file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "log")

        def fn(x: torch.Tensor) -> torch.Tensor:
            with file.open("a") as log:
                log.write("called\n")
            return x * 2

        yield from turns(wrap(fn), device, lambda: file.write_text(""), watch=file.read_text)


@state("effects")
def file_printed_to(wrap: Wrap, device: torch.device) -> Items:
    """``print(..., file=)`` to a file of one's own."""
    out = io.StringIO()

    def fn(x: torch.Tensor) -> torch.Tensor:
        print("called", file=out)
        return x * 2

    yield from turns(wrap(fn), device, lambda: out.truncate(0), watch=lambda: len(out.getvalue()))


@state("effects")
def file_descriptor_written(wrap: Wrap, device: torch.device) -> Items:
    """Bytes are written to a pipe."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    def fn(x: torch.Tensor) -> torch.Tensor:
        os.write(writing, b"x")
        return x * 2

    def received() -> bytes | None:
        try:
            return os.read(reading, 100)
        except BlockingIOError:
            return None

    try:
        yield from turns(wrap(fn), device, watch=received, before=7)
    finally:
        os.close(reading)
        os.close(writing)


@state("effects")
def queue_filled(wrap: Wrap, device: torch.device) -> Items:
    """Results are put into a queue."""
    q: Any = queue.Queue()

    def fn(x: torch.Tensor) -> torch.Tensor:
        q.put(x * 2)
        return x + 1

    yield from turns(wrap(fn), device, watch=lambda: q.get_nowait() if q.qsize() else None, before=7)


@state("effects")
def process_started(wrap: Wrap, device: torch.device) -> Items:
    """A process is started that leaves a file."""
    with tempfile.TemporaryDirectory() as folder:

        def fn(x: torch.Tensor) -> torch.Tensor:
            subprocess.run(["mkdir", Path(folder, "made")], check=True)
            return x * 2

        g = wrap(fn)
        for n in range(5):
            yield g(full(n, device)), os.listdir(folder)
            if Path(folder, "made").exists():
                Path(folder, "made").rmdir()


@state("effects")
def environment_written(wrap: Wrap, device: torch.device) -> Items:
    """An environment variable is set by the call."""
    name = "STATE_PROGRAM_SET"

    def fn(x: torch.Tensor) -> torch.Tensor:
        os.environ[name] = "1"
        return x * 2

    try:
        yield from turns(wrap(fn), device, lambda: os.environ.pop(name), watch=lambda: os.environ.get(name))
    finally:
        os.environ.pop(name, None)


@state("effects")
def array_written(wrap: Wrap, device: torch.device) -> Items:
    """A numpy array and a byte array are written by the call."""
    small, data = numpy.zeros(3), bytearray(2)

    def fn(x: torch.Tensor) -> torch.Tensor:
        small[0] += 1
        data[1] = (data[1] + 1) % 256
        return x * 2

    yield from turns(wrap(fn), device, lambda: small.fill(7), watch=lambda: (small.tolist(), bytes(data)))


@state("effects")
def array_bound_to_a_result(wrap: Wrap, device: torch.device) -> Items:
    """A result is copied to a numpy array outside."""
    out = numpy.zeros(4, numpy.float32)

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        out[:] = y.cpu().numpy()
        return y

    yield from turns(wrap(fn), device, lambda: out.fill(0), watch=lambda: out.tolist())


@state("effects")
def log_with_a_handler(wrap: Wrap, device: torch.device) -> Items:
    """A handler's own state is asked about a record: the filter counts."""
    seen: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    logger = logging.getLogger("state_program.effects")
    logger.propagate = False
    handler = Keep()
    logger.addHandler(handler)
    o = types.SimpleNamespace(level=logging.INFO)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * (2.5 if logger.isEnabledFor(logging.INFO) else 1.5)

    try:
        logger.setLevel(logging.WARNING)
        yield from turns(wrap(fn), device, lambda: logger.setLevel(o.level))
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


@state("effects")
def attribute_set_by_name(wrap: Wrap, device: torch.device) -> Items:
    """``setattr`` with a name made at run time, and ``vars`` written."""
    o = types.SimpleNamespace()

    def fn(x: torch.Tensor) -> torch.Tensor:
        setattr(o, f"size_{x.shape[0]}", x.shape[0])
        vars(o)["last"] = x * 2
        return x + 1

    yield from turns(wrap(fn), device, lambda: vars(o).clear(), watch=lambda: dict(sorted(vars(o).items())))


@state("effects")
def buffer_rebound_inside(wrap: Wrap, device: torch.device) -> Items:
    """A buffer is bound to a fresh tensor in each call and read in the next."""
    m = nn.Module()
    m.register_buffer("mean", torch.zeros(4, device=device))

    def fn(x: torch.Tensor) -> torch.Tensor:
        m.mean = m.mean * 0.5 + x
        return x - m.mean

    yield from turns(wrap(fn), device, put(m, mean=torch.ones(4, device=device)), watch=lambda: m.mean)


@state("effects")
def gradient_bound_inside(wrap: Wrap, device: torch.device) -> Items:
    """``p.grad`` is bound to a fresh tensor in each call."""
    p = nn.Parameter(full(1, device))

    def fn(x: torch.Tensor) -> torch.Tensor:
        p.grad = x * 2
        return x + 1

    yield from turns(wrap(fn), device, put(p, grad=None), watch=lambda: p.grad)


@state("effects")
def feature_kept_by_a_hook(wrap: Wrap, device: torch.device) -> Items:
    """A hook keeps a feature for the user."""
    m, kept = nn.Sequential(nn.ReLU(), nn.Tanh()), {}
    m[0].register_forward_hook(lambda m, args, out: kept.__setitem__("feature", out))
    yield from turns(wrap(m), device, kept.clear, watch=lambda: dict(kept))


@state("effects")
def warning_once(wrap: Wrap, device: torch.device) -> Items:
    """A flag of one's own: warned already."""
    o = types.SimpleNamespace(warned=False)

    def fn(x: torch.Tensor) -> torch.Tensor:
        if not o.warned:
            warnings.warn("once", stacklevel=1)
            o.warned = True
        return x * 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from turns(wrap(fn), device, put(o, warned=False), watch=lambda: o.warned)


@state("effects")
def tensor_identity_kept(wrap: Wrap, device: torch.device) -> Items:
    """What the call keeps is what it returned, and stays when the next call comes."""
    o = types.SimpleNamespace(last=None)
    held = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        o.last = x * 2
        return o.last

    g = wrap(fn)
    for n in range(7):
        out = g(full(n, device))
        held.append(o.last)
        yield out, o.last is out, list(held)


@state("effects")
def two_objects_in_turns(wrap: Wrap, device: torch.device) -> Items:
    """The argument that is written is another object in each call."""

    class Box:
        y: Any = None

    def fn(x: torch.Tensor, box: Box) -> torch.Tensor:
        box.y = x * 2
        return x + 1

    g, boxes = wrap(fn), [Box(), Box()]
    for n in range(8):
        yield g(full(n, device), boxes[n % 2]), boxes[0].y, boxes[1].y


@state("effects")
def attribute_path_written(wrap: Wrap, device: torch.device) -> Items:
    """``self.state.last = y``, where the object in between is replaced outside."""
    o = types.SimpleNamespace(state=types.SimpleNamespace(last=None))

    def fn(x: torch.Tensor) -> torch.Tensor:
        o.state.last = x * 2
        return x + 1

    old = o.state
    fresh = types.SimpleNamespace(last=None)
    yield from turns(wrap(fn), device, put(o, state=fresh), watch=lambda: (old.last, fresh.last))


@state("effects")
def exception_after_a_write(wrap: Wrap, device: torch.device) -> Items:
    """A write, then an exception that a setting asks for."""
    o = types.SimpleNamespace(n=0, fail=False)

    def fn(x: torch.Tensor) -> torch.Tensor:
        o.n = 1
        if o.fail:
            raise ValueError("asked to")
        o.n = 2
        return x * 2

    yield from turns(wrap(fn), device, put(o, fail=True), put(o, fail=False, n=7), watch=lambda: o.n)


@state("effects")
def output_redirected_inside(wrap: Wrap, device: torch.device) -> Items:
    """The call prints into a buffer of its own and uses the text."""
    o = types.SimpleNamespace(text="ab")

    def fn(x: torch.Tensor) -> torch.Tensor:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            print(o.text)
        return x * len(out.getvalue())

    yield from turns(wrap(fn), device, put(o, text="abcd"), watch=lambda: sys.stdout is sys.__stdout__)


@state("effects")
def socket_written(wrap: Wrap, device: torch.device) -> Items:
    """Bytes are sent through a socket."""
    here, there = socket.socketpair()
    there.setblocking(False)

    def fn(x: torch.Tensor) -> torch.Tensor:
        here.sendall(b"x")
        return x * 2

    def received() -> bytes | None:
        try:
            return there.recv(100)
        except BlockingIOError:
            return None

    with here, there:
        yield from turns(wrap(fn), device, watch=received, before=7)


@state("effects")
def kept_list_with_an_argument_returned(wrap: Wrap, device: torch.device) -> Items:
    """A list outside gets an argument, alone or in something, and is returned; the caller changes it."""
    kept: list[Any] = [0, 1]
    ways = (lambda o: o, lambda o: [o], lambda o: {"o": o}, lambda o: (o, [o]))
    for way in ways:

        def fn(x: torch.Tensor, o: Any, way: Any = way) -> Any:
            kept.append(way(o))
            return x * 2, kept, {"kept": kept}

        g = wrap(fn)
        for n in range(7):
            kept[:] = [0, 1] if n < 5 else [full(n, device), 1]
            out = g(full(n, device), types.SimpleNamespace(k=n))
            yield out[0], out[1] is kept, out[2]["kept"] is kept, kept[:2], len(kept)


@state("effects")
def containers_in_themselves(wrap: Wrap, device: torch.device) -> Items:
    """A call puts containers and objects into themselves: outside, among its arguments and in its result."""
    kept: dict[str, Any] = {}
    grown: list[Any] = []
    root = types.SimpleNamespace(children=[], deep=None)

    def fn(x: torch.Tensor, batch: dict[str, Any], o: Any) -> Any:
        kept.setdefault("me", []).append(kept)
        grown.extend([grown])
        root.children.append(types.SimpleNamespace(parent=root, y=x * 2))
        root.deep = (x, root.deep)
        batch["me"], o.me = batch, o
        out: list[Any] = [x * 2]
        return [*out, out.append(out) or out]

    g = wrap(fn)
    for _ in range(500):
        root.deep = (0, root.deep)
    for n in range(6):
        batch, o = dict[str, Any](), types.SimpleNamespace()
        out = g(full(n, device), batch, o)
        inner = out[1]
        yield out[0], inner[1] is inner, kept["me"][-1] is kept, grown[-1] is grown, len(grown)
        yield root.children[-1].y, root.children[-1].parent is root, batch["me"] is batch, o.me is o
