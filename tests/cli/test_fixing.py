"""``rote check --static --fix``."""

from __future__ import annotations

import pytest

pytest.importorskip("libcst")

BAD = "import torch\n\n\ndef fn(x):\n    return x.exp() * torch.tensor(0.5, device=x.device)  # half\n"
GOOD = BAD.replace("torch.tensor(", "torch.full((), ")
DIFF = "-    return x.exp() * torch.tensor(0.5, device=x.device)  # half\n"


def test_the_diff_comes_first_and_nothing_is_written_without_a_yes(rote):
    file = rote.write("bad.py", BAD)
    done = rote("check", "--static", "--fix", file)  # the answer is missing
    assert DIFF in done.output and "Write 1 fix in 1 file?" in done.output
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


def test_only_with_files(rote):
    file = rote.write("bad.py", BAD)
    done = rote("check", "--fix", f"{file}:fn")
    assert done.exit_code == 2 and "--fix rewrites files: give it with --static" in done.output
