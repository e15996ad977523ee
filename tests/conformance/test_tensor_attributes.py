"""Attributes of one's own that tensors have, or do not have, and what is PyTorch's own of each tensor."""

from __future__ import annotations

import pytest
import torch

import rote


def has(x, y):
    return x * (2.0 if hasattr(x, "scale") else 3.0) + y


def default(x, y):
    return x * getattr(x, "scale", 1.0) + y


def tries(x, y):
    try:
        return x * x.scale + y  # pyright: ignore
    except AttributeError:
        return x + y


def both(x, y):
    return x * sum(getattr(each, "scale", 1.0) for each in (x, y))


def one_made_before(x, y):
    return sum(each * getattr(each, "scale", 1.0) for each in (x * 1, x)) + y


def in_a_dict(x, y):
    return x * getattr({"x": x}["x"], "scale", 1.0) + y


PROGRAMS = [has, default, tries, both, one_made_before, in_a_dict]


def pair(device, *, scale=None):
    x, y = torch.arange(3.0, device=device), torch.ones(3, device=device)
    if scale is not None:
        x.scale = scale  # pyright: ignore
    return x, y


def assert_equal(g, program, args):
    torch.testing.assert_close(g(*args), program(*args), rtol=0, atol=0)


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_attribute_that_no_argument_has_replays(device, program):
    g = rote.graph(program)
    for _ in range(6):
        assert_equal(g, program, pair(device))
    assert g.report().replayed == 4
    for scale in (5.0, 5.0, 7.0, 9.0):
        assert_equal(g, program, pair(device, scale=scale))
    replayed = g.report().replayed
    for _ in range(3):
        assert_equal(g, program, pair(device))
    assert g.report().replayed >= replayed + 3


def test_the_reason_where_one_has_it(device):
    g = rote.graph(default)
    for _ in range(3):
        g(*pair(device))
    g(*pair(device, scale=2.0))
    found = {reason.code: reason.message for reason in g.report().reasons}
    assert found["RT218"] == (
        "the call reads the attribute 'scale' of the tensor args[0], which is another one in each call"
    )
    assert found["RT306"] == "tensors among the arguments have other attributes of one's own"


def test_other_attributes_are_part_of_the_key(device):
    g = rote.graph(default)
    for count in range(9):
        x, y = pair(device)
        y.tag = count  # pyright: ignore
        assert_equal(g, default, (x, y))
    assert g.report().replayed == 7


def test_an_attribute_that_nobody_asks_for(device):
    """It may hide a method, so it is part of the key all the same."""
    g = rote.graph(lambda x, y: x + y)
    for count in range(6):
        x, y = pair(device, scale=None if count % 2 else 3.0)
        torch.testing.assert_close(g(x, y), x + y, rtol=0, atol=0)
    assert g.report().replayed == 2


def test_an_attribute_that_is_taken_away(device):
    g = rote.graph(default)
    x, y = pair(device, scale=2.0)
    for count in range(9):
        if count == 3:
            del x.scale  # pyright: ignore
        assert_equal(g, default, (x, y))
    assert g.report().replayed >= 3


@pytest.mark.parametrize("same", [True, False])
def test_results_as_arguments(device, same):
    make = rote.graph(lambda x: x * 2)
    g = rote.graph(default)
    for _ in range(8):
        x, y = pair(device)
        made = make(x)
        torch.testing.assert_close(
            g(made, made if same else y), x * 2 + (x * 2 if same else y), rtol=0, atol=0
        )


def test_two_parameters(device):
    layers = [torch.nn.Linear(3, 3, device=device) for _ in range(2)]

    def program(x, y):
        return x * sum(getattr(each.weight, "scale", 1.0) for each in layers) + y

    g = rote.graph(program)
    for count in range(8):
        if count == 4:
            layers[1].weight.scale = 5.0  # pyright: ignore
        assert_equal(g, program, pair(device))


OWN = {
    "storage_offset": lambda x: (x * 1).storage_offset() + x.storage_offset(),
    "_base": lambda x: 1.0 + ((x * 1)._base is None) + 2 * (x._base is None),
}


@pytest.mark.parametrize("read", OWN.values(), ids=OWN)
def test_what_is_asked_of_a_tensor_that_the_call_made_first(device, read):
    """That it was asked of another tensor says nothing."""
    g = rote.graph(lambda x: x * read(x))
    whole = torch.arange(4.0, device=device) + 1
    for count in range(8):
        x = whole[1:] if count >= 4 else whole[1:].clone()
        torch.testing.assert_close(g(x), x * read(x), rtol=0, atol=0)


def marks(x, y):
    if x.sum() > 4:
        x.mark, y.of = x * 2, [x]
        x.count = getattr(x, "count", 0) + 1
        if hasattr(y, "old"):
            del y.old
    return x + y


@pytest.mark.parametrize("same", [False, True])
def test_a_call_on_a_way_that_is_new_marks_its_arguments(device, same):
    """Such a call runs on other tensors than its caller's."""
    g = rote.graph(marks)
    for n in range(16):
        found = []
        for function in (marks, g):
            x = torch.full((3,), n % 4 + 1.0, device=device)
            y = x if same else torch.ones(3, device=device)
            y.old = n
            if n % 3 == 0:
                x.count = n
            result = function(x, y)
            mark = vars(x).get("mark", result).tolist()
            found.append((result.tolist(), mark, vars(x).get("count"), [*vars(x)], [*vars(y)]))
            assert "of" not in vars(y) or y.of[0] is x, n
        assert found[0] == found[1], n
