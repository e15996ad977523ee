"""``rote quantize``: calibrate a target's model, quantize it, write the checkpoint, report on every layer.

The exit status is 0 if layers were (or, with ``--dry-run``, would be) quantized; 1 if none could be, and then
no file is written; 2 if the command could not do its work. What is certain to fail is found before
calibration begins.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from torch import nn

from ..base import MisuseError, OptionError, read_duquant
from ..quant import (
    CalibrationStats,
    DuQuantConfig,
    EnvironmentPlan,
    LayerReport,
    QuantReport,
    calibrate,
    draw,
    quantize_,
    quantize_from_env,
    read_plan,
    save_quantized,
)
from .output import HERE, check_installed, check_places, progress, told
from .targets import Arg, CommandTarget, Target, batches_of, load, model_of, run

NOTHING = 1
"""Exit status if no layer could be quantized."""


@dataclass(frozen=True)
class Request:
    """What to quantize, and how.

    Attributes:
        include: Patterns; None stands for all layers.
        batches: The exact number; None takes those that there are, up to the configuration's number.
        from_env: Configuration and layers are those of the environment.
        path: How layers are calculated, where the environment does not say.
        notes: Remarks for the reader of the report.
    """

    target: CommandTarget
    model: nn.Module
    config: DuQuantConfig
    include: list[str] | None
    exclude: list[str] | None
    batches: int | None
    dry_run: bool
    from_env: bool
    path: str | None
    notes: list[str] = field(default_factory=list[str])


def quantize(
    target: Target,
    out: Annotated[Path | None, typer.Option(metavar="OUT.safetensors", help="Checkpoint to write.")] = None,
    config: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="default, vla, or a JSON file of fields of DuQuantConfig."),
    ] = None,
    from_env: Annotated[
        bool, typer.Option("--from-env", help="Configuration and layers from ROTE_DUQUANT_* variables.")
    ] = False,
    path: Annotated[
        str | None, typer.Option(help="reference, fused or kernel, whatever the configuration says.")
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option(help="Pattern of layers that are meant; a glob, or re:... .")
    ] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Pattern of layers to leave out.")] = None,
    batches: Annotated[
        int | None, typer.Option(min=1, help="Calibration batches; fewer are an error.")
    ] = None,
    arg: Arg = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing: list every layer with shape, bits, bytes.")
    ] = False,
    json_path: Annotated[
        Path | None,
        typer.Option("--json", metavar="OUT.json", help="Write the report; - for here, without the table."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="OUT.png", help="PNG of channels and errors, stage by stage.")
    ] = None,
) -> None:
    """Quantize the linear layers of a model with DuQuant.

    The target's function returns (model, args, kwargs). Instead of the model it may name a method of it.

    The arguments are those of one call, or one list of batches: (policy.sample_actions, (observations,)).

    A batch is a mapping of keyword arguments, a tuple of arguments, or the only argument.
    """
    with told(), redirect_stdout(sys.stderr):  # what the target prints is no report
        if from_env and (config is not None or include or exclude or plot):
            text = "--config, --include, --exclude and --plot"
            raise MisuseError(f"--from-env does not go together with {text}")
        plan = _plan() if from_env else None
        chosen = _config(config or "default", path) if plan is None else plan.config_on(path)
        dry_run = dry_run or (plan is not None and plan.dry_run)
        if out is None and not dry_run:
            raise MisuseError("--out names the checkpoint to write; --dry-run needs none")
        if plot is not None and dry_run:
            raise MisuseError("--plot shows what quantization did: it does not go together with --dry-run")
        check_places(out, json_path, picture=plot)
        if out is not None:
            check_installed("safetensors", "--out needs safetensors: pip install 'rote[quant]'")
        found = load(target, arg or [])
        model = model_of(found)
        wanted = include or None if plan is None else plan.patterns(model)
        request = Request(found, model, chosen, wanted, exclude or None, batches, dry_run, from_env, path)
        report, done = _quantized(request, stages=plot is not None)
        if done and not dry_run and out is not None:
            save_quantized(model, out)
            request.notes.append(f"written to {out}")
        if done and plot is not None:
            draw(report, plot)
            request.notes.append(f"picture in {plot}")
        if json_path is not None and json_path != HERE:
            report.save(json_path)
            request.notes.append(f"report in {json_path}")
    show(report, request.notes, json_path == HERE)
    if not done:
        raise typer.Exit(NOTHING)


def _plan() -> EnvironmentPlan:
    plan = read_plan(read_duquant())
    if plan is None:
        raise MisuseError("--from-env: no variable ROTE_DUQUANT_* or OPENPI_DUQUANT_* is set")
    return plan


def _config(name: str, path: str | None) -> DuQuantConfig:
    """A configuration by name or from a file."""
    changes: dict[str, Any] = {} if path is None else {"path": path}
    if name == "vla":
        return DuQuantConfig.vla(**changes)
    if name == "default":
        return DuQuantConfig(**changes)
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MisuseError(f"--config {name!r} is neither default nor vla nor a file: {error}") from error
    try:
        return DuQuantConfig.from_json(text).replace(**changes)
    except OptionError as error:
        raise OptionError(f"{name}: {error}") from error


def _quantized(request: Request, *, stages: bool) -> tuple[QuantReport, bool]:
    """The report, and whether layers were (in a dry run, would be) quantized."""
    model, config, include, exclude = request.model, request.config, request.include, request.exclude
    planned = quantize_(model, config, include=include, exclude=exclude, dry_run=True)
    if request.dry_run or not planned.quantized:
        return replace(planned, dry_run=request.dry_run), bool(planned.quantized)
    stats = _calibrated(request)
    if stages and stats is None:
        raise MisuseError(f"--plot needs inputs to look at, and {request.target.name} returned no arguments")
    with progress() as bar:
        bar.add_task("quantizing", total=None)
        if request.from_env:
            report = quantize_from_env(model, stats=stats, path=request.path)
            assert report is not None  # without a variable there is no request
        else:
            report = quantize_(model, config, stats, include=include, exclude=exclude, stages=stages)
    done = report.quantized
    if request.from_env and all(layer.weight_error is None for layer in done):  # nothing was rounded now
        request.notes.append(f"{len(done)} quantized layers are those of a checkpoint in PACKDIR")
    return report, bool(done)


def _calibrated(request: Request) -> CalibrationStats | None:
    """The statistics of the layers' inputs; None if they are not needed and there are no arguments."""
    target, wanted = request.target, request.batches or request.config.calib_batches
    if not request.config.needs_calibration and not target.args and not target.kwargs:
        return None
    calls = batches_of(target, wanted)
    if request.batches is not None and len(calls) < request.batches:
        raise MisuseError(f"--batches {request.batches}: {target.name} has {len(calls)}")
    if len(calls) < wanted:
        batches = "1 batch" if len(calls) == 1 else f"{len(calls)} batches"
        request.notes.append(f"calibrated with {batches}, where the configuration has {wanted}")
    config = request.config.replace(calib_batches=len(calls))
    watched = calibrate(
        request.model, config, include=request.include, exclude=request.exclude, manual=True, progress=False
    )
    with watched as stats, progress() as bar:
        for i, call in enumerate(bar.track(calls, description="calibrating")):
            run(target, call, f"batch {i + 1} of {len(calls)}")
            stats.end_batch()
    return stats


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
        for made in (_layers(report), _left(report)):
            if made.row_count:
                console.print(made)
        typer.echo(report.total)
    for note in notes:
        typer.echo(note, err=as_json)


def _layers(report: QuantReport) -> Table:
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
