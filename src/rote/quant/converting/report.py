"""What was done to every linear layer, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path


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
