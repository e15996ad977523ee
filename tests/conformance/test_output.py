"""Output: a replay does not repeat it, and it keeps no call from being recorded."""

import contextlib
import io
import logging
import logging.handlers
import multiprocessing
import os
import pprint
import queue
import socket
import subprocess
import sys
import warnings

import pytest
import torch

import rote

try:
    import tqdm
except ImportError:
    tqdm = None

CALLS = 12
WARM = 4


@pytest.fixture
def logger():
    made = logging.getLogger("rote_test_output")
    handler = logging.StreamHandler(sys.stderr)
    made.addHandler(handler)
    made.propagate = False
    made.setLevel(logging.INFO)
    yield made
    made.removeHandler(handler)
    made.setLevel(logging.NOTSET)


def run(fn, device, calls=CALLS):
    g = rote.graph(fn)
    for n in range(calls):
        x = torch.full((4,), float(n), device=device)
        assert torch.equal(g(x), x * 2)
    return g


def test_what_is_printed(device, capsys):
    g = run(lambda x: (print("shape", x.shape), print(1, file=sys.stderr), x * 2)[-1], device)
    assert g.report().replayed >= CALLS - WARM, g.explain()
    assert 1 <= capsys.readouterr().out.count("shape") <= WARM


def test_what_is_written_to_a_standard_stream(device):
    def fn(x):
        sys.stderr.write("\rstep")
        sys.stderr.flush()
        return x * 2

    assert run(fn, device).report().replayed >= CALLS - WARM


def test_what_is_logged(device, logger):
    logger.handlers[1:] = []  # that of the test runner, which keeps what is logged

    def fn(x):
        logger.info("shape %s", x.shape)
        return x * 2

    g = run(fn, device)
    assert g.report().replayed >= CALLS - WARM, g.explain()


def test_the_level_is_a_condition(device, logger):
    def fn(x):
        return x * (2 if logger.isEnabledFor(logging.INFO) else 3)

    g, x = run(fn, device), torch.ones(4, device=device)
    logger.setLevel(logging.ERROR)
    assert torch.equal(g(x), x * 3)
    logger.setLevel(logging.INFO)
    assert torch.equal(g(x), x * 2)


def test_other_streams_are_no_output(device):
    """Who holds the stream may read what was written: replays write it."""
    stream = io.StringIO()

    def fn(x):
        stream.write("step")
        return x * 2

    g = run(fn, device)
    assert g.report().replayed == CALLS - 2 and stream.getvalue() == "step" * CALLS
    assert g.report().output == ()


def test_a_file_is_no_output(device, tmp_path):
    with (tmp_path / "log").open("w") as file:
        g = run(lambda x: (print("step", file=file), x * 2)[-1], device)
    assert g.report().replayed == CALLS - 2 and g.report().output == ()
    assert (tmp_path / "log").read_text() == "step\n" * CALLS


def test_a_clock_of_ones_own_is_none(device, reason):
    g = run(lambda x: x * 2 if logging.time.time() > 0 else x, device)
    assert g.report().replayed == 0 and "clock" in reason(g, "RT218").message


def named(g):
    """What the report names, with the text of the lines; ``explain`` names each once."""
    found = g.report().output
    assert g.report().to_dict()["output"] == tuple({"what": each.what, "where": each.where} for each in found)
    for each in found:
        assert g.explain().count(f"output at {each.where}, not repeated by replays: {each.what}") == 1
    return [(each.what, each.where) for each in found]


def bars(x):
    for _ in tqdm.tqdm(range(2)):
        x = x * 1
    return x * 2


def shown(x):
    print("one")
    sys.stderr.write("two")
    pprint.pprint(["three"])
    return x * 2


def warned(x):
    warnings.warn("four", stacklevel=1)
    return x * 2


def shown_as_usual(message, category, filename, lineno, file=None, line=None):
    sys.stderr.write(f"{filename}:{lineno}: {message}")


def logged(x):
    logging.getLogger("rote_test_output").warning("five %s", x.shape)
    return x * 2


@pytest.mark.parametrize(("fn", "lines"), [
    (shown, [("print", 'print("one")'), ("sys.stderr.write", "sys.stderr"), ("sys.stdout.write", "pprint")]),
    (warned, [("warnings.warn", "warnings.warn")]),
    (logged, [("logging", "logging.getLogger")]),
    pytest.param(bars, [("tqdm", "tqdm.tqdm")], marks=pytest.mark.skipif(tqdm is None, reason="needs tqdm")),
])  # fmt: skip
@pytest.mark.filterwarnings("always::UserWarning")
def test_the_report_names_it_once(device, logger, where, monkeypatch, fn, lines):
    logger.handlers[1:] = []
    monkeypatch.setattr(warnings, "showwarning", shown_as_usual)  # that of the test runner keeps them
    g = run(fn, device)
    assert g.report().replayed >= CALLS - WARM - 1, g.explain()
    assert named(g)[: len(lines)] == [(what, where(fn, text)) for what, text in lines]
    assert not {why.where for why in g.report().reasons if why.count > WARM}


def test_output_of_the_first_call_alone_is_not_named(device):
    seen = {}

    def fn(x):
        if "k" not in seen:
            print("loads")
            seen["k"] = 2
        return x * seen["k"]

    g = run(fn, device)
    assert g.report().replayed >= CALLS - WARM and named(g) == []


def test_a_warning_that_is_ignored_is_no_output(device):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        g = run(warned, device)
        assert g.report().replayed >= CALLS - WARM and named(g) == []


def test_what_the_call_catches_itself_is_no_output(device):
    def fn(x):
        held = io.StringIO()
        with contextlib.redirect_stdout(held):
            print("ab", end="")
        return x * len(held.getvalue())

    g = run(fn, device)
    assert g.report().replayed >= CALLS - WARM and named(g) == []


def test_output_of_a_backward(device, where):
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            print("backward")
            return gradient * 2

    weight = torch.nn.Parameter(torch.ones(4, device=device))
    g = rote.graph(lambda x: Doubled.apply(x * weight))
    for _ in range(CALLS):
        g(torch.ones(4, device=device)).sum().backward()
    if g.report().backwards_replayed:
        assert named(g) == [("print", where(Doubled.backward, "print"))]


def test_strict_mode_refuses_it_if_told_so(device, where):
    x = torch.ones(4, device=device)
    lenient = rote.graph(shown, strict=True)
    for _ in range(CALLS):
        lenient(x)
    g = rote.graph(shown, strict=True, strict_output=True)
    for _ in range(WARM - 1):
        g(x)
    with pytest.raises(rote.NotReplayedError) as caught:
        g(x)
    assert f"RT219 at {where(shown, 'sys.stderr')}: sys.stderr.write writes output. Write it outside" in str(
        caught.value
    )
    assert {each.code for each in caught.value.findings} == {"RT219"}
    silent = rote.graph(lambda x: x * 2, strict=True, strict_output=True)
    for _ in range(CALLS):
        silent(x)
    assert silent.report().replayed >= CALLS - WARM


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.seen = []

    def emit(self, record):
        self.seen.append(record.getMessage())


def ways_out(path):
    """By name: what is written to, how, and the code of the reason."""
    reading, writing = os.pipe()
    one, other = socket.socketpair()
    file, pipe = path.open("a"), os.fdopen(writing, "w")
    waiting, simple, shared = queue.Queue(), queue.SimpleQueue(), multiprocessing.SimpleQueue()
    through = {
        "file": logging.FileHandler(path),
        "queue": logging.handlers.QueueHandler(waiting),
        "list": Kept(),
    }
    loggers = {}
    for name, handler in through.items():
        loggers[name] = logging.getLogger(f"rote_test_output_{name}")
        loggers[name].handlers, loggers[name].propagate = [handler], False
    found = {
        "open": (lambda: open(path, "a").close(), "RT218"),
        "path.write_text": (lambda: path.write_text("a"), "RT218"),
        "os.write": (lambda: os.write(file.fileno(), b"a"), "RT218"),
        "socket.send": (lambda: one.send(b"a"), "RT218"),
        "pipe": (lambda: pipe.write("a"), "RT218"),
        "simple queue": (lambda: simple.put(1), "RT218"),
        "shared queue": (lambda: shared.put(1), "RT218"),
        "subprocess.run": (lambda: subprocess.run(["true"]), "RT218"),
        "os.system": (lambda: os.system("true"), "RT218"),
        "logger to a file": (lambda: loggers["file"].warning("a"), "RT218"),
        "logger to a queue": (lambda: loggers["queue"].warning("a"), "RT201"),
        "logger to a list": (lambda: loggers["list"].warning("a"), "RT201"),
    }

    def close():
        through["file"].close()
        for each in (file, pipe, one, other):
            each.close()
        os.close(reading)
        shared.close()

    return found, close


WAYS = [
    "open", "path.write_text", "os.write", "socket.send", "pipe", "simple queue", "shared queue",
    "subprocess.run", "os.system", "logger to a file", "logger to a queue", "logger to a list",
]  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_what_somebody_else_reads_keeps_a_call_eager(device, tmp_path, where, name):
    found, close = ways_out(tmp_path / "written")
    write, code = found[name]

    def fn(x):
        write()
        return x * 2

    try:
        g = run(fn, device)
    finally:
        close()
    assert g.report().replayed == 0 and g.report().output == ()
    lines = {why.where for why in g.report().reasons if why.code == code and why.count >= CALLS - 1}
    at = (
        where(Kept.emit, "self.seen.append")
        if name == "logger to a list"
        else where(ways_out, f'"{name}": (lambda')
    )
    assert at in lines, g.explain()


@pytest.mark.filterwarnings("always")
def test_warnings_that_somebody_keeps(device):
    with warnings.catch_warnings(record=True) as kept:
        g = run(warned, device)
    assert len(kept) == CALLS and g.report().replayed == 0, g.explain()


def test_a_library_that_writes_to_a_file_says_that_it_does(device, reason, tmp_path):
    """The call's own writes to a file are made by replays; those of a library may hold the time."""
    made = logging.getLogger("rote_test_file")
    handler = logging.FileHandler(tmp_path / "log.txt")
    made.addHandler(handler)
    made.propagate = False

    def fn(x):
        made.error("a line")
        return x * 2

    g = rote.graph(fn)
    try:
        for number in range(6):
            assert torch.equal(
                g(torch.full((2,), float(number), device=device)),
                fn(torch.full((2,), float(number), device=device)),
            )
    finally:
        made.removeHandler(handler)
        handler.close()
    assert (tmp_path / "log.txt").read_text() == "a line\n" * 12 and g.report().replayed == 0
    assert reason(g, "RT218").message == (
        "the call has logging call _io.TextIOWrapper.write, perhaps with the time in it, which reads or "
        "writes what is outside of the program"
    )
