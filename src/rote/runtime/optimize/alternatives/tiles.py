"""How attention by parts of the keys is cut up, and what that is thought to cost.

The costs are in nanoseconds on an H200, fitted to what ``python -m benchmarks.run --case attention`` measures
there of every tile. They only have to tell a good cut from a bad one.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

START_NS, JOIN_NS = 1500.0, 3000.0
"""What a program takes besides its blocks of keys; what the launch that joins parts takes at least."""

FLOPS_PER_NS, BYTES_PER_NS = 1400.0, 45.0
"""Of one multiprocessor: arithmetic, and reading keys and values."""

HIDDEN = 0.25
"""How much of the shorter of the two is seen."""

WARPGROUP_ROWS, NARROW = 64, 0.7
"""Rows from which on products are those of a warpgroup, and how fast others are beside them."""

PARTS_PER_NS = 3000.0
"""Bytes of parts that the whole GPU writes and reads again."""

MOST_PARTS = 32
MOST_NUMBERS = 96
"""Of the sum of values that a thread may have in registers."""


@dataclass(frozen=True)
class AttentionTile:
    """What a program works on at once.

    Attributes:
        rows: Queries, of all heads that share keys and values; 16 or more.
        keys: Keys; 16 or more.
        stages: Blocks of keys that are on their way or at work.
    """

    rows: int
    keys: int
    warps: int
    stages: int

    def has_room(self, problem: Problem) -> bool:
        """Whether shared memory and registers are enough.

        In shared memory lie queries, keys and values for each stage, and masks and weights on their way.
        """
        loaded = self.rows * problem.width + self.stages * self.keys * (problem.width + problem.depth)
        shared = 2 * loaded + 4 * self.rows * self.keys
        threads = 32 * self.warps
        return shared <= problem.shared_bytes and self.rows * problem.depth <= MOST_NUMBERS * threads

    def step_ns(self, width: int, depth: int) -> float:
        """A block of keys."""
        flops, read = 2 * self.rows * self.keys * (width + depth), 2 * self.keys * (width + depth)
        speed = FLOPS_PER_NS * (1 if self.rows >= WARPGROUP_ROWS else NARROW)
        longer, shorter = max(flops / speed, read / BYTES_PER_NS), min(flops / speed, read / BYTES_PER_NS)
        return longer + HIDDEN * shorter


TILES = (
    AttentionTile(64, 64, 4, 3),
    AttentionTile(64, 64, 8, 2),
    AttentionTile(64, 32, 8, 4),
    AttentionTile(64, 128, 8, 2),
    AttentionTile(128, 64, 8, 2),
    AttentionTile(32, 64, 4, 3),
    AttentionTile(16, 64, 4, 3),
)
"""Those that are tried, of equal ones the first."""


class Problem(NamedTuple):
    """The sizes that a cut depends on.

    Attributes:
        groups: Sets of keys and values.
        rows: Queries of each.
        width: Of queries and keys, up to the next power of two.
        depth: Of values, up to the next power of two.
        units: Multiprocessors.
        shared_bytes: Shared memory that a program may have.
    """

    groups: int
    rows: int
    keys: int
    width: int
    depth: int
    units: int
    shared_bytes: int


class Cut(NamedTuple):
    """A tile, and how many of its blocks of keys a part has."""

    tile: AttentionTile
    steps: int
    parts: int

    def cost_ns(self, problem: Problem) -> float:
        """How long it may take."""
        programs = problem.groups * -(-problem.rows // self.tile.rows) * self.parts
        turns = -(-programs // problem.units)
        found = turns * (START_NS + self.steps * self.tile.step_ns(problem.width, problem.depth))
        if self.parts > 1:
            sums = 8 * self.parts * problem.groups * problem.rows * problem.depth
            found += JOIN_NS + sums / PARTS_PER_NS
        return found


def best_cut(tile: AttentionTile, problem: Problem) -> Cut:
    """The cut of a tile that is thought to take least."""
    blocks = -(-problem.keys // tile.keys)
    made = [Cut(tile, steps, -(-blocks // steps)) for steps in range(-(-blocks // MOST_PARTS), blocks + 1)]
    return min(made, key=lambda cut: cut.cost_ns(problem))


def tiles_for(problem: Problem) -> list[AttentionTile]:
    """The tiles that have room."""
    return [each for each in TILES if each.has_room(problem)]


@functools.lru_cache(maxsize=256)
def cuts_of(problem: Problem) -> tuple[Cut, ...]:
    """The best cut of each tile that has room, what is thought to be fastest first."""
    found = [best_cut(tile, problem) for tile in tiles_for(problem)]
    return tuple(sorted(found, key=lambda cut: cut.cost_ns(problem)))
