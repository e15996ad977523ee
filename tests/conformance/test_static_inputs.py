"""Parameters, buffers and other external tensors: read in place, never copied, and watched."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

import rote
from rote.testing import compare, count_recordings

WARM = rote.Options().warmup + 1


def mlp(device, layers=2):
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers))).to(device).requires_grad_(False)


def check(g, model, device, calls=WARM + 2):
    for _ in range(calls):
        x = torch.randn(2, 4, device=device)
        assert torch.equal(g(x), model(x))


def test_values_changed_in_place_are_read(device):
    model = mlp(device)
    g = rote.graph(model)
    check(g, model, device)
    before = g.report().replayed
    for _ in range(3):
        model[0].weight.add_(0.5)
        check(g, model, device, 1)
    assert g.report().replayed == before + 3 and count_recordings(g) == 1


def replace_parameter(model):
    model[1].weight = nn.Parameter(torch.randn_like(model[1].weight), requires_grad=False)


def rebind_data(model):
    model[1].weight.data = torch.randn_like(model[1].weight)


def load_assigned(model):
    state = {name: torch.randn_like(value) for name, value in model.state_dict().items()}
    model.load_state_dict(state, assign=True)


@pytest.mark.parametrize("change", [replace_parameter, rebind_data, load_assigned])
def test_replaced_tensors_are_noticed_before_the_replay(device, change, caplog):
    model = mlp(device)
    g = rote.graph(model)
    check(g, model, device)
    kept = {f"Sequential.{name}": value.data for name, value in model.named_parameters()}  # their memory, too
    with caplog.at_level(logging.INFO, "rote"):
        change(model)
        check(g, model, device)
    assert g.report().replayed == 4, g.explain()
    (found,) = [item for item in g.report().reasons if item.code == "RT301"]
    name = found.message.partition(" was ")[0]
    assert name in kept if change is load_assigned else name == "Sequential.1.weight"
    old, new = kept[name].data_ptr(), model.get_parameter(name.removeprefix("Sequential.")).data_ptr()
    assert found.message in (
        f"{name} was the tensor at {old:#x} and is another one at {new:#x}",
        f"{name} was at address {old:#x} and is at {new:#x}",
    )
    assert found.remedy == "Update the tensor in place (copy_)." and ".py:" in found.where
    (record,) = [record for record in caplog.records if record.name == "rote"]
    assert record.levelname == "INFO"
    assert record.getMessage() == (
        f"Sequential records again: RT301 at {found.where}: {found.message}. {found.remedy}"
    )


class Doubled(torch.Tensor):
    """Products with it are twice what they were."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
            return result * 2 if func in (torch.mul, torch.Tensor.mul) else result


IN_ITS_SLOT = {
    "conjugate": lambda w: setattr(w, "data", w.data.conj()),
    "negative": lambda w: setattr(w, "data", torch._neg_view(w.data)),
    "class": lambda w: setattr(w, "__class__", Doubled),
    "turned": lambda w: setattr(w, "data", w.data.t()),
    "turned in place": lambda w: w.as_strided_((4, 4), (1, 4)),
    "set to other memory": lambda w: w.set_(torch.randn_like(w)),
    "memory moved": lambda w: w.untyped_storage().resize_(1 << 12),
    "type": lambda w: setattr(w, "data", w.data.view(torch.int64)),
    "exchanged": lambda w: setattr(w, "data", w.data.flip(0)),
}


@pytest.mark.parametrize("number", [1, 40])
@pytest.mark.parametrize("change", IN_ITS_SLOT)
def test_a_tensor_that_becomes_another_one_in_its_slot(device, change, number):
    tensors = [torch.randn(4, 4, dtype=torch.complex64, device=device) for _ in range(number)]

    def scaled(x):
        for tensor in tensors:
            x = x * tensor
        return x

    g, x = rote.graph(scaled), torch.randn(4, 4, device=device)
    for _ in range(WARM + 4):
        assert torch.equal(g(x), scaled(x))
    assert g.report().replayed == 4
    kept = tensors[-1].detach()
    IN_ITS_SLOT[change](tensors[-1])
    for _ in range(WARM + 2):
        assert torch.equal(g(x).resolve_conj(), scaled(x).resolve_conj()) and kept.shape == (4, 4)
    assert g.report().replayed < 4 + WARM + 2


def test_names_are_the_users(device):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(4)])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    model = Model().to(device).requires_grad_(False)

    def act(x):
        return model(x)

    g = rote.graph(act)
    x = torch.randn(2, 3, device=device)
    for _ in range(WARM + 1):
        g(x)
    kept = model.layers[3].weight.data
    model.layers[3].weight.data = torch.zeros(3, 3, device=device)
    assert torch.equal(g(x), model(x))
    (found,) = g.report().reasons
    new = model.layers[3].weight.data_ptr()
    name, _, rest = found.message.partition(" was ")
    assert name.endswith("model.layers.3.weight")
    assert rest == f"at address {kept.data_ptr():#x} and is at {new:#x}"


def test_moving_a_model_and_back(device):
    model = mlp(device)
    g = rote.graph(model)
    check(g, model, device)
    model.double()
    for _ in range(WARM + 1):
        x = torch.randn(2, 4, device=device, dtype=torch.float64)
        assert torch.equal(g(x), model(x))
    model.float()
    check(g, model, device)


def test_identical_layers_through_one_wrapper(device):
    layers = [nn.Linear(4, 4).to(device).requires_grad_(False) for _ in range(6)]
    current = [layers[0]]
    g = rote.graph(lambda x: torch.relu(current[0](x)))
    for _ in range(WARM + 3):
        for layer in layers:
            current[0] = layer
            x = torch.randn(2, 4, device=device)
            assert torch.equal(g(x), torch.relu(layer(x)))
    assert count_recordings(g) == 6 and g.report().replayed == 6 * 3


def test_identical_layers_as_arguments(device):
    layers = [nn.Linear(4, 4).to(device).requires_grad_(False) for _ in range(4)]
    g = rote.graph(lambda layer, x: layer(x))
    for _ in range(WARM + 2):
        for layer in layers:
            x = torch.randn(2, 4, device=device)
            assert torch.equal(g(layer, x), layer(x))
    assert count_recordings(g) == 4 and g.report().replayed == 8


def test_parameters_as_arguments_are_read_in_place(device):
    weight = nn.Parameter(torch.randn(4, 4, device=device), requires_grad=False)
    other = nn.Parameter(torch.randn(4, 4, device=device), requires_grad=False)
    g = rote.graph(lambda x, w: x @ w)
    for n in range(WARM + 3):
        for w in (weight, other):
            w.add_(n)
            x = torch.randn(2, 4, device=device)
            assert torch.equal(g(x, w), x @ w)
    assert count_recordings(g) == 2
    kept, weight.data = weight.data, torch.zeros(4, 4, device=device)
    assert g(x, weight).eq(0).all() and kept.numel()


def test_the_oldest_recording_is_evicted(device):
    layers = [nn.Linear(2, 2).to(device).requires_grad_(False) for _ in range(4)]
    current = [layers[0]]
    g = rote.graph(lambda x: current[0](x), max_recordings=2)
    for layer in layers:
        current[0] = layer
        for _ in range(WARM + 1):
            x = torch.randn(1, 2, device=device)
            assert torch.equal(g(x), layer(x))
    assert count_recordings(g) == 2


def test_too_many_recordings_are_told(device, reason):
    model = mlp(device, 1)
    g = rote.graph(model, max_recordings=2)
    kept = []
    for _ in range(8):
        check(g, model, device, WARM + 1)
        kept.append(model[0].weight.data)
        model[0].weight.data = torch.randn(4, 4, device=device)
    check(g, model, device, 3)
    found = reason(g, "RT303")
    assert found.message.startswith("the oldest of more than 2 recordings was dropped; the last time ")
    assert found.remedy == "Keep addresses stable, or raise max_recordings."
    assert count_recordings(g) <= 2


def test_what_is_said_of_too_many_names_the_tensor(device, reason):
    model = mlp(device, 1)
    g = rote.graph(model, max_recordings=1)
    kept = []
    for _ in range(4):
        check(g, model, device, WARM + 1)
        kept.append(model[0].weight.data)
        model[0].weight.data = torch.randn(4, 4, device=device)
    check(g, model, device, 1)
    assert ".0.weight was at address 0x" in reason(g, "RT303").message


def test_a_tensor_that_died_and_another_in_its_place(device):
    holder = {"w": torch.full((64,), 1.0, device=device)}
    g, x = rote.graph(lambda x: x * holder["w"]), torch.ones(64, device=device)
    for value in (1.0, 2.0, 3.0, 4.0):
        del holder["w"]
        holder["w"] = torch.full((64,), value, device=device)  # most likely at the same address
        for _ in range(WARM + 1):
            assert g(x).eq(value).all()


def test_a_view_of_an_external_tensor(device):
    base = torch.arange(12.0, device=device).view(3, 4)
    rows = [base[0], base[1], base[2]]
    current = [rows[0]]
    g = rote.graph(lambda x: x + current[0])
    x = torch.zeros(4, device=device)
    for _ in range(WARM + 2):
        for n in range(3):
            current[0] = rows[n]
            assert torch.equal(g(x), base[n])


def test_requires_grad_turned_off(device):
    layer = nn.Linear(2, 2).to(device)
    x = torch.randn(1, 2, device=device)
    g = rote.graph(lambda x: layer(x).detach())
    for flag in (True, False, True):
        layer.requires_grad_(flag)
        for _ in range(WARM + 1):
            assert torch.equal(g(x), layer(x).detach())


def test_an_optimizer_that_adds_a_group(device):
    layer, extra = nn.Linear(2, 2).to(device), nn.Linear(2, 2).to(device)
    modules = [layer]
    g = rote.graph(lambda x: sum(module(x) for module in modules).detach())
    for _ in range(2):
        for _ in range(WARM + 1):
            x = torch.randn(1, 2, device=device)
            assert torch.equal(g(x), sum(module(x) for module in modules).detach())
        modules.append(extra)


def test_compare_finds_a_difference_at_all(device):
    """The kit's own check: a callable that is not deterministic is reported."""
    values = iter(range(100))
    with pytest.raises(AssertionError, match=r"^call 0: result differs in 1 of 1 elements, by at most 1 at "):
        compare(lambda x: x + next(values), [(torch.zeros(1, device=device),)])
