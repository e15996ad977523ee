"""Classes that change: swapped, given other bases, registered, replaced; and functions of torch."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from tests.footguns.case import Wrap
from tests.state_programs.program import item, put, state, turns
from torch import nn

Items = Iterator[Any]


class Plain:
    """A class whose objects are given another class."""

    def act(self, x: torch.Tensor) -> torch.Tensor:
        return x * 1.5


class Other(Plain):
    """The other class."""

    def act(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2.5


@state("limits")
def class_swapped(wrap: Wrap, device: torch.device) -> Items:
    """``obj.__class__`` is another class."""
    o = Plain()
    yield from turns(wrap(lambda x: o.act(x)), device, put(o, __class__=Other), put(o, __class__=Plain))


@state("limits")
def class_of_a_module_swapped(wrap: Wrap, device: torch.device) -> Items:
    """A layer's ``__class__`` is swapped, as quantizers and patches do."""

    class Patched(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * 2

    m = nn.Linear(4, 4).to(device).requires_grad_(False)
    yield from turns(wrap(m), device, put(m, __class__=Patched), put(m, __class__=nn.Linear))


@state("limits")
def dict_of_an_object_replaced(wrap: Wrap, device: torch.device) -> Items:
    """``obj.__dict__`` is another dict, which changes then."""
    o = types.SimpleNamespace()
    holder = Plain()
    holder.k = 1.5  # type: ignore[attr-defined]
    fresh = {"k": 2.5}
    g = wrap(lambda x: x * holder.k)  # type: ignore[attr-defined]
    yield from turns(g, device, put(holder, __dict__=fresh), item(fresh, "k", 3.5), put(o, k=0))


@state("reads")
def bases_changed(wrap: Wrap, device: torch.device) -> Items:
    """A class's bases are others."""

    class First:
        k = 1.5

    class Second:
        k = 2.5

    class Scale(First):
        pass

    o = Scale()
    yield from turns(wrap(lambda x: x * o.k), device, put(Scale, __bases__=(Second,)))


class _First:
    """A class that objects are asked about."""


class _Second:
    """Another one."""


class _Meta(type):
    """A hook that asks the class as Python would."""

    def __instancecheck__(cls, value: Any) -> bool:
        return super().__instancecheck__(value)

    def __subclasscheck__(cls, kind: type) -> bool:
        return type.__subclasscheck__(cls, kind)


class _Hooked(metaclass=_Meta):
    """A class with such a hook."""


@state("reads")
def bases_asked_for(wrap: Wrap, device: torch.device) -> Items:
    """Bases are others, of a class that is asked for them alone: by isinstance, issubclass and match."""

    class Middle(_First):
        pass

    class Scale(Middle):
        pass

    o = Scale()

    def matches(x: torch.Tensor) -> torch.Tensor:
        match o:
            case _First():
                return x * 2
            case _:
                return x * 3

    changes = put(Middle, __bases__=(_Second,)), put(Middle, __bases__=(_First,))
    yield from turns(wrap(lambda x: x * 2 if isinstance(o, _First) else x * 3), device, *changes)
    yield from turns(wrap(lambda x: x * 2 if isinstance(o, int | _First) else x * 3), device, *changes)
    yield from turns(wrap(lambda x: x * 2 if issubclass(Scale, _First) else x * 3), device, *changes)
    yield from turns(wrap(matches), device, *changes)


@state("reads")
def bases_asked_for_by_hooks(wrap: Wrap, device: torch.device) -> Items:
    """Bases and classes are others, where hooks of a metaclass ask as Python itself would."""

    class Scale(_Hooked):
        pass

    o = Scale()
    changes = put(o, __class__=_Second), put(o, __class__=Scale)
    yield from turns(wrap(lambda x: x * 2 if isinstance(o, _Hooked) else x * 3), device, *changes)
    plainly = type.__instancecheck__
    yield from turns(wrap(lambda x: x * 2 if plainly(_Hooked, o) else x * 3), device, *changes)
    changes = put(Scale, __bases__=(_Second,)), put(Scale, __bases__=(_Hooked,))
    yield from turns(wrap(lambda x: x * 2 if issubclass(Scale, _Hooked) else x * 3), device, *changes)


@state("reads")
def names_by_a_base(wrap: Wrap, device: torch.device) -> Items:
    """Names that ``__dir__`` of a base class tells."""

    class Scale:
        def __dir__(self) -> list[str]:
            return [*super().__dir__(), "more"]

    o = Scale()
    changes = put(o, second=2), put(Scale, third=3)
    yield from turns(wrap(lambda x: x * len(dir(o))), device, *changes)
    o = Scale()
    changes = put(o, second=2), put(Scale, fourth=4)
    yield from turns(wrap(lambda x: x * len(object.__dir__(o))), device, *changes)
    yield from turns(wrap(lambda x: x * len(type.__dir__(Scale))), device, put(Scale, fifth=5))
    yield from turns(wrap(lambda x: x * len(dir(Scale()))), device, put(Scale, sixth=6))


@state("reads")
def class_in_a_variable(wrap: Wrap, device: torch.device) -> Items:
    """The class that the call makes objects of is another."""
    o = types.SimpleNamespace(kind=Plain)
    yield from turns(wrap(lambda x: o.kind().act(x)), device, put(o, kind=Other))


@state("reads")
def init_replaced(wrap: Wrap, device: torch.device) -> Items:
    """``__init__`` of a class whose objects the call makes."""

    class Scale:
        def __init__(self) -> None:
            self.k = 1.5

    def init(self: Any) -> None:
        self.k = 2.5

    yield from turns(wrap(lambda x: x * Scale().k), device, put(Scale, __init__=init))


@state("reads")
def new_of_a_class(wrap: Wrap, device: torch.device) -> Items:
    """``__new__`` counts the objects it made; a singleton is dropped."""

    class Config:
        only: ClassVar[Any] = None
        fresh = 1.5

        def __new__(cls) -> Any:
            if cls.only is None:
                cls.only = super().__new__(cls)
                cls.only.k = cls.fresh
            return cls.only

    def drop() -> None:
        Config.only, Config.fresh = None, 2.5

    yield from turns(wrap(lambda x: x * Config().k), device, drop, watch=lambda: Config.only is None)


@state("reads")
def subclass_registry(wrap: Wrap, device: torch.device) -> Items:
    """``__init_subclass__`` keeps a registry; a class is added to it."""

    class Part:
        parts: ClassVar[list[Any]] = []

        def __init_subclass__(cls) -> None:
            Part.parts.append(cls)

    class One(Part):
        k = 1.5

    g = wrap(lambda x: x * sum(part.k for part in Part.parts))
    yield from turns(g, device, lambda: type("Two", (Part,), {"k": 1.0}), put(One, k=4.0))


@state("reads")
def subclasses(wrap: Wrap, device: torch.device) -> Items:
    """``__subclasses__()`` of a class."""

    class Part:
        pass

    kept = [type("One", (Part,), {})]
    g = wrap(lambda x: x * len(Part.__subclasses__()))
    yield from turns(g, device, lambda: kept.append(type("Two", (Part,), {})))


@state("reads")
def single_dispatch(wrap: Wrap, device: torch.device) -> Items:
    """An implementation is registered with a generic function."""

    @functools.singledispatch
    def gain(value: object) -> float:
        return 1.5

    g = wrap(lambda x: x * gain(3))
    yield from turns(g, device, lambda: gain.register(int, lambda value: 2.5))


@state("reads")
def decorated_with_a_registry(wrap: Wrap, device: torch.device) -> Items:
    """A registry of functions by name, one replaced."""
    registry: dict[str, Any] = {}

    def register(name: str) -> Any:
        return lambda function: registry.setdefault(name, function)

    register("act")(lambda x: x * 1.5)
    g = wrap(lambda x: registry["act"](x))
    yield from turns(g, device, item(registry, "act", lambda x: x * 2.5))


@state("reads")
def wrapped_function(wrap: Wrap, device: torch.device) -> Items:
    """The function behind ``functools.wraps`` is exchanged."""

    def inner(x: torch.Tensor) -> torch.Tensor:
        return x * 1.5

    @functools.wraps(inner)
    def outer(x: torch.Tensor) -> torch.Tensor:
        return outer.__wrapped__(x)  # type: ignore[attr-defined]

    yield from turns(wrap(lambda x: outer(x)), device, put(outer, __wrapped__=lambda x: x * 2.5))


@state("reads")
def signature_of_a_function(wrap: Wrap, device: torch.device) -> Items:
    """``inspect.signature`` decides how a callback is called."""

    def one(x: torch.Tensor) -> torch.Tensor:
        return x * 1.5

    def two(x: torch.Tensor, k: float) -> torch.Tensor:
        return x * k

    o: Any = types.SimpleNamespace(callback=one)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return o.callback(*(x, 2.5)[: len(inspect.signature(o.callback).parameters)])

    yield from turns(wrap(fn), device, put(o, callback=two), put(two, __defaults__=(1.0,)))


@state("reads")
def signature_overridden(wrap: Wrap, device: torch.device) -> Items:
    """``__signature__`` is set on a function."""

    def one(x: torch.Tensor) -> torch.Tensor:
        return x

    changed = inspect.Signature([inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in "abc"])
    g = wrap(lambda x: x * len(inspect.signature(one).parameters))
    yield from turns(g, device, put(one, __signature__=changed))


@state("limits")
def function_of_torch(wrap: Wrap, device: torch.device) -> Items:
    """``F.relu`` is replaced."""
    before = F.relu
    try:
        g = wrap(lambda x: F.relu(x))
        yield from turns(g, device, put(F, relu=lambda x: x * 5), put(F, relu=before))
    finally:
        F.relu = before


@state("limits")
def builtin_function_of_torch(wrap: Wrap, device: torch.device) -> Items:
    """``torch.mul`` is replaced."""
    before = torch.mul
    try:
        yield from turns(wrap(lambda x: torch.mul(x, 2)), device, put(torch, mul=lambda x, y: x * 5))
    finally:
        torch.mul = before


@state("limits")
def method_of_a_torch_module(wrap: Wrap, device: torch.device) -> Items:
    """``nn.Linear.forward`` is replaced."""
    before = nn.Linear.forward
    m = nn.Linear(4, 4).to(device).requires_grad_(False)
    try:
        change = put(nn.Linear, forward=lambda self, x: x * 5)
        yield from turns(wrap(m), device, change, put(nn.Linear, forward=before))
    finally:
        nn.Linear.forward = before


@state("limits")
def method_of_a_tensor(wrap: Wrap, device: torch.device) -> Items:
    """``torch.Tensor.relu`` is replaced, as patches of attention do."""
    try:
        g = wrap(lambda x: x.relu())
        yield from turns(g, device, put(torch.Tensor, relu=lambda self: self * 5))
    finally:
        del torch.Tensor.relu


@state("limits")
def function_that_torch_calls(wrap: Wrap, device: torch.device) -> Items:
    """A function that a function of torch calls is replaced."""
    before = F.linear
    m = nn.Linear(4, 4).to(device).requires_grad_(False)
    try:
        yield from turns(wrap(m), device, put(F, linear=lambda x, w, b: x * 5))
    finally:
        F.linear = before


@state("reads")
def function_of_the_standard_library(wrap: Wrap, device: torch.device) -> Items:
    """A Python function of the standard library is replaced."""
    before = inspect.isfunction
    try:
        g = wrap(lambda x: x * (2.5 if inspect.isfunction(3) else 1.5))
        yield from turns(g, device, put(inspect, isfunction=lambda value: True))
    finally:
        inspect.isfunction = before


@state("reads")
def c_function_of_the_standard_library(wrap: Wrap, device: torch.device) -> Items:
    """A C function of the standard library is replaced."""
    import math

    before = math.sqrt
    try:
        yield from turns(wrap(lambda x: x * math.sqrt(4.0)), device, put(math, sqrt=lambda value: 7.0))
    finally:
        math.sqrt = before


@state("reads")
def module_reloaded(wrap: Wrap, device: torch.device) -> Items:
    """``importlib.reload`` after the file has changed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "state_program_reloaded.py")
        sys.path.insert(0, folder)
        dont = sys.dont_write_bytecode
        sys.dont_write_bytecode = True
        try:
            file.write_text("def scaled(x):\n    return x * 1.5\n")
            importlib.invalidate_caches()
            module = importlib.import_module("state_program_reloaded")

            def change() -> None:
                file.write_text("def scaled(x):\n    return x * 2.5  # changed\n")
                importlib.reload(module)

            yield from turns(wrap(lambda x: module.scaled(x)), device, change)
        finally:
            sys.dont_write_bytecode = dont
            sys.path.remove(folder)
            sys.modules.pop("state_program_reloaded", None)


@state("reads")
def slots_and_base_descriptor(wrap: Wrap, device: torch.device) -> Items:
    """A class attribute is deleted, so that the base's descriptor shows."""

    class Base:
        k = property(lambda self: 2.5)

    class Scale(Base):
        k = 1.5  # type: ignore[assignment]

    o = Scale()
    yield from turns(wrap(lambda x: x * o.k), device, lambda: delattr(Scale, "k"))


@state("reads")
def name_of_a_class(wrap: Wrap, device: torch.device) -> Items:
    """``type(obj).__name__`` picks a branch; the class is renamed."""

    class Attention:
        pass

    o = Attention()
    g = wrap(lambda x: x * len(type(o).__name__) + len(type(o).__qualname__))
    yield from turns(g, device, put(Attention, __name__="A"))


@state("reads")
def abstract_methods(wrap: Wrap, device: torch.device) -> Items:
    """A class's own ``__call__`` and ``__getattr__`` appear later."""

    class Part:
        pass

    o = Part()
    g = wrap(lambda x: o(x) if callable(o) else x * getattr(o, "k", 1.5))
    change = put(Part, __getattr__=lambda self, name: 2.5)
    yield from turns(g, device, change, put(Part, __call__=lambda self, x: x * 3.5))


@state("reads")
def module_without_a_name(wrap: Wrap, device: torch.device) -> Items:
    """A class whose ``__module__`` is None."""

    class Scale:
        k = 1.5

    Scale.__module__ = None  # type: ignore[assignment]
    o = Scale()
    yield from turns(wrap(lambda x: x * o.k), device, put(Scale, k=2.5))


@state("limits")
def operators_of_a_tensor(wrap: Wrap, device: torch.device) -> Items:
    """Operators of ``torch.Tensor`` are replaced, which no attribute lookup in Python finds."""
    calls = {
        "__mul__": lambda x: x * 2, "__radd__": lambda x: 2 + x, "__getitem__": lambda x: x[1:],
        "__neg__": lambda x: -x, "__len__": lambda x: x * len(x), "__eq__": lambda x: (x == x) * x,
    }  # fmt: skip
    for name, call in calls.items():
        own = vars(torch.Tensor).get(name)
        patched = {"__len__": lambda self: 7}.get(name, lambda self, *others: torch.sub(self, 5))
        g = wrap(call)
        try:
            yield from turns(g, device, put(torch.Tensor, **{name: patched}))
        finally:
            if own is None:
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, own)
        yield from turns(g, device)


@state("limits")
def operator_of_parameters(wrap: Wrap, device: torch.device) -> Items:
    """``torch.nn.Parameter`` gets an operator of its own."""
    w = nn.Parameter(torch.full((4,), 2.0, device=device), requires_grad=False)
    g = wrap(lambda x: w / x)
    try:
        yield from turns(g, device, put(nn.Parameter, __truediv__=lambda self, other: torch.add(self, other)))
    finally:
        del nn.Parameter.__truediv__
    yield from turns(g, device)


@state("limits")
def functions_made_from_text(wrap: Wrap, device: torch.device) -> Items:
    """A class of tensors whose code was made from text writes state where C calls it."""
    text = """
class Told(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        seen.append(function.__name__)
        return super().__torch_function__(function, types, args, kwargs or {})
"""
    space: dict[str, Any] = {"torch": torch, "seen": [], "__name__": "made_from_text"}
    exec(text, space)
    w = torch.ones(4, device=device).as_subclass(space["Told"])
    g = wrap(lambda x: (x + w).as_subclass(torch.Tensor))
    yield from turns(g, device, space["seen"].clear, watch=lambda: list(space["seen"]))
