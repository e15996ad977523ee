"""Numbers that a call draws from Python's and numpy's generators: replays draw them as the call would."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import rote

CALLS = 50


def a_factor(s: Any, x: Tensor) -> Tensor:
    return x * random.random()


def between(s: Any, x: Tensor) -> Tensor:
    return x + random.uniform(-1.0, 2.0)


def an_integer(s: Any, x: Tensor) -> Tensor:
    return x * random.randint(0, 1000)


def several(s: Any, x: Tensor) -> Tensor:
    first, second = random.normalvariate(0, 1), random.random()
    return x * first - second * np.random.rand()


def of_numpy(s: Any, x: Tensor) -> Tensor:
    return x * np.random.uniform(0.5, 1.5) + np.random.randint(3, 90)


def a_coin(s: Any, x: Tensor) -> Tensor:
    return x * 2 if random.random() < 0.5 else x - 1


def a_coin_and_more(s: Any, x: Tensor) -> Tensor:
    if np.random.rand() < 0.5:
        x = x * random.random()
    return x + 1


def a_falling_share(s: Any, x: Tensor) -> Tensor:
    s.share *= 0.99
    return x * 3 if random.random() < s.share else x / 2


def a_result(s: Any, x: Tensor) -> tuple[Tensor, float]:
    drawn = random.random()
    return x * 2, drawn


def kept(s: Any, x: Tensor) -> Tensor:
    s.last = np.random.randn()
    return x * s.last


def behind_a_read(s: Any, x: Tensor) -> Tensor:
    if x.sum().item() > 0:
        return x * random.random()
    return x


def before_a_read(s: Any, x: Tensor) -> Tensor:
    factor = random.random()
    return x * factor if x.sum().item() > 0 else x - factor


def an_array(s: Any, x: Tensor) -> Tensor:
    return x * float(np.random.rand(3).sum())


def a_choice(s: Any, x: Tensor) -> Tensor:
    return x * random.choice([1, 2, 3])


def a_second_number(s: Any, x: Tensor) -> Tensor:
    return x * random.gauss(0, 1)


def in_order(s: Any, x: Tensor) -> Tensor:
    order = [0, 1, 2]
    random.shuffle(order)
    return x[torch.tensor(order, device=x.device)]


def a_sample(s: Any, x: Tensor) -> Tensor:
    return s.memory[torch.as_tensor(random.sample(range(20), 4))].sum(0) * x


def a_sample_of_numbers(s: Any, x: Tensor) -> tuple[Tensor, list[int]]:
    chosen = s.dice.sample([3, 5, 7, 11], k=2)
    return s.memory[chosen].sum(0) * x * chosen[0], chosen


def with_replacement(s: Any, x: Tensor) -> Tensor:
    return s.memory[random.choices(range(20), k=8)].sum(0) * x


def by_weight(s: Any, x: Tensor) -> Tensor:
    return x * sum(random.choices([0.5, 1.5], weights=[1, 3], k=3))


def kept_in_order(s: Any, x: Tensor) -> Tensor:
    s.dice.shuffle(s.order)
    return s.memory[s.order[0]] * x


def of_tensors(s: Any, x: Tensor) -> Tensor:
    return torch.stack(random.sample([x, x + 1, x + 2], 2))


def seeded(s: Any, x: Tensor) -> Tensor:
    random.seed(s.share)
    return x * random.random()


def own_generator(s: Any, x: Tensor) -> Tensor:
    return x * s.dice.random()


def looked_at(s: Any, x: Tensor) -> Tensor:
    return x * s.dice.random() + hash(s.dice.getstate()) % 5 + random.getstate()[1][-1] * random.random()


def a_shuffled_array(s: Any, x: Tensor) -> Tensor:
    order = np.arange(20)
    np.random.shuffle(order)
    return s.memory[order[:4]].sum(0) * x


def shuffled_twice(s: Any, x: Tensor) -> tuple[Tensor, int]:
    order, weights = np.arange(6), np.arange(6) * 0.2
    s.rng.shuffle(order)
    np.random.shuffle(weights)
    s.rng.shuffle(order)
    return x * float((order * weights).sum()), int(order[0])


def a_shuffled_list(s: Any, x: Tensor) -> Tensor:
    order = list(range(20))
    np.random.shuffle(order)
    return s.memory[order[:4]].sum(0) * x


def rows_of_an_array(s: Any, x: Tensor) -> Tensor:
    chosen = np.random.randint(0, 20, size=4)
    return torch.as_tensor(s.rows[chosen], device=x.device).sum(0) * x + float(s.rows[chosen, 1].sum())


def rows_by_a_mask(s: Any, x: Tensor) -> Tensor:
    mask = s.rng.random(20) < 0.5
    return x * float(s.rows[mask].sum()) + float(s.rows[:, 1][mask].sum())


def behind_a_number(s: Any, x: Tensor) -> Tensor:
    s.last = x.sum().item()
    chosen = np.random.randint(0, 20, size=4)
    s.share = x.square().mean().item()
    return s.memory[chosen].sum(0) * x * random.random()


def behind_a_check(s: Any, x: Tensor) -> Tensor:
    if not (x == x).all():
        raise ValueError
    return x * random.random()


def behind_a_distribution(s: Any, x: Tensor) -> Tensor:
    drawn = torch.distributions.Normal(x, torch.ones_like(x)).log_prob(x * 2)
    return drawn * s.rng.uniform(0.5, 2.0)


def now_and_then_behind_a_read(s: Any, x: Tensor) -> Tensor:
    x = x * random.random()
    if x.sum().item() > 0.5:
        x = x - random.randint(1, 5)
    return x + random.random()


def as_many_as_were_read(s: Any, x: Tensor) -> Tensor:
    for _ in range(int(abs(x.sum().item()) % 3)):
        x = x * random.random()
    return x * np.random.rand()


def another_behind_a_read(s: Any, x: Tensor) -> Tensor:
    s.last = x.sum().item()
    return x * (random.random() if s.last > -1 else random.gauss(0, 1))


def another_behind_two(s: Any, x: Tensor) -> Tensor:
    s.last = x.sum().item()
    x = x * random.random()
    if (x > 0.4).any():
        return x + s.rng.random()
    return x - s.rng.integers(5) * s.rng.random()


def a_shuffled_array_that_is_kept(s: Any, x: Tensor) -> Tensor:
    np.random.shuffle(s.places)
    return s.memory[s.places[:2]].sum(0) * x


def part_of_what_is_kept(s: Any, x: Tensor) -> Tensor:
    part = s.places[2:]
    np.random.shuffle(part)
    return s.memory[s.places[:3]].sum(0) * x


def shuffled_rows(s: Any, x: Tensor) -> Tensor:
    made = np.arange(6.0).reshape(3, 2)
    np.random.shuffle(made)
    return x * float(made[0, 1])


def a_part_seen_before(s: Any, x: Tensor) -> Tensor:
    order = np.arange(20)
    part = order[3:7]
    np.random.shuffle(order)
    return s.memory[part].sum(0) * x


def a_tensor_of_it_before(s: Any, x: Tensor) -> Tensor:
    order = np.arange(20)
    seen = torch.from_numpy(order)
    np.random.shuffle(order)
    return s.memory[seen[:4].to(x.device)].sum(0) * x


def used_between(s: Any, x: Tensor) -> Tensor:
    order = np.arange(20)
    for _ in range(2):
        np.random.shuffle(order)
        x = x + s.memory[order[:4]].sum(0)
    return x


def changed_behind(s: Any, x: Tensor) -> Tensor:
    order = np.arange(20)
    np.random.shuffle(order)
    order[0] = 3
    return s.memory[order[:4]].sum(0) * x


def rows_that_are_changed(s: Any, x: Tensor) -> Tensor:
    chosen = np.random.randint(0, 20, size=3)
    found = s.rows[chosen]
    found += 1
    s.rows[0, 0] += 1
    return torch.as_tensor(found, device=x.device).sum(0) * x


def rows_beside_it(s: Any, x: Tensor) -> Tensor:
    return x * float(s.rows[np.random.randint(15, 21, size=2)].sum())


def weighed_rows(s: Any, x: Tensor) -> Tensor:
    """How likely each is stands in an array outside; what is computed of it is computed in each call."""
    weights = s.rows[:, 1] + 1
    chosen = np.random.choice(20, 4, replace=False, p=weights / weights.sum())
    return s.memory[chosen].sum(0) * x


def of_a_pool_that_is_read(s: Any, x: Tensor) -> tuple[Tensor, float]:
    """The loss is read behind an array that is an index."""
    found = s.memory[s.rng.choice(s.places, 3)].sum(0) * x
    return found, found.sum().item()


def around_means(s: Any, x: Tensor) -> Tensor:
    return torch.as_tensor(s.rng.normal(s.rows[0], 0.1), device=x.device) * x


def weighed_by_what_changes(s: Any, x: Tensor) -> Tensor:
    s.rows[3, 1] += 1
    weights = s.rows[:, 1] + 1
    return s.memory[s.rng.choice(20, 4, p=weights / weights.sum())].sum(0) * x


def weighed_by_a_tensor(s: Any, x: Tensor) -> Tensor:
    weights = torch.softmax(s.memory[:, 1] * 0.1 + x.sum(), 0).cpu().numpy().astype(np.float64)
    return x + int(np.random.choice(20, p=weights / weights.sum()))


def filled_with_them(s: Any, x: Tensor) -> Tensor:
    made = np.zeros(3)
    s.rng.standard_normal(out=made)
    return torch.as_tensor(made, device=x.device) * x


def filled_outside(s: Any, x: Tensor) -> Tensor:
    s.rng.standard_normal(None, np.float32, s.rows)
    return torch.as_tensor(s.rows[0].copy(), device=x.device) * x


REPLAYED = (
    a_factor, between, an_integer, several, of_numpy, a_coin, a_coin_and_more, a_falling_share, a_result,
    kept, before_a_read, a_choice, a_second_number, own_generator, in_order, a_sample, a_sample_of_numbers,
    with_replacement, by_weight, a_shuffled_array, shuffled_twice, a_shuffled_list, rows_of_an_array,
    rows_by_a_mask, behind_a_number, behind_a_check, behind_a_distribution, weighed_rows,
    of_a_pool_that_is_read, around_means,
)  # fmt: skip
OTHERS = (
    behind_a_read, an_array, seeded, looked_at, kept_in_order, of_tensors, now_and_then_behind_a_read,
    as_many_as_were_read, another_behind_a_read, another_behind_two, a_shuffled_array_that_is_kept,
    part_of_what_is_kept, shuffled_rows, a_part_seen_before, a_tensor_of_it_before, used_between,
    changed_behind, rows_that_are_changed, rows_beside_it, weighed_by_what_changes, weighed_by_a_tensor,
    filled_with_them, filled_outside,
)  # fmt: skip


def _done(program: Callable[[Any, Tensor], Any], state: Any, x: Tensor) -> Any:
    try:
        return program(state, x)
    except IndexError as error:
        return type(error), str(error)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        if not isinstance(one[0], Tensor) or type(other) is not tuple:
            return one == other
        return torch.equal(one[0], other[0]) and one[1:] == other[1:]
    return torch.equal(one, other)


def _state(device: torch.device) -> Any:
    memory = torch.arange(60.0, device=device).reshape(20, 3)
    rows = np.arange(60, dtype=np.float32).reshape(20, 3) * np.float32(0.37)
    return SimpleNamespace(
        share=0.9, last=0.0, dice=random.Random(1), memory=memory, order=[0, 1, 2], rows=rows,
        rng=np.random.default_rng(2), places=np.arange(20),
    )  # fmt: skip


def _states() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state()


def _set(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])


def _run(program: Callable[[Any, Tensor], Any], device: torch.device) -> int:
    """Call a program plain and graphed; how many of the last calls were replayed."""
    plain, graphed = (_state(device) for _ in range(2))
    act = rote.graph(lambda x: program(graphed, x), keep=True)
    outside, dice, early = _states(), random.Random(3), 0
    try:
        random.seed(5)
        np.random.seed(5)
        for call in range(CALLS):
            x, begun = torch.full((3,), dice.uniform(-1, 1), device=device), _states()
            expected, left = _done(program, plain, x), _states()
            _set(begun)
            assert _equal(_done(lambda _, x: act(x), None, x), expected), call
            assert repr(_states()) == repr(left), call
            assert (plain.share, plain.last) == (graphed.share, graphed.last)
            assert plain.order == graphed.order
            assert plain.dice.getstate() == graphed.dice.getstate()
            assert plain.rng.bit_generator.state == graphed.rng.bit_generator.state
            assert np.array_equal(plain.rows, graphed.rows) and np.array_equal(plain.places, graphed.places)
            early = act.report().replayed if call == CALLS // 2 else early
    finally:
        _set(outside)
    return act.report().replayed - early


@pytest.mark.parametrize("program", REPLAYED, ids=lambda each: each.__name__)
def test_it_is_replayed(program: Callable[[Any, Tensor], Any], device: torch.device) -> None:
    assert _run(program, device) >= CALLS // 4


@pytest.mark.parametrize("program", OTHERS, ids=lambda each: each.__name__)
def test_it_is_right(program: Callable[[Any, Tensor], Any], device: torch.device) -> None:
    _run(program, device)


def test_a_replay_that_raises_has_drawn_what_the_call_draws(device: torch.device) -> None:
    if device.type != "cpu":
        pytest.skip("an index outside ends the process's use of the device")

    def picked(x: Tensor, index: Tensor) -> Tensor:
        return x.index_select(0, index) * random.random()

    act, outside = rote.graph(picked, keep=True), _states()
    x, right, wrong = torch.ones(4), torch.tensor([1]), torch.tensor([9])
    try:
        random.seed(5)
        for call in range(40):
            index, begun = wrong if call % 7 == 6 else right, _states()
            found = []
            for one in (picked, act):
                _set(begun)
                try:
                    found.append(one(x, index).item())
                except (IndexError, RuntimeError) as error:
                    found.append(type(error))
                found.append(repr(_states()))
            assert found[:2] == found[2:], call
    finally:
        _set(outside)
    assert act.report().replayed >= 20


def _in_place(s: Any, call: int) -> None:
    s.rows[call % 20] = call


def _anew(s: Any, call: int) -> None:
    s.rows = s.rows + np.float32(call)


def _in_turn(s: Any, call: int) -> None:
    s.rows[0] = call % 2


def _longer(s: Any, call: int) -> None:
    s.rows = np.concatenate([s.rows, s.rows[-1:] + np.float32(1)]) if call % 12 == 11 else s.rows * 2


def _another_type(s: Any, call: int) -> None:
    s.rows = s.rows.astype([np.float32, np.float64][call // 20 % 2]) + 1


def _rows(s: Any, x: Tensor) -> Tensor:
    return torch.as_tensor(s.rows[np.random.randint(0, 20, 4)], dtype=x.dtype, device=x.device).sum(0) * x


def _rows_and_all(s: Any, x: Tensor) -> Tensor:
    return _rows(s, x) + float(s.rows.sum()) + s.rows.shape[0]


def _rows_and_a_look(s: Any, x: Tensor) -> Tensor:
    return _rows(s, x) + s.rows.tolist()[3][0]


def _fills_a_row(s: Any, x: Tensor) -> Tensor:
    s.rows[int(s.places[0])] = 2.0
    s.places = np.roll(s.places, 1)
    return _rows(s, x)


def _keeps_rows(s: Any, x: Tensor) -> Tensor:
    s.last = float(s.rows[np.random.randint(0, 20, 4)].max())
    return x * s.last


@pytest.mark.parametrize("between", [_in_place, _anew, _in_turn, _longer, _another_type])
@pytest.mark.parametrize("program", [_rows, _rows_and_all, _rows_and_a_look, _fills_a_row, _keeps_rows])
def test_rows_of_what_others_fill(
    program: Callable[[Any, Tensor], Any], between: Callable[[Any, int], None], device: torch.device
) -> None:
    plain, graphed = (_state(device) for _ in range(2))
    act, outside = rote.graph(lambda x: program(graphed, x), keep=True), _states()
    try:
        np.random.seed(5)
        for call in range(CALLS):
            x, begun = torch.full((3,), float(call), device=device), _states()
            expected, left = program(plain, x), _states()
            _set(begun)
            assert torch.equal(act(x), expected), call
            assert repr(_states()) == repr(left) and plain.last == graphed.last, call
            assert np.array_equal(plain.rows, graphed.rows) and plain.rows.dtype == graphed.rows.dtype
            for each in (plain, graphed):
                between(each, call)
    finally:
        _set(outside)
    if program in (_rows, _rows_and_all, _keeps_rows) and between in (_in_place, _anew):
        assert act.report().replayed >= CALLS // 4, act.explain()
