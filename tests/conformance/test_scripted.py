"""Code of TorchScript: its constants, which lie in no object of Python."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import rote
from rote.testing import assert_same

CALLS = 10

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")


def with_constants(x, y: float):
    return x * y + torch.tensor([1.0, 2.0, 3.0])


def with_others(x, y: float):
    return x * y + torch.tensor([5.0, 6.0, 7.0])


class Layer(nn.Module):
    scale: torch.jit.Final[float]

    def __init__(self, scale=2.0):
        super().__init__()
        self.scale = scale
        self.lin = nn.Linear(3, 3)
        self.register_buffer("shift", torch.arange(3.0))

    def forward(self, x):
        return self.lin(x) * self.scale + self.shift


def frozen(device, scale=2.0):
    with torch.no_grad():
        return torch.jit.freeze(torch.jit.script(Layer(scale).to(device).eval()))


def traced(device, scale=2.0):
    constant = torch.arange(3.0, device=device)
    return torch.jit.trace(lambda x: x * scale + constant, (torch.ones(3, device=device),))


def traced_module(device, scale=2.0):
    return torch.jit.trace(Layer(scale).to(device), (torch.ones(3, device=device),))


MAKERS = [frozen, traced, traced_module]
"""On CUDA PyTorch fuses them once they have run; nobody sees what a fused kernel gives: the call is eager."""


@pytest.mark.parametrize("make", MAKERS)
def test_constants(device, make):
    m = make(device)
    g = rote.graph(m)
    with torch.no_grad():
        for n in range(CALLS):
            x = torch.full((3,), float(n), device=device)
            assert torch.equal(g(x), m(x))
    assert device.type != "cpu" or g.report().replayed >= CALLS - 6, g.explain()


def test_a_function(device):
    """What is folded into a constant lies on the host."""
    if device.type != "cpu":
        pytest.skip("device.type is not cpu")
    script = torch.jit.script(with_constants)
    g = rote.graph(lambda x: script(x, 2.0) * 2)
    for n in range(CALLS):
        x = torch.full((3,), float(n), device=device)
        assert torch.equal(g(x), with_constants(x, 2.0) * 2)
    assert g.report().replayed >= CALLS - 6, g.explain()


@pytest.mark.parametrize("make", MAKERS)
def test_another_one_comes_in_its_place(device, make):
    models = [make(device, 2.0), make(device, 3.0)]
    holder = nn.Module()
    holder.inner = models[0]
    g = rote.graph(lambda x: holder.inner(x) + 1)
    with torch.no_grad():
        for n in range(3 * CALLS):
            if n % 10 == 0:
                holder.inner = models[n // 10 % 2]
            x = torch.full((3,), float(n), device=device)
            assert torch.equal(g(x), holder.inner(x) + 1)
    assert device.type != "cpu" or g.report().replayed >= CALLS, g.explain()


def test_another_function(device):
    """What is folded into a constant lies on the host."""
    if device.type != "cpu":
        pytest.skip("device.type is not cpu")
    functions = {"f": torch.jit.script(with_constants)}
    g = rote.graph(lambda x: functions["f"](x, 2.0))
    for n in range(2 * CALLS):
        if n == CALLS:
            functions["f"] = torch.jit.script(with_others)
        x = torch.full((3,), float(n), device=device)
        assert torch.equal(g(x), functions["f"](x, 2.0))
    assert g.report().replayed >= CALLS - 4, g.explain()


def test_a_constant_that_is_written(device):
    """Somebody who has the tensor changes what it holds."""
    constant = torch.arange(3.0, device=device)
    m = torch.jit.trace(lambda x: x + constant, (torch.ones(3, device=device),))
    graph = m.inlined_graph
    (node,) = [each for each in graph.findAllNodes("prim::Constant") if each.kindOf("value") == "t"]
    g = rote.graph(m)
    for n in range(2 * CALLS):
        if n == CALLS:
            node.t("value").fill_(7.0)
        x = torch.full((3,), float(n), device=device)
        assert torch.equal(g(x), m(x))


LED = SimpleNamespace(count=0)


@torch.jit.ignore
def count_now() -> float:
    return float(LED.count)


def led_by_python(x: torch.Tensor) -> torch.Tensor:
    if count_now() > 20.0:
        return x * 2 + 1
    return x * 3 + 1


def test_python_that_a_script_calls_leads_it(device):
    """A number that changes is handed to the script: what it does with that nobody sees."""
    LED.count = 0
    script = torch.jit.script(led_by_python)

    def fn(x):
        LED.count += 1
        return x * LED.count + script(x)

    g = rote.graph(fn)
    for number in range(26):
        x = torch.full((3,), float(number), device=device)
        expected = x * (number + 1) + (x * (2 if number + 1 > 20 else 3) + 1)
        assert torch.equal(g(x), expected), f"call {number}"


def scaled_by_size(x: torch.Tensor, factor: int):
    return x / torch.sqrt(torch.tensor(x.size(-1), dtype=torch.float) * factor)


def told(x: torch.Tensor, least: int):
    return torch.tensor(max(x.size(0), least))


def told_several(x: torch.Tensor, factor: int):
    number = torch.tensor(x.size(0) * factor)
    return number, [torch.tensor(factor), number], x * number + number


def made_and_written(x: torch.Tensor, factor: int):
    number = torch.tensor(float(factor))
    number.add_(1.0)
    return x * number


def given_a_number(x: torch.Tensor, number: torch.Tensor, factor: int):
    return x * number * torch.tensor(factor)


def given_numbers(x: torch.Tensor, numbers: list[torch.Tensor], factor: int):
    return x * numbers[0] * torch.tensor(factor)


def led_by_a_value(x: torch.Tensor, factor: int):
    return x * torch.tensor(int(x.sum().item()) + factor)


SCRIPTS = [
    scaled_by_size,
    told,
    told_several,
    made_and_written,
    given_a_number,
    given_numbers,
    led_by_a_value,
]


def _of_several(s, x):
    number, listed, found = s.told_several(x, s.factor)
    return found * listed[0] + listed[1] - number, number


NUMBERS = {
    "size": lambda s, x: s.scaled_by_size(x, s.factor),
    "returned": lambda s, x: x * s.told(x, s.factor) + s.told(x, 1).to(x.dtype),
    "handed out": lambda s, x: s.told(x, s.factor),
    "several": _of_several,
    "written": lambda s, x: s.made_and_written(x, s.factor),
    "given": lambda s, x: s.given_a_number(x, s.number, s.factor),
    "given in a list": lambda s, x: s.given_numbers(x, [s.number], s.factor),
    "value": lambda s, x: s.led_by_a_value(x, s.factor),
    "gradient": lambda s, x: torch.autograd.grad(
        s.given_a_number((y := x.detach().requires_grad_()), s.number, s.factor).sum(), y
    )[0],
    "in state": lambda s, x: (setattr(s, "kept", s.told(x, s.factor)), x * s.kept)[1],
}


@pytest.mark.parametrize("way", NUMBERS)
def test_numbers_that_a_script_makes(device, way):
    """They are made past the dispatcher, of sizes and numbers that are seen."""

    def state():
        scripts = {each.__name__: torch.jit.script(each) for each in SCRIPTS}
        return SimpleNamespace(factor=2, number=torch.tensor(3.0), kept=None, **scripts)

    ours, theirs = state(), state()
    g = rote.graph(lambda x: NUMBERS[way](ours, x), keep=True)
    for call in range(3 * CALLS):
        for each in (ours, theirs):
            if call in (8, 20):
                each.factor += 5
            if call == 12:
                each.number.fill_(7.0)
            if call == 16:
                each.number = torch.tensor(11.0)
        size = 5 if call in (10, 17, 18, 19) else 3
        x = torch.full((size, 4), float(call % 2), device=device)
        assert_same(g(x), NUMBERS[way](theirs, x), f"call {call}")
        assert_same(ours.kept, theirs.kept, f"kept by call {call}")
    if way != "gradient" and device.type == "cpu":  # autograd keeps the number itself
        assert g.report().replayed >= CALLS, g.explain()


def _step_inside(wrap, net, weights, optimizer):
    def step(x):
        loss = net(x).square().mean() + 0.1 * sum([each.square().sum() for each in weights])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return wrap(step)


def _gradients_asked_for(wrap, net, weights, optimizer):
    def step(x):
        found = torch.autograd.grad(net(x).square().mean(), weights)
        for each, gradient in zip(weights, found, strict=True):
            each.grad = gradient.clone()
        optimizer.step()
        return found[0]

    return wrap(step)


def _backward_outside(wrap, net, weights, optimizer):
    forward = wrap(lambda x: net(x).square().mean())

    def step(x):
        loss = forward(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@pytest.mark.parametrize("step", [_step_inside, _gradients_asked_for, _backward_outside])
@pytest.mark.parametrize("make", [torch.jit.script, lambda net: torch.jit.trace(net, torch.ones(2, 3))])
def test_gradients_come_to_what_a_script_holds(device, make, step):
    """What stands for a parameter in Python is not what a script reads: its module holds it in C++."""
    if device.type != "cpu":
        pytest.skip("device.type is not cpu")

    def play(wrap):
        torch.manual_seed(0)
        net = make(nn.Sequential(Layer(), nn.ReLU(), nn.Linear(3, 2)))
        weights = list(net.parameters())
        optimizer = torch.optim.SGD(weights, 0.05, momentum=0.9)
        act, seen = step(wrap, net, weights, optimizer), []
        for n in range(26):
            if n == 17:
                with torch.no_grad():
                    weights[0].mul_(2.0)
            seen.append([act(torch.full((2, 3), n / 10.0)).tolist()])
            seen[-1] += [(each.tolist(), each.grad.tolist()) for each in weights]
        return seen

    graphs = []
    found = play(lambda function: graphs.append(rote.graph(function, keep=True)) or graphs[-1])
    assert found == play(lambda function: function)
    if step is not _backward_outside:  # there a script may keep what it needs for a backward
        assert graphs[0].report().replayed >= 12, graphs[0].explain()
