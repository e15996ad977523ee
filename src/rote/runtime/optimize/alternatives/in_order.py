"""Attention with the bits of cuDNN's kernels for Hopper, by more programs than those have.

PyTorch gives attention of 16 bits to cuDNN there. Its kernel takes a block of queries of each head through
all keys, so with few queries most of the GPU is idle, and a mask whose rows are not aligned makes it slower
still. Which steps it takes does not depend on values: products of 64 queries and 128 keys in tensor
cores, in the order of the width; scale and mask in one step; the largest score of each block of keys; powers
of two by the GPU's own function; sums as :mod:`.in_order_jit` says; and one product with the values for each
block. They were read from the machine code of cuDNN 9.19, and the kernel here takes the same for each number
of a result. What it cuts up is the numbers of a value: each program calculates all scores of its queries, and
the sums of some numbers.

**What does not work.** To cut up the keys: sums would be added in another order. To take the largest score of
all keys at once: each block rounds its weights by the largest so far. One query: cuDNN has another kernel.

Whether the operator at hand is such a kernel is shown where it runs: another order of sums changes one number
of some 400,000, so the gate compares millions (:func:`proof`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ...backends.protocol import NAMES_OF_TYPES
from ...compiling import KernelSource, Programs
from ...fusion import ORDINARY, hostile_like
from .offered import HOPPER, AlternativeRun, KernelParameter, memory_for, properties_of, triton_kernel
from .operands import Attention
from .parts import PASSED, is_written, named, parameters_of, power, read_by

NAME = "attention_in_order"
_ROWS, _KEYS, _WARPS = 64, 128, 4
"""The block that a program works on, which is cuDNN's, and its warps."""

_FEWEST_QUERIES = 2
_MOST_SCORES = 1 << 24
_WIDE = 128
"""Without a mask, and with work for a third of the GPU, cuDNN's kernel for a larger width is faster."""
_LEAST_DEPTH, _MOST_STAGES = 16, 3
_SPARE_BYTES = 16 << 10
"""Shared memory for weights and masks on their way."""

_LOG2_E = 1.4426950216293335
_PROOF_NUMBERS = 1 << 23
"""Numbers of results that are compared where another order would change one of some 400,000."""
_FEWEST_PROOFS = 8


def fits(given: Attention) -> bool:
    """Whether the kernel can calculate it, and may be faster than cuDNN's."""
    if not (given.query.is_cuda and given.is_plain and is_written(given) and _is_aligned(given)):
        return False
    gpu = properties_of(given.query.device.index)
    scores = given.batch * given.heads * given.queries * given.keys
    sized = given.queries >= _FEWEST_QUERIES and scores <= _MOST_SCORES and given.scale > 0
    slow = given.mask is None and power(given.width) > _WIDE and _blocks(given) > gpu.units // 3
    return sized and not slow and gpu.capability == HOPPER


def _is_aligned(given: Attention) -> bool:
    """Whether all operands are, as those of a proof: others may have another kernel."""
    return all([each.aligned for each in parameters_of(given)])


def proof(given: Attention) -> Iterator[Attention]:
    """Attentions that lie as one does, on which another order of its sums shows.

    Scores lie within a few of one another, so that no few weights make out a sum.
    """
    numbers = given.batch * given.heads * given.queries * given.depth
    for seed in range(max(_FEWEST_PROOFS, -(-_PROOF_NUMBERS // numbers))):
        query, key, value = (
            hostile_like(each, ORDINARY, 4 * seed + number)
            for number, each in enumerate((given.query, given.key, given.value))
        )
        mask = given.mask
        if mask is not None and seed % 2:
            mask = hostile_like(mask, ORDINARY, 4 * seed + 3)
        query.mul_(1 / (given.scale * math.sqrt(given.width)))
        yield Attention(query, key, value, mask, given.given_scale, given.like_query)


def plan_for(given: Attention) -> InOrderPlan:
    """How an attention is calculated on its device."""
    gpu = properties_of(given.query.device.index)
    depth = power(given.depth)
    while depth > _LEAST_DEPTH and 2 * _blocks(given) * -(-given.depth // depth) <= gpu.units // 3:
        depth //= 2
    width = power(given.width)
    stages = _MOST_STAGES
    while stages > 1 and _shared_bytes(width, depth, stages) > gpu.shared_bytes:
        stages -= 1
    return InOrderPlan(given, depth, stages)


def _blocks(given: Attention) -> int:
    """Programs that cuDNN has for it."""
    return given.batch * given.heads * -(-given.queries // _ROWS)


def _shared_bytes(width: int, depth: int, stages: int) -> int:
    return 2 * (_ROWS * width + stages * _KEYS * (width + depth)) + _SPARE_BYTES


@dataclass(frozen=True)
class InOrderPlan:
    """The launch of one attention.

    Attributes:
        depth: Numbers of a value that a program calculates; a power of two.
        stages: Blocks of keys that are on their way or at work.
    """

    given: Attention
    depth: int
    stages: int

    def run(self, run: AlternativeRun) -> torch.Tensor:
        """Launch it, into memory that is made for it."""
        given = self.given
        shape = (given.batch, given.heads, given.queries, given.depth)
        out = memory_for(run, given.query, shape, given.strides, given.query.dtype)
        run.launch(self.source, given.tensors, [out])
        return out

    @property
    def source(self) -> KernelSource:
        """Its kernel."""
        given = self.given
        constants = {
            **read_by(given),
            "FACTOR": float(torch.tensor(given.scale) * torch.tensor(_LOG2_E)),
            "HEADS": given.heads,
            "GROUP": given.heads // given.key.shape[1],
            "QUERIES": given.queries,
            "DEPTH": given.depth,
            **named("OB OH OM OD", given.strides),
            "BM": _ROWS,
            "BN": _KEYS,
            "BD": self.depth,
            "STAGES": self.stages,
        }
        constant = [f"{name}={each!r}" for name, each in constants.items()]
        call = f"in_order({', '.join([*PASSED[given.mask is not None], 'out', *constant])})"
        grid = Programs(_blocks(given) * -(-given.depth // self.depth), _WARPS)
        made = [*parameters_of(given), KernelParameter("out", NAMES_OF_TYPES[given.query.dtype])]
        capability = properties_of(given.query.device.index).capability
        return triton_kernel(NAME, "in_order_jit.py", [call], made, grid, capability)
