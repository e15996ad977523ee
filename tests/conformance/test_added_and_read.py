"""Calls that add to a list or a deque outside, and read there: what they have added is their own."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import rote
from rote.testing import assert_same

CALLS = 24
REPLAYED: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "last": lambda s, x: [s.seen.append(x.sum().item()), s.seen[-1]][1],
    "last of two": lambda s, x: [s.seen.append(x + 1), s.seen.append(2), s.seen[-2] * s.seen[-1]][2],
    "of an extension": lambda s, x: [s.seen.extend(x.tolist()), s.seen[-3], s.seen[-1]][1:],
    "of all lists": lambda s, x: [
        s.named["a"].append(x.sum().item()),
        s.named["b"].append(x * 2),
        {key: each[-1] for key, each in s.named.items()},
    ][2],
    "of a queue": lambda s, x: [s.queue.append(x.sum()), s.queue[-1] + 1][1],
    "changed there": lambda s, x: [s.seen.append([x.sum().item()]), s.seen[-1].append(2.0), s.seen[-1][0]][2],
}
OPERATIONS = [
    "seen.append(y)", "seen.append(y.sum().item())", "seen.append(x)", "seen.extend([1, y])", "seen += (y,)",
    "y = y + seen[-1]", "y = y * seen[-2]", "y = y + seen[0]", "y = y - seen[-1] * seen[-1]",
    "y = y + len(seen)", "y = y + seen.pop()", "seen.insert(0, y)", "seen[-1] = y * 2", "seen.pop(0)",
    "del seen[-1]", "seen.reverse()", "y = y + sum(seen[-2:])", "y = y + seen[len(seen) - 1]",
    "if seen[-1].sum() > 30: y = y * 0.5", "seen.append(seen[-1] * 0.5)", "seen[-1].mul_(0.5)",
]  # fmt: skip


def played(wrap: Any, program: Callable[[Any, torch.Tensor], Any], after: Callable[[Any, int], None]) -> Any:
    start = [torch.full((3,), 2.0), torch.ones(3)]
    s = SimpleNamespace(seen=[*start], named=defaultdict(list), queue=deque(start, maxlen=4))
    step, found = wrap(lambda x: program(s, x)), list[Any]()
    for call in range(CALLS):
        try:
            result = step(torch.arange(3.0) + call % 5)
        except (IndexError, AttributeError) as error:
            result = str(error)
        after(s, call)
        found.append(copied([result, s.seen, {**s.named}, [*s.queue]]))
    return found


def copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: copied(each) for key, each in value.items()}
    return [copied(each) for each in value] if isinstance(value, (list, tuple)) else value


def nothing(s: Any, call: int) -> None:
    """The caller does nothing."""


def takes(s: Any, call: int) -> None:
    """The caller reads, adds and takes away."""
    if call % 5 == 2:
        s.seen.append(torch.full((3,), float(call)))
    if call % 7 == 3:
        s.seen = s.seen[-2:]
    if call % 6 == 4 and s.seen:
        s.seen[-1] = torch.zeros(3)


@pytest.mark.parametrize("name", REPLAYED)
def test_what_was_added_is_read_and_replayed(name: str) -> None:
    graphs = list[Any]()

    def wrap(function: Any) -> Any:
        graphs.append(rote.graph(function, keep=True))
        return graphs[0]

    program = REPLAYED[name]
    assert_same(played(wrap, program, nothing), played(lambda function: function, program, nothing))
    assert graphs[0].report().replayed > CALLS // 2, graphs[0].explain()


def program_of(seed: int) -> Callable[[Any, torch.Tensor], Any]:
    chosen = random.Random(seed).choices(OPERATIONS, k=4)
    lines = ["def program(s, x):", "    seen, y = s.seen, x * 2", *[f"    {each}" for each in chosen]]
    names: dict[str, Any] = {}
    exec("\n".join([*lines, "    return y"]), names)
    return names["program"]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("after", [nothing, takes])
@pytest.mark.parametrize("seed", range(200))
def test_any_order(seed: int, after: Any) -> None:
    program = program_of(seed)
    ours = played(lambda function: rote.graph(function, keep=True), program, after)
    assert_same(ours, played(lambda function: function, program, after))
