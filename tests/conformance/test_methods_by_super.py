"""Classes of one's own that hand their methods on to the builtin class they derive from."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch

import rote

_METHODS = (
    "__contains__", "__getitem__", "__setitem__", "__delitem__", "__iter__", "__len__", "get", "setdefault",
    "pop", "update", "append",
)  # fmt: skip


def handing_on(kind: type[Any]) -> type[Any]:
    """A class whose methods do what those of its base do, by ``super``."""

    def method(name: str) -> Callable[..., Any]:
        return lambda self, *given: getattr(super(derived, self), name)(*given)

    names = [name for name in _METHODS if hasattr(kind, name)]
    derived: type[Any] = type(kind.__name__, (kind,), {name: method(name) for name in names})
    return derived


def contained(d: Any, x: Any) -> Any:
    return x * 2 if "other" in d else x


def got(d: Any, x: Any) -> Any:
    return x * d.get("other", 3.0)


def read(d: Any, x: Any) -> Any:
    return x * d["number"]


def set_by_default(d: Any, x: Any) -> Any:
    return x * d.setdefault("other", 3.0)


def written(d: Any, x: Any) -> Any:
    d["number"] = 7.0
    return x


def turned(d: Any, x: Any) -> Any:
    d["number"] = -d["number"]
    return x * d["number"]


def bound(d: Any, x: Any) -> Any:
    d["result"] = x * 2
    return x


def deleted(d: Any, x: Any) -> Any:
    if "other" in d:
        del d["other"]
        return x * 5
    return x


def written_by_the_base(d: Any, x: Any) -> Any:
    dict.__setitem__(d, "number", 7.0)
    return x


def read_by_the_base(d: Any, x: Any) -> Any:
    return x * dict.__getitem__(d, "number")


STEPS = (
    contained, got, read, set_by_default, written, turned, bound, deleted, written_by_the_base,
    read_by_the_base,
)  # fmt: skip
KINDS = (dict, defaultdict, OrderedDict)


def same(played: Callable[[Callable[..., Any]], list[Any]]) -> None:
    assert played(lambda fn: rote.graph(fn, keep=True)) == played(lambda fn: fn)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_dict_of_ones_own(kind: type[Any], step: Any, device: torch.device) -> None:
    if kind is OrderedDict and step in (written_by_the_base, read_by_the_base):
        pytest.skip("methods of dict break what an OrderedDict knows of its order")

    def played(wrap: Callable[..., Any]) -> list[Any]:
        d = handing_on(kind)()
        kind.update(d, number=1.0, result=torch.zeros(1, device=device))
        changes: list[Callable[[], object]] = [
            lambda: kind.__setitem__(d, "number", 2.0),
            lambda: kind.__setitem__(d, "other", 4.0),
            lambda: kind.pop(d, "other", None),
            lambda: kind.__setitem__(d, "result", torch.ones(1, device=device)),
        ]
        g, seen = wrap(lambda x: step(d, x)), []
        for call in range(18):
            if call >= 6 and call % 3 == 0:
                changes[call // 3 - 2]()
            out = g(torch.full((1,), float(call), device=device))
            seen.append((float(out), [(key, float(value)) for key, value in kind.items(d)]))
        return seen

    same(played)


@pytest.mark.parametrize("kind", [list, deque])
@pytest.mark.parametrize("way", ["set", "set by slice", "read", "found"])
def test_a_list_of_ones_own(kind: type[Any], way: str, device: torch.device) -> None:
    def played(wrap: Callable[..., Any]) -> list[Any]:
        values = handing_on(kind)([1.0, 2.0])
        others = [3.0]

        def step(x: torch.Tensor) -> torch.Tensor:
            if way == "set":
                values[0] = 5.0
            elif way == "set by slice" and kind is list:
                values[0:1] = others
            elif way == "found":
                return x * (9.0 in values)
            return x * values[0]

        changes: list[Callable[[], object]] = [
            lambda: kind.__setitem__(values, 0, 4.0),
            lambda: kind.append(values, 9.0),
            lambda: others.append(7.0),
        ]
        g, seen = wrap(step), []
        for call in range(15):
            if call >= 6 and call % 3 == 0:
                changes[call // 3 - 2]()
            seen.append((float(g(torch.ones(1, device=device))), list(kind.__iter__(values))))
        return seen

    same(played)


class Part(functools.partial[Any]):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs)


class PlainPart(functools.partial[Any]):
    pass


class Reference(weakref.ref[Any]):
    def __call__(self) -> Any:
        return super().__call__()


class Count(itertools.count):  # pyright: ignore[reportMissingTypeArgument]
    def __next__(self) -> Any:
        return super().__next__() % 2


class Scale:
    s = 2.0


@pytest.mark.parametrize("kind", [Part, PlainPart, Reference, Count])
def test_an_object_of_c_of_ones_own(kind: type[Any], device: torch.device) -> None:
    def played(wrap: Callable[..., Any]) -> list[Any]:
        scale = Scale()
        made: Any = {
            Part: lambda: Part(lambda x, s: x * s, s=2.0),
            PlainPart: lambda: PlainPart(lambda x, s: x * s, s=2.0),
            Reference: lambda: Reference(scale),
            Count: Count,
        }[kind]()

        def step(x: torch.Tensor) -> torch.Tensor:
            if kind is Reference:
                return x * made().s
            return x * next(made) if kind is Count else made(x)

        g, seen = wrap(step), []
        for call in range(15):
            if call in (7, 11):
                scale.s += 1.0
                if issubclass(kind, functools.partial):
                    made.keywords["s"] += 1.0
            seen.append(float(g(torch.ones(1, device=device))))
        return seen

    same(played)
