"""The measurements that are in the repository, as tables: one for each case, the newest of each device."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def tables() -> str:
    """A section for each device and case."""
    parts: list[str] = []
    for folder in sorted((path for path in RESULTS.iterdir() if path.is_dir()), reverse=True):
        cases: dict[str, tuple[Path, dict[str, Any], dict[str, Any]]] = {}
        for path in sorted(folder.glob("*.json")):
            document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            for name, case in document.get("cases", {}).items():
                if isinstance(case, dict) and case.get("rows"):
                    better = len(case["rows"]) >= len(cases[name][2]["rows"]) if name in cases else True
                    cases[name] = (path, document, case) if better else cases[name]
        parts += [_section(name, *found) for name, found in sorted(cases.items())]
    return "\n\n".join(parts)


def _section(name: str, path: Path, document: dict[str, Any], case: dict[str, Any]) -> str:
    versions = document["versions"]
    where = (
        document["device"] if not name.startswith("host_") else versions["processor"]
    )  # not the GPU beside it
    lines = [
        f"## {name}, {where}",
        "",
        *_about(name),
        f"torch {versions['torch']}, Python {versions['python']}; "
        f"`benchmarks/results/{path.parent.name}/{path.name}`.",
        "",
        "| work | way | median | 99th percentile | host |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in case["rows"]:
        times = (row["median_us"], row["p99_us"], row.get("host_us"))
        lines.append(f"| {row['subject']} | {row['way']} | {' | '.join(map(duration, times))} |")
    failed = [what for what, holds in case.get("checks", {}).items() if not holds]
    if failed:
        lines += ["", f"Checks that failed: {'; '.join(failed)}."]
    return "\n".join(lines)


def _about(name: str) -> list[str]:
    """What a case measures: the first paragraph of its module."""
    path = RESULTS.parent / f"{name}.py"
    told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) if path.is_file() else None
    return [told.split("\n\n")[0], ""] if told else []


def fuzzing() -> str:
    """The newest long runs of random programs on each device."""
    lines = ["| device | torch | seed | scenes | calls | replayed | failures | file |", "| --- " * 8 + "|"]
    for folder in sorted(path for path in RESULTS.iterdir() if path.is_dir()):
        found = sorted(folder.glob("*-fuzz.json"))
        document: dict[str, Any] = (
            json.loads(found[-1].read_text(encoding="utf-8")) if found else {"runs": []}
        )
        for run in document.get("runs", [document]):
            cells = (
                run["device"], run["torch"], run["seed"], f"{run['wanted']:,}", f"{run['calls']:,}",
                f"{run['replayed share']:.0%}", len(run["failures"]), f"`{folder.name}/{found[-1].name}`",
            )  # fmt: skip
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def duration(us: float | None) -> str:
    """A time with its unit and three digits, nothing for None."""
    if us is None:
        return ""
    value, unit = (us / 1e6, "s") if us >= 1e6 else (us / 1e3, "ms") if us >= 1e3 else (us, "us")
    return f"{value:.3g} {unit}" if value < 100 else f"{value:.0f} {unit}"
