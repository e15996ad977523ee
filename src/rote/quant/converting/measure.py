"""The errors of a quantized layer, and its input behind each stage of the transform."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import UNQUANTIZED, DuQuantConfig
from ..layer import DuQuantLinear
from ..numerics import Chain, Grid, pad_columns, padded, quantize_weight, row_parameters
from .report import StageReport

SHOWN_CHANNELS = 64


@torch.no_grad()
def output_errors(
    linear: nn.Linear, layer: DuQuantLinear, rows: Tensor, given: Tensor | None = None,
    over: Tensor | None = None,
) -> tuple[float, float]:  # fmt: skip
    """Relative square errors of the output: of all rows together, and the median over rows.

    ``rows`` are inputs of shape ``(rows, in)``. The quantized layer is given ``given`` instead, and its
    outputs are divided by ``over``, of shape ``(out,)``.
    """
    given = rows if given is None else given
    weight = linear.weight
    found = layer(given.to(weight))
    found = found if over is None else found * over.to(found.device)
    return relative_errors(found, linear(rows.to(weight)), linear.bias)


def relative_errors(found: Tensor, exact: Tensor, bias: Tensor | None = None) -> tuple[float, float]:
    """The same for given outputs; a bias does not count, as it is not quantized."""
    exact, found = exact.double(), found.double()
    if bias is not None:
        exact, found = exact - bias.double(), found - bias.double()
    wrong, right = (found - exact).square().sum(-1), exact.square().sum(-1)
    total = (wrong.sum() / right.sum().clamp(min=1e-300)).item()
    return total, (wrong / right.clamp(min=1e-300)).median().item()


@torch.no_grad()
def weight_error(layer: DuQuantLinear, weight: Tensor) -> float:
    """Relative square error of the weight, given the dense one."""
    exact = weight.double()
    effective = layer.effective_weight().double()
    return ((effective - exact).square().sum() / exact.square().sum().clamp(min=1e-300)).item()


@torch.no_grad()
def clipped_share(layer: DuQuantLinear, rows: Tensor) -> float:
    """Share of transformed activations outside their grid by more than half a step."""
    if layer.config.act_bits >= UNQUANTIZED or not len(rows):
        return 0.0
    rows = pad_columns(rows.to(layer.marker.device), layer.transform.width)
    rows = layer.transform.chain().apply(rows)
    grid, *parameters = layer.grid_for(rows)
    return grid.clipped(rows, *parameters).float().mean().item()


@torch.no_grad()
def stage_reports(
    linear: nn.Linear, chain: Chain, rows: Tensor, config: DuQuantConfig, bits: int
) -> tuple[StageReport, ...]:
    """The input before and behind every stage, and the error of a layer quantized there.

    Ranges are plain, of every token and every row of the weight, so that stages can be compared.
    """
    weight = linear.weight.detach().float()
    width = padded(weight.shape[1], config.block_size)
    weight, rows = pad_columns(weight, width), pad_columns(rows.to(weight), width)
    exact = F.linear(rows, weight)
    found: list[StageReport] = []
    for stage in (Chain(()), *chain.stages):
        rows, weight = stage.apply(rows), stage.fold_into(weight)
        peaks = rows.abs().amax(0).sort(descending=True).values
        step = max(1, len(peaks) // SHOWN_CHANNELS)
        error = relative_errors(_plain(rows, weight, config, bits), exact)[0]
        shown = tuple(peaks[::step].tolist())
        name = "input" if isinstance(stage, Chain) else type(stage).__name__.lower()
        found.append(StageReport(name, peaks[0].item(), peaks.median().item(), shown, error))
    return tuple(found)


def _plain(rows: Tensor, weight: Tensor, config: DuQuantConfig, bits: int) -> Tensor:
    plain = config.replace(weight_range="minmax", weight_clip=1.0)
    if bits < UNQUANTIZED:
        weight = quantize_weight(weight, bits, plain).values()
    if config.act_bits < UNQUANTIZED:
        grid = Grid(config.act_bits, config.act_symmetric)
        rows = grid.fake(rows, *row_parameters(rows, grid, 1.0))
    return F.linear(rows, weight)
