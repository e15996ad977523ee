"""The table of figures in the README, from the measurements in ``benchmarks/results``.

Each row names a case, what was worked on, and the ways to show; the newest file that has them all is taken,
so that every row is of one run. The footnote names the files.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

from .benchmarks import RESULTS, duration

README = RESULTS.parents[1] / "README.md"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"


class Row(NamedTuple):
    """A row of the table.

    Attributes:
        work: What is shown in the first column.
        folder: Of the device.
        case: Of the results.
        subject: Of the case.
        peers: How the results call a way, and how the table does.
        remark: Stands behind rote's figure, if the check of that name held.
    """

    work: str
    folder: str
    case: str
    subject: str
    peers: dict[str, str]
    remark: tuple[str, str] = ("", "")


_PROGRAMS = "nvidia-h200/footguns.json"

_NOTE = (
    "Medians; each row is of one run, if it does not say otherwise. Bare replays, graphs captured by hand "
    "and `make_graphed_callables` check nothing."
)
_MADE = "`make_graphed_callables`"
_BITWISE = ", bitwise equal"
ROWS = (
    Row("4 x Linear(256)+ReLU, batch 1", "nvidia-h200", "overhead", "1 input",
        {"bare replay": "bare replay", "replay, copy, clone": "replay, copy, clone",
         "make_graphed_callables": _MADE},
        ("1 input: rote bitwise equal to eager", _BITWISE)),
    Row("Linear(1024)+SGD training step, batch 64", "nvidia-h200", "linear_sgd", "new inputs",
        {"hand": "captured by hand"}, ("rote: losses and parameters after 50 steps", _BITWISE)),
    Row("4 transformer layers, forward graphed, backward outside", "nvidia-h200", "backward",
        "forward and backward", {"make_graphed_callables": _MADE},
        ("loss and gradients of every step bitwise equal", _BITWISE)),
)  # fmt: skip


_PI0 = "pi0-2views transformers 5.23.0"
TITLES = {
    _PI0: "PI0 `sample_actions`, 2 views, batch 1, bf16",
    "llama-batch1": "decode step of a 1B Llama, batch 1",
    "llama-batch8": "the same, batch 8",
    "resnet50": "ResNet-50, one image",
    "unet": "U-Net denoise step",
}
"""The programs of the benchmark set that the README shows."""

PEERS_OF_SET = {"by-hand": "captured by hand", "reduce-overhead": "`reduce-overhead`"}
SLOWER = 1.02
FEWEST = 3
"""Programs of the set that have to be measured before the README sums them up."""


def figures() -> str:
    """The table, and where it comes from."""
    entries, sources = newest_of_set(RESULTS / "nvidia-h200")
    lines = ["| work, time per call | eager | peers | rote |", "| --- | --- | --- | --- |"]
    *own, summary = set_rows(entries)
    lines += own
    files = {_PROGRAMS: _device(RESULTS / _PROGRAMS), **sources}
    for row in ROWS:
        path, case = _newest(row)
        times = {each["way"]: each["median_us"] for each in case["rows"] if each["subject"] == row.subject}
        peers = "; ".join(f"{name} {duration(times[way])}" for way, name in row.peers.items()) or "-"
        check, text = row.remark
        remark = text if case["checks"].get(check) else ""
        lines.append(
            f"| {row.work} | {duration(times['eager'])} | {peers} | {duration(times['rote'])}{remark} |"
        )
        files[f"{path.parent.name}/{path.name}"] = _device(path)
    lines += [summary, _programs(), ""]
    made = {device: [name for name in sorted(files) if files[name] == device] for device in files.values()}
    told = "; ".join(
        f"{device}: {', '.join(f'`{name}`' for name in names)}" for device, names in made.items()
    )
    note = f"{_NOTE} {_guards()} From `benchmarks/results/`, {told}."
    lines += wrap(note, 118, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def section(title: str) -> str:
    """What the README has under a heading, with its links as a page needs them.

    Raises:
        LookupError: There is no such heading.
    """
    text = README.read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if found is None:
        raise LookupError(f"the README has no section {title!r}")
    return found[1].replace("](docs/", "](").strip()


def with_figures(text: str) -> str:
    """The README with a fresh table between its two comments.

    Raises:
        ValueError: A comment is missing.
    """
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the README has lost {BEGIN} or {END}")
    return f"{head}{BEGIN}\n{figures()}\n{END}{tail}"


def newest_of_set(folder: Path) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The newest figures of each program of the benchmark set, and the device of each file they are from."""
    entries: dict[str, dict[str, Any]] = {}
    origin: dict[str, tuple[str, str]] = {}
    for path in sorted(folder.glob("*-set.json")):
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for key, entry in document["rows"].items():
            if "report" in entry and not entry["small"]:
                entries[key] = entry
                device = f"{document['device']}, torch {entry['versions']['torch']}"
                origin[key] = (f"{path.parent.name}/{path.name}", device)
    return entries, dict(origin.values())


def set_rows(entries: dict[str, dict[str, Any]]) -> list[str]:
    """Programs of the benchmark set beside their peers, and in words where rote loses in all of them.

    Args:
        entries: Of a file of results, by program.
    """
    measured = {
        key: {row["name"]: row for row in entry["report"]["rows"] if row["median_us"] is not None}
        for key, entry in entries.items()
        if "report" in entry and not entry["small"]
    }
    measured = {key: rows for key, rows in measured.items() if {"eager", "rote"} <= rows.keys()}
    lines = [_set_row(title, measured[key]) for key, title in TITLES.items() if key in measured]
    if _PI0 in measured:
        lines.insert(1, _until_fast(measured[_PI0]))
    lost = {
        way: [key.partition(" ")[0] for key, rows in measured.items() if _is_slower(rows, way)]
        for way in ("eager", "by-hand")
    }
    eager, by_hand = (", ".join(names) or "no program" for names in lost.values())
    told = f"slower than eager: {eager}; slower than the graph captured by hand: {by_hand}"
    summary = f"| [the benchmark set](docs/benchmarks.md), {len(measured)} programs | 1 | - | {told} |"
    return [*lines, summary] if len(measured) >= FEWEST else lines


def _set_row(title: str, rows: dict[str, dict[str, Any]]) -> str:
    peers = [
        f"{told} {duration(rows[way]['median_us'])}{'' if _is_equal(rows[way]) else ', results differ'}"
        for way, told in PEERS_OF_SET.items()
        if way in rows
    ]
    ours = rows["rote"]
    remark = _BITWISE if _is_equal(ours) else ", results differ"
    remark += ", slower than eager" if _is_slower(rows, "eager") else ""
    if "rote-near" in rows and not _is_equal(rows["rote-near"]):
        near = rows["rote-near"]
        remark += f'; `numerics="near"` {duration(near["median_us"])}, by {near["equality"]["largest"]:.2g}'
    eager, rote = duration(rows["eager"]["median_us"]), duration(ours["median_us"])
    return f"| {title} | {eager} | {'; '.join(peers) or '-'} | {rote}{remark} |"


def _is_equal(row: dict[str, Any]) -> bool:
    return bool(row["equality"] and row["equality"]["bitwise"])


def _is_slower(rows: dict[str, dict[str, Any]], way: str) -> bool:
    """Whether rote takes longer than a way with the same results, by more than 2 %."""
    other = rows.get(way)
    return other is not None and rows["rote"]["median_us"] > SLOWER * other["median_us"]


def _newest(row: Row) -> tuple[Path, dict[str, Any]]:
    needed = {"eager", "rote", *row.peers}
    for path in sorted((RESULTS / row.folder).glob("*.json"), reverse=True):
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        case = document.get("cases", {}).get(row.case, {})
        ways = {each["way"] for each in case.get("rows", []) if each["subject"] == row.subject}
        if needed <= ways:
            return path, case
    raise LookupError(f"no result has {row.case}, {row.subject}, with {', '.join(sorted(needed))}")


def _device(path: Path) -> str:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return f"{document['device']}, torch {document['versions']['torch']}"


def _until_fast(rows: dict[str, dict[str, Any]]) -> str:
    """After how long a program is as fast as it gets, beside ``torch.compile``."""
    compiled, recorded, settled = (
        duration(1e6 * rows[way][name])
        for way, name in (
            ("reduce-overhead", "first_fast_call_s"),
            ("rote", "first_fast_call_s"),
            ("rote", "settled_after_s"),
        )
    )
    told = f"`reduce-overhead` {compiled} | {settled}; replayed after {recorded}"
    return f"| the same: until it is that fast | - | {told} |"


def _guards() -> str:
    """What rote's own checks cost, by the number of parameters."""
    for path in sorted((RESULTS / "nvidia-h200").glob("*.json"), reverse=True):
        case = json.loads(path.read_text(encoding="utf-8")).get("cases", {}).get("guards")
        if case:
            rows = [row for row in case["rows"] if row["way"] == "rote"]
            counts = [case["facts"][f"{row['subject']}: parameters"] for row in rows]
            told = [
                f"{duration(row['host_us'])} with {count:,} parameters"
                for row, count in zip(rows, counts, strict=True)
            ]
            bare = min(row["host_us"] for row in case["rows"] if row["way"] == "bare replay")
            return (
                f"Host time of a call with all guards on: {', '.join(told)}; of a bare replay "
                f"{duration(bare)} (`{path.parent.name}/{path.name}`)."
            )
    raise LookupError("no result has the case guards")


def _programs() -> str:
    """How the programs of ``docs/footguns.md`` come out, counted."""
    document = json.loads((RESULTS / _PROGRAMS).read_text(encoding="utf-8"))
    cases = list(document["cases"].values())

    def counted(way: str) -> str:
        return ", ".join(
            str(sum(case[way]["outcome"] == outcome for case in cases))
            for outcome in ("right", "wrong", "refused")
        )

    replayed = sum(case["rote"]["replays"] for case in cases)
    shown = f"`reduce-overhead` {counted('reduce-overhead')}; by hand {counted('by hand')}"
    text = f"{len(cases)} programs people get wrong: right, silently wrong, refused"
    own = f"{counted('rote')}; {replayed} replayed"
    return f"| [{text}](docs/footguns.md) | {counted('eager')} | {shown} | {own} |"
