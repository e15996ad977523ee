"""Functions with a cache: a call depends on what it was answered, and not on what else is remembered."""

from __future__ import annotations

import functools
import typing
from typing import NamedTuple

import pytest
import torch
from tests.conformance.keeping import KeptGraph

import rote

CALLS = 10


class Counted:
    """A table with a cache, and how often it was made."""

    def __init__(self, decorate, device):
        self.made = 0
        self.scale = 1.0

        def table(n, kind=torch.float32):
            self.made += 1
            return torch.arange(n, device=device, dtype=kind) * self.scale

        self.table = decorate(table)


DECORATORS = {
    "unlimited": functools.cache,
    "usual": functools.lru_cache,
    "limited": functools.lru_cache(maxsize=50),
    "typed": functools.lru_cache(maxsize=50, typed=True),
}


@pytest.mark.parametrize("name", DECORATORS)
def test_others_fill_it(device, name):
    """What is remembered under other keys is nobody's business."""
    tables = Counted(DECORATORS[name], device)
    g = rote.graph(lambda x: x + tables.table(x.shape[0]))
    for n in range(CALLS):
        tables.table(20 + n)
        x = torch.full((3,), float(n), device=device)
        assert torch.equal(g(x), x + torch.arange(3, device=device))
    assert g.report().replayed >= CALLS - 4, g.explain()


@pytest.mark.parametrize("name", DECORATORS)
def test_sizes_in_turns(device, name):
    tables = Counted(DECORATORS[name], device)
    g = rote.graph(lambda x: x + tables.table(x.shape[0], x.dtype))
    for n in range(3 * CALLS):
        x = torch.full((2 + n % 3,), float(n), device=device)
        assert torch.equal(g(x), x + torch.arange(2 + n % 3, device=device))
    assert tables.made == 3
    assert g.report().replayed >= 15, g.explain()


@pytest.mark.parametrize("name", DECORATORS)
def test_it_is_cleared(device, name):
    """And answers otherwise then."""
    tables = Counted(DECORATORS[name], device)
    g = rote.graph(lambda x: x + tables.table(x.shape[0]))
    for n in range(3 * CALLS):
        if n in (10, 20):
            tables.table.cache_clear()
            tables.scale = 1.0 + n
        x = torch.full((3,), float(n), device=device)
        assert torch.equal(g(x), x + torch.arange(3, device=device) * tables.scale)
    assert tables.made == 3
    assert g.report().replayed >= 12, g.explain()


def test_a_cache_that_is_full(device):
    """What is asked for goes last: a call that does not ask has something else forgotten."""
    for sizes in ((3, 4, 5), (3, 4, 3, 5)):
        ours, theirs = [Counted(functools.lru_cache(maxsize=2), device) for _ in range(2)]
        g = rote.graph(lambda x, tables=ours: x + tables.table(x.shape[0]))
        for n in range(4 * len(sizes)):
            x = torch.full((sizes[n % len(sizes)],), float(n), device=device)
            for tables in (ours, theirs):
                tables.table(30 if n % 5 == 4 else x.shape[0])
            assert torch.equal(g(x), x + theirs.table(x.shape[0]))
            assert ours.made == theirs.made


def test_arguments_that_are_equal(device):
    """1, 1.0 and True find the same result, whichever came first."""
    tables = Counted(functools.cache, device)
    keys = [2, 2.0, 1, True, 1.0]

    @functools.cache
    def scale(k):
        tables.made += 1
        return torch.ones((), device=device) * (3 if type(k) is float else 2 if type(k) is bool else 1)

    g = rote.graph(lambda x, k: x * scale(k))
    for n in range(40):
        x, k = torch.full((3,), float(n), device=device), keys[n % 5]
        assert torch.equal(g(x, k), x * scale(k))
    assert g.report().replayed >= 15, g.explain()


def test_a_method_with_a_cache(device):
    class Model(torch.nn.Module):
        def __init__(self, scale):
            super().__init__()
            self.scale = scale

        @functools.lru_cache  # noqa: B019
        def table(self, n, device, dtype):
            return torch.arange(n, device=device, dtype=dtype) * self.scale

        def forward(self, x):
            return x + self.table(x.shape[0], x.device, x.dtype)

    models = [Model(2.0), Model(3.0)]
    graphed = [rote.graph(m) for m in models]
    for n in range(CALLS):
        x = torch.full((3,), float(n), device=device)
        for g, m in zip(graphed, models, strict=True):
            assert torch.equal(g(x), m(x))
    assert min(g.report().replayed for g in graphed) >= CALLS - 5, graphed[0].explain()


def test_pairs_of_tensors(device):
    """As tables of rotary embeddings are."""

    @functools.lru_cache(maxsize=8)
    def table(n):
        angles = torch.arange(n, device=device) * 0.1
        return angles.cos(), [angles.sin()]

    def fn(x):
        cos, (sin,) = table(x.shape[-1])
        return x * cos + x.flip(-1) * sin

    g = rote.graph(fn)
    for n in range(2 * CALLS):
        x = torch.full((2, 3 + n % 2), float(n), device=device)
        assert torch.equal(g(x), fn(x))
        table(100 + n % 4)
    assert g.report().replayed >= CALLS, g.explain()


def test_a_tensor_that_is_looked_up(device, reason):
    """It is found by which tensor it is, and a recording computes with one of its own."""

    @functools.cache
    def double(x):
        return x * 2

    g = rote.graph(lambda x: x + double(x))
    for n in range(CALLS):
        x = torch.full((3,), float(n), device=device)
        assert torch.equal(g(x), x * 3)
    assert g.report().replayed == 0 and "looks args[0] up" in reason(g, "RT218").message


def test_a_cache_that_becomes_full(device):
    """A hit makes a result the one that was asked for last: which one goes for a new one depends on it."""

    def play(wrap):
        source = [2.0]

        @functools.lru_cache(maxsize=2)
        def found(n):
            return source[0] + n

        call = wrap(lambda x: x * found(1))
        for number in range(CALLS):
            if number == 5:
                source[0] = 4.0
                found(5)
            if number == 8:
                found(4)
            yield call(torch.ones(2, device=device)).tolist(), found.cache_info().currsize

    assert list(play(rote.graph)) == list(play(lambda function: function))


@pytest.mark.parametrize("name", DECORATORS)
def test_asked_by_position_and_by_keyword(device, name):
    """The links of a limited cache change their order with each answer."""
    tables = Counted(DECORATORS[name], device)
    g = rote.graph(lambda x: x + tables.table(3, torch.float32) + tables.table(3, kind=torch.float64))
    for n in range(CALLS):
        x = torch.full((3,), float(n), device=device)
        assert torch.equal(g(x), x + 2 * torch.arange(3, device=device, dtype=torch.float64))
    assert tables.made == 2
    assert g.report().replayed >= CALLS - 3, g.explain()


@pytest.mark.parametrize("name", DECORATORS)
def test_an_answer_to_keywords_is_forgotten(device, name):
    tables = Counted(DECORATORS[name], device)
    g = rote.graph(lambda x: x + tables.table(3, kind=torch.float32))
    for n in range(CALLS):
        if n == 6:
            tables.scale = 2.0
            tables.table.cache_clear()
            tables.table(3, torch.float32)
        x = torch.full((3,), float(n), device=device)
        assert torch.equal(g(x), x + torch.arange(3, device=device) * tables.scale)


class Compared:
    """Counts how often it is compared."""

    times = 0

    def __hash__(self):
        return 1

    def __eq__(self, other):
        Compared.times += 1
        return self is other


@pytest.mark.parametrize("full", [False, True])
def test_what_else_lies_in_a_cache_of_the_standard_library(device, full):
    """The result is what its function would give, whatever else is there and however it is compared."""
    for number in range(200 if full else 0):
        typing.Literal[Compared(), number]
    before = Compared.times
    g = rote.graph(lambda x: x * len(typing.Literal["one", "two", 3].__args__))
    for n in range(CALLS):
        x = torch.full((3,), float(n), device=device)
        assert torch.equal(g(x), x * 3)
    assert g.report().replayed == CALLS - 2, g.explain()
    assert Compared.times == before


class Size(NamedTuple):
    rows: int
    columns: int


class Recipe:
    """Found in a cache by its identity."""


RECIPE = Recipe()
SHAPED = {
    "a size": lambda table, x: table(x.shape),
    "a tuple": lambda table, x: table(tuple(x.shape)),
    "among others": lambda table, x: table((RECIPE, x.shape, (("axis", len(x)),)))[0:],
    "with a keyword": lambda table, x: table(shape=x.shape),
    "a size or a tuple": lambda table, x: table(x.shape if len(x) % 2 else tuple(x.shape)),
}


@pytest.mark.parametrize("decorator", ["usual", "typed"])
@pytest.mark.parametrize("way", SHAPED)
@pytest.mark.parametrize("change", ["nothing", "cleared", "in place", "others"])
def test_shapes_as_keys(device, decorator, way, change):
    """What is remembered for other shapes, and in which order, is nobody's business here, either."""
    scale = [1.0]

    def table(shape):
        size = shape[1] if isinstance(shape[0], Recipe) else shape
        return [size[0] * scale[0]]

    seen = []
    for graphs in (False, True):
        scale[0] = 1.0
        cached = DECORATORS[decorator](table)

        def program(x, cached=cached):
            return x * SHAPED[way](cached, x)[0]

        function, found = rote.graph(program) if graphs else program, []
        for n in range(30):
            if n == 20 and change == "cleared":
                scale[0] = 5.0
                cached.cache_clear()
            if n == 20 and change == "in place":
                SHAPED[way](cached, torch.ones(3, 2))[0] = 7.0
            if change == "others":
                cached((40 + n, 1))
            found.append(function(torch.full((2 + n % 3, 2), 1.0, device=device)).tolist())
        seen.append(found)
    assert seen[0] == seen[1]
    assert function.report().replayed >= 12, function.explain()


def test_a_named_tuple_under_the_same_key(device):
    """Equal keys of other types are one: what is remembered for the one answers for the other."""
    cached = functools.lru_cache(maxsize=50)(lambda shape: [float(shape[0])])
    cached(Size(3, 2))

    def program(x):
        return x * cached(x.shape)[0]

    g = rote.graph(program)
    for n in range(10):
        if n == 6:
            cached(Size(3, 2))[0] = 8.0
        assert g(torch.ones(3, 2, device=device)).tolist() == [[3.0 if n < 6 else 8.0] * 2] * 3
    assert g.report().replayed >= 4, g.explain()


def test_a_full_cache_of_shapes(device):
    made = []

    def table(shape):
        made.append(shape)
        return float(shape[0])

    for graphs in (False, True):
        cached = functools.lru_cache(maxsize=2)(table)
        program = lambda x, cached=cached: x * cached(x.shape)  # noqa: E731
        function = rote.graph(program) if graphs else program
        for n in range(24):
            x = torch.ones(2 + n % 4 % 3, device=device)
            assert function(x).tolist() == [float(len(x))] * len(x)
    assert made[: len(made) // 2] == made[len(made) // 2 :]


@pytest.mark.parametrize("decorate", [functools.cache, functools.lru_cache(1), functools.lru_cache(8)])
def test_the_function_is_an_argument(device, decorate):
    made = []

    @decorate
    def scale(n):
        made.append(n)
        return float(n)

    g = rote.graph(lambda x, function: x * function(3))
    for n in range(16):
        if n == 10:
            scale(5)
        assert g(torch.ones(2, device=device), scale).tolist() == [3.0] * 2
    assert g.report().replayed >= 8, g.explain()
    assert made in ([3, 5], [3, 5, 3])


class Asked:
    """Functions with caches that a call asks by tensors, and what it leaves outside."""

    def __init__(self, decorate, device):
        self.device = device
        self.mask = torch.ones(3, device=device)
        self.kept = None
        self.wave = decorate(lambda shape, mask: (mask.cumsum(0).float() * 2).sin() + len(shape))
        self.both = decorate(lambda mask: (self.wave(mask.shape, mask), [mask + 1]))


def made_by_the_call(s, x):
    return x + s.wave(x.shape, x > 1)


def through_another_cache(s, x):
    first, (second,) = s.both(x * 2)
    return first * second


def asked_twice(s, x):
    mask = x + 1
    return x + (s.wave(x.shape, mask) is s.wave(x.shape, mask)) + s.wave(x.shape, mask)


def by_a_view(s, x):
    return x + s.wave(x.shape, (x * 2)[None].float()[0])


def its_answer_is_kept(s, x):
    s.kept = s.wave(x.shape, x + 1)
    return s.kept * 2


def the_key_is_kept(s, x):
    s.kept = x + 1
    return x + s.wave(x.shape, s.kept)


def the_key_is_returned(s, x):
    mask = x + 1
    return x + s.wave(x.shape, mask), mask


def kept_by_c(s, x):
    s.kept = functools.partial(torch.add, s.wave(x.shape, x + 1))
    return x * 2


def a_given_key(s, x):
    return x + s.wave(x.shape, x)


def a_key_of_state(s, x):
    return x + s.wave(x.shape, s.mask)


def asked(s, way, wrap):
    """Results of calls, behind each of which the caller writes to what it has, and asks by it."""
    call, found = wrap(lambda x: way(s, x)), []
    given = torch.arange(3.0, device=s.device)
    for number in range(24):
        result = call(given if number % 3 else given + number)
        parts = result if isinstance(result, tuple) else (result,)
        kept = s.kept(torch.ones(3, device=s.device)) if callable(s.kept) else s.kept
        if isinstance(kept, torch.Tensor):
            kept += 1
            parts = (*parts, kept, s.wave(kept.shape, kept))
        parts = (*parts, s.wave(parts[-1].shape, parts[-1]))
        found.append([each.tolist() for each in parts])
        for each in (given, s.mask, *parts):
            each.mul_(0.5)
    return found


OF_ITS_OWN = [made_by_the_call, through_another_cache, asked_twice, by_a_view, its_answer_is_kept]
OF_OTHERS = [the_key_is_kept, the_key_is_returned, kept_by_c, a_given_key, a_key_of_state]


@pytest.mark.parametrize("decorate", [functools.lru_cache(1), functools.lru_cache(3), functools.cache])
@pytest.mark.parametrize("way", [*OF_ITS_OWN, *OF_OTHERS])
def test_a_cache_is_asked_by_tensors(device, way, decorate):
    wrap = KeptGraph()

    wanted = asked(Asked(decorate, device), way, lambda function: function)
    assert asked(Asked(decorate, device), way, wrap) == wanted
    if way in OF_ITS_OWN:
        assert wrap.graphed.report().replayed >= 12, wrap.graphed.explain()
