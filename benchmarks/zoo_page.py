"""Writes ``docs/zoo.md`` from what :mod:`benchmarks.zoo_run` has measured.

``python -m benchmarks.zoo_page``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from . import zoo_set

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "zoo.md"
SETTLED, SLOWER = 0.5, 1.05
"""The share of calls from which a program counts as replayed; the time over plain that counts as slower."""

MOST_PARTS = 3
"""Parts of a program that are shown."""

UNREPEATED = "neither is plain"
"""The cell of a program whose plain runs differ among themselves."""

NO_REASON = ("a plain call was made", "tracing may take")
"""So begins what says nothing of the program: calls that rote compares replays with, and its bound."""

HEAD = """\
# Programs of other libraries

{programs} programs of {libraries} libraries, as their users write them, with random weights and made data.
Each runs in a process of its own, plain and graphed in turns, a few calls each, with the same seeds. They
are in `benchmarks/zoo`, a file for each library.

- *Equal*: what the program yields of each call, with what is left in state, has every bit of the plain
  program, and so have the random generators behind it. *Neither is plain*: it differs, and the plain
  program differs from itself there, run again: its kernels add in any order.
- *Replayed*: the share of calls after the first 50 that replays answered; where a program graphs several
  callables or calls one several times, of all these calls. Some calls run plainly to be compared with
  replays ([never slower](call.md#never-slower)).
  Behind it are [parts](call.md#parts-of-a-call): modules inside, with the share of their calls.
- *First* and *then*: the time over that of the plain program, in the first 50 calls, in which rote observes
  and records, and in those after them. It is the time of the whole program, with what it does between two
  calls: on a GPU from an idle device to an idle device, on the host of the processor.
- *Why not*: the reason that the report gives most often after the first 50 calls.
"""

NOTHING = "Nothing has been run yet: `make zoo` runs it on your machine, and writes this page.\n"

TAIL = """\
`make zoo` installs the packages of `benchmarks/zoo/requirements.txt` into an environment of its own,
outside of this repository, runs what is missing in the results, and writes this page. `ZOO_ENV` names
another environment, and `ZOO_ARGS="--only timm peft --device cuda"` chooses programs, which are then run
anew.
"""


def main(argv: list[str] | None = None) -> int:
    """Write the page."""
    description = "Write docs/zoo.md from the results of benchmarks.zoo_run."
    argparse.ArgumentParser(prog="python -m benchmarks.zoo_page", description=description).parse_args(argv)
    PAGE.write_text(page(RESULTS), encoding="utf-8")
    print(f"wrote {PAGE}")
    return 0


def page(results: Path) -> str:
    """The page as Markdown.

    Args:
        results: The folder with one folder for each device.
    """
    found = zoo_set.programs()
    head = HEAD.format(programs=len(found), libraries=len({program.library for program in found}))
    files = sorted(results.glob("*/zoo.json"), key=lambda path: path.parent.name == "host")
    sections = [_device(json.loads(path.read_text(encoding="utf-8"))) for path in files]
    return "\n".join([head, *(sections or [NOTHING]), TAIL])


def _device(document: dict[str, Any]) -> str:
    """A device's section: what it adds up to, then a row for each program."""
    rows: dict[str, dict[str, Any]] = document["rows"]
    compared = [row for row in rows.values() if row["outcome"] == "compared"]
    title = f"## {document['device']}\n"
    versions = document["versions"]
    dates = sorted({row["finished"][:10] for row in rows.values()})
    stand = f"torch {versions['torch']}, Python {versions['python']}; run on {' and '.join(dates)}.\n"
    note = [document["note"] + "\n"] if "note" in document else []
    return "\n".join([title, stand, *note, _sums(rows, compared), _why(compared), _table(rows)])


def _sums(rows: dict[str, dict[str, Any]], compared: list[dict[str, Any]]) -> str:
    lines = [
        f"- {len(compared)} of {len(rows)} programs could be compared.",
        f"- Equal: {sum(row['equal'] for row in compared)}{_unrepeated(compared)}.",
        f"- Replayed, half of their calls or more: {sum(row['replayed'] >= SETTLED for row in compared)}.",
        f"- Replayed in parts: {sum(row['replayed'] < SETTLED and bool(_parts(row)) for row in compared)}.",
        f"- Slower than {SLOWER} times plain after the first 50 calls: {_slower(compared, 'afterwards')};"
        f" in the last third of all calls: {_slower(compared, 'late')}.",
    ]
    return "\n".join(lines) + "\n"


def _unrepeated(rows: list[dict[str, Any]]) -> str:
    number = sum(not row["equal"] and not differs(row) for row in rows)
    return f"; of the others {number} differ between plain runs as well" if number else ""


def differs(row: dict[str, Any]) -> bool:
    """Whether the graphed program gave what the plain one does not, as far as plain runs agree."""
    return row.get("equal") is False and row.get("plain_repeats", True)


def _equal(row: dict[str, Any]) -> str:
    return "yes" if row["equal"] else "**no**" if differs(row) else UNREPEATED


def _slower(rows: list[dict[str, Any]], window: str) -> int:
    return sum(row.get(window, 0.0) > SLOWER for row in rows)


def _why(compared: list[dict[str, Any]]) -> str:
    """How many programs are hardly replayed, by the reason that they meet most often."""
    first = [_reason(row) for row in compared if row["replayed"] < SETTLED]
    counted = Counter(reason["code"] for reason in first if reason is not None)
    said = ", ".join(f"{code} {number}" for code, number in counted.most_common())
    return f"The first reason of those that are hardly replayed: {said}.\n" if said else ""


def _reason(row: dict[str, Any]) -> dict[str, Any] | None:
    """The reason that came most often after the warm-up, or else before; the bound, if there is no other."""
    found = [*row["reasons"], *row.get("before", ())]
    telling = [reason for reason in found if not reason["message"].startswith(NO_REASON)]
    bounds = [reason for reason in found if reason["message"].startswith(NO_REASON[1])]
    new = [reason for reason in bounds if ";" in reason["message"]]  # it says what is new in each call
    return next(iter([*new[:1], *telling, *bounds]), None)


def _table(rows: dict[str, dict[str, Any]]) -> str:
    table = [["library", "program", "equal", "replayed", "first", "then", "why not"]]
    for key, row in rows.items():
        library, _, name = key.partition(":")
        known = f"{library.replace('_', '-')} {row['version'] or ''}".rstrip()
        table.append([known, f"**{name.replace('_', ' ')}**: {_plain(row['title'])}", *_cells(row)])
    lines = [f"| {' | '.join(cells)} |" for cells in table]
    return "\n".join([lines[0], "| --- " * len(table[0]) + "|", *lines[1:]]) + "\n"


def _cells(row: dict[str, Any]) -> list[str]:
    if row["outcome"] != "compared":
        return ["", "", "", "", f"{row['outcome']}: {_plain(row['detail'])}"]
    reason = _reason(row) if row["replayed"] < 0.95 else None
    why = ""
    if reason is not None:
        message, _, _ = reason["message"].partition("\n")
        why = f"{reason['code']} {_plain(message)} ({reason['where']})"
    if differs(row):
        why = f"**{_plain(row['difference'])}** {why}"
    times = [f"{row[window]:.2f}" if window in row else "" for window in ("first", "afterwards")]
    return [
        _equal(row),
        "; ".join([f"{row['replayed']:.0%}", *_parts(row)[:MOST_PARTS]]),
        *times,
        why.replace(" ()", "").strip(),
    ]


def _parts(row: dict[str, Any]) -> list[str]:
    """The modules of a program that are graphed by themselves and replay, with the share of their calls."""
    return [
        f"{part['name']} {part['replayed'] / part['calls']:.0%}"
        for part in row.get("parts", ())
        if part["replayed"] >= SETTLED * part["calls"] > 0
    ]


def _plain(text: str) -> str:
    """Text for a cell: nothing in it is taken for Markdown; addresses differ from run to run."""
    text = re.sub(r"0x[0-9a-f]{6,}", "0x...", text)
    return re.sub(r"([|*_<>\[\]])", r"\\\1", text.replace("``", "`"))[:240]


if __name__ == "__main__":
    sys.exit(main())
