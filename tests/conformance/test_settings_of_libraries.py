"""Settings by which C computes with decimal numbers and arrays, whoever asks it to."""

from __future__ import annotations

import copy
import csv
import decimal
from decimal import Decimal

import numpy
import pytest
import torch

import rote
from rote.testing import assert_same

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


class Held:
    """Contexts outside of the call."""

    def __init__(self):
        self.context = decimal.Context(prec=5)
        self.flags, self.traps = self.context.flags, self.context.traps


def outcome(call, x):
    """What a call gives, or the class of what it raises."""
    try:
        return call(x)
    except (FloatingPointError, decimal.DecimalException) as error:
        return type(error)


def compare(f, change, device, replayed=True):
    """``change`` is made before the sixth call."""
    g = rote.graph(f, keep=True)
    x = torch.ones(3, device=device)
    for n in range(10):
        if n == 5:
            change()
        ours, plain = outcome(g, x), outcome(f, x)
        assert ours is plain if isinstance(plain, type) else torch.equal(ours, plain), f"call {n}"
        if n == 4:
            assert bool(g.report().replayed) == replayed, g.explain()


@pytest.fixture
def thread():
    """The thread's context is put back."""
    before = decimal.getcontext()
    decimal.setcontext(decimal.Context(prec=28))
    yield decimal.getcontext()
    decimal.setcontext(before)


def local(held):
    with decimal.localcontext(held.context):
        return float(Decimal(1) / 3)


PRECISE = {
    "method": lambda held: float(held.context.divide(Decimal(1), Decimal(3))),
    "copy": lambda held: held.context.copy().prec,
    "copy.copy": lambda held: copy.copy(held.context).prec,
    "reduce": lambda held: held.context.__reduce__()[1][0],
    "local": local,
    "argument": lambda held: float(Decimal(2).sqrt(held.context)),
    "keyword": lambda held: float(Decimal(2).sqrt(context=held.context)),
    "new": lambda held: float(held.context.create_decimal("1.23456789")),
    "smallest": lambda held: -held.context.Etiny() % 999,
    "text": lambda held: sum(repr(held.context).encode()),
}


@pytest.mark.parametrize("ask", PRECISE.values(), ids=PRECISE)
def test_a_context_that_is_kept(device, ask, thread):
    held = Held()
    compare(lambda x: x * ask(held), lambda: setattr(held.context, "prec", 9), device)


def test_a_context_with_a_text_of_its_own(device, thread):
    class Own(decimal.Context):
        def __repr__(self):
            raise AssertionError

    context = Own(prec=5)
    change = lambda: setattr(context, "prec", 9)  # noqa: E731
    compare(lambda x: x * float(context.divide(Decimal(1), Decimal(3))), change, device)


FLAGS = {
    "item": lambda held: held.context.flags[decimal.Clamped],
    "item of flags": lambda held: held.flags[decimal.Clamped],
    "get": lambda held: held.flags.get(decimal.Clamped),
    "values": lambda held: sum(held.flags.values()),
    "dict": lambda held: sum(dict(held.context.flags).values()),
    "text": lambda held: sum(repr(held.context.flags).encode()),
}


@pytest.mark.parametrize("ask", FLAGS.values(), ids=FLAGS)
def test_flags_of_a_context(device, ask, thread):
    held = Held()
    change = lambda: held.flags.update({decimal.Clamped: True})  # noqa: E731
    compare(lambda x: x * (1 + ask(held)), change, device)


def test_traps_of_a_context(device, thread):
    held = Held()
    change = lambda: held.traps.update({decimal.Inexact: True})  # noqa: E731
    compare(lambda x: x * (1 + held.context.traps[decimal.Inexact]), change, device)
    signal = decimal.DivisionByZero
    compare(lambda x: x * (1 + thread.traps[signal]), lambda: thread.traps.update({signal: False}), device)
    ask = lambda: decimal.getcontext().flags[decimal.Clamped]  # noqa: E731
    compare(lambda x: x * (1 + ask()), lambda: thread.flags.update({decimal.Clamped: True}), device)


NUMBER = Decimal("1.23456789")
ARITHMETIC = {
    "sqrt": lambda: float(Decimal(2).sqrt()),
    "ln": NUMBER.ln,
    "fma": lambda: NUMBER.fma(NUMBER, NUMBER),
    "pow": lambda: pow(NUMBER, Decimal("0.5")),
    "round": lambda: round(NUMBER, 6),
    "abs": lambda: abs(NUMBER),
    "divmod": lambda: divmod(NUMBER, Decimal("0.1"))[1],
    "scaled": lambda: NUMBER.scaleb(1),
    "largest": lambda: NUMBER.max(Decimal(0)),
    "normal": NUMBER.normalize,
    "rounded": lambda: NUMBER.quantize(Decimal("1.00000")),
    "new": lambda: decimal.getcontext().create_decimal("1.23456789"),
    "by map": lambda: next(map(Decimal.sqrt, [NUMBER])),
    "smallest": lambda: -decimal.getcontext().Etiny() % 999,
}


@pytest.mark.parametrize("compute", ARITHMETIC.values(), ids=ARITHMETIC)
def test_the_context_of_the_thread(device, compute, thread):
    compare(lambda x: x * float(compute()), lambda: setattr(thread, "prec", 5), device)


def test_the_context_after_which_new_ones_are_made(device, thread, monkeypatch):
    monkeypatch.setattr(decimal.DefaultContext, "prec", 28)
    change = lambda: setattr(decimal.DefaultContext, "prec", 9)  # noqa: E731
    compare(lambda x: x * decimal.Context().prec, change, device)


@pytest.mark.parametrize("clear", [False, True])
def test_flags_that_a_call_sets_or_clears(device, clear, thread):
    results = []
    for wrap in (lambda f: f, rote.graph):
        context, seen = decimal.Context(prec=5), []
        if clear:
            g = wrap(lambda x, context=context: (context.clear_flags(), x * 2)[1])
        else:
            g = wrap(lambda x, context=context: x * float(context.divide(Decimal(1), Decimal(3))))
        for n in range(9):
            if n == 5:
                context.flags[decimal.Inexact] = clear
            g(torch.ones(3, device=device))
            seen.append(context.flags[decimal.Inexact])
        results.append(seen)
    assert results[0] == results[1]


def test_the_context_of_the_thread_is_set(device, thread):
    other = decimal.Context(prec=5)
    results = []
    for wrap in (lambda f: f, rote.graph):
        g, seen = wrap(lambda x: (decimal.setcontext(other), x * 2)[1]), []
        for _ in range(6):
            decimal.setcontext(thread)
            g(torch.ones(3, device=device))
            seen.append(decimal.getcontext().prec)
        results.append(seen)
    assert results[0] == results[1]


ZEROS = numpy.array([0.0, 1.0])
ERRORS = {
    "divide": lambda: numpy.divide(1, ZEROS),
    "reciprocal": lambda: numpy.reciprocal(ZEROS),
    "log": lambda: numpy.log(ZEROS),
    "made by the call": lambda: numpy.divide(1, numpy.zeros(1)),
    "numbers alone": lambda: numpy.multiply(1e308, 10.0),
    "class": lambda: numpy.float32(1e300),
    "pow": lambda: pow(ZEROS, -1),
    "divmod": lambda: divmod(ZEROS, ZEROS)[1],
    "reduce": lambda: numpy.divide.reduce([1.0, 0.0]),
    "outer": lambda: numpy.divide.outer([1.0], [0.0]),
    "where": lambda: numpy.true_divide(ZEROS, ZEROS),
}


@pytest.mark.parametrize("compute", ERRORS.values(), ids=ERRORS)
def test_what_numpy_does_about_errors(device, compute):
    def f(x):
        return x * float(numpy.nan_to_num(compute(), posinf=7, neginf=-7).sum())

    before = numpy.geterr()
    try:
        compare(f, lambda: numpy.seterr(all="raise"), device)
    finally:
        numpy.seterr(**before)


def stored():
    made = numpy.zeros(1, numpy.float32)
    made[0] = 1e300
    return made


def test_what_numpy_does_about_numbers_that_are_stored(device):
    before = numpy.geterr()
    try:
        compare(lambda x: x * len(stored()), lambda: numpy.seterr(all="raise"), device)
    finally:
        numpy.seterr(**before)


def write_in_three():
    numpy.set_printoptions(precision=3)


ASKED = {
    "errors": (lambda: len(numpy.geterr()["divide"]), lambda: numpy.seterr(divide="ignore")),
    "call": (lambda: 1 + (numpy.geterrcall() is None), lambda: numpy.seterrcall(lambda *given: None)),
    "buffer": (numpy.getbufsize, lambda: numpy.setbufsize(16384)),
    "options": (lambda: numpy.get_printoptions()["precision"], write_in_three),
    "text": (lambda: len(numpy.array_str(numpy.ones(2) / 3)), write_in_three),
    "text of an array": (lambda: len(str(numpy.ones(2) / 3)), write_in_three),
}


@pytest.mark.parametrize(("ask", "change"), ASKED.values(), ids=ASKED)
def test_settings_of_numpy(device, ask, change):
    errors, call, size, options = (
        numpy.geterr(),
        numpy.geterrcall(),
        numpy.getbufsize(),
        numpy.get_printoptions(),
    )
    try:
        compare(lambda x: x * ask(), change, device)
    finally:
        numpy.seterr(**errors)
        numpy.seterrcall(call)
        numpy.setbufsize(size)
        numpy.set_printoptions(**options)


def test_settings_that_a_call_makes_for_itself(device):
    def f(x):
        with numpy.errstate(divide="raise"):
            try:
                return x * float(numpy.divide(1, ZEROS).sum())
            except FloatingPointError:
                return x * 7

    g = rote.graph(f)
    x = torch.ones(3, device=device)
    for _ in range(8):
        assert_same(g(x), f(x))
    assert g.report().replayed >= 4, g.explain()


def test_a_dialect_by_its_name(device):
    def act(x):
        return x * len(next(csv.reader(["1,2;3;4"], "rote's own")))

    g = rote.graph(act)
    try:
        for n in range(24):
            csv.register_dialect("rote's own", delimiter=",;"[n // 8 % 2])
            x = torch.full((3,), float(n), device=device)
            assert_same(g(x), act(x))
    finally:
        csv.unregister_dialect("rote's own")
    assert g.report().replayed >= 8, g.report()
