"""One layer with one remedy under one runtime, beside the same weights and calls in eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from .layers import (
    WIDTH,
    Calibrated,
    Counted,
    DuQuantLinear,
    FirstBatch,
    NumpyPercentile,
    QuantLinear,
    QuantPolicy,
    Smoothed,
    WrittenView,
)
from .remedies import REMEDIES, Remedy
from .runtimes import RUNTIMES, Runtime

CALLS, LATE, ROWS = 14, 4, 16
NEAR = 0.05
"""Relative distance of results. Rounding of compiled code may tip a code; what is stale is further off."""

LAYERS: dict[str, tuple[type[QuantLinear], bool]] = {
    "all of it": (DuQuantLinear, False),
    "quantile in each call, kept on self": (Smoothed, False),
    "scale of the first batch": (FirstBatch, False),
    "calibrator that becomes full": (Calibrated, False),
    "in-place writes on a view": (WrittenView, False),
    "numpy in forward": (NumpyPercentile, False),
    "counter of calls, by the layer's name": (Counted, False),
    "layers compiled one by one": (Calibrated, True),
}
"""The layers, and whether each is compiled or graphed by itself."""


@dataclass(frozen=True)
class Cell:
    """A place in the table."""

    layer: str
    remedy: Remedy
    runtime: str


@dataclass(frozen=True)
class CellAnswer:
    """What came of a cell.

    Attributes:
        outcome: ``right``, ``error`` or ``wrong`` (silently).
        where: The first call, or else what the user keeps (``scale``, ``held results``), that is not right.
        detail: The first line of the error, or how far the value is off.
        replayed: Whether each of the last calls replayed a graph.
    """

    outcome: str
    where: str = ""
    detail: str = ""
    replayed: bool = False


def cells() -> Iterator[Cell]:
    """All of them."""
    for layer, (kind, _) in LAYERS.items():
        for remedy in REMEDIES:
            for runtime in RUNTIMES if remedy.concerns(kind) else ():
                yield Cell(layer, remedy, runtime)


def run(cell: Cell, device: torch.device) -> CellAnswer:
    """Run a cell in this process."""
    runtime = RUNTIMES[cell.runtime](device)
    expected = [each.value for each in _seen(cell, Runtime(device))]
    replays: list[int] = []
    found = _seen(cell, runtime)
    for want in expected:
        try:
            seen = next(found)
        except Exception as error:
            return CellAnswer("error", _where(len(replays)), _first_line(error))
        replays.append(runtime.replays())
        if not _near(seen.value, want, runtime.exact):
            return CellAnswer("wrong", seen.where, f"off by {_distance(seen.value, want):.2g} of its size")
    calls = replays[:CALLS]
    late = [after > before for before, after in pairwise(calls)][-LATE:]
    return CellAnswer("right", replayed=all(late))


@dataclass(frozen=True)
class _Seen:
    """Something that the user looks at, copied to the host."""

    where: str
    value: Tensor


def _seen(cell: Cell, runtime: Runtime) -> Iterator[_Seen]:
    """Each result as it comes; then the scales that the layers keep, and all results again."""
    kind, one_by_one = LAYERS[cell.layer]
    torch.manual_seed(0)
    model = cell.remedy.build(kind).to(runtime.device)
    inputs = [_input(number).to(runtime.device) for number in range(CALLS + cell.remedy.warm_up)]
    with torch.no_grad():
        for x in inputs[: cell.remedy.warm_up]:
            model(x)
        act = cell.remedy.called(_wrapped(model, runtime, one_by_one))
        held: list[Tensor] = []
        for number, x in enumerate(inputs[cell.remedy.warm_up :]):
            held.append(act(x))
            yield _Seen(_where(number), held[-1].to("cpu", copy=True))
        kept = [layer._act_scale for layer in model.layers if layer._act_scale is not None]
        yield _Seen(_where(CALLS), torch.cat([scale.reshape(-1).cpu() for scale in [torch.ones(1), *kept]]))
        yield _Seen(_where(CALLS + 1), torch.stack([result.cpu() for result in held]))


def _where(number: int) -> str:
    return f"call {number + 1}" if number < CALLS else ("the scale", "held results")[number - CALLS]


def _wrapped(model: QuantPolicy, runtime: Runtime, one_by_one: bool) -> Callable[[Tensor], Tensor]:
    if not one_by_one:
        return runtime.wrap(model)
    up, down = map(runtime.wrap, model.layers)
    return lambda x: down(torch.tanh(up(x)))


def _input(number: int) -> Tensor:
    """Inputs of other sizes in each call, so that what is stale is far off."""
    torch.manual_seed(100 + number)
    return torch.randn(ROWS, WIDTH) * (1 + number % 5)


def _near(value: Tensor, want: Tensor, exact: bool) -> bool:
    return torch.equal(value, want) if exact else _distance(value, want) <= NEAR


def _distance(value: Tensor, want: Tensor) -> float:
    """Of the largest rows: a held result that is not its own counts whatever the others are."""
    if value.shape != want.shape:
        return float("inf")
    off, size = (value - want).float(), want.float()
    rows = (1, -1) if want.dim() < 3 else (len(want), -1)
    return float((off.reshape(rows).norm(dim=1) / size.reshape(rows).norm(dim=1).clamp_min(1e-9)).max())


def _first_line(error: BaseException) -> str:
    lines: Any = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")
