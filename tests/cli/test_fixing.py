"""``rote check --fix``, of files and of targets."""

from __future__ import annotations

import pytest

pytest.importorskip("libcst")

BAD = "import torch\n\n\ndef fn(x):\n    return x.exp() * torch.tensor(0.5, device=x.device)  # half\n"
GOOD = BAD.replace("torch.tensor(", "torch.full((), ")
DIFF = "-    return x.exp() * torch.tensor(0.5, device=x.device)  # half\n"


def test_the_diff_comes_first_and_nothing_is_written_without_a_yes(rote):
    file = rote.write("bad.py", BAD)
    done = rote("check", "--static", "--fix", file, input="n\n")
    assert (
        DIFF in done.output and "Write 1 fix in 1 file?" in done.output and "nothing written" in done.output
    )
    assert file.read_text() == BAD and done.exit_code == 1


def test_yes(rote):
    file = rote.write("bad.py", BAD)
    done = rote("check", "--static", "--fix", "--yes", rote.folder)
    assert DIFF in done.output and "1 fix in 1 file written" in done.output
    assert file.read_text() == GOOD
    assert done.exit_code == 0 and "nothing found" in done.output  # what is left after the fix
    again = rote("check", "--static", "--fix", "--yes", rote.folder)
    assert "nothing that can be fixed without a doubt" in again.output and again.exit_code == 0


def test_what_cannot_be_fixed_is_reported(rote):
    file = rote.write("bad.py", BAD + "\n\ndef other(x):\n    return x.exp().item()\n")
    done = rote("check", "--static", "--fix", "--yes", file)
    assert (
        done.exit_code == 1 and "RT101" in done.output and "RT124" not in done.output.partition("written")[2]
    )


def test_nobody_answers(rote):
    file = rote.write("bad.py", BAD)
    done = rote("check", "--static", "--fix", file)
    assert (
        done.exit_code == 2
        and "nothing was written, since nobody answered; --yes does not ask" in done.output
    )
    assert file.read_text() == BAD


def test_an_accepted_line_stays(rote):
    file = rote.write("bad.py", BAD.replace("# half", "# half  # rote: ignore[RT124]"))
    done = rote("check", "--static", "--fix", "--yes", file)
    assert "nothing that can be fixed without a doubt" in done.output and done.exit_code == 0


POLICY = """\
import torch
from torch import nn

from mine.parts import half


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, twice=False):
        self._scale = x.abs().amax()  # per tensor
        y = half(x / self._scale)
        if twice:
            y = y * torch.tensor(2.0, device=x.device)
        return self.linear(y) + y[y > 0].sum()  +  torch.zeros(4).to(x.device)


def build():
    return Policy(), (torch.randn(2, 4),)
"""
PARTS = """\
import torch


def half(x):
    return x * torch.tensor(  # the constant
        0.5,
        device=x.device,
    )


def third(x):
    return (x
            * torch.tensor([1, 1],
                           device=x.device).sum())
"""


@pytest.fixture
def policy(rote):
    rote.write("mine/__init__.py", "")
    rote.write("mine/parts.py", PARTS.replace("# the constant", ""))
    return rote.write("policy.py", POLICY)


def test_a_target_is_fixed_where_the_trial_found_something(rote, policy):
    done = rote("check", "--fix", "--yes", "policy.py:build")
    assert "4 fixes in 2 files written" in done.output, done.output
    assert "--- a/policy.py\n" in done.output and "+++ b/mine/parts.py\n" in done.output
    assert done.exit_code == 0 and done.output.splitlines()[-1].startswith("policy.py:build: nothing found")
    text = policy.read_text()
    assert "scale = x.abs().amax()  # per tensor\n        self._scale.copy_(scale.detach())\n" in text
    assert "+ torch.where(y > 0, y, 0).sum()  +  torch.zeros(4, device=x.device)\n" in text
    assert "y * torch.tensor(2.0, device=x.device)" in text  # no call came there
    parts = (rote.folder / "mine/parts.py").read_text()
    assert "return x * torch.full((), 0.5, device=x.device)\n" in parts and "torch.tensor([1, 1],\n" in parts
    again = rote("check", "--fix", "--yes", "policy.py:build")
    assert "nothing that can be fixed without a doubt" in again.output and again.exit_code == 0
    assert policy.read_text() == text and (rote.folder / "mine/parts.py").read_text() == parts


def test_a_comment_inside_of_an_expression_is_not_lost(rote, policy):
    rote.write("mine/parts.py", PARTS)
    done = rote("check", "--fix", "--yes", "policy.py:build")
    assert "3 fixes in 1 file written" in done.output and "mine/parts.py:5:16: RT124" in done.output
    assert done.exit_code == 1 and (rote.folder / "mine/parts.py").read_text() == PARTS


def test_a_target_is_asked_for_as_files_are(rote, policy):
    done = rote("check", "--fix", "policy.py:build", input="n\n")
    assert "Write 4 fixes in 2 files?" in done.output and "nothing written" in done.output
    assert done.exit_code == 1 and "RT212" in done.output and policy.read_text() == POLICY


def test_installed_packages_are_left_alone(rote, policy):
    (rote.folder / "site-packages").mkdir()
    (rote.folder / "mine").rename(rote.folder / "site-packages" / "mine")
    policy.write_text(f"import sys\nsys.path.insert(0, {str(rote.folder / 'site-packages')!r})\n" + POLICY)
    done = rote("check", "--fix", "--yes", "policy.py:build")
    assert "3 fixes in 1 file written" in done.output, done.output
    assert done.exit_code == 1 and "mine/parts.py:5:16: RT124" in done.output


def test_known_and_accepted_places_of_a_target_stay(rote, policy):
    policy.write_text(POLICY.replace("# per tensor", "# rote: ignore[RT212]"))
    rote("check", "policy.py:build", "--baseline", "known.json", "--write-baseline")
    done = rote("check", "--fix", "--yes", "policy.py:build", "--baseline", "known.json")
    assert "nothing that can be fixed without a doubt" in done.output and done.exit_code == 0
