"""Starts a module as several processes that meet by a file."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

RANKS = 2
ROOT = Path(__file__).parents[2]
LIMIT_S = 280
"""Seconds for each rank, as they may share a core; only what hangs takes as long."""


def started(
    python: str, module: str, file: Path, *more: str, ranks: int = RANKS, ends: tuple[int, ...] = ()
) -> list[tuple[dict[str, Any], str]]:
    """What each rank has said in lines of JSON, by their names, and its errors.

    ``ends`` are the signals that may have ended them.
    """
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    surroundings = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    surroundings["NCCL_GRAPH_REGISTER"] = "0"
    command = [python, "-W", "ignore", "-m", module]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(file), *more],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=surroundings, cwd=ROOT,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    said: list[tuple[dict[str, Any], str]] = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=LIMIT_S * ranks)
            assert process.returncode >= 0 or -process.returncode in ends, err
            lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
            said.append(({line["name"]: line for line in lines}, err))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return said
