"""Results that other results are computed from: a feature beside the score, a loss beside the logits.

All results of a call hang in the caller's graph by nodes of one function, and one walk gives the gradients of
all of them. In eager the gradient of the score runs through the feature: hooks on the feature see it, the
feature can retain it, and ``torch.autograd.grad(score, feature)`` gives it. So a result that is computed from
others has a node of its own (:class:`..backward.Linked`) that leads to them as well. Where somebody could see
what runs through them, its backward ends at them: it hands its gradient on to them, and what goes past them
directly to arguments and parameters is added when the walk comes to those.

Otherwise it ends nowhere, since one walk is quicker, and adds up as eager does. A walk that ends early is
plain autograd. Somebody can see if a result has hooks or retains its gradient, or if the engine was asked for
certain gradients only (:func:`...program.torch_private.asks_for_some`).

The first walk frees the parts of the graph that two walks have in common, as in eager. Results that have
nothing in common (two losses of two networks) are walked and freed one by one (:func:`groups`).

What does not work: hooks on the nodes of results (``result.grad_fn.register_hook``); results that are views,
made anew outside of the recorded graph: where another result is computed from one, nothing is recorded.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch.autograd.graph import get_gradient_edge

from ...program import asks_for_some, current_pass, history_of, node_age, watch_hooks
from .graph import Node, nodes_below

Edge = tuple[Node, int]
"""A node and the number of one of its outputs."""


def edge_of(result: torch.Tensor) -> Edge:
    """Where a result lies in its graph."""
    return history_of(result), result.output_nr


@dataclass(frozen=True)
class Order:
    """Which results are computed from which.

    Attributes:
        direct: For each result the numbers of those that it is computed from, with no other in between.
    """

    direct: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, results: Sequence[torch.Tensor]) -> Order:
        """That of some results, each of which has a graph."""
        edges = [edge_of(result) for result in results]
        numbers = {edge: number for number, edge in enumerate(edges)}
        return cls(tuple(_found_below(edge, numbers) for edge in edges))

    def behind(self, number: int) -> frozenset[int]:
        """All results that one is computed from."""
        found: set[int] = set()
        left = list(self.direct[number])
        while left:
            each = left.pop()
            if each not in found:
                found.add(each)
                left.extend(self.direct[each])
        return frozenset(found)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """For each result, the number of results below it. A result has fewer than any result above it."""
        return tuple([len(self.behind(number)) for number in range(len(self.direct))])

    @cached_property
    def sources(self) -> frozenset[int]:
        """The results that others are computed from."""
        return frozenset([number for numbers in self.direct for number in numbers])


def _found_below(start: Edge, numbers: dict[Edge, int]) -> tuple[int, ...]:
    """The first results on the ways down from one."""
    found: dict[int, None] = {}
    seen: set[Node] = {start[0]}
    left: list[Node] = [start[0]]
    while left:
        for edge in left.pop().next_functions:
            if edge in numbers:
                found[numbers[edge]] = None
            elif edge[0] is not None and edge[0] not in seen:
                seen.add(edge[0])
                left.append(edge[0])
    return tuple(found)


def is_met_below(results: Iterable[torch.Tensor], others: Iterable[torch.Tensor]) -> bool:
    """Whether a result is computed from a tensor that is none of them."""
    edges = {edge_of(each) for each in others if history_of(each) is not None}
    return bool(edges) and any(edge in edges for node in nodes_below(results) for edge in node.next_functions)


def groups(results: Sequence[torch.Tensor]) -> tuple[tuple[int, ...], ...]:
    """Numbers of results whose graphs have to be walked together, in the order of their graphs.

    They have a node in common that a backward frees; or a leaf to which both add in such an order that the
    sums of their parts would be rounded in another way.
    """
    owner: dict[Node, int] = {}
    joined = _Joined(len(results))
    for number, result in enumerate(results):
        for node in nodes_below([result]):
            if not hasattr(node, "variable"):
                joined.join(number, owner.setdefault(node, number))
    order = sorted(range(len(results)), key=lambda number: node_age(history_of(results[number])))
    for adding in _additions(owner).values():
        numbers = [joined.root(number) for _, number in sorted(adding, key=lambda pair: -pair[0])]
        if not _adds_up_in_parts(numbers, [joined.root(number) for number in order]):
            for number in numbers:
                joined.join(number, numbers[0])
    found: dict[int, list[int]] = {}
    for number in order:
        found.setdefault(joined.root(number), []).append(number)
    return tuple([tuple(sorted(numbers)) for numbers in found.values()])


class _Joined:
    """Disjoint sets of numbers."""

    def __init__(self, count: int) -> None:
        self._above = list(range(count))

    def root(self, number: int) -> int:
        """The representative of a number's set."""
        while self._above[number] != number:
            number = self._above[number]
        return number

    def join(self, one: int, other: int) -> None:
        """Join two, and all that each was joined with."""
        self._above[self.root(one)] = self.root(other)


def _additions(owner: dict[Node, int]) -> dict[Node, list[tuple[int, int]]]:
    """For each leaf what adds to it: the age of the node, and the result that the node is below of."""
    found: dict[Node, list[tuple[int, int]]] = {}
    for node, number in owner.items():
        for following, _ in node.next_functions:
            if following is not None and hasattr(following, "variable"):
                found.setdefault(following, []).append((node_age(node), number))
    return found


def _adds_up_in_parts(numbers: list[int], order: list[int]) -> bool:
    """Whether a sum of parts is rounded as that of all: only the part that comes first may be a sum itself.

    Args:
        numbers: Of which part what is added is, in eager's order: the youngest node is first.
        order: The parts of the results, those of younger ones last; they are walked from the last on.
    """
    parts = list(dict.fromkeys(numbers))
    if len(parts) == 1:
        return True
    walked = [part for part in dict.fromkeys(reversed(order)) if part in parts]
    first = numbers.count(parts[0])
    return (
        walked == parts
        and numbers[:first].count(parts[0]) == first
        and len(numbers) - first == len(parts) - 1
    )


class SeenNode:
    """A result that was handed out and that others are computed from: does somebody look at its gradient?"""

    def __init__(self, result: torch.Tensor) -> None:
        self._result = weakref.ref(result)
        self._hooks = watch_hooks(result)

    @property
    def is_watched(self) -> bool:
        """Whether it has hooks, or retains its gradient."""
        result = self._result()
        return bool(self._hooks) or (result is not None and result.retains_grad)


class ResultGroup(NamedTuple):
    """Results that a backward frees together.

    Attributes:
        targets: Numbers of the targets that get gradients from them.
        keeps: Their graph saved tensors; without any it may be walked again and again, as in eager.
    """

    results: tuple[int, ...]
    targets: tuple[int, ...]
    keeps: bool


class Probe:
    """A dummy leaf in the graph of results that are computed from others."""

    def __init__(self) -> None:
        with torch.inference_mode(False), torch.enable_grad():
            self.tensor = torch.empty(0, device="cpu", requires_grad=True)
            self._node = get_gradient_edge(self.tensor).node

    def asked_for_some(self) -> bool:
        """Whether the backward that runs was asked for certain gradients only."""
        return asks_for_some(self._node)


class Parted:
    """What went past results that are looked at, until the walk comes to the rest of them.

    Attributes:
        probe: Tells what the engine was asked for.
        seen: Results that others are computed from, by number.
    """

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.seen: dict[int, SeenNode] = {}
        self._task = -1
        self._past: list[torch.Tensor | None] = []

    def put(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Keep gradients of targets, for this backward."""
        task = current_pass()
        known = self._past if task == self._task else [None] * len(gradients)
        self._past = list(map(added, known, gradients))
        self._task = task

    def take(self) -> list[torch.Tensor | None]:
        """What was kept in this backward; nothing if there is none."""
        found = self._past if self._task == current_pass() else []
        self._past = []
        return found


def added(one: torch.Tensor | None, other: torch.Tensor | None) -> torch.Tensor | None:
    """The sum of two gradients, of which there may be one or none."""
    if one is None or other is None:
        return other if one is None else one
    return one + other
