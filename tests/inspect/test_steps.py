"""What is shown of a call: its steps, the module and line of each operation, what was measured."""

import torch
from torch import nn

import rote
from rote.inspect import ShownCallable
from rote.inspect.modules import ModuleNames
from rote.inspect.steps import _matched
from rote.runtime.program.operations.operation import Operation
from rote.runtime.recording import Launched, Node


def shown(g, *args):
    """The call with most replays, or one that is made."""
    _, call, _ = g._shown_call(args or None, None, None)
    return call


def test_each_operation_has_its_module_and_line(policy):
    call = shown(policy[0])
    found = [(node.operator, node.module, node.text) for node in call.nodes]
    assert found == [
        *[
            (name, f"Policy.blocks.{number}{part}", text)
            for number in (0, 1)
            for name, part, text in [
                ("aten::native_layer_norm", ".norm", "y = self.up(self.norm(x))"),
                ("aten::addmm", ".up", "y = self.up(self.norm(x))"),
                ("aten::relu", "", "return x + y.relu() * 2"),
                ("aten::mul.Tensor", "", "return x + y.relu() * 2"),
                ("aten::add.Tensor", "", "return x + y.relu() * 2"),
            ]
        ],
        ("aten::addmm", "Policy.head", "y = self.head(x)"),
        ("aten::gt.Scalar", "Policy", "return y[y[:, 0] > -100].sum()"),
        ("aten::index.Tensor", "Policy", "return y[y[:, 0] > -100].sum()"),
        ("aten::sum", "Policy", "return y[y[:, 0] > -100].sum()"),
    ]
    assert [step.kind for step in call.steps] == ["segment", "host read", "segment"]
    assert call.us is None and {node.us for node in call.nodes} == {None}
    assert {node.tier for node in call.nodes} == {"plain", ""}


def test_a_call_that_is_made_is_measured_and_gives_what_plain_gives(policy):
    g, x = policy
    plain, replayed = g.__wrapped__(x), g.report().replayed
    value, call, _ = g._shown_call((x,), {}, None)
    assert torch.equal(value, plain)
    assert g.report().replayed == replayed + 1
    assert [node.operator for node in call.nodes] == [node.operator for node in shown(g).nodes]
    assert all(node.us > 0 and not node.shared for node in call.nodes)
    assert call.us == sum(step.us for step in call.steps)
    assert abs(call.us - sum(node.us for node in call.nodes)) < 1e-6


def test_state_and_random_numbers_are_those_of_one_call():
    def step(x):
        total.add_(x)
        return torch.rand(3) + total

    total = torch.zeros(3)
    g = rote.graph(step, keep=True)
    for _ in range(4):
        g(torch.ones(3))
    torch.manual_seed(5)
    value, call, _ = g._shown_call((torch.ones(3),), None, None)
    torch.manual_seed(5)
    assert torch.equal(total, torch.full((3,), 5.0)) and torch.equal(value, torch.rand(3) + 5)
    assert "aten::rand" in {node.operator for node in call.nodes}


def test_a_call_that_is_not_replayed_has_no_steps(policy):
    g, _ = policy
    fresh = torch.randn(7, 8)
    value, call, _ = g._shown_call((fresh,), None, None)
    assert torch.equal(value, g.__wrapped__(fresh)) and call.steps == () and call.us > 0


def test_another_way_of_a_recording_is_the_one_that_is_shown():
    def branching(x):
        return x.neg() if x.sum() > 0 else x.exp()

    g, one = rote.graph(branching, keep=True), torch.ones(2)
    for _ in range(4):
        g(one), g(-one)
    _, up, _ = g._shown_call((one,), None, None)
    _, down, _ = g._shown_call((-one,), None, None)
    assert up.nodes[-1].operator == "aten::neg" and down.nodes[-1].operator == "aten::exp"


def test_what_is_captured_anew_has_its_tier():
    def repeated(x):
        x.cos()  # nobody reads it
        return (x + 1) * (x + 1)

    g, x = rote.graph(repeated, keep=True), torch.randn(64)
    for number in range(5):
        if number == 4:
            next(iter(g._keys.entries.values())).recordings[0].improve_at(0)
        g(x)
    assert g.report().recordings[0].tier.used
    for _, call, _ in (g._shown_call(None, None, None), g._shown_call((x,), None, None)):
        assert [(node.operator, node.tier) for node in call.nodes] == [
            ("aten::add.Tensor", "exact"),
            ("aten::mul.Tensor", "exact"),
        ]


def test_what_was_seen_is_put_to_what_was_captured():
    node = Node([Operation("captured", name, (), (), (), "none", None) for name in "abcd"])
    launched = [Launched((0,), "plain"), Launched((1,), "plain"), Launched((2, 3), "fused")]
    seen = [("a", 1e-6), ("part of a", 2e-6), ("rote::kernel", 4e-6), ("copy", 8e-6)]
    assert [round(us or -1) for us in _matched(node, launched, seen)] == [3, -1, 12]


def test_modules_are_found_where_a_callable_names_them():
    model = nn.Linear(2, 2)

    class Agent:
        def __init__(self):
            self.net = model

        def act(self, x):
            return self.net(x)

    handle = model.weight.untyped_storage()._cdata
    for function in (lambda x: model(x), Agent().act, model.forward):
        (name,) = {ModuleNames(function, "f", ()).owner([handle])}
        assert name in ("model", "net", "Linear")
    assert ModuleNames(len, "len", ()).owner([handle]) == ""
    assert ShownCallable(len, "len").most_replayed([]) == (None, None)
