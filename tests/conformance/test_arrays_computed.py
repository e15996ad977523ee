"""What numpy computes from arrays among the arguments, of tensors, or drawn: replays compute it again."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import rote

CALLS = 40
Program = Callable[[Any, Any], Any]


def normalized(s: Any, obs: Any) -> Any:
    return torch.from_numpy((obs - s.mean) / s.std).to(s.device) @ s.weight


def in_single_precision(s: Any, obs: Any) -> Any:
    obs = ((obs - s.mean) / s.std).astype(np.float32)
    return torch.as_tensor(obs, device=s.device) @ s.weight.float()


def clipped(s: Any, obs: Any) -> Any:
    return torch.as_tensor(np.clip(obs, -0.5, 0.5), dtype=torch.float32, device=s.device) * 2


def joined(s: Any, obs: Any) -> Any:
    return torch.tensor(np.concatenate([obs, s.mean, obs[:1]]), device=s.device) + 1


def stacked(s: Any, obs: Any) -> Any:
    return torch.from_numpy(np.stack([obs, obs * 2], axis=1)).to(s.device).sum(0)


def by_method(s: Any, obs: Any) -> Any:
    return torch.from_numpy(obs.reshape(1, -1).clip(-0.5, 0.5).copy()).to(s.device) @ s.weight


def a_number_of_it(s: Any, obs: Any) -> Any:
    return torch.from_numpy(obs).to(s.device) * float(obs.max() - obs.min())


def a_branch(s: Any, obs: Any) -> Any:
    scaled = torch.from_numpy(obs * 2).to(s.device)
    return scaled + 1 if obs.sum() > 0 else scaled


def a_branch_on_all(s: Any, obs: Any) -> Any:
    scale = obs[:1].item() if (obs > -0.9).all() else 2
    return torch.from_numpy(obs + 1).to(s.device) * scale


def padded(s: Any, obs: Any) -> Any:
    whole = np.concatenate([obs, np.zeros(2)])
    return torch.from_numpy(whole).to(s.device) * 2


def a_step(s: Any, obs: Any) -> Any:
    s.step += 1
    return torch.from_numpy(obs * s.step).to(s.device)


def drawn_indices(s: Any, obs: Any) -> Any:
    chosen = s.rng.integers(0, 8, size=3)
    return s.memory[chosen] * torch.from_numpy(obs).to(s.device)[0], s.memory[(chosen + 1) % 8]


def an_order(s: Any, obs: Any) -> Any:
    return s.memory[torch.from_numpy(s.rng.permutation(8)[:3]).to(s.device)].sum(0) + obs.size


def noise(s: Any, obs: Any) -> Any:
    return torch.as_tensor(obs + s.rng.normal(size=3), device=s.device) * 2


def _action(s: Any, obs: Any) -> Any:
    return (torch.as_tensor(obs, device=s.device) @ s.weight).cpu().numpy()


def a_clipped_action(s: Any, obs: Any) -> Any:
    return _action(s, obs).clip(-1, 1)


def a_scaled_action(s: Any, obs: Any) -> Any:
    return {"action": _action(s, (obs - s.mean) / s.std) * s.std + s.mean, "steps": obs.size}


def a_number_of_an_action(s: Any, obs: Any) -> Any:
    action = _action(s, obs)
    return action[0], float(action.sum()), action.shape


def an_action_and_more(s: Any, obs: Any) -> Any:
    action = _action(s, obs)
    return action * 2, action, action * 2, obs + 1


def a_kept_action(s: Any, obs: Any) -> Any:
    s.last = np.tanh(_action(s, obs))
    return torch.as_tensor(obs, device=s.device) + 1


def what_is_drawn(s: Any, obs: Any) -> Any:
    chosen = s.rng.integers(0, 8, size=3)
    return s.memory[chosen], chosen, torch.as_tensor(obs, device=s.device) * 2


def kept(s: Any, obs: Any) -> Any:
    s.last = obs * 2
    return torch.from_numpy(s.last).to(s.device) + 1


def averaged(s: Any, obs: Any) -> Any:
    s.mean = 0.9 * s.mean + 0.1 * obs
    return torch.from_numpy(obs - s.mean).to(s.device)


def smoothed(s: Any, obs: Any) -> Any:
    s.mean = 0.9 * s.mean + 0.1 * _action(s, obs)
    return s.mean


def normalized_by_what_came(s: Any, obs: Any) -> Any:
    s.step += 1
    delta = obs - s.mean
    s.mean = s.mean + delta / s.step
    s.std = s.std + delta * (obs - s.mean)
    return torch.as_tensor(delta / np.sqrt(s.std / s.step + 1e-8), device=s.device) * 2


def an_action_twice(s: Any, obs: Any) -> Any:
    action = _action(s, obs) * 2
    return action, action


def logged(s: Any, obs: Any) -> Any:
    s.history.append(obs * 2)
    s.history.append(_action(s, obs).copy())
    return torch.as_tensor(obs, device=s.device) + 1


def each_number(s: Any, obs: Any) -> Any:
    found = torch.zeros(3, dtype=torch.float64, device=s.device)
    for row, weight in enumerate(obs * 2):
        found = found + s.weight[row] * float(weight)
    return found


def numbers_of_state(s: Any, obs: Any) -> Any:
    s.mean = s.mean * 0.9 + 0.1 * obs
    shares = {f"share {index}": each for index, each in enumerate(s.mean)}
    return torch.as_tensor(obs, device=s.device) * sum(float(each) for each in s.mean), shares


def numbers_in_a_list(s: Any, obs: Any) -> Any:
    s.mean = s.mean * 0.9 + 0.1 * obs
    return torch.tensor(s.mean.tolist(), device=s.device), list(s.mean), tuple(s.mean.tolist())


def an_array_of_numbers(s: Any, obs: Any) -> Any:
    s.step += 1
    found = torch.as_tensor(obs, device=s.device) * 2
    return found, np.array([s.step, 2 * s.step]), np.array([s.step * 0.5, 1.0])


REPLAYED = (
    logged, kept, averaged, smoothed, normalized_by_what_came, an_action_twice, a_clipped_action,
    a_scaled_action, a_number_of_an_action, an_action_and_more, a_kept_action, what_is_drawn,
    normalized, in_single_precision, clipped, joined, stacked, by_method, a_number_of_it, a_branch,
    a_branch_on_all, padded, a_step, drawn_indices, an_order, noise,
    each_number, numbers_of_state, numbers_in_a_list, an_array_of_numbers,
)  # fmt: skip


def written(s: Any, obs: Any) -> Any:
    obs -= s.mean
    return torch.from_numpy(obs / s.std).to(s.device)


def decided_behind_a_write(s: Any, obs: Any) -> Any:
    tensor = torch.from_numpy(obs)
    if s.device.type == "cpu":
        tensor.mul_(-2)
    scale = 3 if obs.sum() > -1 else 2
    return torch.as_tensor(obs, device=s.device) * scale


def written_by_index(s: Any, obs: Any) -> Any:
    found = obs * 2
    found[0] = 7
    return torch.from_numpy(found).to(s.device)


def written_through_a_view(s: Any, obs: Any) -> Any:
    found = obs * 2
    part = found[1:]
    part[:] = 5
    return torch.from_numpy(found).to(s.device)


def written_after(s: Any, obs: Any) -> Any:
    found = obs * 2
    tensor = torch.from_numpy(found)
    found += 1
    return tensor.to(s.device) * 2


def written_by_the_tensor(s: Any, obs: Any) -> Any:
    found = obs * 2
    torch.from_numpy(found).add_(1)
    return torch.from_numpy(found + 1).to(s.device)


def shaped(s: Any, obs: Any) -> Any:
    tensor = torch.from_numpy(obs + 1).to(s.device)
    obs.shape = (3, 1)
    return tensor


def filled(s: Any, obs: Any) -> Any:
    found = np.empty(3)
    np.multiply(obs, 2, out=found)
    return torch.from_numpy(found).to(s.device)


def filled_by_place(s: Any, obs: Any) -> Any:
    np.add(obs, 1, s.buffer)
    return torch.from_numpy(obs.clip(0, 1, s.buffer) + np.mean([obs], 0)).to(s.device)


def copied_into(s: Any, obs: Any) -> Any:
    found = np.zeros(3)
    found[:] = obs
    np.copyto(s.buffer, obs)
    return torch.from_numpy(found + s.buffer).to(s.device)


def turned(s: Any, obs: Any) -> Any:
    return torch.from_numpy((obs.reshape(3, 1).T * 2).copy()).to(s.device)


def listed(s: Any, obs: Any) -> Any:
    return torch.tensor((obs * 2).tolist(), device=s.device) + sum(float(each) for each in obs)


def of_a_library(s: Any, obs: Any) -> Any:
    return torch.from_numpy(obs / np.linalg.norm(obs)).to(s.device)


def in_a_table(s: Any, obs: Any) -> Any:
    return torch.from_numpy(s.table[(obs * 2 + 3).astype(int)]).to(s.device)


def by_mask(s: Any, obs: Any) -> Any:
    return torch.from_numpy(obs[obs > 0]).to(s.device).sum()


def undefined(s: Any, obs: Any) -> Any:
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.log(obs)).to(s.device)


def an_action_written_later(s: Any, obs: Any) -> Any:
    tensor = torch.as_tensor(obs, device=s.device) * 2
    action = tensor.cpu().numpy()
    doubled = action * 2
    tensor.add_(1)
    return doubled, tensor


def an_action_fed_back(s: Any, obs: Any) -> Any:
    return torch.from_numpy(_action(s, obs) * 2).to(s.device) + 1


def an_action_that_decides(s: Any, obs: Any) -> Any:
    action = _action(s, obs)
    return action * 2 if action[0] > 0 else action


def parts_of_an_action(s: Any, obs: Any) -> Any:
    action = _action(s, obs) * 2
    return action, action[1:]


def averaged_in_place(s: Any, obs: Any) -> Any:
    s.mean *= 0.9
    s.mean += 0.1 * obs
    return torch.from_numpy(obs - s.mean).to(s.device)


def kept_and_returned_in_part(s: Any, obs: Any) -> Any:
    s.last = obs * 2
    return s.last[1:], torch.from_numpy(obs).to(s.device) + 1


def moved_on(s: Any, obs: Any) -> Any:
    s.last, s.mean = s.mean, obs * 2
    return torch.from_numpy(obs + s.last).to(s.device)


def the_argument_is_kept(s: Any, obs: Any) -> Any:
    s.mean, last = obs, s.mean
    return torch.from_numpy(obs + last).to(s.device)


def an_action_and_its_tensor(s: Any, obs: Any) -> Any:
    action = _action(s, obs) * 2
    return action, torch.from_numpy(action)


def an_action_in_place(s: Any, obs: Any) -> Any:
    action = _action(s, obs)
    action *= 2
    return action


def an_action_of_an_argument(s: Any, obs: Any) -> Any:
    return torch.from_numpy(obs).numpy() * 2, torch.as_tensor(obs, device=s.device) + 1


def an_action_of_state(s: Any, obs: Any) -> Any:
    return s.weight.cpu().numpy() * 2 + obs, torch.as_tensor(obs, device=s.device) + 1


def an_array_behind_a_read(s: Any, obs: Any) -> Any:
    tensor = torch.from_numpy(obs * 2).to(s.device)
    if tensor.sum().item() > 0:
        return tensor + 1
    return obs * 3, np.zeros(2), s.mean


def a_constant_beside_it(s: Any, obs: Any) -> Any:
    return torch.from_numpy(obs * 2).to(s.device), np.zeros(2)


def drawn_behind_a_read(s: Any, obs: Any) -> Any:
    scale = s.rng.random()
    if torch.as_tensor(obs, device=s.device).sum().item() > 0:
        return obs * scale
    return s.rng.random(3)


def an_action_behind_a_read(s: Any, obs: Any) -> Any:
    tensor = torch.as_tensor(obs, device=s.device)
    if tensor.sum().item() > 0:
        return tensor.cpu().numpy() * 2
    return (tensor + 1).cpu().numpy() + (tensor + 2).cpu().numpy()


OTHERS = (
    an_action_written_later, an_action_fed_back, an_action_that_decides, parts_of_an_action,
    averaged_in_place, kept_and_returned_in_part, moved_on, the_argument_is_kept,
    an_action_and_its_tensor, an_action_in_place, an_action_of_an_argument, an_action_of_state,
    an_action_behind_a_read, an_array_behind_a_read, a_constant_beside_it, drawn_behind_a_read,
    written, decided_behind_a_write, written_by_index, written_through_a_view, written_after,
    written_by_the_tensor, filled, filled_by_place, shaped, copied_into, turned, listed,
    of_a_library, in_a_table, by_mask, undefined,
)  # fmt: skip


def _state(device: torch.device) -> Any:
    weight = torch.arange(9.0, dtype=torch.float64, device=device).reshape(3, 3)
    return SimpleNamespace(
        mean=np.arange(3.0), std=np.arange(3.0) + 1, weight=weight, device=device, step=0, buffer=np.ones(3),
        rng=np.random.default_rng(5), memory=torch.arange(16.0, device=device).reshape(8, 2),
        last=None, history=[], table=np.arange(8.0),
    )  # fmt: skip


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return list(one) == list(other) and _same(tuple(one.values()), tuple(other.values()))
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one.nan_to_num(9.0), other.nan_to_num(9.0))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return repr(one) == repr(other)


def _spoil(value: Any) -> None:
    """Write to all arrays and tensors in a result, as their owner may."""
    if isinstance(value, tuple):
        for each in value:
            _spoil(each)
    elif isinstance(value, dict):
        _spoil(tuple(value.values()))
    elif isinstance(value, (np.ndarray, torch.Tensor)):
        value += 1


def _same_state(one: Any, other: Any) -> bool:
    arrays = all(
        [_same(getattr(one, name), getattr(other, name)) for name in ("mean", "std", "buffer", "last")]
    )
    arrays = arrays and _same(tuple(one.history), tuple(other.history))
    return arrays and one.step == other.step and one.rng.bit_generator.state == other.rng.bit_generator.state


def _run(program: Program, device: torch.device, *, calls: int = CALLS, seed: int = 3) -> int:
    """Call a program plain and graphed; how many of the calls were replayed."""
    plain, graphed, dice = _state(device), _state(device), random.Random(seed)
    act = rote.graph(lambda obs: program(graphed, obs), keep=True)
    for call in range(calls):
        obs = np.array([dice.uniform(-1, 1) for _ in range(3)])
        given = obs.copy()
        expected, found = program(plain, obs), act(given)
        assert _same(found, expected), call
        assert _same(given, obs) and _same_state(plain, graphed), call
        for each in (expected, found):
            _spoil(each)
        assert _same(found, expected) and _same(given, obs) and _same_state(plain, graphed), call
    return act.report().replayed


@pytest.mark.parametrize("program", REPLAYED, ids=lambda each: each.__name__)
def test_it_is_replayed(program: Program, device: torch.device) -> None:
    assert _run(program, device) >= CALLS // 2


@pytest.mark.filterwarnings("ignore:Setting the shape")
@pytest.mark.parametrize("program", OTHERS, ids=lambda each: each.__name__)
def test_it_is_right(program: Program, device: torch.device) -> None:
    _run(program, device)


def test_what_it_is_computed_with_changes(device: torch.device) -> None:
    state = _state(device)
    act, dice = rote.graph(lambda obs: normalized(state, obs), keep=True), random.Random(2)
    for call in range(60):
        if call % 20 == 10:
            state.mean[1] += 1
        if call % 20 == 15:
            state.std = state.std * 2
        obs = np.array([dice.uniform(-1, 1) for _ in range(3)])
        assert _same(act(obs), normalized(state, obs)), call
    assert act.report().replayed >= 20


def test_other_forms(device: torch.device) -> None:
    state = _state(device)
    act, dice = rote.graph(lambda obs: clipped(state, obs), keep=True), random.Random(2)
    for call in range(80):
        numbers = [dice.uniform(-1, 1) for _ in range(12)]
        whole = np.array(numbers, dtype=dice.choice([np.float64, np.float32]))
        obs = dice.choice([lambda whole=whole: whole[:3], lambda whole=whole: whole[:6:2]])()
        assert _same(act(obs), clipped(state, obs)), call
    assert act.report().replayed >= 20


Step = Callable[[random.Random], Callable[[Any, list[Any]], Any]]
"""Makes what computes an array, or changes one, from the arrays that there are."""


def _with(make: Callable[[Any, Any, Any], Any]) -> Step:
    def step(dice: random.Random) -> Callable[[Any, list[Any]], Any]:
        one, other, number = dice.random(), dice.random(), dice.choice([0.5, 2, -1.0])

        def run(s: Any, arrays: list[Any]) -> Any:
            pick = [arrays[int(each * len(arrays))] for each in (one, other)]
            return make(pick[0], pick[1], number)

        return run

    return step


def _set(array: Any, key: Any, value: Any) -> None:
    array[key] = value


def _add(array: Any, value: Any) -> None:
    if array.dtype.kind == "f":
        array += value


def _writes_ahead(array: Any, number: float) -> None:
    for index, value in enumerate(array):
        _set(array, (index + 1) % len(array), value * number)


def _first_above(array: Any, number: float) -> Any:
    for value, following in zip(array, array[1:] * 1, strict=False):
        if value > number / 4:
            return np.array([value, following, number])
    return array + number


def _by_turns(array: Any, other: Any) -> Any:
    pairs = zip(array, other, strict=True)
    first = next(pairs)
    return np.array([first[0], *[one * two for one, two in pairs]])


def _unpacked(array: Any, number: float) -> Any:
    first, *others = array
    return np.array([first * number, *others])


STEPS: tuple[Step, ...] = tuple(
    map(
        _with,
        (
            lambda a, b, n: a + n,
            lambda a, b, n: a * b,
            lambda a, b, n: n - a,
            lambda a, b, n: -a,
            lambda a, b, n: np.tanh(a),
            lambda a, b, n: np.maximum(a, n),
            lambda a, b, n: np.where(a > 0, a, b),
            lambda a, b, n: a.clip(-1, 1),
            lambda a, b, n: a.astype(np.float32).astype(np.float64),
            lambda a, b, n: a[::-1],
            lambda a, b, n: a.copy(),
            lambda a, b, n: np.asarray(a),
            lambda a, b, n: a.reshape(-1, 1).T[0],
            lambda a, b, n: np.concatenate([a, b])[1:4],
            lambda a, b, n: a - a.mean(),
            lambda a, b, n: a * float(b[0]),
            lambda a, b, n: np.cumsum(a, axis=0),
            lambda a, b, n: np.stack((a, b)).sum(axis=0),
            lambda a, b, n: _set(a, 0, n),
            lambda a, b, n: _set(a, slice(1, None), b[1:]),
            lambda a, b, n: _add(a, n),
            lambda a, b, n: torch.from_numpy(a).mul_(n) if n == 2 and a.strides[0] > 0 else a + 1,
            lambda a, b, n: a if a[0] > 0.3 else b,
            lambda a, b, n: np.array([*a[:2], n]),
            lambda a, b, n: np.array(a.tolist()),
            lambda a, b, n: np.full(3, n),
            lambda a, b, n: np.array([each * n for each in a]),
            lambda a, b, n: np.array([one + two for one, two in zip(a, b, strict=True)]),
            lambda a, b, n: np.array(list(a)) + n,
            lambda a, b, n: a + sum(float(each) for each in b),
            lambda a, b, n: a * min(b.tolist()) - tuple(b)[1],
            lambda a, b, n: np.array([index * each for index, each in enumerate(a, 1)]),
            lambda a, b, n: a * dict(zip("xyz", b, strict=False))["y"],
            lambda a, b, n: np.array(sorted(a.tolist())) + len({*b}),
            lambda a, b, n: np.array([*reversed(a)]),
            lambda a, b, n: np.array([one - two for one in a for two in b])[:3],
            lambda a, b, n: np.array([each if each > 0 else n for each in map(float, a)]),
            lambda a, b, n: _writes_ahead(a, n),
            lambda a, b, n: _first_above(a, n),
            lambda a, b, n: _by_turns(a, b),
            lambda a, b, n: _unpacked(a, n),
        ),
    )
)


def _random_program(dice: random.Random) -> Program:
    steps = [dice.choice(STEPS)(dice) for _ in range(dice.randrange(1, 7))]
    after = [dice.choice(STEPS)(dice) for _ in range(dice.randrange(4))]
    between, gives, keeps = dice.randrange(8), dice.randrange(1, 3), dice.random() < 0.3

    def program(s: Any, obs: Any) -> Any:
        arrays, tensors = [obs, s.mean], list[Any]()
        for number, step in enumerate(steps):
            found = step(s, arrays)
            if isinstance(found, np.ndarray):
                arrays.append(found)
            if number == between:
                tensors.append(torch.from_numpy(np.ascontiguousarray(arrays[-1])).to(s.device) * 2)
        tensors.append(torch.as_tensor(np.ascontiguousarray(arrays[-1]), device=s.device) + 1)
        arrays.append(tensors[-1].cpu().numpy())
        for step in after:
            found = step(s, arrays)
            if isinstance(found, np.ndarray):
                arrays.append(found)
        if keeps:
            s.last, s.mean = arrays[-1], (arrays[-gives] * 0.5 + s.mean).clip(-9, 9)
        return *tensors, *arrays[-gives:]

    return program


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(160))
def test_random_programs(seed: int, device: torch.device) -> None:
    _run(_random_program(random.Random(seed)), device, calls=20, seed=seed)


def test_in_inference_mode(device):
    layer = torch.nn.Linear(3, 3).to(device)

    @torch.inference_mode()
    def act(observation):
        made = layer(torch.as_tensor(observation, dtype=torch.float32, device=device))
        return made.cpu().numpy().clip(-1, 1) * 2

    g = rote.graph(act, keep=True)
    for number in range(12):
        observation = np.arange(6.0).reshape(2, 3) - number
        np.testing.assert_array_equal(g(observation), act(observation))
    assert g.report().replayed >= 4, g.explain()


def test_a_tensor_of_inference_is_written_after_its_array_was_read(device):
    @torch.inference_mode()
    def act(x, more):
        made = (x * 2).cpu()
        array = made.numpy() * 2
        made.add_(more)
        return array

    g = rote.graph(act, keep=True)
    for number in range(12):
        x, more = torch.arange(4.0, device=device) + number, torch.tensor(max(0.0, number - 6.0))
        np.testing.assert_array_equal(g(x, more), act(x, more))
