"""Keys that never come again are looked at ever more seldom; any key that comes often enough is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rote.api.newcomers import PATIENCE, Newcomers


def worn(levels: int = 1) -> Newcomers:
    """After as many keys as are looked at in vain."""
    newcomers, key = Newcomers(256), 0
    for _ in range(levels):
        looked = 0
        while looked < PATIENCE:
            key += 1
            looked += any(newcomers.admit(key) for _ in range(newcomers.times * 2))  # up to the first
    return newcomers


def test_the_first_ones_are_all_looked_at():
    newcomers = Newcomers(256)
    assert all(newcomers.admit(key) for key in range(PATIENCE))
    assert not any(newcomers.admit(key) for key in range(1000, 3000))


def test_one_that_comes_again_is():
    newcomers = worn()
    assert [newcomers.admit(-1) for _ in range(2)] == [False, True]


def test_ever_more_often():
    newcomers = worn(3)
    assert [newcomers.admit(-1) for _ in range(8)] == [False] * 7 + [True]


def test_a_replay_begins_the_count_anew():
    newcomers = Newcomers(256)
    for key in range(5 * PATIENCE):
        assert newcomers.admit(key)
        if key % PATIENCE == PATIENCE - 1:
            newcomers.prove()
    assert newcomers.times == 1


def test_only_so_many_are_remembered():
    newcomers = Newcomers(4)
    for key in range(PATIENCE):
        newcomers.admit(key)
    for key in (1001, 1002, 1003, 1004, 1005):
        assert not newcomers.admit(key)
    assert not newcomers.admit(1001)  # forgotten for the fifth
    assert newcomers.admit(1005)


@given(st.lists(st.integers(0, 500), max_size=3000))
def test_what_is_looked_at_in_vain_is_bounded(keys: list[int]) -> None:
    newcomers = Newcomers(256)
    looked = sum([newcomers.admit(key) for key in keys])
    assert looked <= PATIENCE * newcomers.times.bit_length()
    assert newcomers.times == 1 or len(keys) >= PATIENCE * newcomers.times / 2
