"""Smoothing without cost at run time: its divisors go into the norm or the linear layer before a group.

Calibration says which module a layer's input came from in every call, which feature of that module each
column is a multiple of, and what else reads those features (see ``flows``). A module takes divisors if it
feeds one group, and nothing else. Where several columns are one feature (heads of grouped queries share their
values) the largest of them smooths the group.

In a linear layer a divisor goes into a row of the weight and of the bias before they are quantized, so only
layers that are quantized in the same call take divisors. In a norm it goes into the weight. Norms multiply by
``w`` or by ``1 + w`` (Gemma); a trial on random rows shows which, and a norm that does neither is left alone.
Groups without such a module divide their inputs themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from ...base import MisuseError
from ..config import DuQuantConfig
from ..layer import DuQuantLinear
from ..numerics import smoothing_scale
from .stats import CalibrationStats

OTHERS = "."
"""The prefix, in ``stats.sources``, of readers that are no layers; no module's name begins with it."""

PROBES = (4, 3)
"""Shape of the trial's random rows; two dimensions, for norms of another one than the last."""


@dataclass(frozen=True)
class Fold:
    """New parameters of a norm."""

    norm: nn.Module
    weight: Tensor
    bias: Tensor | None

    @torch.no_grad()
    def apply(self) -> None:
        """Write them."""
        module: Any = self.norm
        module.weight.copy_(self.weight)
        if self.bias is not None:
            module.bias.copy_(self.bias)


_OF_CHANNELS = (nn.modules.batchnorm._NormBase, nn.GroupNorm)  # pyright: ignore[reportPrivateUsage]
"""Norms whose weights are not those of the last dimension."""


def is_norm(module: nn.Module) -> bool:
    """Whether a module looks like a norm of rows, by the name of its class and a vector of weights."""
    weight = getattr(module, "weight", None)
    named = "Norm" in type(module).__name__ and not isinstance(module, _OF_CHANNELS)
    return named and isinstance(weight, nn.Parameter) and weight.ndim == 1


class NotFoldedError(Exception):
    """Why the module before a group of layers does not smooth it."""


@dataclass(frozen=True)
class Smoothed:
    """How the module before a group of layers smooths it.

    Attributes:
        scale: The divisors of the input's columns, of shape ``(in,)``; None if the group divides itself.
        fold: The change of a norm before it.
        rows: The divisors of the rows of a layer before it, by the layer's name.
        why_not: Why the group divides itself.
    """

    scale: Tensor | None = None
    fold: Fold | None = None
    rows: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    why_not: str = ""


@torch.no_grad()
def smooth_group(
    model: nn.Module, group: Sequence[str], config: DuQuantConfig, stats: CalibrationStats | None,
    quantized: Collection[str],
) -> Smoothed:  # fmt: skip
    """Find a place for the divisors of a group's input; ``quantized`` names all layers that will be."""
    if stats is None or not config.fold_smoothing:
        return Smoothed()
    try:
        source = source_of(group, stats)
        module = dict(model.named_modules()).get(source)
        if module is None:
            raise MisuseError(f"{source!r} was there in calibration, and is not in this model: calibrate it")
        is_layer = isinstance(module, nn.Linear | DuQuantLinear)
        if is_layer and source not in quantized:
            raise NotFoldedError(f"{source!r}, which feeds it, is not quantized with it and stays as it is")
        count = cast(Tensor, module.weight).shape[0]
        columns = _columns(group, source, stats, count)
        scale = _feature_scale(model, group, config, stats, columns, count)
        if not is_layer and _is_shared(model, module):
            raise NotFoldedError(f"{source!r}, which feeds it, shares its weight or bias with another module")
        fold = None if is_layer else find_fold(module, scale)
        if fold is None and not is_layer:
            raise NotFoldedError(f"{source!r}, which feeds it, does not multiply by its weight")
        return Smoothed(scale[columns], fold, {source: scale} if is_layer else {})
    except NotFoldedError as error:
        return Smoothed(why_not=f"smoothed when called: {error}")


def source_of(group: Sequence[str], stats: CalibrationStats) -> str:
    """The norm or layer that feeds a group of layers in every call, and nothing else, or a NotFoldedError."""
    found = sorted({source for layer in group for source in stats.sources.get(layer, {})})
    if not found:
        raise NotFoldedError("no norm or linear layer feeds it with features that stay apart on the way")
    if len(found) > 1:
        raise NotFoldedError(f"it is fed by {', '.join(map(repr, found))}")
    (source,) = found
    readers = [reader for reader, sources in stats.sources.items() if source in sources]
    strange = [reader.removeprefix(OTHERS) for reader in readers if reader.startswith(OTHERS)]
    others = [repr(reader) for reader in readers if reader not in group and not reader.startswith(OTHERS)]
    if strange or others:
        raise NotFoldedError(f"{source!r}, which feeds it, is also read by {(others + strange)[0]}")
    if any(stats.sources.get(layer, {}).get(source) != stats.layers[layer].calls for layer in group):
        raise NotFoldedError(f"{source!r} feeds it in some calls only")
    return source


def _is_shared(model: nn.Module, module: nn.Module) -> bool:
    """Whether another module has a parameter of this one's."""
    mine = {id(parameter) for parameter in module.parameters(recurse=False)}
    others = (other for other in model.modules() if other is not module)
    return any(id(parameter) in mine for other in others for parameter in other.parameters(recurse=False))


def _columns(group: Sequence[str], source: str, stats: CalibrationStats, count: int) -> Tensor:
    """The source's feature of each column of the group's input."""
    first, *others = (stats.layers[layer].columns for layer in group)
    if first is None or any(other is None or not torch.equal(first, other) for other in others):
        raise NotFoldedError(f"the features of {source!r} are not in the same columns in every call")
    if len(first) and int(first.max()) >= count:
        raise MisuseError(
            f"{source!r} has {count} features, and had more in calibration: calibrate this model"
        )
    return first.long()


def _feature_scale(
    model: nn.Module, group: Sequence[str], config: DuQuantConfig, stats: CalibrationStats, columns: Tensor,
    count: int,
) -> Tensor:  # fmt: skip
    """The divisor of every feature of the source, float32; 1 where no column takes the feature."""
    assert config.smooth_alpha is not None
    weights = [cast(Tensor, model.get_submodule(layer).weight) for layer in group]
    columns = columns.to(weights[0].device)
    reach = torch.stack([weight.float().abs().amax(0).to(columns.device) for weight in weights]).amax(0)
    peak = stats.layers[group[0]].peak.to(reach)
    nothing = reach.new_zeros(count)
    peak, reach = (nothing.scatter_reduce(0, columns, part, "amax") for part in (peak, reach))
    return smoothing_scale(peak, reach, config.smooth_alpha).cpu()


@torch.no_grad()
def find_fold(norm: nn.Module, scale: Tensor) -> Fold | None:
    """The parameters that divide a norm's output by ``scale``, of shape ``(features,)``.

    None if the module multiplies neither by its weight nor by one plus it.
    """
    module = cast(Any, norm)
    weight: Tensor = module.weight
    bias: Tensor | None = getattr(module, "bias", None)
    if weight.shape != scale.shape:
        return None
    wide = scale.to(weight.device, torch.float32)
    new_bias = None if bias is None else (bias.float() / wide).to(bias.dtype)
    generator = torch.Generator().manual_seed(0)
    probe = torch.randn(*PROBES, len(scale), generator=generator, dtype=torch.float32).to(weight)
    try:
        before = cast(Tensor, norm(probe)).float()
    except Exception:  # it takes more than rows, or is of another dimension
        return None
    loose = 4 * torch.finfo(weight.dtype).eps
    kept = Fold(norm, weight.detach().clone(), None if bias is None else bias.detach().clone())
    for shift in (0.0, 1.0):
        fold = Fold(norm, ((weight.float() + shift) / wide - shift).to(weight.dtype), new_bias)
        fold.apply()
        try:
            after = norm(probe).float() * wide
        finally:
            kept.apply()
        if torch.allclose(after, before, rtol=loose, atol=loose * float(before.abs().max())):
            return fold
    return None
