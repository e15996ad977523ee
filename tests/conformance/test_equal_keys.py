"""Arguments and state that are equal and not the same: 1 and True, two empty ranges."""

import dataclasses
import enum

import pytest
import torch

import rote


class Alike(type):
    """Says of all its classes that they are equal."""

    def __eq__(cls, other):
        return isinstance(other, Alike)

    def __hash__(cls):
        return 7


NUMBERS = {"number": 2.0}, {"number": 5.0}
PLAIN = [Alike("Plain", (), dict(each)) for each in NUMBERS]
FIELDS = [Alike("Fields", (), dict(each, __annotations__={"v": "int"})) for each in NUMBERS]


class Whole(enum.IntEnum):
    """Members that are equal, and are two."""

    TWO, FIVE = 2, 5

    @property
    def number(self):
        return float(self.value)


Whole.__eq__ = lambda self, other: isinstance(other, Whole)
Whole.__hash__ = lambda self: 7
Unlike = enum.Enum("Unlike", {"TWO": 2, "FIVE": 5}, module=__name__)
Unlike.number = property(lambda self: float(self.value))
Unlike.__eq__ = lambda self, other: isinstance(other, Unlike)
Unlike.__hash__ = None

PLACES = {
    "itself": lambda value: (value, lambda given: given),
    "list": lambda value: ([value], lambda given: given[0]),
    "dict": lambda value: ({"a": (value,)}, lambda given: given["a"][0]),
    "slice": lambda value: (slice(value), lambda given: given.stop),
}


KINDS = {
    "class": [lambda kind=each: kind for each in PLAIN],
    "instance": PLAIN,
    "dataclass": [lambda kind=each: kind(1) for each in map(dataclasses.dataclass, FIELDS)],
    "IntEnum": [lambda each=each: each for each in Whole],
    "Enum": [lambda each=each: each for each in Unlike],
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_its_own_class_calls_equal(device, kind, place):
    x = torch.ones(3, device=device)
    read = PLACES[place](None)[1]
    g = rote.graph(lambda x, given: x * read(given).number)
    for make in KINDS[kind] * 2:
        given = PLACES[place](make())[0]
        for _ in range(4):
            assert g(x, given).tolist() == [make().number] * 3


@pytest.mark.parametrize("end", [[2.0], {0: 2.0}, torch.full((3,), 2.0)], ids=["list", "dict", "tensor"])
def test_slices_between_what_has_no_hash(device, end):
    x = torch.ones(3, device=device)
    g = rote.graph(lambda x, given: x * given.stop[0])
    for _ in range(4):
        assert g(x, slice(end)).tolist() == [2.0] * 3


def number(key):
    return {int: 1.0, bool: 2.0, float: 3.0}[type(key)]


def first(table):
    return number(next(iter(table)))


@pytest.mark.parametrize("keys", [(1, True, 1.0), (True, 1, True), (1.0, 1, True)])
def test_keys_of_an_argument(device, keys):
    x = torch.ones(3, device=device)
    g = rote.graph(lambda x, table: x * first(table))
    for _ in range(4):
        for key in keys:
            assert g(x, {key: 0.5}).tolist() == [number(key)] * 3
    assert g.report().replayed >= 4


@pytest.mark.parametrize("keys", [(1, True, 1.0), (True, 1.0, 1)])
def test_keys_of_a_dict_in_state(device, keys):
    x, table = torch.ones(3, device=device), {}
    g = rote.graph(lambda x: x * first(table))
    for key in keys:
        table.clear()
        table[key] = 0.5
        for _ in range(4):
            assert g(x).tolist() == [number(key)] * 3
    assert g.report().replayed >= 4


def test_ranges(device):
    x = torch.ones(3, device=device)
    g = rote.graph(lambda x, numbers: x * (numbers.start + numbers.stop + numbers.step))
    for _ in range(4):
        for numbers in (range(0), range(2, 2), range(0, 3, 2), range(0, 4, 2)):
            assert g(x, numbers).tolist() == [numbers.start + numbers.stop + numbers.step] * 3
    assert g.report().replayed >= 4


def test_the_order_of_a_long_dict(device):
    x, table = torch.ones(3, device=device), {f"k{n}": n for n in range(200)}
    g = rote.graph(lambda x: x * next(iter(table.values())))
    for _ in range(3):
        wanted = next(iter(table.values()))
        for _ in range(4):
            assert g(x).tolist() == [wanted] * 3
        key = next(iter(table))
        table[key] = table.pop(key)
    assert g.report().replayed >= 4


class WithoutHash(type):
    """Its classes are equal to others, and have no hash."""

    def __eq__(cls, other):
        return isinstance(other, WithoutHash)


@pytest.mark.parametrize("place", ["itself", "list", "dict"])
@pytest.mark.parametrize("as_class", [True, False])
def test_classes_without_a_hash(device, place, as_class):
    x, kinds = torch.ones(3, device=device), [WithoutHash("Kind", (), dict(each)) for each in NUMBERS]
    read = PLACES[place](None)[1]
    g = rote.graph(lambda x, given: x * read(given).number)
    for kind in kinds * 2:
        for _ in range(4):
            given = PLACES[place](kind if as_class else kind())[0]
            assert g(x, given).tolist() == [kind.number] * 3
