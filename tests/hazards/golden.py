"""What is said about each rule and its bad fixture: ``python -m tests.hazards.golden`` writes it anew."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.clock import set_costs

from rote.hazards.rules import RULES, Finder, Rule

from .fixture import FOLDER, Fixture, steady, told_when_run


def golden(rule: Rule) -> Path:
    return FOLDER / f"{rule.code}.txt"


def said(rule: Rule) -> list[str]:
    """The rule's own words, then the scan's finding, then the runtime's reason where it can be run."""
    bad = Fixture(rule, "bad")
    lines = [f"{rule.code} {rule.title} ({rule.severity})", f"remedy: {rule.remedy}"]
    if Finder.SCAN in rule.found_by:
        for found in bad.scan():
            if found.code == rule.code:
                lines += [f"scan: {steady(str(found))}", f"scan: {found.source}"]
    return [*lines, *when_run(rule)]


def when_run(rule: Rule) -> list[str]:
    bad = Fixture(rule, "bad")
    if not told_when_run(rule) or bad.needs is not None:
        return []
    texts = bad.run(torch.device("cpu"))
    return [f"run: {line}" for text in texts if rule.code in text for line in text.splitlines()]


def main() -> None:
    with pytest.MonkeyPatch.context() as patch:
        set_costs(patch)
        write()


def write() -> None:
    for rule in RULES.values():
        try:
            golden(rule).write_text("\n".join(said(rule)) + "\n")
        except pytest.skip.Exception as skipped:
            print(rule.code, skipped)


if __name__ == "__main__":
    main()
