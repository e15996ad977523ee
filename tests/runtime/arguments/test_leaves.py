"""Taking values apart and putting them together again."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, namedtuple

import pytest
import torch

from rote.runtime.arguments.leaves import flatten, paths, unflatten

Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Box:
    content: object
    label: object = None
    derived: object = dataclasses.field(default=0, init=False)


@dataclasses.dataclass(frozen=True)
class Frozen:
    content: object


@dataclasses.dataclass
class Output(OrderedDict):
    """As the output classes of ``transformers``: a dict and a dataclass."""

    logits: object = None
    loss: object = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)


def test_leaves_come_in_order():
    parts = []
    flatten({"b": [1, (2, None)], "a": Box(3, 4)}, parts)
    assert parts == [1, 2, None, 3, 4]  # what a field has from its class lies there


def test_names():
    spec = flatten({"mask": [1, Pair(2, 3)], 4: (Box(5),)}, [])
    assert paths(spec, "kwargs") == [
        "kwargs['mask'][0]",
        "kwargs['mask'][1].left",
        "kwargs['mask'][1].right",
        "kwargs[4][0].content",
        "kwargs[4][0].label",
    ]
    assert paths(None, "x") == ["x"] and paths(flatten([], []), "x") == []


@pytest.mark.parametrize("value", [{1, 2}, frozenset({1}), range(3), "text", object(), b"x", Box])
def test_everything_else_is_a_leaf(value):
    parts = []
    assert flatten(value, parts) is None and parts == [value]


def test_a_subclass_of_a_container_is_a_leaf():
    class Own(dict):
        pass

    class Shapes(list):
        pass

    for value in (Own(a=1), Shapes([1])):
        assert flatten(value, []) is None


def test_a_dataclass_that_is_a_dict():
    value = Output(logits=1)
    parts = []
    spec = flatten(value, parts)
    assert parts == [1]
    again = unflatten(spec, iter([5]))
    assert type(again) is Output and again.logits == 5 and again.loss is None and dict(again) == {"logits": 5}


def test_a_dataclass_with_more_than_its_fields_is_a_leaf():
    value = Box(1)
    value.extra = 2
    parts = []
    assert flatten(value, parts) is None and parts == [value]


def test_a_dataclass_is_rebuilt_without_running_its_code():
    @dataclasses.dataclass
    class Loud:
        content: object

        def __post_init__(self):
            self.content = self.content + 1

    value = Loud(1)
    again = unflatten(flatten(value, []), iter([7]))
    assert again.content == 7


def test_named_results_of_torch():
    value = torch.ones(3).max(0)
    parts = []
    spec = flatten(value, parts)
    assert len(parts) == 2
    again = unflatten(spec, iter(parts))
    assert type(again) is type(value) and again.values is parts[0] and again.indices is parts[1]


def test_a_default_dict_and_the_order_of_keys():
    value = defaultdict(list, a=1)
    again = unflatten(flatten(value, []), iter([2]))
    assert type(again) is defaultdict and dict(again) == {"a": 2} and again.default_factory is list
    assert flatten({"a": 1, "b": 2}, []) != flatten({"b": 2, "a": 1}, [])
