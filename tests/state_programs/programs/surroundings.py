"""What surrounds a call: torch's settings, threads, the clock, the environment, files."""

from __future__ import annotations

import contextlib
import contextvars
import datetime
import decimal
import gc
import locale
import logging
import os
import random
import sys
import tempfile
import threading
import time
import types
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import torch
from tests.footguns.case import Wrap, full
from tests.state_programs.program import put, state, turns

Items = Iterator[Any]
SCALE: contextvars.ContextVar[float] = contextvars.ContextVar("scale", default=1.5)


@state("reads")
def number_of_threads(wrap: Wrap, device: torch.device) -> Items:
    """``torch.get_num_threads`` is read."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        g = wrap(lambda x: x * torch.get_num_threads())
        yield from turns(g, device, lambda: torch.set_num_threads(2), lambda: torch.set_num_threads(1))
    finally:
        torch.set_num_threads(before)


@state("reads")
def default_dtype(wrap: Wrap, device: torch.device) -> Items:
    """The default type decides what the call makes."""
    try:
        g = wrap(lambda x: x.sum() + torch.full((2,), 0.1, device=x.device))
        yield from turns(g, device, lambda: torch.set_default_dtype(torch.float64))
    finally:
        torch.set_default_dtype(torch.float32)


@state("reads")
def default_device(wrap: Wrap, device: torch.device) -> Items:
    """The default device decides where the call makes something."""
    try:
        g = wrap(lambda x: (x * 2, str(torch.ones(2).device)))
        yield from turns(g, device, lambda: torch.set_default_device("meta"))
    finally:
        torch.set_default_device(None)


@state("reads")
def matmul_precision(wrap: Wrap, device: torch.device) -> Items:
    """The precision of matrix products is read."""
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        g = wrap(lambda x: x * len(torch.get_float32_matmul_precision()))
        yield from turns(g, device, lambda: torch.set_float32_matmul_precision("high"))
    finally:
        torch.set_float32_matmul_precision(before)


@state("reads")
def deterministic_algorithms(wrap: Wrap, device: torch.device) -> Items:
    """The determinism switch is read."""
    before = torch.are_deterministic_algorithms_enabled()
    try:
        torch.use_deterministic_algorithms(False)
        g = wrap(lambda x: x * (2.5 if torch.are_deterministic_algorithms_enabled() else 1.5))
        yield from turns(g, device, lambda: torch.use_deterministic_algorithms(True))
    finally:
        torch.use_deterministic_algorithms(before)


@state("reads")
def initial_seed(wrap: Wrap, device: torch.device) -> Items:
    """``torch.initial_seed`` is read."""
    torch.manual_seed(3)
    yield from turns(wrap(lambda x: x * torch.initial_seed()), device, lambda: torch.manual_seed(5))


@state("reads")
def seed_of_a_generator(wrap: Wrap, device: torch.device) -> Items:
    """A generator's ``initial_seed`` is read."""
    gen = torch.Generator(device).manual_seed(3)
    yield from turns(wrap(lambda x: x * gen.initial_seed()), device, lambda: gen.manual_seed(5))


@state("reads")
def backend_flags(wrap: Wrap, device: torch.device) -> Items:
    """A flag of ``torch.backends`` is read."""
    before = torch.backends.cudnn.benchmark
    try:
        torch.backends.cudnn.benchmark = False
        g = wrap(lambda x: x * (2.5 if torch.backends.cudnn.benchmark else 1.5))
        yield from turns(g, device, put(torch.backends.cudnn, benchmark=True))
    finally:
        torch.backends.cudnn.benchmark = before


@state("reads")
def grad_mode_read(wrap: Wrap, device: torch.device) -> Items:
    """``torch.is_grad_enabled`` is read."""
    g = wrap(lambda x: x * (2.5 if torch.is_grad_enabled() else 1.5))
    with torch.no_grad():
        yield from turns(g, device)
    yield from turns(g, device)


@state("reads")
def print_options(wrap: Wrap, device: torch.device) -> Items:
    """Torch's print options decide how long a text is."""
    try:
        g = wrap(lambda x: x * len(str(torch.ones(1))))
        yield from turns(g, device, lambda: torch.set_printoptions(precision=1, sci_mode=True))
    finally:
        torch.set_printoptions(profile="default")


@state("reads")
def weak_reference(wrap: Wrap, device: torch.device) -> Items:
    """A weak reference's target dies."""
    o = types.SimpleNamespace(target=Target())
    ref = weakref.ref(o.target)
    g = wrap(lambda x: x * (1.5 if ref() is not None else 2.5))
    yield from turns(g, device, lambda: (delattr(o, "target"), gc.collect()))


class Target:
    """Something that can be referenced weakly."""

    k = 1.5


@state("reads")
def weak_value_dictionary(wrap: Wrap, device: torch.device) -> Items:
    """A value of a weak dictionary dies."""
    o = types.SimpleNamespace(target=Target())
    cache: Any = weakref.WeakValueDictionary(k=o.target)
    g = wrap(lambda x: x * (1.5 if "k" in cache else 2.5) + len(cache))
    yield from turns(g, device, lambda: (delattr(o, "target"), gc.collect()))


@state("reads")
def weak_set_and_proxy(wrap: Wrap, device: torch.device) -> Items:
    """A weak set grows; a weak proxy's target changes."""
    first, second = Target(), Target()
    seen, proxy = weakref.WeakSet([first]), weakref.proxy(first)
    g = wrap(lambda x: x * len(seen) + proxy.k)
    yield from turns(g, device, lambda: seen.add(second), put(first, k=2.5))


@state("reads")
def thread_local(wrap: Wrap, device: torch.device) -> Items:
    """A thread's local value, here and on another thread."""
    local = threading.local()
    local.k = 1.5
    g = wrap(lambda x: x * getattr(local, "k", 9.0))
    yield from turns(g, device, put(local, k=2.5))
    for number in range(3):
        yield on_a_thread(g, full(number, device))


def on_a_thread(function: Any, *args: Any, name: str | None = None) -> Any:
    """What a function returns on a thread of its own."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function(*args)), name=name)
    thread.start()
    thread.join()
    return found[0]


@state("reads")
def thread_name(wrap: Wrap, device: torch.device) -> Items:
    """The current thread's name."""
    g = wrap(lambda x: x * len(threading.current_thread().name))
    for number in range(4):
        yield on_a_thread(g, full(number, device), name="ab")
    for number in range(4):
        yield on_a_thread(g, full(number, device), name="abcd")


@state("reads")
def main_thread(wrap: Wrap, device: torch.device) -> Items:
    """Whether the call is on a given thread."""
    here = threading.get_ident()
    g = wrap(lambda x: x * (1.5 if threading.get_ident() == here else 2.5))
    for number in range(4):
        yield g(full(number, device))
    for number in range(3):
        yield on_a_thread(g, full(number, device))


@state("reads")
def context_variable(wrap: Wrap, device: torch.device) -> Items:
    """A context variable, set, reset, and read in a copied context."""
    g = wrap(lambda x: x * SCALE.get())
    tokens: list[Any] = []
    try:
        yield from turns(g, device, lambda: tokens.append(SCALE.set(2.5)))
        context = contextvars.copy_context()
        context.run(SCALE.set, 3.5)
        yield context.run(g, full(1, device))
    finally:
        for token in tokens:
            SCALE.reset(token)
    yield g(full(1, device))


@state("reads")
def clock(wrap: Wrap, device: torch.device) -> Items:
    """The time is part of the result."""

    def fn(x: torch.Tensor) -> Any:
        return x * 2, time.time(), time.perf_counter(), time.monotonic_ns()

    yield from between(wrap(fn), device, time.time, time.perf_counter, time.monotonic_ns)


def between(g: Any, device: torch.device, *clocks: Any) -> Items:
    """Whether the times in a result are of the call that gave it."""
    for number in range(6):
        before = [clock() for clock in clocks]
        out, *times = g(full(number, device))
        after = [clock() for clock in clocks]
        within = [a <= b <= c for a, b, c in zip(before, times, after, strict=True)]
        yield out, within
        time.sleep(0.002)


@state("reads")
def date(wrap: Wrap, device: torch.device) -> Items:
    """``datetime.now`` is part of the result."""
    g = wrap(lambda x: (x * 2, datetime.datetime.now().timestamp()))
    yield from between(g, device, lambda: datetime.datetime.now().timestamp())


@state("reads")
def clock_that_decides(wrap: Wrap, device: torch.device) -> Items:
    """A deadline passes: the result changes without any write."""
    o = types.SimpleNamespace(deadline=time.monotonic() + 600)

    def change() -> None:
        o.deadline = time.monotonic() + 0.01
        time.sleep(0.02)

    g = wrap(lambda x: x * (1.5 if time.monotonic() < o.deadline else 2.5))
    yield from turns(g, device, change)


@state("reads")
def environment_variable(wrap: Wrap, device: torch.device) -> Items:
    """An environment variable, set and unset."""
    name = "STATE_PROGRAM_GAIN"
    try:
        g = wrap(lambda x: x * float(os.environ.get(name, "1.5")) + len(os.getenv(name) or ""))
        change = lambda: os.environ.__setitem__(name, "2.5")  # noqa: E731
        yield from turns(g, device, change, lambda: os.environ.pop(name))
    finally:
        os.environ.pop(name, None)


@state("reads")
def arguments_of_the_program(wrap: Wrap, device: torch.device) -> Items:
    """``sys.argv`` grows."""
    before = list(sys.argv)
    try:
        g = wrap(lambda x: x * (2.5 if "--fast" in sys.argv else 1.5))
        yield from turns(g, device, lambda: sys.argv.append("--fast"))
    finally:
        sys.argv[:] = before


@state("reads")
def flags_of_the_interpreter(wrap: Wrap, device: torch.device) -> Items:
    """The recursion limit and the switch interval."""
    before = sys.getrecursionlimit()
    try:
        g = wrap(lambda x: x * (2.5 if sys.getrecursionlimit() == 7777 else 1.5))
        yield from turns(g, device, lambda: sys.setrecursionlimit(7777))
    finally:
        sys.setrecursionlimit(before)


@state("reads")
def garbage_collector(wrap: Wrap, device: torch.device) -> Items:
    """Whether the collector is on."""
    gc.enable()
    try:
        yield from turns(wrap(lambda x: x * (1.5 if gc.isenabled() else 2.5)), device, gc.disable)
    finally:
        gc.enable()


@state("reads")
def file_read(wrap: Wrap, device: torch.device) -> Items:
    """A file is read in the call."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "gain")
        file.write_text("1.5")
        g = wrap(lambda x: x * float(file.read_text()))
        yield from turns(g, device, lambda: file.write_text("2.5"))


@state("reads")
def file_exists(wrap: Wrap, device: torch.device) -> Items:
    """A file's existence decides."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "flag")
        g = wrap(lambda x: x * (2.5 if file.exists() else 1.5) + len(os.listdir(folder)))
        yield from turns(g, device, file.touch, file.unlink)


@state("reads")
def open_file_position(wrap: Wrap, device: torch.device) -> Items:
    """An open file gives its next line in each call."""
    with tempfile.TemporaryFile("w+") as file:
        file.write("\n".join(str(n) for n in range(30)))
        file.seek(0)
        yield from turns(wrap(lambda x: x * int(file.readline())), device, watch=file.tell)


@state("reads")
def working_directory(wrap: Wrap, device: torch.device) -> Items:
    """The working directory."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.getcwd()
        try:
            g = wrap(lambda x: x * (1.5 if os.getcwd() == before else 2.5))
            yield from turns(g, device, lambda: os.chdir(folder))
        finally:
            os.chdir(before)


@state("reads")
def decimal_context(wrap: Wrap, device: torch.device) -> Items:
    """The precision of decimal numbers."""
    with decimal.localcontext() as context:
        context.prec = 3
        g = wrap(lambda x: x * len(str(decimal.Decimal(1) / decimal.Decimal(7))))
        yield from turns(g, device, lambda: setattr(decimal.getcontext(), "prec", 9))


@state("reads")
def locale_setting(wrap: Wrap, device: torch.device) -> Items:
    """The locale of numbers is read."""
    before = locale.setlocale(locale.LC_CTYPE)
    try:
        locale.setlocale(locale.LC_CTYPE, "C")
        g = wrap(lambda x: x * len(locale.setlocale(locale.LC_CTYPE)))
        yield from turns(g, device, lambda: locale.setlocale(locale.LC_CTYPE, "C.UTF-8"))
    finally:
        locale.setlocale(locale.LC_CTYPE, before)


@state("reads")
def logger_level(wrap: Wrap, device: torch.device) -> Items:
    """A logger's level decides; it is inherited from the parent."""
    parent, logger = logging.getLogger("state_program"), logging.getLogger("state_program.child")
    try:
        parent.setLevel(logging.ERROR)
        g = wrap(lambda x: x * (2.5 if logger.isEnabledFor(logging.DEBUG) else 1.5))
        change = lambda: parent.setLevel(logging.DEBUG)  # noqa: E731
        yield from turns(g, device, change, lambda: logger.setLevel(logging.ERROR))
    finally:
        parent.setLevel(logging.NOTSET)
        logger.setLevel(logging.NOTSET)


@state("reads")
def warning_filters(wrap: Wrap, device: torch.device) -> Items:
    """A warning becomes an exception that the call handles."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        try:
            warnings.warn("state", UserWarning, stacklevel=1)
        except UserWarning:
            return x * 2.5
        return x * 1.5

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from turns(wrap(fn), device, lambda: warnings.simplefilter("error"))


@state("C")
def python_random(wrap: Wrap, device: torch.device) -> Items:
    """Python's random numbers."""
    random.seed(3)
    yield from turns(wrap(lambda x: x * random.random()), device, lambda: random.seed(3))


@state("C")
def own_random_object(wrap: Wrap, device: torch.device) -> Items:
    """A ``random.Random`` of one's own, seeded again."""
    rng = random.Random(3)
    g = wrap(lambda x: x * rng.randint(1, 9) + rng.choice([1, 2]))
    yield from turns(g, device, lambda: rng.seed(3), watch=lambda: hash(rng.getstate()))


@state("C")
def numpy_random(wrap: Wrap, device: torch.device) -> Items:
    """numpy's global random numbers, and a generator's."""
    numpy.random.seed(3)
    rng = numpy.random.default_rng(3)
    g = wrap(lambda x: x * float(numpy.random.rand()) + float(rng.random()))
    yield from turns(g, device, lambda: numpy.random.seed(3))


@state("C")
def numpy_error_state(wrap: Wrap, device: torch.device) -> Items:
    """numpy's print options and error handling."""
    with numpy.errstate(divide="ignore"), numpy.printoptions(precision=4):
        g = wrap(lambda x: x * len(numpy.geterr()["divide"]) + len(str(numpy.array([1 / 3]))))
        change = lambda: (numpy.seterr(divide="raise"), numpy.set_printoptions(precision=1))  # noqa: E731
        yield from turns(g, device, change)


@state("reads")
def standard_output_replaced(wrap: Wrap, device: torch.device) -> Items:
    """Whether the output is a given object decides."""
    other = types.SimpleNamespace(write=lambda text: len(text), flush=lambda: None, encoding="ab")
    before = sys.stdout
    try:
        g = wrap(lambda x: x * (2.5 if sys.stdout.encoding == "ab" else 1.5))
        yield from turns(g, device, put(sys, stdout=other), put(sys, stdout=before))
    finally:
        sys.stdout = before


@state("reads")
def stack_of_contexts(wrap: Wrap, device: torch.device) -> Items:
    """A setting that a context manager outside puts in place and away."""
    o = types.SimpleNamespace(k=1.5)

    @contextlib.contextmanager
    def scale(k: float) -> Iterator[None]:
        before, o.k = o.k, k
        yield
        o.k = before

    g = wrap(lambda x: x * o.k)
    yield from turns(g, device)
    with scale(2.5):
        yield from turns(g, device, before=3)
    yield from turns(g, device, before=2)


@state("limits")
def local_time_zone(wrap: Wrap, device: torch.device) -> Items:
    """The time zone of the process decides what a time without a zone means; one with a zone has its own."""
    naive, utc = datetime.datetime(2020, 1, 1), datetime.UTC
    known = naive.replace(tzinfo=utc)
    asks = (
        lambda: datetime.datetime.fromtimestamp(0).hour,
        lambda: naive.timestamp() / 3600 % 24,
        lambda: naive.astimezone(utc).hour,
        lambda: known.astimezone().hour,
        lambda: known.timestamp() / 3600 % 24 + datetime.datetime.fromtimestamp(0, tz=utc).hour,
    )

    def zone(name: str) -> Any:
        def change() -> None:
            os.environ["TZ"] = name
            time.tzset()

        return change

    before = os.environ.get("TZ")
    try:
        for ask in asks:
            zone("UTC")()
            yield from turns(wrap(lambda x, ask=ask: x * ask()), device, zone("EST5"), before=3)
    finally:
        os.environ.pop("TZ") if before is None else zone(before)()
        time.tzset()


@state("reads")
def weak_reference_to_a_class(wrap: Wrap, device: torch.device) -> Items:
    """A class dies, to which a weak reference leads."""
    o = types.SimpleNamespace(target=type("Made", (), {"k": 1.5}))
    ref = weakref.ref(o.target)
    g = wrap(lambda x: x * (ref().k if ref() is not None else 2.5))  # type: ignore[union-attr]
    yield from turns(g, device, lambda: (delattr(o, "target"), gc.collect()))
