"""What each line of the generated replay takes the host: 4 x Linear(256) and ReLU, with one input or ten, and
a whole training step of one Linear(1024) with SGD.

The function that answers a plain replay is written as text. Here a mark stands before each of its lines, and
the host's time between two marks, less that of a mark, is what the line takes. Nobody waits for the device,
so the host runs ahead of it. The facts have the lines in their order, with what their constants are; the sum
of all lines stands beside the time of whole calls and of bare replays.

``python -m benchmarks.run --case hot_path --device cuda`` writes the JSON.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise
from time import perf_counter_ns
from typing import Any
from unittest import mock

import torch
from torch import Tensor

import rote
from rote.runtime.arguments import Source

from .common import Outcome, Settings, all_equal, bare_replay, time_loops
from .overhead import WIDTH, build
from .targets.training import linear_sgd

NEEDS_GPU = False
CALLS, LOOP, WARM = 400, 100, 9
_CONSTANT = re.compile(r"\bc\d+\b")


def run(settings: Settings) -> Outcome:
    """All subjects."""
    out = Outcome()

    def layers() -> Callable[..., Tensor]:
        made = build(settings.device)
        return lambda *inputs: made(sum(inputs)) if len(inputs) > 1 else made(*inputs)

    with torch.no_grad():
        for count in (1, 10):
            inputs = [torch.randn(1, WIDTH, device=settings.device) for _ in range(count)]
            measure(out, f"{count} inputs", layers, inputs, settings)
    kind = settings.device.type
    measure(out, "training step", lambda: linear_sgd(device=kind)[0], linear_sgd(device=kind)[1], settings)
    return out


def measure(
    out: Outcome,
    name: str,
    made: Callable[[], Callable[..., Tensor]],
    inputs: Sequence[Tensor],
    settings: Settings,
) -> None:
    """Whole calls, bare replays, and the lines; each of a callable of its own, made in the same way."""
    plain = rote.graph(made(), keep=True, numerics="plain")
    for _ in range(WARM):
        plain(*inputs)
    ways: dict[str, Callable[[], object]] = {"rote": lambda: plain(*inputs)}
    bare = bare_replay(plain)
    if bare is not None:
        ways["bare replay"] = bare
    out.add(name, time_loops(ways, settings, rounds=30, calls=LOOP))
    marked = _Marked()
    with mock.patch.object(Source, "compile", lambda source: marked.compile(source)):
        graphed = rote.graph(made(), keep=True, numerics="plain")
        results = [graphed(*inputs).clone() for _ in range(WARM)]
    theirs = made()
    out.checks[f"{name}: equal"] = all_equal([theirs(*inputs) for _ in range(WARM)], results)
    for _ in range(settings.rounds(30)):
        for _ in range(CALLS // 10):
            marked.begin()
            graphed(*inputs)
            marked.end()
        if settings.on_gpu:
            torch.cuda.synchronize()
    out.facts[name] = marked.told()
    plain.reset()
    graphed.reset()


class _Marked:
    """Writes marks into a generated replay, and adds up what they say."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._times: list[tuple[int, int]] = []
        self._found: dict[int, list[int]] = {}

    def compile(self, source: Source) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
        """The function with a mark before each line, in the place of :meth:`Source.compile`."""
        head, *lines = source.text.rstrip().split("\n")
        text, self._lines = [head], []
        for line in lines:
            bare = line.lstrip()
            if not bare.startswith(("finally", "except", "else")):
                text.append(f"{line[: len(line) - len(bare)]}mark({len(self._lines)})")
                self._lines.append(_told(bare, source._namespace))
            text.append(line)
        source._namespace["mark"] = self._mark
        exec("\n".join(text), source._namespace)
        return source._namespace.pop(head.removeprefix("def ").partition("(")[0])

    def _mark(self, line: int) -> None:
        self._times.append((line, perf_counter_ns()))

    def begin(self) -> None:
        """A call comes."""
        self._times = []

    def end(self) -> None:
        """It has returned."""
        ends = [*self._times[1:], (-1, perf_counter_ns())]
        for (line, began), (_, ended) in zip(self._times, ends, strict=True):
            self._found.setdefault(line, []).append(ended - began)

    def told(self) -> dict[str, Any]:
        """The median of each line, and their sum, in nanoseconds."""
        own = self._of_a_mark()
        medians = {line: max(statistics.median(found) - own, 0) for line, found in self._found.items()}
        lines = [f"{medians[line]:6.0f} ns  {self._lines[line]}" for line in sorted(medians)]
        return {"lines": lines, "sum_us": sum(medians.values()) / 1e3, "of a mark, ns": own}

    def _of_a_mark(self) -> float:
        self._times = []
        for number in range(1000):
            self._mark(number)
        times = [when for _, when in self._times]
        return statistics.median([after - before for before, after in pairwise(times)])


def _told(line: str, namespace: dict[str, Any]) -> str:
    """A line with what its constants are."""

    def named(found: re.Match[str]) -> str:
        value = namespace.get(found[0])
        name = getattr(value, "__qualname__", None) or type(value).__qualname__
        return f"<{name}>"

    return _CONSTANT.sub(named, line)
