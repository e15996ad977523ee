"""Outputs: held, viewed, shared, fed back, of every structure, and passed from one graph to the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from tests.footguns.case import Kind, Wrap, case, full, ramp
from torch import nn

Items = Iterator[Any]


@dataclass
class Result:
    """A result as models return it."""

    logits: torch.Tensor
    hidden: list[torch.Tensor] = field(default_factory=list)
    name: str = "result"


class Pair(NamedTuple):
    """A result of two parts."""

    first: torch.Tensor
    second: torch.Tensor


@case(Kind.WRONG)
def held_over_many_calls(wrap: Wrap, device: torch.device) -> Items:
    """Results are collected in a list and read at the end."""
    g, held = wrap(lambda x: x * 2), []
    for i in range(12):
        held.append(g(full(i, device)))
        yield held[-1]
    yield held


@case(Kind.WRONG)
def view_held(wrap: Wrap, device: torch.device) -> Items:
    """Of each result only a slice is kept, which shares its memory."""
    g, held = wrap(lambda x: x * 2), []
    for i in range(12):
        held.append(g(ramp(i, device))[1, :2])
        yield held[-1]
    yield held


@case(Kind.WRONG)
def compared_with_the_last_one(wrap: Wrap, device: torch.device) -> Items:
    """Each result is compared with that of the call before."""
    g = wrap(lambda x: x.cumsum(0))
    last = g(full(0, device))
    for i in range(1, 11):
        now = g(full(i * i, device))
        yield now - last
        last = now


@case(Kind.WRONG)
def returned_twice(wrap: Wrap, device: torch.device) -> Items:
    """One tensor is returned in two places; it has to be one object in both."""

    def fn(x):
        y = x * 2
        return {"first": y, "second": y}

    g, held = wrap(fn), []
    for i in range(10):
        out = g(full(i, device))
        held.append(out)
        yield out["first"] is out["second"]
    yield held


@case(Kind.WRONG)
def parts_that_share_memory(wrap: Wrap, device: torch.device) -> Items:
    """A tensor and a view of it are returned; writing to one shows in the other."""

    def fn(x):
        y = x * 2
        return y, y.view(-1)[:2]

    g, held = wrap(fn), []
    for i in range(10):
        y, head = g(ramp(i, device))
        head.fill_(-1)
        held.append(y)
        yield y
    yield held


@case(Kind.WRONG)
def input_returned(wrap: Wrap, device: torch.device) -> Items:
    """An argument is among the results; it has to be the caller's own tensor."""
    g, kept = wrap(lambda x: (x, x + 1)), []
    for i in range(10):
        x = full(i, device)
        out = g(x)
        yield out[0] is x
        kept.append(out)
    yield kept


@case(Kind.WRONG)
def view_of_an_input_returned(wrap: Wrap, device: torch.device) -> Items:
    """A slice of an argument is returned; writing to it changes the caller's tensor."""
    g = wrap(lambda x: x[:2])
    for i in range(10):
        x = full(i, device)
        g(x).add_(100)
        yield x


@case(Kind.WRONG)
def parameter_returned(wrap: Wrap, device: torch.device) -> Items:
    """A parameter is returned as it is, then replaced by another one."""
    m = nn.Linear(3, 2).to(device).requires_grad_(False)
    g = wrap(lambda x: (m.weight, m(x)))
    for i in range(14):
        if i == 6:
            m.weight = nn.Parameter(torch.ones_like(m.weight), requires_grad=False)
        weight, y = g(ramp(i, device))
        yield weight is m.weight, y


@case(Kind.RIGHT)
def view_of_a_buffer_returned(wrap: Wrap, device: torch.device) -> Items:
    """A slice of a buffer is returned before the buffer is updated: it has to show the update."""
    buffer = torch.zeros(4, device=device)

    def fn(x):
        head = buffer[:2]
        buffer.add_(x)
        return head

    g, held = wrap(fn), []
    for i in range(10):
        held.append(g(full(i, device)))
        yield held[-1].data_ptr() == buffer.data_ptr(), buffer
        buffer[0] = -1
    yield held


@case(Kind.REFUSED)
def shape_that_depends_on_data(wrap: Wrap, device: torch.device) -> Items:
    """The elements above a threshold are returned: how many changes from call to call."""
    g, held = wrap(lambda x: x[x > 3] * 2), []  # RT111
    for i in range(24):
        held.append(g(ramp(i % 3, device)))
        yield held[-1]
    yield held


@case(Kind.WRONG)
def nested_structure(wrap: Wrap, device: torch.device) -> Items:
    """Dicts, lists, tuples, None, strings and numbers around the tensors."""

    def fn(x):
        return {"a": [x + 1, (x * 2, None)], "b": Pair(x - 1, x.sum()), "c": "text", "d": 3, "e": 0.5}

    g, held = wrap(fn), []
    for i in range(10):
        held.append(g(full(i, device)))
        yield held[-1]
    yield held


@case(Kind.WRONG)
def dataclass_returned(wrap: Wrap, device: torch.device) -> Items:
    """A dataclass with a list in it; the caller appends to that list."""
    g, held = wrap(lambda x: Result(x * 2, [x + 1])), []
    for i in range(10):
        out = g(full(i, device))
        out.hidden.append(out.logits)
        held.append(out)
        yield out
    yield held


@case(Kind.REFUSED)
def container_changed_by_the_caller(wrap: Wrap, device: torch.device) -> Items:
    """The caller pops an entry out of the dict that was returned."""
    g = wrap(lambda x: {"loss": x.sum(), "logits": x * 2})
    for i in range(10):
        out = g(full(i, device))
        yield out.pop("loss"), sorted(out)


@case(Kind.RIGHT)
def list_of_the_state_returned(wrap: Wrap, device: torch.device) -> Items:
    """The callable returns a list that it keeps: the caller gets that list, not one like it."""
    states = [torch.zeros(4, device=device)]

    def fn(x):
        states[0].add_(x)
        return states

    g = wrap(fn)
    for i in range(10):
        out = g(full(i, device))
        yield out, out is states


@case(Kind.WRONG)
def empty_tensors(wrap: Wrap, device: torch.device) -> Items:
    """Tensors without elements keep their shape and type."""

    def fn(x):
        return x[:0], x.new_empty((0, 3), dtype=torch.int64), x.view(-1, 1)[:, :0].sum(1) + x

    g, held = wrap(fn), []
    for i in range(10):
        held.append(g(full(i, device)))
        yield held[-1]
    yield held


@case(Kind.WRONG)
def nothing_returned(wrap: Wrap, device: torch.device) -> Items:
    """None is returned and a running sum that was replaced from outside is what counts."""
    state = {"sum": torch.zeros(4, device=device)}

    def fn(x):
        state["sum"].add_(x)

    g = wrap(fn)
    for i in range(14):
        if i == 7:
            state["sum"] = torch.ones(4, device=device)
        yield g(full(i, device)), state["sum"]


@case(Kind.WRONG)
def fed_back_as_the_next_input(wrap: Wrap, device: torch.device) -> Items:
    """The result of a call is the argument of the next, and the trajectory is kept."""
    g = wrap(lambda state, x: (state * 0.5 + x).roll(1))
    state, trajectory = ramp(0, device, 4), []
    for i in range(12):
        state = g(state, full(i, device))
        trajectory.append(state)
        yield state
    yield trajectory


@case(Kind.WRONG)
def two_graphs_chained(wrap: Wrap, device: torch.device) -> Items:
    """An encoder's result goes into a decoder, and both results are kept."""
    torch.manual_seed(1)
    a, b = (nn.Linear(3, 3).to(device).requires_grad_(False) for _ in range(2))
    encode, decode, held = wrap(lambda x: a(x).relu()), wrap(lambda h: b(h) + h), []
    for i in range(12):
        h = encode(ramp(i, device))
        held.append((h, decode(h)))
        yield held[-1]
    yield held


@case(Kind.WRONG)
def same_one_twice_in_a_step(wrap: Wrap, device: torch.device) -> Items:
    """One graph is called for two inputs, then both results are used."""
    g = wrap(lambda x: x.square())
    for i in range(8):
        positive, negative = g(full(i, device)), g(full(-2 * i - 1, device))
        yield positive - negative


@case(Kind.WRONG)
def one_inside_another(wrap: Wrap, device: torch.device) -> Items:
    """A graphed callable is called by another one, and by itself as well."""
    inner = wrap(lambda x: x * 2 + 1)
    outer = wrap(lambda x: inner(x) - inner(x + 1).sum())
    for i in range(10):
        yield outer(full(i, device)), inner(full(-i, device))


@case(Kind.WRONG)
def state_of_one_inside_another(wrap: Wrap, device: torch.device) -> Items:
    """What only the inner of two graphed callables looks at changes: a number, then a weight."""
    m = nn.Linear(4, 4).to(device).requires_grad_(False)
    scale = [1.0]
    layer, scaled = wrap(m), wrap(lambda x: x * scale[0])
    g = wrap(lambda x: layer(x) + scaled(x))
    for i in range(24):
        if i == 8:
            scale[0] = 5.0
        if i == 16:
            m.weight = nn.Parameter(m.weight * 2, requires_grad=False)
        yield g(full(i, device))


@case(Kind.REFUSED)
def one_layer_of_a_model(wrap: Wrap, device: torch.device) -> Items:
    """A layer is replaced by its graphed self; the model still has its parameters, modes and state."""
    m = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))).to(device)
    m.requires_grad_(False)
    m[1] = wrap(m[1])
    for i in range(24):
        m.train(i % 8 < 4)
        if i == 16:
            m.load_state_dict({name: value * 2 for name, value in m.state_dict().items()})
        yield m(ramp(i, device)), len(list(m.parameters())), [name for name, _ in m.named_modules()]


@case(Kind.WRONG)
def changed_by_the_caller(wrap: Wrap, device: torch.device) -> Items:
    """The caller works in place on what was returned."""
    constant = torch.ones(4, device=device)
    g, held = wrap(lambda x: (x * 2, constant.expand(2, 4))), []
    for i in range(10):
        y, _ = g(full(i, device))
        held.append(y.add_(100))
        yield y
    yield held, constant


@case(Kind.REFUSED)
def shapes_in_turn_and_held(wrap: Wrap, device: torch.device) -> Items:
    """Results of two shapes are held: recordings that share memory must not touch them."""
    g, held = wrap(lambda x: x.exp().cumsum(0)), []
    for i in range(16):
        held.append(g(full(i / 8, device, size=4 + 3 * (i % 2))))
        yield held[-1]
    yield held


@case(Kind.WRONG)
def expanded_and_transposed_results(wrap: Wrap, device: torch.device) -> Items:
    """Results keep their strides: expanded, transposed, with steps."""
    g, held = wrap(lambda x: ((x * 2).t(), (x[:1] + 1).expand(4, 3), (x * 3)[:, ::2])), []
    for i in range(10):
        held.append(g(ramp(i, device)))
        yield held[-1]
    yield held


@case(Kind.REFUSED)
def number_in_the_result(wrap: Wrap, device: torch.device) -> Items:
    """A number computed from the arguments' shape and a flag is returned beside the tensor."""
    g = wrap(lambda x, flag: (x * 2, x.shape[0] * 10 + flag))
    for i in range(16):
        yield g(full(i, device, size=3 + i % 2), i % 4 > 1)
