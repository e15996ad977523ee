"""Tiles: every stored and every guessed one can run."""

from __future__ import annotations

import json
from importlib import resources

import pytest

from rote.quant.kernels.table import BUCKETS, RowCut, Tile, bucket, choose, choose_cut, cut_rule, rule, slug

SHAPES = [(16384, 2048), (2048, 16384), (4096, 1024), (1024, 4096), (256, 2048), (1, 1), (130, 200)]
KINDS = ["w4a8", "w8a8", "w4a16"]


def assert_runs(tile: Tile, kind: str) -> None:
    assert tile.bm in (8, 16, 32, 64, 128, 256) and tile.bn in (16, 32, 64, 128, 256)
    assert tile.warps in (2, 4, 8) and 1 <= tile.stages <= 12 and tile.split >= 1 and tile.unroll >= 1
    assert tile.split == 1 or not kind.endswith("16"), "float sums depend on their order"
    assert tile.ahead >= -1 and tile.unroll in (1, 2, 4) and tile.tail in (0, 16, 32, 64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_rule(kind: str, n: int, k: int):
    for m in BUCKETS:
        assert_runs(rule(132, kind, m, n, k), kind)


def test_few_rows_fill_the_chip():
    for n, k in [(16384, 2048), (2048, 16384)]:
        tile = rule(132, "w4a8", 16, n, k)
        assert tile.tiles(16, n) * tile.split >= 128


def test_stored_tables_run():
    for file in resources.files("rote.quant.kernels").joinpath("tables").iterdir():
        if not file.name.endswith(".json"):
            continue
        table = json.loads(file.read_text(encoding="utf-8"))
        assert f"{slug(table['gpu'])}.json" == file.name
        for kind, shapes in table["tiles"].items():
            for shape, buckets in shapes.items():
                assert len(shape.split("x")) == 2
                for m, stored in buckets.items():
                    assert int(m) in BUCKETS
                    assert_runs(Tile(**stored), kind)


def test_stored_cuts_run():
    for file in resources.files("rote.quant.kernels").joinpath("tables").iterdir():
        if not file.name.endswith(".json"):
            continue
        for shape, buckets in json.loads(file.read_text(encoding="utf-8")).get("cuts", {}).items():
            width, size = map(int, shape.split("/"))
            assert width % size == 0
            for m, stored in buckets.items():
                cut = RowCut(**stored)
                assert int(m) in BUCKETS and cut.warps in (2, 4, 8, 16) and cut.programs >= 0
                if cut.programs:
                    assert 16 * 32 * cut.warps <= 2 * cut.tokens * width <= 128 * 32 * cut.warps
                else:
                    assert cut.tokens in (16, 32, 64)


def test_few_wide_rows_are_spread():
    for m in BUCKETS:
        assert (cut_rule(m, 2048) is None) and (cut_rule(m, 16384) == (RowCut(16) if m <= 16 else None))
        assert choose_cut("no such GPU", m, 16384, 128) == cut_rule(m, 16384)


@pytest.mark.parametrize(("tile", "waiting"), [(Tile(8, 64), 0), (Tile(8, 64, pdl=True), -1)])
def test_waiting(tile: Tile, waiting: int):
    assert tile.waiting == waiting and tile.alone().waiting == 0
    assert [Tile(8, 64, pdl=True, ahead=steps).waiting for steps in (0, 4)] == [1, 5]


def test_unknown_gpu_takes_the_rule():
    assert choose("no such GPU", 100, "w4a8", 16, (256,), 2048) == rule(100, "w4a8", 16, 256, 2048)


@pytest.mark.parametrize(("m", "size"), [(1, 1), (2, 8), (51, 64), (800, 1024), (2048, 2048), (99999, 2048)])
def test_bucket(m: int, size: int):
    assert bucket(m) == size
