"""A note that says nothing new is not taken: what a call reads is the same, however often it reads it."""

from __future__ import annotations

import decimal
import threading
import types
import typing
from collections import OrderedDict, UserDict

import pytest
import torch

from .noting import noted, values


class Base:
    top = 1

    def __init__(self):
        self.a, self.table, self.names = 1, {"k": 1, 3: "three"}, ["n"]
        self.hooks = OrderedDict()

    def method(self):
        return self.a + self.top

    def __call__(self):
        return self.method()


class Derived(Base):
    def method(self):
        return super().method() + len(self.names)


class Other(Base):
    top = 5

    def __call__(self):
        return self.top


class Answering(Base):
    def __getattribute__(self, name):
        return object.__getattribute__(self, name)


def plus(a, *, b=2):
    return a + b


USES = {
    "attribute": lambda thing: thing.a,
    "attribute of a class": lambda thing: thing.top,
    "method": lambda thing: thing.method(),
    "super": lambda thing: Derived.method(thing) if isinstance(thing, Derived) else 0,
    "call": lambda thing: thing(),
    "getattr": lambda thing: getattr(thing, "a"),  # noqa: B009
    "hasattr": lambda thing: hasattr(thing, "missing"),
    "object's own": lambda thing: object.__getattribute__(thing, "a"),
    "item": lambda thing: thing.table["k"],
    "item under a number": lambda thing: thing.table[3],
    "get": lambda thing: thing.table.get("k") or thing.table.get("missing"),
    "in": lambda thing: "k" in thing.table,
    "not in": lambda thing: "missing" not in thing.table,
    "iteration": lambda thing: [*thing.table, *thing.names],
    "spread": lambda thing: dict(**{"b": 1}, **{str(k): v for k, v in thing.table.items()}),
    "called with them": lambda thing: plus(*[thing.a], **{"b": 3}),
    "truth": lambda thing: 1 if thing.hooks else 2,
    "length": lambda thing: len(thing.names),
    "isinstance": lambda thing: isinstance(thing, Base) and isinstance(thing.a, (int, str)),
    "C": lambda thing: abs(thing.a) + max(thing.a, 2),
    "tensors": lambda thing: torch.cat([torch.ones(2), torch.zeros(2)]).view(2, 2).sum() * thing.a,
}


def repeated(read, thing, times):
    for _ in range(times):
        read(thing)


@pytest.mark.parametrize("kind", [Base, Derived, Answering])
@pytest.mark.parametrize("use", USES, ids=str)
def test_reading_again_says_nothing_new(use, kind):
    thing = kind()
    first, again = noted(repeated, USES[use], thing, 1), noted(repeated, USES[use], thing, 3)
    assert not first.unseen and not again.unseen
    assert {each.address for each in first.reads} == {each.address for each in again.reads}
    assert values(first) == values(again)


def test_one_object_says_nothing_of_another():
    first, second = Base(), Base()
    second.a = 7

    def both():
        return first.a + second.a + first.table["k"] + second.table[3].count("t")

    found = values(noted(both))
    assert found["first.a"] == 1
    assert found["second.a"] == 7
    assert found["first.table['k']"] == 1
    assert found["second.table[3]"] == "three"


def test_a_key_is_no_attribute():
    table = UserDict({"data": 1})

    def both():
        return table.data["data"], table["data"]

    assert values(noted(both))["table.data['data']"] == 1


def test_a_class_that_changes_on_the_way():
    thing = Base()

    def change():
        thing()
        thing.__class__ = Other
        found = thing()
        thing.__class__ = Base
        return found

    assert "Other.top" in str(sorted(values(noted(change))))
    assert type(thing) is Base


def test_a_method_that_is_replaced_on_the_way():
    scale = 3
    thing = Base()

    def other(self):
        return scale

    def change():
        thing()
        was = Base.__call__
        Base.__call__ = other
        try:
            return thing()
        finally:
            Base.__call__ = was

    assert 3 in [value for name, value in values(noted(change)).items() if name.endswith("scale")]


def test_what_c_is_given_beside_tensors_is_looked_into():
    sizes, thing = [2, 2], torch.ones(4)

    def shaped():
        thing.view(2, 2)
        return thing.view(sizes)

    found = values(noted(shaped))
    assert (found["sizes[0]"], found["sizes[1]"], found["sizes (length)"]) == (2, 2, 2)


def test_methods_of_builtin_classes_of_one_name_are_two():
    """``fromhex`` of bytes and of numbers, which are bound to their classes."""

    def both():
        return bytes.fromhex("ff"), float.fromhex("0x1p3"), bytearray.fromhex("00")

    assert not noted(both).unseen


def test_a_bound_method_of_c_is_looked_into():
    names = ["n"]
    bound = types.MethodType(len, names)

    def ask():
        return bound(), bound()

    assert 1 in [value for name, value in values(noted(ask)).items() if name.endswith("(length)")]


class Named:
    """Has attributes of the names by which notes remember other things."""

    def __init__(self):
        self.truth, self.isinstance, self.held, self.advance = 1, 2, 3, 4
        self.settings, self.cell = 5, 6

    def __bool__(self):
        return True

    def __iter__(self):
        return iter([1])

    def __next__(self):
        return 1


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("truth", lambda thing: thing.truth),
        ("isinstance", lambda thing: thing.isinstance),
        ("held", lambda thing: thing.held),
        ("advance", lambda thing: thing.advance),
        ("cell", lambda thing: thing.cell),
        ("settings", lambda thing: thing.settings),
    ],
)
def test_what_was_asked_of_an_object_is_no_attribute_of_it(name, read):
    thing, lock = Named(), threading.Lock()
    thing.acquire = lock.acquire

    def ask():
        for _ in range(2):
            assert thing
            assert isinstance(thing, Named)
            assert thing in [thing]
            next(thing)
            thing.acquire()
            lock.release()
        return read(thing)

    assert values(noted(ask))[f"thing.{name}"] == getattr(thing, name)


class Sized(decimal.Decimal):
    @property
    def settings(self):
        return SIZE[0]


SIZE = [3]


def test_settings_of_a_class_are_no_attribute_of_what_is_made():
    def ask():
        made = Sized("1")
        return f"{made}", made.settings, f"{made}", made.settings

    assert values(noted(ask))["SIZE[0]"] == 3


def scaled():
    return SIZE[0]


def shifted():
    return SHIFT[0]


SHIFT = [5]


def test_code_that_is_replaced_on_the_way():
    def both():
        scaled()
        was = scaled.__code__
        scaled.__code__ = shifted.__code__
        try:
            return scaled()
        finally:
            scaled.__code__ = was

    assert values(noted(both))["SHIFT[0]"] == 5


class Key:
    def __init__(self, number):
        self.number = number


def looks_for(thing):
    return Key(9) in thing


def set_slice(held, more):
    held[1:] = [more]


def set_item(held, more):
    held[0] = more


def add_in_place(held, more):
    held += [more]


WAYS_TO_WRITE = {
    "item": set_item,
    "slice": set_slice,
    "in place": add_in_place,
    "append": lambda held, more: held.append(more),
    "extend": lambda held, more: held.extend([more]),
    "insert": lambda held, more: held.insert(0, more),
}


class TestLookedInto:
    """C compares what it looks for with all that a container holds: that is noted once, until it is written."""

    @pytest.mark.parametrize("make", [set, frozenset, list, tuple])
    def test_twice_says_nothing_new(self, make):
        held = make([Key(1), Key(2)])

        def times(count):
            return noted(lambda: [looks_for(held) for _ in range(count)])

        once, thrice = times(1), times(3)
        assert [read.name for read in once.reads] == [read.name for read in thrice.reads]
        assert not thrice.effects and not thrice.unseen

    def test_a_class_that_learns_to_compare_on_the_way(self):
        class Own:
            pass

        held, asked = [Own()], {"limit": 3}

        def compares(self, other):
            return asked["limit"] == other

        def call():
            looks_for(held)
            Own.__eq__ = compares
            return looks_for(held)

        assert "limit" in "".join(read.name for read in noted(call).reads)

    @pytest.mark.parametrize("way", WAYS_TO_WRITE)
    def test_a_list_that_is_written_on_the_way(self, way):
        asked = {"limit": 3}

        class Asking:
            def __eq__(self, other):
                return asked["limit"] == other

        held, more = [1, 2], Asking()

        def call():
            looks_for(held)
            WAYS_TO_WRITE[way](held, more)
            return looks_for(held)

        assert "limit" in "".join(read.name for read in noted(call).reads)

    def test_one_that_was_a_member_of_another(self):
        asked = {"limit": 3}

        class Asking:
            def __eq__(self, other):
                return asked["limit"] == other

        inner = []
        outer = ([inner], 5)

        def call():
            looks_for(outer)
            inner.append(Asking())
            return [[Key(1)]] in outer

        assert "limit" in "".join(read.name for read in noted(call).reads)


def test_a_list_of_the_calls_own_grows_without_a_note_and_one_outside_does_not():
    own, outside = [], [torch.ones(1)]

    def call():
        made = []
        made.append(torch.ones(1))
        made.append(1)
        outside.append(2)
        return made

    assert [effect.name.split(" ")[0] for effect in noted(call).effects] == ["outside"]
    assert not noted(lambda: own).effects


def test_a_tensor_is_indexed_by_what_lies_outside():
    places, x = [0, 1], torch.arange(3)
    assert {"places[0]", "places[1]"} <= set(values(noted(lambda: x[places])))
    assert {"places[0]", "places[1]"} <= set(values(noted(lambda: (x[(0, 1),], x[[0]], x[places]))))


def test_a_cache_of_the_library_is_looked_into_again_once_it_has_more():
    class Kind:
        pass

    class Other:
        pass

    def call(*kinds):
        return [typing.Optional[kind] for kind in kinds]  # noqa: UP045

    call(Kind)
    once, again = noted(call, Kind), noted(call, Kind, Kind)
    assert [read.name for read in once.reads] == [read.name for read in again.reads]
    assert noted(call, Kind, Other, Other).unseen == once.unseen
