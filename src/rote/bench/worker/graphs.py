"""CUDA graphs as users write them: captured by hand, and made by ``torch.cuda.make_graphed_callables``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...runtime.arguments import Spec, flatten, leaves_of, unflatten
from ...runtime.program import copy_all

WARMUP_CALLS = 3
"""As in PyTorch's documentation of whole-network capture."""


class Taking:
    """Takes the tensors out of arguments that have the form of the first call's, in a fixed order."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.leaves: list[Any] = []
        self.spec: Spec = flatten((args, kwargs), self.leaves)
        self.tensors = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, Tensor)]
        self.only_positional = not kwargs and all(isinstance(value, Tensor) for value in args)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        """The tensors of another call."""
        if self.only_positional:
            return list(args)
        leaves = leaves_of((args, kwargs))
        return [leaves[i] for i in self.tensors]

    def copies(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        """Leaves of autograd with the values of a call's tensors."""
        tensors = self(args, kwargs)
        return [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in tensors]

    def put(self, tensors: list[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments with these tensors, and everything else as in the first call."""
        leaves = list(self.leaves)
        for i, tensor in zip(self.tensors, tensors, strict=True):
            leaves[i] = tensor
        return unflatten(self.spec, iter(leaves))


class HandWritten:
    """``torch.cuda.graph`` around the callable, as an expert writes it.

    The first calls warm up on a side stream, with the arguments in static tensors. They are real calls, so a
    target that trains loses no step. The next one is captured and replayed. Later ones copy their arguments
    in, replay, and return clones. An argument that a warm-up call wrote is copied back.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._calls = 0
        self._side = torch.cuda.Stream()
        self._graph = torch.cuda.CUDAGraph()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One call: a warm-up, the capture, or a replay."""
        self._calls += 1
        if self._calls == 1:
            self._prepare(args, kwargs)
        given = self._take(args, kwargs)
        self._copy(self._static, given)
        if self._calls <= WARMUP_CALLS:
            value = self._warm_up()
        else:
            if self._calls == WARMUP_CALLS + 1:
                self._capture()
            self._graph.replay()
            value = unflatten(self._out_spec, iter([out() for out in self._out]))
        if self._written:
            self._copy([given[i] for i in self._written], [self._static[i] for i in self._written])
        return value

    def _prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._take = Taking(args, kwargs)
        self._static = self._take.copies(args, kwargs)
        self._needs_no_grad = any(tensor.requires_grad for tensor in self._static)
        self._written: list[int] = []
        self._args, self._kwargs = self._take.put(self._static)

    def _copy(self, targets: list[Tensor], sources: list[Tensor]) -> None:
        if self._needs_no_grad:
            with torch.no_grad():
                copy_all(targets, sources)
        else:
            copy_all(targets, sources)

    def _warm_up(self) -> Any:
        before = [tensor._version for tensor in self._static]
        current = torch.cuda.current_stream()
        self._side.wait_stream(current)
        with torch.cuda.stream(self._side):
            value = self._function(*self._args, **self._kwargs)
        current.wait_stream(self._side)
        after = [tensor._version for tensor in self._static]
        self._written = [i for i, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]]
        return value

    def _capture(self) -> None:
        with torch.cuda.graph(self._graph, stream=self._side):
            value = self._function(*self._args, **self._kwargs)
        leaves: list[Any] = []
        self._out_spec = flatten(value, leaves)
        self._out: list[Callable[[], Any]] = [_returned(leaf) for leaf in leaves]


def _returned(leaf: Any) -> Callable[[], Any]:
    """Gives each caller a result of its own, out of autograd: a replay makes no graph of it."""
    return leaf.detach().clone if isinstance(leaf, Tensor) else lambda: leaf


class MadeGraphed:
    """``torch.cuda.make_graphed_callables``, called in the first call with copies of its arguments.

    It takes positional tensors only. Where the target takes anything else, a function of its tensors alone is
    graphed, with the rest fixed. Results lie in static memory that the next call overwrites.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._graphed: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One call."""
        if self._graphed is None:
            self._graphed = self._make(args, kwargs)
        return self._graphed(*(args if self._take.only_positional else self._take(args, kwargs)))

    def _make(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        self._take = Taking(args, kwargs)

        def on_tensors(*tensors: Tensor) -> Any:
            inner, named = self._take.put(list(tensors))
            return self._function(*inner, **named)

        function = self._function if self._take.only_positional else on_tensors
        return torch.cuda.make_graphed_callables(function, tuple(self._take.copies(args, kwargs)))
