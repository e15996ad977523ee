"""Attributes of every kind: on an instance, its class, the class's class, behind descriptors and lookups."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from tests.footguns.case import Wrap
from tests.state_programs.program import put, state, turns
from torch import nn

Items = Iterator[Any]


@state("reads")
def instance(wrap: Wrap, device: torch.device) -> Items:
    """An attribute of an object in a closure."""
    o = types.SimpleNamespace(k=1.5)
    yield from turns(wrap(lambda x: x * o.k), device, put(o, k=2.5), put(o, k=1.5))


@state("reads")
def instance_chain(wrap: Wrap, device: torch.device) -> Items:
    """The object in the middle of a chain of attributes is replaced by one with another value."""
    leaf = types.SimpleNamespace(k=1.5)
    o = types.SimpleNamespace(a=types.SimpleNamespace(b=leaf))
    fresh = types.SimpleNamespace(b=types.SimpleNamespace(k=2.5))
    g = wrap(lambda x: x * o.a.b.k)
    yield from turns(g, device, put(o, a=fresh), put(fresh.b, k=3.5), put(leaf, k=9.0))


@state("reads")
def class_attribute(wrap: Wrap, device: torch.device) -> Items:
    """An attribute of the class, read through the instance."""

    class Scale:
        k = 1.5

    o = Scale()
    yield from turns(
        wrap(lambda x: x * o.k), device, put(Scale, k=2.5), put(o, k=3.5), lambda: vars(o).clear()
    )


@state("reads")
def base_class_attribute(wrap: Wrap, device: torch.device) -> Items:
    """An attribute of a base class, hidden later by one of the class."""

    class Base:
        k = 1.5

    class Scale(Base):
        pass

    o = Scale()
    yield from turns(wrap(lambda x: x * o.k), device, put(Base, k=2.5), put(Scale, k=3.5))


@state("reads")
def metaclass_attribute(wrap: Wrap, device: torch.device) -> Items:
    """An attribute of the class's class, read through the class."""

    class Meta(type):
        k = 1.5

    class Scale(metaclass=Meta):
        pass

    yield from turns(wrap(lambda x: x * Scale.k), device, put(Meta, k=2.5), put(Scale, k=3.5))


@state("reads")
def metaclass_property(wrap: Wrap, device: torch.device) -> Items:
    """A property of the class's class."""
    hidden = [1.5]

    class Meta(type):
        @property
        def k(cls) -> float:
            return hidden[0]

    class Scale(metaclass=Meta):
        pass

    yield from turns(wrap(lambda x: x * Scale.k), device, lambda: hidden.__setitem__(0, 2.5))


@state("reads")
def property_over_state(wrap: Wrap, device: torch.device) -> Items:
    """A property computes its value from private state."""

    class Scale:
        _k = 1.5

        @property
        def k(self) -> float:
            return self._k * 2

    o = Scale()
    yield from turns(wrap(lambda x: x * o.k), device, put(o, _k=2.5))


@state("reads")
def property_replaced(wrap: Wrap, device: torch.device) -> Items:
    """The class gets another property under the same name."""

    class Scale:
        k = property(lambda self: 1.5)

    o = Scale()
    yield from turns(wrap(lambda x: x * o.k), device, put(Scale, k=property(lambda self: 2.5)))


@state("reads")
def data_descriptor(wrap: Wrap, device: torch.device) -> Items:
    """A descriptor keeps values of its own."""

    class Field:
        def __init__(self) -> None:
            self.values: dict[int, float] = {}

        def __get__(self, owner: Any, kind: Any = None) -> float:
            return self.values.get(id(owner), 1.5)

        def __set__(self, owner: Any, value: float) -> None:
            self.values[id(owner)] = value

    class Scale:
        k = Field()

    o = Scale()
    yield from turns(wrap(lambda x: x * o.k), device, put(o, k=2.5), lambda: vars(Scale)["k"].values.clear())


@state("reads")
def non_data_descriptor(wrap: Wrap, device: torch.device) -> Items:
    """An instance attribute appears that hides a descriptor without a setter."""

    class Field:
        def __get__(self, owner: Any, kind: Any = None) -> float:
            return 1.5

    class Scale:
        k = Field()

    o = Scale()
    yield from turns(wrap(lambda x: x * o.k), device, lambda: vars(o).update(k=2.5), lambda: vars(o).clear())


@state("reads")
def slot(wrap: Wrap, device: torch.device) -> Items:
    """An attribute in a slot."""

    class Scale:
        __slots__ = ("k",)

    o = Scale()
    o.k = 1.5
    yield from turns(wrap(lambda x: x * o.k), device, put(o, k=2.5), put(o, k=1.5))


@state("reads")
def slot_emptied(wrap: Wrap, device: torch.device) -> Items:
    """A slot is emptied: the next call raises, as the plain one does."""

    class Scale:
        __slots__ = ("k",)

    o = Scale()
    o.k = 1.5
    g = wrap(lambda x: x * getattr(o, "k", 7.0))
    yield from turns(g, device, lambda: delattr(o, "k"), put(o, k=2.5))


@state("reads")
def module_attribute(wrap: Wrap, device: torch.device) -> Items:
    """An attribute of a Python module."""
    config = types.ModuleType("config")
    config.k = 1.5  # type: ignore[attr-defined]
    yield from turns(wrap(lambda x: x * config.k), device, put(config, k=2.5))


@state("reads")
def module_getattr(wrap: Wrap, device: torch.device) -> Items:
    """A Python module's own ``__getattr__``."""
    config, hidden = types.ModuleType("config"), {"k": 1.5}
    config.__getattr__ = hidden.__getitem__  # type: ignore[method-assign]
    g = wrap(lambda x: x * config.k)
    yield from turns(g, device, lambda: hidden.update(k=2.5), put(config, k=3.5))


@state("reads")
def own_getattr(wrap: Wrap, device: torch.device) -> Items:
    """``__getattr__`` of a class, later hidden by an attribute."""

    class Config:
        def __init__(self) -> None:
            self.values = {"k": 1.5}

        def __getattr__(self, name: str) -> float:
            return self.values[name]

    o = Config()
    yield from turns(wrap(lambda x: x * o.k), device, lambda: o.values.update(k=2.5), put(o, k=3.5))


@state("reads")
def own_getattribute(wrap: Wrap, device: torch.device) -> Items:
    """``__getattribute__`` of a class reads a global table."""
    table = {"k": 1.5}

    class Config:
        def __getattribute__(self, name: str) -> Any:
            return table[name] if name in table else object.__getattribute__(self, name)

    o = Config()
    yield from turns(wrap(lambda x: x * o.k), device, lambda: table.update(k=2.5))


@state("reads")
def missing_then_there(wrap: Wrap, device: torch.device) -> Items:
    """An attribute that was not there appears, and goes again."""
    o = types.SimpleNamespace()
    g = wrap(lambda x: x * (o.k if hasattr(o, "k") else 1.5))
    yield from turns(g, device, put(o, k=2.5), lambda: delattr(o, "k"))


@state("reads")
def computed_name(wrap: Wrap, device: torch.device) -> Items:
    """``getattr`` with a name made at run time."""
    o = types.SimpleNamespace(gain_0=1.5, gain_1=3.0)
    g = wrap(lambda x: x * getattr(o, f"gain_{int(x.dim() > 1)}"))
    yield from turns(g, device, put(o, gain_1=4.0), put(o, gain_0=2.5))


@state("reads")
def computed_name_of_state(wrap: Wrap, device: torch.device) -> Items:
    """``getattr`` with a name that is state itself."""
    o = types.SimpleNamespace(a=1.5, b=3.0, which="a")
    yield from turns(wrap(lambda x: x * getattr(o, o.which)), device, put(o, which="b"), put(o, b=4.0))


@state("reads")
def vars_of_an_object(wrap: Wrap, device: torch.device) -> Items:
    """``vars(obj)`` read by a key made at run time."""
    o = types.SimpleNamespace(gain=1.5)
    yield from turns(wrap(lambda x: x * vars(o)["niag"[::-1]]), device, put(o, gain=2.5))


@state("reads")
def sum_of_vars(wrap: Wrap, device: torch.device) -> Items:
    """All attributes of an object, whatever their names are."""
    o = types.SimpleNamespace(a=1.0)
    g = wrap(lambda x: x * sum(vars(o).values()))
    yield from turns(g, device, put(o, b=2.0), lambda: delattr(o, "a"))


@state("reads")
def names_of_dir(wrap: Wrap, device: torch.device) -> Items:
    """``dir(obj)`` after the class has got an attribute."""

    class Plugin:
        def apply_a(self) -> float:
            return 1.0

    o = Plugin()
    g = wrap(lambda x: x * sum(getattr(o, name)() for name in dir(o) if name.startswith("apply_")))
    yield from turns(g, device, put(Plugin, apply_b=lambda self: 2.0))


@state("reads")
def function_attribute(wrap: Wrap, device: torch.device) -> Items:
    """An attribute of a function."""

    def scale() -> float:
        return scale.k

    scale.k = 1.5
    yield from turns(wrap(lambda x: x * scale()), device, put(scale, k=2.5))


@state("reads")
def attribute_of_the_callable(wrap: Wrap, device: torch.device) -> Items:
    """An attribute of the callable that is graphed."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * fn.k

    fn.k = 1.5
    yield from turns(wrap(fn), device, put(fn, k=2.5))


@state("reads")
def method_on_the_instance(wrap: Wrap, device: torch.device) -> Items:
    """A method is hidden by a function in the instance."""

    class Layer:
        def act(self, x: torch.Tensor) -> torch.Tensor:
            return x * 1.5

    o = Layer()
    yield from turns(wrap(lambda x: o.act(x)), device, put(o, act=lambda x: x * 2.5), lambda: vars(o).clear())


@state("reads")
def method_on_the_class(wrap: Wrap, device: torch.device) -> Items:
    """A method of the class is replaced."""

    class Layer:
        def act(self, x: torch.Tensor) -> torch.Tensor:
            return x * 1.5

    o = Layer()
    yield from turns(wrap(lambda x: o.act(x)), device, put(Layer, act=lambda self, x: x * 2.5))


@state("reads")
def method_found_by_super(wrap: Wrap, device: torch.device) -> Items:
    """A method that ``super()`` finds is replaced."""

    class Base:
        def gain(self) -> float:
            return 1.5

    class Layer(Base):
        def gain(self) -> float:
            return super().gain() * 2

    o = Layer()
    yield from turns(wrap(lambda x: x * o.gain()), device, put(Base, gain=lambda self: 2.5))


@state("reads")
def class_and_static_methods(wrap: Wrap, device: torch.device) -> Items:
    """A class method reads the class; a static method is replaced."""

    class Layer:
        k: ClassVar[float] = 1.5

        @classmethod
        def gain(cls) -> float:
            return cls.k

        @staticmethod
        def shift() -> float:
            return 1.0

    o = Layer()
    g = wrap(lambda x: x * o.gain() + o.shift())
    yield from turns(g, device, put(Layer, k=2.5), put(Layer, shift=staticmethod(lambda: 4.0)))


@state("reads")
def cached_property(wrap: Wrap, device: torch.device) -> Items:
    """A cached property is invalidated after its source changed."""

    class Scale:
        source = 1.5

        @functools.cached_property
        def k(self) -> float:
            return self.source * 2

    o = Scale()
    yield from turns(wrap(lambda x: x * o.k), device, put(o, source=2.5), lambda: vars(o).pop("k"))


@state("reads")
def attribute_deleted_from_the_instance(wrap: Wrap, device: torch.device) -> Items:
    """An instance attribute is deleted: the class's shows again."""

    class Scale:
        k = 1.5

    o = Scale()
    o.k = 2.5
    yield from turns(wrap(lambda x: x * o.k), device, lambda: delattr(o, "k"), put(o, k=2.5))


@state("reads")
def same_value_another_type(wrap: Wrap, device: torch.device) -> Items:
    """An attribute of 1 becomes True, then 1.0: equal, and not the same."""
    o = types.SimpleNamespace(k=1)
    g = wrap(lambda x: torch.full((2,), o.k, device=x.device))
    yield from turns(g, device, put(o, k=True), put(o, k=1.0), put(o, k=1))


@state("reads")
def zero_of_another_sign(wrap: Wrap, device: torch.device) -> Items:
    """An attribute of 0.0 becomes -0.0, then not a number."""
    o = types.SimpleNamespace(k=0.0)
    g = wrap(lambda x: 1 / (x * o.k))
    yield from turns(g, device, put(o, k=-0.0), put(o, k=float("nan")), put(o, k=0.0))


@state("reads")
def tensor_attribute_rebound(wrap: Wrap, device: torch.device) -> Items:
    """A tensor in an attribute is replaced by another of the same form."""
    o = types.SimpleNamespace(t=torch.full((4,), 1.5, device=device))
    fresh = torch.full((4,), 2.5, device=device)
    yield from turns(wrap(lambda x: x * o.t), device, put(o, t=fresh), lambda: fresh.mul_(2))


@state("effects")
def setter_and_deleter_with_closures(wrap: Wrap, device: torch.device) -> Items:
    """A property's setter and deleter write to what they close over; their factor changes."""
    log: list[float] = []
    factor = types.SimpleNamespace(k=1.0)

    class Box:
        value = 0.0

        @property
        def k(self) -> float:
            return self.value

        @k.setter
        def k(self, new: float) -> None:
            log.append(new)
            self.value = new * factor.k

        @k.deleter
        def k(self) -> None:
            log.append(-1)

    box = Box()

    def fn(x: torch.Tensor) -> torch.Tensor:
        box.k = 2.0
        del box.k
        return x * box.k

    yield from turns(wrap(fn), device, put(factor, k=3.0), log.clear, watch=lambda: [*log])


@state("reads")
def attribute_of_a_tensor_of_ones_own(wrap: Wrap, device: torch.device) -> Items:
    """A tensor of one's own class has an attribute from its class, then one of its own."""

    class Own(torch.Tensor):
        k = 1.0

    t = torch.ones(4, device=device).as_subclass(Own)
    g = wrap(lambda x: (x * t).as_subclass(torch.Tensor) * t.k)
    yield from turns(g, device, put(t, k=2.0), put(Own, k=3.0), lambda: delattr(t, "k"))


@state("reads")
def methods_of_one_tensor(wrap: Wrap, device: torch.device) -> Items:
    """A tensor of the state, a buffer and an argument get something of their own in the place of a method."""
    m = nn.BatchNorm1d(4).to(device).eval()
    w, given = torch.full((4,), 2.0, device=device), torch.ones(4, device=device)
    calls: list[tuple[torch.Tensor, Any]] = [
        (w, lambda x, y: w.add(x)), (m.running_mean, lambda x, y: m.running_mean.add(x)),
        (given, lambda x, y: y.add(x)),
    ]  # fmt: skip
    for tensor, call in calls:
        g = wrap(call)
        changes = put(tensor, add=lambda other: other * 10), lambda tensor=tensor: delattr(tensor, "add")
        yield from turns(g, device, *changes, args=lambda x: (x, given))


@state("reads")
def attribute_of_a_parameters_class(wrap: Wrap, device: torch.device) -> Items:
    """What ``torch.nn.Parameter`` has for all of them is hidden by one of its own."""
    w = nn.Parameter(torch.ones(4, device=device), requires_grad=False)
    g = wrap(lambda x: x * getattr(w, "gain", 1))
    try:
        yield from turns(g, device, put(nn.Parameter, gain=3), put(w, gain=4), lambda: delattr(w, "gain"))
    finally:
        del nn.Parameter.gain
    yield from turns(g, device)


@state("reads")
def slot_behind_a_slot(wrap: Wrap, device: torch.device) -> Items:
    """A class has a slot of the name that its base has one of, which is read by its descriptor."""

    class Base:
        __slots__ = ("gain",)

    class Derived(Base):
        __slots__ = ("gain",)

        def hidden(self) -> float:
            return super().gain

    o, slot = Derived(), vars(Base)["gain"]
    o.gain = 3.0
    slot.__set__(o, 2.0)
    for call in (lambda x: x * slot.__get__(o) + o.gain, lambda x: x * o.hidden() + o.gain):
        yield from turns(wrap(call), device, lambda: slot.__set__(o, 5.0), put(o, gain=7.0))


@state("reads")
def origin_of_a_tensor(wrap: Wrap, device: torch.device) -> Items:
    """A call asks where a tensor comes from, of state and of an argument, and computes nothing with it."""
    w, b = torch.ones(4, device=device, requires_grad=True), torch.ones(4, device=device)
    o = types.SimpleNamespace(t=w * 2)
    of_state = wrap(lambda x: x * len(o.t.grad_fn.name() if o.t.grad_fn is not None else ""))
    makers = (lambda: w * 2, lambda: w + 1, lambda: w.exp(), w.detach)
    yield from turns(of_state, device, *[lambda make=make: put(o, t=make())() for make in makers])
    of_argument = wrap(lambda x, y: x * (2 if y.grad_fn is None else 3))
    for make in makers:
        yield from turns(of_argument, device, args=lambda x, make=make: (x, make()))
    o.t = b[:2]
    of_base = wrap(lambda x: x * (2 if o.t._base is not None else 1))

    def twice() -> None:
        o.t = b[1:3]
        o.t = torch.ones(2, device=device)  # where the first view was

    yield from turns(of_base, device, twice, put(o, t=b))
