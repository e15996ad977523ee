"""The command line as a whole."""

import subprocess
import sys

import rote as package


def test_version_and_help(rote):
    assert rote("--version").output.strip() == package.__version__
    assert "CUDA graphs" in rote("--help").output


def test_as_a_module():
    done = subprocess.run([sys.executable, "-m", "rote", "--version"], capture_output=True, text=True)
    assert done.stdout.strip() == package.__version__ and not done.stderr


def test_without_the_extra():
    code = "import sys; sys.modules['typer'] = None; from rote.cli.entry import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and "pip install 'rote[cli]'" in done.stderr
