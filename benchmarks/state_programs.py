"""Programs whose Python state changes, in three ways: ``python -m benchmarks.state_programs``.

Each program of ``tests/state_programs`` is run plainly twice (is it deterministic?), by rote, and by
``torch.compile(backend="eager")``, whose guards come from what Dynamo's interpreter read. Every run is a
process of its own, forked from one that has imported everything: what a program leaves broken, a hang or a
crash cost that run and nothing else. What rote does otherwise than in the results that are kept is printed
first.

An outcome is ``right``, ``wrong`` (silently) or ``refused`` (an exception that the plain program does not
raise, a hang, a crash). With ``--list`` the wrong and refused ones are printed with their first difference.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from tests.footguns.outcome import run
from tests.footguns.ways import WAYS, Rote
from tests.state_programs.program import POINTS, StateProgram
from tests.state_programs.suite import PROGRAMS

from . import common, forked
from .footguns_page import RESULTS
from .footguns_worker import of_rote

COMPARED = ("eager", "rote", "dynamo")
Answers = dict[str, dict[str, dict[str, Any]]]


def _answer(program: StateProgram, way: str, device: torch.device) -> dict[str, Any]:
    made = WAYS[way](device)
    outcome = run(program, made, device)
    answer: dict[str, Any] = {"outcome": outcome.kind.value, "detail": outcome.detail[:300]}
    return answer | (of_rote(made) if isinstance(made, Rote) else {})


def measure(programs: Iterable[StateProgram], ways: Iterable[str], options: argparse.Namespace) -> Answers:
    """All programs by all ways, some processes at a time."""
    device = torch.device(options.device)
    works = {
        (program.label, way): partial(_answer, program, way, device) for program in programs for way in ways
    }
    answers: Answers = {label: {} for label, _ in works}
    for (label, way), answer in forked.run_all(works, options.jobs, options.timeout).items():
        answers[label][way] = answer
    return answers


def counts(programs: list[StateProgram], answers: Answers, ways: Iterable[str]) -> dict[str, Any]:
    """Of each way, how many programs came out how; of rote also how many were replayed."""
    found: dict[str, Any] = {}
    for way in ways:
        each = [answers[program.label][way] for program in programs]
        tally = Counter(answer["outcome"] for answer in each)
        found[way] = {kind: tally[kind] for kind in ("right", "wrong", "refused")}
        if way == "rote":
            found[way]["replayed"] = sum(
                answer["outcome"] == "right" and answer.get("replayed", 0) > 0 for answer in each
            )
            must = [program for program in programs if program.replays]
            found[way]["must replay"] = len(must)
            found[way]["must replay and did"] = sum(_did(answers[program.label]["rote"]) for program in must)
    return found


def _did(answer: dict[str, Any]) -> bool:
    return answer["outcome"] == "right" and bool(answer.get("replays"))


def report(programs: list[StateProgram], answers: Answers, ways: list[str], *, listed: bool) -> str:
    """The counts as a table, by point; then what is not right."""
    lines = [f"{'':<10}{'programs':>9}" + "".join(f"{way + ': right/wrong/refused':>32}" for way in ways)]
    for point in (*POINTS, "all"):
        some = [program for program in programs if point in (program.point, "all")]
        if not some:
            continue
        found = counts(some, answers, ways)
        cells = [
            "/".join(str(found[way][kind]) for kind in ("right", "wrong", "refused"))
            + (f", {found[way]['replayed']} replayed" if way == "rote" else "")
            for way in ways
        ]
        lines.append(f"{point:<10}{len(some):>9}" + "".join(f"{cell:>32}" for cell in cells))
    if "rote" in ways:
        late = [each.label for each in programs if each.replays and not _did(answers[each.label]["rote"])]
        must = sum(bool(program.replays) for program in programs)
        lines.append(f"of {must} that have to replay, {must - len(late)} do")
        lines += [f"rote: {label} does not replay: {answers[label]['rote'].get('codes')}" for label in late]
    for way in ways:
        bad = [each for each in programs if answers[each.label][way]["outcome"] != "right"]
        for program in bad if listed or way == "eager" else []:
            answer = answers[program.label][way]
            lines.append(f"{way}: {program.label} ({program.point}) {answer['outcome']}: {answer['detail']}")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Measure; 1 if a plain run was not right, or rote wrong or refused."""
    options = parse(argv)
    torch.set_num_threads(1)
    wanted = [each for each in PROGRAMS if not options.only or _chosen(each, options.only)]
    ways = [way for way in COMPARED if way in (options.way or COMPARED)]
    start = time.perf_counter()
    answers = measure(wanted, ways, options)
    device = torch.device(options.device)
    document = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": common.device_name(device),
        "versions": common.versions(),
        "seconds": round(time.perf_counter() - start, 1),
        "counts": counts(wanted, answers, ways),
        "points": {
            point: counts([each for each in wanted if each.point == point], answers, ways) for point in POINTS
        },
        "wrong": {
            way: [label for label, each in answers.items() if each[way]["outcome"] == "wrong"] for way in ways
        },
        "programs": answers,
    }
    kept = RESULTS / common.folder_name(device) / "state-programs.json"
    earlier = json.loads(kept.read_text())["programs"] if kept.exists() else {}
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
        print(f"results in {options.out}")
    print("\n".join(changes(earlier, answers)))
    print(report(wanted, answers, ways, listed=options.list or bool(options.only)))
    print(f"{document['seconds']} s")
    return int(
        any(each[way]["outcome"] != "right" for each in answers.values() for way in ways if way != "dynamo")
    )


def changes(earlier: Answers, answers: Answers) -> list[str]:
    """What rote does otherwise than in the results that are kept."""
    lines: list[str] = []
    for label, each in answers.items():
        if "rote" in each and "rote" in earlier.get(label, {}):
            before, now = _said(earlier[label]["rote"]), _said(each["rote"])
            lines += [f"{label}: {before} became {now}"] if before != now else []
    return lines


def _said(answer: dict[str, Any]) -> str:
    replayed = ", replayed" if answer["outcome"] == "right" and answer.get("replayed") else ""
    return answer["outcome"] + replayed


def _chosen(program: StateProgram, names: list[str]) -> bool:
    return bool({program.label, program.name, program.group, program.point} & set(names))


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.state_programs", description=__doc__)
    parser.add_argument(
        "--only", action="extend", nargs="+", metavar="NAME", help="programs, groups or points; default: all"
    )
    parser.add_argument("--way", action="extend", nargs="+", choices=COMPARED, help="default: all")
    parser.add_argument(
        "--out", type=Path, help="where to write results; what differs from the kept is printed"
    )
    parser.add_argument("--device", help="cuda or cpu; default: cuda where there is a GPU")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes at a time")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one run")
    parser.add_argument("--list", action="store_true", help="print what is wrong or refused")
    options = parser.parse_args(argv)
    options.device = options.device or forked.default_device()
    return options


if __name__ == "__main__":
    sys.exit(main())
