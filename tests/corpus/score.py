"""How good the checker is: ``python -m tests.corpus.score --json out.json --page docs/corpus.md``.

Recall is the share of labelled lines on which an error is reported, precision the share of reported errors
that are on a labelled line. A line counts once. What the trial finds counts; with ``--static`` the scan of
the source alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from tests import packages
from tests.hazards.scanning import scan

import rote
from rote.hazards.rules.finding import Finding

from .case import Case, in_package
from .suite import cases, has, seed

LEAST_RECALL, LEAST_PRECISION = 0.95, 0.90
Line = tuple[str, str]
"""A file's name and a line of it, as text where the file is a library's, as a number where it is ours."""


@dataclass
class Score:
    """Lines found and not found, each with its case.

    Attributes:
        right: Labelled lines with an error.
        missed: Labelled lines without one.
        false: Errors on other lines, with their codes.
    """

    right: list[tuple[str, Line]] = field(default_factory=list)
    missed: list[tuple[str, Line]] = field(default_factory=list)
    false: list[tuple[str, Line, str]] = field(default_factory=list)

    @property
    def recall(self) -> float:
        """Share of the labelled lines that were found."""
        return len(self.right) / max(len(self.right) + len(self.missed), 1)

    @property
    def precision(self) -> float:
        """Share of the errors that are on labelled lines."""
        return len(self.right) / max(len(self.right) + len(self.false), 1)

    def add(self, case: Case, findings: Iterable[Finding]) -> None:
        """Count one case."""
        errors = {_line(case, finding): finding.code for finding in findings if finding.severity.is_error}
        labelled = _labelled(case)
        self.right += [(case.name, line) for line in labelled if line in errors]
        self.missed += [(case.name, line) for line in labelled if line not in errors]
        self.false += [(case.name, line, code) for line, code in errors.items() if line not in labelled]


def _labelled(case: Case) -> list[Line]:
    name = Path(case.file).name
    own = [(name, str(number)) for number in case.labels()]
    return own + [(label.file, label.source) for label in case.labels_elsewhere()]


def _line(case: Case, finding: Finding) -> Line:
    own = str(Path(finding.where.file).resolve()) == case.file
    if own:
        return Path(case.file).name, str(finding.where.line)
    return in_package(finding.where.file, case.needs), finding.source


def by_trial(*chosen: Case) -> Score:
    """Check cases; every one if none is given."""
    score = Score()
    for case in chosen or cases():
        seed()
        fn, args = case.build("cpu")
        score.add(case, rote.check(fn, *args))
    return score


def on_page(text: str, title: str, among: Iterable[Case]) -> Score:
    """The score that a page states for cases, from what it lists as missed and as false."""
    listed = text.partition(f"## Missed and false: {title}\n")[2].partition("\n## ")[0].splitlines()
    score = Score()
    for case in among:
        lines = _labelled(case)
        score.missed += [(case.name, line) for line in lines if _missed(case.name, line) in listed]
        score.right += [(case.name, line) for line in lines if _missed(case.name, line) not in listed]
        for line in listed:
            if line.startswith(f"- false: *{case.name}*, "):
                place, _, code = line.partition("*, ")[2].rpartition(": ")
                file, _, number = place.partition(" ")
                score.false.append((case.name, (file, number), code))
    return score


def _missed(case: str, line: Line) -> str:
    return f"- missed: *{case}*, {line[0]} {line[1]}"


def by_source() -> Score:
    """Scan the files of the cases."""
    score = Score()
    found_in = {file: scan([Path(file)]) for file in {case.file for case in cases() if not case.needs}}
    for case in cases():
        if case.needs:
            continue
        found = [finding for finding in found_in[case.file] if finding.where.line in case.span]
        score.add(case, found)
    return score


def page(trial: Score, source: Score) -> str:
    """The figures for the documentation, misses listed."""
    lines = [
        "# How good the check is",
        "",
        f"{len(cases())} callables, every line labelled by what happens when it is captured on a GPU",
        "(`python -m tests.corpus.truth` captures all of them and compares). An error that is reported on",
        "a line without a label is false; a labelled line without an error is missed.",
        "",
        "| from | callables |",
        "|---|---|",
        *(f"| {name} | {count} |" for name, count in _sources()),
        "",
        used(),
        "",
        "| | labelled lines | recall | precision |",
        "|---|---|---|---|",
    ]
    for name, score in (
        ("`rote check` (trial run)", trial),
        ("`rote check --static` (source alone)", source),
    ):
        count = len(score.right) + len(score.missed)
        lines.append(f"| {name} | {count} | {score.recall:.1%} | {score.precision:.1%} |")
    for name, score in (("trial run", trial), ("source alone", source)):
        lines += ["", f"## Missed and false: {name}", ""]
        lines += [_missed(case, line) for case, line in score.missed]
        lines += [f"- false: *{case}*, {line[0]} {line[1]}: {code}" for case, line, code in score.false]
        if not score.missed and not score.false:
            lines.append("None.")
    return "\n".join(lines) + "\n"


def used() -> str:
    """The versions that the lines of libraries are from."""
    names = ("torch", "transformers", *packages.VISION)
    found = [f"{name} {version(name).partition('+')[0]}" for name in names if has(name)]
    return f"Scored with {', '.join(found)}."


def _sources() -> list[tuple[str, int]]:
    """Where the callables come from, and how many."""
    groups = [case.needs or ("the footgun suite" if case.is_taken else "written for it") for case in cases()]
    return sorted(Counter(groups).items(), key=lambda each: -each[1])


def main(argv: list[str] | None = None) -> int:
    """Print, write; 0 if both bounds are kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.corpus.score", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args(argv)
    trial, source = by_trial(), by_source()
    text = page(trial, source)
    print(text)
    if options.page is not None:
        options.page.write_text(text)
    if options.json is not None:
        shares = {name: [s.recall, s.precision] for name, s in (("trial", trial), ("source", source))}
        options.json.write_text(json.dumps(shares, indent=1) + "\n")
    return 0 if trial.recall >= LEAST_RECALL and trial.precision >= LEAST_PRECISION else 1


if __name__ == "__main__":
    sys.exit(main())
