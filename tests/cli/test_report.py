"""``rote report``: the page, the trace, and targets that raise."""

import json

import pytest

TARGETS = """
import torch

def chain(n=3):
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
"""


@pytest.fixture
def target(rote):
    return lambda name: f"{rote.write('report_targets.py', TARGETS)}:{name}"


def test_page_and_trace(rote, target):
    done = rote("report", target("chain"), "--arg", "n=2", "--calls", 5, "--trace", "call.json")
    assert done.exit_code == 0, done.output
    assert "run: 7 calls" in done.stdout and "written: report.html, call.json" in done.stdout
    assert "target's own" not in done.stdout
    assert "x = x + plus" in (rote.folder / "report.html").read_text()
    names = [each["name"] for each in json.loads((rote.folder / "call.json").read_text())["traceEvents"]]
    assert names.count("aten::add.Tensor") == 2


def test_the_report_alone_on_standard_output(rote, target):
    done = rote("report", target("chain"), "--calls", 2, "--wait", 0.01, "--html", "r.html", "--json", "-")
    assert done.exit_code == 0 and json.loads(done.stdout)["calls"] > 3, done.output


def test_a_rank_of_several(rote, target, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    done = rote("report", target("chain"), "--calls", 2, "--trace", "call.json.gz", "--json", "-")
    assert done.exit_code == 0, done.output
    assert {each.name for each in rote.folder.iterdir()} >= {"report-rank1.html", "call-rank1.json.gz"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("raising",), "raised ValueError: no weights"),
        (("chain", "--html", "no/r.html"), "there is no folder no"),
    ],
)
def test_what_a_user_can_mend(rote, target, arguments, message):
    done = rote("report", target(arguments[0]), "--calls", 2, *arguments[1:])
    assert done.exit_code == 2 and message in done.stderr
