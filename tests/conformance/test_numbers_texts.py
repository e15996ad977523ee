"""Numbers written as text: a replay writes what a plain call writes, and whoever looks at it is seen."""

from __future__ import annotations

import io
import itertools
import json
import logging
import sys
from collections import OrderedDict, deque
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.conformance.numbers_programs import LOOKS, SCENE, WRITTEN, bits

import rote

_VALUES = [*[0.5 + 0.37 * number for number in range(8)], 1e-7, 123456.789, 0.0, -0.0, 12, -3.0]
"""As many as are looked at before the first replay, and then what is written otherwise."""
_SINKS = (
    "return {t}, x * 2", "return [x, {{'a': {t}}}]", "HIST.append({t})", "GROUP['text'] = {t}",
    "self.name = {t}", "self.pair = ({t}, [{t}])", "HIST.extend([{t}, {t}])", "HIST[:] = [{t}, 1]",
    "self.d[0] = {t}", "z = {t}; self.name = z; return z", "self.d = {{'text': {t}, 'step': s}}",
    "setattr(self, 'name', {t})", "print({t})", "print('a', {t}, s, flush=True)", "HIST.insert(0, {t})",
    "print([{t}], s, file=sys.stderr)",
)  # fmt: skip
_LEFT = frozenset({"HIST[:] = [{t}, 1]", "HIST.insert(0, {t})"})
"""Places in which no number is followed."""
_NUMBERS = ("s", "x.sum().item()", "self.step")
_TEXTS = ("str({a})", "'%.1f' % {a}", "(lambda z: f'{{z}}!')({a})", "str(int({a}) % 10)", "(str({a}) + 'x')")
"""What is written once more, or looked at."""


def play(body: str, device: torch.device, values: Sequence[float | str] = _VALUES) -> int:
    """Call a program plainly and graphed, compare each call, and say how many were replayed."""
    text = SCENE.replace("BODY", f"            self.step += 1\n            {body}\n            return x + 1")
    names: list[dict[str, Any]] = [{}, {}]
    for each in names:
        exec(compile(text, "<texts>", "exec"), each)
    graphed, plain = (each["make"]() for each in names)
    run = rote.graph(graphed.program.run, keep=True)
    for number, s in enumerate(values):
        x = torch.full((3,), float(number if type(s) is str else s), device=device)
        xi = torch.zeros(3, dtype=torch.int64, device=device)
        seen: list[Any] = []
        for function, state in ((run, graphed), (plain.program.run, plain)):
            state.program.given = s
            with redirect_stdout(io.TextIOWrapper(io.BytesIO())):
                try:
                    result = bits(function(x.clone(), x.clone(), xi, s))
                except Exception as error:
                    result = type(error).__name__, str(error)
            seen.append((result, bits(state)))
        assert seen[0] == seen[1], f"call {number} of {body}:\n{seen[0]}\n{seen[1]}\n{run.explain()}"
    replayed = run.report().replayed
    run.reset()
    return replayed


@pytest.mark.sampled(24)  # a second each
@pytest.mark.parametrize("piece", WRITTEN)
def test_each_way_to_write_a_number(device, piece):
    """In each place; which number it is of, and which text it is of, goes round."""
    first = WRITTEN.index(piece)
    for place, sink in enumerate(_SINKS):
        number, inner = _NUMBERS[(first + place) % 3], _TEXTS[(first + place) % 5]
        text = piece.format(a=number, b=number, t=inner.format(a=number))
        play(sink.format(t=text), device)


@pytest.mark.sampled(24)  # a second each
@pytest.mark.parametrize("look", LOOKS)
def test_each_look_at_a_text(device, look):
    """The number that it gives is used, and so is whether it was looked at."""
    first = LOOKS.index(look)
    for place, text in enumerate(_TEXTS):
        one, other = (text.format(a=_NUMBERS[(first + place + each) % 2]) for each in (0, 1))
        play(f"return x * {look.format(t=one)}, {one}", device)
        play(f"t = {other}; self.name = t; return x + {look.format(t='t')}", device)


_GIVEN = ["0", "1.0", "ab", "0", "a", "x0", "10", "", "é", "0", "5.5", "lorem", "1", "0", "zz", "q"]


@pytest.mark.parametrize("look", LOOKS)
def test_each_look_at_a_text_that_is_given(device, look):
    """By an argument, or in a slot that the program sets: it may be another one in each call."""
    for given in ("s", "self.given"):
        play(f"return x * {look.format(t=given)}, {given}", device, _GIVEN)
        play(f"t = {given}; self.name = t; return x + {look.format(t='t')}", device, _GIVEN)


OF_TEXTS = [
    "{a}", "(lambda z: f'{{z}}!')({a})", "{a}.upper()", "{a}.strip('0').title()", "[{a}, 'b']",
    "{{'id': ({a}, 1)}}", "', '.join([{a}, 'b'])", "str({a})", "'%s at %s' % ({a}, {a})", "({a} + '.pt')",
    "'{{}}: {{}}'.format({a}, s)", "json.dumps({{'id': {a}}})", "f'{{len({a})}}'",
]  # fmt: skip


@pytest.mark.parametrize("piece", OF_TEXTS)
def test_texts_that_are_given_and_only_kept_replay(device, piece):
    values = [f"sample {number}" for number in range(16)]
    for sink, given in zip(_SINKS, itertools.cycle(("s", "self.given")), strict=False):
        replayed = play(sink.format(t=piece.format(a=given)), device, values)
        assert sink in _LEFT or replayed >= 5, f"{sink} of {piece}: {replayed}"


def test_names_in_batches(device):
    """A batch has the names of its samples, which are returned, kept and logged, and decide nothing."""
    model = torch.nn.Linear(4, 2).to(device).requires_grad_(False)
    state = SimpleNamespace(last=None, names=[], line="")

    def step(batch: dict[str, Any]) -> dict[str, Any]:
        state.last = batch["id"]
        state.names.extend(batch["id"])
        state.line = f"{batch['id'][0]} and {len(batch['id'])} more"
        return {
            "scores": model(batch["x"]),
            "id": batch["id"],
            "pairs": [*zip(batch["id"], "ab", strict=True)],
        }

    g = rote.graph(step)
    for number in range(24):
        batch = {"x": torch.randn(2, 4, device=device), "id": [f"s{number}", f"t{number}"]}
        result = g(batch)
        assert torch.equal(result["scores"], model(batch["x"]))
        assert result["id"] is batch["id"]
        assert result["pairs"] == [(f"s{number}", "a"), (f"t{number}", "b")]
        assert state.last is batch["id"]
        assert state.names[-2:] == batch["id"]
        assert state.line == f"s{number} and 2 more"
    assert len(state.names) == 48
    assert g.report().replayed >= 14, g.explain()
    g.reset()


PLAIN = [
    "str({a})", "'%.1f' % {a}", "(lambda z: f'{{z:.3f}} of 9')({a})", "'{{:.2e}}!'.format({a})", "repr({a})",
    "('loss ' + str({a}))", "'-'.join([str({a}), 'b'])", "format({a}, '.3g')", "'%s: %.2f' % ('loss', {a})",
    "str(int({a}) % 10)", "str([{a}, 'b', None])", "'%(v).3f, %(w)s' % {{'v': {a}, 'w': 1, 'z': ()}}",
    "'{{v:.3f}} {{}}'.format(1, v={a})", "json.dumps({{'loss': {a}, 'at': [1, None]}})",
    "(lambda z: f'{{z}}')({{'a': ({a}, True)}})", "str({a}).rjust(9).replace('.', ',')",
    "f'{{len(str({a}))}}'",
]  # fmt: skip


@pytest.mark.parametrize("piece", PLAIN)
@pytest.mark.parametrize("sink", [each for each in _SINKS if each not in _LEFT])
def test_what_is_written_in_one_way_only_replays(device, piece, sink):
    values = [0.5 + 0.37 * number for number in range(12)]
    assert play(sink.format(t=piece.format(a="s")), device, values) >= 4


def test_logs_of_a_training_step(device):
    """What people write in a step: a line each fifth time, a history, the best so far."""

    def make() -> tuple[Any, Any]:
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 4).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        state = SimpleNamespace(step=0, best=1e9, name="", lines=[], history=[])

        def step(x: torch.Tensor) -> dict[str, Any]:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            value = loss.item()
            state.step += 1
            state.history.append(value)
            if state.step % 5 == 0:
                print(f"step {state.step} loss {value:.4f}")
                state.lines.append("step " + str(state.step) + f" loss {value:.4f}")
            if value < state.best:
                state.best, state.name = value, f"model-{state.step}-{value:.3f}.pt"
            return {"loss": value, "text": f"{value:.2f}"}

        return step, state

    (plain, expected), (fn, state) = make(), make()
    g = rote.graph(fn, keep=True)
    torch.manual_seed(1)
    with redirect_stdout(io.TextIOWrapper(io.BytesIO())):
        for _ in range(80):
            x = torch.randn(3, 8, device=device)
            assert g(x) == plain(x) and vars(state) == vars(expected)
    assert g.report().replayed >= 50, g.explain()


BESIDE = {
    "the name of a class": lambda s: str(type(s)),
    "a path": lambda s: f"{PurePath('a')}",
    "a size": lambda s: f"{torch.Size([1, 2])}",
}


@pytest.mark.parametrize("write", BESIDE.values(), ids=BESIDE)
def test_what_holds_no_number_stands_in_no_way(device, write):
    def fn(x, s):
        return x * s, len(write(s)), f"{s:.2f}"

    g = rote.graph(fn, keep=True)
    for number in range(12):
        x, s = torch.full((3,), float(number), device=device), 0.5 + number
        (ours, *told), (theirs, *expected) = g(x, s), fn(x, s)
        assert torch.equal(ours, theirs) and told == expected
    assert g.report().replayed >= 4, g.explain()


@pytest.mark.parametrize(
    "held", [deque, lambda held: OrderedDict(a=held[0]), lambda held: SimpleNamespace(a=held[0])]
)
def test_what_c_writes_of_an_object_is_looked_at(device, held):
    def fn(x, s):
        return x * len(f"{held([s])}")

    g = rote.graph(fn, keep=True)
    for number in range(16):
        x, s = torch.full((3,), float(number), device=device), 10**number
        assert torch.equal(g(x, s), fn(x, s))


class Keeps(logging.Handler):
    """Keeps what a record says, which the call may ask for."""

    def __init__(self, what):
        super().__init__()
        self.what, self.kept = what, []

    def emit(self, record):
        self.kept.append(self.what(record))


class Counts(logging.Formatter):
    """Looks at what it writes."""

    def __init__(self):
        super().__init__("%(levelname)s %(message)s")
        self.seen = 0

    def format(self, record):
        text = super().format(record)
        self.seen += len(text) + text.count("5")
        return text


class Picks(logging.Filter):
    """Lets some lines pass, and counts those."""

    def __init__(self):
        super().__init__()
        self.passed = 0

    def filter(self, record):
        self.passed += "5" in record.getMessage()
        return self.passed % 2 == 0


def logged(x, how, s, log):
    if how == "args":
        log.info("loss %.3f at %s", s, x.sum().item())
    elif how == "f":
        log.warning(f"loss {s:.3f} of {x.sum().item()}")
    elif how == "names":
        log.info("%(loss)s %(a).2f", {"loss": s, "a": x.sum().item(), "other": [s]})
    else:
        log.info(json.dumps({"loss": s, "values": [x.sum().item(), None]}))
    return x * s


@pytest.mark.parametrize("how", ["args", "f", "names", "json"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: logging.StreamHandler(sys.stderr),
        lambda: Keeps(logging.LogRecord.getMessage),
        lambda: Keeps(lambda record: (record.msg, record.args)),
        lambda: logging.StreamHandler(io.StringIO()),
    ],
    ids=["the standard stream", "messages", "records", "a stream of one's own"],
)
@pytest.mark.parametrize("look", [None, Counts, Picks])
def test_lines_of_a_log(device, how, make, look):
    """The calls of two loggers are compared by what their handlers, formatters and filters have seen."""
    loggers, told = [], []
    for name in ("graphed", "plain"):
        handler, looks = make(), look() if look is not None else None
        if look is Counts:
            handler.setFormatter(looks)
        elif look is Picks:
            handler.addFilter(looks)
        log = logging.Logger(name, logging.INFO)
        log.addHandler(handler)
        loggers.append(log)
        told.append((handler, looks))
    g = rote.graph(lambda x, s: logged(x, how, s, loggers[0]), keep=True)
    for number in range(24):
        x, s = torch.full((3,), 0.5 * number, device=device), 0.25 + number * 0.7
        assert torch.equal(g(x, s), logged(x, how, s, loggers[1]))
        seen = [
            (
                getattr(handler, "kept", 0),
                handler.stream.getvalue() if type(getattr(handler, "stream", 0)) is io.StringIO else 0,
                vars(looks).get("seen", vars(looks).get("passed")) if looks is not None else 0,
            )
            for handler, looks in told
        ]
        assert seen[0] == seen[1], number
    standard = type(told[0][0]) is logging.StreamHandler and told[0][0].stream is sys.stderr
    if standard and look is None:
        assert g.report().replayed >= 8, g.explain()


def test_a_container_is_written_as_it_was(device):
    """What the call changes in it later is in no text that was made before."""

    def fn(x, s):
        held, more = [1.0, {"k": 2}], ["a"]
        texts = [str([s, held]), f"{s} {more}", json.dumps({"s": s, "l": held})]
        held[0] = held[1]["k"] = 5
        more.append("b")
        return x * s, texts, str([s, more])

    g = rote.graph(fn, keep=True)
    for number in range(16):
        x, s = torch.full((3,), float(number), device=device), 0.5 + number
        (ours, *texts), (theirs, *expected) = g(x, s), fn(x, s)
        assert torch.equal(ours, theirs) and texts == expected
    assert g.report().replayed >= 4, g.explain()


def test_a_table_is_read_as_it_was(device):
    """The same of what numpy is given."""

    def fn(x, array):
        weights = [1.0, 2.0]
        found = float(np.dot(array, weights))
        weights[0] = 9.0
        return x * found

    g = rote.graph(fn, keep=True)
    for number in range(16):
        x, array = torch.full((3,), float(number), device=device), np.array([number, 1.5])
        assert torch.equal(g(x, array), fn(x, array))


def test_what_is_written_to_a_stream_is_counted(device):
    def fn(x, s):
        return x * sys.stderr.write(f"{s}\n")

    g = rote.graph(fn, keep=True)
    for number in range(30):
        x, s = torch.full((3,), float(number), device=device), 0.1 + number * 3
        assert torch.equal(g(x, s), fn(x, s))
    assert g.report().replayed >= 4, g.explain()
