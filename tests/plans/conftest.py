from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def process(warm_python):
    """Runs a program of :mod:`tests.plans.programs` in a process of its own, and gives what it told."""

    def run(name, directory, calls, *words, **variables):
        command = [sys.executable, "-m", "tests.plans.programs", name, str(directory), str(calls), *words]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **variables}
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run
