"""The published failures: what layers, remedies and runtimes make of each other, from the results."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from .benchmarks import RESULTS

TITLES = {
    "torch.compile": "`torch.compile`",
    "backend rote": '`torch.compile(backend="rote")`',
    "reduce-overhead": '`mode="reduce-overhead"`',
    "rote.graph": "`rote.graph`",
}
WITHOUT = "as it was written"
WHOLE = "all of it"


def preferred() -> Path:
    """The results that the page shows: the newest of a GPU if there are any, else those of the host."""

    def order(path: Path) -> tuple[bool, str]:
        return path.parent.name != "host", json.loads(path.read_text(encoding="utf-8"))["date"]

    return max(RESULTS.glob("*/published.json"), key=order)


def results() -> str:
    """What was run and on what, then the tables."""
    return tables(preferred())


def tables(path: Path) -> str:
    """The section of one file of results."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    cells: dict[str, dict[str, dict[str, Any]]] = document["cells"]
    runtimes: list[str] = document["runtimes"]
    plain = [_row(f"**{layer}**", rows.get(WITHOUT, {}), runtimes) for layer, rows in cells.items()]
    parts = [_stand(path, document), "### As they were written\n\n" + _table("layer", runtimes, plain)]
    for layer, rows in cells.items():
        title = "### With each remedy: " + ("the layer with all of it" if layer == WHOLE else layer)
        with_remedies = [_row(remedy, row, runtimes) for remedy, row in rows.items()]
        parts.append(f"{title}\n\n" + _table("remedy", runtimes, with_remedies))
    return "\n\n".join([*parts, _messages(cells, runtimes)])


def _stand(path: Path, document: dict[str, Any]) -> str:
    versions, place = document["versions"], f"`benchmarks/results/{path.parent.name}/{path.name}`"
    made = f"torch {versions['torch']}, Python {versions['python']}, on {document['date']}; {place}."
    if path.parent.name != "host":
        return f"Run on {document['device']} with {made}"
    return (
        f"Run on the host ({document['device']}) with {made} No run on a GPU is in the repository yet. On "
        'the host there are no CUDA graphs, so `mode="reduce-overhead"` is left out, `torch.compile` stands '
        'for its `backend="aot_eager"`, and rote replays tapes with the kernels of eager: these tables say '
        "what rote does with such layers, and nothing of what PyTorch's graphs do."
    )


def _table(first: str, runtimes: list[str], rows: list[str]) -> str:
    titles = [TITLES.get(runtime, runtime) for runtime in runtimes]
    return "\n".join([_line([first, *titles]), _line(["---"] * (len(runtimes) + 1)), *rows])


def _row(title: str, answers: dict[str, Any], runtimes: list[str]) -> str:
    return _line([title, *(_cell(answers.get(runtime), runtime) for runtime in runtimes)])


def _cell(answer: dict[str, Any] | None, runtime: str) -> str:
    if answer is None:
        return "not run"
    outcome = answer["outcome"]
    if outcome == "right":
        silent = runtime in ("eager", "torch.compile")  # these replay nothing
        return "right" if silent else f"right, {'replayed' if answer['replayed'] else 'not replayed'}"
    if outcome == "refused":
        return f"no answer: {answer['detail']}"
    return f"{'**wrong**' if outcome == 'wrong' else 'error'}: {answer['where']}"


def _messages(cells: dict[str, dict[str, dict[str, Any]]], runtimes: list[str]) -> str:
    """The first lines of the errors, most frequent first."""
    lines = ["### What the errors say", ""]
    for runtime in runtimes:
        answers = [row[runtime] for rows in cells.values() for row in rows.values() if runtime in row]
        said = Counter(_said(answer) for answer in answers if answer["outcome"] == "error")
        title = TITLES.get(runtime, runtime)
        lines += [f"- {title}, {number} cells: `{text}`" for text, number in said.most_common()]
    return "\n".join(lines if len(lines) > 2 else [*lines, "There are none."])


def _said(answer: dict[str, Any]) -> str:
    text = answer["detail"].replace("`", "'")
    return text if len(text) <= 140 else f"{text[:137]}..."


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
