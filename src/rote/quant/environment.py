"""The policy variant from environment variables, for scripts that set them already.

They are ``ROTE_DUQUANT_<NAME>``, or ``OPENPI_DUQUANT_<NAME>`` as in public forks of openpi.
:func:`quantize_from_env` reads them when it is called, never at import. Where they say nothing,
``DuQuantConfig.vla()`` holds. ``docs/quantization.md`` says what each of them does.
"""

from __future__ import annotations

import glob
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..base import MisuseError, OptionError, read_duquant
from .calibrating import CalibrationStats, calibrate
from .config import DuQuantConfig, matches
from .converting import QuantReport, quantize_
from .layer import DuQuantLinear
from .saving import load_quantized, save_quantized

T = TypeVar("T", int, float)
OWN = "ROTE_DUQUANT_"
PREFIXES = (OWN, "OPENPI_DUQUANT_")
SAMPLED = 256
"""Numbers of each tensor that tell models apart in PACKDIR."""

NAMES = (
    "WBITS_DEFAULT", "ABITS", "BLOCK", "BLOCK_OUT", "LS", "PERMUTE", "ACT_PCT", "CALIB_STEPS", "PACKDIR",
    "ROW_ROT", "SCOPE", "LAYERS", "INCLUDE", "EXCLUDE", "WBITS", "DRYRUN",
)  # fmt: skip


@dataclass(frozen=True)
class EnvironmentPlan:
    """What the variables ask for; what is empty sets no limit."""

    config: DuQuantConfig
    scope: str = ""
    layers: tuple[str, ...] = ()
    include: str = ""
    exclude: str = ""
    pack_dir: Path | None = None
    dry_run: bool = False

    def config_on(self, path: str | None) -> DuQuantConfig:
        """The configuration with another path, if one is given."""
        if path is None:
            return self.config
        return self.config.replace(path=path, fold_act_scale=self.config.fold_act_scale or path == "kernel")

    def patterns(self, model: nn.Module) -> list[str]:
        """Patterns of exactly the layers to quantize.

        Raises:
            OptionError: A variable fits no layer of the model, or no layer is left.
        """
        names = [name for name, m in model.named_modules() if isinstance(m, nn.Linear | DuQuantLinear)]
        for name in self.layers:
            if name not in names:
                raise OptionError(f"{OWN}LAYERS names {name!r}, and the model has no such linear layer")
        for pattern, _ in self.config.layer_bits:
            if not any(matches(pattern, name) for name in names):
                raise OptionError(f"{OWN}WBITS names {pattern!r}, and the model has no such linear layer")
        left = set(self.layers or names)
        for variable, value, fits in (
            ("SCOPE", self.scope, lambda name: name.startswith(self.scope)),
            ("INCLUDE", self.include, re.compile(self.include).search),
            ("EXCLUDE", self.exclude, re.compile(self.exclude).search),
        ):
            fitting = {name for name in names if fits(name)}
            if value and not fitting:
                count = len(names)
                raise OptionError(f"{OWN}{variable}={value!r} fits none of the model's {count} linear layers")
            if value:
                left = left - fitting if variable == "EXCLUDE" else left & fitting
        if not left:
            raise OptionError("SCOPE, LAYERS, INCLUDE and EXCLUDE together leave no linear layer")
        return [glob.escape(name) for name in names if name in left]


def read_plan(variables: Mapping[str, str]) -> EnvironmentPlan | None:
    """What variables, by their full names, ask for; None if there are none.

    Raises:
        OptionError: A name is unknown, a value impossible, or two names have different values.
    """
    values = _merged(variables)
    if not values:
        return None
    read = _Reader(values)
    block, row_rotation = (
        read.number("BLOCK", 16),
        read.choice("ROW_ROT", {"restore": True, "0": False}, True),
    )
    block_out = read.number("BLOCK_OUT", block)
    read.number("LS", 0.15)
    changes: dict[str, Any] = {
        "weight_bits": _bits(read.number("WBITS_DEFAULT", 4)), "act_bits": _bits(read.number("ABITS", 8)),
        "block_size": block, "block_out_size": block_out if row_rotation else None,
        "row_rotation": row_rotation,
        "permutation": "energy" if read.choice("PERMUTE", _FLAGS, True) else "none",
        "act_percentile": read.number("ACT_PCT", 99.9),
        "calib_batches": read.number("CALIB_STEPS", 32) or 1,
        "layer_bits": tuple(read.layer_bits("WBITS")),
    }  # fmt: skip
    try:
        config = DuQuantConfig.vla(**changes)
    except OptionError as error:
        raise OptionError(f"{', '.join(sorted(variables))}: {error}") from error
    layers = tuple(name.strip() for name in values.get("LAYERS", "").split(",") if name.strip())
    pack_dir = Path(values["PACKDIR"]) if values.get("PACKDIR") else None
    return EnvironmentPlan(
        config, values.get("SCOPE", ""), layers, read.regular("INCLUDE"), read.regular("EXCLUDE"), pack_dir,
        read.choice("DRYRUN", _FLAGS, False),
    )  # fmt: skip


def quantize_from_env(
    model: nn.Module,
    batches: Iterable[Any] | None = None,
    *,
    call: Callable[..., Any] | None = None,
    stats: CalibrationStats | None = None,
    path: str | None = None,
) -> QuantReport | None:
    """Quantize a model as environment variables say.

    Args:
        model: Its layers are replaced.
        batches: Inputs to calibrate with: mappings are keyword arguments, tuples are arguments.
        call: What is called with them, if that is not the model: ``policy.infer``, ``model.sample_actions``.
        stats: Statistics that were taken already, instead.
        path: How layers are calculated; no variable says it.

    Returns:
        The report, without errors if the layers were loaded from PACKDIR; None, with nothing done, if no
        variable is set.

    Raises:
        OptionError: A variable is unknown, has an impossible value, or fits no layer.
        MisuseError: Calibration is needed, and there is neither a batch, statistics nor a checkpoint.
    """
    plan = read_plan(read_duquant())
    if plan is None:
        return None
    config, include = plan.config_on(path), plan.patterns(model)
    if plan.dry_run:
        return quantize_(model, config, include=include, dry_run=True)
    kept = None if plan.pack_dir is None else plan.pack_dir / _file_name(config, include, model)
    if kept is not None and kept.exists():
        planned = quantize_(model, config, include=include, dry_run=True)
        load_quantized(model, kept, config=config, way=path)
        return replace(planned, dry_run=False)
    if kept is not None:
        folder = kept.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)  # before there is anything to lose
        except OSError as error:
            raise MisuseError(f"PACKDIR={str(folder)!r} is no folder, and cannot be made: {error}") from error
    if stats is None and batches is not None and config.needs_calibration:
        with calibrate(model, config, include=include, manual=True) as stats, torch.no_grad():
            for batch in batches:
                if stats.done:
                    break
                _call(model if call is None else call, batch)
                stats.end_batch()
    if stats is None and config.needs_calibration:
        raise MisuseError("quantize_from_env needs batches or stats to calibrate with")
    report = quantize_(model, config, stats, include=include)
    if kept is not None:
        save_quantized(model, kept)
    return report


def _file_name(config: DuQuantConfig, names: list[str], model: nn.Module) -> str:
    """The file of these layers of this model with this configuration."""
    layers = hashlib.sha256("\n".join(names).encode())
    for name, value in model.state_dict().items():
        if not isinstance(value, Tensor):
            continue
        layers.update(f"{name}{value.dtype}{list(value.shape)}".encode())
        if value.numel() and not value.is_meta:  # evenly spread numbers: another training run has others
            flat = value.detach().reshape(-1)
            chosen = flat[:: max(1, flat.numel() // SAMPLED)].cpu().contiguous()
            layers.update(chosen.view(torch.uint8).numpy().tobytes())
    return f"duquant-{config.digest}-{layers.hexdigest()[:8]}.safetensors"


def _call(function: Callable[..., Any], batch: Any) -> None:
    if isinstance(batch, Mapping):
        function(**batch)
    elif isinstance(batch, tuple):
        function(*batch)
    else:
        function(batch)


def _merged(variables: Mapping[str, str]) -> dict[str, str]:
    """Values by short name."""
    values: dict[str, str] = {}
    for full, value in variables.items():
        prefix = next(prefix for prefix in PREFIXES if full.startswith(prefix))
        name = full.removeprefix(prefix)
        if name not in NAMES:
            raise OptionError(f"{full} is not known; the names are {prefix} with {', '.join(NAMES)}")
        if values.setdefault(name, value) != value:
            raise OptionError(f"{PREFIXES[0]}{name} and {PREFIXES[1]}{name} are set to different values")
    return values


_FLAGS = {"1": True, "true": True, "0": False, "false": False}


class _Reader:
    """Values with the errors that name the variable."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = {name: value.strip() for name, value in values.items()}

    def number(self, name: str, default: T) -> T:
        """A number of the default's type."""
        text, kind = self.values.get(name, ""), type(default)
        try:
            return kind(text) if text else default
        except ValueError as error:
            what = "whole number" if kind is int else "number"
            raise OptionError(f"{OWN}{name}={text!r} must be a {what}") from error

    def choice(self, name: str, choices: Mapping[str, bool], default: bool) -> bool:
        text = self.values.get(name, "").lower()
        if text and text not in choices:
            raise OptionError(f"{OWN}{name}={text!r} must be one of {', '.join(choices)}")
        return choices[text] if text else default

    def regular(self, name: str) -> str:
        text = self.values.get(name, "")
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"{OWN}{name}={text!r} is no regular expression: {error}") from error
        return text

    def layer_bits(self, name: str) -> Iterable[tuple[str, int]]:
        for part in filter(None, (part.strip() for part in self.values.get(name, "").split(","))):
            layer, _, bits = part.rpartition(":")
            if not layer or not bits.lstrip("-").isdigit():
                raise OptionError(f"{OWN}{name}: {part!r} must be full.layer.name:bits")
            yield glob.escape(layer), _bits(int(bits))


def _bits(value: int) -> int:
    return 16 if value <= 0 or value >= 16 else value
