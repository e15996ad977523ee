"""What a call does to tensors of its caller besides writing values: each call does it, or none replays."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import rote

CALLS = 7


def shown(tensor):
    """All that a caller sees of a tensor but its values and its place in memory."""
    attributes = {name: repr(value) for name, value in vars(tensor).items()}
    hooks = [len(getattr(tensor, name) or ()) for name in ("_backward_hooks", "_post_accumulate_grad_hooks")]
    gradient = tensor.grad.tolist() if tensor.is_leaf and tensor.grad is not None else None
    flags = (tensor.requires_grad, tensor.is_leaf, tensor.retains_grad, type(tensor).__name__)
    return tensor.tolist(), flags, hooks, gradient, tuple(tensor.shape), tensor.stride(), attributes


def plain(device):
    return torch.arange(4.0, device=device)


def leaf(device):
    return torch.arange(4.0, device=device).requires_grad_()


def branch(device):
    return torch.arange(4.0, device=device).requires_grad_() * 1


def compare(device, change, make):
    """Calls that change a fresh argument each, plain and graphed."""

    def call(x):
        change(x)
        return x.detach() * 2

    def observe(function):
        for _ in range(CALLS):
            x = make(device)
            y = function(x)
            yield shown(x), y.tolist()

    graphed = rote.graph(call)
    assert list(observe(graphed)) == list(observe(call))
    return graphed


def tag(x):
    x.tag = "a"


def tag_by_name(x):
    setattr(x, "t" + "ag", 5)


def tag_in_the_dict(x):
    x.__dict__["tag"] = [1]


def set_class(x):
    x.__class__ = nn.Parameter


def set_data(x):
    x.data = torch.ones_like(x)


def set_gradient(x):
    x.grad = torch.ones_like(x)


def freeze(x):
    x.requires_grad = False


def hook(x):
    x.register_hook(lambda g: g * 2)


def hook_after(x):
    x.register_post_accumulate_grad_hook(lambda x: None)


CHANGES = [
    (torch.Tensor.detach_, branch, "RT403", "the history of args[0] was MulBackward0 and is None"),
    (torch.detach_, branch, "RT403", "the history of args[0] was MulBackward0 and is None"),
    (torch.Tensor.retain_grad, branch, "RT405", "retains_grad of args[0] was False and is True"),
    (hook, leaf, "RT405", "the number of hooks of args[0] was 0 and is 1"),
    (hook, branch, "RT405", "the number of hooks of args[0] was 0 and is 1"),
    (hook_after, leaf, "RT405", "the number of hooks of args[0] was 0 and is 1"),
    (set_data, plain, "RT504", "the memory of args[0] was at"),
    (lambda x: x.set_(torch.ones_like(x)), plain, "RT504", "the memory of args[0] was at"),
    (tag, plain, "RT207", "args[0].tag was absent and is 'a'"),
    (tag, leaf, "RT207", "args[0].tag was absent and is 'a'"),
    (tag_by_name, plain, "RT207", "args[0].tag was absent and is 5"),
    (tag_in_the_dict, plain, "RT207", "args[0].tag was absent and is a list"),
    (set_class, plain, "RT207", "the class of args[0] was Tensor and is Parameter"),
]


@pytest.mark.parametrize(("change", "make", "code", "text"), CHANGES)
def test_what_becomes_of_an_argument_stays_with_the_caller(device, change, make, code, text):
    graphed = compare(device, change, make)
    report = graphed.report()
    assert report.replayed == 0
    assert any(why.code == code and text in why.message for why in report.reasons), graphed.explain()


def unhooked(x):
    x.register_hook(lambda g: g * 2).remove()


def tagged_in_a_chain(x):
    y = x * 2
    y.tag, y.other = [1], {"k": 1}
    y.tag.append(len(y.other))
    return y * y.tag[1]


LEFT = [
    (torch.Tensor.detach_, plain),
    (lambda x: x.requires_grad_(False), plain),
    (torch.Tensor.requires_grad_, leaf),
    (torch.Tensor.retain_grad, leaf),
    (unhooked, leaf),
    (lambda x: setattr(x, "grad", None), leaf),
    (lambda x: setattr(x * 2, "tag", 1), plain),
    (lambda x: setattr(x * 2, "tag", 1), leaf),
    (tagged_in_a_chain, plain),
    (lambda x: (x * 2).requires_grad_().register_hook(print), plain),
    (lambda x: x.mul_(2), plain),
]


CHANGED = [
    (torch.Tensor.detach_, leaf),
    (torch.Tensor.requires_grad_, plain),
    (freeze, leaf),
    (set_gradient, leaf),
]


@pytest.mark.parametrize(("change", "make"), CHANGED)
def test_replays_leave_in_an_argument_what_calls_do(device, change, make):
    assert compare(device, change, make).report().replayed == CALLS - 2


@pytest.mark.parametrize(("change", "make"), LEFT)
def test_a_call_that_leaves_an_argument_what_it_was_is_replayed(device, change, make):
    assert compare(device, change, make).report().replayed == CALLS - 2


def test_a_container_on_an_argument_that_grows(device, reason):
    x, y = torch.ones(3, device=device), torch.ones(3, device=device)
    x.seen, y.seen = [], []

    def call(x):
        x.seen.append(1)
        return x * 2

    graphed = rote.graph(call)
    for _ in range(CALLS):
        graphed(x), call(y)
        assert x.seen == y.seen
    assert "the attribute 'seen' of the tensor args[0]" in reason(graphed, "RT218").message


def constant_tag(x):
    y = x * 2
    y.tag = 5
    return y


def tensor_tag(x):
    y = x * 2
    y.mask, y.kind = x > 1, ("logits", [x, y])
    return {"y": y, "view": y[1:]}


def tag_of_a_view(x):
    y = x * 2
    z = y[1:]
    z.tag = "part"
    return y, z, z


TAGS = [constant_tag, tensor_tag, tag_of_a_view]


def tags_of(result):
    found = []
    for each in (
        result.values() if isinstance(result, dict) else result if isinstance(result, tuple) else [result]
    ):
        tags = vars(each)
        mask, kind = tags.get("mask"), tags.get("kind")
        found += [sorted(tags), tags.get("tag"), mask.tolist() if mask is not None else None]
        found += [kind[0], kind[1][0].tolist(), kind[1][1] is each] if kind is not None else []
    return found


@pytest.mark.parametrize("verify", [None, 2])
@pytest.mark.parametrize("call", TAGS)
def test_an_attribute_of_a_result(device, call, verify):
    graphed, held = rote.graph(call, **({} if verify is None else {"verify": verify})), []
    for n in range(CALLS):
        x = torch.arange(3.0, device=device) + n
        result = graphed(x)
        assert tags_of(result) == tags_of(call(x))
        held.append((result, tags_of(result)))
    assert all(tags_of(result) == then for result, then in held)
    assert graphed.report().replayed >= CALLS - 3, graphed.explain()


def test_an_attribute_of_a_result_with_a_graph(device):
    layer = nn.Linear(3, 3).to(device)

    def call(x):
        y = layer(x)
        y.tag, y.hidden = "out", y.tanh()
        return y

    graphed = rote.graph(call)
    for n in range(CALLS):
        x = torch.arange(3.0, device=device) + n
        found = []
        for result in (graphed(x), call(x)):
            assert result.tag == "out"
            found.append(torch.autograd.grad((result + result.hidden).sum(), list(layer.parameters())))
        assert all(map(torch.equal, *found))
    assert graphed.report().replayed >= CALLS - 3, graphed.explain()


def test_an_attribute_of_a_result_that_was_there_before(device):
    """An argument, a parameter, what an object of nobody's kind is."""
    weight = nn.Parameter(torch.ones(3, device=device))

    def argument(x):
        x.tag = 5
        return x

    def parameter(x):
        weight.tag = 5
        return weight

    def opaque(x):
        y = x * 2
        y.tag = object
        y.other = {1, 2}
        return y

    for call in (argument, parameter, opaque):
        graphed = rote.graph(call)
        for n in range(CALLS):
            x = torch.arange(3.0, device=device) + n
            vars(weight).clear()
            result = graphed(x)
            assert result.tag in (5, object) and getattr(result, "other", {1, 2}) == {1, 2}
            assert call is not argument or x.tag == 5
            assert call is not parameter or weight.tag == 5


class Layer(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.inner, self.change = nn.Linear(4, 4), change

    def forward(self, x):
        self.change(self.inner.weight)
        return self.inner(x).detach()


def steps(layer, call, device, prepare):
    for _ in range(CALLS):
        prepare(layer.inner.weight)
        yield call(torch.ones(4, device=device)).tolist(), shown(layer.inner.weight)


def on_a_parameter(device, change, prepare=lambda weight: None):
    layers = []
    for _ in range(2):
        torch.manual_seed(0)
        layers.append(Layer(change).to(device))
    graphed = rote.graph(layers[0])
    found = list(steps(layers[0], graphed, device, prepare))
    assert found == list(steps(layers[1], layers[1], device, prepare))
    return graphed


@pytest.mark.parametrize("change", [hook, hook_after])
@pytest.mark.parametrize("grad", [False, True])
def test_a_hook_that_stays_on_a_parameter(device, where, reason, change, grad):
    with torch.set_grad_enabled(grad):
        graphed = on_a_parameter(device, change)
    assert graphed.report().replayed == 0
    assert reason(graphed, "RT405").where == where(change, "register")


def test_a_parameter_that_each_call_detaches(device):
    """It is frozen once and for all, so later calls replay; where the caller thaws it, no call does."""
    assert on_a_parameter(device, torch.Tensor.detach_).report().replayed >= CALLS - 3
    graphed = on_a_parameter(device, torch.Tensor.detach_, lambda weight: weight.requires_grad_())
    assert graphed.report().replayed == 0


def test_an_attribute_of_a_parameter_that_settles(device):
    assert on_a_parameter(device, tag).report().replayed >= CALLS - 3


def test_what_is_written_on_a_result_is_there_after_each_call(device):
    kept = torch.zeros(2, device=device)

    def call(x, into=None):
        y = x * 2
        y.tag = "a"
        if into is not None:
            into.seen = 1
        return y

    def observe(function, *args):
        for _ in range(CALLS):
            yield shown(function(plain(device), *args)), vars(kept)

    assert list(observe(rote.graph(call))) == list(observe(call))
    assert list(observe(rote.graph(call), kept)) == list(observe(call, kept))


ASKED = [
    *("__len__", "const_data_ptr", "data_ptr", "dim", "dim_order", "dtype", "element_size", "is_complex"),
    *("is_conj", "is_contiguous", "is_floating_point", "is_signed", "itemsize", "layout", "nbytes", "ndim"),
    *("numel", "shape", "size", "storage_offset", "storage_type", "stride", "type"),
]  # fmt: skip
OTHERS = {
    "elsewhere": lambda: torch.zeros(3, 3),
    "a part": lambda: torch.zeros(9, 3)[3:6],
    "transposed": lambda: torch.zeros(3, 3).mT,
    "larger": lambda: torch.zeros(4, 3, 1),
    "wider": lambda: torch.zeros(3, 3, dtype=torch.float64),
    "bytes": lambda: torch.zeros(3, 3, dtype=torch.uint8),
    "conjugated": lambda: torch.zeros(3, 3, dtype=torch.complex64).conj(),
    "sparse": lambda: torch.zeros(3, 3).to_sparse(),
}


def by_default(weight):
    def held(weight=weight):
        return weight

    return held


FINDS = {
    "a variable": lambda weight: lambda: weight,
    "a default": by_default,
    "a key": lambda weight: lambda held={weight: 1}: next(iter(held)),
    "a method": lambda weight: lambda method=weight.add: method.__self__,
    "a tuple": lambda weight: lambda held=((weight,),): held[0][0],
}


def ask(tensor, name):
    answer = getattr(tensor, name)
    return answer() if callable(answer) else answer


def changes(name, device):
    """Tensors and what may be put in their place, where the answer is another one."""
    for make in OTHERS.values():
        weight, other = torch.zeros(3, 3, device=device), make().to(device)
        try:
            torch.zeros(3, 3, device=device).data = other
            if ask(weight, name) != ask(other, name):
                yield weight, other
        except RuntimeError:  # a sparse tensor is not asked for that; a device may take no other kind
            continue


@pytest.mark.sampled(1)
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("find", FINDS.values(), ids=FINDS)
def test_what_is_asked_of_a_tensor_that_no_operation_takes(device, find):
    """What ``weight.data = ...`` changes of it is a condition."""
    for name in [each for each in ASKED if hasattr(torch.Tensor, each)]:
        for weight, other in changes(name, device):
            found, held = ask(weight, name), find(weight)
            g = rote.graph(lambda x: x * (2 if ask(held(), name) == found else 3), keep=True)  # noqa: B023
            x = torch.ones(2, device=device)
            assert [g(x)[0].item() for _ in range(4)] == [2.0] * 4
            weight.data = other
            assert g(x)[0].item() == 3.0, name
