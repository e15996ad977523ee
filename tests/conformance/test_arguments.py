"""Arguments as people write them."""

from __future__ import annotations

import enum
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from typing import Any

import numpy
import pytest
import torch

import rote
from rote.testing import Arguments, compare, count_recordings

WARM = rote.Options().warmup + 1


@dataclass
class Observation:
    image: torch.Tensor
    state: dict[str, torch.Tensor]
    scale: float = 1.0
    tags: list[str] = field(default_factory=list)


Pair = namedtuple("Pair", "first second")


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


def settled(g: rote.Graphed, calls: int = 6) -> None:
    report = g.report()
    assert (report.replayed, report.recorded) == (calls - WARM, 1), g.explain()
    assert report.reasons == ()


def test_nested(device):
    def fn(batch: dict[str, Any]) -> dict[str, Any]:
        x, (y, [z]) = batch["x"], batch["rest"]
        return {"sum": x + y + z, "parts": [x * 2, (y * 3, None)]}

    def call():
        x, y, z = (torch.randn(2, 3, device=device) for _ in range(3))
        return ({"x": x, "rest": (y, [z])},)

    settled(compare(fn, [call() for _ in range(6)]))


def test_dataclasses_in_and_out(device):
    def fn(obs: Observation) -> Observation:
        out = obs.image * obs.scale + obs.state["q"].sum()
        return Observation(out, {"q": obs.state["q"] * 2}, obs.scale, [*obs.tags])

    def call():
        q = {"q": torch.randn(3, device=device)}
        return (Observation(torch.randn(3, device=device), q, 0.5, ["a"]),)

    settled(compare(fn, [call() for _ in range(6)]))


@pytest.mark.parametrize("kind", [OrderedDict, Pair, tuple, list, defaultdict])
def test_containers_keep_their_type(device, kind):
    def fn(box):
        x, y = box.values() if isinstance(box, dict) else box
        parts = (x + y, x - y)
        if kind is Pair:
            return Pair(*parts)
        if kind in (OrderedDict, defaultdict):
            found = OrderedDict(a=parts[0], b=parts[1])
            return found if kind is OrderedDict else defaultdict(None, found)
        return kind(parts)

    def call():
        parts = [torch.randn(3, device=device) for _ in range(2)]
        if kind is Pair:
            return (Pair(*parts),)
        if kind in (OrderedDict, defaultdict):
            found = OrderedDict(a=parts[0], b=parts[1])
            return (found if kind is OrderedDict else defaultdict(None, found),)
        return (kind(parts),)

    g = compare(fn, [call() for _ in range(6)])
    settled(g)
    assert type(g(*call())) is kind


def test_keyword_arguments_in_any_order(device):
    def fn(a, *, b, c=2.0):
        return a - b * c

    x, y = torch.randn(3, device=device), torch.randn(3, device=device)
    calls = [Arguments((x,), dict(b=y, c=3.0)), Arguments((x,), dict(c=3.0, b=y))] * 6
    assert compare(fn, calls).report().replayed >= 12 - 2 * WARM
    assert compare(lambda **kwargs: next(iter(kwargs.values())) * 2, [dict(a=x, b=y), dict(b=y, a=x)] * 5)


def test_positional_and_by_name_are_two_keys(device):
    x = torch.randn(3, device=device)
    g = compare(lambda x: x * 2, [(x,), {"x": x}] * 5)
    assert count_recordings(g) == 2


@pytest.mark.parametrize(
    "values",
    [
        (None, 1),
        (1, 2),
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        ("a", "b"),
        (b"a", "a"),
        (Mode.FAST, Mode.SLOW),
        (torch.float32, torch.float64),
        (slice(0, 2), slice(1, 3)),
        ((1, 2), (2, 1)),
        ([1], (1,)),
        (1 + 2j, 1 - 2j),
        (numpy.float32(1), numpy.float64(1)),
        (numpy.int64(1), numpy.int64(2)),
        (len, max),
        (torch.Size([2]), (2,)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ],
    ids=repr,
)
def test_plain_values_are_part_of_the_key(device, values):
    def fn(x, value):
        assert type(value) in (type(values[0]), type(values[1]))
        return x + 1, str(value), type(value).__name__

    x = torch.randn(4, device=device)
    g = compare(fn, [(x, value) for value in values] * 5)
    assert count_recordings(g) == 2
    assert g.report().replayed == 2 * (5 - WARM)


def test_equal_values_are_one_key(device):
    x = torch.randn(3, device=device)
    g = compare(
        lambda x, v: x * len(str(v)), [(x, float("nan")), (x, float("nan")), *[(x, float("nan"))] * 4]
    )
    settled(g)


def test_a_scalar_is_used_by_value(device):
    x = torch.randn(3, device=device)
    compare(lambda x, s: x * s, [(x, s) for s in (0.5, 2.0, 0.0, -0.0, float("inf")) for _ in range(5)])


def test_opaque_objects_are_known_by_identity(device):
    class Config:
        def __init__(self, scale):
            self.scale = scale

    def fn(x, config):
        return x * config.scale

    configs = [Config(2.0), Config(3.0)]
    g = compare(fn, [(torch.randn(3, device=device), c) for _ in range(5) for c in configs])
    assert count_recordings(g) == 2 and g.report().replayed == 2 * (5 - WARM)


def test_a_change_inside_an_opaque_object_is_noticed(device, reason):
    class Config:
        scale = 2.0

    config, x = Config(), torch.randn(3, device=device)
    config.scale = 2.0
    g = rote.graph(lambda x, config: x * config.scale)
    for _ in range(5):
        assert torch.equal(g(x, config), x * 2.0)
    config.scale = 3.0
    for _ in range(5):
        assert torch.equal(g(x, config), x * 3.0)
    found = reason(g, "RT302")
    assert found.message == "args[1].scale was 2.0 and is 3.0"
    assert found.remedy == "Pass the value in as an argument if it changes often."
    assert count_recordings(g) == 2  # going back to 2.0 replays again
    config.scale = 2.0
    before = g.report().replayed
    assert torch.equal(g(x, config), x * 2.0)
    assert g.report().replayed == before + 1


def test_a_dead_opaque_argument_is_not_mistaken_for_its_successor(device):
    class Config:
        def __init__(self, scale):
            self.scale = scale

    g, x = rote.graph(lambda x, config: x * config.scale), torch.randn(3, device=device)
    for scale in range(12):  # ids are used again
        config = Config(float(scale))
        for _ in range(4):
            assert torch.equal(g(x, config), x * scale)
        del config


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda d: torch.randn(2, 3, device=d), lambda d: torch.randn(3, 2, device=d)),
        (lambda d: torch.randn(3, 3, device=d), lambda d: torch.randn(3, 3, device=d).t()),
        (lambda d: torch.randn(3, device=d), lambda d: torch.randn(3, device=d).double()),
        (lambda d: torch.randn(3, device=d), lambda d: torch.randn(3, device=d).to(torch.complex64)),
    ],
    ids=["shape", "stride", "dtype", "complex"],
)
def test_tensor_metadata_is_part_of_the_key(device, first, second):
    g = compare(lambda x: (x * 2, x.sum()), [(make(device),) for _ in range(5) for make in (first, second)])
    assert count_recordings(g) == 2


def test_which_inputs_share_memory_is_part_of_the_key(device):
    def fn(x, y):
        x.add_(1)
        return y * 2

    base = torch.zeros(8, device=device)
    apart = (base[:4].clone(), base[4:].clone())
    same = (base[:4], base[:4])
    overlapping = (base[:4], base[2:6])
    side_by_side = (base[:4], base[4:])
    g = compare(fn, [args for _ in range(5) for args in (apart, same, overlapping, side_by_side)])
    assert count_recordings(g) == 3  # side by side counts as apart
    assert g.report().replayed == 3 * (5 - WARM) + 5


def test_two_names_for_one_tensor(device):
    def fn(x, y):
        x.mul_(2)
        return x + y

    x = torch.randn(4, device=device)
    settled(compare(fn, [(x, x)] * 6))


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.randn(4, 4, device=d)[1:3, ::2],
        lambda d: torch.randn(1, 4, device=d).expand(3, 4),
        lambda d: torch.randn(8, device=d).as_strided((3, 4), (1, 1)),
        lambda d: torch.randn(0, 4, device=d),
        lambda d: torch.tensor(2.5, device=d),
        lambda d: torch.randn(2, 3, 4, 4, device=d).to(memory_format=torch.channels_last),
        lambda d: torch.randn(3, device=d) > 0,
        lambda d: torch.randn(3, dtype=torch.complex64, device=d).conj(),
    ],
    ids=["slice", "expanded", "overlapping", "empty", "scalar", "channels_last", "bool", "conjugate"],
)
def test_tensors_of_any_shape(device, make):
    settled(compare(lambda x: (x * 2, x.sum()), [(make(device),) for _ in range(6)]))


def test_arguments_the_callable_writes(device):
    def fn(x, y):
        x.add_(y)
        y[0] = 7
        return x.sum()

    settled(compare(fn, [(torch.randn(4, device=device), torch.randn(4, device=device)) for _ in range(6)]))


def test_an_argument_that_is_written_and_read_has_no_recording_in_place(device):
    """Behind a value that leads on, results may require grad, so a further recording copies it, too."""

    def step(x, total):
        return x * total.add_(0.5).item()

    g, total = rote.graph(step, keep=True), torch.tensor(1.0, device=device)
    for n in range(24):
        assert torch.equal(
            g(torch.ones(3, device=device), total), torch.full_like(total, 1.5 + n / 2).expand(3)
        )
    assert g.report().recorded <= 2, g.explain()


def test_no_tensor_at_all(request, device):
    if device.type == "cuda":
        why = "the backend is chosen before the first call has shown a device, and not again"
        request.applymarker(pytest.mark.xfail(strict=True, reason=why))
    compare(lambda n: n + 1, [(1,), (1,), (1,), (1,), (2,)])
    settled(compare(lambda: torch.ones(3, device=device) * 2, [()] * 6))
