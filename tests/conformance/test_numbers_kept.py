"""Numbers that change, in all that Python keeps them in: random programs read, write and move them."""

from __future__ import annotations

import array
import collections
import enum
import math
import random
import struct
import warnings
from operator import is_
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import rote

CALLS = 26
TABLE = np.linspace(0, 1, 4)


class Kind(enum.Enum):
    LOSS = 1
    STEPS = 2


class Slotted:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 1


def _state() -> Any:
    class Model:
        steps = 0
        rate = 1.5

    class Sub(Model):
        pass

    return SimpleNamespace(
        n=1, rate=0.5, d={"n": 1, "m": 2.0}, counter=collections.Counter(n=1), slots=Slotted(), log=[],
        missing=collections.defaultdict(int), ordered=collections.OrderedDict(n=1, m=0.5), items=[1, 2.5, 3],
        last=collections.deque([1.0, 2.0, 3.0], maxlen=3), free=collections.deque([1, 2]), model=Model(),
        enums={Kind.LOSS: 1.0, Kind.STEPS: 0}, sub=Sub(), Model=Model, Sub=Sub, nested={"a": {"b": [1, 2]}},
        stats=collections.defaultdict(lambda: collections.deque(maxlen=2)), raw=array.array("d", [1.0, 2.0]),
        rng=random.Random(3), numpys=np.random.default_rng(3), legacy=np.random.RandomState(3),
        pairs={(0, "a"): 1}, wide=np.float64(0.5), narrow=np.float32(0.5), whole=np.int64(2),
    )  # fmt: skip


NUMBERS = (
    "x.sum().item()", "[1.0, 2.0, 3.0][int(s.n) % 3]", "TABLE[int(s.n) % 4]", "s.items[int(s.n) % 3]",
    "s.pairs[0, 'a']", "(s.n if s.rate > 0.3 else s.d['n'])", "float(x[0])", "len(s.d)",
    "list(s.d)[0].count('n')", "s.items.index(s.items[-1])", "s.n", "s.rate", "s.d['n']", "s.d.get('m', 3)",
    "s.counter['n']", "s.counter['none']", "s.missing['n']", "s.ordered['m']", "s.last[0]", "s.last[-1]",
    "s.free[1]", "s.items[-1]", "s.enums[Kind.LOSS]", "s.model.steps", "s.Model.rate", "s.sub.steps",
    "s.slots.n", "s.nested['a']['b'][0]", "sum(s.last)", "max(s.items)", "len(s.free)", "sum(s.d.values())",
    "min(s.last)", "s.raw[0]", "getattr(s, 'n')", "vars(s)['rate']", "next(iter(s.items))",
    "sorted(s.last)[0]", "list(s.free)[0]", "dict(s.d)['n']", "{**s.ordered}['n']",
    "[v for v in s.last][1]", "(lambda *a: a[0])(*s.items)", "s.items[:][0]", "s.rng.random()",
    "s.rng.uniform(0.5, 1.5)", "s.rng.gauss(0, 1)", "s.rng.choice([1.0, 2.0])", "s.numpys.random()",
    "s.numpys.normal()", "s.legacy.rand()", "('n' in s.d) * 2", "math.sqrt(abs(s.n))",
    "s.log[-1] if s.log else 1", "(0.0 if s.n % 2 else -0.0)",
)  # fmt: skip
"""How programs come to a number."""
WRITES = (
    "s.pairs[0, 'a'] += 1", "if {n} > 1: s.n += 1", "if {n} < 2: s.last.append({n})",
    "s.free.append({n}); s.free.popleft()", "if s.n % 3: s.d['n'] = {n}",
    "for k in s.d: s.d[k] = s.d[k] + 1", "s.items = [v * 0.5 for v in s.items]", "del s.items[0]",
    "s.items.insert(1, {n})", "s.last[0], s.last[1] = s.last[1], {n}", "s.d['t'] = {n}; del s.d['t']",
    "s.free[0] = {n}", "s.items += [{n}]", "s.ordered.popitem(last=False)", "s.items.sort(key=float)",
    "s.free.extend([{n}, 1])", "s.free.clear(); s.free.extend([{n}, 2, 3])", "s.n += 1", "s.rate *= 0.9",
    "s.d['n'] += 1", "s.d.update(m={n})", "s.d |= {{'n': {n}}}", "s.d['new'] = {n}",
    "s.d['n'] = s.d.pop('n') + 1", "s.counter['n'] += 1", "s.counter.update(n=2)", "s.missing['n'] += 1",
    "s.ordered['n'] = {n}", "s.ordered.move_to_end('n')", "s.last.append({n})", "s.last.appendleft({n})",
    "s.last.rotate(1)", "s.last[1] = {n}", "s.free.append(s.free.popleft() + 1)", "s.items[0] = {n}",
    "s.items.append(s.items.pop(0))", "s.items.reverse()", "s.items[:] = [3, 1, {n}]",
    "s.enums[Kind.STEPS] += 1", "s.Model.steps += 1", "s.Sub.steps += 1", "type(s.model).rate = {n}",
    "s.slots.n += 1", "s.nested['a']['b'][1] = {n}", "s.nested['a']['b'].append({n})", "s.log.append({n})",
    "s.stats['loss'].append({n})", "s.raw[1] = s.raw[1] + 1", "vars(s).update(n={n})",
    "setattr(s, 'rate', {n})", "del s.d['m']", "s.d.setdefault('m', {n})", "s.pair = ({n}, {n})",
    "s.new = SimpleNamespace(n={n})", "s.d.clear()", "s.d.setdefault('n', 1)", "s.model.steps = {n}",
)  # fmt: skip
"""How they leave one behind."""
FROM_OUTSIDE = (
    "s.n = 7", "s.rate = 3", "s.d['n'] = 2.5", "s.d.pop('m', None)", "s.counter.clear()",
    "s.last.append(9.0)", "s.last.clear(); s.last.extend([1.0, -0.0, 5.0])", "s.free.extend([4])",
    "s.items[0] = 8", "s.items.append(2)", "s.Model.steps = 50", "s.Sub.steps = 4",
    "del s.enums[Kind.LOSS]; s.enums[Kind.LOSS] = 2", "s.slots.n = 1.5", "s.nested['a'] = {'b': [5, 6]}",
    "s.rng.random()", "s.rng = random.Random(9)", "s.numpys.random()", "s.legacy.seed(5)", "s.rng.seed(4)",
    "s.ordered.move_to_end('n')", "s.model = s.Sub()", "s.missing = collections.defaultdict(lambda: 7)",
    "s.Model.rate = -0.0", "s.rate = True", "s.d['n'] = None", "s.items[:] = [1.5]", "s.raw[0] = 4.0",
    "s.last = collections.deque([2.0, 2.0, 2.0], maxlen=3)",
)  # fmt: skip
"""What somebody else does to the state between two calls."""


@st.composite
def programs(draw: Any) -> tuple[str, list[tuple[int, str]]]:
    """A program, and what happens to its state before which call."""
    number = st.sampled_from(NUMBERS)
    lines = draw(st.lists(st.tuples(st.sampled_from(WRITES), number), min_size=1, max_size=4))
    parts = draw(st.lists(number, min_size=1, max_size=3))
    place = draw(st.integers(0, len(lines)))
    body = [write.format(n=each) for write, each in lines]
    body.insert(place, f"y = x * ({' + '.join(parts)})")
    text = "def program(s, x):\n    " + "\n    ".join([*body, "return y"])
    disturbed = st.lists(st.tuples(st.integers(4, CALLS), st.sampled_from(FROM_OUTSIDE)), max_size=2)
    return text, draw(disturbed)


def _told(value: Any) -> Any:
    """A value to the bit, with its types, and what it holds."""
    if isinstance(value, (float, np.generic)):
        return type(value), struct.pack("d", value)
    if isinstance(value, dict):
        return type(value), [(key, _told(each)) for key, each in value.items()]
    if isinstance(value, (list, tuple, collections.deque)):
        return type(value), [_told(each) for each in value]
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, (np.random.Generator, np.random.RandomState)):
        state = value.get_state() if isinstance(value, np.random.RandomState) else value.bit_generator.state
        return repr(state)
    if isinstance(value, type):
        return [(name, _told(each)) for name, each in vars(value).items() if isinstance(each, (int, float))]
    if isinstance(value, Slotted):
        return _told(value.n) if hasattr(value, "n") else None
    if isinstance(value, SimpleNamespace) or hasattr(value, "steps"):
        return _told(vars(value))
    return type(value), repr(value)


def _called(function: Any, *args: Any) -> Any:
    try:
        found = function(*args)
    except Exception as error:
        return type(error), str(error)
    return found.dtype, found.numpy().tobytes()


def play(text: str, disturbed: list[tuple[int, str]]) -> int:
    """Call a program plain and graphed; how many calls were replayed."""
    scope: dict[str, Any] = dict(globals())
    exec(compile(text, "<program>", "exec"), scope)
    program, plain, graphed = scope["program"], _state(), _state()

    def run(x: Tensor) -> Tensor:
        return program(graphed, x)

    act = rote.graph(run, keep=True)
    for call in range(CALLS):
        for each in (plain, graphed):
            for _, line in [one for one in disturbed if one[0] == call]:
                try:
                    exec(line, scope, {"s": each})
                except Exception as error:
                    assert each is plain or type(error)
        x = torch.full((3,), math.sin(call))
        assert _called(program, plain, x) == _called(act, x), (call, text, disturbed)
        assert _told(plain) == _told(graphed), (call, text, disturbed)
    return act.report().replayed


REPLAYED = (
    "s.counter['n'] += 1; y = x * s.counter['n']",
    "s.counter.update(n=2); y = x * s.counter['n']",
    "s.missing['k'] += 1; y = x * s.missing['k']",
    "s.ordered['n'] += 1; y = x * s.ordered['n']",
    "s.last.rotate(1); y = x * s.last[0]",
    "s.last[0] += 1; y = x * s.last[0]",
    "s.free.append(s.free.popleft() + 1); y = x * s.free[-1]",
    "s.last.append(s.last[-1] + 1); y = x * (sum(s.last) / len(s.last))",
    "s.items.append(s.items.pop(0) + 1); y = x * max(s.items)",
    "s.d.update(n=s.d['n'] + 1); y = x * s.d['n']",
    "s.d |= {'n': s.d['n'] + 1}; y = x * s.d['n']",
    "s.d['n'] = s.d.pop('n') + 1; y = x * s.d['n']",
    "s.enums[Kind.STEPS] += 1; y = x * s.enums[Kind.STEPS]",
    "s.Model.steps += 1; y = x * s.model.steps + s.sub.steps",
    "type(s.sub).steps += 1; y = x * s.sub.steps - s.model.steps",
    "vars(s)['n'] += 1; y = x * s.n",
    "s.n += 1; s.stats['loss'].append(s.n); y = x * s.n",
    "y = x * s.rng.random() + s.rng.gauss(0, 1)",
    "y = x * 2 if s.rng.random() < 0.5 else x + s.rng.choice([1, 2, 3])",
    "y = x * s.numpys.normal() + s.numpys.integers(0, 9)",
    "y = x * s.legacy.uniform(0, 2)",
    "s.wide *= 0.9; y = x * s.wide",
    "s.narrow = s.narrow * np.float32(0.9); y = x * s.narrow",
    "s.whole += 1; y = x * s.whole.item()",
    "s.n += 1; y = x * (0.5 * (1 + np.cos(np.pi * s.n / 100)))",
    "s.n += 1; y = x * np.interp(s.n, [0, 10, 50], [0.0, 1.0, 0.1])",
    "s.n += 1; y = x * np.clip(s.n / 10, 0.0, 1.0)",
    "s.n += 1; s.last.append(s.n); y = x * np.mean(s.last)",
    "s.n += 1; y = x * math.comb(s.n, 2)",
)  # fmt: skip


@pytest.mark.parametrize("line", REPLAYED)
def test_it_is_replayed(line: str) -> None:
    assert play(f"def program(s, x):\n    {line}\n    return y", []) >= CALLS // 3


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.int32])
def test_scalars_of_numpy_are_arguments(kind: Any) -> None:
    act = rote.graph(lambda x, scale: (x * scale, scale + kind(1)), keep=True)
    for call in range(CALLS):
        x, scale = torch.full((3,), 0.5), kind(call * 3)
        result, more = act(x, scale)
        assert torch.equal(result, x * scale)
        assert (type(more), more) == (kind, scale + kind(1))
    assert act.report().replayed >= CALLS // 3


@pytest.mark.parametrize("behaviour", ["ignore", "warn", "raise"])
def test_numpy_warns_as_it_does_in_a_plain_call(behaviour: Any) -> None:
    def program(state: Any, x: Tensor) -> Tensor:
        state.n += 1
        state.value = np.float32(1e38) * np.float32(state.n % 7)
        return x * state.value

    plain, graphed = SimpleNamespace(n=0), SimpleNamespace(n=0)
    act = rote.graph(lambda x: program(graphed, x), keep=True)
    for _ in range(CALLS):
        with warnings.catch_warnings(record=True) as caught, np.errstate(all=behaviour):
            warnings.simplefilter("always")
            found, count = _called(program, plain, torch.ones(2)), len(caught)
            assert _called(act, torch.ones(2)) == found
            assert len(caught) == 2 * count
        assert vars(plain) == vars(graphed)


def test_the_copies_that_stand_for_numbers_are_gone_after_a_call() -> None:
    state = _state()
    numbers = [500 + each for each in range(3)]
    state.d.update(n=numbers[0])
    state.items[0], state.n = numbers[1], numbers[2]
    act = rote.graph(lambda x: x * state.d["n"] + state.items[0] - state.n + state.rate, keep=True)
    for call in range(12):
        state.rate = call * 0.5
        kept = [state.d["n"], state.items[0], state.n, state.rate]
        act(torch.ones(2))
        assert all(map(is_, kept, [state.d["n"], state.items[0], state.n, state.rate]))


def test_a_call_that_raises_leaves_the_numbers_of_its_state() -> None:
    state = SimpleNamespace(n=0)

    def run(x: Tensor) -> Tensor:
        state.n += 1
        y = x * state.n
        if state.n % 5 == 4:
            raise ValueError(state.n)
        return y

    act = rote.graph(run, keep=True)
    for call in range(1, 30):
        if call % 5 == 4:
            with pytest.raises(ValueError, match=str(call)):
                act(torch.ones(2))
        else:
            assert act(torch.ones(2)).tolist() == [call, call]
        assert state.n == call


@settings(max_examples=20, deadline=None, derandomize=True)
@given(programs())
def test_a_program_leaves_what_it_leaves(scene: tuple[str, list[tuple[int, str]]]) -> None:
    play(*scene)
