"""Laws of the arena planner."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from rote.backends.host import plan
from rote.backends.host.plan import ALIGNMENT, Lifetime, Plan, aligned, arrange


@st.composite
def lifetimes(draw: st.DrawFn) -> Lifetime:
    birth = draw(st.integers(0, 40))
    return Lifetime(draw(st.integers(0, 5000)), birth, birth + draw(st.integers(0, 12)))


def lower_bound(blocks: Sequence[Lifetime]) -> int:
    """The most bytes, each block rounded up, that are alive at any one operation."""
    changes: dict[int, int] = {}
    for block in blocks:
        if block.death > block.birth:
            changes[block.birth] = changes.get(block.birth, 0) + aligned(block.nbytes)
            changes[block.death] = changes.get(block.death, 0) - aligned(block.nbytes)
    live = most = 0
    for when in sorted(changes):
        live += changes[when]
        most = max(most, live)
    return most


def assert_lawful(blocks: list[Lifetime], made: Plan) -> None:
    assert len(made.offsets) == len(blocks)
    assert made.nbytes >= lower_bound(blocks)
    for block, offset in zip(blocks, made.offsets, strict=True):
        assert offset % ALIGNMENT == 0
        if block.death > block.birth:
            assert offset + block.nbytes <= made.nbytes
    for (a, at), (b, bt) in combinations(zip(blocks, made.offsets, strict=True), 2):
        together = a.birth < b.death and b.birth < a.death and a.death > a.birth and b.death > b.birth
        if together and a.nbytes and b.nbytes:
            assert at + a.nbytes <= bt or bt + b.nbytes <= at, (a, at, b, bt)


@settings(max_examples=150, deadline=None)
@given(st.lists(lifetimes(), max_size=30))
def test_no_two_live_blocks_share_a_byte(blocks: list[Lifetime]) -> None:
    needed = [n for n, block in enumerate(blocks) if block.nbytes and block.death > block.birth]
    best = arrange(blocks)
    assert_lawful(blocks, best)
    in_time, most = plan._in_time(blocks, needed)
    assert most == lower_bound(blocks)
    for made in (in_time, plan._largest_first(blocks, needed)):
        assert_lawful(blocks, made)
        assert best.nbytes <= made.nbytes


@settings(max_examples=50, deadline=None)
@given(st.lists(lifetimes(), max_size=30))
def test_never_more_than_no_reuse(blocks: list[Lifetime]) -> None:
    assert arrange(blocks).nbytes <= sum(aligned(block.nbytes) for block in blocks)


def test_nothing_to_place() -> None:
    assert arrange([]) == Plan((), 0)
    assert arrange([Lifetime(0, 0, 5), Lifetime(100, 3, 3)]) == Plan((0, 0), 0)


def test_a_chain_needs_two_blocks() -> None:
    blocks = [Lifetime(1000, n, n + 2) for n in range(50)]
    assert arrange(blocks).nbytes == 2 * aligned(1000) == lower_bound(blocks)


def test_largest_first_beats_time_order_where_a_small_one_comes_first() -> None:
    blocks = [Lifetime(64, 0, 3), Lifetime(128, 0, 2), Lifetime(128, 2, 5), Lifetime(192, 3, 5)]
    needed = range(len(blocks))
    assert arrange(blocks).nbytes <= plan._largest_first(blocks, list(needed)).nbytes
    assert_lawful(blocks, arrange(blocks))


def test_ten_thousand_blocks_are_planned_in_time_order() -> None:
    blocks = [Lifetime(64 * (1 + n % 7), n, n + 2 + n % 5) for n in range(10_000)]
    assert len(blocks) > plan.PAIRWISE_LIMIT
    assert arrange(blocks).nbytes <= 1.5 * lower_bound(blocks)
