"""Numbers written as text: a replay writes what a plain call writes, and whoever looks at it is seen."""

from __future__ import annotations

import io
import itertools
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.conformance.numbers_programs import LOOKS, SCENE, WRITTEN, bits

import rote

_VALUES = [0.5, 1e-7, 2.0, 123456.789, 12, -3, 5, 0.0, -0.0, 10, 7.0, 7.0]
_SINKS = (
    "return {t}, x * 2", "return [x, {{'a': {t}}}]", "HIST.append({t})", "GROUP['text'] = {t}",
    "self.name = {t}", "self.pair = ({t}, [{t}])", "HIST.extend([{t}, {t}])", "HIST[:] = [{t}, 1]",
    "self.d[0] = {t}", "z = {t}; self.name = z; return z", "self.d = {{'text': {t}, 'step': s}}",
    "setattr(self, 'name', {t})", "print({t})", "print('a', {t}, s, flush=True)", "HIST.insert(0, {t})",
)  # fmt: skip
_LEFT = frozenset({"HIST[:] = [{t}, 1]", "HIST.insert(0, {t})"})
"""Places in which no number is followed."""
_NUMBERS = ("s", "x.sum().item()", "self.step")


def written(piece: str, number: str, depth: int = 0) -> Iterator[str]:
    """A text of one kind, of one number; of texts those of a few kinds."""
    inner = ("''",) if "{t}" not in piece else ("str({a})", "'%.1f' % {a}", "str(int({a}) % 10)")
    for each in inner:
        t = each.format(a=number)
        yield piece.format(a=number, b=number, t=t)


def play(body: str, device: torch.device, values: Sequence[float] = _VALUES) -> int:
    """Call a program plainly and graphed, compare each call, and say how many were replayed."""
    text = SCENE.replace("BODY", f"            self.step += 1\n            {body}\n            return x + 1")
    names: list[dict[str, Any]] = [{}, {}]
    for each in names:
        exec(compile(text, "<texts>", "exec"), each)
    graphed, plain = (each["make"]() for each in names)
    run = rote.graph(graphed.program.run, keep=True)
    for number, s in enumerate(values):
        x, xi = torch.full((3,), float(s), device=device), torch.zeros(3, dtype=torch.int64, device=device)
        seen: list[Any] = []
        for function, state in ((run, graphed), (plain.program.run, plain)):
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


@pytest.mark.parametrize("piece", WRITTEN)
def test_each_way_to_write_a_number(device, piece):
    for sink, number in zip(_SINKS, itertools.cycle(_NUMBERS), strict=False):
        for text in written(piece, number):
            play(sink.format(t=text), device)


@pytest.mark.parametrize("look", LOOKS)
def test_each_look_at_a_text(device, look):
    """The number that it gives is used, and so is whether it was looked at."""
    texts = (
        "str({a})",
        "'%.1f' % {a}",
        "(lambda z: f'{{z}}!')({a})",
        "str(int({a}) % 10)",
        "(str({a}) + 'x')",
    )
    for text, number in itertools.product(texts, _NUMBERS[:2]):
        t = text.format(a=number)
        play(f"return x * {look.format(t=t)}, {t}", device)
        play(f"t = {t}; self.name = t; return x + {look.format(t='t')}", device)


PLAIN = [
    "str({a})", "'%.1f' % {a}", "(lambda z: f'{{z:.3f}} of 9')({a})", "'{{:.2e}}!'.format({a})", "repr({a})",
    "('loss ' + str({a}))", "'-'.join([str({a}), 'b'])", "format({a}, '.3g')", "'%s: %.2f' % ('loss', {a})",
    "str(int({a}) % 10)",
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
