"""Modules: hooks, edits of their tables, modes, buffers, parametrizations."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from tests.footguns.case import Wrap, full
from tests.state_programs.program import item, put, state, turns
from torch import nn
from torch.nn.utils import parametrize

Items = Iterator[Any]


def layer(device: torch.device) -> nn.Linear:
    """A layer with numbers that a result shows."""
    m = nn.Linear(4, 4, device=device).requires_grad_(False)
    return m


class Gain(nn.Module):
    """Multiplies by a number."""

    def __init__(self, k: float) -> None:
        super().__init__()
        self.k = k

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.k


@state("reads")
def submodule_replaced(wrap: Wrap, device: torch.device) -> Items:
    """A child of a module is replaced."""
    m = nn.Sequential(Gain(1.5), Gain(2.0))
    change = lambda: m.__setitem__(0, Gain(2.5))  # noqa: E731
    yield from turns(wrap(m), device, change, put(m[1], k=3.0))


@state("reads")
def table_of_children_edited(wrap: Wrap, device: torch.device) -> Items:
    """``_modules`` is edited directly."""
    m = nn.Sequential(Gain(1.5), Gain(2.0))
    yield from turns(wrap(m), device, item(m._modules, "0", Gain(2.5)), lambda: m._modules.pop("1"))


@state("reads")
def module_dict_order(wrap: Wrap, device: torch.device) -> Items:
    """The order of a ``ModuleDict``."""
    m = nn.ModuleDict({"a": Gain(2.0), "b": nn.ReLU6()})

    def fn(x: torch.Tensor) -> torch.Tensor:
        for part in m.values():
            x = part(x + 2)
        return x

    yield from turns(wrap(fn), device, lambda: m.update({"a": m.pop("a")}))


@state("reads")
def module_list_grows(wrap: Wrap, device: torch.device) -> Items:
    """A ``ModuleList`` gets another, and loses one."""
    m = nn.ModuleList([Gain(1.5)])

    def fn(x: torch.Tensor) -> torch.Tensor:
        for part in m:
            x = part(x)
        return x

    yield from turns(wrap(fn), device, lambda: m.append(Gain(2.0)), lambda: m.__delitem__(0))


@state("reads")
def forward_hook(wrap: Wrap, device: torch.device) -> Items:
    """A forward hook is registered, then removed."""
    m, held = Gain(1.5), []
    add = lambda: held.append(m.register_forward_hook(lambda m, args, out: out * 2))  # noqa: E731
    yield from turns(wrap(m), device, add, lambda: held[0].remove())


@state("reads")
def forward_pre_hook(wrap: Wrap, device: torch.device) -> Items:
    """A forward pre-hook reads state that changes."""
    m, o = Gain(1.5), {"k": 1.0}
    m.register_forward_pre_hook(lambda m, args: (args[0] * o["k"],))
    yield from turns(wrap(m), device, item(o, "k", 3.0))


@state("reads")
def global_module_hook(wrap: Wrap, device: torch.device) -> Items:
    """A hook on all modules is registered, then removed."""
    m, held = Gain(1.5), []
    register = nn.modules.module.register_module_forward_hook
    try:
        add = lambda: held.append(register(lambda m, args, out: out * 2))  # noqa: E731
        yield from turns(wrap(m), device, add, lambda: held[0].remove())
    finally:
        for handle in held:
            handle.remove()


@state("reads")
def train_and_eval(wrap: Wrap, device: torch.device) -> Items:
    """``train`` and ``eval``, of the whole and of a part."""
    m = nn.Sequential(nn.Dropout(0.5), Gain(1.5)).eval()
    yield from turns(wrap(m), device, m.train, lambda: m[0].eval(), m.eval)


@state("reads")
def training_flag_written(wrap: Wrap, device: torch.device) -> Items:
    """``m.training`` is set directly."""

    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * (2.5 if self.training else 1.5)

    m = Net()
    yield from turns(wrap(m), device, put(m, training=False), put(m, training=True))


@state("reads")
def buffer_rebound(wrap: Wrap, device: torch.device) -> Items:
    """A buffer is rebound, then written in place, then None."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("k", full(1.5, device))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if self.k is None else x * self.k

    m = Net()
    yield from turns(wrap(m), device, put(m, k=full(2.5, device)), lambda: m.k.add_(1), put(m, k=None))


@state("reads")
def parameter_replaced(wrap: Wrap, device: torch.device) -> Items:
    """A parameter is replaced, its data are, and it is written."""
    m = layer(device)
    fresh = nn.Parameter(torch.ones(4, 4, device=device), requires_grad=False)
    yield from turns(
        wrap(m), device, put(m, weight=fresh), put(m.bias, data=full(5, device)), lambda: m.weight.mul_(2)
    )


@state("reads")
def parameters_listed(wrap: Wrap, device: torch.device) -> Items:
    """The call goes over all parameters of a module; one is added."""
    m = nn.ParameterList([full(1.0, device)]).requires_grad_(False)

    def fn(x: torch.Tensor) -> torch.Tensor:
        for p in m.parameters():
            x = x + p
        return x

    yield from turns(wrap(fn), device, lambda: m.append(nn.Parameter(full(2.0, device), requires_grad=False)))


@state("reads")
def named_modules(wrap: Wrap, device: torch.device) -> Items:
    """The call goes over all modules and their names."""
    m = nn.Sequential(Gain(1.5))
    g = wrap(lambda x: x * sum(len(name) + getattr(part, "k", 0.0) for name, part in m.named_modules()))
    yield from turns(g, device, lambda: m.append(Gain(2.0)), put(m[0], k=5.0))


@state("classes")
def parametrization(wrap: Wrap, device: torch.device) -> Items:
    """A parametrization is registered, then removed."""

    class Twice(nn.Module):
        def forward(self, w: torch.Tensor) -> torch.Tensor:
            return w * 2

    m = layer(device)
    add = lambda: parametrize.register_parametrization(m, "weight", Twice())  # noqa: E731
    yield from turns(wrap(m), device, add, lambda: parametrize.remove_parametrizations(m, "weight"))


@state("classes")
def parametrization_cached(wrap: Wrap, device: torch.device) -> Items:
    """``parametrize.cached`` is entered after some calls."""

    class Scaled(nn.Module):
        k = 2.0

        def forward(self, w: torch.Tensor) -> torch.Tensor:
            return w * self.k

    m, p = layer(device), Scaled()
    parametrize.register_parametrization(m, "weight", p)
    g = wrap(m)
    yield from turns(g, device)
    with parametrize.cached():
        yield g(full(1, device))
        p.k = 3.0
        yield g(full(1, device)), g(full(1, device))
    yield from turns(g, device, before=3)


@state("reads")
def own_getattr_of_a_module(wrap: Wrap, device: torch.device) -> Items:
    """``__getattr__`` of a module hands on to the wrapped one."""

    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Gain(1.5)

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("inner"), name)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.k

    m = Wrapper()
    yield from turns(wrap(m), device, put(m.inner, k=2.5), put(m, inner=Gain(3.5)), put(m, k=4.5))


@state("reads")
def forward_on_the_instance(wrap: Wrap, device: torch.device) -> Items:
    """``forward`` is replaced on the instance, as patches do."""
    m = Gain(1.5)
    change = put(m, forward=lambda x: x * 2.5)
    yield from turns(wrap(lambda x: m(x)), device, change, lambda: delattr(m, "forward"))


@state("reads")
def forward_of_the_graphed_module(wrap: Wrap, device: torch.device) -> Items:
    """``forward`` of the graphed module itself is replaced on the instance, then on the class."""

    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 1.5

    m = Net()
    change = put(m, forward=lambda x: x * 2.5)
    again = lambda: (delattr(m, "forward"), setattr(Net, "forward", lambda self, x: x * 3.5))  # noqa: E731
    yield from turns(wrap(m), device, change, again)


@state("reads")
def settings_of_layers(wrap: Wrap, device: torch.device) -> Items:
    """Numbers that layers of torch keep: eps, p, negative slope, padding."""
    m = nn.Sequential(nn.LeakyReLU(0.1), nn.LayerNorm(4, device=device)).requires_grad_(False)
    g = wrap(lambda x: m(x - torch.arange(4.0, device=device) * 2))
    yield from turns(g, device, put(m[0], negative_slope=0.5), put(m[1], eps=1.0))


@state("reads")
def require_gradients(wrap: Wrap, device: torch.device) -> Items:
    """A parameter's ``requires_grad`` is read and decides what comes out."""
    m = layer(device)
    yield from turns(wrap(m), device, lambda: m.requires_grad_(True), lambda: m.requires_grad_(False))


@state("classes")
def state_dict_inside(wrap: Wrap, device: torch.device) -> Items:
    """``state_dict()`` inside; a hook is registered and a buffer is no longer kept."""
    m = layer(device)
    m.register_buffer("k", full(1.0, device))
    g = wrap(lambda x: x * sum(value.sum() for value in m.state_dict().values()))
    hook = lambda module, found, prefix, meta: found.update(more=full(3.0, device))  # noqa: E731
    again = lambda: m._non_persistent_buffers_set.add("k")  # noqa: E731
    yield from turns(g, device, lambda: m.register_state_dict_post_hook(hook), again)


@state("reads")
def copied_model_in_turns(wrap: Wrap, device: torch.device) -> Items:
    """Two copies of a model stand in one attribute in turns."""
    one = layer(device)
    two = copy.deepcopy(one)
    two.weight.mul_(2)
    o = nn.Module()
    o.net = one
    g = wrap(lambda x: o.net(x))
    yield from turns(g, device, put(o, net=two), put(o, net=one), put(o, net=two))


@state("classes")
def items_of_a_graphed_module(wrap: Wrap, device: torch.device) -> Items:
    """``w[0] = layer`` and ``del w[1]`` on the graphed module itself."""
    w = wrap(nn.Sequential(Gain(1.5), Gain(2.0)))
    change = lambda: w.__class__.__setitem__(w, 0, Gain(2.5))  # noqa: E731
    yield from turns(w, device, change, lambda: w.__class__.__delitem__(w, 1))


@state("classes")
def tensors_swapped(wrap: Wrap, device: torch.device) -> Items:
    """``torch.utils.swap_tensors`` of a parameter."""
    m = layer(device)
    g = wrap(lambda x: m(x))
    other = nn.Parameter(torch.ones(4, 4, device=device), requires_grad=False)
    yield from turns(g, device, lambda: torch.utils.swap_tensors(m.weight, other))


@state("reads")
def tied_and_untied(wrap: Wrap, device: torch.device) -> Items:
    """Two layers share a parameter, then no longer."""
    one, two = layer(device), layer(device)
    two.weight = one.weight
    g = wrap(lambda x: two(one(x)) + (1.0 if one.weight is two.weight else 2.0))
    untie = lambda: setattr(two, "weight", nn.Parameter(one.weight.clone(), requires_grad=False))  # noqa: E731
    yield from turns(g, device, untie, lambda: two.weight.mul_(2))


@state("reads")
def lazy_layer(wrap: Wrap, device: torch.device) -> Items:
    """A lazy layer is initialised by the first call."""
    torch.manual_seed(0)
    m = nn.LazyLinear(4, device=device)
    yield from turns(wrap(lambda x: m(x).detach()), device, lambda: m.weight.data.mul_(2))
