"""The exact tier: the bits of eager before, while and after it takes the place of what was captured."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.clock import Clock
from torch import Tensor, nn

import rote
from rote import Graphed
from rote.base.settings import read_compile_settings
from rote.inspect import TierReport
from rote.runtime.compiling import COMPILERS
from rote.runtime.compiling.compilers import Compilers
from rote.runtime.engine.ledger import Ledger
from rote.runtime.engine.specialization import Specialization
from rote.runtime.optimize import anew, before
from rote.runtime.recording.tiers import FIRST_TIER, Tiers
from rote.testing import assert_same

pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

PAIRS = 16
"""Calls that a contest between two tiers takes at most, with some to spare."""


def entries(g: Graphed) -> Iterator[Specialization]:
    yield from g._keys.entries.values()


def soon(g: Graphed) -> None:
    """The next replay is followed by the making of the exact tier."""
    for entry in entries(g):
        for recording in entry.recordings:
            if recording.recorded:
                recording.improve_at(0)


def tier(g: Graphed) -> TierReport | None:
    (recording,) = g.report().recordings
    return recording.tier


def play(fn: Callable[..., Any], calls: list[tuple[Any, ...]], **options: Any) -> Graphed:
    """Each call compared with eager; the exact tier is made in the fourth of them, and where ways are new."""
    g = rote.graph(fn, **options)
    for number, args in enumerate(calls):
        if number in (3, 9):
            soon(g)
        assert_same(g(*args), fn(*args), f"call {number}")
    return g


def rows(device: torch.device, count: int = 12, size: int = 4) -> list[tuple[Any, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(size, size, generator=generator).to(device),) for _ in range(count)]


def steps(x: Tensor) -> Tensor:
    """A loop that makes its tables anew in each turn."""
    for n in range(4):
        times = torch.arange(4, device=x.device).float() * 0.5 + n
        mask = torch.tril(torch.ones(4, 4, device=x.device, dtype=torch.bool))
        x = torch.where(mask, x + times.cos(), 0.0)
        x.exp()  # nobody reads it
    return x


# ---------------------------------------------------------------------- its life


@pytest.mark.parametrize("keep", [False, True])
def test_it_takes_the_place_of_what_was_captured(device, keep):
    g = rote.graph(steps, keep=keep)
    for (x,) in rows(device, FIRST_TIER + 3 * PAIRS):
        assert_same(g(x), steps(x), "result")
    found = tier(g)
    assert found is not None and found.used and not found.left
    left = found.before - sum(found.removed.values()) + found.shown
    assert left < found.before
    assert found.after == left if found.fused is None else found.after < left
    assert found.removed["dead"] == 4 and found.removed["recomputed"] > 4 and found.removed["constants"] > 4
    assert (found.exact_us is None) is keep  # nothing is measured that is kept
    assert f"exact tier: {found.after} operations instead of {found.before} (4 dead, " in g.explain()
    assert json.loads(g.report().to_json())["recordings"][0]["tier"]["removed"] == found.removed


def test_plain_numerics(device):
    g = rote.graph(steps, numerics="plain")
    for (x,) in rows(device, FIRST_TIER + PAIRS):
        assert_same(g(x), steps(x), "result")
    assert tier(g) is None


def test_what_is_no_numerics():
    with pytest.raises(rote.OptionError, match=r"numerics='fast' is not one of 'exact', 'probed', "):
        rote.graph(steps, numerics="fast")


def test_one_that_loses_is_dropped(device, monkeypatch):
    clock = Clock()
    clock.install(monkeypatch)
    g = rote.graph(steps)
    use = Tiers.use

    def timed(tiers: Tiers, *, exact: bool) -> None:
        clock.replay_s = 90e-6 if exact else 40e-6
        use(tiers, exact=exact)

    monkeypatch.setattr(Tiers, "use", timed)
    held = 0
    for number, args in enumerate(rows(device, 40)):
        if number == 3:
            held = g.report().bytes_held
            soon(g)
        assert_same(g(*args), steps(*args), f"call {number}")
    found = tier(g)
    assert found is not None and not found.used and g.report().bytes_held == held
    assert "its replays took 90.0 us, and 40.0 us before" in found.left[0].reason
    assert "left as captured: " in g.explain()


def test_one_that_wins_is_measured_once(device, monkeypatch):
    clock = Clock()
    clock.install(monkeypatch)
    g = play(steps, rows(device, 32))  # before anybody looks for compiled kernels, or times plain calls
    found = tier(g)
    assert found is not None and found.used
    assert (found.exact_us, found.plain_us) == (pytest.approx(100), pytest.approx(100))
    assert g.report().replayed == 30  # a contest between tiers makes no plain calls


def test_results_of_before_stay(device):
    kept = []
    g = rote.graph(steps)
    for number, (x,) in enumerate(rows(device, 40)):
        if number == 3:
            soon(g)
        kept.append((g(x), steps(x)))
    for number, (mine, other) in enumerate(kept):
        assert_same(mine, other, f"call {number}")


def test_its_memory_counts(device):
    g = rote.graph(steps, keep=True)
    inputs = rows(device)
    for args in inputs[:4]:
        g(*args)
    held = g.report().bytes_held
    soon(g)
    g(*inputs[4])
    found = tier(g)
    assert found is not None and found.used and g.report().bytes_held >= held
    g.reset()
    assert g.report().bytes_held == 0


def test_no_room_in_the_budget(device):
    def wide(x: Tensor) -> Tensor:
        for _ in range(3):
            x = x + torch.arange(1 << 18, device=x.device).float().sin()
        return x

    x = torch.ones(1 << 18, device=device)
    g = rote.graph(wide, keep=True, budget=1 << 30)
    for _ in range(4):
        g(x)
    (entry,) = entries(g)
    account = entry.limits.account
    account.limit = g.report().bytes_held + 1000 if device.type == "cpu" else g.report().bytes_held - 1
    soon(g)
    assert_same(g(x), wide(x), "result")
    found = tier(g)
    assert found is not None and not found.used and "with the exact tier" in found.left[0].reason
    assert_same(g(x), wide(x), "result")
    assert g.report().replayed == 4


def test_it_is_made_again_after_an_eviction(device):
    g = play(steps, rows(device))
    for entry in entries(g):
        for recording in entry.recordings:
            recording.evict("a test took its memory")
    assert not g.report().recordings
    for number, args in enumerate(rows(device)):
        if number == 3:
            assert tier(g) is None
            soon(g)
        assert_same(g(*args), steps(*args), f"call {number}")
    found = tier(g)
    assert found is not None and found.used


# ---------------------------------------------------------------------- programs


def branching(x: Tensor) -> Tensor:
    y = steps(x)
    y = y.sin() + y.sin()
    if x.sum() > 0:
        return y + torch.arange(4, device=x.device) * 2
    return (y.exp() + y.exp()) * steps(y)


def with_islands(x: Tensor) -> Tensor:
    y = steps(x)
    found = y[y > 0.1]
    return found.sum() * steps(x) + y


def shared(x: Tensor) -> tuple[Tensor, ...]:
    y = steps(x) + 1
    return y, y[0], y.t(), steps(x) + 1, x, x[1]


def own_writes(x: Tensor) -> Tensor:
    total = torch.zeros(4, 4, device=x.device)
    for _ in range(3):
        total.add_(steps(x))
        total[0].mul_(0.5)
    return total


def literal_written(x: Tensor) -> Tensor:
    table = torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device)
    first = table * 2
    table.add_(1)
    return x * table + first + steps(x)


def in_modes(x: Tensor) -> Tensor:
    with torch.no_grad():
        y = steps(x)
    with torch.inference_mode():
        z = steps(x).clone()
    return y + z.clone() + steps(x)


@pytest.mark.parametrize(
    "fn", [branching, with_islands, shared, own_writes, literal_written, in_modes], ids=lambda fn: fn.__name__
)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_programs(device, fn, mode):
    with mode():
        g = play(fn, rows(device, 2) * 8, keep=True)
    report = g.report()
    tiers = [each.tier for each in report.recordings if each.tier is not None]
    assert any([each.used for each in tiers]), g.explain()


def test_ways_that_come_later(device):
    g = rote.graph(branching, keep=True)
    one, other = torch.ones(4, 4, device=device), -torch.ones(4, 4, device=device)
    for x in [one] * 4:
        g(x)
    soon(g)
    for number, x in enumerate([one, one, other, other, other, one, other]):
        assert_same(g(x), branching(x), f"call {number}")
    first = tier(g)
    soon(g)
    for number, x in enumerate([other, one, other, one]):
        assert_same(g(x), branching(x), f"call {number}")
    after = tier(g)
    assert first is not None and after is not None and after.before > first.before and after.used


def test_parameters_change_in_place(device):
    lin = nn.Linear(4, 4).to(device).requires_grad_(False)

    def fn(x: Tensor) -> Tensor:
        for _ in range(3):
            x = lin(x) * (1 + lin.weight.double().sum()).float() + lin.bias.sin()
        return x

    changes = {
        5: lambda: lin.weight.mul_(0.5),
        6: lambda: lin.weight.data.add_(0.25),
        7: lambda: lin.load_state_dict({"weight": torch.eye(4), "bias": torch.ones(4)}),
        8: lambda: lin.bias.detach().cpu().numpy().fill(3.0),  # no version counts on the host
        9: lambda: lin.weight[0].fill_(float("nan")),
    }
    g = rote.graph(fn, keep=True)
    for number, (x,) in enumerate(rows(device)):
        if number == 3:
            soon(g)
        if number in changes:
            changes[number]()
        assert_same(g(x), fn(x), f"call {number}")
    found = tier(g)
    assert found is not None and found.used and found.outside == 5 and found.removed["constants"] == 0
    assert g.report().replayed == 10


def test_values_are_raised_for(device):
    if device.type == "cuda":
        pytest.skip("an index outside ends the process's use of the device")

    def fn(x: Tensor, at: Tensor) -> Tensor:
        x[at]  # nobody reads it
        return steps(x) + x[at] + x[at]

    inputs = [(x, torch.tensor([n % 4])) for n, (x,) in enumerate(rows(device))]
    g = play(fn, inputs)
    found = tier(g)
    assert found is not None and found.used
    with pytest.raises(IndexError, match="out of bounds"):
        g(torch.ones(4, 4), torch.tensor([9]))
    assert_same(g(*inputs[0]), fn(*inputs[0]), "afterwards")


def denoised(x: Tensor) -> Tensor:
    for _ in range(3):
        x = steps(x) + torch.randn_like(x) * torch.arange(4, device=x.device)
        torch.rand(2, device=x.device)  # nobody reads it
    x = x + torch.linalg.svdvals(x)  # an island
    return nn.functional.dropout(x, 0.5) + torch.randn(4, 4, device=x.device)


def test_random_numbers(device):
    """They are drawn as in eager, before, while and after the exact tier is made."""
    g = rote.graph(denoised, keep=True)
    states = []
    for wrapped in (denoised, g):
        torch.manual_seed(0)
        states.append([])
        for number, (x,) in enumerate(rows(device)):
            if number == 3 and wrapped is g:
                soon(g)
            states[-1].append((wrapped(x), torch.rand(3, device=device), torch.rand(3)))
    assert_same(states[1], states[0], "what is drawn")
    found = tier(g)
    assert found is not None and found.used and g.report().replayed == 10


GENERATORS = {"cpu": torch.Generator()}
if torch.cuda.is_available():
    GENERATORS["cuda"] = torch.Generator("cuda")


def seed(number: int) -> None:
    torch.manual_seed(number)
    for generator in GENERATORS.values():
        generator.manual_seed(number)


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (
            lambda x: steps(x) + torch.rand(4, device=x.device, generator=GENERATORS[x.device.type]),
            "generators",
        ),
        (lambda x: steps(x.add_(1)) * (2 if x.sum() > 1e9 else 1), "the host reads values"),
        (lambda x: steps(x) * torch.complex(x, x).conj().real, "complex numbers"),
    ],
)
def test_what_is_left_as_captured(device, fn, why):
    g = rote.graph(fn, keep=True)
    for number, (x,) in enumerate(rows(device)):
        if number == 3:
            soon(g)
        seed(number)
        mine, copied = x.clone(), x.clone()
        result = g(mine)
        seed(number)
        assert_same((result, mine), (fn(copied), copied), f"call {number}")
    found = tier(g)
    assert found is not None and not found.used and why in found.left[0].reason
    assert f"left as captured: {found.left[0].operations} operations, " in g.explain()


class Decoder(nn.Module):
    """A cache, a place in it, and a count, all written in place."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(14, 4, device=device))
        self.register_buffer("place", torch.zeros(1, device=device, dtype=torch.long))
        self.register_buffer("seen", torch.zeros(4, device=device))

    def forward(self, x: Tensor, total: Tensor) -> Tensor:
        before = self.cache.exp().sum(0)
        self.cache.index_copy_(0, self.place, x[:1] + torch.rand(1, 4, device=x.device))
        self.place.add_(1)  # behind the end after the last call
        self.seen.add_(steps(x).sum(0))
        total.mul_(0.5).add_(x)
        return before + self.cache.exp().sum(0) + steps(x) + self.seen


@pytest.mark.parametrize("made", [3, 13], ids=["early", "where the cache is full"])
def test_what_is_written_in_place(device, made):
    seen = []
    for graphed in (False, True):
        model = Decoder(device)
        fn, total = rote.graph(model, keep=True) if graphed else model, torch.ones(4, 4, device=device)
        seed(0)
        seen.append([])
        for number, (x,) in enumerate(rows(device, 14)):
            if number == made and graphed:
                soon(fn)
            with torch.no_grad():
                result = fn(x, total)
            seen[-1].append(
                [result, total.clone(), *[each.clone() for each in model.buffers()], torch.rand(2)]
            )
            assert not graphed or all([each._version > 0 for each in (model.cache, model.place, total)])
    assert_same(seen[1], seen[0], "what is written")
    found = tier(fn)
    assert found is not None and found.used and fn.report().replayed == 12


@pytest.mark.parametrize("differing", [1, 3, 1000])
def test_an_operation_that_does_not_repeat_itself(device, monkeypatch, differing):
    """Bits that differ now and then are the program's own; those that differ each time are ours."""
    compared, looked = anew.Shown.is_as_it_was, 0

    def is_as_it_was(shown: anew.Shown) -> bool:
        nonlocal looked
        looked += 1
        return looked > differing and compared.__get__(shown)

    monkeypatch.setattr(anew.Shown, "is_as_it_was", property(is_as_it_was))
    g = play(steps, rows(device), keep=True)
    found = tier(g)
    assert found is not None and found.used is (differing < 1000), g.explain()
    assert ("is not equal to the bit" in g.explain()) is (differing == 1000)


def test_too_much_is_written(device, monkeypatch):
    monkeypatch.setattr(before, "MOST_BYTES", 10)
    total, g = torch.zeros(4, device=device), rote.graph(lambda x, y: steps(x) + y.add_(1), keep=True)
    for number, (x,) in enumerate(rows(device)):
        if number == 3:
            soon(g)
        assert_same(g(x, total), steps(x) + (number + 1), f"call {number}")
    found = tier(g)
    assert found is not None and not found.used and "no more than 10 B are copied" in found.left[0].reason


def test_other_switches_inside(device):
    def fn(x: Tensor) -> Tensor:
        torch.use_deterministic_algorithms(True)
        try:
            y = steps(x)
        finally:
            torch.use_deterministic_algorithms(False)
        return y + steps(x)

    g = play(fn, rows(device), keep=True)
    recordings = g.report().recordings
    for each in recordings:
        assert each.tier is None or (not each.tier.used and "switches" in each.tier.left[0].reason)


def doubled(x: Tensor) -> Tensor:
    return x * 2 + x * 2


@rote.pure
def declared(x: Tensor) -> Tensor:
    return steps(x)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("scripted", [False, True])
def test_code_that_somebody_answers_for(device, scripted):
    """On a GPU it may launch kernels past the dispatcher; on the host no replay runs it."""
    fn = torch.jit.script(doubled) if scripted else declared
    g = play(lambda x: fn(x) + fn(x), rows(device), keep=True)
    recordings = [found for entry in entries(g) for found in entry.recordings if found.recorded]
    if scripted and device.type == "cuda" and not recordings:
        return  # TorchScript may go on to compile for as long as it is called
    assert recordings and all([found.trusts for found in recordings])
    found = tier(g)
    assert found is not None and found.used is (device.type == "cpu")
    assert device.type == "cpu" or "answers for" in found.left[0].reason
    plain = play(steps, rows(device), keep=True)
    assert not any([found.trusts for entry in entries(plain) for found in entry.recordings])


def test_checked_calls_are_checked(device):
    g = play(steps, rows(device, 20), verify=1)
    assert g.report().verified == g.report().replayed == 18
    found = tier(g)
    assert found is not None and found.used


# ---------------------------------------------------------------------- laws

Statement = tuple[str, int, int, float]

MAKERS: dict[str, Callable[[Any, Any, float], Tensor]] = {
    "add": lambda a, b, n: a + b,
    "add_number": lambda a, b, n: a + n,
    "mul": lambda a, b, n: a * b,
    "exp": lambda a, b, n: a.exp(),
    "sin": lambda a, b, n: a.sin(),
    "log": lambda a, b, n: a.log(),  # NaN
    "sum": lambda a, b, n: a + b.sum(0),
    "sum_of_rows": lambda a, b, n: a + b.sum(1),
    "mm": lambda a, b, n: a @ b,
    "softmax": lambda a, b, n: a.softmax(-1),
    "cast": lambda a, b, n: a.double().float(),
    "half": lambda a, b, n: a.half().float(),
    "transposed": lambda a, b, n: a.t(),
    "turned": lambda a, b, n: a.flip(0),
    "contiguous": lambda a, b, n: a.contiguous(),
    "transposed copy": lambda a, b, n: a.t().contiguous(),
    "clone": lambda a, b, n: a.clone(),
    "where": lambda a, b, n: torch.where(a > b, a, b),
    "masked": lambda a, b, n: a.masked_fill(b > n, n),
    "expanded": lambda a, b, n: b[:1].expand(3, 3) + a[:, :1].expand(3, 3),
    "row": lambda a, b, n: a + b[1],
    "table": lambda a, b, n: a + torch.arange(3, device=a.device) * n,
    "mask": lambda a, b, n: torch.where(torch.ones(3, 3, device=a.device).triu().bool(), a, n),
    "literal": lambda a, b, n: a * torch.tensor([n, 1.0, -0.0], device=a.device),
    "zeros": lambda a, b, n: torch.zeros(3, 3, device=a.device),
    "empty": lambda a, b, n: torch.empty(3, 3, device=a.device).fill_(n),
    "gather": lambda a, b, n: a.gather(0, torch.zeros(3, 3, device=a.device, dtype=torch.long)),
}
MAY_LOOK = frozenset({"transposed", "contiguous", "transposed copy"})
"""Those whose result may be memory of their first operand."""

WRITES: dict[str, Callable[[Any, Any, float], object]] = {
    "add_": lambda a, b, n: a.add_(b),
    "mul_": lambda a, b, n: a.mul_(n),
    "sub_": lambda a, b, n: a.sub_(b),
    "relu_": lambda a, b, n: a.relu_(),
    "clamp_": lambda a, b, n: a.clamp_(-2, n),
    "masked_fill_": lambda a, b, n: a.masked_fill_(b > n, n),
    "add a turn": lambda a, b, n: a.add_(b.t()),
    "add a turn of itself": lambda a, b, n: a.add_(a.t() * n),
    "write a row": lambda a, b, n: a[0].add_(b[1]),
    "write through a turn": lambda a, b, n: a.t()[:, 1].copy_(b[2]),
    "fill": lambda a, b, n: a.fill_(n),
    "set": lambda a, b, n: a.__setitem__((slice(None), 0), b[:, 1]),
}
"""To what the program has made itself."""

STATEMENTS = st.tuples(
    st.sampled_from([*MAKERS, *MAKERS, *WRITES]),
    st.integers(0, 5),
    st.integers(0, 5),
    st.sampled_from([0.0, -0.0, 1.0, 0.5, -2.0]),
)


def interpreted(program: tuple[Statement, ...], turns: int, w: Tensor) -> Callable[..., Any]:
    """A function of two arguments that runs a program in each turn of a loop."""

    def fn(x: Tensor, y: Tensor) -> Any:
        known, owned = [x, y, w], list[bool]([False, False, False])
        for _ in range(turns):
            for name, first, second, number in program:
                a, b = (-1 - each % len(known) for each in (first, second))
                if name in MAKERS:
                    known.append(MAKERS[name](known[a], known[b], number))
                    owned.append(owned[a] or name not in MAY_LOOK)
                elif owned[a]:
                    WRITES[name](known[a], known[b], number)
        return known[-1], known[len(known) // 2], [known[-2], known[-1].t()]

    return fn


@pytest.mark.sampled(3)
@pytest.mark.parametrize("layout", ["rows", "columns", "every other"])
def test_random_programs(device, layout):
    used = [0, 0]

    def argument(seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        if layout == "columns":
            return torch.randn(3, 3, generator=generator).to(device).t()
        if layout == "every other":
            return torch.randn(3, 6, generator=generator).to(device)[:, ::2]
        return torch.randn(3, 3, generator=generator).to(device)

    @settings(max_examples=30, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(STATEMENTS, min_size=3, max_size=8).map(tuple), st.integers(2, 3), st.booleans())
    def law(program: tuple[Statement, ...], turns: int, inference: bool) -> None:
        w = torch.linspace(-1, 1, 9, device=device).reshape(3, 3)
        fn = interpreted(program, turns, w)
        g = rote.graph(fn, keep=True)
        with torch.inference_mode(inference):
            for number in range(8):
                x, y = argument(number), argument(number if number == 6 else 10 + number)
                if number == 3:
                    soon(g)
                if number == 5:
                    w.data.mul_(1.5)
                if number == 7:
                    x[0] = float("nan")
                    w.data[1] = float("inf")
                for args in ((x, y), (x, x)):
                    try:
                        expected = fn(*args)
                    except RuntimeError:  # memory that overlaps cannot be written
                        return
                    assert_same(g(*args), expected, f"call {number}")
        tiers = [each.tier for each in g.report().recordings if each.tier is not None]
        used[0] += 1
        used[1] += any([each.used for each in tiers])
        failed = [each.reason for found in tiers for each in found.left if "Error" in each.reason]
        assert not failed
        assert not [each for found in tiers for each in found.left if "not equal" in each.reason]
        g.reset()

    law()
    assert used[1] > 0.25 * used[0], used


# ---------------------------------------------------------------------- a model


@pytest.fixture
def _no_compilers(monkeypatch):
    """Kernels for its regions are for :mod:`.test_fused`; nobody would wait for these."""
    off = Compilers(dataclasses.replace(read_compile_settings(), most=0))
    monkeypatch.setattr(COMPILERS, "get", lambda: off)


@pytest.mark.transformers
@pytest.mark.slow
@pytest.mark.usefixtures("_no_compilers")
def test_a_policy(device):
    pytest.importorskip("transformers")
    from examples.pi0_policy import Tabletop, build_policy, noise_sequence

    policy = build_policy("small", device, torch.float32)
    world = Tabletop(policy, 2, seed=0)
    with torch.no_grad():
        g = rote.graph(policy.sample_actions, keep=True)
        for number, noise in enumerate(noise_sequence(policy, 8, seed=0)):
            if number == 3:
                soon(g)
            observation = {**world.observe(), "noise": noise}
            expected = policy.sample_actions(**observation)
            assert_same(g(**observation), expected, f"chunk {number}")
            world.advance(expected)
    found = tier(g)
    assert found is not None and found.used, g.explain()
    for rule in ("dead", "recomputed", "constants"):
        assert found.removed[rule] > 0
    assert found.removed["recomputed"] > 100 and found.after < 0.9 * found.before
    assert found.outside > 0


# ---------------------------------------------------------------------- operators of libraries


@pytest.fixture
def _library() -> Iterator[list[int]]:
    """Operators of a library: one that is functional and says so, one that says nothing, one that counts."""
    calls: list[int] = []
    library = torch.library.Library("rote_tests", "DEF")

    def swapped(x: Tensor) -> Tensor:
        return x.t().contiguous() * 2

    def counted(x: Tensor) -> Tensor:
        calls.append(1)
        return swapped(x)

    def drawn(x: Tensor) -> Tensor:
        return swapped(x) + torch.rand(4, 4, device=x.device)

    told = (torch.Tag.pt2_compliant_tag,)
    functional = {"told": swapped, "counted": counted, "drawn": drawn}
    offered = [(name, function, told) for name, function in functional.items()]
    for name, function, tags in [*offered, ("silent", swapped, ())]:
        library.define(f"{name}(Tensor x) -> Tensor", tags=tags)
        library.impl(name, function, "CompositeExplicitAutograd")
    yield calls
    library._destroy()


def around(name: str) -> Callable[[Tensor], Tensor]:
    """A program with much to remove, and an operator in the middle."""

    def program(x: Tensor) -> Tensor:
        for _ in range(3):
            steps_now = torch.arange(4, device=x.device) * 0.1
            x = getattr(torch.ops.rote_tests, name)(x + steps_now.cos())
        return x

    return program


def played_around(name: str, device: torch.device) -> TierReport:
    """What became of the exact tier; each call is compared with eager."""
    g = rote.graph(around(name), keep=True)
    for number in range(16):
        soon(g) if number > 3 else None
        x = torch.randn(4, 4, device=device)
        assert_same(g(x), around(name)(x), f"call {number}")
    found = tier(g)
    assert found is not None, g.explain()
    return found


@pytest.mark.usefixtures("_library")
def test_operators_of_a_library_run_again(device):
    found = played_around("told", device)
    assert found.used and found.removed["constants"]


@pytest.mark.usefixtures("_library")
def test_those_that_do_not_say_so_do_not(device):
    found = played_around("silent", device)
    assert not found.used
    assert "and no functional operator of a library" in found.left[0].reason


@pytest.mark.usefixtures("_library")
def test_such_an_operator_draws_as_often_as_in_eager(device):
    """Its schema does not say that it draws: what it has drawn in the exact tier's capture is put back."""

    def after(program: Callable[[Tensor], Tensor]) -> list[Tensor]:
        torch.manual_seed(0)
        found: list[Tensor] = []
        for number in range(16):
            soon(g) if number > 3 and program is g else None
            found += [program(torch.ones(4, 4, device=device)), torch.rand(2), torch.rand(2, device=device)]
        return found

    g = rote.graph(around("drawn"), keep=True)
    assert_same(after(g), after(around("drawn")), "random numbers")


def test_what_such_an_operator_leaves_behind(device, _library):
    """It is left as often as plain calls would leave it."""
    g = rote.graph(around("counted"), keep=True)
    for number in range(16):
        soon(g) if number > 3 else None
        x = torch.randn(4, 4, device=device)
        before = len(_library)
        got = g(x)
        assert len(_library) == before + 3
        assert_same(got, around("counted")(x), f"call {number}")


def test_replays_that_read_values_are_counted_before_it_is_asked_whether_they_pay(device, monkeypatch):
    """The hot path leaves such a replay to the general path of the key, past the ledger."""
    counted: list[tuple[int, int]] = []

    def asked(ledger: Ledger) -> bool:
        counted.append((ledger._replayed, g.report().replayed))
        return len(counted) > 3

    monkeypatch.setattr(Ledger, "allows_work", property(asked))
    monkeypatch.setattr(Ledger, "replays_for_work", lambda self, unknown: 16)  # calls are short

    def reading(x: Tensor) -> Tensor:
        return steps(x if x.sum().item() > 1e6 else x + 1)

    g = rote.graph(reading)
    for number, (x,) in enumerate(rows(device, 2 * FIRST_TIER)):
        assert_same(g(x), reading(x), f"call {number}")
    assert tier(g) is not None and len(counted) > 3
    assert all([paid == replayed for paid, replayed in counted])
