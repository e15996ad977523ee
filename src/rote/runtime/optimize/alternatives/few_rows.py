"""Products of few rows with the matrix of a linear layer, which lies column by column.

Such a product takes as long as the matrix takes to be read. Here a program reads some of its columns, once
for all rows; where the columns are too few for all of a GPU, they are cut up as well, and a second launch
adds up the parts. Products of the same rows, as the projections of an attention, are one launch: the
matrices stay where they are. The kernels are those of :mod:`.few_rows_jit`, which nobody imports.

On Hopper a column is also cut up as cuBLAS does it (:mod:`.split`), and added up by the same instructions in
the same order. That keeps the bits, and serves ``numerics="exact"``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from ...backends.protocol import ALIGNMENT, NAMES_OF_TYPES
from ...compiling import KernelSource, Programs
from ...fusion import ORDINARY, hostile_like
from .offered import (
    HOPPER,
    OLDEST,
    Alternative,
    AlternativeRun,
    JointAlternative,
    KernelParameter,
    Operands,
    memory_for,
    properties_of,
    triton_kernel,
)
from .split import STEP, CublasProduct, part_of

NAME = "few_rows"
_MOST_ROWS = 64
_LEAST, _MOST = 1 << 16, 1 << 26
"""Numbers of a matrix; a smaller one is read in no time, and a larger one takes much memory in 64 bits."""
_MOST_OFFSET = 1 << 31
_TYPES = (torch.bfloat16, torch.float16)
_JOINED, _JOINING_WARPS = 256, 4
"""Numbers that a program which adds up parts has at once, and its warps."""
_WHOLE = 1024
"""Numbers of a column that are not worth cutting up."""
_PROGRAMS = 132
"""Programs that a GPU has room for at least."""
_MOST_IN_ORDER = 1 << 24
_PROOF_NUMBERS, _FEWEST_PROOFS = 1 << 21, 4
"""Numbers of results that are compared; another order would change one of some hundreds."""
_PROOFS_OF_A_MATRIX = 32
"""Rows are drawn in no time, and a matrix is not."""


class FewRowsTile(NamedTuple):
    """What a program works on at once.

    Attributes:
        rows: 1, or a power of two from 16 on.
        columns: Of the matrix.
        width: Numbers of each of them.
        stages: Steps along the columns that are on their way or at work.
        parts: In how many parts the columns are cut.
        part: Numbers of a column in each of them; 0 for as many in each.
    """

    rows: int
    columns: int
    width: int
    warps: int = 4
    stages: int = 1
    parts: int = 1
    part: int = 0


class FewRowsOperands(NamedTuple):
    """The operands of a product.

    Attributes:
        x: ``(rows, width)``.
        matrix: ``(width, columns)``.
        bias: ``(columns,)``; None for none.
    """

    x: torch.Tensor
    matrix: torch.Tensor
    bias: torch.Tensor | None = None

    @property
    def is_plain(self) -> bool:
        """Whether shapes, types and layouts are those that a kernel is written for."""
        x, matrix, bias = self
        if not x.dim() == matrix.dim() == 2 or x.dtype is not matrix.dtype or x.dtype not in _TYPES:
            return False
        (rows, width), columns = x.shape, matrix.shape[1]
        lies = x.stride(1) == matrix.stride(0) == 1 and 1 <= rows <= _MOST_ROWS
        large = _LEAST <= width * columns <= _MOST and columns * matrix.stride(1) < _MOST_OFFSET
        flat = bias is None or (bias.shape == (columns,) and bias.stride(0) == 1 and bias.dtype is x.dtype)
        return lies and large and flat

    def described(self, capability: int) -> FewRows:
        """What its kernels depend on; ``capability`` is that of the GPU, such as 90."""
        tensors = [each for each in self if each is not None]
        rows, width = self.x.shape
        return FewRows(
            rows,
            width,
            self.matrix.shape[1],
            self.x.dtype,
            self.x.stride(0),
            self.matrix.stride(1),
            tuple([each.data_ptr() % ALIGNMENT == 0 for each in tensors]),
            capability,
        )


@dataclass(frozen=True)
class FewRows:
    """What the kernels of a product depend on.

    Attributes:
        width: Numbers that are multiplied and added up for each of its own.
        dtype: The type of all operands.
        row_step: Numbers from one row to the next.
        column_step: Numbers from one column of the matrix to the next.
        aligned: Whether rows, matrix and bias begin at a multiple of 16 bytes; two if there is no bias.
        capability: Compute capability of the GPU, such as 90.
        part: Numbers of a column that the operator adds up in one part; 0 where its order does not matter.
    """

    rows: int
    width: int
    columns: int
    dtype: torch.dtype
    row_step: int
    column_step: int
    aligned: tuple[bool, ...]
    capability: int
    part: int = 0

    @property
    def biased(self) -> bool:
        """Whether there is a bias."""
        return len(self.aligned) > 2

    @property
    def tiles(self) -> tuple[FewRowsTile, ...]:
        """How it can be cut up, what is thought to be fastest first."""
        if self.rows == 1:
            found = [FewRowsTile(1, 1, self._step(2048)), FewRowsTile(1, 4, self._step(1024))]
            return tuple(sorted([each for each in found if each.width >= 256], key=lambda tile: -tile.width))
        rows = 16 if self.rows <= 16 else _MOST_ROWS
        width, stages = (512, 3) if rows == 16 else (128, 4)
        narrow = FewRowsTile(rows, 16, self._step(width), 4, stages)
        found = [self._cut(FewRowsTile(rows, 32, self._step(128), 4, 4)), narrow]
        return tuple([each for each in found if each.width >= 64])

    @property
    def in_order(self) -> FewRowsTile:
        """How it is cut up as the operator cuts it."""
        parts, width = -(-self.width // self.part), 128 if self.part % 128 == 0 else 64
        return FewRowsTile(_MOST_ROWS, 32, width, 4, 4, parts, self.part)

    def _step(self, most: int) -> int:
        """The largest power of two that divides the width."""
        return min(most, self.width & -self.width)

    def _cut(self, tile: FewRowsTile) -> FewRowsTile:
        """With its columns cut up, where that is worth a second launch."""
        parts, programs = 1, -(-self.columns // tile.columns)
        while 2 * parts * programs <= _PROGRAMS and self.width // (2 * parts) >= _WHOLE // 2:
            parts *= 2
        fits = self.width > _WHOLE and self.width % (parts * tile.width) == 0
        return tile._replace(parts=parts) if fits else tile


@dataclass(frozen=True)
class FewRowsPlan:
    """The launches of some products of the same rows, which are cut up alike."""

    products: tuple[FewRows, ...]
    tile: FewRowsTile

    @property
    def sources(self) -> tuple[KernelSource, ...]:
        """The kernels, in the order in which they are launched."""
        return (self._product, self._join) if self.tile.parts > 1 else (self._product,)

    def run(self, run: AlternativeRun, given: Sequence[FewRowsOperands]) -> list[torch.Tensor]:
        """Launch them, into memory that is made for it."""
        x, parts = given[0].x, self.tile.parts

        def made(shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
            return memory_for(run, x, shape, (shape[1], 1), dtype)

        matrices = [each.matrix for each in given]
        biases = [each.bias for each in given if each.bias is not None]
        found = [made((each.rows, each.columns), x.dtype) for each in self.products]
        if parts == 1:
            run.launch(self._product, [x, *matrices, *biases], found)
            return found
        sums = [made((parts * each.rows, each.columns), torch.float32) for each in self.products]
        run.launch(self._product, [x, *matrices], sums)
        run.launch(self._join, [*sums, *biases], found)
        return found

    @property
    def _product(self) -> KernelSource:
        tile, whole = self.tile, self.tile.parts == 1
        calls: list[_Call] = []
        for number, each in enumerate(self.products):
            biased = whole and each.biased
            constants: dict[str, object] = {
                "COLUMNS": each.columns, "WIDTH": each.width, "WS": each.column_step,
                "BN": tile.columns, "BK": tile.width, "BIASED": biased,
            }  # fmt: skip
            if tile.rows > 1:
                constants |= {
                    "ROWS": each.rows, "XS": each.row_step, "BM": tile.rows, "PARTS": tile.parts,
                    "PART": tile.part or each.width // tile.parts, "STAGES": tile.stages,
                }  # fmt: skip
            passed = f"x, matrix{number}, {f'bias{number}' if biased else 'x'}, out{number}"
            programs = -(-each.columns // tile.columns) * tile.parts
            calls.append(_Call("row" if tile.rows == 1 else "block", passed, constants, programs))
        aligned = [self.products[0].aligned[0], *[each.aligned[1] for each in self.products]]
        given = [KernelParameter("x", self._kind, aligned[0])]
        given += [
            KernelParameter(f"matrix{number}", self._kind, each) for number, each in enumerate(aligned[1:])
        ]
        given += self._biases if whole else []
        return self._source(calls, [*given, *self._made("out", self._kind if whole else "fp32")], tile.warps)

    @property
    def _join(self) -> KernelSource:
        calls: list[_Call] = []
        for number, each in enumerate(self.products):
            count = each.rows * each.columns
            constants = {
                "COUNT": count, "COLUMNS": each.columns, "PARTS": self.tile.parts, "BLOCK": _JOINED,
                "BIASED": each.biased,
            }  # fmt: skip
            bias = f"{'bias' if each.biased else 'sums'}{number}"
            calls.append(_Call("join", f"sums{number}, {bias}, out{number}", constants, -(-count // _JOINED)))
        given = [*self._made("sums", "fp32"), *self._biases, *self._made("out", self._kind)]
        return self._source(calls, given, _JOINING_WARPS)

    @property
    def _kind(self) -> str:
        return NAMES_OF_TYPES[self.products[0].dtype]

    @property
    def _biases(self) -> list[KernelParameter]:
        biased = [(number, each) for number, each in enumerate(self.products) if each.biased]
        return [KernelParameter(f"bias{number}", self._kind, each.aligned[2]) for number, each in biased]

    def _made(self, name: str, kind: str) -> list[KernelParameter]:
        """Memory that is made for each product."""
        return [KernelParameter(f"{name}{number}", kind) for number in range(len(self.products))]

    def _source(self, calls: Sequence[_Call], given: Sequence[KernelParameter], warps: int) -> KernelSource:
        """A kernel whose first programs make the first of its calls, and so on."""
        lines, before = ["at = tl.program_id(0)"], 0
        for call in calls:
            if len(calls) > 1:
                lines.append(f"{'el' if before else ''}if at < {before + call.programs}:")
            lines.append(f"{'    ' * (len(calls) > 1)}{call.text(before)}")
            before += call.programs
        gpu = self.products[0].capability
        return triton_kernel(NAME, "few_rows_jit.py", lines, given, Programs(before, warps), gpu)


class _Call(NamedTuple):
    """A call in a kernel, and how many programs make it."""

    function: str
    passed: str
    constants: Mapping[str, object]
    programs: int

    def text(self, before: int) -> str:
        """It as it is written; so many programs come before."""
        named = ", ".join([f"{name}={value!r}" for name, value in self.constants.items()])
        return f"{self.function}({self.passed}, at - {before}, {named})"


# ---------------------------------------------------------------------- PyTorch's operators


def _mm(x: torch.Tensor, matrix: torch.Tensor) -> FewRowsOperands | None:
    return FewRowsOperands(x, matrix)


def _addmm(
    bias: torch.Tensor, x: torch.Tensor, matrix: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> FewRowsOperands | None:
    return FewRowsOperands(x, matrix, bias) if beta == alpha == 1 else None


@dataclass(frozen=True)
class _FewRowsWay:
    """A way to calculate an operator.

    Attributes:
        read: What it is given; None if it is more than a product and a bias.
        place: Which one of the tiles it takes.
    """

    read: Callable[..., FewRowsOperands | None]
    place: int

    def fits(self, *operands: Any, **named: Any) -> bool:
        """Whether there is a kernel."""
        given = self.read(*operands, **named)
        return given is not None and given.x.is_cuda and given.is_plain and self._has_tile(given)

    def _has_tile(self, given: FewRowsOperands) -> bool:
        old = properties_of(given.x.device.index).capability < OLDEST
        return not old and self.place < len(_described(given).tiles)

    def tile(self, each: FewRows) -> FewRowsTile:
        """How it is cut up."""
        return each.tiles[self.place]

    def known(self, *operands: Any, **named: Any) -> FewRowsOperands:
        """What it is given, if it fits."""
        given = self.read(*operands, **named)
        assert given is not None, "it was asked whether it fits"
        return given

    def described(self, *operands: Any, **named: Any) -> FewRows:
        """What the kernels depend on."""
        return _described(self.known(*operands, **named))

    def plan(self, products: Sequence[FewRows]) -> FewRowsPlan:
        """The launches."""
        return FewRowsPlan(tuple(products), self.tile(products[0]))

    def together(self, products: Sequence[FewRows]) -> bool:
        """Whether products of the same rows can be one launch."""
        return len({self.tile(each) for each in products}) == 1

    def run(self, run: AlternativeRun, several: Sequence[Operands]) -> list[torch.Tensor]:
        """The results of operations of the same rows."""
        given = [self.known(*operands, **named) for operands, named in several]
        return self.plan([self.described(*operands, **named) for operands, named in several]).run(run, given)


class _InOrderWay(_FewRowsWay):
    """The same with the operator's bits."""

    def _has_tile(self, given: FewRowsOperands) -> bool:
        each = _described(given)  # operands of a proof are aligned, and others have another kernel
        sized = each.width % STEP == 0 and given.matrix.numel() <= _MOST_IN_ORDER
        return each.capability == HOPPER and sized and all(each.aligned)

    def described(self, *operands: Any, **named: Any) -> FewRows:
        """What the kernels depend on, and how the operator adds up."""
        given = self.known(*operands, **named)
        each = _described(given)
        steps = (each.row_step, each.column_step)
        product = CublasProduct(
            each.rows, each.width, each.columns, each.dtype, steps, each.biased, given.x.device
        )
        return replace(each, part=part_of(product))

    def tile(self, each: FewRows) -> FewRowsTile:
        """How it is cut up."""
        return each.in_order

    def proof(self, *operands: Any, **named: Any) -> Iterator[Operands]:
        """Operands that lie as these do: sums of ordinary numbers, of which many end near zero."""
        given = self.known(*operands, **named)
        each, drawn = _described(given), list(operands)
        for seed in range(max(_FEWEST_PROOFS, -(-_PROOF_NUMBERS // (each.rows * each.columns)))):
            for number, tensor in enumerate(operands):
                if tensor is given.x or seed % _PROOFS_OF_A_MATRIX == 0:
                    drawn[number] = hostile_like(tensor, ORDINARY, 3 * seed + number)
            yield list(drawn), dict(named)


def _described(given: FewRowsOperands) -> FewRows:
    return given.described(properties_of(given.x.device.index).capability)


def _of(
    operator: str,
    shared: int,
    way: _FewRowsWay,
    name: str,
    proof: Callable[..., Iterable[Operands]] | None = None,
) -> Alternative:
    return Alternative(
        operator=f"aten::{operator}",
        name=name,
        fits=way.fits,
        calculate=lambda run, *operands, **named: way.run(run, [(operands, named)])[0],
        kernels=lambda *operands, **named: way.plan([way.described(*operands, **named)]).sources,
        together=JointAlternative(
            shared=shared,
            described=way.described,
            fits=way.together,
            kernels=lambda products: way.plan(products).sources,
            calculate=way.run,
        ),
        proof=proof,
        reassociates=proof is None,
        on_host=False,
    )


def _in_order(operator: str, shared: int, way: _InOrderWay) -> Alternative:
    return _of(operator, shared, way, f"{_NAME} in the operator's order", way.proof)


_NAME = "product of few rows"
_OPERATORS = (("mm", 0, _mm), ("addmm", 1, _addmm))
FEW_ROWS = (
    *[
        _of(operator, shared, _FewRowsWay(read, place), name)
        for operator, shared, read in _OPERATORS
        for place, name in enumerate((_NAME, f"{_NAME}, cut otherwise"))
    ],
    *[_in_order(operator, shared, _InOrderWay(read, 0)) for operator, shared, read in _OPERATORS],
)
"""For each of PyTorch's operators, each way."""
