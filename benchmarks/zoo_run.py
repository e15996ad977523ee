"""Programs of many libraries, plain and graphed: ``python -m benchmarks.zoo_run [--only timm peft:lora]``.

Each program of ``benchmarks/zoo`` runs in a process of its own (:mod:`benchmarks.zoo_worker`), one after the
other. Results are merged into ``benchmarks/results/<gpu or "host">/zoo.json`` after each, so a corpus can be
run in parts, and a run that is killed loses one program. A program that cannot be imported, does not run
plainly, hangs or dies is a row that says so. At the end ``docs/zoo.md`` is written anew, unless ``--out`` is
given. ``make zoo`` does all that in an environment with the packages of ``benchmarks/zoo/requirements.txt``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from rote.bench import machine

from . import common, zoo_page, zoo_set

ROOT = Path(__file__).resolve().parents[1]
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


def main(argv: list[str] | None = None) -> int:
    """Measure; 1 if a graphed program was not what it is plainly."""
    options = parse(argv)
    device = torch.device(options.device)
    programs = zoo_set.chosen(options.only)
    if not programs:
        print(
            f"--only {' '.join(options.only)} names nothing of: {' '.join(p.key for p in zoo_set.programs())}"
        )
        return 2
    out: Path = options.out or zoo_page.RESULTS / common.folder_name(device) / "zoo.json"
    end, differs = time.monotonic() + options.limit, False
    for number, program in enumerate(programs, 1):
        if options.resume and program.key in rows(out):
            continue
        if time.monotonic() > end:
            print(f"time is up before {program.key}")
            break
        print(f"[{number}/{len(programs)}] {program.key}", end=" ", flush=True)
        entry = {**measure(program, options), **stamp(program)}
        merge(out, device, program, entry)
        print(summary(entry), flush=True)
        differs |= zoo_page.differs(entry)
    print(f"results in {out}")
    if options.out is None:
        zoo_page.main([])
    return int(differs)


def measure(program: zoo_set.Program, options: argparse.Namespace) -> dict[str, Any]:
    """The answer of a process of its own, or what became of that."""
    command = [sys.executable, "-m", f"{__package__}.zoo_worker", program.key, "--device", options.device]
    command += [
        "--calls",
        str(options.calls),
        "--seconds",
        str(options.seconds),
        "--memory",
        str(options.memory),
    ]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, **OFFLINE, "PYTHONPATH": paths}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        said, complained = process.communicate(timeout=options.timeout)
    except subprocess.TimeoutExpired:
        stop(process)
        return {"outcome": "stopped", "detail": f"not done in {options.timeout:.0f} s"}
    except BaseException:  # nobody is left to measure for
        stop(process)
        raise
    if said:
        return json.loads(said)
    last = (complained.strip().splitlines() or ["no output"])[-1]
    return {"outcome": "died", "detail": f"exit status {process.returncode}: {last[:300]}"}


def stop(process: subprocess.Popen[str]) -> None:
    """End the process and what it has started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def stamp(program: zoo_set.Program) -> dict[str, Any]:
    """What was run, when, and with which versions."""
    return {
        "title": program.title,
        "version": machine.version(program.library),
        "torch": torch.__version__,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def rows(path: Path) -> dict[str, Any]:
    """The rows of a file of results; none if there is no such file."""
    return json.loads(path.read_text())["rows"] if path.exists() else {}


def merge(path: Path, device: torch.device, program: zoo_set.Program, entry: dict[str, Any]) -> None:
    """Put one row into the file of results."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = rows(path) | {program.key: entry}
    document = {
        "device": common.device_name(device),
        "versions": common.versions(),
        "rows": dict(sorted(found.items())),
    }
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(document, indent=1) + "\n")
    fresh.replace(path)  # or a kill at this moment would lose all


def summary(entry: dict[str, Any]) -> str:
    """One line for people."""
    if entry["outcome"] != "compared":
        return f"{entry['outcome']}: {entry['detail']}"
    said = "DIFFERS" if zoo_page.differs(entry) else "differs as plain runs do"
    same = "equal" if entry["equal"] else f"{said}: {entry['difference']}"
    reasons = "; ".join(
        f"{each['code']} {each['message'].splitlines()[0]} ({each['where']}) x{each['count']}"
        for each in entry["reasons"][:2]
    )
    return (
        f"{same}, {entry['calls']} calls of {entry['plain_us']} us, {entry['replayed']:.0%} replayed, "
        f"{entry.get('first')} then {entry.get('afterwards')} ({entry.get('late')}) of plain. {reasons}"
    )


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo_run", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="libraries, or library:function; default: all"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--calls", type=int, default=300, help="of each program, each way")
    parser.add_argument("--seconds", type=float, default=60.0, help="for a program's calls")
    parser.add_argument(
        "--timeout", type=float, default=150.0, help="seconds after which a program is stopped"
    )
    parser.add_argument(
        "--memory", type=float, default=8.0, help="GiB for a program on the host; 0 for no limit"
    )
    parser.add_argument("--limit", type=float, default=7200.0, help="seconds after which no program is begun")
    parser.add_argument("--resume", action="store_true", help="run what the file of results lacks")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/<gpu or host>/zoo.json")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
