"""What the pages say of the code is what the code says."""

from __future__ import annotations

import json
import re
import tomllib
import xml.etree.ElementTree as ElementTree
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest
from rote_docs import (
    benchmarks,
    launches,
    limits,
    options,
    overwritten,
    readme,
    reference,
    rule_pages,
    rules,
    states,
)

import rote
import rote.quant
import rote.testing
from rote.hazards.rules import RULES
from rote.padding import approvals, rows
from rote.quant import environment
from rote.runtime.engine.ledger.ledger import (
    EARLY_CALLS,
    FREE_AHEAD,
    FREE_CALLS,
    FREE_TRACES,
    LATE_SHARE,
    REINVESTED,
    SHARE,
)
from rote.runtime.engine.specialization import MAX_PENDING
from rote.runtime.engine.states import TABLE
from rote.runtime.memory.budget import SLABS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


# ---------------------------------------------------------------------- the pages of the rules


@pytest.mark.parametrize("name", rule_pages.pages())
def test_pages_of_the_rules_are_generated(name: str) -> None:
    assert page(f"rules/{name}") == rule_pages.pages()[name], "run: python docs/write.py"


def test_no_page_without_a_group() -> None:
    assert {path.name for path in rule_pages.FOLDER.glob("*.md")} == set(rule_pages.pages())


def test_why_no_check_finds_it_is_shown() -> None:
    shown = rule_pages.rule_text(RULES["RT402"])
    assert "**Why no check finds it.** Results are compared with the slots" in shown
    assert "Why no check finds it" not in rule_pages.rule_text(RULES["RT101"])


def test_the_page_says_what_the_source_scan_does_not_see() -> None:
    spots = rule_pages.index_page().partition("What the source scan does not see:")[2].partition("|")[0]
    assert spots.count("\n- ") >= 4


# ---------------------------------------------------------------------- the state diagram


def test_the_drawing_in_the_repository_is_the_generated_one() -> None:
    assert states.DRAWING.read_text(encoding="utf-8") == states.drawing(), "run: python docs/write.py"
    assert f"]({states.DRAWING.relative_to(DOCS).as_posix()})" in page("call.md")


def test_the_picture_of_the_first_page_is_the_generated_one() -> None:
    assert launches.DRAWING.read_text(encoding="utf-8") == launches.drawing(), "run: python docs/write.py"


def test_the_picture_of_the_first_page_is_to_scale() -> None:
    """What eager takes is as wide as the picture, and the replay as wide as its figure says."""
    _, entry = launches._newest()
    rows = {row["name"]: row for row in entry["report"]["rows"]}
    boxes = [
        each.attrib for each in ElementTree.fromstring(launches.drawing()).iter() if "fill" in each.attrib
    ]
    work = [each for each in boxes if each["fill"] == launches.DEVICE]
    eager, replay = work[:-1], float(work[-1]["width"])
    share = (rows["rote"]["median_us"] - rows["rote"]["host_us"]) / rows["eager"]["median_us"]
    assert replay == pytest.approx(share * launches.SPAN, abs=0.01)
    end = float(eager[-1]["x"]) + float(eager[-1]["width"])
    assert len(eager) == launches.GAP and launches.LEFT < end <= launches.LEFT + launches.SPAN


def test_the_drawing_shows_every_state_and_every_event_of_the_table() -> None:
    root = ElementTree.fromstring(states.drawing())
    texts = [" ".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {state.value for state in TABLE} <= set(texts)
    labels = [text for text in texts if text not in {state.value for state in TABLE}]
    assert len(labels) == len(states.arrows())
    for label, events in zip(labels, states.arrows().values(), strict=True):
        assert label == " ".join(event.value for event in events)


def test_the_drawing_changes_with_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    before = states.drawing()
    row = dict(TABLE[states.State.EAGER])
    row[states.LifeEvent.RECORDED] = states.State.REPLAYING  # an arrow without a place of its own
    monkeypatch.setitem(TABLE, states.State.EAGER, row)
    assert states.drawing() != before
    assert "| recording finished |  | replaying | replaying | replaying |" in states.table()


def test_the_table_of_transitions_is_complete() -> None:
    rows = [line.split(" | ") for line in states.table().splitlines()[2:]]
    cells = [cell.strip("| ") for row in rows for cell in row[1:]]
    assert sum(bool(cell) for cell in cells) == sum(len(row) for row in TABLE.values())


# ---------------------------------------------------------------------- options, reports, rules, limits


def test_every_option_has_a_section_with_its_default() -> None:
    sections = dict(re.findall(r"^### (\w+)\n\n`\w+: (.*)`$", options.sections(), re.M))
    assert list(sections) == [field.name for field in fields(rote.Options)]
    for field in fields(rote.Options):
        assert sections[field.name].endswith(f"= {field.default!r}")


def test_every_option_is_described() -> None:
    told = options.described(rote.Options)
    assert set(told) == {field.name for field in fields(rote.Options)}
    assert all(len(text) > 20 and ":class:" not in text for text in told.values())


def test_every_field_of_a_report_is_described() -> None:
    listed = options.reports()
    for place, kind in options.REPORTS.items():
        assert f"**`{place}`**" in listed
        assert set(options.described(kind)) == {field.name for field in fields(kind)}


def test_every_rule_is_on_the_page_once() -> None:
    headings = re.findall(r"^### (RT\d{3}): (.*) \{#(\w+)\}$", rules.sections(), re.M)
    assert sorted(code for code, _, _ in headings) == sorted(rule.code for rule in rules.all_rules())
    assert {rule.code[2] for rule in rules.all_rules()} <= set(rules.GROUPS)


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.name)
def test_codes_on_a_page_are_codes_of_rules(path: Path) -> None:
    known = {rule.code for rule in rules.all_rules()}
    assert set(re.findall(r"\bRT\d{3}\b", path.read_text(encoding="utf-8"))) <= known


@pytest.mark.parametrize(
    ("path", "inserted"),
    [(limits.LIMITS, limits.limits), (limits.GAPS, limits.gaps), (limits.FOUND, limits.differences)],
    ids=lambda each: getattr(each, "stem", ""),
)
def test_each_test_that_may_fail_is_a_limit_on_the_page(path: Path, inserted: object) -> None:
    text = path.read_text(encoding="utf-8")
    marks = len(re.findall(r"^@limit\(|^@gap\(|= gap\(|^@pytest\.mark\.xfail\(", text, re.M))
    assert marks > 0
    assert len(limits.reasons(path)) == marks
    assert callable(inserted) and inserted().count("\n- ") == marks - 1


def test_results_are_listed_with_their_files() -> None:
    tables = benchmarks.tables()
    cited = set(re.findall(r"`benchmarks/results/([^`]+\.json)`", tables))
    assert cited and all((benchmarks.RESULTS / name).is_file() for name in cited)
    assert "| rote |" in tables
    assert benchmarks.fuzzing().count("\n") >= 2


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, ""),
        (2.53, "2.53 us"),
        (94.04, "94 us"),
        (1486.4, "1.49 ms"),
        (172004.6, "172 ms"),
        (3.01e6, "3.01 s"),
    ],
)
def test_durations(us: float | None, text: str) -> None:
    assert benchmarks.duration(us) == text


# ---------------------------------------------------------------------- README, reference, figures in prose


def test_the_figures_of_the_readme_are_those_of_the_results() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.with_figures(text) == text, "run: python docs/write.py"


def test_a_readme_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="has lost"):
        readme.with_figures("no table here")


def test_a_section_of_the_readme_is_taken_whole() -> None:
    example = readme.section("An example")
    assert example.startswith("```python\nimport torch, rote") and "\n## " not in example
    assert "](docs/" not in readme.section("Where to read")
    with pytest.raises(LookupError, match="no section 'Another'"):
        readme.section("Another")


def test_a_row_without_results_is_refused() -> None:
    row = readme.Row("x", "host", "host_mlp", "batch 8, width 64", {"another way": "x"})
    with pytest.raises(LookupError, match="host_mlp, batch 8, width 64, with another way"):
        readme._newest(row)


@pytest.mark.parametrize("package", [rote, rote.testing, rote.quant], ids=lambda package: package.__name__)
def test_everything_public_is_in_the_reference_once(package: ModuleType) -> None:
    shown = re.findall(r"^::: (\S+)$", f"{reference.listed(package)}\n{reference.errors()}", re.M)
    own = [name for name in shown if name.rpartition(".")[0] == package.__name__]
    public = {f"{package.__name__}.{name}" for name in package.__all__}
    assert sorted(own) == sorted(public - reference.ELSEWHERE)
    assert f"<!-- insert: reference-{package.__name__.rpartition('.')[2]} -->" in page(
        f"reference/{package.__name__.rpartition('.')[2]}.md"
    )


def test_the_guide_lists_the_variables_of_the_quantization() -> None:
    table = re.search(r"^\| name \| what it says.*?\n\n", page("quantization.md"), re.M | re.S)
    assert table is not None
    first = [line.split("|")[1] for line in table.group().strip().splitlines()[2:]]
    assert sorted(re.findall(r"`(\w+)`", "".join(first))) == sorted(environment.NAMES)


def test_a_family_of_errors_comes_before_its_members() -> None:
    shown = re.findall(r"^::: rote\.(\S+)$", reference.errors(), re.M)
    assert shown[0] == "RoteError"
    for number, name in enumerate(shown):
        bases = [base.__name__ for base in getattr(rote, name).__bases__ if base.__name__ in shown]
        assert all(shown.index(base) < number for base in bases)


def test_the_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = re.findall(r"^\| `(\w+)` \|", page("installing.md"), re.M)
    assert sorted(listed) == sorted(project["optional-dependencies"])


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("call.md", f"{FREE_TRACES} traced calls among the first {FREE_CALLS} that record nothing"),
        ("call.md", f"{FREE_AHEAD} recorded calls among the first {FREE_CALLS}, with those above"),
        ("call.md", f"{100 * SHARE:g} %" + f" of its time until call {EARLY_CALLS}, then"),
        ("call.md", f"then {100 * LATE_SHARE:g} %"),
        ("call.md", f"{100 * REINVESTED:g} %" + " of what it saves"),
        ("training.md", f"up to {MAX_PENDING} are made for one state"),
        ("memory.md", "two calls of each padded shape" if approvals.CHECKS == 2 else "?"),
        ("memory.md", "with five kinds of padding" if rows.VARIATIONS == 5 else "?"),
        ("memory.md", "slabs of an eighth of the limit" if SLABS == 8 else "?"),
        ("report.md", "its first `warmup + 2` calls"),
    ],
)
def test_numbers_in_prose_are_those_of_the_code(name: str, sentence: str) -> None:
    assert sentence in " ".join(page(name).split())


# ---------------------------------------------------------------------- the published failures


RIGHT = {"outcome": "right", "where": "", "detail": "", "replayed": True}
OVERWRITTEN = {
    "outcome": "error",
    "where": "held results",
    "detail": "RuntimeError: Error: accessing `it`",
    "replayed": False,
}


def published(folder: Path, device: str, date: str) -> Path:
    runtimes = ["eager", "reduce-overhead", "rote.graph"]
    silent = {**RIGHT, "outcome": "wrong", "where": "call 3", "detail": "off by 0.5 of its size"}
    row = {"eager": {**RIGHT, "replayed": False}, "reduce-overhead": OVERWRITTEN, "rote.graph": RIGHT}
    gone = {"outcome": "refused", "detail": "no answer in time"}
    document = {
        "date": date,
        "device": device,
        "versions": {"torch": "2.11.0", "python": "3.12"},
        "runtimes": runtimes,
        "cells": {
            overwritten.WHOLE: {
                overwritten.WITHOUT: row,
                "a clone": {**row, "reduce-overhead": silent, "rote.graph": gone},
            }
        },
    }
    folder.mkdir()
    path = folder / "published.json"
    path.write_text(json.dumps(document))
    return path


def test_the_published_failures_as_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overwritten, "RESULTS", tmp_path)
    host = published(tmp_path / "host", "a processor", "2026-11-30")
    assert overwritten.preferred() == host
    assert "Run on the host (a processor)" in overwritten.results()
    assert "No run on a GPU is in the repository yet" in overwritten.results()
    published(tmp_path / "gpu-old", "an old GPU", "2026-11-20")
    newest = published(tmp_path / "gpu-new", "a GPU", "2026-11-25")
    assert overwritten.preferred() == newest
    text = overwritten.results()
    assert text.startswith("Run on a GPU with torch 2.11.0, Python 3.12, on 2026-11-25; ")
    assert "on the host" not in text.lower()
    assert "| **all of it** | right | error: held results | right, replayed |" in text
    assert "| a clone | right | **wrong**: call 3 | no answer: no answer in time |" in text
    assert "- `mode=\"reduce-overhead\"`, 1 cells: `RuntimeError: Error: accessing 'it'`" in text


def test_the_page_of_the_published_failures_claims_nothing_of_a_gpu_that_was_not_run() -> None:
    document = json.loads(overwritten.preferred().read_text())
    cells = [row for rows in document["cells"].values() for row in rows.values()]
    assert all(set(row) <= set(document["runtimes"]) for row in cells)
    assert ("reduce-overhead" in document["runtimes"]) == ("Run on the host" not in overwritten.results())
