"""What was done to every linear layer, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...base import MisuseError, picture


@dataclass(frozen=True)
class StageReport:
    """The input of a layer behind one stage of its transform.

    Attributes:
        name: ``"input"``, or what the stage is.
        peak: Largest absolute value.
        typical: Median of the channels' largest absolute values.
        channels: Largest absolute values of the channels, the largest first, thinned out to 64.
        error: Relative square error of the output, if the layer was quantized at this stage.
    """

    name: str
    peak: float
    typical: float
    channels: tuple[float, ...]
    error: float


@dataclass(frozen=True)
class LayerReport:
    """One linear layer, or a module of another kind that holds the weight of one.

    Attributes:
        name: Of the layer.
        shape: ``(out, in)``; of another module its largest weight's.
        reason: Why it was not quantized; empty if it was.
        weight_bits: Bits of a weight.
        act_bits: Bits of an activation.
        path: How it is calculated.
        note: What ``path="kernel"`` leaves to torch, and why; with which layers it shares a launch; and with
            ``fold_smoothing`` why it divides its input itself.
        group: The first of the layers that share its transform.
        bytes_before: Of weight and bias.
        bytes_after: Of everything the layer keeps; the first layer of a group counts what all share.
        weight_error: Relative square error of the transformed weight.
        output_error: Relative square error of the output on kept rows; None without calibration.
        token_error: Median over those rows of each row's own relative error: one row with massive entries
            rules the total, and this shows the others.
        clipped: Share of activations outside their grid.
        stages: The input behind each stage, if asked for.
    """

    name: str
    shape: tuple[int, ...]
    reason: str = ""
    weight_bits: int = 16
    act_bits: int = 16
    path: str = "dense"
    note: str = ""
    group: str = ""
    bytes_before: int = 0
    bytes_after: int = 0
    weight_error: float | None = None
    output_error: float | None = None
    token_error: float | None = None
    clipped: float | None = None
    stages: tuple[StageReport, ...] = ()

    @property
    def quantized(self) -> bool:
        """Whether it was (or, in a dry run, would be) quantized."""
        return not self.reason


@dataclass(frozen=True)
class QuantReport:
    """A row for every linear layer of a model.

    Attributes:
        layers: In the model's order.
        dry_run: Nothing was changed.
    """

    layers: tuple[LayerReport, ...] = ()
    dry_run: bool = False

    def __iter__(self) -> Iterator[LayerReport]:
        return iter(self.layers)

    def __getitem__(self, name: str) -> LayerReport:
        return {layer.name: layer for layer in self.layers}[name]

    @property
    def quantized(self) -> list[LayerReport]:
        """The layers that were quantized."""
        return [layer for layer in self.layers if layer.quantized]

    @property
    def ratio(self) -> float:
        """Bytes of the quantized layers, after by before; 1 if there are none."""
        before = sum(layer.bytes_before for layer in self.quantized)
        return sum(layer.bytes_after for layer in self.quantized) / before if before else 1.0

    def to_json(self) -> str:
        """All of it."""
        totals = {"quantized": len(self.quantized), "layers": len(self.layers), "ratio": self.ratio}
        rows = [asdict(layer) for layer in self.layers]
        return json.dumps({"dry_run": self.dry_run, **totals, "rows": rows}, indent=1)

    def save(self, path: str | Path) -> None:
        """Write the JSON to a file."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @property
    def total(self) -> str:
        """How many layers were quantized, in a line."""
        done = "would be quantized" if self.dry_run else "quantized"
        total = f"{len(self.quantized)} of {len(self.layers)} linear layers {done}"
        return f"{total}, {self.ratio:.3f} of their bytes" if self.quantized else total

    def __str__(self) -> str:
        head = ("layer", "shape", "bits", "path", "bytes", "ratio", "weight", "output", "token", "clipped")
        table = [head, *(_cells(layer) for layer in self.layers)]
        full = [row for row in table if len(row) >= len(head)]  # reasons may be long
        widths = [max(len(row[i]) for row in (full if i >= _REASON else table)) for i in range(len(head))]
        widths.append(0)  # notes, too
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
            for row in table
        ]
        return "\n".join([*lines, self.total])


_REASON = 6
"""Column where a layer that is not quantized has its reason."""


def _cells(layer: LayerReport) -> tuple[str, ...]:
    shape = "x".join(map(str, layer.shape))
    if not layer.quantized:
        return (layer.name, shape, "", layer.path, str(layer.bytes_before), "", f"as it is: {layer.reason}")
    return (
        layer.name, shape, f"W{layer.weight_bits}A{layer.act_bits}", layer.path, str(layer.bytes_after),
        f"{layer.bytes_after / layer.bytes_before:.3f}" if layer.bytes_before else "",
        *map(_number, (layer.weight_error, layer.output_error, layer.token_error, layer.clipped)),
        *([layer.note] if layer.note else []),
    )  # fmt: skip


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2e}"


MOST_LAYERS = 24
"""Rows of the picture; of more layers it shows those with the largest errors."""


def draw(report: QuantReport, path: str | Path) -> None:
    """Draw a report as a PNG: for each layer the channels' peaks and the error behind each stage.

    Args:
        report: Made with ``quantize_(..., stages=True)``.
        path: Of the picture.

    Raises:
        MisuseError: The report has no stages.
        EnvironmentError_: matplotlib is not installed.
    """
    layers = [layer for layer in report.quantized if layer.stages]
    if not layers:
        raise MisuseError("the report has no stages to draw; make it with quantize_(..., stages=True)")
    shown = sorted(layers, key=lambda layer: -layer.stages[-1].error)[:MOST_LAYERS]
    shown = [layer for layer in layers if layer in shown]
    figure = picture.figure(1 + 1.5 * len(shown))
    axes: Any = figure.subplots(len(shown), 2, squeeze=False)
    for (left, right), layer in zip(axes, shown, strict=True):
        _draw_channels(left, layer)
        _draw_errors(right, layer)
    titles = ("largest value of each channel, in order of size", "relative square error of the output")
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=9)
    rest = f", the {len(shown)} with the largest errors" if len(shown) < len(layers) else ""
    figure.suptitle(f"{len(layers)} quantized layers{rest}", fontsize=10)
    figure.savefig(str(path), dpi=110)


def _draw_channels(axis: Any, layer: LayerReport) -> None:
    for i, stage in enumerate(layer.stages):
        places = [j / max(1, len(stage.channels) - 1) for j in range(len(stage.channels))]
        axis.semilogy(places, _positive(stage.channels), label=f"{i} {stage.name}", linewidth=1)
    axis.set_ylabel(".".join(layer.name.split(".")[-3:]), fontsize=7)
    axis.set_xticks([0, 1], ["largest", "smallest"])
    axis.tick_params(labelsize=6, which="both")
    axis.legend(fontsize=5, loc="upper right")


def _draw_errors(axis: Any, layer: LayerReport) -> None:
    names = [f"{i} {stage.name}" for i, stage in enumerate(layer.stages)]
    errors = [stage.error for stage in layer.stages]
    if layer.output_error is not None:
        names, errors = [*names, "as quantized"], [*errors, layer.output_error]
    bars = axis.barh(names, _positive(errors), height=0.7)
    axis.bar_label(bars, [f"{error:.1e}" for error in errors], fontsize=6, padding=2)
    axis.set_xscale("log")
    axis.set_xlim(min(_positive(errors)) / 3, max(_positive(errors)) * 3)  # a log axis has no start
    axis.invert_yaxis()
    axis.tick_params(labelsize=6, which="both")


def _positive(values: Sequence[float]) -> list[float]:
    """For logarithmic axes."""
    return [max(value, 1e-12) for value in values]
