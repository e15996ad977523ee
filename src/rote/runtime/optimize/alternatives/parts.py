"""Attention by parts of the keys: many programs where queries and heads are few.

PyTorch's attention kernels give each block of queries of each head to one multiprocessor, which goes through
all keys. With few queries and heads most of a GPU is idle meanwhile. Here the keys are cut up as well, and a
second launch joins the parts ("flash decoding"); heads that share keys and values are rows of one block, so
that these are read once. The kernels are those of :mod:`.jit`, which nobody imports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from ...backends.protocol import ALIGNMENT, NAMES_OF_TYPES
from ...compiling import KernelSource, Programs
from .offered import OLDEST, AlternativeRun, KernelParameter, memory_for, properties_of, triton_kernel
from .operands import Attention
from .tiles import Cut, Problem, cuts_of

NAME = "attention"
_OF_MASKS = (torch.bfloat16, torch.float16, torch.float32)
_MOST_WIDTH = 256
_FEWEST_KEYS = 32
_MOST_SCORES = 1 << 24
"""With more of them PyTorch's kernels have work for all of a GPU."""

_MOST_OFFSET = 1 << 31
_JOINED, _JOINING_WARPS = 2048, 4
"""Numbers that a program which joins has at once, and its warps."""


def fits(given: Attention) -> bool:
    """Whether the kernels can calculate it, and may be faster than PyTorch's."""
    if (
        not (given.query.is_cuda and given.is_plain)
        or properties_of(given.query.device.index).capability < OLDEST
    ):
        return False
    scores = given.batch * given.heads * given.queries * given.keys
    sized = given.keys >= _FEWEST_KEYS and scores <= _MOST_SCORES
    return sized and is_written(given) and bool(cuts(given))


def is_written(given: Attention) -> bool:
    """Whether there is a kernel for its types, widths and layouts."""
    tensors = given.tensors
    return (
        max(given.width, given.depth) <= _MOST_WIDTH
        and tensors[-1].dtype in _OF_MASKS
        and (given.mask is None or given.mask.dim() <= 4)
        and all([_reach(each) < _MOST_OFFSET for each in tensors])
    )


def _reach(tensor: torch.Tensor) -> int:
    return sum([(size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True)])


def cuts(given: Attention) -> tuple[Cut, ...]:
    """How it can be cut up on its device, what is thought to be fastest first."""
    gpu = properties_of(given.query.device.index)
    widths = (power(given.width), power(given.depth))
    return cuts_of(
        Problem(given.batch * given.kept, given.rows, given.keys, *widths, gpu.units, gpu.shared_bytes)
    )


def power(number: int, least: int = 16) -> int:
    """The next power of two."""
    return max(least, 1 << (number - 1).bit_length())


def plan_for(given: Attention, place: int = 0, *, zero: bool = True) -> PartsPlan:
    """The plan of one of its cuts, or of the last one."""
    found = cuts(given)
    capability = properties_of(given.query.device.index).capability
    return PartsPlan(given, found[min(place, len(found) - 1)], capability, zero)


@dataclass(frozen=True)
class PartsPlan:
    """The launches of one attention.

    Attributes:
        zero: A row without any key gives 0; otherwise no number.
    """

    given: Attention
    cut: Cut
    capability: int
    zero: bool = True

    @property
    def sources(self) -> tuple[KernelSource, ...]:
        """The kernels in the order in which they are launched."""
        return (self._part, self._join) if self.cut.parts > 1 else (self._part,)

    def run(self, run: AlternativeRun) -> torch.Tensor:
        """Launch them, into memory that is made for it."""
        given, parts = self.given, self.cut.parts
        made = partial(memory_for, run, given.query)
        shape = (given.batch, given.heads, given.queries, given.depth)
        out = made(shape, given.strides, given.query.dtype)
        if parts == 1:
            run.launch(self._part, self.given.tensors, [out])
            return out
        lines = given.batch * given.kept * parts * given.rows
        sums = made((lines, given.depth), (given.depth, 1), torch.float32)
        highest, total = (made((lines,), (1,), torch.float32) for _ in range(2))
        run.launch(self._part, self.given.tensors, [sums, highest, total])
        run.launch(self._join, [sums, highest, total], [out])
        return out

    @property
    def _part(self) -> KernelSource:
        given, cut = self.given, self.cut
        made = [KernelParameter(name, "fp32") for name in ("out", "highest", "total")]
        if cut.parts == 1:
            made = [self._out]
        blocks = -(-given.rows // cut.tile.rows)
        constants = {
            **self._sizes,
            **read_by(given),
            "BM": cut.tile.rows,
            "BN": cut.tile.keys,
            "STEPS": cut.steps,
            "STAGES": cut.tile.stages,
        }
        passed = [*PASSED[given.mask is not None]]
        passed += [each.name for each in made] if len(made) > 1 else ["out"] * 3
        grid = Programs(given.batch * given.kept * blocks * cut.parts, cut.tile.warps)
        return self._source("part", passed, [*parameters_of(given), *made], constants, grid)

    @property
    def _join(self) -> KernelSource:
        given, parts = self.given, self.cut.parts
        rows = max(1, _JOINED // (power(parts, 1) * power(given.depth)))
        rows = min(rows, power(given.rows, 1))
        tensors = [*[KernelParameter(name, "fp32") for name in ("sums", "highest", "total")], self._out]
        constants = {**self._sizes, "BM": rows, "BP": power(parts, 1)}
        grid = Programs(given.batch * given.kept * -(-given.rows // rows), _JOINING_WARPS)
        return self._source("join", [each.name for each in tensors], tensors, constants, grid)

    @property
    def _out(self) -> KernelParameter:
        return KernelParameter("out", NAMES_OF_TYPES[self.given.query.dtype])

    @property
    def _sizes(self) -> dict[str, object]:
        given = self.given
        return {
            "HEADS": given.kept,
            "GROUP": given.heads // given.kept,
            "QUERIES": given.queries,
            "DEPTH": given.depth,
            **named("OB OH OM OD", given.strides),
            "BD": power(given.depth),
            "PARTS": self.cut.parts,
            "ZERO": self.zero,
        }

    def _source(
        self, function: str, passed: Sequence[str], given: Sequence[KernelParameter],
        constants: Mapping[str, object], grid: Programs,
    ) -> KernelSource:  # fmt: skip
        """A kernel that calls one of :mod:`.jit`, with the names of what it is given and with constants."""
        named = [f"{name}={value!r}" for name, value in constants.items()]
        call = f"{function}({', '.join([*passed, *named])})"
        return triton_kernel(NAME, "jit.py", [call], given, grid, self.capability)


PASSED = {False: ("query", "key", "value", "query"), True: ("query", "key", "value", "mask")}
"""What a kernel is passed, by whether there is a mask."""


def parameters_of(given: Attention) -> list[KernelParameter]:
    """The tensors that a kernel reads."""
    return [
        KernelParameter(name, NAMES_OF_TYPES[each.dtype], each.data_ptr() % ALIGNMENT == 0)
        for name, each in zip(PASSED[True], given.tensors, strict=False)
    ]


def read_by(given: Attention) -> dict[str, object]:
    """How they lie, and what is done with them, as constants of a kernel."""
    mask = given.mask
    if mask is not None:
        mask = mask.expand(given.batch, given.heads, given.queries, given.keys)
    return {
        "SCALE": given.scale,
        "KEYS": given.keys,
        "WIDTH": given.width,
        **named("QB QH QM QW", given.query.stride()),
        **named("KB KH KN KW", given.key.stride()),
        **named("VB VH VN VD", given.value.stride()),
        **named("MB MH MM MN", (0, 0, 0, 0) if mask is None else mask.stride()),
        "MASKED": mask is not None,
        "BW": power(given.width),
    }


def named(names: str, strides: Sequence[int]) -> dict[str, object]:
    """Strides as constants of a kernel, by the names there."""
    return dict(zip(names.split(), strides, strict=True))
