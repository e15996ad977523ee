"""Targets that raise, never end, print, crash or need what is not there: a clear answer for each."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
import types

import pytest
import torch
from torch import nn

import rote
from rote.base.errors import MisuseError
from rote.checker.entry import check_work
from rote.checker.isolation import TimeUp, isolated
from rote.hazards.rules.finding import Severity


def test_a_callable_that_raises():
    def fn(x):
        y = x.sum().item()
        raise KeyError(f"no {y:.0f} here")

    findings = rote.check(fn, torch.ones(3))
    assert {finding.code for finding in findings} == {"RT101", "RT161"}
    assert "the callable raised KeyError: 'no 1 here'" in findings.incomplete
    raised = next(finding for finding in findings if finding.code == "RT161")
    assert raised.source.startswith("raise KeyError") and not findings.ok


def test_wrong_shapes_raise_as_in_eager():
    findings = rote.check(lambda x: x @ x, torch.ones(2, 3))
    assert "RuntimeError" in findings.incomplete and "test_hostile.py" in findings.incomplete


def test_a_callable_that_exits():
    findings = rote.check(lambda x: sys.exit(3), torch.ones(3))
    assert "SystemExit" in findings.incomplete


def test_a_callable_that_never_ends():
    def fn(x):
        y = x.sum().item()
        signal.setitimer(
            signal.ITIMER_REAL, 0.01, 1.0
        )  # the time is up now, however long it took to get here
        while y is not None:
            time.sleep(0.01)

    findings = check_work(lambda: (fn, (torch.ones(3),), {}), limit_s=600.0)
    assert "time limit" in findings.incomplete and "test_hostile.py" in findings.incomplete
    assert [finding.code for finding in findings] == ["RT101"]


def test_a_callable_that_does_not_let_itself_be_stopped(monkeypatch):
    monkeypatch.setattr("rote.checker.isolation.GRACE_S", 0.5)

    def fn(x):
        while True:
            time.sleep(0.01)

    def build():
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        return fn, (torch.ones(3),), {}

    findings = check_work(build, limit_s=3.0)
    assert findings.incomplete == "the callable did not end within 3 s"


def test_time_that_is_up_where_nobody_expects_it():
    def never():
        raise TimeUp("the time limit of 3 s was reached")

    answer = isolated(never, 60.0)
    assert (answer.value, answer.error, answer.ended, answer.printed) == (None, None, "time", 0)


def test_a_callable_that_takes_its_process_down():
    findings = rote.check(lambda x: os.kill(os.getpid(), signal.SIGSEGV), torch.ones(3))
    assert "signal SIGSEGV" in findings.incomplete
    findings = rote.check(lambda x: os._exit(7), torch.ones(3))
    assert "status 7" in findings.incomplete


def test_a_callable_that_prints_without_end(capfd):
    def fn(x):
        for _ in range(2000):
            print("x" * 1000)
        return x * 2

    findings = rote.check(fn, torch.ones(3))
    assert findings.ok and findings.printed > 2 * 2000 * 1000  # two calls
    assert capfd.readouterr() == ("", "")


def test_a_builder_that_raises():
    def build():
        raise MisuseError("there is no such policy")

    with pytest.raises(MisuseError, match="there is no such policy"):
        check_work(build)


def test_nothing_of_the_callers_is_changed():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("seen", torch.zeros(1))
            self.calls = []

        def forward(self, x):
            self.calls.append(x)
            self.scale = x.abs().amax()
            self.seen += 1
            return self.linear(x)

    layer, x = Layer(), torch.ones(2, 4)
    before = dict(vars(layer)), list(layer.parameters()), torch.get_rng_state()
    findings = rote.check(layer, x)
    assert {finding.code for finding in findings.errors} == {"RT205", "RT212"}
    assert dict(vars(layer)) == before[0] and not layer.calls and layer.seen.item() == 0
    assert all(type(parameter) is nn.Parameter for parameter in layer.parameters())
    assert torch.equal(torch.get_rng_state(), before[2]) and x.device.type == "cpu"
    assert not hasattr(torch, "pretended")


AFTER_A_BACKWARD = """
import torch, rote
weight = torch.ones(3, requires_grad=True)
(weight * 2).sum().backward()

def step(x):
    weight.grad = None
    (weight * x).sum().backward()
    return weight.grad

print(rote.check(step, torch.ones(3)).ok)
"""


@pytest.mark.usefixtures("warm_python")
def test_a_check_after_a_backward_in_this_process():
    """Where PyTorch has a GPU, the backward starts threads: a fresh process, since this one may have them."""
    done = subprocess.run([sys.executable, "-c", AFTER_A_BACKWARD], capture_output=True, text=True)
    if torch.cuda.is_available():
        assert "EnvironmentError_: a backward on a GPU has started" in done.stderr
        assert "check before the first backward, or from the command line" in done.stderr
    else:
        assert done.stdout == "True\n", done.stderr


def test_autograd_threads_of_the_parent():
    def fn(x):
        raise RuntimeError(
            "Unable to handle autograd's threading in combination with fork-based multiprocessing."
        )

    with pytest.raises(rote.EnvironmentError_, match="check before the first backward, or from the command"):
        rote.check(fn, torch.ones(3))


# ---------------------------------------------------------------------- custom operators


@pytest.fixture
def operators():
    """Operators without and with a fake implementation."""
    library = torch.library.Library("rote_hostile", "DEF")
    library.define("plain(Tensor x) -> Tensor")
    library.define("nowhere(Tensor x) -> (Tensor, Tensor)")
    library.define("described(Tensor x) -> Tensor")
    library.impl("plain", lambda x: x.reshape(-1)[:2].clone(), "CPU")
    library.impl("described", lambda x: x.clone(), "CPU")
    torch.library.register_fake("rote_hostile::described", lambda x: torch.empty_like(x), lib=library)
    yield torch.ops.rote_hostile
    library._destroy()


def test_operators_without_a_fake_implementation_are_unknown(operators):
    def fn(x):
        y = operators.plain(x)
        assert y.shape == (2,)  # from its kernel for the host
        a, b = operators.nowhere(x)
        return y.sum() + a + b + operators.described(x)

    findings = rote.check(fn, torch.ones(2, 4))
    assert [(finding.code, finding.severity) for finding in findings] == [("RT171", Severity.UNKNOWN)] * 2
    assert "rote_hostile::plain" in findings[0].message
    assert "taken to be like its first operand" in findings[1].message
    assert findings.ok  # unknown is not an error; a stricter level says so
    with pytest.raises(rote.HazardError, match="RT171"):
        findings.raise_if("unknown")


# ---------------------------------------------------------------------- large models, other inputs


def test_a_large_model_needs_no_memory():
    def build():
        with torch.device("cuda"):
            layers = [nn.Linear(16384, 16384, dtype=torch.bfloat16) for _ in range(26)]  # 7 billion
            return nn.Sequential(*layers), (torch.randn(1, 16384, dtype=torch.bfloat16),), {}

    assert check_work(build).ok
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 4e6  # kB, of the largest child


def test_weights_that_are_loaded(tmp_path):
    model = nn.Linear(4, 4)
    torch.save(model.state_dict(), tmp_path / "weights.pt")

    def build():
        moved = nn.Linear(4, 4).to("cuda")
        weights = torch.load(tmp_path / "weights.pt", map_location="cuda")
        assert weights["weight"].is_cuda
        moved.load_state_dict(weights)
        moved.load_state_dict(torch.load(tmp_path / "weights.pt", map_location="cpu"))
        return moved, (torch.randn(2, 4, device="cuda"),), {}

    findings = check_work(build)
    assert findings.ok and findings.operations, str(findings)


def test_a_model_made_on_the_host_and_moved():
    def build():
        model = nn.Sequential(nn.Embedding(1000, 64), nn.LSTM(64, 32), nn.Identity()).to("cuda").half()
        model[0].weight.requires_grad_(False)
        assert model[0].weight.device.type == "cuda" and model[1].weight_hh_l0.dtype is torch.float16
        return lambda ids: model[1](model[0](ids))[0], (torch.zeros(3, 2, dtype=torch.long).cuda(),), {}

    assert check_work(build).ok


def test_recurrent_layers_where_there_is_cudnn(monkeypatch):
    """They would give their weights one block of memory for it as soon as they are on the device."""
    monkeypatch.setattr(torch.backends.cudnn, "is_acceptable", lambda tensor: True)
    monkeypatch.setattr(torch, "_use_cudnn_rnn_flatten_weight", lambda: True)
    findings = rote.check(nn.GRU(4, 8), torch.randn(2, 3, 4))
    assert not findings and not findings.incomplete, str(findings)


def test_arguments_in_containers_and_objects(device):
    ones = torch.ones(3, device=device)
    batch = types.SimpleNamespace(x=ones, items=[ones * 2])

    def fn(batch, table, *, scale):
        return batch.x + batch.items[0] + table["a"][0] * scale

    findings = rote.check(fn, batch, {"a": (ones * 3,)}, scale=2.0)
    assert findings.ok and findings.operations == 3, str(findings)


def test_generators_of_devices_are_not_read(monkeypatch):
    """A check runs in a forked process, which can't read them."""

    class Unreadable:
        def get_state(self):
            raise RuntimeError("CUDA error: initialization error")

    monkeypatch.setattr(torch.cuda, "default_generators", (Unreadable(),))
    findings = rote.check(lambda x: x * 2, torch.ones(3))
    assert not findings and not findings.incomplete, str(findings)


def test_a_graphed_callable():
    findings = rote.check(rote.graph(lambda x: x * x.sum().item()), torch.ones(3))
    assert [finding.code for finding in findings] == ["RT101"] and not findings.incomplete


def test_the_second_call_raises():
    calls = []

    def fn(x):
        y = x.sum().item() if not calls else 1.0
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("once is enough")
        return x * y

    findings = rote.check(fn, torch.ones(3))
    assert {finding.code for finding in findings} == {"RT101", "RT161"}
    assert "once is enough" in findings.incomplete


def test_the_call_path():
    def inner(x):
        return x.item()

    def outer(x):
        return inner(x.sum()) + 1

    (finding,) = rote.check(outer, torch.ones(3))
    assert [site.function for site in finding.path] == ["outer", "inner"]
    assert finding.source == "return x.item()" and finding.column == len("            return ") - 3
    assert "float32[]" in finding.evidence


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_scripted_module_as_the_callable():
    class Chosen(nn.Module):
        def forward(self, x):
            if bool(x.sum() > 0):
                return x
            return -x

    (found,) = rote.check(torch.jit.script(Chosen()), torch.ones(3))
    assert found.code == "RT101" and found.source == "if bool(x.sum() > 0):"
    traced = torch.jit.trace(nn.Linear(2, 2), torch.ones(2, 2))
    findings = rote.check(traced, torch.ones(2, 2))
    assert not list(findings) and not findings.incomplete and findings.operations
    findings = rote.check(lambda x: traced(x) * 2, torch.ones(2, 2))
    assert not list(findings) and not findings.incomplete


def test_lazy_modules_have_to_be_called_first():
    lazy = nn.Sequential(nn.Linear(2, 2), nn.LazyLinear(3))
    with pytest.raises(MisuseError, match=r"Sequential\.1\.weight has no shape yet.* call the module once"):
        rote.check(lazy, torch.ones(2, 2))
    lazy(torch.ones(2, 2))
    assert not list(rote.check(lazy, torch.ones(2, 2)))


def stored_in_a_dict(x, out):
    out["y"] = x * 2
    return x


def stored_in_an_object(x, out):
    out.y = x * 2
    return x


def nested_in_a_dict(x, out):
    out["y"] = [x * 2]
    return x


@pytest.mark.parametrize(
    ("fn", "given", "severity"),
    [
        (stored_in_a_dict, {}, Severity.SPEED),
        (stored_in_an_object, types.SimpleNamespace(), Severity.SPEED),
        (nested_in_a_dict, {}, Severity.WRONG),
    ],
)
def test_what_a_replay_stores_again_in_an_argument_is_no_error(fn, given, severity):
    findings = rote.check(fn, torch.ones(3), given)
    assert {(each.code, each.severity) for each in findings} == {("RT207", severity)}
    assert findings.ok is (severity is Severity.SPEED)
