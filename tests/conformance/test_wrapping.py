"""What can be wrapped, and that it still answers as it did."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import sys
import weakref

import pytest
import torch
from torch import nn

import rote
from rote import MisuseError, OptionError
from rote.testing import assert_pool_empty, compare, count_recordings

WARM = rote.Options().warmup + 1


def scaled(x, *, by=2.0):
    """Scales."""
    return x * by


def test_a_function(device):
    g = compare(scaled, [(torch.randn(3, device=device),) for _ in range(5)])
    assert g.__name__ == "scaled" and g.__doc__ == "Scales." and g.__wrapped__ is scaled
    assert repr(g) == f"<rote.graph of scaled: 5 calls, {5 - WARM} replayed>"


def test_decorators(device):
    @rote.graph
    def plain(x):
        return x + 1

    @rote.graph(warmup=3)
    def slow(x):
        return x + 1

    for g, replayed in ((plain, 5 - WARM), (slow, 1)):
        for _ in range(5):
            assert g(torch.ones(2, device=device)).tolist() == [2.0, 2.0]
        assert g.report().replayed == replayed


def test_a_module_still_answers_as_one(device):
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.BatchNorm1d(4)).to(device)
    g = rote.graph(module)
    assert list(g.parameters()) == list(module.parameters())
    assert g.state_dict().keys() == module.state_dict().keys()
    assert g[0] is module[0] if hasattr(type(g), "__getitem__") else g._modules["0"] is module[0]
    assert g.training
    g.eval()
    assert not module.training and not g.training
    x = torch.randn(2, 4, device=device)
    with torch.no_grad():
        for _ in range(5):
            assert torch.equal(g(x), module(x))
    g.extra = 3
    assert module.extra == 3
    assert g.report().replayed == 5 - WARM


def test_training_flags_are_seen(device):
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).to(device)
    g, x = rote.graph(module), torch.randn(64, 4, device=device)
    with torch.no_grad():
        for _ in range(2):
            for train in (True, False):
                module.train(train)
                for seed in range(5):
                    torch.manual_seed(seed)
                    expected = module(x)
                    torch.manual_seed(seed)
                    assert torch.equal(g(x), expected)
    assert count_recordings(g) == 2


def test_a_bound_method(device):
    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def act(self, x):
            return self.layer(x)

    policy = Policy().to(device)
    g = rote.graph(policy.act)
    with torch.no_grad():
        for _ in range(5):
            x = torch.randn(2, 3, device=device)
            assert torch.equal(g(x), policy.act(x))
    assert g.report().replayed == 5 - WARM and g.report().name == "Policy.act"


def test_a_method_graphed_in_the_class(device):
    class Scale:
        def __init__(self, by):
            self.by = torch.tensor(by, device=device)

        @rote.graph
        def __call__(self, x):
            return self.apply(x)

        @rote.graph
        def apply(self, x):
            return x * self.by

    first, second = Scale(2.0), Scale(5.0)
    x = torch.ones(2, device=device)
    for _ in range(5):
        assert first.apply(x).tolist() == [2.0, 2.0]
        assert second.apply(x).tolist() == [5.0, 5.0]
    assert first.apply.report().replayed == 5 - WARM
    assert isinstance(Scale.apply, rote.Graphed)


def test_a_method_of_a_class_without_dict():
    class Small:
        __slots__ = ()

        @rote.graph
        def apply(self, x):
            return x

    with pytest.raises(MisuseError) as caught:
        _ = Small().apply
    assert str(caught.value) == (
        "test_a_method_of_a_class_without_dict.<locals>.Small.apply is graphed as a method, but Small cannot "
        "be referenced weakly (it has __slots__ without __weakref__); graph the bound method: "
        "rote.graph(instance.method)"
    )


def test_closures_and_partials(device):
    scale = torch.tensor(3.0, device=device)

    def make():
        offset = torch.tensor(1.0, device=device)
        return lambda x: x * scale + offset

    x = torch.ones(2, device=device)
    for fn in (make(), functools.partial(scaled, by=4.0)):
        compare(fn, [(x,)] * 5)


def test_wrappers_within_wrappers(device):
    inner = rote.graph(scaled)
    outer = rote.graph(lambda x: inner(x) + 1)
    for _ in range(5):
        assert outer(torch.ones(2, device=device)).tolist() == [3.0, 3.0]
    assert outer.report().replayed == 5 - WARM and inner.report().calls == 0


def test_a_disabled_wrapper_is_a_plain_call(device):
    g = rote.graph(scaled, enabled=False)
    for _ in range(5):
        g(torch.ones(2, device=device))
    assert g.report().calls == 0


def test_environment(device, monkeypatch):
    x = torch.ones(2, device=device)
    monkeypatch.setenv("ROTE_DISABLE", "1")
    off = rote.graph(scaled)
    monkeypatch.setenv("ROTE_DISABLE", "0")
    monkeypatch.setenv("ROTE_STRICT", "true")
    strict = rote.graph(scaled)
    monkeypatch.delenv("ROTE_STRICT")
    neither = rote.graph(scaled)
    for _ in range(5):
        for g in (off, strict, neither):
            assert g(x).tolist() == [2.0, 2.0]
    assert off.report().calls == 0
    assert neither(torch.ones(3, device=device)).tolist() == [2.0] * 3
    with pytest.raises(rote.NotReplayedError, match="RT306"):
        strict(torch.ones(3, device=device))


def test_what_cannot_be_wrapped():
    with pytest.raises(MisuseError, match=r"^rote\.graph needs a callable, not a int$"):
        rote.graph(3)
    g = rote.graph(scaled)
    with pytest.raises(
        MisuseError, match=r"^this callable is graphed already; pass the plain one to rote\.graph$"
    ):
        rote.graph(g)
    with pytest.raises(OptionError, match=r"^warmupp is no option of rote\.graph; the options are backend, "):
        rote.graph(scaled, warmupp=1)


class Holder(nn.Module):
    """Calls a graphed child."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 3)
        self.fast = rote.graph(self.net, warmup=2)

    def forward(self, x):
        return self.fast(x)


class Replaced(nn.Module):
    """Its forward is replaced by the graphed one."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 3)
        self.forward = rote.graph(self.forward)

    def forward(self, x):
        return self.net(x)


class Methods(nn.Module):
    """Has graphed methods, one of them kept."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 3)
        self.kept = self.forward

    @rote.graph
    def forward(self, x):
        return self.net(x)


@rote.graph
def doubled(x):
    return 2 * x


WAYS = {"deepcopy": copy.deepcopy, "pickle": lambda value: pickle.loads(pickle.dumps(value))}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [Holder, Replaced, Methods])
def test_a_copy_has_recordings_of_its_own(device, make, way):
    """As exponential averages, target networks and saved models need it."""
    holder = make().to(device)
    x = torch.randn(2, 3, device=device)
    with torch.no_grad():
        for _ in range(5):
            wanted = holder(x)
        copied = WAYS[way](holder)
        assert torch.equal(copied(x), wanted)
        copied.net.weight.add_(1)
        for _ in range(6):
            assert torch.equal(copied(x), copied.net(x)) and torch.equal(holder(x), wanted)
            assert make is not Methods or torch.equal(copied.kept(x), copied.net(x))
    g = {Holder: lambda: copied.fast, Replaced: lambda: copied.forward, Methods: lambda: copied.kept}[make]()
    assert g.report().replayed >= 4


class Hooked(nn.Module):
    """Knows itself by a hook, and what is graphed is reached by it."""

    how = "method"

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 3)
        self.net.register_forward_hook(self.look)
        self.last = None
        if self.how == "forward":
            self.forward = rote.graph(self.forward)
        elif self.how == "child":
            self.child = rote.graph(self.net)

    def look(self, module, inputs, result):
        pass

    def forward(self, x):
        return self.net(x)

    @rote.graph
    def method(self, x):
        return self.net(x)


@pytest.mark.parametrize("end", ["backward", "detached", "pending", "no_grad"])
@pytest.mark.parametrize("how", ["method", "forward", "child"])
def test_a_module_in_a_cycle_dies_with_its_recordings(device, how, end):
    """Nothing of a recording lies where the garbage collector does not look."""
    holder = type("Held", (Hooked,), {"how": how})().to(device)
    with torch.set_grad_enabled(end != "no_grad"):
        for _ in range(6):
            y = getattr(holder, how)(torch.ones(2, 3, device=device)).sum()
            if end == "backward":
                y.backward()
    assert getattr(holder, how).report().replayed, getattr(holder, how).explain()
    holder.last = y if end == "pending" else y.detach()
    alive = [weakref.ref(holder), weakref.ref(holder.net.weight)]
    del holder, y
    gc.collect()
    assert [reference() for reference in alive] == [None, None]
    assert_pool_empty()


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_keeps_the_options(way):
    for warmup in (1, 3):
        g = WAYS[way](rote.graph(nn.Linear(3, 3), warmup=warmup))
        with torch.no_grad():
            for _ in range(6):
                g(torch.ones(2, 3))
        assert g.report().replayed == 5 - warmup


@pytest.mark.parametrize("graphed", [doubled, Methods.forward])
def test_one_that_has_a_place_in_its_module_is_found_there(graphed):
    for way in WAYS.values():
        assert way(graphed) is graphed


def test_a_callable_that_has_no_place_cannot_be_pickled():
    with pytest.raises((pickle.PicklingError, AttributeError), match="pickle"):
        pickle.dumps(rote.graph(lambda x: x))


def test_a_missing_attribute():
    with pytest.raises(AttributeError, match="nothing_there"):
        _ = rote.graph(scaled).nothing_there


def test_reset_frees_everything(device):
    g = rote.graph(lambda x: (x * 2).exp())
    x = torch.randn(100, device=device)
    for _ in range(2):
        for _ in range(5):
            g(x)
        assert count_recordings(g) == 1 and g.report().calls == 5
        g.reset()
        report = g.report()
        assert (report.calls, report.recordings, report.reasons) == (0, (), ())


def test_cuda_without_cuda():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(rote.EnvironmentError_) as caught:
        rote.graph(scaled, backend="cuda")(torch.ones(2))
    assert str(caught.value) == (
        'backend="cuda" was asked for, but torch.cuda.is_available() is False. '
        'Use backend="auto" or backend="host", or install a CUDA build of PyTorch.'
    )


def test_while_somebody_captures(device, monkeypatch):
    """The call is theirs. That a real capture is noticed is tried in tests/cuda/test_capture.py."""
    g = rote.graph(scaled)
    with monkeypatch.context() as patch:
        patch.setattr("rote.api.graphed.is_captured", lambda: True)
        for _ in range(5):
            assert g(torch.ones(2, device=device)).tolist() == [2.0, 2.0]
    assert g.report().calls == 0
    for _ in range(5):
        assert g(torch.ones(2, device=device)).tolist() == [2.0, 2.0]
    assert g.report().replayed == 5 - WARM


def test_a_method_tells_where_its_reports_are():
    holder = Methods()
    with torch.no_grad():
        for _ in range(4):
            holder(torch.ones(2, 3))
    text = "as a method of 1 with a report of its own each: instance.forward.explain()"
    assert text in Methods.forward.explain() and text not in holder.forward.explain()
    assert "4 calls, 2 replayed" in holder.forward.explain()
    assert "as a method" not in rote.graph(functools.partial(scaled, by=3.0)).explain()


def test_it_dies_when_the_names_of_its_module_are_gone(device, monkeypatch):
    """As at the end of the interpreter, where an error would be printed and not raised."""
    g = rote.graph(lambda x: x * 2)
    for _ in range(4):
        g(torch.ones(3, device=device))
    for name in ("sys", "functools", "weakref"):
        monkeypatch.setattr(sys.modules["rote.api.graphed"], name, None)
    g.__del__()
