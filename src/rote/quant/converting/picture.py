"""One picture of a report: what transforms do to outliers, and to the error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...base import MisuseError, picture
from .report import LayerReport, QuantReport

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
