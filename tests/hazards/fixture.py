"""The fixtures of the rules: for each one program that has the hazard and one that has not.

A fixture is a file with ``program(device)``, which runs it. It returns the graphed callable, whose report is
looked at, the findings of a trial run, the text of a refusal, or nothing where only the source scan is
asked. ``NEEDS`` names what has
to be there to run it: ``cuda``, ``multi_gpu`` or a package. The rule's documentation quotes it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import packages
from tests.hazards.scanning import scan

import rote
from rote.hazards.findings import Findings
from rote.hazards.rules import RULES, Finder, Rule
from rote.hazards.rules.finding import Finding

FOLDER = Path(__file__).parent / "fixtures"
CODE = re.compile(r"\bRT\d{3}\b")


@dataclass(frozen=True)
class Fixture:
    """One of a rule's two programs."""

    rule: Rule
    which: str

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.rule.code}_{self.which}.py"

    @property
    def needs(self) -> str | None:
        found = re.search(r'^NEEDS = "(\w+)"$', self.path.read_text(), re.M)
        return found.group(1) if found else None

    def quotes(self, example: str) -> bool:
        """Whether the program has the lines of an example, one after the other, however indented."""
        lines, wanted = _lines(self.path.read_text()), _lines(example)
        return any(lines[at : at + len(wanted)] == wanted for at in range(len(lines)))

    def scan(self) -> list[Finding]:
        return scan([self.path])

    def made(self, device: torch.device) -> Any:
        """Run the program; what it returned."""
        skip_without(self.needs)
        with _loaded(self.path) as module:
            torch.manual_seed(0)
            return module.program(device)

    def run(self, device: torch.device) -> list[str]:
        """Run the program; what was told about it, one text each, without what changes from run to run."""
        skip_without(self.needs)
        return _run(self.path, device)


@functools.cache
def _run(path: Path, device: torch.device) -> list[str]:
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()  # once anything is compiled, all calls are noted: reasons in another order
    with _loaded(path) as module:
        torch.manual_seed(0)
        return told(module.program(device))


@contextlib.contextmanager
def _loaded(path: Path) -> Iterator[Any]:
    name = f"tests.hazards.fixtures.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            spec.loader.exec_module(module)
            yield module
    finally:
        del sys.modules[name]


def skip_without(needs: str | None) -> None:
    """Skip the test if something is not there."""
    if needs == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    elif needs == "multi_gpu" and torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    elif needs in packages.VISION:
        if packages.missing():
            pytest.skip(f"needs {packages.missing()}")
    elif needs not in (None, "cuda", "multi_gpu"):
        pytest.importorskip(needs)


def told(found: Any) -> list[str]:
    """Reasons and islands of a graphed callable, findings of a check, or the text of a refusal."""
    if isinstance(found, str):
        return [steady(found)]
    if isinstance(found, Findings):
        return [steady(str(each)) for each in found]
    if not isinstance(found, (rote.Graphed, rote.Padded)):
        return []
    report = found.report()
    padded = report.reasons if isinstance(report, rote.PaddedReport) else ()
    report = report.graphed if isinstance(report, rote.PaddedReport) else report
    whys = [*padded, *report.reasons]
    reasons = [f"{why.code} at {why.where}: {why.message}. {why.remedy}" for why in whys]
    islands = [
        f"{island.code} at {island.where}: island {island.operation}"
        for recording in report.recordings
        for island in recording.islands
    ]
    found.reset()
    return [steady(text) for text in dict.fromkeys([*reasons, *islands])]


def steady(text: str) -> str:
    """A text without addresses, sizes and folders, and without which of many values a trace came to."""
    text = re.sub(r"0x[0-9a-f]+", "0x...", text)
    # The allocator decides whether a new tensor lies where the old one lay.
    text = text.replace("is another one at the same address", "is a tensor at 0x...")
    text = re.sub(
        r"gave [\d.]+((, which was not seen before)? )\(before: .*?\)", r"gave ...\1(before: ...)", text
    )
    text = re.sub(r"(args\[1\]) was \d+ and is \d+", r"\1 was ... and is ...", text)
    text = re.sub(r"\d[\d.]* (bytes|B|KiB|MiB|GiB)\b", r"... \1", text)
    return re.sub(r"[\w/.-]*/((?:RT\d{3}_\w+|drive)\.py)", r"\1", text)


def told_when_run(rule: Rule) -> bool:
    """Whether running the bad program has to tell of it: the scan alone finds some, the trial others."""
    return Finder.RUNTIME in rule.found_by or rule.found_by == Finder.TRIAL


def both(rule: Rule) -> tuple[Fixture, Fixture]:
    return Fixture(rule, "bad"), Fixture(rule, "good")


def codes(texts: list[str]) -> set[str]:
    return {code for text in texts for code in CODE.findall(text)}


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


ALL = [pytest.param(rule, id=rule.code) for rule in RULES.values()]
