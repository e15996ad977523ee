"""The generated check of a key admits the calls that have it, and no others."""

from __future__ import annotations

import contextlib
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import rote
from rote.runtime.arguments import admission
from rote.runtime.arguments.admission import NOT_MINE, Admission, Source
from rote.runtime.arguments.key import bind
from rote.runtime.pytorch import torch_private as compat
from rote.runtime.pytorch.torch_private import foreign_modes

pytest.importorskip("hypothesis")

import hypothesis.strategies as st
from hypothesis import given, settings

Pair, Other = namedtuple("Pair", "left right"), namedtuple("Other", "left right")


@dataclass
class Point:
    x: Any
    y: Any


@dataclass(slots=True)
class Slotted:
    x: Any
    y: Any


def more(x, y):
    """A point with an attribute that is no field, or one that is not there."""
    point = Point(x, y)
    if type(x) is type(y):
        del point.y
    else:
        point.z = y
    return point


PARAMETERS = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))]
OBJECTS = [object(), object()]


def check_of(call, *, sorts=True):
    """The compiled check of a call's key: True if it admits."""
    source = Source("check")
    admission = Admission(source, call, sorts=sorts)
    admission.write()
    admission.write_sharing()
    admission.write_switches()
    source.line("return True")
    found = source.compile()
    return lambda args, kwargs: found(args, kwargs) is not NOT_MINE


def inference():
    with torch.inference_mode():
        return torch.zeros(2, 3)


TENSORS = [
    lambda: torch.zeros(2, 3),
    lambda: torch.ones(2, 3),
    lambda: torch.zeros(3, 2).t(),
    lambda: torch.zeros(2, 3, dtype=torch.float64),
    lambda: torch.zeros(2, 3, requires_grad=True),
    lambda: torch.zeros(2, 3, requires_grad=True) * 1,
    lambda: torch.zeros(2, 3, device="meta"),
    lambda: torch.zeros(1, 3).as_strided((1, 3), (7, 1)),
    lambda: torch.zeros(1, 3),
    lambda: torch.zeros(0, 3),
    lambda: torch.zeros(()),
    lambda: torch.zeros(2, 3, dtype=torch.complex64),
    lambda: torch.zeros(2, 3, dtype=torch.complex64).conj(),
    lambda: torch.zeros(2, 3, dtype=torch.complex64).conj().imag,
    lambda: nn.Buffer(torch.zeros(2, 3)),
    lambda: torch.zeros(2, 3).to_sparse(),
    lambda: torch.zeros(4, 6)[1:3, 1:4],
    inference,
]
VALUES = [None, True, False, 0, 1, 2**70, 0.0, -0.0, 1.0, float("nan"), "", "a", b"a", 1j, torch.float32,
          torch.Size([1]), slice(1), int, len, numpy.float32(1), numpy.int64(1),
          *OBJECTS, *PARAMETERS]  # fmt: skip

leaves = st.one_of(st.sampled_from(TENSORS).map(lambda make: make()), st.sampled_from(VALUES))


def branches(inner):
    keys = st.sampled_from(["a", "b", 1, True])
    return st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
        st.dictionaries(keys, inner, max_size=2).map(OrderedDict),
        st.builds(Pair, inner, inner),
        st.builds(Other, inner, inner),
        st.builds(Point, inner, inner),
        st.builds(Slotted, inner, inner),
        st.builds(more, inner, inner),
    )


values = st.recursive(leaves, branches, max_leaves=6)
keywords = st.dictionaries(st.sampled_from(["x", "y", "z"]), values, max_size=3)
arguments = st.tuples(
    st.lists(values, max_size=3).map(tuple),
    st.dictionaries(st.sampled_from(["x", "y", "z"]), values, max_size=3),
)

AROUND = {
    "nothing": contextlib.nullcontext,
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast to half": lambda: torch.autocast("cpu", torch.float16),
    "default device": lambda: torch.device("cpu"),
    "anomaly": torch.autograd.detect_anomaly,
    "switch": lambda: sdpa_kernel(SDPBackend.MATH),
    "function mode": lambda: torch.overrides.BaseTorchFunctionMode(),
}  # fmt: skip


def sorted_(kwargs):
    return dict(sorted(kwargs.items())) if len(kwargs) > 1 else kwargs


def shares(call):
    tensors = [leaf for leaf, kind in zip(call.leaves, call.kinds, strict=True) if kind == "tensor"]
    handles = {tensor.untyped_storage()._cdata for tensor in tensors}
    return len(handles) != len(tensors)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("fast", [True, False])
@settings(max_examples=120, deadline=None)
@given(arguments, arguments, st.sampled_from(sorted(AROUND)), st.booleans(), st.booleans())
def test_a_call_is_admitted_if_it_has_the_key(fast, given_first, given_second, around, repeat, sorts):
    args, kwargs = given_first
    call = bind(args, sorted_(kwargs) if sorts else kwargs)
    if not Admission.possible(call):
        return
    patch = pytest.MonkeyPatch()
    if not fast:
        patch.setattr(admission, "tells_modes", lambda: False)
    try:
        admits = check_of(call, sorts=sorts)
    finally:
        patch.undo()
    args, kwargs = given_first if repeat else given_second
    with AROUND[around]():
        other = bind(args, sorted_(kwargs) if sorts else kwargs)
        verdict, plain = admits(args, kwargs), foreign_modes()
    if plain or other.key != call.key:  # the general path does not ask for a key then
        assert not verdict
    elif not shares(other):
        assert verdict


@pytest.mark.parametrize("made", [Point, Slotted])
def test_instances_of_dataclasses_are_told_by_their_fields(made):
    def given():
        return (torch.zeros(2, 3), [made(0.5, torch.ones(2, 3)), made(1, torch.ones(2, 3))])

    call = bind(given(), {})
    assert Admission.possible(call)
    admits = check_of(call)
    assert admits(given(), {})
    for change in (
        lambda points: points.reverse(),
        lambda points: points.append(points[0]),
        lambda points: points.insert(0, points.pop()),
        lambda points: setattr(points[0], "x", 0.25),
        lambda points: setattr(points[0], "y", torch.ones(3, 2)),
        lambda points: points.__setitem__(1, points[0]),
        lambda points: points.__setitem__(0, (0.5, torch.ones(2, 3))),
        lambda points: delattr(points[0], "x"),
    ):
        x, points = given()
        change(points)
        assert bind((x, points), {}).key != call.key and not admits((x, points), {})


@pytest.mark.parametrize("other", [*VALUES[:6], [], {}, Pair(1, 2)], ids=str)
@pytest.mark.parametrize("fast", [True, False])
def test_what_stands_where_a_tensor_was_has_no_attributes(monkeypatch, fast, other):
    if not fast:
        monkeypatch.setattr(admission, "tells_modes", lambda: False)
    admits = check_of(bind((torch.zeros(2, 3), [torch.ones(2, 3)]), {}))
    assert not admits((other, [torch.ones(2, 3)]), {})
    assert not admits((torch.zeros(2, 3), [other]), {})
    assert admits((torch.zeros(2, 3), [torch.ones(2, 3)]), {})


BASE = torch.zeros(12)
PIECES = [BASE[:4], BASE[:4], BASE[2:6], BASE[4:8], BASE[8:], BASE[::3], BASE.view(3, 4)[0], torch.zeros(4)]
pieces = st.lists(st.sampled_from(PIECES), min_size=2, max_size=4)


@pytest.mark.parametrize("fast", [True, False])
@settings(max_examples=120, deadline=None)
@given(pieces, pieces)
def test_tensors_that_share_memory(fast, first, second):
    """Admitted is what was seen, and nothing that shares memory in another way."""
    call = bind(tuple(first), {})
    patch = pytest.MonkeyPatch()
    if not fast:
        patch.setattr(admission, "tells_modes", lambda: False)
    try:
        admits = check_of(call)
    finally:
        patch.undo()
    assert Admission.possible(call) and admits(tuple(first), {})
    again = {id(piece): piece.view(4) for piece in first}  # other objects, as a new call has
    assert admits(tuple(again[id(piece)] for piece in first), {})
    assert bind(tuple(second), {}).key == call.key or not admits(tuple(second), {})


@pytest.mark.parametrize("first", range(len(TENSORS)))
def test_tensors_are_told_apart_as_by_the_key(first):
    call = bind((TENSORS[first](),), {})
    if not Admission.possible(call):
        assert call.foreign
        return
    admits = check_of(call)
    for make in TENSORS:
        tensor = make()
        assert admits((tensor,), {}) == (bind((tensor,), {}).key == call.key)


def test_values_are_told_apart_as_by_the_key():
    for value in VALUES:
        call = bind((value,), {})
        admits = check_of(call)
        for other in VALUES:
            assert admits((other,), {}) == (bind((other,), {}).key == call.key), (value, other)


def test_arguments_that_share_memory_are_not_admitted():
    base = torch.zeros(8)
    admits = check_of(bind((torch.zeros(4), torch.zeros(4)), {}))
    assert admits((torch.zeros(4), torch.zeros(4)), {})
    assert not admits((base[:4], base[:4]), {})
    assert not admits((base[:4], base[2:6]), {})


def test_keywords_in_any_order():
    call = bind((), {"a": 1, "b": torch.zeros(2)})
    x = torch.zeros(2)
    assert check_of(call)((), {"b": x, "a": 1})
    assert not check_of(call, sorts=False)((), {"b": x, "a": 1})
    assert check_of(call, sorts=False)((), {"a": 1, "b": x})
    for kwargs in ({"a": 1}, {"a": 1, "c": x}, {"a": 1, "b": x, "c": 1}, {"a": True, "b": x}):
        assert not check_of(call)((), kwargs)


SWITCHED = [
    "cudnn.benchmark", "cudnn.deterministic", "cudnn.allow_tf32", "cuda.matmul.allow_tf32",
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
]  # fmt: skip


@pytest.mark.parametrize("name", SWITCHED)
def test_switches(name):
    *path, last = name.split(".")
    owner = torch.backends
    for part in path:
        owner = getattr(owner, part)
    call = bind((torch.zeros(2),), {})
    admits, was = check_of(call), getattr(owner, last)
    setattr(owner, last, not was)
    try:
        assert not admits((torch.zeros(2),), {})
    finally:
        setattr(owner, last, was)
    assert admits((torch.zeros(2),), {})


def test_deterministic_algorithms():
    admits = check_of(bind((torch.zeros(2),), {}))
    torch.use_deterministic_algorithms(True)
    try:
        assert not admits((torch.zeros(2),), {})
    finally:
        torch.use_deterministic_algorithms(False)
    assert admits((torch.zeros(2),), {})


def test_what_is_no_part_of_the_key():
    """Neither a thread more nor a kind of determinism is a part of the key."""
    admits = check_of(bind((torch.zeros(2),), {}))
    torch.set_num_threads(2)
    try:
        assert admits((torch.zeros(2),), {})
    finally:
        torch.set_num_threads(1)
    torch.set_autocast_cache_enabled(False)
    try:
        assert admits((torch.zeros(2),), {})
    finally:
        torch.set_autocast_cache_enabled(True)


def test_default_dtype():
    admits = check_of(bind((1,), {}))
    torch.set_default_dtype(torch.float64)
    try:
        assert not admits((1,), {})
    finally:
        torch.set_default_dtype(torch.float32)
    assert admits((1,), {})


def test_a_metadata_check_tells_modes(monkeypatch):
    """It is what says that there are none; where it does not, they are asked by name."""
    assert compat.tells_modes()
    with torch.autocast("cpu"), torch.inference_mode():
        assert compat.tells_modes()
        assert torch.is_inference_mode_enabled() and torch.is_autocast_enabled("cpu")
    with torch._C._AutoDispatchBelowADInplaceOrView():
        assert not compat.tells_modes()

    class Blind:
        def __init__(self, *tensors, **_):
            pass

        def check(self, *tensors):
            return True

    monkeypatch.setattr(compat, "_tensor_guards", Blind)
    assert not compat.tells_modes()


def test_tensors_of_a_hot_path_are_compared_at_once(monkeypatch, device):
    one_by_one = []
    monkeypatch.setattr(admission, "_token_of", one_by_one.append)
    g, x = rote.graph(lambda x: x * 2), torch.ones(3, device=device)
    for _ in range(8):
        g(x)
    assert g._paths.known and not one_by_one
