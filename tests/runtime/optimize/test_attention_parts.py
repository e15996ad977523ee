"""Attention by parts of the keys: what its kernels give in Triton's interpreter, and how it is cut up.

The interpreter takes bfloat16 for integers in products, so numbers here are float16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.runtime.fusion import interpreter
from tests.runtime.optimize.attentions import SHAPES, Shape, error, exact, of_torch
from tests.runtime.optimize.noted import Noted
from torch import Tensor

from rote.runtime.compiling import COMPILERS, Binary
from rote.runtime.optimize.alternatives import parts
from rote.runtime.optimize.alternatives.operands import Attention
from rote.runtime.optimize.alternatives.parts import PartsPlan
from rote.runtime.optimize.alternatives.tiles import TILES, AttentionTile, Cut, Problem, best_cut, tiles_for

pytest.importorskip("triton")

NARROW, WIDE = AttentionTile(16, 32, 4, 2), AttentionTile(32, 16, 4, 2)
MORE_THAN_TORCH = 1.05
"""How many times as far from the exact result as PyTorch's a result may be."""


def cut_of(given: Attention, tile: AttentionTile, steps: int) -> Cut:
    return Cut(tile, steps, -(-given.keys // (tile.keys * steps)))


def all_of(given: Attention) -> list[Cut]:
    """In parts of one block and of two, and not in parts."""
    blocks = -(-given.keys // WIDE.keys)
    return [cut_of(given, NARROW, 1), cut_of(given, WIDE, 2), cut_of(given, WIDE, blocks)]


def play(givens: Sequence[tuple[Attention, Cut]], folder: Path) -> list[Tensor]:
    """What the kernels give."""
    noted = Noted()
    ends = list[int]()
    for given, cut in givens:
        PartsPlan(given, cut, 90).run(noted)
        ends.append(len(noted.launches) - 1)
    played = interpreter.played(noted.launches, folder)
    return [played[end][-1] for end in ends]


@pytest.mark.parametrize("turn", [0, *(pytest.param(turn, marks=pytest.mark.long) for turn in (1, 2))])
def test_they_come_as_near_as_pytorch(tmp_path, turn):
    """Each shape in one way at a time, another one in each turn."""
    cases = [(shape, shape.made(torch.float16, seed=number)) for number, shape in enumerate(SHAPES)]
    every = [(shape, given, all_of(given)[(n + turn) % 3]) for n, (shape, given) in enumerate(cases)]
    for shape, given in cases:
        assert parts.is_written(given) and given.is_plain, shape
    found = play([(given, cut) for _, given, cut in every], tmp_path)
    for (shape, given, cut), result in zip(every, found, strict=True):
        wanted, own = exact(given), of_torch(given)
        assert result.dtype is torch.float16 and result.shape == own.shape
        assert torch.equal(result.isfinite(), own.isfinite()), (shape, cut)
        mine, torchs = error(result, wanted), error(own, wanted)
        assert mine <= MORE_THAN_TORCH * torchs, (shape, cut, mine, torchs)


def changed(given: Attention, name: str, number: float) -> Attention:
    """With another number in one place."""
    tensor = getattr(given, name).clone()
    tensor[0, 0, 1, 3] = number
    return replace(given, **{name: tensor})


def test_what_is_no_number_is_where_the_exact_result_has_it(tmp_path):
    given = Shape("", 1, 2, 2, 4, 70, 32, mask="heads").made(torch.float16)
    numbers, names = (float("nan"), float("inf"), float("-inf")), ("query", "key", "value", "mask")
    cases = [changed(given, name, number) for name in names for number in numbers]
    every = [(case, cut_of(case, WIDE, (2, 5)[number % 2])) for number, case in enumerate(cases)]
    for (case, _), result in zip(every, play(every, tmp_path), strict=True):
        wanted = exact(case).to(result.dtype)
        torch.testing.assert_close(result, wanted, equal_nan=True, rtol=2e-3, atol=2e-3)


def test_a_row_without_keys(tmp_path):
    given = Shape("", 1, 2, 1, 5, 64, 32, mask="empty").made(torch.float16)
    noted, zeros = Noted(), [True, False] * 2
    cuts = [cut_of(given, WIDE, 1)] * 2 + [cut_of(given, WIDE, 4)] * 2
    ends = list[int]()
    for cut, zero in zip(cuts, zeros, strict=True):
        PartsPlan(given, cut, 90, zero).run(noted)
        ends.append(len(noted.launches) - 1)
    played = interpreter.played(noted.launches, tmp_path)
    for end, zero in zip(ends, zeros, strict=True):
        result = played[end][-1]
        row = result[:, :, 2]
        assert not row.any() if zero else row.isnan().all()
        assert result[:, :, [0, 1, 3, 4]].isfinite().all() and result[:, :, [0, 1, 3, 4]].all()


@pytest.mark.parametrize("layout", ["heads", "tokens", "slices"])
@pytest.mark.parametrize("like_query", [True, False])
def test_results_lie_as_pytorchs(layout, like_query):
    given = replace(Shape("", 2, 3, 3, 5, 64, 32, layout=layout).made(torch.float16), like_query=like_query)
    noted = Noted()
    result = PartsPlan(given, cut_of(given, NARROW, 1), 90).run(noted)
    tokens = torch.empty(2, 5, 3, 32).transpose(1, 2)
    assert result.stride() == (torch.empty_like(given.query) if like_query else tokens).stride()


# ---------------------------------------------------------------------- how it is cut up


def problem(groups=1, rows=408, keys=867, width=256, units=132) -> Problem:
    return Problem(groups, rows, keys, width, width, units, 227 << 10)


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("keys", [1, 64, 65, 867, 10_000])
def test_each_key_has_a_part(tile, keys):
    cut = best_cut(tile, problem(keys=keys))
    reached = cut.steps * tile.keys
    assert reached * (cut.parts - 1) < keys <= reached * cut.parts


def test_there_are_parts_only_where_a_gpu_would_be_idle():
    tile = AttentionTile(64, 64, 8, 2)
    assert best_cut(tile, problem()).parts > 1
    assert best_cut(tile, problem(groups=132, rows=64)).parts == 1
    assert best_cut(tile, problem(keys=64)).parts == 1


def test_tiles_without_room_are_left_out():
    assert AttentionTile(128, 64, 8, 2) in tiles_for(problem(width=64))
    assert AttentionTile(128, 64, 8, 2) not in tiles_for(problem())
    assert not tiles_for(problem()._replace(shared_bytes=16 << 10))


@pytest.mark.parametrize(
    ("change", "written"),
    [
        ({}, True),
        ({"width": 257}, False),
        ({"keys": 1 << 25, "width": 128}, False),
    ],
)
def test_what_there_is_a_kernel_for(change, written):
    shape = Shape("", 1, 2, 1, 1, 40, 64)._replace(**change)
    with torch.device("meta"):
        sizes = (1, 1, shape.keys, shape.width)
        key = torch.empty(sizes, dtype=torch.float16)
        query = torch.empty(1, 2, 1, shape.width, dtype=torch.float16)
    assert parts.is_written(Attention(query, key, key, None, None)) is written


@pytest.mark.slow
def test_they_are_compiled_without_a_gpu():
    given = Shape("", 1, 8, 1, 51, 867, 256, mask="row").made(torch.bfloat16)
    cuts = [best_cut(tile, problem()) for tile in tiles_for(problem())]
    sources = [source for cut in cuts for source in PartsPlan(given, cut, 90).sources]
    job = COMPILERS.get().submit(sources)
    assert job.wait(300)
    for source, outcome in job.results().items():
        assert isinstance(outcome, Binary), (source.grid, outcome)
        assert outcome.shared_bytes <= 227 << 10
