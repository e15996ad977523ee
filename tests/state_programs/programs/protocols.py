"""What Python does behind an operator: the special methods of own classes, and the state they read."""

from __future__ import annotations

import abc
import collections
import enum
import types
from collections.abc import Callable, Iterator, Sized
from typing import Any, Protocol, runtime_checkable

import numpy
import torch
from tests.footguns.case import Wrap, full
from tests.state_programs.program import put, state, turns

Items = Iterator[Any]


class Box:
    """An own class with state behind every operator."""

    def __init__(self, k: Any) -> None:
        self.k = k

    def __eq__(self, other: object) -> bool:
        return self.k == getattr(other, "k", other)

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: Any) -> bool:
        return self.k < getattr(other, "k", other)

    def __bool__(self) -> bool:
        return self.k > 2

    def __len__(self) -> int:
        return int(self.k)

    def __contains__(self, value: object) -> bool:
        return value == self.k

    def __iter__(self) -> Iterator[Any]:
        return iter([self.k, 1.0])

    def __getitem__(self, index: int) -> Any:
        return self.k * (index + 1)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.k

    def __format__(self, spec: str) -> str:
        return "#" * int(self.k)

    def __str__(self) -> str:
        return "s" * int(self.k)

    def __repr__(self) -> str:
        return "r" * int(self.k)

    def __index__(self) -> int:
        return int(self.k)

    def __float__(self) -> float:
        return float(self.k)

    def __add__(self, other: Any) -> Any:
        return self.k + other

    def __rmul__(self, other: Any) -> Any:
        return other * self.k

    def __neg__(self) -> Any:
        return -self.k

    def __round__(self, digits: int = 0) -> int:
        return round(self.k)

    def __abs__(self) -> Any:
        return abs(self.k)

    def __matmul__(self, other: Any) -> Any:
        return self.k * other

    def __enter__(self) -> Any:
        return self.k

    def __exit__(self, *error: object) -> None:
        pass

    def __dir__(self) -> list[str]:
        return ["d"] * int(self.k)

    def __reversed__(self) -> Iterator[Any]:
        return iter([self.k])


def with_block(b: Box, x: torch.Tensor) -> torch.Tensor:
    """The value of a ``with`` statement."""
    with b as k:
        return x * k


def loop(b: Box, x: torch.Tensor) -> torch.Tensor:
    """A loop over an own class."""
    for k in b:
        x = x * k
    return x


def compares(wrap: Wrap, device: torch.device, use: Callable[[Box, torch.Tensor], Any]) -> Items:
    """A box is used in one way; what it holds changes, then its class's special method does not."""
    b = Box(1.5)
    yield from turns(wrap(lambda x: use(b, x)), device, put(b, k=3.5), put(b, k=1.5))


@state("reads")
def own_equality(wrap: Wrap, device: torch.device) -> Items:
    """``__eq__`` reads state."""
    yield from compares(wrap, device, lambda b, x: x * (2.0 if b == 3.5 else 1.0))


@state("reads")
def own_order(wrap: Wrap, device: torch.device) -> Items:
    """``__lt__`` reads state; ``sorted`` calls it."""
    yield from compares(wrap, device, lambda b, x: x * sorted([b, Box(2.0)])[0].k)


@state("reads")
def own_truth(wrap: Wrap, device: torch.device) -> Items:
    """``__bool__`` reads state."""
    yield from compares(wrap, device, lambda b, x: x * (2.0 if b else 1.0))


@state("reads")
def own_length(wrap: Wrap, device: torch.device) -> Items:
    """``__len__`` reads state."""
    yield from compares(wrap, device, lambda b, x: x * len(b))


@state("reads")
def own_membership(wrap: Wrap, device: torch.device) -> Items:
    """``__contains__`` reads state."""
    yield from compares(wrap, device, lambda b, x: x * (2.0 if 3.5 in b else 1.0))


@state("reads")
def own_iteration(wrap: Wrap, device: torch.device) -> Items:
    """``__iter__`` reads state."""
    yield from compares(wrap, device, loop)


@state("reads")
def own_unpacking(wrap: Wrap, device: torch.device) -> Items:
    """Unpacking calls ``__iter__``."""
    yield from compares(wrap, device, lambda b, x: x * max(*b))


@state("reads")
def own_item(wrap: Wrap, device: torch.device) -> Items:
    """``__getitem__`` reads state."""
    yield from compares(wrap, device, lambda b, x: x * b[2])


@state("reads")
def own_call(wrap: Wrap, device: torch.device) -> Items:
    """``__call__`` reads state."""
    yield from compares(wrap, device, lambda b, x: b(x))


@state("reads")
def own_format(wrap: Wrap, device: torch.device) -> Items:
    """``__format__`` reads state; an f-string calls it."""
    yield from compares(wrap, device, lambda b, x: x * len(f"{b:3}"))


@state("reads")
def own_str_and_repr(wrap: Wrap, device: torch.device) -> Items:
    """``__str__`` and ``__repr__`` read state."""
    yield from compares(wrap, device, lambda b, x: x * len(str(b)) + len(f"{b!r}") + len("%s" % b))  # noqa: UP031


@state("reads")
def own_index(wrap: Wrap, device: torch.device) -> Items:
    """``__index__`` reads state; a range, a list and a tensor's index call it."""
    ks = [1.0, 2.0, 3.0, 4.0]
    yield from compares(wrap, device, lambda b, x: x * ks[b] + len(range(b)) + x[b])


@state("reads")
def own_float(wrap: Wrap, device: torch.device) -> Items:
    """``__float__`` reads state."""
    yield from compares(wrap, device, lambda b, x: x * float(b))


@state("reads")
def own_arithmetic(wrap: Wrap, device: torch.device) -> Items:
    """Arithmetic of an own class."""
    yield from compares(wrap, device, lambda b, x: x * (b + 1.0) + (-b) + (2.0 * b) + abs(b) + round(b))


@state("reads")
def own_matmul_with_a_tensor(wrap: Wrap, device: torch.device) -> Items:
    """An own class on the left of a tensor."""
    yield from compares(wrap, device, lambda b, x: b @ x)


@state("reads")
def own_context_manager(wrap: Wrap, device: torch.device) -> Items:
    """``__enter__`` reads state."""
    yield from compares(wrap, device, with_block)


@state("reads")
def own_dir_and_reversed(wrap: Wrap, device: torch.device) -> Items:
    """``__dir__`` and ``__reversed__`` read state."""
    yield from compares(wrap, device, lambda b, x: x * len(dir(b)) + sum(reversed(b)))


@state("reads")
def special_method_replaced(wrap: Wrap, device: torch.device) -> Items:
    """``__len__`` and ``__bool__`` are replaced on the class."""

    class Sizes:
        def __len__(self) -> int:
            return 2

    o = Sizes()
    g = wrap(lambda x: x * len(o) + (3.0 if o else 0.0))
    yield from turns(g, device, put(Sizes, __len__=lambda self: 5), put(Sizes, __bool__=lambda self: False))


@state("reads")
def hash_and_set_of_own(wrap: Wrap, device: torch.device) -> Items:
    """A set of objects with an own ``__eq__``."""

    class Tag:
        def __init__(self, name: str) -> None:
            self.name = name

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Tag) and self.name == other.name

        def __hash__(self) -> int:
            return 7

    tags, probe = {Tag("a")}, Tag("b")
    g = wrap(lambda x: x * (2.5 if probe in tags else 1.5))
    yield from turns(g, device, put(probe, name="a"), put(probe, name="c"))


@state("reads")
def isinstance_of_a_registered_class(wrap: Wrap, device: torch.device) -> Items:
    """A class is registered with an abstract one."""

    class Shape(abc.ABC):  # noqa: B024
        pass

    class Square:
        pass

    o = Square()
    g = wrap(lambda x: x * (2.5 if isinstance(o, Shape) else 1.5))
    yield from turns(g, device, lambda: Shape.register(Square))


@state("reads")
def issubclass_by_a_hook(wrap: Wrap, device: torch.device) -> Items:
    """``__instancecheck__`` of a class's class reads state."""

    class Meta(type):
        open = False

        def __instancecheck__(cls, value: object) -> bool:
            return Meta.open

    class Shape(metaclass=Meta):
        pass

    g = wrap(lambda x: x * (2.5 if isinstance(3, Shape) else 1.5))
    yield from turns(g, device, put(Meta, open=True))


@state("reads")
def isinstance_by_structure(wrap: Wrap, device: torch.device) -> Items:
    """A protocol, and ``Sized``: a method appears on the class."""

    @runtime_checkable
    class Closes(Protocol):
        def close(self) -> None: ...

    class Thing:
        pass

    o = Thing()
    g = wrap(lambda x: x * (2.5 if isinstance(o, Closes) else 1.5) + isinstance(o, Sized))
    yield from turns(g, device, put(Thing, close=lambda self: None))


@state("reads")
def type_of_a_value(wrap: Wrap, device: torch.device) -> Items:
    """``type(value)`` decides; the value becomes one of another type."""
    o = types.SimpleNamespace(k=1)
    g = wrap(lambda x: x * (2.5 if type(o.k) is int else 1.5))
    yield from turns(g, device, put(o, k=True), put(o, k=1))


@state("reads")
def identity(wrap: Wrap, device: torch.device) -> Items:
    """``is`` decides between equal objects."""
    a, b = [1], [1]
    o = types.SimpleNamespace(which=a)
    g = wrap(lambda x: x * (2.5 if o.which is a else 1.5))
    yield from turns(g, device, put(o, which=b), put(o, which=a))


@state("reads")
def match_by_class(wrap: Wrap, device: torch.device) -> Items:
    """``match`` with ``__match_args__`` that change."""

    class Point:
        __match_args__ = ("a",)

        def __init__(self) -> None:
            self.a, self.b = 1.5, 2.5

    p = Point()

    def fn(x: torch.Tensor) -> torch.Tensor:
        match p:
            case Point(k):
                return x * k
        return x

    yield from turns(wrap(fn), device, put(Point, __match_args__=("b",)), put(p, b=3.5))


@state("reads")
def match_of_mapping_and_sequence(wrap: Wrap, device: torch.device) -> Items:
    """``match`` of a mapping, then of a sequence."""
    o: Any = types.SimpleNamespace(rule={"kind": "scale", "k": 1.5})

    def fn(x: torch.Tensor) -> torch.Tensor:
        match o.rule:
            case {"kind": "scale", "k": k}:
                return x * k
            case [first, *rest]:
                return x * first + len(rest)
            case _:
                return x

    yield from turns(wrap(fn), device, lambda: o.rule.update(k=2.5), put(o, rule=[3.5, 0]), put(o, rule=None))


@state("reads")
def formatting_of_numbers(wrap: Wrap, device: torch.device) -> Items:
    """A key is made by formatting state."""
    table = {"1.50": 2.0, "2.50": 3.0}
    o = types.SimpleNamespace(k=1.5)
    g = wrap(lambda x: x * table[f"{o.k:.2f}"] + len("%d layers" % o.k))  # noqa: UP031
    yield from turns(g, device, put(o, k=2.5))


@state("reads")
def enum_payload(wrap: Wrap, device: torch.device) -> Items:
    """An enum's member holds an object that changes."""
    payload = types.SimpleNamespace(k=1.5)

    class Mode(enum.Enum):
        A = payload

    g = wrap(lambda x: x * Mode.A.value.k)
    yield from turns(g, device, put(payload, k=2.5))


@state("reads")
def enum_members(wrap: Wrap, device: torch.device) -> Items:
    """State is a member of an enum, or a flag."""

    class Mode(enum.Enum):
        SUM = 1
        MEAN = 2

    class Parts(enum.Flag):
        A = 1
        B = 2

    o = types.SimpleNamespace(mode=Mode.SUM, parts=Parts.A)
    g = wrap(lambda x: x * o.mode.value + len(o.mode.name) + (5.0 if Parts.B in o.parts else 0.0))
    yield from turns(g, device, put(o, mode=Mode.MEAN), put(o, parts=Parts.A | Parts.B))


def _asked(target: Any, log: list[str]) -> Any:
    """An object that says it is of another class, and logs what it is asked for."""

    class Standing:
        def __getattribute__(self, name: str) -> Any:
            log.append(name)
            return type(target) if name == "__class__" else object.__getattribute__(self, name)

        def __getitem__(self, index: int) -> Any:
            return target[index]

    return Standing()


@state("reads")
def objects_that_stand_for_others(wrap: Wrap, device: torch.device) -> Items:
    """Objects whose ``__class__`` is that of a tensor, a dict and so on: in state, arguments and results."""
    plain = ({"a": 1}, [1.0], (1,), {1}, 3, 2.5, "a", torch.float32, collections.deque([1]))
    others = (torch.ones(4), torch.nn.Parameter(torch.ones(4)), numpy.ones(2), torch.nn.ReLU())
    for target in (*plain, *others):
        log: list[str] = []
        box = types.SimpleNamespace(here=_asked(target, log), kept=None)

        def keep(x: torch.Tensor, box: Any = box) -> Any:
            box.kept = box.here
            return x * (2 if box.here is None else 3), box.here

        takes = wrap(lambda x, value: x * (2 if value is None else 3))
        keeps = wrap(keep)
        log.clear()
        for n in range(5):
            y, same = keeps(full(n, device))
            yield takes(full(n, device), box.here), y, same is box.here, box.kept is box.here, [*log]
