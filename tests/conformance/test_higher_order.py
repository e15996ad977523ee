"""Operators over Python functions: torch.cond, loops, attention with a function of scores."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention

import rote
from rote.testing import compare

SIGNS = [1, 1, 1, -1, 1, -1, 2, -2, -1, -1]
SCALE = 2.0


def signs(device):
    return [(torch.full((3,), float(sign), device=device),) for sign in SIGNS]


def _cond(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda part: part + 1, lambda part: part - 1, (x * 2,))


def _while(x: torch.Tensor) -> torch.Tensor:
    first = torch.zeros((), dtype=torch.int64, device=x.device)
    return while_loop(lambda n, _: n < 3, lambda n, part: (n + 1, part * 2), (first, x))[1]


def _while_on_data(x: torch.Tensor) -> torch.Tensor:
    return while_loop(lambda part: part.sum() < 3, lambda part: (part + 1,), (x,))[0]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("fn", [_cond, _while, _while_on_data])
def test_branches_and_loops(device, fn, mode):
    g = compare(mode()(fn), signs(device))
    assert g.report().replayed >= 3, g.explain()


def test_a_number_that_a_branch_reads(device):
    global SCALE
    g = rote.graph(fn := lambda x: torch.cond(x.sum() > 0, lambda part: part * SCALE, torch.neg, (x,)))
    try:
        for call, (x,) in enumerate(signs(device)):
            SCALE = 2.0 if call < 6 else 5.0
            assert g(x).equal(fn(x))
    finally:
        SCALE = 2.0
    assert g.report().replayed >= 2, g.explain()


def test_a_branch_with_gradients(device):
    def make():
        torch.manual_seed(0)
        return nn.Linear(3, 3, device=device)

    def forward(layer, x):
        return torch.cond(x.sum() > 0, lambda part: layer(part).tanh(), lambda part: layer(part) * 2, (x,))

    layer, twin = make(), make()
    g = rote.graph(lambda x: forward(layer, x))
    for (x,) in signs(device):
        ours, theirs = g(x), forward(twin, x)
        assert ours.equal(theirs)
        for found, model in ((ours, layer), (theirs, twin)):
            model.zero_grad()
            found.square().sum().backward()
        assert layer.weight.grad.equal(twin.weight.grad)


def test_a_training_step_with_a_branch(device):
    def step(x):
        weight = torch.ones(3, device=x.device, requires_grad=True)
        y = torch.cond(x.sum() > 0, lambda part, w: part * w, lambda part, w: part - w * w, (x, weight))
        return torch.autograd.grad(y.square().sum(), weight)[0]

    compare(step, signs(device))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_loop_with_gradients(device):
    weight = torch.full((3,), 2.0, device=device, requires_grad=True)

    def fn(x):
        return _while(x * weight).sum()

    g = rote.graph(fn)
    for (x,) in signs(device):
        ours, theirs = (torch.autograd.grad(function(x), weight)[0] for function in (g, fn))
        assert ours.equal(theirs)


def _scan(x: torch.Tensor) -> torch.Tensor:
    return scan(lambda carry, part: (carry + part, carry * part), torch.zeros((), device=x.device), x)[1]


def _flex(x: torch.Tensor) -> torch.Tensor:
    q = x.repeat(48).view(1, 1, 9, 16)
    return flex_attention(q, q, q, score_mod=lambda score, *_: score * 2)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("fn", "name"), [(_scan, "scan"), (_flex, "flex_attention")])
def test_others_run_eagerly(device, fn, name, reason):
    g = compare(torch.no_grad()(fn), signs(device))
    assert g.report().replayed == 0
    found = reason(g, "RT601")
    assert found.message == f"{name} takes Python functions"
    assert found.remedy == "Write the branch or the loop in Python, or call it outside."


class _Square(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient * ctx.saved_tensors[0]


@pytest.mark.parametrize("transform", [
    lambda fn: torch.func.grad(fn),
    lambda fn: torch.func.vmap(torch.func.grad(fn)),
    lambda fn: torch.func.vmap(fn),
    lambda fn: torch.func.jacrev(fn),
])  # fmt: skip
def test_functions_with_gradients_of_their_own_run_eagerly(device, transform, reason):
    weight = nn.Parameter(torch.full((), 3.0, device=device))
    fn = transform(lambda x: (_Square.apply(x) * weight).sum())
    g = rote.graph(fn)
    for _ in range(4):
        x = torch.ones(2, 2, device=device).diagonal() + 1.0
        found, expected = g(x), fn(x)
        assert found.equal(expected)
        gradients = [torch.autograd.grad(each.sum(), weight)[0] for each in (found, expected)]
        assert gradients[0].equal(gradients[1])
    assert reason(g, "RT601").message == "custom_function_call takes Python functions"


def test_others_with_gradients_are_refused(device):
    with pytest.raises(rote.MisuseError, match=r"scan takes Python functions .* where gradients are enabled"):
        rote.graph(_scan)(torch.ones(3, device=device))


@pytest.mark.usefixtures("warm_python")
def test_the_compiler_comes_in_the_first_call():
    program = """
        import sys, torch, rote

        def fn(x):
            return torch.cond(x.sum() > 0, lambda part: part + 1, lambda part: part - 1, (x,))

        assert "torch._dynamo" not in sys.modules
        original, g = torch.compile, rote.graph(fn)
        for sign in (1, 1, -1, 1, 1):
            assert g(torch.ones(3) * sign).equal(torch.ones(3) * (sign + sign))
        assert torch.compile is original and g.report().replayed
        assert fn(torch.ones(3)).equal(torch.ones(3) * 2)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=300)
