"""The choice of victims: by value per byte freed, by regions, never what is fixed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rote.runtime.memory.victims import Item, choose, held, shares


def alone(nbytes, value, *regions, fixed=False):
    return Item(frozenset(regions), nbytes, value, fixed)


def test_the_least_value_for_each_byte_goes():
    items = [alone(100, 50.0), alone(10, 20.0), alone(1000, 400.0)]
    assert choose(items, {}) == [2]
    assert choose([items[0], items[1]], {}) == [0]


def test_a_shared_region_goes_with_all_that_hold_it():
    sizes = {"pool": 1000, "other": 100}
    items = [alone(0, 5.0, "pool"), alone(0, 5.0, "pool"), alone(0, 5.0, "other")]
    assert choose(items, sizes) == [0, 1]
    items[1] = alone(0, 5000.0, "pool")
    assert choose(items, sizes) == [2]


def test_nothing_is_chosen_that_frees_nothing():
    sizes = {"pool": 1000}
    assert choose([alone(0, 1.0, "pool"), alone(0, 1.0, "pool", fixed=True)], sizes) == []
    assert choose([], sizes) == []
    assert choose([alone(0, 0.0, "gone")], sizes) == []


def test_two_regions_of_one_recording_count_together():
    sizes = {"chunk": 60, "kept": 40, "large": 90}
    items = [alone(0, 10.0, "chunk", "kept"), alone(0, 10.0, "large")]
    assert choose(items, sizes) == [0]


def test_shares_follow_the_demands():
    items = [alone(7, 0.0, "pool"), alone(0, 0.0, "pool"), alone(0, 0.0)]
    assert shares(items, [300, 100, 5], {"pool": 1000}) == [757, 250, 0]
    assert shares(items, [0, 0, 0], {"pool": 1000}) == [507, 500, 0]


REGIONS = st.frozensets(st.sampled_from("abcdef"), max_size=3)
ITEMS = st.lists(
    st.builds(Item, REGIONS, st.integers(0, 50), st.floats(0, 100), st.booleans()), min_size=1, max_size=8
)
SIZES = st.fixed_dictionaries({name: st.integers(0, 100) for name in "abcdef"})


@given(ITEMS, SIZES)
def test_evicting_ends_with_what_is_fixed(items, sizes):
    """Each choice frees something, holds nothing fixed, and choosing on leaves only what must stay."""
    left = list(items)
    while chosen := choose(left, sizes):
        assert not any(left[index].fixed for index in chosen)
        rest = [item for index, item in enumerate(left) if index not in set(chosen)]
        assert held(rest, sizes) < held(left, sizes)
        left = rest
    fixed = [item for item in items if item.fixed]
    assert held(left, sizes) == held(fixed, sizes)


@given(ITEMS, SIZES)
def test_no_single_recording_is_cheaper(items, sizes):
    chosen = choose(items, sizes)
    if not chosen:
        return
    rest = [item for index, item in enumerate(items) if index not in set(chosen)]
    freed = held(items, sizes) - held(rest, sizes)
    price = sum(items[index].value for index in chosen) / freed
    for index, item in enumerate(items):
        gained = held(items, sizes) - held(items[:index] + items[index + 1 :], sizes)
        if not item.fixed and gained:
            assert price <= item.value / gained


@given(ITEMS, SIZES)
def test_shares_add_up(items, sizes):
    demands = [10 * index + 1 for index in range(len(items))]
    assert abs(sum(shares(items, demands, sizes)) - held(items, sizes)) <= len(items)
