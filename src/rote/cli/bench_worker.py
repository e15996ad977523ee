"""The process of one contender of ``rote bench``: ``python -m rote.cli.bench_worker JSON``.

All that the target or a library prints goes to the standard error stream; answers have a stream of their own.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..api import Graphed, graph
from ..base import MisuseError
from ..bench.worker import EAGER, PEERS, Contender, Worker, Workload, serve
from ..padding import Padded
from .targets import load


def _notes(call: Any) -> list[str]:
    """How much was replayed, and the main reason against more."""
    report = call.report()
    notes = [f"{report.replayed} of {report.calls} calls replayed"]
    islands = [island for recording in report.recordings for island in recording.islands]
    if islands:
        notes.append(f"islands: {len(islands)}, one is {islands[0].operation} at {islands[0].where}")
    if report.calls - report.replayed > report.calls / 2 and report.reasons:
        worst = report.reasons[0]
        where = f" ({worst.where})" if worst.where else ""
        notes.append(f"{worst.code} {worst.message}{where}. {worst.remedy}")
    return notes


def _is_settled(call: Any, timeout_s: float) -> bool:
    return call.wait_until_optimized(timeout_s)


_NEARLY = partial(graph, numerics="near")
ROTE = Contender("rote", "rote", graph, _notes, _is_settled)
NEAR = replace(ROTE, name="rote-near", title="rote near", make=_NEARLY, by_default=False)
CONTENDERS = {contender.name: contender for contender in (EAGER, *PEERS, ROTE, NEAR)}
"""By name, in the order of the table."""


def main() -> None:
    """Answer questions on the standard streams."""
    questions = os.fdopen(os.dup(0))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    wanted: dict[str, Any] = json.loads(sys.argv[1])

    def build() -> Workload:
        target = load(wanted["target"], wanted["arguments"])
        if isinstance(target.function, (Graphed, Padded)):
            raise MisuseError(f"{target.name} returns a graphed callable; return the plain one")
        return Workload(target.function, target.args, target.kwargs)

    contender = CONTENDERS[wanted["contender"]]
    serve(lambda say: Worker(contender, build, Path(wanted["folder"]), say), questions, answers)


if __name__ == "__main__":
    main()
