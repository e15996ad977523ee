"""Launches of the kernels that transform and quantize activations: how many, and with which sizes.

One launch does up to a rotation, a permutation and a rotation that have one matrix for all blocks, or one
rotation with a matrix for each block. Longer chains take a launch for each such piece, with float32 rows in
between. Few wide rows are spread over programs, in a launch for each step (see :mod:`~.spread`). Rows of more
than 32768 channels and large matrices do not fit a program and go through torch (see :func:`obstacle`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import held, spread
from .launching import gpu, interpreted, module, starts_early
from .table import RowCut, bucket, choose_cut
from .target import RowTarget, floating

WIDEST = 32768
"""Channels that a program holds."""

TENSOR_CORE_BLOCK = 16
"""The smallest block that is worth a tensor core."""

LARGEST_SHARED, LARGEST_SINGLE = 128, 64
"""The largest matrices, where all blocks share one and where each has its own."""

_TILE = 16384


@dataclass(frozen=True)
class Launch:
    """A piece of a chain: a rotation, a permutation, a rotation, each of which may be missing.

    The first rotation has one matrix for all blocks; ``single`` sends the second to the kernel for small or
    separate blocks.
    """

    first: Tensor | None = None
    order: Tensor | None = None
    second: Tensor | None = None
    single: bool = False

    @property
    def spreads(self) -> bool:
        """Whether its rows may be spread over programs."""
        return None not in (self.first, self.order, self.second) and not self.single


def plan(stages: Sequence[Tensor]) -> list[Launch]:
    """Cut a chain of rotations (3 dimensions) and permutations (1 dimension) into launches."""
    launches: list[Launch] = []
    rest = [stage.contiguous() for stage in stages]
    while rest or not launches:
        first = rest.pop(0) if rest and _shared(rest[0]) else None
        order = second = None
        ahead = rest[1] if len(rest) > 1 else None
        joined = first is None or ahead is None or (_shared(ahead) and ahead.shape[-1] == first.shape[-1])
        if rest and rest[0].dim() == 1 and joined:
            order = rest.pop(0)
        if rest and rest[0].dim() == 3 and (first is None or order is not None):
            second = rest.pop(0)
        launches.append(Launch(first, order, second, second is not None and not _shared(second)))
    return launches


def _shared(stage: Tensor) -> bool:
    return stage.dim() == 3 and stage.shape[0] == 1 and stage.shape[-1] >= TENSOR_CORE_BLOCK


def launch(
    x: Tensor, smooth: Tensor | None, stages: Sequence[Tensor], target: RowTarget, work: Tensor | None,
    pdl: bool, cut: RowCut | None = None,
) -> None:  # fmt: skip
    """Fill a target, and clear ``work``; with ``pdl`` the successor starts early."""
    if not x.shape[0]:
        return
    x = aligned(x)
    width = target.rows.shape[1]
    launches = plan(stages)
    for index, piece in enumerate(launches):
        last = index == len(launches) - 1
        to = target if last else floating(x, width, torch.float32)
        room = work if last else None
        found = (cut or _cut(x, smooth, piece, to)) if piece.spreads and to.rows.dtype == torch.int8 else None
        if found is not None and (found.held or not found.programs):
            assert piece.first is not None and piece.order is not None and piece.second is not None
            if found.held:
                held.launch(x, piece.first, piece.order, piece.second, to, room, pdl and last, found)
            else:
                spread.launch(x, smooth, piece.first, piece.order, piece.second, to, room, found)
        else:
            _launch(x, smooth, piece, to, room, pdl and last, found)
        x, smooth = to.rows, None


def _cut(x: Tensor, smooth: Tensor | None, piece: Launch, to: RowTarget) -> RowCut | None:
    """The table's cut, which is for matrices of bfloat16: others take more registers."""
    assert piece.first is not None and piece.second is not None
    tokens, width = to.rows.shape
    found = choose_cut(gpu(x)[0], bucket(tokens), width, piece.first.shape[-1])
    if found is not None and found.held:
        return found if held.suits(x, smooth, piece.first, piece.second, to) else None
    return None if found is not None and found.programs and piece.first.dtype != torch.bfloat16 else found


def aligned(x: Tensor) -> Tensor:
    """Contiguous rows that start at a multiple of 16 bytes, which kernels are compiled for."""
    x = x.contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()


def obstacle(stages: Sequence[Tensor], width: int) -> str:
    """Why the kernels do not do a transform; empty if they do."""
    if not holds(width):
        return f"rows of {width} channels"
    for stage in stages:
        size = stage.shape[-1]
        if stage.dim() == 3 and size > (LARGEST_SHARED if stage.shape[0] == 1 else LARGEST_SINGLE):
            return f"rotations of {size} channels"
    return ""


def exact(stages: Sequence[Tensor]) -> bool:
    """Whether the kernels multiply in float32, and not in 16 bits on tensor cores."""
    return not any(_shared(stage) for stage in stages)


def holds(width: int) -> bool:
    """Whether a program holds a row of that width, so that kernels can quantize it."""
    return _power(width) <= WIDEST


def _launch(
    x: Tensor, smooth: Tensor | None, piece: Launch, to: RowTarget, work: Tensor | None, pdl: bool,
    cut: RowCut | None = None,
) -> None:  # fmt: skip
    kernels = module("transform")
    exact = interpreted(kernels.shared)
    early = starts_early(x, kernels.shared)
    tokens, width = to.rows.shape
    units = gpu(x)[1]
    rotation = piece.second if piece.first is None else piece.first
    size = 128 if rotation is None else rotation.shape[-1]
    blocks = _power(-(-width // size))
    common: dict[str, Any] = {
        "smooth": smooth, "order": piece.order, "work": to.total if work is None else work,
        "q": to.rows, "scale": to.scale, "zero": to.zero, "total": to.total,
        "static_scale": to.static_scale, "static_zero": to.static_zero, "clip": to.clip,
        "M": tokens, "COUNT": 0 if work is None else work.numel(), "WIDTH": x.shape[1], "K": width,
        "SMOOTH": smooth is not None, "ORDER": piece.order is not None, "B": size, "NB": blocks,
        "MODE": to.mode, "LOW": to.low, "HIGH": to.high, "WAIT": early, "PDL": pdl and early,
        "ZERO": to.zero.numel() > 0, "ORIGIN": to.static_zero is not None, "EXACT": exact,
        "launch_pdl": early,
    }  # fmt: skip
    if piece.single:
        assert piece.second is not None
        programs = min(tokens, 8 * units)
        warps = 4 if size * blocks <= 2048 else 8 if size * blocks <= 8192 else 16
        kernels.blocks[(programs,)](
            x=x, matrices=piece.second, SAME=piece.second.shape[0] == 1, UNROLL=min(size, 16),
            num_warps=warps, **common,
        )  # fmt: skip
        return
    least = 1 if rotation is None else -(-TENSOR_CORE_BLOCK // blocks)
    together = max(least, min(_TILE // (size * blocks), _power(bucket(tokens) // units + 1) // 2))
    elements = together * size * blocks
    programs = min(-(-tokens // together), units * max(1, _TILE // elements))
    split = rotation is not None and rotation.dtype != torch.bfloat16  # those take more registers
    warps = 4 if elements <= 2048 and not split else 8 if elements <= _TILE else 16
    if cut is not None:
        together, warps = max(least, cut.tokens), cut.warps
        programs = min(-(-tokens // together), units * cut.programs)
    kernels.shared[(programs,)](
        x=x, T=together,
        r1=piece.first, r2=piece.second, R1=piece.first is not None, R2=piece.second is not None,
        SPLIT_X=x.dtype != torch.bfloat16 or smooth is not None,
        SPLIT_R=split, FULL=x.shape[1] == width == size * blocks,
        num_warps=warps, num_stages=1, **common,
    )  # fmt: skip


def _power(count: int) -> int:
    """The smallest power of two that is not below."""
    return 1 << max(0, count - 1).bit_length()
