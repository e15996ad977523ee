"""Run the cases, print a table, keep the JSON: ``python -m benchmarks.run [--case NAME ...] [--out PATH]``.

Results go to ``benchmarks/results/<gpu or "host">/<date>.json``. A file that is already there and was made
with the same versions on the same device keeps the cases that were not run again.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import traceback
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from . import common
from .common import Outcome, Settings

CASES = (
    "overhead",
    "hot_path",
    "guards",
    "words",
    "recording",
    "linear_sgd",
    "adamw",
    "numbers",
    "backward",
    "host_mlp",
    "host_decoder",
    "soak",
    "unsettled",
    "plans",
    "compiled",
    "attention",
    "tiers",
    "chosen",
    "chosen_w4a8",
    "chosen_products",
    "proofs",
    "serving",
    "pi0",
)  # the heaviest last


def main(argv: list[str] | None = None) -> int:
    """Measure what the command line asks for; 1 if a check or a case failed."""
    options = parse(argv)
    # Host cases are measured on one thread: with two, idle OpenMP workers spin and drown a 0.3 ms step.
    torch.set_num_threads(1)
    settings = Settings(torch.device(options.device), quick=options.quick, peers=options.peers)
    header = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": common.device_name(settings.device),
        "versions": common.versions(),
    }
    out = options.out or _default_path(header["date"], settings.device)
    failed = False
    for name in options.case or CASES:
        entry = run_case(name, settings)
        failed |= "error" in entry or not all(entry.get("checks", {}).values())
        print(table(name, entry), flush=True)
        if "skipped" not in entry:
            write(out, header, name, entry)  # after every case, so that a crash later loses nothing
    print(f"\nresults in {out}" if out.exists() else "\nnothing measured")
    return int(failed)


def run_case(name: str, settings: Settings) -> dict[str, Any]:
    """One case as plain data; a case that cannot run says why instead of ending the run."""
    try:
        module = importlib.import_module(f"{__package__}.{name}")
    except ModuleNotFoundError as error:
        return {"skipped": f"needs the package {error.name}"}
    if module.NEEDS_GPU and not settings.on_gpu:
        return {"skipped": "needs a GPU"}
    before = common.machine_state()
    try:
        outcome: Outcome = module.run(settings)
    except Exception as error:
        traceback.print_exc()
        return {"error": common.first_line(error)}
    finally:
        if settings.on_gpu:
            torch.cuda.empty_cache()
    state = {"before": before, "after": common.machine_state()}
    made = {"finished": datetime.now(UTC).isoformat(timespec="seconds"), "quick": settings.quick}
    return {**asdict(outcome), **made, "machine": state}


def write(path: Path, header: dict[str, Any], name: str, entry: dict[str, Any]) -> None:
    """Put one case into the result file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    old = json.loads(path.read_text()) if path.exists() else {}
    same = all(old.get(key) == header[key] for key in ("device", "versions"))
    cases = old.get("cases", {}) if same else {}
    path.write_text(json.dumps({**header, "cases": {**cases, name: entry}}, indent=2) + "\n")


def table(name: str, entry: dict[str, Any]) -> str:
    """What one case found, for people."""
    lines = [f"\n{name}"]
    for reason in ("skipped", "error"):
        if reason in entry:
            return f"{lines[0]}: {reason}: {entry[reason]}"
    for row in entry["rows"]:
        host = f"  host {row['host_us']:9.1f} us" if "host_us" in row else ""
        times = f"{_duration(row['median_us'])}  p99 {_duration(row['p99_us'])}{host}"
        lines.append(f"  {row['subject']:<28} {row['way']:<24} {times}")
    lines += [f"  {what:<53} {value:9.3f}" for what, value in entry["ratios"].items()]
    lines += [f"  {what:<53} {'yes' if holds else 'NO':>9}" for what, holds in entry["checks"].items()]
    lines += [f"  {what}: {_short(value)}" for what, value in entry["facts"].items()]
    return "\n".join(lines)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run", description="Measure rote against its peers."
    )
    parser.add_argument("--case", action="extend", nargs="+", choices=CASES, help="default: all")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/<gpu or host>/<date>.json")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--peers", action="store_true", help="measure torch.compile and raw capture too (minutes)"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the repetitions")
    return parser.parse_args(argv)


def _default_path(date: str, device: torch.device) -> Path:
    return Path(__file__).parent / "results" / common.folder_name(device) / f"{date}.json"


def _duration(us: float) -> str:
    return f"{us / 1e3:9.2f} ms" if us >= 1e4 else f"{us:9.1f} us"


def _short(value: Any) -> str:
    """A fact on one line; lists are only counted, the JSON has them in full."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_short(each)}" for key, each in value.items())
    if isinstance(value, list):
        plain = [_short(each) for each in value if isinstance(each, dict)]
        return f"[{'; '.join(plain)}]" if plain else str(len(value))
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if type(value) is int else str(value)


if __name__ == "__main__":
    sys.exit(main())
