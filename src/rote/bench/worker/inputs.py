"""Arguments with fresh values for every call, the same ones in every process.

A floating-point argument ``x`` of call ``n`` is ``x + a(n) * x * u``: ``u`` is drawn once, uniformly from -1
to 1, and ``a(n)`` is at most a tenth, so a mask of zeros and infinities stays one. Other tensors (token ids,
lengths, positions) have their first values in every call, also where the callable writes them. Successive
calls get tensors in two places in turn, as in a program that makes its arguments anew.

Only plain tensors in dicts, lists, tuples and dataclasses are copied and renewed. Other objects (models,
parameters, optimizers, caches) go to every call as they are, with the state they have by then.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from ...runtime.arguments import bytes_of, flatten, paths, unflatten

PLACES = 2
SPREAD = 0.1
GOLDEN = 0.6180339887498949
"""Multiples of it, modulo 1, never repeat and are spread evenly."""


class Inputs:
    """The arguments of a target's calls; ``seed`` gives the values of later ones."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int) -> None:
        leaves: list[Any] = []
        self._spec = flatten((args, kwargs), leaves)
        kinds = {"[0]": "args", "[1]": "kwargs"}
        self._names = [kinds[name[:3]] + name[3:] for name in paths(self._spec, "")]
        self._leaves = leaves
        self._tensors = [i for i, leaf in enumerate(leaves) if type(leaf) is Tensor]
        generator = torch.Generator().manual_seed(seed)
        self._first = {i: leaves[i].detach().clone() for i in self._tensors if can_be_written(leaves[i])}
        self._change = {i: _change(first, generator) for i, first in self._first.items()}
        self._places = [self._copy() for _ in range(PLACES)]

    def fresh(self, number: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call; the same number gives the same values."""
        place = self._places[number % PLACES]
        with torch.no_grad():
            for i in self._first:
                self._write(i, number, place[i].detach())
        return unflatten(self._spec, iter(place))

    def written(self, number: int) -> dict[str, Tensor]:
        """The arguments that the last call, of that number, has changed, by name."""
        place = self._places[number % PLACES]
        found: dict[str, Tensor] = {}
        for i, first in self._first.items():
            now, expected = place[i].detach(), torch.empty_like(first)
            self._write(i, number, expected)
            if now.shape != expected.shape or bool((bytes_of(now) != bytes_of(expected)).any()):
                found[self._names[i]] = now
        return found

    def _write(self, i: int, number: int, target: Tensor) -> None:
        change = self._change[i]
        if change is None:
            target.copy_(self._first[i])
            return
        share = 2 * SPREAD * (((number + 1) * GOLDEN) % 1 - 0.5)
        torch.add(self._first[i], change, alpha=share, out=target)

    def _copy(self) -> list[Any]:
        """The leaves with copies of the tensors; copies share memory where the tensors do."""
        known: dict[int, Any] = {}
        place = list(self._leaves)
        for i in self._tensors:
            plain = copy.deepcopy(self._leaves[i].detach(), known)
            place[i] = plain.requires_grad_(self._leaves[i].requires_grad)
        return place


def can_be_written(tensor: Tensor) -> bool:
    """Whether every element has memory of its own."""
    if tensor.layout is not torch.strided or tensor.is_meta:
        return False
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return bool(tensor.numel()) and not any(size > 1 and stride == 0 for size, stride in pairs)


def _change(first: Tensor, generator: torch.Generator) -> Tensor | None:
    """What a call adds to the values, times a share; zero where a value is infinite or nearly so."""
    if not first.is_floating_point() or first.element_size() < 2:
        return None
    uniform = torch.rand(first.shape, generator=generator) * 2 - 1
    change = first * uniform.to(first.device, first.dtype)
    usable = first.abs() < torch.finfo(first.dtype).max / 4
    return torch.where(usable, change, torch.zeros_like(change))
