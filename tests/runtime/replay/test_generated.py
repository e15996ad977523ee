"""Hot paths: which calls they answer, what they count, and when they let go."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

import rote
from rote.runtime.engine.specialization import Specialization
from rote.runtime.recording.contest import FIRST_ROUND
from rote.testing import assert_pool_empty


@pytest.fixture
def alone(monkeypatch):
    """From now on only hot paths may answer."""

    def forbid():
        monkeypatch.setattr(Specialization, "run", lambda *_: pytest.fail("the general path was taken"))

    return forbid


def warmed(fn, *args, calls=6, **options):
    g = rote.graph(fn, **options)
    for _ in range(calls):
        g(*args)
    return g


def layers(device):
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU()).to(device).requires_grad_(False)


def test_a_replay_needs_no_general_path(device, alone):
    m, x = layers(device), torch.randn(2, 4, device=device)
    g = warmed(m, x)
    alone()
    x = torch.randn(2, 4, device=device)
    assert torch.equal(g(x), m(x))


def test_results_of_every_form(device, alone):
    w = torch.ones(3, device=device)

    def fn(x, *, box):
        y = x + box["a"][0]
        return {"y": y, "x": x, "w": w, "n": [1, (y * 2, None)], "t": (y + 1).t() if y.dim() > 1 else y + 1}

    x, box = torch.rand(3, 3, device=device), {"a": (torch.rand(3, 3, device=device), 2)}
    g = rote.graph(fn)
    for _ in range(6):
        g(x, box=box)
    alone()
    x = torch.rand(3, 3, device=device)
    found, right = g(x, box=box), fn(x, box=box)
    assert list(found) == list(right) and found["x"] is x and found["w"] is w
    assert torch.equal(found["y"], right["y"]) and torch.equal(found["n"][1][0], right["n"][1][0])
    assert found["n"][0] == 1 and found["n"][1][1] is None
    assert torch.equal(found["t"], right["t"]) and found["t"].stride() == right["t"].stride()


def test_results_that_require_grad_of_every_form(device, alone):
    w = torch.ones(3, 3, device=device, requires_grad=True)

    def fn(x, *, scale):
        y = x * w
        more = (y.detach() + 1, None, (y.sin().t(), scale))
        return {"y": y, "x": x, "w": w, "more": [*more, x + 1]}

    def gradient(result):
        loss = result["y"].square().sum() + result["more"][2][0].sum()
        return torch.autograd.grad(loss, w)[0]

    g = rote.graph(fn)
    for _ in range(6):
        gradient(g(torch.rand(3, 3, device=device), scale=2))
    alone()
    x = torch.rand(3, 3, device=device)
    found, right = g(x, scale=2), fn(x, scale=2)
    assert list(found) == list(right) and found["x"] is x and found["w"] is w
    assert found["more"][1] is None and found["more"][2][1] == 2
    pairs = [
        (result["y"], *[result["more"][n] for n in (0, 3)], result["more"][2][0]) for result in (found, right)
    ]
    for one, other in zip(*pairs, strict=True):
        assert torch.equal(one, other) and one.stride() == other.stride()
        assert one.requires_grad == other.requires_grad and one.is_leaf == other.is_leaf
    assert torch.equal(gradient(found), gradient(right))


def test_a_result_that_requires_grad_stays(device, alone):
    m, x = nn.Linear(4, 4).to(device), torch.randn(2, 4, device=device)
    g = warmed(m, x, calls=9)
    alone()
    held = g(x)
    assert held.grad_fn is not None
    held.detach_()  # nothing waits for a backward any more
    assert torch.equal(g(x + 1), m(x + 1))
    assert torch.equal(held, m(x))
    held.add_(1)
    assert torch.equal(g(x), m(x))


@pytest.mark.parametrize(
    "given",
    [
        lambda x: (x, x, x),
        lambda x: (x, x[:], x.view(3, 4)),
        lambda x: (x + 1, x, x),
        lambda x: (x[0], x[1], x[2]),
        lambda x: (x.view(12)[:4], x.view(12)[2:6], x[2]),
    ],
    ids=["one object", "one place", "two alike", "rows of one", "overlapping"],
)
def test_arguments_that_share_memory(device, alone, given):
    """As in self-attention, ``attend(x, x, x)``, and with a batch that is handed on row by row."""

    def fn(a, b, c):
        return (a + b) * c

    g = warmed(fn, *given(torch.randn(3, 4, device=device)))
    alone()
    given = given(torch.randn(3, 4, device=device))
    assert torch.equal(g(*given), fn(*given))


def test_results_are_the_callers_own(device):
    g = warmed(lambda x: x * 2, torch.ones(3, device=device))
    held = [g(torch.full((3,), float(n), device=device)) for n in range(4)]
    assert [int(y[0]) for y in held] == [0, 2, 4, 6]


def test_counts(device):
    x = torch.ones(3, device=device)
    g = warmed(lambda x: x * 2, x, calls=10)
    report = g.report()
    assert (report.calls, report.replayed) == (10, 8)
    assert sum(recording.replays for recording in report.recordings) == 8


def test_shapes_in_turn(device, alone):
    g = rote.graph(lambda x: x.sum() + 1)
    inputs = [torch.ones(n, device=device) for n in (2, 3, 4)]
    for _ in range(6):
        for x in inputs:
            g(x)
    alone()
    assert [int(g(x)) for x in inputs] == [3, 4, 5]


def test_a_hundred_shapes_in_any_order(device, alone):
    g = rote.graph(lambda x, y: x.sum() + y, keep=True)
    one = torch.ones((), device=device)
    inputs = [torch.ones(n, device=device) for n in range(100)]
    for _ in range(4):
        for x in inputs:
            g(x, one)
    alone()
    random.shuffle(inputs)
    assert [int(g(x, one)) for x in inputs] == [len(x) + 1 for x in inputs]


def test_shapes_alone_decide_nothing(device):
    """Paths of other types, values and modes are found by the same shapes; they look for themselves."""
    g = rote.graph(lambda x, n=1: x * n, keep=True)
    inputs = [torch.ones(n, device=device) for n in range(6)]
    for _ in range(4):
        for x in inputs:
            g(x)
    for x in inputs:
        assert torch.equal(g(x, 2), x * 2)
        assert g(x.double()).dtype is torch.float64
        assert g(x.clone().requires_grad_()).requires_grad
        with torch.inference_mode():
            assert g(x).is_inference()
        assert torch.equal(g(x), x)


def test_a_changed_value_is_not_its_own(device):
    m = nn.Linear(2, 2, bias=False).to(device).requires_grad_(False)
    m.factor = 2.0
    g = warmed(lambda x: m(x) * m.factor, torch.ones(2, device=device), calls=8)
    x = torch.ones(2, device=device)
    m.factor = 3.0
    assert torch.equal(g(x), m(x) * 3)
    m.factor = 2.0
    assert torch.equal(g(x), m(x) * 2)
    m.weight.data = torch.zeros(2, 2, device=device)
    assert torch.equal(g(x), torch.zeros(2, device=device))


def test_a_new_way_through_the_call_is_known(device):
    """The path learned last reads a tensor that the first one did not."""
    m = nn.ParameterList([torch.full((2,), float(n), device=device) for n in (1, 2)]).requires_grad_(False)
    g = rote.graph(lambda x: x + m[0] if x.sum() > 0 else x + m[1])
    yes, no = torch.ones(2, device=device), -torch.ones(2, device=device)
    for _ in range(6):
        g(yes)
    for _ in range(6):
        assert torch.equal(g(no), no + m[1])
    m[1].data = torch.zeros(2, device=device)
    for _ in range(6):
        assert torch.equal(g(no), no)
        assert torch.equal(g(yes), yes + m[0])


def test_a_wrapper_goes_without_a_collection(device):
    g = warmed(layers(device), torch.ones(2, 4, device=device))
    assert g._paths.known
    gone = weakref.ref(g)
    gc.disable()
    try:
        del g
        assert gone() is None
        assert_pool_empty()
    finally:
        gc.enable()


def test_a_released_recording_is_let_go(device):
    x = torch.ones(2, 4, device=device)
    g = warmed(layers(device), x)
    (path,) = g._paths.known
    output = weakref.ref(next(iter(g._keys.entries.values())).recordings[0].root.template.leaves[0].value)
    next(iter(g._keys.entries.values())).recordings[0].evict("for the test")
    assert output() is None
    assert g(x) is not None and g.report().calls == 7
    assert g._paths.known != (path,)
    g.reset()
    assert not g._paths.known


def test_modes_are_looked_at(device):
    m = nn.Linear(4, 4).to(device)
    x = torch.ones(2, 4, device=device)
    g = rote.graph(m)
    with torch.no_grad():
        for _ in range(6):
            assert not g(x).requires_grad
    assert g(x).requires_grad
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
        assert g(x).dtype is torch.bfloat16
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        g(x)
    assert counter.get_total_flops() > 0


def test_threads(device):
    m = layers(device)
    g = warmed(m, torch.ones(2, 4, device=device))
    before, wrong = g.report().calls, []

    def work(seed):
        for n in range(50):
            x = torch.full((2, 4), float(seed + n), device=device)
            if not torch.equal(g(x), m(x)):
                wrong.append((seed, n))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert g.report().calls == before + 200


def test_chained(device, alone):
    first, second = layers(device), layers(device)
    x = torch.randn(2, 4, device=device)
    f, g = rote.graph(first), rote.graph(second)
    for _ in range(10):
        g(f(x))
    alone()
    x = torch.randn(2, 4, device=device)
    y = f(x)
    assert torch.equal(g(y), second(first(x)))
    f(x + 1)
    assert torch.equal(g(y), second(first(x)))


def test_strict_mode_goes_on_refusing_islands(device):
    x = torch.ones(4, device=device)
    g = rote.graph(lambda x: x[x > 0].sum() + 1, strict=True)
    with pytest.raises(rote.NotReplayedError):
        for _ in range(8):
            g(x)
    assert not g._paths.known


class Seen(TorchFunctionMode):
    """Notes the functions that are called."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


def test_a_function_mode_sees_what_it_sees_in_eager(device):
    def fn(x, y):
        return x + y * 2

    x, y = torch.ones(3, device=device), torch.ones(3, device=device)
    g = warmed(fn, x, y)
    with Seen() as graphed:
        g(x, y)
    with Seen() as plain:
        fn(x, y)
    assert graphed.names == plain.names


def test_inside_of_a_trace_it_looks_at_nothing(device):
    inner = warmed(lambda x, y: x + y, torch.ones(3, device=device), torch.zeros(3, device=device))
    outer = rote.graph(lambda x: inner(x, x * 2) * 3)
    for n in range(6):
        x = torch.full((3,), float(n), device=device)
        assert torch.equal(outer(x), x * 9)
    assert outer.report().replayed == 4 and not outer.report().reasons


def test_a_key_that_runs_eagerly_for_good_needs_no_general_path(device):
    """It is counted with its reason, other keys are not taken for it, and a reset forgets it."""
    g = rote.graph(lambda x, n=1: x * n + x.sum().item(), max_paths=2, keep=True)
    for n in range(12):
        g(torch.full((2,), float(n), device=device))
    before = g.report()
    (reason,) = [each for each in before.reasons if each.code == "RT304"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Specialization, "run", lambda *_: pytest.fail("the general path was taken"))
        for n in range(5):
            x = torch.full((2,), float(n), device=device)
            assert torch.equal(g(x), x + x.sum())
    after = g.report()
    assert (after.calls, after.eager) == (before.calls + 5, before.eager + 5)
    assert [each.count for each in after.reasons if each.code == "RT304"] == [reason.count + 5]
    x = torch.ones(2, device=device)
    for _ in range(4):
        assert torch.equal(g(x, 3), x * 3 + 2)
    assert g.report().replayed > before.replayed
    with torch.inference_mode():
        assert g(x).is_inference()
    g.reset()
    for _ in range(4):
        g(x)
    assert g.report().replayed


def training(device):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, step


def test_a_training_step_needs_no_general_path(device, alone, monkeypatch):
    (model, step), (plain, steps) = training(device), training(device)
    g = rote.graph(step)
    for n in range(12):
        if n == 8:
            alone()
            monkeypatch.setattr(Specialization, "replay", lambda *_, **__: pytest.fail("not by the hot path"))
        x = torch.full((2, 4), n / 8, device=device)
        assert torch.equal(g(x), steps(x))
    for found, wanted in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(found, wanted) and torch.equal(found.grad, wanted.grad)
    assert g.report().replayed >= 8


MEDDLING = {
    "held": lambda model, kept: kept.append(model[0].weight.grad),
    "a view held": lambda model, kept: kept.append(model[2].weight.grad[:, 1:]),
    "cleared": lambda model, kept: model.zero_grad(),
    "one cleared": lambda model, kept: setattr(model[0].bias, "grad", None),
    "replaced": lambda model, kept: setattr(model[0].bias, "grad", torch.ones_like(model[0].bias)),
    "written": lambda model, kept: model[2].weight.grad.zero_(),
    "a hook": lambda model, kept: kept.append(model[0].weight.register_hook(lambda grad: grad * 2)),
    "other memory": lambda model, kept: setattr(
        model[0].weight.grad, "data", torch.ones_like(model[0].weight)
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", MEDDLING)
def test_gradients_that_somebody_meddles_with(device, what):
    (model, step), (plain, steps) = training(device), training(device)
    g, kept, wanted = rote.graph(step), [], []
    for n in range(40):
        if n % 7 == 6 or 20 < n < 24:
            MEDDLING[what](model, kept)
            MEDDLING[what](plain, wanted)
        x = torch.full((2, 4), n / 8, device=device)
        assert torch.equal(g(x), steps(x))
        for mine, eager in zip(model.parameters(), plain.parameters(), strict=True):
            assert torch.equal(mine, eager) and torch.equal(mine.grad, eager.grad)
        for mine, eager in zip(kept, wanted, strict=True):
            assert not isinstance(mine, torch.Tensor) or torch.equal(mine, eager)
    assert g.report().replayed > (5 if what == "a hook" else 10)  # which hooks there are is a condition


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[None]:
    """One item for each call of a method."""
    found, original = list[None](), getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        found.append(None)
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)
    return found


def test_many_numbers_are_answered_by_hot_paths(monkeypatch):
    g = rote.graph(lambda x, step, *, name: x * step, keep=True, numerics="plain")
    calls = [(torch.full((3,), float(n)), n % 8, "ab"[n % 2]) for n in range(2 * FIRST_ROUND + 16)]
    for x, step, name in calls:
        g(x, step, name=name)
    general = counted(monkeypatch, rote.Graphed, "_find")
    for x, step, name in calls:
        assert torch.equal(g(x, step, name=name), x * step)
    assert not general
    g.reset()


def test_many_keys_that_rest_are_answered_by_hot_paths(monkeypatch):
    g = rote.graph(lambda x, step: x * x.sum().item() * step)
    for n in range(8 * 400):
        g(torch.full((3,), n / 8), n % 8)
    general = counted(monkeypatch, rote.Graphed, "_find")
    for n in range(40):
        x = torch.full((3,), -n / 8)
        assert torch.equal(g(x, n % 8), x * x.sum().item() * (n % 8))
    assert len(general) < 20
    g.reset()
