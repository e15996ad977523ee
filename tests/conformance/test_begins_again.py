"""A capture is refused in the middle: the call runs once more, and its state is as after one call."""

from __future__ import annotations

from collections import OrderedDict, deque
from contextvars import ContextVar
from types import SimpleNamespace

import pytest
import torch
from tests.conformance.numbers_programs import bits
from tests.conformance.placing import between_segments

import rote
from rote.base import MemoryShortageError
from rote.runtime.backends.host.session import HostSession

CALLS = 16


@pytest.fixture(params=["captured", "between segments"])
def _placed(request, monkeypatch):
    """Operations with numbers that change, as the backend takes them, and as one takes them that cannot."""
    if request.param != "captured":
        between_segments(monkeypatch)


@pytest.fixture
def _waiting():
    """CUDA refuses an operator that waits, which no table says."""
    library = torch.library.Library("rote_waits", "DEF")
    library.define("positive(Tensor x) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
    library.impl("positive", lambda x: x.abs() + float(x.sum() > 0), "CompositeExplicitAutograd")
    yield
    library._destroy()


@pytest.fixture
def _small(monkeypatch):
    """There is no memory for the first segment on the host."""
    real, left = HostSession.end, [1]

    def end(self):
        if left:
            left.clear()
            self.abort()
            raise MemoryShortageError("none for this test")
        return real(self)

    monkeypatch.setattr(HostSession, "end", end)


def counted(state, x):
    state.step += 1
    state.total = x.sum()
    return x * state.step


def appended(state, x):
    state.seen.append(x * 2)
    return x + len(state.table)


def rolled(state, x):
    state.last.append(x + 1)
    return x * 2


def bound(state, x):
    y = x * 3
    state.table["x"] = y
    state.table["again"] = y + 1
    return y


class Slotted:
    __slots__ = ("value",)

    @property
    def shown(self):
        return 2


def in_a_slot(state, x):
    state.slotted.value = x * 4
    return x


def in_a_context(state, x):
    state.variable.set(x * 5)
    return x


def refused_by_a_class(state, x):
    try:
        OrderedDict.kept = x  # pyright: ignore[reportAttributeAccessIssue]
    except TypeError:
        state.table["refused"] = x
    return x


def refused_where_something_lies(state, x):
    try:
        OrderedDict.__doc__ = "other"
    except TypeError:
        state.table["refused"] = x
    return x


def refused_by_an_object(state, x):
    try:
        state.slotted.shown = 3
    except AttributeError:
        state.total = x * 2
    return x


def refused_by_a_tuple(state, x):
    try:
        state.pair[0] = x
    except TypeError:
        state.total = x * 2
    return x


PROGRAMS = [
    counted, appended, rolled, bound, in_a_slot, in_a_context,
    refused_by_a_class, refused_where_something_lies, refused_by_an_object, refused_by_a_tuple,
]  # fmt: skip


def made(device):
    return SimpleNamespace(
        step=0, total=torch.zeros((), device=device), seen=[], last=deque(maxlen=2), table={"first": 1},
        slotted=Slotted(), pair=(1, 2), variable=ContextVar("variable"),
    )  # fmt: skip


def left(state):
    """What a call has left, in values that are compared."""
    return {
        **vars(state), "last": list(state.last), "slotted": getattr(state.slotted, "value", None),
        "variable": state.variable.get(None),
    }  # fmt: skip


@pytest.mark.usefixtures("_waiting", "_small")
@pytest.mark.parametrize("program", PROGRAMS)
def test_state_is_as_after_one_call(device, program):
    states = [made(device), made(device)]

    def make(state):
        def f(x):
            y = program(state, x + 1)
            return torch.ops.rote_waits.positive(y) * 2

        return f

    g, plain = rote.graph(make(states[0]), keep=True), make(states[1])
    for number in range(CALLS):
        x = torch.randn(3, generator=torch.Generator().manual_seed(number)).to(device)
        assert bits(g(x)) == bits(plain(x)), number
        assert bits(left(states[0])) == bits(left(states[1])), number
        for state in states:
            state.seen.clear()
            if hasattr(state.slotted, "value"):
                del state.slotted.value


@pytest.mark.usefixtures("_waiting", "_placed")
def test_numbers_are_what_they_were(device):
    states = [{"step": 0, "scale": 1.0} for _ in range(2)]

    def make(state):
        def f(x):
            state["step"] += 1
            x = x * state["scale"] + x.sum().item() / (state["step"] + 1)
            x = torch.ops.rote_waits.positive(x * 0.5) + state["scale"]
            return x - state["step"]

        return f

    g, plain = rote.graph(make(states[0]), keep=True), make(states[1])
    for number in range(24):
        x = torch.randn(3, generator=torch.Generator().manual_seed(number)).to(device)
        for each in states:
            each["scale"] = 1.0 + number / 7
        assert bits(g(x)) == bits(plain(x)), number
        assert states[0] == states[1]
    assert g.report().replayed >= 10, g.explain()
