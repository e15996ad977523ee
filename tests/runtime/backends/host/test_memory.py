"""Laws of the arena."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from rote.runtime.backends.host.memory import arrange
from rote.runtime.backends.host.pool import ALIGNMENT, aligned
from rote.runtime.backends.host.storages import Block


def block(nbytes: int, birth: int, death: int | None) -> Block:
    return Block(0, nbytes, birth, death)


def born_in_order(blocks: Sequence[Block]) -> list[Block]:
    return sorted(blocks, key=lambda each: each.birth)


@st.composite
def lifetimes(draw: st.DrawFn) -> Block:
    birth = draw(st.integers(0, 40))
    nbytes = draw(st.one_of(st.integers(0, 5000), st.sampled_from([0, 1, 64, 65])))
    return block(nbytes, birth, draw(st.one_of(st.none(), st.integers(birth, birth + 12))))


@settings(max_examples=150, deadline=None)
@given(st.lists(lifetimes(), max_size=30).map(born_in_order))
def test_no_two_that_live_share_a_byte(blocks: list[Block]) -> None:
    offsets, nbytes = arrange(blocks)
    assert nbytes <= sum(aligned(each.nbytes) for each in blocks)
    for each, offset in zip(blocks, offsets, strict=True):
        assert offset % ALIGNMENT == 0 and offset + each.nbytes <= nbytes
    for (a, at), (b, bt) in combinations(zip(blocks, offsets, strict=True), 2):
        if a.birth < b.end and b.birth < a.end and a.nbytes and b.nbytes:
            assert at + a.nbytes <= bt or bt + b.nbytes <= at, (a, at, b, bt)


def test_a_block_that_nothing_uses_is_there_for_the_operation_that_makes_it() -> None:
    offsets, _ = arrange([block(64, 3, None), block(64, 3, 3), block(64, 3, 4)])
    assert len(set(offsets)) == 3


def test_a_chain_needs_two_blocks() -> None:
    blocks = [block(1000, n, n + 2) for n in range(50)]
    assert arrange(blocks)[1] == 2 * aligned(1000)


def test_nothing_to_place() -> None:
    assert arrange([]) == ([], 0)
