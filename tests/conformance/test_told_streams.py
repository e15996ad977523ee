"""Text that calls write to buffers and files: replays write what the calls would, and nothing else."""

from __future__ import annotations

import csv
import io
import itertools
import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import rote

CALLS = 16


class Counting(io.StringIO):
    """Its method is Python's, and does more than to write."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def write(self, text: str) -> int:
        self.count += 1
        return super().write(text)


class Shown:
    """Its text is made by code."""

    made = 0

    def __str__(self) -> str:
        Shown.made += 1
        return f"shown {Shown.made}"

    __repr__ = __str__


def buffer(path: Path) -> Any:
    return io.StringIO()


def file(path: Path) -> Any:
    return path.open("w")


def readable(path: Path) -> Any:
    return path.open("w+")


def appended(path: Path) -> Any:
    path.write_text("before\n")
    return path.open("a")


def in_the_middle(path: Path) -> Any:
    path.write_text("0123456789" * 200)
    found = path.open("r+")
    found.seek(3)
    return found


def counting(path: Path) -> Any:
    return Counting()


MADE = (buffer, file, appended, readable, in_the_middle, counting)
FOLLOWED = (buffer, file, appended)


def contents(out: Any) -> Any:
    if isinstance(out, io.StringIO):
        return out.getvalue(), out.tell(), getattr(out, "count", None)
    out.flush()
    return Path(out.name).read_bytes()


def written(out: Any, x: Any, s: Any) -> Any:
    s["step"] += 1
    out.write(f"step {s['step']}: {x.sum().item():.3f}\n")
    return x * 2


def in_lines(out: Any, x: Any, s: Any) -> Any:
    s["step"] += 1
    total = x.sum().item()
    print("step", s["step"], total, sep="\t", end=";\n", file=out)
    print("done", file=out, flush=True)
    return x * total


def rows(out: Any, x: Any, s: Any) -> Any:
    s["step"] += 1
    s["writer"].writerow([s["step"], x.mean().item(), "a,b", None, True])
    s["writer"].writerows([(1, x.max().item()), (2, s["step"])])
    return x + 1


def sizes(out: Any, x: Any, s: Any) -> Any:
    s["step"] += 7
    return x * (out.write(str(s["step"])) + out.write("\n") + s["writer"].writerow([s["step"], "b"]))


def now_and_then(out: Any, x: Any, s: Any) -> Any:
    s["step"] += 1
    if s["step"] % 4 == 0:
        out.write(f"{s['step']}\n")
    return x * 2


def always_the_same(out: Any, x: Any, s: Any) -> Any:
    out.write("again\n")
    return x - 1


PROGRAMS = (written, in_lines, rows, sizes, now_and_then, always_the_same)


def looks_behind(out: Any, x: Any, s: Any) -> Any:
    out.write("a")
    return x * out.tell()


def looks_before(out: Any, x: Any, s: Any) -> Any:
    size = out.tell()
    out.write("a")
    return x * size


def goes_back(out: Any, x: Any, s: Any) -> Any:
    out.seek(0)
    out.write("b")
    out.seek(0, io.SEEK_END)
    return x * 2


def writes_tensors(out: Any, x: Any, s: Any) -> Any:
    print(x, file=out)
    out.write(f"{x}|{x.sum()}\n")
    return x * 2


def writes_objects(out: Any, x: Any, s: Any) -> Any:
    print(Shown(), [Shown()], file=out)
    return x * 2


def writes_much(out: Any, x: Any, s: Any) -> Any:
    out.writelines(["a\n", "b\n"])
    return x * 2


def writes_and_raises(out: Any, x: Any, s: Any) -> Any:
    s["step"] += 1
    out.write(f"{s['step']}\n")
    if s["step"] % 5 == 0:
        raise ValueError("each fifth")
    return x * 2


def asks_first(out: Any, x: Any, s: Any) -> Any:
    if out.closed:
        return x
    out.write("open\n")
    return x * 2


def writes_where_it_reads(out: Any, x: Any, s: Any) -> Any:
    out.write("first\n")
    if x.sum() > 20:
        out.write(f"large {x.sum().item()}\n")
    s["step"] += 1
    out.write(f"{s['step']}\n")
    return x * 3


def writes_elsewhere(out: Any, x: Any, s: Any) -> Any:
    s["out"] = out
    s["out"].write("kept\n")
    return x * 2


OTHERS = (
    looks_behind, looks_before, goes_back, writes_tensors, writes_objects, writes_much, writes_and_raises,
    asks_first, writes_where_it_reads, writes_elsewhere,
)  # fmt: skip


def play(
    program: Any, make: Any, path: Path, device: torch.device, between: Any = None, **options: Any
) -> Any:
    """Call it plainly and graphed, and compare all that is written after each call."""
    ways = []
    for name in ("plain", "graphed"):
        out, state = make(path / name), {"step": 0}
        state["writer"] = csv.writer(out)

        def call(x: Any, out: Any = out, state: Any = state) -> Any:
            return program(out, x, state)

        ways.append((call, out))
    (plain, theirs), (call, ours) = ways
    graphed = rote.graph(call, keep="verify" not in options, **options)
    try:
        compare(graphed, plain, (theirs, ours), device, between)
    finally:
        for out in (theirs, ours):
            out.close()
    return graphed


def compare(graphed: Any, plain: Any, outs: Any, device: torch.device, between: Any) -> None:
    for number in range(CALLS):
        x, seen = torch.arange(5.0, device=device) + number, []
        for function in (plain, graphed):
            Shown.made = 100 * number
            try:
                seen.append(function(x.clone()).tolist())
            except ValueError as error:
                seen.append(str(error))
        assert seen[0] == seen[1], f"call {number}\n{graphed.explain()}"
        left = [contents(out) for out in outs]
        assert left[0] == left[1], f"call {number}\n{graphed.explain()}"
        for out in outs if between is not None else ():
            between(out, number)


@pytest.mark.parametrize(("program", "make"), [*itertools.product(PROGRAMS, MADE)])
def test_replays_write_what_calls_write(device, tmp_path, program, make):
    graphed = play(program, make, tmp_path, device)
    if make in FOLLOWED:
        assert graphed.report().replayed >= 6, graphed.explain()


@pytest.mark.parametrize(("program", "make"), [*itertools.product(OTHERS, MADE)])
def test_other_programs_are_right(device, tmp_path, program, make):
    play(program, make, tmp_path, device)


def empty(out: Any, number: int) -> None:
    """What the caller does with the stream is the caller's: the next text goes where that has left it."""
    if number > 7 and number % 3 == 2:
        out.seek(0)
        out.truncate()
    if number > 7 and number % 5 == 4:
        out.seek(0)


@pytest.mark.parametrize(("program", "make"), [*itertools.product((written, rows), (buffer, file))])
def test_the_caller_moves_in_the_stream(device, tmp_path, program, make):
    assert play(program, make, tmp_path, device, empty).report().replayed >= 3


def test_it_is_not_written_twice_where_replays_are_compared(device, tmp_path):
    play(written, buffer, tmp_path, device, verify=2)
    play(always_the_same, file, tmp_path, device, verify=1)


def test_a_pipe_is_not_followed(device):
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as out, os.fdopen(reading, "r") as found:
        graphed = rote.graph(lambda x: (print("told", file=out, flush=True), x * 2)[1])
        for _ in range(5):
            graphed(torch.ones(2, device=device))
            assert found.readline() == "told\n"
        assert graphed.report().replayed == 0


def test_a_closed_file_raises(device, tmp_path):
    out = (tmp_path / "log").open("w")
    graphed = rote.graph(lambda x: (out.write("told\n"), x * 2)[1], keep=True)
    for _ in range(5):
        graphed(torch.ones(2, device=device))
    assert graphed.report().replayed == 3
    out.close()
    with pytest.raises(ValueError, match="closed"):
        graphed(torch.ones(2, device=device))
    assert (tmp_path / "log").read_text() == "told\n" * 5


def test_times_and_loggers_are_no_constants(device):
    out = io.StringIO()
    log = logging.Logger("told")
    log.addHandler(logging.StreamHandler(out))
    log.handlers[0].setFormatter(logging.Formatter("%(created)r"))

    def logs(x: Any) -> Any:
        log.info("told")
        print(time.time_ns(), file=out)
        return x * 2

    graphed = rote.graph(logs, keep=True)
    for _ in range(8):
        graphed(torch.ones(2, device=device))
    lines = out.getvalue().split()
    assert len(lines) == len(set(lines)) == 16


def test_another_stream_is_written_to(device):
    streams = {"log": io.StringIO()}

    def told(x: Any) -> Any:
        streams["log"].write("told\n")
        return x * 2

    graphed, kept = rote.graph(told, keep=True), []
    for number in range(24):
        if number % 4 == 0:
            streams["log"] = io.StringIO()
            kept.append(streams["log"])
        graphed(torch.ones(2, device=device))
    assert [each.getvalue() for each in kept] == ["told\n" * 4] * 6
