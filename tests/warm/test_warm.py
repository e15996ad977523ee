"""Programs see of the process that has imported PyTorch what they would see of one of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.warm.client import at_start

pytestmark = [
    pytest.mark.usefixtures("warm_python"),
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux"),
]

SHOW = "import json, os, sys; print(json.dumps([sys.argv, sys.path[0], os.getcwd(), os.environ.get('SEEN')]))"


def program(*arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
    how.setdefault("env", served())
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, **how)


def served() -> dict[str, str]:
    """Variables with which a program starts warm, whatever another test has left among them."""
    first = json.loads(Path(sys.executable).with_name("socket.json").read_text())
    early = at_start(dict(os.environ))
    return {key: value for key, value in os.environ.items() if key not in early} | first


def test_arguments_folder_and_variables(tmp_path: Path) -> None:
    (tmp_path / "shown.py").write_text(SHOW)
    how: Any = {"cwd": tmp_path, "env": {**served(), "SEEN": "yes"}}
    folder, script = str(tmp_path), str(tmp_path / "shown.py")
    for arguments, argv, first in (
        (["-c", SHOW], ["-c", "a"], ""),
        (["-m", "shown"], [script, "a"], folder),
        ([script], [script, "a"], folder),
    ):
        told = f'[["{argv[0]}", "a"], "{first}", "{folder}", "yes"]\n'
        assert program(*arguments, "a", **how).stdout == told


def test_it_has_imported_pytorch_and_not_rote() -> None:
    code = "import sys; print('torch' in sys.modules, 'rote' in sys.modules, __name__)"
    assert program("-c", code).stdout == "True False __main__\n"


def test_streams_and_what_runs_at_the_end() -> None:
    code = "import atexit; atexit.register(print, 'end'); print(input()); raise SystemExit('no')"
    done = program("-c", code, input="given\n")
    assert (done.returncode, done.stdout, done.stderr) == (1, "given\nend\n", "no\n")


def test_how_it_ends() -> None:
    assert program("-c", "import os; os.kill(os.getpid(), 9)").returncode == -signal.SIGKILL
    assert program("-c", "raise SystemExit(7)").returncode == 7
    failed = program("-c", "1 / 0")
    assert failed.returncode == 1 and failed.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_options_of_the_interpreter_are_its_own() -> None:
    assert program("-S", "-c", "import sys; print('site' in sys.modules)").stdout == "False\n"
    environment = {**os.environ, "PYTHONHASHSEED": "3"}
    code = "import sys; print('torch' in sys.modules)"
    assert program("-c", code, env=environment).stdout == "False\n"


WAITS = """
import os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
try:
    print(os.getpid(), flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_signals_are_those_of_the_program() -> None:
    process = subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE, text=True, env=served())
    assert process.stdout is not None and process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.communicate() == ("interrupted\n", None) and process.returncode == 0


def test_it_ends_with_its_client() -> None:
    process = subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE, text=True, env=served())
    assert process.stdout is not None
    number = int(process.stdout.readline())
    process.kill()
    assert process.wait() == -signal.SIGKILL
    with process.stdout, contextlib.suppress(ProcessLookupError):
        while True:
            os.kill(number, 0)
            time.sleep(0.01)
