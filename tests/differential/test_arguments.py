"""Arguments: what a callable may do to them, and what it may be told apart by."""

from __future__ import annotations

import collections
import warnings
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import Any

import numpy
import pytest
import torch
from tests.differential.harness import attempt, check, drive, full


@dataclass
class State:
    hidden: torch.Tensor
    steps: int = 0


@dataclass
class Doubled:
    value: torch.Tensor

    def __post_init__(self) -> None:
        self.value = self.value * 2


@dataclass
class Scaled:
    value: torch.Tensor
    scale: InitVar[float]

    def __post_init__(self, scale: float) -> None:
        self.factor = scale


@dataclass
class Late:
    value: torch.Tensor
    other: torch.Tensor | None = field(init=False, default=None)


class Marked(torch.Tensor):
    def area(self) -> int:
        return 3


def test_order_of_keywords():
    def scenario(wrap):
        g = wrap(lambda **named: torch.cat(list(named.values())))
        yield g(b=full(2), a=full(1))
        for i in range(6):
            yield g(a=full(i), b=full(2))
            yield g(b=full(i), a=full(1))

    check(scenario)


def test_containers_changed_in_place():
    def scenario(wrap):
        def fn(state, table, items, x):
            state.hidden = state.hidden + x
            state.steps += 1
            table["y"] = x * 2
            items.append(x * 3)
            return x

        g, state, table, items = wrap(fn), State(full(0)), {}, []
        for i in range(6):
            yield g(state, table, items, full(i))
            yield state, table, items

    check(scenario)


def test_post_init_runs_once():
    def scenario(wrap):
        yield wrap(lambda p: p.value)(Doubled(full(1)))
        yield from drive(wrap(lambda x: Doubled(x)))

    check(scenario)


def test_init_only_fields_and_fields_without_init():
    def scenario(wrap):
        yield attempt(wrap(lambda o: o.value * o.factor), Scaled(full(1), 2.0))
        late = Late(full(1))
        late.other = full(2)
        yield attempt(wrap(lambda o: o.value + o.other), late)

    check(scenario)


def test_default_factory_of_a_defaultdict():
    def scenario(wrap):
        g = wrap(lambda table, x: x * len(table["new"]))
        yield attempt(g, collections.defaultdict(list), full(1))

    check(scenario)


def test_cyclic_container():
    def scenario(wrap):
        table: dict[str, Any] = {"x": full(1)}
        table["me"] = table
        yield attempt(wrap(lambda table: table["x"] * 2), table)

    check(scenario)


def test_function_whose_closure_changes():
    def scenario(wrap):
        scale = [2.0]

        def times(x):
            return x * scale[0]

        g = wrap(lambda x, f: f(x))
        yield from drive(g, change=lambda: scale.__setitem__(0, 5.0), args=lambda i: (full(i), times))

    check(scenario)


def test_class_whose_attribute_changes():
    def scenario(wrap):
        class Constants:
            k = 2.0

        g = wrap(lambda x, c: x * c.k)
        yield from drive(g, change=lambda: setattr(Constants, "k", 5.0), args=lambda i: (full(i), Constants))

    check(scenario)


@pytest.mark.parametrize(
    ("make", "change", "use"),
    [
        (lambda: numpy.ones(2), lambda o: o.__setitem__(0, 7), lambda o: float(o[0])),
        (lambda: {1}, lambda o: o.add(2), len),
        (lambda: bytearray(b"\1"), lambda o: o.__setitem__(0, 9), lambda o: float(o[0])),
        (lambda: collections.UserDict(a=1.0), lambda o: o.__setitem__("a", 3.0), lambda o: o["a"]),
    ],
    ids=["array", "set", "bytearray", "UserDict"],
)
def test_opaque_argument_whose_content_changes(
    make: Callable[[], Any], change: Callable[[Any], Any], use: Callable[[Any], Any]
):
    def scenario(wrap):
        o = make()
        g = wrap(lambda x, o: x * use(o))
        yield from drive(g, change=lambda: change(o), args=lambda i: (full(i), o))

    check(scenario)


def test_minus_zero():
    def scenario(wrap):
        g = wrap(lambda t: 1 / (torch.ones(2) * t.tolist()[0]))
        for i in range(8):
            yield g(torch.tensor([0.0 if i < 6 else -0.0]))
        g = wrap(lambda x, s: 1 / torch.view_as_real(x * s))
        for i in range(10):
            yield g(torch.tensor([1 + 1j]), complex(0.0, 0.0) if i < 5 else complex(-0.0, -0.0))

    check(scenario)


def test_subclass_with_methods_of_its_own():
    def scenario(wrap):
        g = wrap(lambda b: b.area())
        yield from drive(g, args=lambda i: (full(i).as_subclass(Marked),))

    check(scenario)


def test_quantized():
    def scenario(wrap):
        g = wrap(lambda q: q.dequantize())
        yield from drive(g, args=lambda i: (torch.quantize_per_tensor(full(i), 0.1, 0, torch.quint8),))

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.quantize_per_tensor")
        check(scenario)


def test_nested():
    def scenario(wrap):
        def args(i):
            return (torch.nested.nested_tensor([torch.full((2,), float(i)), torch.ones(3)]),)

        yield from drive(wrap(lambda n: n.to_padded_tensor(0.0)), args=args)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors")
        check(scenario)


class Gets(dict):
    """Settings by attribute; what is not there is None."""

    __getattr__ = dict.get


class Takes(dict):
    __getattr__ = dict.__getitem__


class TakesOnly(dict):
    __slots__ = ()
    __getattr__ = dict.__getitem__


class Answers:
    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def __getattr__(self, name: str) -> Any:
        return None


class Slotted:
    __slots__ = ("scale", "unset")

    def __init__(self, scale: Any) -> None:
        self.scale = scale

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


ANSWERING = [Gets, Takes, TakesOnly, Answers, Slotted]


@pytest.mark.parametrize("kind", ANSWERING)
def test_objects_that_answer_to_every_name_as_arguments(kind: Callable[..., Any]):
    def scenario(wrap):
        g = wrap(lambda x, settings: x * settings.scale)
        kept = kind(scale=2.0)
        for i in range(10):
            yield attempt(g, full(i), kept)
            yield attempt(g, full(i), kind(scale=float(i)))
            yield attempt(g, full(i), kind(scale=full(i)))

    check(scenario)


@pytest.mark.parametrize("kind", ANSWERING)
def test_objects_that_answer_to_every_name_as_state(kind: Callable[..., Any]):
    def scenario(wrap):
        table = {"settings": kind(scale=2.0)}

        def change():
            table["settings"] = kind(scale=5.0)

        yield from drive(wrap(lambda x: x * table["settings"].scale), change=change)

    check(scenario)


@pytest.mark.parametrize("kind", ANSWERING)
def test_objects_that_answer_to_every_name_where_a_result_was(kind: Callable[..., Any]):
    def scenario(wrap):
        first, second = wrap(lambda x: x + 1), wrap(lambda x: x.scale if isinstance(x, kind) else x * 2)
        for i in range(8):
            yield second(first(full(i))).tolist()
        yield second(kind(scale=full(3))).tolist()
        yield second(first(full(4))).tolist()

    check(scenario)
