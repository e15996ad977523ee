"""``rote profile``: the table, the files, and targets that print, raise or need a GPU that is not there."""

import json
import re

import pytest
import torch

TARGETS = """
import torch

def chain(n=10):
    def run(x, *, plus):
        print("a line of the target's own")
        for _ in range(n):
            x = x + plus
        return x
    return run, (torch.zeros(4),), {"plus": 1.0}

def raising():
    def run():
        raise ValueError("no weights")
    return run

def leaving():
    return lambda: exit(3)

def on_gpu():
    return torch.neg, (torch.zeros(4, device="cuda"),)

def bare():
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), (torch.zeros(2, 4),)

class Net(torch.nn.Sequential):
    pass

def derived():
    return Net(torch.nn.Linear(4, 4), torch.nn.ReLU()), (torch.zeros(2, 4),)

def late_gpu():
    return lambda x: x.cuda() + 1, (torch.zeros(4),)
"""


@pytest.fixture
def target(rote):
    return lambda name: f"{rote.write('profile_targets.py', TARGETS)}:{name}"


def test_the_table(rote, target):
    done = rote("profile", target("chain"), "--arg", "n=7", "--calls", 3)
    assert done.exit_code == 0, done.output
    assert " calls\n" in done.stdout and "aten::add" in done.stdout and "aunch-bound" in done.stdout
    assert "x = x + plus" in done.stdout
    assert re.search(r"aunch-bound: .* at best\.\n$", done.stdout)  # piped: the verdict is a line
    assert "target's own" not in done.stdout and "target's own" in done.stderr


@pytest.mark.parametrize(
    ("name", "line"), [("bare", "def bare():"), ("derived", "class Net(torch.nn.Sequential):")]
)
def test_a_module_without_a_line_of_the_users_around_it(rote, target, name, line):
    """The line is where the module was written, not the one of the command line that calls it."""
    done = rote("profile", target(name), "--calls", 2, "--json", "-")
    assert done.exit_code == 0, done.output
    number = TARGETS.splitlines().index(line) + 1
    costs = json.loads(done.stdout)["by_line"]
    operations = sum(cost["operations"] for cost in costs if f"profile_targets.py:{number}" in cost["name"])
    assert operations == sum(cost["operations"] for cost in costs) > 0
    assert line in {cost["text"] for cost in costs}


def test_files(rote, target):
    pytest.importorskip("matplotlib")
    files = ("--json", "p.json", "--plot", "p.png", "--trace", "p.trace.json")
    done = rote("profile", target("chain"), *files, "--top", 0)
    assert done.exit_code == 0, done.output
    assert json.loads((rote.folder / "p.json").read_text())["operations"] == 10
    assert (rote.folder / "p.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((rote.folder / "p.trace.json").read_text())["traceEvents"]
    assert "aten::add" not in done.stdout


def test_json_on_the_terminal_is_json_alone(rote, target):
    assert json.loads(rote("profile", target("chain"), "--json", "-").stdout)["operations"] == 10


def test_a_target_that_raises(rote, target):
    done = rote("profile", target("raising"))
    assert done.exit_code == 2
    assert "raising raised ValueError: no weights" in done.stderr
    assert done.stderr.count("profile_targets.py:14)") == 1


def test_a_target_that_ends_the_process(rote, target):
    done = rote("profile", target("leaving"))
    assert done.exit_code == 2 and "leaving raised SystemExit: 3 (" in done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ["on_gpu", "late_gpu"])
def test_a_target_that_needs_a_gpu(rote, target, name):
    done = rote("profile", target(name))
    assert done.exit_code == 2
    assert "It needs a GPU, and PyTorch sees none here." in done.stderr


def test_a_file_that_cannot_be_written(rote, target):
    done = rote("profile", target("raising"), "--trace", "nowhere/trace.json")
    assert done.exit_code == 2 and "there is no folder nowhere" in done.stderr


def test_no_such_target(rote):
    done = rote("profile", "missing.py:build")
    assert done.exit_code == 2 and "there is no file missing.py" in done.stderr
