"""Writes ``docs/footguns.md`` from the results of :mod:`benchmarks.footguns` and the cases themselves."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from tests.footguns.case import Case
from tests.footguns.suite import CASES, label
from tests.footguns.ways import PEERS

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
HOST = RESULTS / "host" / "footguns.json"
PAGE = ROOT / "docs" / "footguns.md"
COLUMNS = ("eager", "trusting", *PEERS, "dynamo", "rote")
TITLES = {
    "by hand": "`torch.cuda.graph` by hand",
    "trusting": "by hand, addresses trusted",
    "make_graphed_callables": "`make_graphed_callables`",
    "dynamo": '`torch.compile(backend="eager")`',
}
PUBLIC = {
    "inputs/eager_part_between_two_graphs": "[sglang#37606]"
    "(https://github.com/sgl-project/sglang/issues/37606): inputs of breakable graphs are held weakly, and "
    "their memory is another's at the next replay",
    "inputs/static_buffer_replaced": "wrappers that look at addresses in a debug mode only, as "
    "[torchtitan's](https://github.com/pytorch/torchtitan) by default",
    "inputs/freed_and_reused": "the same, by an argument that is freed",
    "autograd/gradients_accumulated": "[pytorch#181723](https://github.com/pytorch/pytorch/issues/181723), "
    "[pytorch#96693](https://github.com/pytorch/pytorch/issues/96693): gradients add up in memory of a graph",
}
"""Cases that stand for failures that users of other runtimes have reported."""

SIGNS = {"right": "right", "wrong": "**wrong**", "refused": "refused"}

HEAD = """\
# Footguns

{number} small programs that people write, in {groups} groups. Each makes many calls and looks at everything
its user could: results when they come and again later, arguments, state, gradients, random numbers. Each is
run with the plain callable, then with the callable graphed in one of the ways below, with the same seeds, and
what is seen is compared.

- **right**: every value is that of the plain callable. For rote that means every bit, and the strides, types,
  gradient flags and the state of the random number generators as well; the peers may differ by rounding.
- **wrong**: a value differs, and nothing was raised. This is what the page is about: such a program trains or
  acts on numbers that are not its own.
- **refused**: an exception that the plain program does not raise, a hang or a crash. It stops a program
  instead of misleading it.

The rows are in order of danger: what most ways get silently wrong comes first. The peers are used with care:
a graph by hand is captured at the second call, after a warm-up, copies its tensor arguments into static ones
and returns the static results; `make_graphed_callables` is given copies of the second call's arguments;
`reduce-overhead` uses eager's random numbers (`fallback_random`). What rote does not replay it runs as it is;
the last column has the codes of its reasons ([the rules](rules/index.md)).
"""


def write(results: Path) -> None:
    """Write the page from a file of results."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(results))


def preferred() -> Path:
    """The results the committed page is made from: a GPU's if there are any, else the host's."""
    found = sorted(RESULTS.glob("*/footguns.json"), key=lambda path: path.parent.name == "host")
    return found[0]


def page(results: Path) -> str:
    """The page as Markdown."""
    document = json.loads(results.read_text())
    answers: dict[str, dict[str, dict[str, Any]]] = document["cases"]
    ways = [way for way in COLUMNS if any(way in each for each in answers.values())]
    versions = document["versions"]
    with_cuda = f", CUDA {versions['cuda']}" if versions["cuda"] else ""
    parts = [
        HEAD.format(number=len(CASES), groups=len({case.group for case in CASES})),
        f"Measured on {document['device']} with torch {versions['torch']}{with_cuda}, Python "
        f"{versions['python']}, on {document['date']}"
        + ("" if set(PEERS) & set(ways) else "; the peers need a GPU")
        + ".\n",
        _counts(answers, ways),
        _table(answers, ways),
        _public(answers),
        _messages(answers, ways),
        "This page is made from the cases in `tests/footguns/cases` and the results in\n"
        f"`benchmarks/results/{results.parent.name}/{results.name}`: `python -m benchmarks.footguns`\n"
        "measures, `python -m benchmarks.footguns --table FILE.json` writes the page.\n",
    ]
    return "\n".join(parts)


def _counts(answers: dict[str, dict[str, dict[str, Any]]], ways: list[str]) -> str:
    lines = ["| | right | silently wrong | refused |", "| --- | --- | --- | --- |"]
    for way in ways:
        counted = Counter(each[way]["outcome"] for each in answers.values() if way in each)
        lines.append(f"| {_title(way)} | {counted['right']} | {counted['wrong']} | {counted['refused']} |")
    text = "\n".join(lines) + "\n"
    ours = [each["rote"] for each in answers.values() if "rote" in each]
    if ours:
        replayed = sum(each["replays"] for each in ours)
        text += f"\nIn {replayed} of {len(ours)} programs rote answers the later calls from recordings.\n"
    return text


def _table(answers: dict[str, dict[str, dict[str, Any]]], ways: list[str]) -> str:
    header = ["program", *(_title(way) for way in ways)]
    lines = ["## The programs\n", _row(header), _row(["---"] * len(header))]
    for case in sorted(CASES, key=lambda case: _danger(answers.get(label(case), {}))):
        each = answers.get(label(case), {})
        cells = [_cell(way, each.get(way)) for way in ways]
        lines.append(_row([f"**{case.name}**: {case.title} {_source(case)}", *cells]))
    return "\n".join(lines) + "\n"


def _public(answers: dict[str, dict[str, dict[str, Any]]]) -> str:
    """The cases behind public reports, with the host's results where a way was not run on a GPU."""
    host: dict[str, dict[str, dict[str, Any]]] = json.loads(HOST.read_text())["cases"]
    ways = [way for way in COLUMNS if way != "dynamo"]
    lines = [
        "## Public failures\n",
        "Classes of failures that users of other runtimes report, each with a small program. One more way "
        "stands beside the others:\na graph captured over the caller's own tensors, which are neither copied "
        "nor kept nor looked at again. Wrappers work so whose\ncaller promises the same memory. *Host*: not "
        "run on a GPU, but in the host's imitation of CUDA graphs\n"
        f"(`benchmarks/results/host/{HOST.name}`).\n",
        _row(["report", "program", *map(_title, ways)]),
        _row(["---"] * (2 + len(ways))),
    ]
    named = {label(case): case for case in CASES}
    for name, report in PUBLIC.items():
        cells: list[str] = []
        for way in ways:
            found, on_host = answers.get(name, {}).get(way), host.get(name, {}).get(way)
            sign = SIGNS[(found or on_host or {"outcome": ""})["outcome"]] if found or on_host else "not run"
            cells.append(sign if found or not on_host else f"{sign} (host)")
        lines.append(_row([report, f"{named[name].name} {_source(named[name])}", *cells]))
    return "\n".join(lines) + "\n"


def _danger(each: dict[str, dict[str, Any]]) -> tuple[int, int]:
    """Sorts what most peers get silently wrong first, then what most refuse; else the suite's own order."""
    outcomes = [each[way]["outcome"] for way in PEERS if way in each]
    return -outcomes.count("wrong"), -outcomes.count("refused")


def _cell(way: str, answer: dict[str, Any] | None) -> str:
    if answer is None:
        return "not run"
    sign = SIGNS[answer["outcome"]]
    if way != "rote":
        return sign
    how = "replayed" if answer["replays"] else "eager"
    return f"{sign}, {how}{': ' if answer['codes'] else ''}{', '.join(answer['codes'])}"


def _messages(answers: dict[str, dict[str, dict[str, Any]]], ways: list[str]) -> str:
    """What the refusals say, numbers and names left out, most frequent first."""
    lines = ["## What the refusals say\n"]
    for way in ways:
        refused = [
            each[way]["detail"] for each in answers.values() if each.get(way, {}).get("outcome") == "refused"
        ]
        for text, number in sorted(
            Counter(map(_kind_of_message, refused)).items(), key=lambda item: (-item[1], item)
        ):
            lines.append(f"- {_title(way)}, {number}: `{text}`")
    return (
        "\n".join(lines if len(lines) > 1 else [*lines, "None of the ways measured refused anything."]) + "\n"
    )


def _kind_of_message(detail: str) -> str:
    text = re.sub(r"0x[0-9a-f]+|\d+", "N", detail.replace("`", "'").replace("|", "/"))
    return text if len(text) <= 140 else text[:137] + "..."


def _source(case: Case) -> str:
    return f"[{case.group}](../tests/footguns/cases/{case.group}.py)"


def _title(way: str) -> str:
    return TITLES.get(way, way)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
