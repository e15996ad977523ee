"""What makes two calls the same."""

from __future__ import annotations

import math

import numpy
import pytest
import torch
from torch import nn

from rote.runtime.arguments.key import (
    OPAQUE,
    PARAMETER,
    PLAIN,
    TENSOR,
    bind,
    describe_key,
    explain_key,
    overlaps,
)

X = torch.arange(12.0)


def key(*args, **kwargs):
    return bind(args, kwargs).key


NAN = float("nan")
DISTINCT = [
    0.0, -0.0, 0, False, None, 1, True, 1.0, NAN, math.inf, -math.inf, "", "a", b"", b"a", 1j, -1j,
    (), [], {}, (1,), [1], {"a": 1}, range(1), range(2), slice(1), slice(2), ..., int, float, len,
    torch.float32, torch.float64, torch.device("cpu"), torch.Size([1]), torch.strided, torch.channels_last,
    numpy.float32(1), numpy.float64(1), numpy.int64(1), numpy.bool_(True),
]  # fmt: skip


def test_plain_values_are_all_distinct():
    keys = [key(value) for value in DISTINCT]
    for position, first in enumerate(keys):
        assert first == key(DISTINCT[position]), DISTINCT[position]
        for other in range(position):
            assert first != keys[other], (DISTINCT[position], DISTINCT[other])


def test_keys_are_hashable():
    hash(key(X, *DISTINCT, a={"b": [X, X[1:]]}))


def test_keyword_arguments():
    assert key(a=1, b=2) != key(a=2, b=1) != key(1, b=1)
    assert bind((), {"b": 2, "a": 1}).names() == ["kwargs['b']", "kwargs['a']"]


TENSORS = {
    "plain": lambda: torch.zeros(3, 4),
    "shape": lambda: torch.zeros(4, 3),
    "stride": lambda: torch.zeros(4, 3).t(),
    "dtype": lambda: torch.zeros(3, 4, dtype=torch.float64),
    "grad": lambda: torch.zeros(3, 4, requires_grad=True),
    "no leaf": lambda: torch.zeros(3, 4, requires_grad=True) * 1,
    "meta": lambda: torch.zeros(3, 4, device="meta"),
    "conj": lambda: torch.zeros(3, 4, dtype=torch.complex64).conj(),
    "complex": lambda: torch.zeros(3, 4, dtype=torch.complex64),
    "parameter": lambda: PARAMETER_OF_OURS,
    "scalar": lambda: torch.zeros(()),
}
PARAMETER_OF_OURS = nn.Parameter(torch.zeros(3, 4))


def test_metadata_of_tensors():
    keys = {name: key(make()) for name, make in TENSORS.items()}
    assert len(set(keys.values())) == len(keys)
    for name, make in TENSORS.items():
        assert key(make()) == keys[name], name


def test_values_do_not_matter():
    assert key(torch.zeros(3)) == key(torch.ones(3))
    assert key(X[2:5]) == key(X[4:7])


def test_inference_tensors():
    with torch.inference_mode():
        made = torch.zeros(3)
    assert key(made) != key(torch.zeros(3))


def test_parameters_by_identity():
    first, second = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))
    assert key(first) == key(first) != key(second)


def test_kinds():
    call = bind((X, nn.Parameter(X), 1, object(), None), {"a": numpy.zeros(3), "b": len})
    assert call.kinds == (TENSOR, PARAMETER, PLAIN, OPAQUE, PLAIN, OPAQUE, PLAIN)
    assert call.names() == [
        "args[0]",
        "args[1]",
        "args[2]",
        "args[3]",
        "args[4]",
        "kwargs['a']",
        "kwargs['b']",
    ]


def test_rebuild():
    call = bind((X, [1, {"a": 2}]), {"z": 3, "y": 4})
    args, kwargs = call.rebuild(["X", "one", "two", "three", "four"])
    assert args == ("X", ["one", {"a": "two"}]) and kwargs == {"y": "four", "z": "three"}
    assert list(kwargs) == ["z", "y"]


@pytest.mark.parametrize(
    ("tensors", "groups"),
    [
        ([X[:4], X[4:8]], [[0], [1]]),
        ([X[:5], X[4:8]], [[0, 1]]),
        ([X[:4], X[6:8], X[3:7]], [[0, 1, 2]]),
        ([X[:4], torch.zeros(4), X[:4]], [[0, 2], [1]]),
        ([X[:0], X[:4]], [[0], [1]]),
        ([X.view(3, 4)[:, 0], X[1:2]], [[0, 1]]),
        ([X], [[0]]),
        ([], []),
    ],
)
def test_overlaps(tensors, groups):
    assert overlaps(tensors) == groups


def test_sharing_is_part_of_the_key():
    apart, same, shifted, other = (
        (X[:4].clone(), X[4:8].clone()),
        (X[:4], X[:4]),
        (X[:4], X[1:5]),
        (X[:4], X[2:6]),
    )
    assert len({key(*apart), key(*same), key(*shifted), key(*other)}) == 4
    assert key(X[:4], X[4:8]) == key(*apart)
    assert key(X[0:4], X[1:5]) == key(X[3:7], X[4:8])  # lies alike elsewhere


AMBIENT = [
    torch.no_grad,
    torch.inference_mode,
    lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    lambda: torch.autocast("cpu", dtype=torch.float16),
]


def test_ambient_state():
    found = [key(1)]
    for context in AMBIENT:
        with context():
            found.append(key(1))
    torch.use_deterministic_algorithms(True)
    try:
        found.append(key(1))
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(set(found)) == len(found) and key(1) == found[0]


@pytest.mark.parametrize(
    ("was", "now", "text"),
    [
        (((1,), {}), ((2,), {}), "args[0] was 1 and is 2"),
        (((1,), {}), ((1.0,), {}), "args[0] was 1 and is 1.0"),
        (((0.0,), {}), ((-0.0,), {}), "args[0] was 0.0 and is -0.0"),
        (((), {"m": "a"}), ((), {"m": None}), "kwargs['m'] was 'a' and is None"),
        (
            ((), {"mask": torch.zeros(2, 8)}),
            ((), {"mask": torch.zeros(2, 9)}),
            "kwargs['mask'] was float32[2, 8] strides [8, 1] on cpu "
            "and is float32[2, 9] strides [9, 1] on cpu",
        ),
        (((PARAMETER_OF_OURS,), {}), ((1,), {}), "args[0] was a parameter and is 1"),
        (
            ((PARAMETER_OF_OURS,), {}),
            ((nn.Parameter(torch.ones(2)),), {}),
            "args[0] was a parameter and is another one (such arguments are known by their identity)",
        ),
        (
            (({"obs": numpy.ones(2)},), {}),
            (({"obs": numpy.ones(2)},), {}),
            "args[0]['obs'] was a ndarray and is another one (such arguments are known by their identity; "
            "pass arrays as tensors: torch.from_numpy(array))",
        ),
        (((X,), {}), ((X.clone().requires_grad_(),), {}), "args[0].requires_grad was False and is True"),
        (((1j,), {}), ((2j,), {}), "args[0] was 1j and is 2j"),
        (
            ((slice(0, 1),), {}),
            ((slice(0, 2),), {}),
            "args[0] was slice(0, 1, None) and is slice(0, 2, None)",
        ),
        (((torch.float16,), {}), ((torch.float32,), {}), "args[0] was torch.float16 and is torch.float32"),
        (((numpy.int64(1),), {}), ((numpy.int64(2),), {}), "args[0] was int64(1) and is int64(2)"),
        ((([1],), {}), (((1,),), {}), "the structure of the arguments differs"),
        (((1,), {}), ((1, 2), {}), "args[1] is new"),
        (((1,), {"mask": X}), ((1,), {"noise": X}), "kwargs['noise'] is new, kwargs['mask'] is not given"),
        (
            (([X] * 6,), {}),
            (([X],), {}),
            "args[0][1] is not given, args[0][2] is not given, args[0][3] is not given and 2 more",
        ),
        (
            ((X[:4], X[:4]), {}),
            ((X[:4], X[4:8]), {}),
            "other arguments share memory, or are one object, than before",
        ),
        (((1,), {}), ((1,), {}), "nothing differs"),
    ],
)
def test_explain_key(was, now, text):
    assert explain_key(bind(*was).key, bind(*now)) == text


def test_every_pair_of_keys_can_be_explained():
    for was in DISTINCT:
        for now in DISTINCT:
            assert explain_key(key(was), bind((now,), {}))


def test_explain_ambient():
    was = key(1)
    with torch.no_grad():
        assert explain_key(was, bind((1,), {})) == "grad mode was True and is False"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert explain_key(was, bind((1,), {})).startswith("autocast was (False,")


def test_describe_key():
    call = bind((X, 1, "t" * 60, object()), {"w": PARAMETER_OF_OURS, "n": None})
    assert describe_key(call) == (
        f"(args[0]: float32[12], args[1]: 1, args[2]: '{'t' * 36}..., args[3]: object, "
        "kwargs['w']: float32[3, 4], kwargs['n']: None)"
    )
