"""The report of a quantization on the terminal."""

from __future__ import annotations

import sys

import typer
from rich.console import Console
from rich.table import Table

from ..quant import LayerReport, QuantReport

WIDE = 1000
"""Columns where there is no terminal: no line is broken then."""

ERRORS = ("weight", "output", "token", "clipped")
"""Relative squared errors of weight, output and median token, and the clipped share."""


def show(report: QuantReport, notes: list[str], as_json: bool) -> None:
    """Print a report as tables or as JSON, and notes on it, with JSON to standard error."""
    if as_json:
        typer.echo(report.to_json())
    else:
        width = None if sys.stdout.isatty() else WIDE
        console = Console(width=width, markup=False, highlight=False, emoji=False)
        for made in (_quantized(report), _left(report)):
            if made.row_count:
                console.print(made)
        typer.echo(report.total)
    for note in notes:
        typer.echo(note, err=as_json)


def _quantized(report: QuantReport) -> Table:
    """A row for every layer that was, or would be, quantized."""
    errors = 0 if report.dry_run else len(ERRORS)
    numbers = ("bytes before", "after", "ratio", *ERRORS[:errors])
    made = _table("layer", "shape", "bits", "path", numbers=numbers)
    if any(layer.note for layer in report.quantized):
        made.add_column("note", overflow="fold")
    for layer in report.quantized:
        ratio = f"{layer.bytes_after / layer.bytes_before:.3f}" if layer.bytes_before else ""
        found = (layer.weight_error, layer.output_error, layer.token_error, layer.clipped)[:errors]
        made.add_row(
            layer.name, _shape(layer), f"W{layer.weight_bits}A{layer.act_bits}", layer.path,
            str(layer.bytes_before), str(layer.bytes_after), ratio,
            *("-" if value is None else f"{value:.2e}" for value in found), *filter(None, [layer.note]),
        )  # fmt: skip
    return made


def _left(report: QuantReport) -> Table:
    """A row for every other layer, with the reason."""
    made = _table("left as it is", "shape", "path", numbers=("bytes",))
    made.add_column("reason", overflow="fold")
    for layer in report:
        if not layer.quantized:
            made.add_row(layer.name, _shape(layer), layer.path, str(layer.bytes_before), layer.reason)
    return made


def _table(name: str, *texts: str, numbers: tuple[str, ...]) -> Table:
    made = Table(box=None, pad_edge=False)
    made.add_column(name, overflow="fold")
    for text in texts:
        made.add_column(text, no_wrap=True)
    for number in numbers:
        made.add_column(number, no_wrap=True, justify="right")
    return made


def _shape(layer: LayerReport) -> str:
    return "x".join(map(str, layer.shape))
