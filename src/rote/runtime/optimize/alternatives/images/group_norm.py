"""Group norms of images with PyTorch's bits, and at the speed of the memory.

PyTorch takes mean and variance of each group by one block of threads, and has factors and shifts of all
channels in memory before it scales. What each of its threads does, and in which order their moments are
joined, is written in its source (``aten/src/ATen/native/cuda/group_norm_kernel.cu``); how its compiler joins
products and sums was found by trying. The kernels here take the same steps. They read more of a group at
once, and calculate a channel's factor where it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ....backends.protocol import ALIGNMENT, NAMES_OF_TYPES
from ....compiling import KernelSource, Programs
from ....fusion import ORDINARY, hostile_like
from ..offered import (
    OLDEST,
    Alternative,
    AlternativeRun,
    KernelParameter,
    Operands,
    memory_for,
    properties_of,
    triton_kernel,
)
from .turning import FILE

_TYPES = (torch.bfloat16, torch.float16, torch.float32)
_THREADS, _WARP = 512, 32
"""Threads for a group in PyTorch's kernel, and for one that has fewer numbers."""
_LARGE, _SMALL_WARPS = 1 << 13, 4
"""Numbers of a group that keep as many warps busy as PyTorch has; and how many a smaller one has."""
_BLOCK, _BLOCK_WARPS = 1024, 4
_MOST_NUMBERS = (1 << 31) - _BLOCK
_PROOF_NUMBERS, _FEWEST_PROOFS = 1 << 22, 8
_SPREADS = (1.0, 2.0**-8, 2.0**5)
"""How far numbers are spread in a proof; the second one makes variances as small as what is added to them."""


@dataclass(frozen=True)
class GroupNorm:
    """The operands of a group norm; each image has ``channels`` of ``pixels`` numbers.

    Attributes:
        capability: Compute capability of the GPU, such as 90; 0 for none.
    """

    x: torch.Tensor
    weight: torch.Tensor | None
    bias: torch.Tensor | None
    images: int
    channels: int
    pixels: int
    groups: int
    eps: float
    capability: int

    @classmethod
    def of(cls, *operands: Any) -> GroupNorm:
        """What the operator is given."""
        device = operands[0].device
        capability = properties_of(device.index).capability if device.type == "cuda" else 0
        return cls(*operands, capability=capability)

    @property
    def is_plain(self) -> bool:
        """Whether it is the case that the kernels are written for."""
        scaled = [each for each in (self.weight, self.bias) if each is not None]
        given = [self.x, *scaled]
        lie = all([each.is_contiguous() and each.dtype is self.x.dtype for each in given])
        sized = 0 < self.x.numel() <= _MOST_NUMBERS and self.pixels > 1
        return bool(scaled) and lie and sized and self.x.dtype in _TYPES

    @property
    def sources(self) -> list[KernelSource]:
        """The kernels, in the order in which they are launched."""
        return [self._moments, self._scale]

    def run(self, run: AlternativeRun) -> torch.Tensor:
        """Launch them, into memory that is made for them."""
        x, count = self.x, self.images * self.groups
        mean, inverse = (memory_for(run, x, (count,), (1,), x.dtype) for _ in range(2))
        run.launch(self._moments, [x], [mean, inverse])
        out = memory_for(run, x, tuple(x.shape), x.stride(), x.dtype)
        scaled = [each for each in (self.weight, self.bias) if each is not None]
        run.launch(self._scale, [x, *scaled, mean, inverse], [out])
        return out

    @property
    def _moments(self) -> KernelSource:
        size = self.channels // self.groups * self.pixels
        threads = _THREADS if size >= _THREADS else _WARP
        eps = float(torch.tensor(self.eps, dtype=self.x.dtype))
        constants = f"SIZE={size}, THREADS={threads}, EPS={eps!r}"
        names = ("x", "mean", "inverse")
        warps = threads // _WARP if size >= _LARGE else min(threads // _WARP, _SMALL_WARPS)
        programs = Programs(self.images * self.groups, warps)
        return self._source("moments", f"moments({', '.join(names)}, {constants})", names, programs)

    @property
    def _scale(self) -> KernelSource:
        passed = ["x", "weight" if self.weight is not None else "x", "bias" if self.bias is not None else "x"]
        constants = {
            "COUNT": self.x.numel(), "CHANNELS": self.channels, "PIXELS": self.pixels,
            "GROUP": self.channels // self.groups, "BLOCK": _BLOCK, "WEIGHTED": self.weight is not None,
            "BIASED": self.bias is not None,
        }  # fmt: skip
        constant = [f"{name}={value!r}" for name, value in constants.items()]
        names = (*dict.fromkeys(passed), "mean", "inverse", "out")
        call = f"scale({', '.join([*passed, 'mean', 'inverse', 'out', *constant])})"
        return self._source("scale", call, names, Programs(-(-self.x.numel() // _BLOCK), _BLOCK_WARPS))

    def _source(self, name: str, call: str, names: tuple[str, ...], programs: Programs) -> KernelSource:
        kind, given = NAMES_OF_TYPES[self.x.dtype], {"x": self.x, "weight": self.weight, "bias": self.bias}
        askew = [name for name, each in given.items() if each is not None and each.data_ptr() % ALIGNMENT]
        parameters = [KernelParameter(each, kind, each not in askew) for each in names]
        return triton_kernel(f"group_norm_{name}", FILE, [call], parameters, programs, self.capability)


def _fits(*operands: Any) -> bool:
    given = GroupNorm.of(*operands)
    return given.capability >= OLDEST and given.is_plain


def _proof(*operands: Any) -> Iterator[Operands]:
    """Operands that lie as these do: ordinary numbers, spread in several ways around several means."""
    given, drawn = GroupNorm.of(*operands), list(operands)
    for seed in range(max(_FEWEST_PROOFS, -(-_PROOF_NUMBERS // given.x.numel()))):
        for number, tensor in enumerate(operands[:3]):
            if tensor is not None:
                drawn[number] = hostile_like(tensor, ORDINARY, 3 * seed + number)
        drawn[0].mul_(_SPREADS[seed % len(_SPREADS)])
        if seed % 2:
            drawn[0].add_(drawn[0].std())
        yield list(drawn), {}


GROUP_NORMS = (
    Alternative(
        operator="aten::native_group_norm",
        name="group norm in two launches",
        fits=_fits,
        calculate=lambda run, *operands: GroupNorm.of(*operands).run(run),
        kernels=lambda *operands: GroupNorm.of(*operands).sources,
        proof=_proof,
        also_near=True,
        on_host=False,
    ),
)
