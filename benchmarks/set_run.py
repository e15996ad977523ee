"""Measure the benchmark set: ``python -m benchmarks.set_run [--only pi0,llama] [--limit 1500]``.

Each program goes through ``rote bench`` in processes of its own, one program after the other: nothing else is
measured meanwhile. Results are merged into ``benchmarks/results/<gpu or "host">/<date>-set.json`` after each
program, so a run that is killed loses one program, and a set can be measured in several runs: what was not
run keeps its earlier figures. What fails, is stopped because the time is up, or was asked for and not begun,
is kept with the reason. At the end the page in the docs is written anew, unless ``--out`` is given.

The time of a program is that of its slowest ways, which are the compilers: ``--patience`` bounds each way's
first calls. A way that takes longer is a row with that reason, and the others go on. In little time,
``--compilers-last`` measures every program without them, then, from the first on, with them as long as time
lasts; the later report, with all ways in one run, takes the earlier one's place.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import torch

from . import common, set_page
from .set import BENCH, ROWS, Row

ROOT = Path(__file__).resolve().parents[1]
LEAST_S = 20.0
"""A program is not begun with less time than this left."""

TIME_IS_UP = "not done in"
NOT_BEGUN = "not begun before the time was up"
UNDONE = (TIME_IS_UP, NOT_BEGUN)

PROFILED = ("verdict", "idle_share", "gain", "total_us", "host_us", "busy_us", "operations", "kernels")
"""What is kept of a profile."""

TOLD = "rote: "
"""So begins what the command line says of a target that cannot be measured."""

QUICK = "eager,by-hand,make_graphed_callables,rote"
"""The ways that take seconds to be made; those of ``torch.compile`` take minutes."""

GOODBYE_S = 20.0
"""For a benchmark to stop its processes when its time is up."""


def main(argv: list[str] | None = None) -> int:
    """Measure what the command line asks for; 1 if rote's results differ anywhere."""
    options = parse(argv)
    rows = chosen(options.only)
    if not rows:
        print(f"--only {options.only} names nothing of: {', '.join(row.name for row in ROWS)}")
        return 2
    end = time.monotonic() + options.limit
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = [row for row in rows if device.type == "cuda" or not row.needs_gpu]
    header = {"date": datetime.now(UTC).date().isoformat(), "device": common.device_name(device)}
    out = (
        options.out
        or ROOT / "benchmarks" / "results" / common.folder_name(device) / f"{header['date']}-set.json"
    )
    rounds: list[str | None] = [QUICK, None] if options.compilers_last else [options.ways]
    differs, undone = False, [row.name for row in rows]
    nothing = {"skipped": NOT_BEGUN, **_stamp(options), "machine": {}}
    for row in rows:  # before the first is measured: whatever ends this run, they are named
        merge(out, header, row, nothing)
    for ways, (number, row) in product(rounds, enumerate(rows, 1)):
        left = end - time.monotonic()
        if left < LEAST_S + (2 * options.patience if ways is None and options.compilers_last else 0):
            break
        print(f"[{number}/{len(rows)}] {row.name}, {left:.0f} s left", flush=True)
        entry = measure(row, options, left, ways)
        differs |= entry.get("report", {}).get("rote_differs", False)
        merge(out, header, row, entry)
        print(f"    {entry['took_s']:.0f} s: {summary(entry)}", flush=True)
        if not is_stopped(entry) and row.name in undone:
            undone.remove(row.name)
    if undone:
        print(f"time is up; still to do: --only {','.join(undone)}")
    print(f"results in {out}" if out.exists() else "nothing measured")
    if options.out is None:
        set_page.main([])
    return int(differs)


def _terminated(*_: object) -> None:
    """Stop what was started, too: the processes are in sessions of their own."""
    raise SystemExit(128 + signal.SIGTERM)


def measure(row: Row, options: argparse.Namespace, left: float, which: str | None = None) -> dict[str, Any]:
    """One program's report, or why there is none, with versions and the machine's state.

    Args:
        row: The program.
        options: Those of the run.
        left: Seconds for it.
        which: Ways, as in ``--ways``; None for all.
    """
    start, before = time.monotonic(), common.machine_state()
    end = start + left
    arguments = {**row.arguments, **({"small": True} if options.small else {})}
    given = [part for name, value in arguments.items() for part in ("--arg", f"{name}={value}")]
    ways = ["--only", which] if which else []
    entry: dict[str, Any] = {}
    if options.profile and row.runner == BENCH:
        found, _ = figures(["rote", "profile", row.full_target, *given], left)
        entry["profile"] = found and {name: found[name] for name in PROFILED}
    bounds = ["--seconds", str(options.seconds), "--limit", str(options.patience)]
    bounds += ["--settle", str(options.settle)] if row.runner == BENCH else []
    asked = [*row.command(), *given, *bounds, *ways]
    found, why = figures(asked, end - time.monotonic())
    entry |= {"report": found} if found else {"skipped": why}
    took, after = time.monotonic() - start, common.machine_state()
    return {
        **entry,
        "took_s": round(took, 1),
        **_stamp(options),
        "machine": {"before": before, "after": after},
    }


def _stamp(options: argparse.Namespace) -> dict[str, Any]:
    """When, with what, and whether at full size."""
    return {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "small": options.small,
        "versions": common.versions(),
    }


def figures(module: list[str], limit: float) -> tuple[dict[str, Any] | None, str]:
    """What a module writes with ``--json``; if it writes nothing, why."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        status, words = run([sys.executable, "-m", *module, "--json", str(path)], limit)
        if path.exists():
            return json.loads(path.read_text()), ""
    return None, f"{TIME_IS_UP} {limit:.0f} s" if status is None else f"exit status {status}: {words}"


def run(command: list[str], limit: float) -> tuple[int | None, str]:
    """Run a command in the repository; its exit status, None if it had to be stopped, and its last words.

    Those are its last line, or the line in which ``rote`` begins to say why it could not do its work.
    """
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            status: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
            stop(process)
        except BaseException:  # nobody is left to measure for
            stop(process)
            raise
        log.seek(0)
        lines = [line.strip() for line in log.read().splitlines() if line.strip()]
    said = [line.removeprefix(TOLD) for line in lines if line.startswith(TOLD)]
    return status, (said or lines or ["no output"])[-1]


def stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt it, so that it stops what it has started; kill it if it does not."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(GOODBYE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def merge(path: Path, header: dict[str, Any], row: Row, entry: dict[str, Any]) -> None:
    """Put one program's entry into the result file. That the time was up replaces no figures."""
    path.parent.mkdir(parents=True, exist_ok=True)
    old = json.loads(path.read_text()) if path.exists() else {}
    same = all(old.get(key) == value for key, value in header.items())
    rows = old.get("rows", {}) if same else {}
    key = row.key(entry["versions"])
    rows[key] = rows[key] if is_stopped(entry) and "report" in rows.get(key, ()) else entry
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({**header, "rows": rows}, indent=1) + "\n")
    fresh.replace(path)  # or a kill at this moment would lose all


def is_stopped(entry: dict[str, Any]) -> bool:
    """Whether a program was not measured because the time was up."""
    return entry.get("skipped", "").startswith(UNDONE)


def summary(entry: dict[str, Any]) -> str:
    """One line for people."""
    if "skipped" in entry:
        return f"skipped: {entry['skipped']}"
    parts: list[str] = []
    for row in entry["report"]["rows"]:
        us = row["median_us"]
        parts.append(f"{row['name']} {'-' if us is None else f'{us:,.1f} us'}")
    return ", ".join(parts) + (" ROTE DIFFERS" if entry["report"]["rote_differs"] else "")


def chosen(only: str | None) -> list[Row]:
    """The programs that are asked for: a comma-separated list of names, or of their beginnings."""
    if only is None:
        return list(ROWS)
    found: list[Row] = []
    for part in filter(None, map(str.strip, only.split(","))):
        exact = [row for row in ROWS if row.name == part]
        found += exact or [row for row in ROWS if row.name.startswith(part)]
    return [row for row in ROWS if row in found]


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.set_run", description="Measure the benchmark set."
    )
    parser.add_argument("--only", metavar="A,B", help="programs whose names begin so; default: all")
    parser.add_argument("--ways", metavar="A,B", help="as --only of rote bench: eager, rote, by-hand, ...")
    parser.add_argument(
        "--compilers-last", action="store_true", help="all programs without torch.compile, then with it"
    )
    parser.add_argument("--limit", type=float, default=3 * 3600, help="seconds for the whole run")
    parser.add_argument("--patience", type=float, default=300, help="seconds for a way's first calls")
    parser.add_argument("--settle", type=float, default=60, help="seconds until calls become no faster")
    parser.add_argument("--seconds", type=float, default=10.0, help="of timed calls for each program")
    parser.add_argument("--profile", action="store_true", help="run rote profile on each program, too")
    parser.add_argument(
        "--small", action="store_true", help="small sizes: whether everything works, not a result"
    )
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/<gpu or host>/<date>-set.json")
    return parser.parse_args(argv)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)
    sys.exit(main())
