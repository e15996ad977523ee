"""What one observed call did as a program, and the tensors that its graph is run on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule

from rote.base import NOWHERE
from rote.runtime.arguments import bind, flatten
from rote.runtime.backends.select import PROCESS
from rote.runtime.capture import Plan, TracedCall
from rote.runtime.program import GivenNode, Program, Way, of_fx, to_fx
from rote.runtime.recording import Node
from rote.testing.comparison import assert_same


class Subject(NamedTuple):
    """A callable with all tensors that it may touch; each that is made anew is equal."""

    function: Callable[..., Any]
    args: tuple[torch.Tensor, ...]
    outside: tuple[torch.Tensor, ...] = ()


class Observed(NamedTuple):
    """A program, and which of the subject's tensors its external ones are."""

    program: Program
    externals: list[int]

    @property
    def way(self) -> tuple[Any, ...]:
        return self.program.ways()[0]


def observe(subject: Subject, seed: int = 0) -> Observed:
    torch.manual_seed(seed)
    root, backend = Node(), PROCESS.of(torch.device("cpu"))
    with backend.lock:
        backend.enter_call()
        call = TracedCall(subject.function, bind(subject.args, {}), Plan(root, 1, backend), NOWHERE)
        outcome = call.run()
    assert not outcome.blockers and outcome.difference is None, (outcome.blockers, outcome.difference)
    outcome.node.template = outcome.template
    outside = [each.untyped_storage()._cdata for each in subject.outside]
    found = [outside.index(each.untyped_storage()._cdata) for each in outcome.storages.externals]
    return Observed(root.program(), found)


def values_for(module: GraphModule, observed: Observed, subject: Subject) -> list[Any]:
    """What the placeholders of a graph are given, from a subject of its own."""
    found: list[Any] = []
    for node in module.graph.nodes:
        if node.op != "placeholder":
            continue
        given: GivenNode = node.meta["rote"]
        if given.sort == "tensor":
            kind, number = given.what.origin
            home = subject.args[number] if kind == "input" else subject.outside[observed.externals[number]]
            flat = torch.empty(0, dtype=given.what.dtype).set_(home.untyped_storage())
            found.append(flat.as_strided(given.what.shape, given.what.stride, given.what.offset))
        elif given.sort == "argument":
            found.append(subject.args[given.what])
        elif given.sort == "number":
            found.append(given.what.number.value)
        else:
            found.append(torch.default_generator)
    return found


def run(module: GraphModule, observed: Observed, subject: Subject, seed: int = 0) -> list[Any]:
    """The leaves of the result of a graph."""
    torch.manual_seed(seed)
    with torch.no_grad():
        leaves, _ = module(*values_for(module, observed, subject))
    return list(leaves)


def check_law(build: Callable[[], Subject], *, seed: int = 0) -> Observed:
    """A graph gives what the callable gives and writes what it writes, and is read back as the program."""
    observed = observe(build(), seed)
    plain, ours = build(), build()
    torch.manual_seed(seed)
    expected = plain.function(*plain.args)
    leaves: list[Any] = []
    flatten(expected, leaves)
    module = to_fx(observed.program, observed.way)
    found = run(module, observed, ours, seed)
    assert_same(bare([found, ours.args, ours.outside]), bare([leaves, plain.args, plain.outside]))
    assert of_fx(module) == along(observed.program, observed.way)
    return observed


def along(program: Program, way: Sequence[Any]) -> Program:
    """The program with this way alone."""
    stretches = program.stretches(way)
    last = replace(stretches[-1], ways=())
    for edge, stretch in zip(reversed(way), reversed(stretches[:-1]), strict=True):
        last = replace(stretch, ways=(Way(edge, last),))
    return Program(last)


def bare(value: Any) -> Any:
    """Tensors without their history."""
    if isinstance(value, (list, tuple)):
        return [bare(each) for each in value]
    return value.detach() if isinstance(value, torch.Tensor) else value
