"""What every module goes through is read as what it is: parameters, hooks, classes, before and after a change."""

from __future__ import annotations

import types
from collections import OrderedDict

import pytest
import torch

from .noting import noted, value_of

Module = torch.nn.Module


class Layer(Module):
    def __init__(self, size=2.0):
        super().__init__()
        self.size, self.inner = size, None
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.register_buffer("shift", torch.zeros(2))
        self.register_buffer("none", None)

    def forward(self, x):
        x = x * self.weight * self.size + self.shift
        return x if self.none is None else x + self.none


class Net(Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(2.0), Layer(3.0)])
        self.last = Layer(4.0)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.last(self.last(x))


class Asking(Layer):
    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name not in FALLBACK:
                raise
            return FALLBACK[name]


class Answering(Layer):
    def __getattribute__(self, name):
        return super().__getattribute__(name)


class Property(Layer):
    @property
    def forward(self):
        return FORWARDS[0].__get__(self)


class Tables(Layer):
    @property
    def __dict__(self):
        return TABLES[0]


FALLBACK = {"other": 5}
FORWARDS = [Layer.forward]
TABLES = [{"_parameters": {"a": 6}}]


def of_two_modules(first, second):
    for _ in range(2):
        first(torch.ones(2)), second(torch.ones(2))


def with_a_hook(module):
    module(torch.ones(2))
    handle = module.register_forward_hook(lambda module, given, result: result + SHIFT[0])
    module(torch.ones(2))
    handle.remove()
    module(torch.ones(2))


SHIFT = [7.0]


def with_a_hook_of_all(module):
    module(torch.ones(2))
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *given: given[2] + SHIFT[0])
    module(torch.ones(2))
    handle.remove()


def _with_made_anew(home, name, module):
    module(torch.ones(2))
    was, made = getattr(home, name), OrderedDict()
    setattr(home, name, made)
    module(torch.ones(2)), module(torch.ones(2))
    made[1] = _hook
    module(torch.ones(2))
    setattr(home, name, was)


def with_hooks_of_all_made_anew(module):
    _with_made_anew(torch.nn.modules.module, "_global_forward_hooks", module)


def with_hooks_made_anew(module):
    _with_made_anew(module, "_forward_hooks", module)


def with_another_forward(module):
    module(torch.ones(2))
    module.forward = lambda x: x + SHIFT[0]
    module(torch.ones(2))
    del module.forward
    module(torch.ones(2))


def with_another_class(module):
    module(torch.ones(2))
    Layer.forward, was = _other_forward, Layer.forward
    module(torch.ones(2))
    Layer.forward = was


def _other_forward(self, x):
    return x + SHIFT[0]


def with_a_parameter_deleted(module):
    module(torch.ones(2))
    was = module.weight
    del module.weight
    module.register_buffer("weight", torch.ones(2))
    module(torch.ones(2))
    del module.weight
    module.weight = was


def with_tables_of_its_own(module):
    shift, parameters = module.shift, module._parameters
    module._parameters = {"shift": shift, "weight": module.weight}
    assert module.shift is module.shift
    del module._parameters["shift"]
    assert module.shift is shift
    module._parameters = parameters


def with_other_tables(module):
    module.shift, module.__dict__["_buffers"]
    was = module._buffers.pop("shift")
    module._modules["shift"] = SHIFT
    assert module.shift is SHIFT
    module._buffers["shift"] = module._modules.pop("shift") and was


def with_other_globals(module):
    table = {**vars(torch.nn.modules.module), "_global_forward_hooks": OrderedDict({1: _hook})}
    other = types.FunctionType(Module._call_impl.__code__, table)
    module(torch.ones(2))
    other(module, torch.ones(2))


def _hook(module, given, result):
    return result + SHIFT[0]


def asked_in_c(module):
    list(map(module.__getattr__, ["weight", "shift"]))
    getattr(module, "shift"), getattr(module, "missing", None), hasattr(module, "weight")  # noqa: B009
    Module.__getattr__(module, "weight")
    torch.nn.Module.__call__(module, torch.ones(2))


def compiled(module):
    module(torch.ones(2))
    module._compiled_call_impl = lambda x: x + SHIFT[0]
    module(torch.ones(2))
    del module._compiled_call_impl


def made(module):
    layer = Layer()
    layer._parameters = module._parameters
    layer._buffers["more"] = module.shift
    return layer(torch.ones(2)), layer.more


PROGRAMS = {
    "a net": (lambda module: module(torch.ones(2)), Net, ".size", 2.0),
    "two": (lambda module: of_two_modules(module.last, module.layers[0]), Net, ".size", 4.0),
    "asks by itself": (lambda module: (module(torch.ones(2)), module.other), Asking, "FALLBACK['other']", 5),
    "answers by itself": (lambda module: module(torch.ones(2)), Answering, "args[0].size", 2.0),
    "a property": (lambda module: module(torch.ones(2)), Property, "FORWARDS[0]", Layer.forward),
    "another __dict__": (
        lambda module: Module.__getattr__(module, "a"), lambda: Tables.__new__(Tables), "TABLES[0]", TABLES[0],
    ),
    **{
        each.__name__: (each, Layer, "SHIFT[0]", 7.0)
        for each in (
            with_a_hook, with_a_hook_of_all, with_hooks_made_anew, with_hooks_of_all_made_anew,
            with_another_forward, with_another_class, with_other_globals, compiled,
        )
    },
    **{
        each.__name__: (each, Layer, "args[0].shift", None)
        for each in (with_tables_of_its_own, with_other_tables, asked_in_c, made)
    },
    "with_a_parameter_deleted": (with_a_parameter_deleted, Layer, "args[0]['_buffers'] (length)", 2),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_decides_is_read(name):
    program, make, where, value = PROGRAMS[name]
    thing, own = make(), vars(Module)
    before = {key: own[key].__code__ for key in ("__getattr__", "_call_impl", "_wrapped_call_impl")}
    program(thing)
    found = {read.name: value_of(read) for read in noted(program, thing).reads}
    said = [each for read, each in found.items() if read.endswith(where)]
    assert said and (value is None or value in said), sorted(found)
    assert {key: own[key].__code__ for key in before} == before
