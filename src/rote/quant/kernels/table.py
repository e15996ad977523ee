"""How transforms and products are cut up: as measured for GPUs and shapes in ``tables``, else by rules.

The files are written by ``python -m benchmarks.w4a8 --tune``, one for each GPU, and read once. Nothing is
measured while a layer runs.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from . import tables

BUCKETS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
"""Rows are rounded up to one of these to look tiles up; more than the last count as the last."""


ADDITIONS = 1 << 19
"""Atomic additions of a split sum that are worth it: some hundred thousand take a microsecond."""


@dataclass(frozen=True)
class Tile:
    """How one product is cut up.

    Attributes:
        bm: Rows of the output in a tile.
        bn: Columns of the output in a tile, 32 to 256.
        unroll: Blocks of 128 summed columns in a step, 1, 2 or 4.
        split: Parts that the summed dimension is split into.
        stages: Steps that are loaded ahead.
        warps: Warps of a program.
        pdl: Start before the transform is done, and fetch weights meanwhile.
        ahead: For how many steps weights are fetched then; -1 is for all.
        tma: Fetch tiles by the tensor memory accelerator, which takes no threads' time but wants one weight
            and quantized activations; what it cannot do goes without, and nothing is fetched ahead with it.
        tail: Where no more rows than that are left for the last tiles, these have so many; 0 is for never.
    """

    bm: int
    bn: int
    unroll: int = 1
    split: int = 1
    stages: int = 4
    warps: int = 4
    pdl: bool = False
    ahead: int = -1
    tma: bool = False
    tail: int = 0

    @property
    def waiting(self) -> int:
        """How the kernel waits: 0 for not at all, else one more than the steps it fetches, or -1."""
        return 0 if not self.pdl else -1 if self.ahead < 0 else self.ahead + 1

    def tiles(self, m: int, *n: int) -> int:
        """How many tiles outputs of ``m`` rows and ``n`` columns have together."""
        return -(-m // self.bm) * sum(-(-columns // self.bn) for columns in n)

    def workspace(self, m: int, *n: int) -> int:
        """How many int32 zeros the products need: sums, and a counter for each tile."""
        return m * sum(n) + self.tiles(m, *n) if self.split > 1 else 0

    def alone(self) -> Tile:
        """The same for a product that follows no transform."""
        return replace(self, pdl=False) if self.pdl else self


@dataclass(frozen=True)
class RowCut:
    """How a rotation, a permutation and a rotation of rows are cut up.

    Attributes:
        tokens: Tokens that a program has at a time.
        warps: Warps of a program.
        programs: Programs for each multiprocessor, which take whole rows in turn; 0 spreads a row over
            programs, a block of channels for each, in as many launches as there are steps.
        held: Take rows one at a time with what all share held (see
            :mod:`~.jit.held`); what that cannot do is cut up by its sizes.
    """

    tokens: int
    warps: int = 4
    programs: int = 0
    held: bool = False


def bucket(m: int) -> int:
    """The bucket of a number of rows."""
    return next((size for size in BUCKETS if m <= size), BUCKETS[-1])


def slug(gpu: str) -> str:
    """A GPU's name as file name: small letters and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-")


@functools.cache
def choose(gpu: str, units: int, kind: str, m: int, rows: tuple[int, ...], k: int) -> Tile:
    """The tiles of a product with one weight, or with some that are stored under their sum of rows.

    ``units`` are the GPU's multiprocessors. ``kind`` is ``"w4a8"``, ``"w8a8"``, ``"w4a16"`` or ``"w8a16"``,
    the first two also with ``" static"`` behind, for products that follow the short transform for static
    scales. ``m`` is as :func:`bucket` rounds it.
    """
    n = sum(rows)
    stored = _table(slug(gpu), "tiles").get(kind, {}).get(f"{n}x{k}", {})
    nearest = min((int(size) for size in stored if int(size) >= m), default=None)
    if nearest is not None and nearest <= 2 * max(m, 8):
        return Tile(**stored[str(nearest)])
    return rule(units, kind, m, n, k)


@functools.cache
def _table(name: str, part: str) -> dict[str, Any]:
    file = resources.files(tables).joinpath(f"{name}.json")
    return json.loads(file.read_text(encoding="utf-8")).get(part, {}) if file.is_file() else {}


@functools.cache
def choose_cut(gpu: str, m: int, width: int, size: int) -> RowCut | None:
    """How a rotation, a permutation and a rotation of rows are cut up; None goes by their sizes.

    ``m`` is as :func:`bucket` rounds it; a block has ``size`` channels.
    """
    stored = _table(slug(gpu), "cuts").get(f"{width}/{size}", {})
    return RowCut(**stored[str(m)]) if str(m) in stored else cut_rule(m, width)


def cut_rule(m: int, width: int) -> RowCut | None:
    """Rows are spread where they are wide, and so few that most multiprocessors would have none."""
    return RowCut(16) if width >= 8192 and m <= 16 else None


def rule(units: int, kind: str, m: int, n: int, k: int) -> Tile:
    """Tiles by rule of thumb: enough programs to keep all multiprocessors loading, no more than that."""
    whole = kind.endswith("16")  # float sums depend on their order, so they are not split
    steps = -(-k // 128)
    if whole:
        bm = max(16, next((size for size in (16, 32, 64, 128) if m <= size), 128))
        return Tile(bm, 64 if m <= 64 else 128, 1, 1, 3, 8 if m > 64 else 4)
    if m > 64:
        base = Tile(128 if m > 128 else 64, 128, 1, 1, 4 if kind.startswith("w4") else 3, 8)
    else:
        bm = next(size for size in (8, 16, 32, 64) if m <= size)
        base = Tile(bm, 64, 1, 1, 5 if bm <= 16 else 4, 4)
    split = 1
    while (
        2 * base.tiles(m, n) * split <= (2 if m <= 16 else 1) * units
        and steps // (2 * split) >= 4
        and 2 * split * m * n <= ADDITIONS
    ):
        split *= 2
    if kind.endswith("static"):  # the transform is too short for anything but a launch behind it
        return replace(base, split=split, pdl=True, ahead=0)
    # With few rows, weights are fetched while the rows are transformed: some, as all are in its way.
    return replace(base, split=split, pdl=m <= 16, ahead=4)
