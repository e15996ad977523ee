"""The command line as a whole."""

import subprocess
import sys

import pytest

import rote as package
from rote.base.picture import NO_MATPLOTLIB
from rote.cli import output


def test_version_and_help(rote):
    assert rote("--version").output.strip() == package.__version__
    assert "CUDA graphs" in rote("--help").output


@pytest.mark.usefixtures("warm_python")
def test_as_a_module():
    done = subprocess.run([sys.executable, "-m", "rote", "--version"], capture_output=True, text=True)
    assert done.stdout.strip() == package.__version__ and not done.stderr


@pytest.mark.usefixtures("warm_python")
def test_without_the_extra():
    code = "import sys; sys.modules['typer'] = None; from rote.cli.entry import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and "pip install 'rote[cli]'" in done.stderr


@pytest.mark.usefixtures("warm_python")
def test_what_nobody_expected_has_not_the_status_of_a_finding():
    code = "from rote.cli import entry; entry.run = lambda: 1 / 0; entry.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and "ZeroDivisionError" in done.stderr


@pytest.mark.parametrize("command", ["bench", "profile"])
@pytest.mark.parametrize(
    "option, place, message",
    [
        ("--json", "no/such.json", "no/such.json cannot be written: there is no folder no"),
        ("--json", ".", ". cannot be written: it is a folder"),
        ("--plot", "no/such.png", "no/such.png cannot be written: there is no folder no"),
        ("--plot", "times.xyz", "times.xyz cannot be written: pictures are PNG files, as times.png"),
        ("--plot", "times", "times cannot be written: pictures are PNG files, as times.png"),
    ],
)
def test_a_place_where_nothing_can_be_written(rote, command, option, place, message):
    """Said before the target is looked at, which may take minutes."""
    done = rote(command, "absent.py:build", option, place)
    assert (done.exit_code, done.stderr) == (2, f"rote: {message}\n")


@pytest.mark.parametrize("command", ["bench", "profile"])
def test_a_picture_without_matplotlib(rote, command, monkeypatch):
    monkeypatch.setattr(output, "find_spec", lambda name: None)
    done = rote(command, "absent.py:build", "--plot", "times.png")
    assert (done.exit_code, done.stderr) == (2, f"rote: {NO_MATPLOTLIB}\n")
