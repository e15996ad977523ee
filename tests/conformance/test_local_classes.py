"""Classes that a call makes itself: their bodies are followed, and what they hold is the call's own."""

from __future__ import annotations

import abc
import enum
import gc
import weakref
from collections.abc import Callable, Sized
from typing import Any, ClassVar

import pytest
import torch

import rote
from rote.testing import assert_same

CALLS, CHANGED = 9, 6


class Around:
    """What classes in calls read; a test changes it between two calls."""

    by = 2.0

    def get(self):
        return self.x * self.by


class Registered:
    names: ClassVar[list[str]] = []

    def __init_subclass__(cls, *, scale=1.0):
        Registered.names.append(cls.__name__)
        cls.scale = scale * Around.by


class Adding(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.added = Around.by
        return made


class Prepared(type):
    @classmethod
    def __prepare__(cls, name, bases):
        return {"scale": Around.by}


class Scaling(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value * Around.by if key == "scale" else value)


class OwnNamespace(type):
    @classmethod
    def __prepare__(cls, name, bases):
        return Scaling()

    def __new__(cls, name, bases, namespace):
        return super().__new__(cls, name, bases, dict(namespace))


class Named:
    def __set_name__(self, owner, name):
        self.value = Around.by

    def __get__(self, instance, owner):
        return self.value


def function_as_metaclass(name, bases, namespace):
    return type(name, bases, {**namespace, "scale": Around.by})


def decorated_by(cls):
    cls.scale = Around.by
    return cls


def body(x):
    class Local:
        scale = Around.by

    return x * Local.scale


def keywords(x):
    class Local:
        def __init__(self, **kwargs):
            for key, value in kwargs.items():
                setattr(self, key, value)

    made = Local(x=x, y=Around.by)
    return made.x * made.y


def method(x):
    class Local:
        def scaled(self):
            return x * Around.by

    return Local().scaled()


def descriptors(x):
    class Local:
        @property
        def scaled(self):
            return x * Around.by

        @staticmethod
        def more(y):
            return y + Around.by

        @classmethod
        def twice(cls, y):
            return y * 2

    return Local.twice(Local.more(Local().scaled))


def shadowed(x):
    class Local:
        Around = 3.0
        scale = Around

    return x * Local.scale * Around.by


def derived(x):
    class Local(Around):
        def __init__(self):
            super().__init__()
            self.x = x

        def get(self):
            return super().get() + 1

    return Local().get()


def chain(x):
    class First:
        scale = Around.by

        def scaled(self, y):
            return y * self.scale

    class Second(First):
        def scaled(self, y):
            return super().scaled(y) + self.scale

    class Third(Second):
        scale = Second.scale + 1

    return Third().scaled(x)


def by_type(x):
    made = type("Local", (Around,), {"extra": Around.by})()
    made.x = x
    return made.get() + made.extra


def counted(x):
    class Local:
        count = 0

    for _ in range(3):
        Local.count += Around.by
    return x * Local.count


def annotated(x):
    class Local:
        scale: float = Around.by
        other: int

    return x * Local.scale


def in_a_loop(x):
    for number in range(3):

        class Local:
            def add(self, y):
                return y * Around.by + number  # noqa: B023

        x = Local().add(x)
    return x


def hooked(x):
    class Local(Registered, scale=3.0):
        pass

    return x * Local.scale


def metaclass(x):
    class Local(metaclass=Adding):
        pass

    return x * Local().added


def prepared(x):
    class Local(metaclass=Prepared):
        pass

    return x * Local.scale


def own_namespace(x):
    class Local(metaclass=OwnNamespace):
        scale = 2.0

    return x * Local.scale


def made_by_a_function(x):
    class Local(metaclass=function_as_metaclass):
        pass

    return x * Local.scale


def decorated(x):
    @decorated_by
    class Local:
        pass

    return x * Local.scale


def named(x):
    class Local:
        scale = Named()

    return x * Local().scale


def abstract(x):
    class Local(abc.ABC):
        @abc.abstractmethod
        def scaled(self): ...

    class Whole(Local):
        def scaled(self):
            return x * Around.by

    return Whole().scaled()


def numbered(x):
    class Local(enum.Enum):
        SCALE = Around.by

    return x * Local.SCALE.value


def module(x):
    class Local(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = Around.by

        def forward(self, y):
            return y * self.scale

    return Local()(x)


def error(x):
    class LocalError(ValueError):
        pass

    try:
        raise LocalError(Around.by)
    except ValueError as caught:
        return x * caught.args[0]


def special_methods(x):
    class Local:
        def __getattr__(self, name):
            return Around.by

        def __getitem__(self, index):
            return Around.by

        def __add__(self, other):
            return other + Around.by

        def __iter__(self):
            return iter([Around.by])

        def __bool__(self):
            return Around.by > 3

        def __enter__(self):
            return Around.by

        def __exit__(self, *args):
            pass

        def __call__(self, y):
            return y * Around.by

    made = Local()
    with made as entered:
        pass
    return made(x) + made.any + made[0] + (made + x) + sum(list(made)) + (1 if made else 2) + entered


PROGRAMS = [
    body, keywords, method, descriptors, shadowed, derived, chain, by_type, counted, annotated, in_a_loop,
    hooked, metaclass, prepared, own_namespace, made_by_a_function, decorated, named, abstract, numbered,
    module, error, special_methods,
]  # fmt: skip


@pytest.fixture(autouse=True)
def _around(monkeypatch):
    monkeypatch.setattr(Around, "by", 2.0)
    monkeypatch.setattr(Registered, "names", [])


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_class_of_the_call_and_what_changes_around_it(program, device):
    graphed = rote.graph(program, keep=True)
    for number in range(CALLS):
        if number == CHANGED:
            # A class is a cycle, so what it holds of the first call is still there in the second.
            assert graphed.report().replayed >= CHANGED - 3, graphed.explain()
            Around.by = 5.0
        x = torch.randn(3, device=device)
        assert torch.equal(graphed(x), program(x))
    assert graphed.report().replayed >= CALLS - 5, graphed.explain()
    assert {each.code for each in graphed.report().reasons} <= {"RT302", "RT331"}


def test_a_hook_of_a_base_has_its_effects_in_replays(device):
    graphed = rote.graph(hooked, keep=True)
    for number in range(6):
        graphed(torch.ones(2, device=device))
        assert len(Registered.names) == number + 1
    assert graphed.report().replayed == 4


kept: dict[str, Any] = {}


def stored(x):
    class Local:
        pass

    kept["class"] = Local
    return x * 2


def handed_out(x):
    class Local:
        pass

    made = Local()
    made.x = x * 2
    return made


def handed_out_as_it_is(x):
    class Local:
        pass

    return Local


def holding_a_tensor(x):
    class Local:
        twice = x * 2

    return Local.twice + Local().twice


@pytest.mark.parametrize(
    ("program", "code"),
    [(stored, "RT201"), (handed_out, "RT502"), (handed_out_as_it_is, "RT502"), (holding_a_tensor, "RT205")],
)
def test_a_class_that_outlives_the_call_is_not_replayed(program, code, device, reason):
    """Each call has a class of its own, which a replay could not make."""
    graphed, seen = rote.graph(program, keep=True), []
    for _ in range(5):
        seen.append(graphed(torch.ones(2, device=device)))
    assert graphed.report().replayed == 0
    assert reason(graphed, code)
    kept.clear()


@pytest.mark.parametrize("at", [None, CHANGED])
def test_a_class_that_an_earlier_call_has_made_is_outside(at, device):
    def cached(x):
        if "class" not in kept:

            class Local:
                scale = Around.by

            kept["class"] = Local

        class Derived(kept["class"]):
            pass

        return x * Derived.scale

    kept.clear()
    graphed = rote.graph(cached, keep=True)
    for number in range(CALLS):
        if number == at:
            kept["class"].scale = 7.0
        x = torch.randn(3, device=device)
        assert torch.equal(graphed(x), cached(x))
    assert graphed.report().replayed > 0
    kept.clear()


def test_an_argument_dies_although_a_class_of_the_call_has_used_it(device):
    graphed: Callable[..., Any] = rote.graph(method, keep=True)
    alive = list[weakref.ref[torch.Tensor]]()
    for _ in range(6):
        x = torch.randn(3, device=device)
        alive.append(weakref.ref(x))
        graphed(x)
        del x
    gc.collect()
    assert graphed.report().replayed == 4
    assert not any([each() is not None for each in alive])


def local(table=None):
    return type("Local", (), table or {})


def abstract(**names):
    return abc.ABCMeta("Abstract", (), names)


def asks_a_hook():
    kind = abstract(answer=True, __subclasshook__=classmethod(lambda cls, _: kind.answer))
    return lambda x: x * (2 if isinstance(local()(), kind) else 3), lambda: setattr(kind, "answer", False)


def asks_classes_derived_later():
    kind, later = abstract(), []

    def derives():
        later.append(type("Later", (kind,), {"__subclasshook__": classmethod(lambda *_: True)}))

    return lambda x: x * (2 if issubclass(local(), kind) else 3), derives


def asks_what_is_registered():
    kind, base = abstract(), (local(),)
    return lambda x: x * (2 if issubclass(type("Local", base, {}), kind) else 3), lambda: kind.register(*base)


def has_a_number_of_a_table():
    table = {"scale": 2.0}
    return lambda x: x * local(table).scale, lambda: table.update(scale=3.0)


def has_another_type_of_a_table():
    table = {"scale": 2}
    return lambda x: x.long() * local(table).scale, lambda: table.update(scale=2.0)


def asks_for_a_method_of_a_table():
    table = {"__len__": lambda _: 1}
    return lambda x: x * (2 if isinstance(local(table)(), Sized) else 3), lambda: table.update(__len__=None)


MAKERS = [
    asks_a_hook, asks_classes_derived_later, asks_what_is_registered, has_a_number_of_a_table,
    has_another_type_of_a_table, asks_for_a_method_of_a_table,
]  # fmt: skip


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_what_a_class_of_the_call_is_made_of_and_asked_by(make, device):
    program, change = make()
    graphed = rote.graph(program, keep=True)
    for number in range(CALLS):
        if number == CHANGED:
            assert graphed.report().replayed, graphed.explain()
            change()
        x = torch.randn(3, device=device)
        assert_same(graphed(x), program(x))


def test_a_class_dies_although_a_call_has_asked_for_those_of_its_base(device):
    class Base:
        pass

    kept = [type("Local", (Base,), {})]
    graphed = rote.graph(lambda x: x * len(Base.__subclasses__()), keep=True)
    for number in range(CALLS):
        if number == CHANGED:
            kept.clear()
            gc.collect()
        assert torch.equal(
            graphed(torch.ones(3, device=device)), torch.full((3,), float(number < CHANGED)).to(device)
        )
    assert graphed.report().replayed > 0


@pytest.mark.parametrize("name", ["__name__", "__qualname__", "__module__", "__doc__"])
def test_texts_that_a_class_has_are_computed(name, device):
    class Local:
        """One."""

    class State:
        step = 0

    def renames(x):
        State.step += 1
        setattr(Local, name, f"n{State.step}")
        return x * 2

    graphed = rote.graph(renames, keep=True)
    for number in range(CALLS):
        graphed(torch.ones(3, device=device))
        assert getattr(Local, name) == f"n{number + 1}"
