"""``rote plans``."""

from __future__ import annotations

import os
import time

import pytest
import torch

from rote import graph


def doubled(x):
    return (x * 2).relu()


@pytest.fixture
def learned(rote):
    """A directory with what one callable has left."""
    path = rote.folder / "plans"
    graphed = graph(doubled, plans=path)
    for _ in range(4):
        graphed(torch.ones(3))
    return path


def test_a_list(rote, learned):
    done = rote("plans", "list", learned)
    assert "(args[0]: float32[3]): recorded in call 2, 2 operations in 1 segment" in done.output
    assert "1 facts, 0 files of code" in done.output and done.exit_code == 0


def test_all_that_is_known(rote, learned):
    (name,) = [each.name for each in learned.glob("*.facts")]
    done = rote("plans", "show", learned, name[:6], "--all")
    assert f"torch: {torch.__version__}" in done.output and f"code: {__file__}" in done.output
    assert "operation: aten::mul.Tensor(input 0 float32[3], 2) -> new 0 float32[3]" in done.output
    assert rote("plans", "show", learned, "nothing").exit_code == 2


def test_a_check(rote, learned):
    done = rote("plans", "check", learned)
    assert done.output == "all of it can be used here\n" and done.exit_code == 0
    (file,) = learned.glob("*.facts")
    file.write_bytes(file.read_bytes()[:-1])
    learned.chmod(0o777)
    done = rote("plans", "check", learned)
    assert f"{file.name}: it is cut off, or too long" in done.output and done.exit_code == 1
    assert "may be written by others" in done.output


def test_what_is_old_or_broken_goes(rote, learned):
    (file,) = learned.glob("*.facts")
    broken, unfinished, foreign = (learned / name for name in ("b.facts", ".c.unfinished", "notes.txt"))
    for each in (broken, unfinished, foreign):
        each.write_text("text")
    os.utime(unfinished, (0, 0))
    done = rote("plans", "prune", learned)
    assert f"removed {broken.name}" in done.output and "2 files removed" in done.output
    assert sorted(each.name for each in learned.iterdir()) == sorted([file.name, "code", "key", "notes.txt"])
    os.utime(file, (time.time() - 100 * 86400,) * 2)
    assert f"removed {file.name}" in rote("plans", "prune", learned).output


def test_what_is_stale_goes_if_asked(rote, learned, monkeypatch):
    monkeypatch.setattr("rote.plans.here.__version__", "9.9")
    done = rote("plans", "check", learned)
    assert "stale, rote was " in done.output and "and is 9.9" in done.output
    assert rote("plans", "prune", learned).output == "0 files removed\n"
    assert "1 files removed" in rote("plans", "prune", "--stale", learned).output


def test_a_directory_that_is_not_there(rote):
    done = rote("plans", "list", rote.folder / "none")
    assert done.exit_code == 2 and "cannot be opened" in done.output
    assert not (rote.folder / "none").exists()
