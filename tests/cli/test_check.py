"""``rote check`` and ``rote explain`` as a user runs them."""

from __future__ import annotations

import json
import re
import textwrap

import pytest

POLICY = """
    import torch
    from torch import nn

    class Policy(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.linear = nn.Linear(width, width)

        def forward(self, x):
            self.scale = x.abs().amax()
            return self.linear(x / self.scale)

    def build(width=8, device="cuda"):
        policy = Policy(width).to(device).eval()
        return policy, (torch.randn(2, width, device=device),)

    def clean(device="cuda"):
        return nn.Linear(4, 4).to(device), (torch.randn(2, 4, device=device),)

    def branch(device="cpu"):
        def fn(x):
            if x.sum() > 0:
                return x.nonzero()
            return x
        return fn, (torch.ones(2, device=device),)
"""


@pytest.fixture
def policy(rote):
    return rote.write("policy.py", textwrap.dedent(POLICY))


def test_an_error(rote, policy):
    done = rote("check", "policy.py:build", "--arg", "width=16")
    assert done.exit_code == 1, done.output
    lines = done.output.splitlines()
    assert lines[0].startswith("policy.py:11:") and ": RT212 " in lines[0]
    assert lines[0].endswith("(silently wrong when replayed)")
    assert "    self.scale = x.abs().amax()" in lines
    assert any(line.startswith("    instead: Update a registered buffer in place") for line in lines)
    assert lines[-1].startswith("policy.py:build: 1 silently wrong when replayed in ")


def test_nothing(rote, policy):
    done = rote("check", "policy.py:clean")
    assert done.exit_code == 0 and done.output.startswith("policy.py:clean: nothing found in ")


def test_several_targets(rote, policy):
    done = rote("check", "policy.py:clean", "policy.py:build", "--no-remedies")
    assert done.exit_code == 1 and len(done.output.splitlines()) == 2


def test_both_branches_of_a_value(rote, policy):
    done = rote("check", "policy.py:branch")
    assert done.exit_code == 1 and "policy.py:23:12: RT101" in done.output and "RT111" in done.output


def test_files_for_editors(rote, policy):
    done = rote("check", "policy.py:build", "--json", "found.json", "--sarif", "found.sarif")
    assert done.exit_code == 1
    content = json.loads((rote.folder / "found.json").read_text())
    assert [each["code"] for each in content["findings"]] == ["RT212"] and not content["ok"]
    sarif = json.loads((rote.folder / "found.sarif").read_text())
    (result,) = sarif["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "policy.py"


def test_baseline(rote, policy):
    done = rote("check", "policy.py:build", "--baseline", "known.json", "--write-baseline")
    assert done.exit_code == 0 and "1 findings written to known.json" in done.output
    policy.write_text("# one line more\n" + policy.read_text())
    done = rote("check", "policy.py:build", "--baseline", "known.json")
    assert done.exit_code == 0 and "nothing found" in done.output


def test_static(rote):
    forward = "    def forward(self, x):\n        return x * x.sum().item()"
    text = f"import torch\n\nclass L(torch.nn.Module):\n{forward}"
    rote.write("layer.py", text + "\n")
    done = rote("check", "layer.py", "--static")
    assert done.exit_code == 1 and "layer.py:5:" in done.output and "RT101" in done.output
    rote.write(
        "layer.py",
        (rote.folder / "layer.py").read_text().replace(".item()", ".item()  # rote: ignore[RT101]"),
    )
    assert rote("check", ".", "--static").exit_code == 0


TWO = """\
import torch

def fn(x, read):
    y = x.sum().item() if read else 2  # rote: ignore[RT101]
    return x * y

def reading():
    return fn, (torch.ones(3), True)

def plain():
    return fn, (torch.ones(3), False)
"""


def test_a_comment_that_silences_nothing_is_told_and_is_no_error(rote):
    rote.write("two.py", TWO)
    done = rote("check", "two.py:plain", "--json", "found.json")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[0] == (
        "two.py:4:40: note: ignore[RT101] silences nothing, in this call at least"
    )
    assert len(json.loads((rote.folder / "found.json").read_text())["remarks"]) == 1
    for targets in (["two.py:reading"], ["two.py:plain", "two.py:reading"]):  # one of them makes use of it
        assert "note:" not in rote("check", *targets).output
    rote.write("two.py", TWO.replace(".item()", ".mean()"))
    done = rote("check", "two.py", "--static")
    assert done.exit_code == 0 and "two.py:4:40: note: ignore[RT101] silences nothing that" in done.output


def test_an_entry_of_a_baseline_that_silences_nothing_is_told(rote, policy):
    rote("check", "policy.py:build", "--baseline", "known.json", "--write-baseline")
    policy.write_text(policy.read_text().replace("self.scale", "scale"))
    for arguments, status in ((["policy.py:build"], 0), (["--static", "policy.py"], 1)):  # it reads all of it
        done = rote("check", *arguments, "--baseline", "known.json")
        assert done.exit_code == status
        assert (
            ": note: the entry for RT212 in policy.py silences nothing: its source line is gone"
            in done.output
        )
    done = rote("check", "policy.py:build", "--baseline", "known.json", "--write-baseline")
    assert "note:" not in done.output


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["missing.py:build"], "there is no file missing.py"),
        (["policy.py:nothing"], "policy.py has no function 'nothing'. It has:"),
        (["policy.py:build", "--arg", "width"], "--arg 'width' is not of the form name=value"),
        (["policy.py:build", "--arg", "width=-1"], "policy.py:build raised RuntimeError"),
        (["policy.py:build", "--write-baseline"], "--write-baseline needs --baseline FILE"),
        (["policy.py:build", "--baseline", "no.json"], "there is no baseline no.json"),
        (["missing", "--static"], "missing"),
        (["policy.py:build", "--static"], "--static reads whole files and folders: policy.py"),
        (
            ["policy.py:build", "--json", "no/out.json"],
            "no/out.json cannot be written: there is no folder no",
        ),
        (
            ["policy.py:build", "--json", "-", "--sarif", "-"],
            "- leaves room here for one of --json and --sarif",
        ),
        (["policy.py:build", "--json", "-", "--fix"], "and for nothing else"),
    ],
)
def test_what_cannot_be_checked(rote, policy, arguments, message):
    done = rote("check", *arguments)
    assert done.exit_code == 2 and message in done.output, done.output


def test_a_target_that_never_ends(rote):
    rote.write(
        "slow.py",
        "import signal, time\n"
        "def wait():\n"
        "    signal.setitimer(signal.ITIMER_REAL, 0.01, 1.0)\n"  # the time is up now, however long it took
        "    time.sleep(600)\n"
        "def build():\n"
        "    return wait, ()\n",
    )
    done = rote("check", "slow.py:build", "--timeout", "600")
    assert done.exit_code == 1 or done.exit_code == 2
    assert "the time limit of 600 s was reached at slow.py:4" in done.output
    rote.write("slow2.py", "import time\ntime.sleep(60)\ndef build():\n    return max\n")
    done = rote("check", "slow2.py:build", "--timeout", "0.5")
    assert done.exit_code == 2 and "while the target was being built" in done.output
    assert done.output.splitlines()[-1] == "slow2.py:build: nothing found before it ended early"


def test_a_target_that_needs_a_gpu_at_import(rote):
    rote.write(
        "gpu.py",
        "import torch\n"
        "assert torch.cuda.is_available()\n"
        "TABLE = torch.arange(8, device='cuda')\n"
        "MAJOR, _ = torch.cuda.get_device_capability()\n"
        "def build():\n    return (lambda x: x + TABLE), (torch.zeros(8, device='cuda'),)\n",
    )
    assert rote("check", "gpu.py:build").exit_code == 0


def test_a_target_that_prints(rote):
    rote.write("loud.py", "print('hello')\ndef build():\n    return (lambda: print('x' * 100)), ()\n")
    done = rote("check", "loud.py:build")
    assert done.exit_code == 0 and "the target printed 208 characters" in done.output
    assert "hello" not in done.output


def test_explain(rote):
    done = rote("explain", "rt101")
    assert done.exit_code == 0 and done.output.startswith("RT101: host read\n")
    assert "Why:" in done.output and "Instead:" in done.output and "Good:" in done.output
    assert rote("explain", "RT143").output.startswith("RT143: ")
    done = rote("explain", "RT000")
    assert done.exit_code == 2 and "there is no rule 'RT000'" in done.output


def test_what_the_process_does_to_itself(rote):
    rote.write("gone.py", "import os\ndef build():\n    return (lambda: os._exit(3)), ()\n")
    done = rote("check", "gone.py:build")
    assert done.exit_code == 2 and "the check ended early: its process ended with status 3" in done.output
    rote.write("leaves.py", "def build():\n    return (lambda: exit(3)), ()\n")
    done = rote("check", "leaves.py:build")
    assert done.exit_code == 1 and "RT161 the callable raises SystemExit: 3" in done.output


def test_a_callable_that_raises_outside_of_python(rote):
    rote.write("c.py", "def build():\n    return len, (3,)\n")
    done = rote("check", "c.py:build")
    assert (
        done.exit_code == 1 and "RT161 the callable raises TypeError: object of type 'int' has" in done.output
    )


def test_json_and_sarif_for_a_pipe(rote, policy):
    rote.write("loud.py", "def build():\n    return (lambda: print('hello')), ()\n")
    done = rote("check", "policy.py:build", "loud.py:build", "--json", "-")
    assert done.exit_code == 1 and [each["code"] for each in json.loads(done.stdout)["findings"]] == ["RT212"]
    assert "the target printed 12 characters" in done.stderr
    done = rote("check", "--static", "policy.py", "--sarif", "-")
    assert json.loads(done.stdout)["version"] == "2.1.0" and done.stdout.startswith("{")


def test_lines_are_for_editors_on_any_terminal(rote, policy, monkeypatch):
    """One line each, however narrow the terminal is, and no colour even where it is asked for."""
    usual = rote("check", "policy.py:build").output
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert rote("check", "policy.py:build").output == usual and "\x1b" not in usual
    assert re.match(
        r"policy\.py:\d+:\d+: RT\d{3} .+ \(silently wrong when replayed\)\n    self\.scale", usual
    )


def test_a_file_that_is_not_python_hides_no_other(rote):
    rote.write("nets/good.py", "def f(x):\n    return x.sum().item()\n")
    rote.write("nets/bad.py", "def f(:\n")
    (rote.folder / "nets" / "old.py").write_bytes(b"x = '\xff'\n")
    (rote.folder / "nets" / "latin.py").write_bytes(
        b"# -*- coding: latin-1 -*-\nname = '\xe9'\ndef f(x):\n    return x.sum().tolist()\n"
    )
    result = rote("check", "--static", "nets")
    assert result.exit_code == 1
    assert "good.py:2:12: RT101" in result.stdout and "latin.py:4:12: RT102" in result.stdout
    assert "bad.py:1: this is not Python" in result.stderr and "old.py: this is not" in result.stderr
    (rote.folder / "nets" / "good.py").unlink()
    (rote.folder / "nets" / "latin.py").unlink()
    assert rote("check", "--static", "nets").exit_code == 2
    rote.write("nets/good.py", "import torch\ndef f(x):\n    return x * torch.tensor(2.0, device=x.device)\n")
    assert "1 fix in 1 file written" in rote("check", "--static", "--fix", "--yes", "nets").stdout


def test_notebooks_are_told_apart(rote):
    rote.write("net.ipynb", '{"cells": []}')
    for arguments in (("--static", "net.ipynb"), ("net.ipynb:build",)):
        result = rote("check", *arguments)
        assert result.exit_code == 2 and "jupyter nbconvert --to script net.ipynb" in result.stderr
