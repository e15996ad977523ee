"""Writes ``docs/benchmarks.md`` from what :mod:`benchmarks.set_run` has measured.

``python -m benchmarks.set_page``. Every row that was measured at full size is on the page, and where rote
loses is said first.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .set import ROWS

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
OWN = ("rote", "rote-near")
WAYS = ("eager", "by-hand", "make_graphed_callables", "compile", "reduce-overhead", *OWN)
TITLES = {
    "by-hand": "`torch.cuda.graph` by hand",
    "make_graphed_callables": "`make_graphed_callables`",
    "compile": "`torch.compile`",
    "reduce-overhead": "`torch.compile` reduce-overhead",
    "rote-near": 'rote, `numerics="near"`',
}
TOLERANCE = 1.02
"""A way that is faster by less than this is as fast."""

REASON = re.compile(r"RT\d{3} ")
"""So begins a reason among the notes on rote."""

HEAD = """\
# Benchmarks

What rote and the other ways of running a program take for the same calls, side by side in one run, each in a
process of its own and in turns. The programs are in `benchmarks/targets`, all with random weights; arguments
have new values in every call. Where rote loses is said first.

- A time is the median of a call, from an idle device to an idle device, once calls do not become faster any
  more: rote's kernels are compiled, compared and in use. *Settled* is when that is, from the first call on.
  On a CPU only ratios within a run mean something: there the times are multiples of eager's.
- *Equal* means that the results of the first calls are eager's, bit for bit. A way whose results differ has
  the largest difference beside its time.
- *fails* is explained below the table, with the first line of the error. An empty cell: that way was not
  run, or needs a GPU.
- *slower* marks where rote takes more than 1.02 of that way's time.
"""

NOTHING = """
Nothing has been measured yet: `make bench` measures on your machine, and writes this page.
"""

TAIL = """
`python -m benchmarks.set_run --only NAME` measures one program, `rote bench TARGET` one of yours, and
`python -m benchmarks.set_page` writes this page from `benchmarks/results/*/*-set.json`.

# Single cases

One question each about rote's own costs, with the newest figures that are kept in `benchmarks/results`;
`make bench-cases` asks them on your machine. Each table is of one run, and its times are of one call.

*Host* is the time until the call returns, so it is the cost that a faster device cannot hide. Rows where rote
is slower than another way are in the tables like all others.

<!-- insert: benchmarks -->
"""


def main(argv: list[str] | None = None) -> int:
    """Write the page."""
    description = "Write docs/benchmarks.md from the results of benchmarks.set_run."
    argparse.ArgumentParser(prog="python -m benchmarks.set_page", description=description).parse_args(argv)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(RESULTS), encoding="utf-8")
    print(f"wrote {PAGE}")
    return 0


def page(results: Path) -> str:
    """The page as Markdown.

    Args:
        results: The folder with one folder for each device.
    """
    folders = sorted(
        (path.parent for path in results.glob("*/*-set.json")), key=lambda path: path.name == "host"
    )
    sections = [text for folder in dict.fromkeys(folders) if (text := _device(folder))]
    return "\n".join([HEAD, *(sections or [NOTHING.lstrip()]), TAIL.lstrip()])


def _device(folder: Path) -> str:
    """A device's section: the newest figures of every program; empty without any at full size."""
    entries: dict[str, dict[str, Any]] = {}
    name = ""
    for path in sorted(folder.glob("*-set.json")):
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        name = document["device"]
        entries |= {key: entry for key, entry in document["rows"].items() if not entry["small"]}
    entries = dict(sorted(entries.items(), key=lambda item: _position(item[0])))
    measured = {key: entry for key, entry in entries.items() if "report" in entry}
    if not entries:
        return ""
    parts = [f"## {name}\n", _versions(list((measured or entries).values())), _losses(measured)]
    if measured:
        parts += [_times(measured), _costs(measured), _unplayed(measured)]
    return "\n".join([*parts, _failures(entries)])


def _times(entries: dict[str, dict[str, Any]]) -> str:
    ways = [way for way in WAYS if any(_row(entry, way) for entry in entries.values())]
    table = [["program", *(TITLES.get(way, way) for way in ways), "rote / eager", "rote / by hand"]]
    for key, entry in entries.items():
        ratios = [_ratio(entry, "rote", other) for other in ("eager", "by-hand")]
        cells = [_cell(entry, way) for way in ways]
        table.append([_title(key), *cells, *map(_marked, ratios)])
    return _table(table)


def _marked(ratio: float | None) -> str:
    """How many times as long rote takes; in words if that is longer."""
    if ratio is None:
        return ""
    return f"{ratio:.2f}, slower" if ratio > TOLERANCE else f"{ratio:.2f}"


def _costs(entries: dict[str, dict[str, Any]]) -> str:
    """What else there is to say of rote, beside eager and the graph that was written by hand."""
    columns = {
        "device idle in eager": lambda entry: _profiled(entry, "idle_share"),
        "gain at best": lambda entry: _profiled(entry, "gain"),
        "first fast call": lambda entry: _seconds(_of(entry, "rote", "first_fast_call_s")),
        "settled": lambda entry: _seconds(_of(entry, "rote", "settled_after_s")),
        "host time": lambda entry: _time(_of(entry, "rote", "host_us")),
        "host time, by hand": lambda entry: _time(_of(entry, "by-hand", "host_us")),
        "launches": lambda entry: _launches(_of(entry, "rote", "launches")),
        "launches, eager": lambda entry: _launches(_of(entry, "eager", "launches")),
        "held": lambda entry: _bytes(_of(entry, "rote", "held_bytes")),
        "copied": lambda entry: _bytes(_of(entry, "rote", "copied_bytes")),
        "equal": lambda entry: _whether_equal(_of(entry, "rote", "equality")),
    }
    table = [[_title(key), *(cell(entry) for cell in columns.values())] for key, entry in entries.items()]
    used = [at for at in range(len(columns) + 1) if any(row[at] for row in table)]
    rows = [[row[at] for at in used] for row in (["program", *columns], *table)]
    return "What rote costs besides, per call unless said otherwise:\n\n" + _table(rows)


def _losses(entries: dict[str, dict[str, Any]]) -> str:
    """Every way that was faster than rote."""
    lines: list[str] = []
    for key, entry in entries.items():
        ours = _row(entry, "rote")
        if ours is None or ours["median_us"] is None:
            continue
        faster = [
            f"{TITLES.get(way, way)} ({ratio:.2f}{'' if _equal(entry, way) else ', results differ'})"
            for way in WAYS
            if way not in OWN and (ratio := _ratio(entry, "rote", way)) is not None and ratio > TOLERANCE
        ]
        if faster:
            lines.append(f"- {_title(key)}: {', '.join(faster)}")
        if entry["report"]["rote_differs"]:
            lines.append(f"- {_title(key)}: **rote's results differ from eager's**")
    if not lines:
        return "In no program is another way faster than rote by more than 2 %.\n"
    return "\n".join(["Where rote loses; how many times as long it takes as that way:\n", *lines]) + "\n"


def _unplayed(entries: dict[str, dict[str, Any]]) -> str:
    """Where less than half of the calls were replayed, and why: the last note of the worker is the reason."""
    lines: list[str] = []
    for key, entry in entries.items():
        notes: list[str] = _of(entry, "rote", "notes") or []
        if notes and REASON.match(notes[-1]):
            lines.append(f"- {_title(key)}: {notes[0]}. {notes[-1]}")
    return "\n".join(["What rote hardly replays, and why:\n", *lines]) + "\n" if lines else ""


def _failures(entries: dict[str, dict[str, Any]]) -> str:
    lines = [
        f"- {_title(key)}: not measured: {entry['skipped']}"
        for key, entry in entries.items()
        if "skipped" in entry
    ]
    for key, entry in entries.items():
        for row in entry.get("report", {}).get("rows", ()):
            if row["status"] == "failed":
                lines.append(f"- {_title(key)}, {TITLES.get(row['name'], row['name'])}: {_code(row['why'])}")
    return "\n".join(["What is missing, and why:\n", *lines]) + "\n" if lines else ""


def _versions(entries: list[dict[str, Any]]) -> str:
    names = ("torch", "cuda", "driver", "triton", "transformers", "python")
    found: list[str] = []
    for name in names:
        values = sorted({str(entry["versions"][name]) for entry in entries if entry["versions"].get(name)})
        found += [f"{name} {' and '.join(values)}"] if values else []
    dates = sorted({entry["finished"][:10] for entry in entries})
    clocks = sorted({clock for entry in entries for clock in _clocks(entry)}, key=_megahertz)
    at = f"; clocks {clocks[0]}{f' to {clocks[-1]}' if len(clocks) > 1 else ''}" if clocks else ""
    return f"{', '.join(found)}; measured on {', '.join(dates)}{at}.\n"


def _clocks(entry: dict[str, Any]) -> Iterator[str]:
    for state in entry["machine"].values():
        if "clocks.sm" in state:
            yield state["clocks.sm"]


def _megahertz(clock: str) -> float:
    return float(clock.partition(" ")[0])


def _row(entry: dict[str, Any], way: str) -> dict[str, Any] | None:
    return next((row for row in entry["report"]["rows"] if row["name"] == way), None)


def _ratio(entry: dict[str, Any], above: str, below: str) -> float | None:
    times = [(_row(entry, way) or {}).get("median_us") for way in (above, below)]
    return times[0] / times[1] if all(times) else None


def _cell(entry: dict[str, Any], way: str) -> str:
    row = _row(entry, way)
    if row is None or row["status"] == "needs a GPU":
        return ""
    if row["median_us"] is None:
        return "fails"
    time = (
        f"{_ratio(entry, way, 'eager') or 0:.2f}"
        if entry["report"]["device"] == "cpu"
        else _time(row["median_us"])
    )
    return time if _equal(entry, way) else f"{time}, {_difference(row['equality'])}"


def _equal(entry: dict[str, Any], way: str) -> bool:
    equality = (_row(entry, way) or {}).get("equality")
    return equality is None or equality["bitwise"]


def _difference(equality: dict[str, Any]) -> str:
    largest = equality["largest"]
    return "differs" if largest is None else f"differs by {largest:.2g}"


def _whether_equal(equality: dict[str, Any] | None) -> str:
    if equality is None:
        return ""
    return "yes" if equality["bitwise"] else _difference(equality)


def _of(entry: dict[str, Any], way: str, figure: str) -> Any:
    return (_row(entry, way) or {}).get(figure)


def _launches(launches: dict[str, Any] | None) -> str:
    return "" if launches is None else f"{launches['total']:g}"


def _profiled(entry: dict[str, Any], figure: str) -> str:
    found = entry.get("profile")
    if not found:
        return ""
    return f"{found[figure]:.0%}" if figure == "idle_share" else f"{found[figure]:.2f}x"


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f} s"


def _time(us: float | None) -> str:
    if us is None:
        return ""
    return f"{us / 1e3:.2f} ms" if us >= 1e3 else f"{us:.1f} us"


def _bytes(number: float | None) -> str:
    if number is None:
        return ""
    units = ("B", "KiB", "MiB", "GiB")
    power = min(len(units) - 1, max(0, int(abs(number)).bit_length() - 1) // 10)
    return f"{number / 1024**power:.3g} {units[power]}"


def _title(key: str) -> str:
    name, _, version = key.partition(" ")
    found = next((row.title for row in ROWS if row.name == name), name)
    return f"{found} ({version})" if version else found


def _position(key: str) -> tuple[int, str]:
    names = [row.name for row in ROWS]
    name = key.partition(" ")[0]
    return names.index(name) if name in names else len(names), key


def _code(text: str) -> str:
    return f"`{text.replace('`', chr(39)).replace('|', '/')}`"


def _table(rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "| --- " * len(rows[0]) + "|", *lines[1:]]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
