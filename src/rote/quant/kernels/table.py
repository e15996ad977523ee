"""How transforms and products are cut up: as measured in ``tables`` for GPUs and shapes, else by rules.

``python -m benchmarks.w4a8 --tune`` writes the files, one for each GPU; each is read once. Nothing is
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
"""Numbers of rows that tiles are known for; others are rounded up, more than the last to the last."""

ADDITIONS = 1 << 19
"""The most atomic additions of a split sum: some hundred thousand take a microsecond."""


@dataclass(frozen=True)
class Tile:
    """How one product is cut up.

    Attributes:
        bm: Rows of the output in a tile.
        bn: Columns of the output in a tile, 32 to 256.
        unroll: Blocks of 128 summed columns in a step, 1, 2 or 4.
        split: Parts that the summed dimension is split into.
        stages: Steps that are loaded ahead.
        pdl: Start before the transform is done, and fetch weights meanwhile.
        ahead: Steps whose weights are fetched then; -1 is all.
        tma: Fetch tiles by the tensor memory accelerator, which takes no threads' time but needs one weight
            and quantized activations; other products go without. It fetches nothing ahead.
        tail: Rows of the last tiles where no more than these are left; 0 is never.
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
        """How the kernel waits: 0 not at all, else one more than the steps it fetches, or -1 for all."""
        return 0 if not self.pdl else -1 if self.ahead < 0 else self.ahead + 1

    def tiles(self, m: int, *n: int) -> int:
        """The number of tiles of outputs of ``m`` rows and ``n`` columns each."""
        return -(-m // self.bm) * sum(-(-columns // self.bn) for columns in n)

    def workspace(self, m: int, *n: int) -> int:
        """The int32 zeros that the products need: sums, and a counter for each tile."""
        return m * sum(n) + self.tiles(m, *n) if self.split > 1 else 0

    def alone(self) -> Tile:
        """The same for a product that follows no transform."""
        return replace(self, pdl=False) if self.pdl else self


@dataclass(frozen=True)
class RowCut:
    """How a rotation, a permutation and a rotation of rows are cut up.

    Attributes:
        tokens: Tokens that a program has at a time.
        programs: Programs for each multiprocessor, which take whole rows in turn; 0 gives each block of
            channels a program, in a launch for each step.
        held: Take rows one at a time and hold what all share (see :mod:`~.jit.held`); transforms that this
            kernel does not take are cut up by their sizes.
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
    """The tile of a product with weights of ``rows`` by ``k``; several are stored under their sum of rows.

    ``units`` are the GPU's multiprocessors. ``kind`` is ``"w4a8"``, ``"w8a8"``, ``"w4a16"`` or ``"w8a16"``;
    ``" static"`` behind the first two means that the product follows the short transform for static scales.
    ``m`` is as :func:`bucket` rounds it.
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
    """The cut of a rotation, a permutation and a rotation with blocks of ``size`` channels.

    None goes by the sizes of rows; ``m`` is as :func:`bucket` rounds it.
    """
    stored = _table(slug(gpu), "cuts").get(f"{width}/{size}", {})
    return RowCut(**stored[str(m)]) if str(m) in stored else cut_rule(m, width)


def cut_rule(m: int, width: int) -> RowCut | None:
    """Spread rows that are wide, and so few that most multiprocessors would have none."""
    return RowCut(16) if width >= 8192 and m <= 16 else None


def rule(units: int, kind: str, m: int, n: int, k: int) -> Tile:
    """A tile by rule of thumb: just enough programs to keep all multiprocessors loading."""
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
    if kind.endswith("static"):  # the transform is too short to fetch anything meanwhile
        return replace(base, split=split, pdl=True, ahead=0)
    # With few rows, some weights are fetched during the transform; all of them would be in its way.
    return replace(base, split=split, pdl=m <= 16, ahead=4)
