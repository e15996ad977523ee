"""Products of few rows: what their kernels give in Triton's interpreter, and how they are cut up.

The interpreter takes bfloat16 for integers in products, so numbers here are float16.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from tests.runtime.fusion import interpreter
from tests.runtime.optimize.noted import Noted
from torch import Tensor

from rote.runtime.compiling import COMPILERS, Binary
from rote.runtime.optimize.alternatives.few_rows import FewRowsOperands, FewRowsPlan

pytest.importorskip("triton")

MORE_THAN_TORCH = 1.05
"""How many times as far from the exact result as PyTorch's a result may be."""


class Case(NamedTuple):
    """Products of the same rows.

    Attributes:
        columns: Of each.
        biased: Each has a bias.
        gap: Numbers between two rows, and between two columns of a matrix.
    """

    rows: int
    width: int
    columns: tuple[int, ...]
    biased: bool = False
    gap: int = 0

    def made(self) -> list[FewRowsOperands]:
        torch.manual_seed(self.rows * self.width)
        x = self._tensor(self.rows)
        found: list[FewRowsOperands] = []
        for columns in self.columns:
            bias = torch.randn(columns).half() if self.biased else None
            found.append(FewRowsOperands(x, self._tensor(columns).t(), bias))
        return found

    def _tensor(self, lines: int) -> Tensor:
        return torch.randn(lines, self.width + self.gap).half()[:, : self.width]


CASES = [
    Case(1, 256, (300,)),
    Case(1, 512, (256, 130, 131), biased=True),
    Case(1, 768, (129,), gap=8),
    Case(1, 2048, (64,), biased=True),
    Case(5, 512, (200, 136)),
    Case(16, 2048, (48,), biased=True),
    Case(16, 2048, (48, 33), gap=16),
    Case(51, 384, (192,), biased=True),
    Case(64, 2048, (40, 48), biased=True),
]


@pytest.mark.parametrize("place", [0, 1])
def test_they_come_as_near_as_pytorch(tmp_path, place):
    noted, ends = Noted(), list[tuple[list[FewRowsOperands], int, int]]()
    for case in CASES:
        given = case.made()
        described = [each.described(90) for each in given]
        assert all(each.is_plain for each in given) and len(described[0].tiles) > place, case
        plan = FewRowsPlan(tuple(described), described[0].tiles[place])
        plan.run(noted, given)
        assert len(noted.launches) - (ends[-1][1] if ends else 0) == len(plan.sources)
        ends.append((given, len(noted.launches), len(given)))
    played = interpreter.played(noted.launches, tmp_path)
    for given, end, count in ends:
        for each, result in zip(given, played[end - 1][-count:], strict=True):
            exact = each.x.double() @ each.matrix.double()
            own = each.x @ each.matrix if each.bias is None else torch.addmm(each.bias, each.x, each.matrix)
            exact = exact if each.bias is None else exact + each.bias.double()
            assert _error(result, exact) <= MORE_THAN_TORCH * _error(own, exact), given


def test_columns_are_cut_up_as_the_operator_cuts_them(tmp_path):
    """The last part is shorter; each is a sum of its own, and then they are added in order."""
    noted, cases = Noted(), [(Case(51, 320, (96,)), 128), (Case(1, 576, (40,), biased=True), 192)]
    for case, part in cases:
        (given,) = case.made()
        each = replace(given.described(90), part=part)
        plan = FewRowsPlan((each,), each.in_order)
        assert plan.tile.parts == 3 and plan.tile.part == part and part % plan.tile.width == 0
        plan.run(noted, [given])
    played = interpreter.played(noted.launches, tmp_path)
    for (case, part), sums, result in zip(cases, played[::2], played[1::2], strict=True):
        (given,) = case.made()
        parts = sums[-1].view(3, case.rows, *case.columns)
        for number, found in enumerate(parts):
            here = slice(number * part, (number + 1) * part)
            torch.testing.assert_close(found, given.x[:, here].float() @ given.matrix[here].float())
        total = parts[0] + parts[1] + parts[2]
        total = total if given.bias is None else total + given.bias.float()
        assert torch.equal(result[-1], total.half())


def _error(result: Tensor, exact: Tensor) -> float:
    return float((result.double() - exact).square().mean().sqrt())


def test_columns_are_cut_up_where_they_are_few_and_long():
    def parts(rows: int, width: int, columns: int) -> int:
        x, matrix = torch.empty(rows, width).half(), torch.empty(columns, width).half().t()
        return FewRowsOperands(x, matrix).described(90).tiles[0].parts

    assert parts(8, 1024, 256) == 1
    assert parts(51, 4096, 1024) == 4
    assert parts(8, 8192, 8192) == 1
    assert parts(1, 8192, 512) == 1


@pytest.mark.parametrize(
    "product",
    [
        FewRowsOperands(torch.empty(1, 512), torch.empty(512, 512).t()),
        FewRowsOperands(torch.empty(1, 512).half(), torch.empty(512, 512).half()),
        FewRowsOperands(torch.empty(1, 512).half(), torch.empty(512, 512).bfloat16().t()),
        FewRowsOperands(torch.empty(65, 512).half(), torch.empty(512, 512).half().t()),
        FewRowsOperands(torch.empty(0, 512).half(), torch.empty(512, 512).half().t()),
        FewRowsOperands(torch.empty(1, 512).half(), torch.empty(64, 512).half().t()),
        FewRowsOperands(torch.empty(512, 4).half().t(), torch.empty(512, 512).half().t()),
        FewRowsOperands(torch.empty(4, 512).half(), torch.empty(512, 512).half().t(), torch.empty(512)),
        FewRowsOperands(
            torch.empty(4, 512).half(), torch.empty(512, 512).half().t(), torch.empty(1, 512).half()
        ),
    ],
)
def test_others_are_left_alone(product):
    assert not product.is_plain


def test_a_width_that_no_step_divides_has_no_tile():
    assert (
        not FewRowsOperands(torch.empty(1, 600).half(), torch.empty(600, 600).half().t()).described(90).tiles
    )


@pytest.mark.parametrize("rows", [1, 16])
def test_they_are_compiled_without_a_gpu(rows):
    given = Case(rows, 2048, (48, 33), biased=True).made()
    described = tuple([each.described(90) for each in given])
    sources = [source for tile in described[0].tiles for source in FewRowsPlan(described, tile).sources]
    job = COMPILERS.get().submit(sources)
    assert job.wait(120)
    for binary in job.results().values():
        assert isinstance(binary, Binary) and binary.code[:4] == b"\x7fELF", binary
