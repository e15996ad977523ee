"""Operators that libraries bring in C++: whether a graph holds all that they do is tried.

A kernel that is launched without saying on which stream runs on the legacy one. Under a capture in relaxed
mode it runs there and then, no error is raised, and the graph has everything but this kernel. Operators of
PyTorch do not do that. Those of libraries may, and so may code that keeps something on the host from one run
to the next. So such an operator is captured once by itself, with other values than it is to be run with. Then
the graph is launched with its operands' values, and has to give what a plain call gives.

Whole numbers are zero while it is captured, which is right for indices. An operator that cannot be captured
runs between segments. Nothing is recorded of a call with one that gives something else: between segments, its
kernels would not wait for those before them either. The same is true of one that cannot be tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..pytorch import REPLACEMENTS, stop_routing, unseen_functions
from .torch_private import schema_of


class GraphTrial(Enum):
    """What a trial has shown: a graph REPEATS the operator, REFUSES to hold it, or gives what DIFFERS.

    An operator is UNTRIED that gives nothing, or whose operands a trial cannot have for itself.
    """

    REPEATS = "repeats"
    REFUSES = "refuses"
    DIFFERS = "differs"
    UNTRIED = "untried"


MOST_BYTES = 1 << 30
"""Operands of more than this are not copied for a trial."""
_COPIED = (
    torch.Tensor, int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout,
    torch.memory_format,
)  # fmt: skip
"""Types of operands of which a trial has its own, or that nobody can change: objects of C++ are none."""
_SEED = 0
_NEAR = 1e-2
"""How far a sum may be off whose order is another each time."""

_Key = tuple[Any, ...]


class TriedOperators:
    """What trials have shown, by operator, kinds of tensors and other operands."""

    def __init__(self) -> None:
        self._known: dict[_Key, GraphTrial] = {}

    def find(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> GraphTrial | None:
        """What is known of an operator, an overload, with such operands; None before a trial."""
        return self._known.get(_key(func, args, kwargs))

    def attempt(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> GraphTrial:
        """Try it, while nothing is being captured."""
        tensors = _tensors((args, kwargs))
        gpus = {each.device for each in tensors if each.device.type == "cuda"}
        if not gpus:
            return GraphTrial.REFUSES
        if len(gpus) > 1 or not _may_run(func, args, kwargs, tensors):
            return GraphTrial.UNTRIED
        found = self._known[_key(func, args, kwargs)] = _try(func, args, kwargs, gpus.pop())
        return found


TRIED = TriedOperators()
"""Operators are the process's."""


def _key(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> _Key:
    """Flags and numbers lead to other kernels, as types do; of objects a trial has none."""
    return func, *map(_kind, pytree.tree_leaves((args, kwargs)))


def _kind(operand: Any) -> tuple[Any, ...]:
    if isinstance(operand, torch.Tensor):
        return operand.dtype, operand.dim(), operand.device
    return type(operand), operand if isinstance(operand, _COPIED) else None


def _may_run(func: Any, args: Sequence[Any], kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> bool:
    """Whether it may run a few times more: it gives something, and is given nothing that it could change."""
    schema = schema_of(func)
    if not schema.returns and not schema.is_mutable:
        return False
    known = all([isinstance(each, _COPIED) for each in pytree.tree_leaves((args, kwargs))])
    return known and sum([each.numel() * each.itemsize for each in tensors]) <= MOST_BYTES


def _try(func: Any, args: Sequence[Any], kwargs: dict[str, Any], device: torch.device) -> GraphTrial:
    with REPLACEMENTS.withdrawn(), unseen_functions(), torch.no_grad():
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        try:
            with torch.random.fork_rng([device.index]), torch.cuda.stream(stream):
                return GraphTrial.REPEATS if _gives_the_same(func, args, kwargs) else GraphTrial.DIFFERS
        except Exception:  # whatever the operator, the driver or the allocator says
            return GraphTrial.REFUSES
        finally:
            torch.cuda.synchronize(device)


def _gives_the_same(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    wanted_in = _copies(args, kwargs)
    torch.cuda.manual_seed(_SEED)  # what it draws is equal, too; the generator is set back
    wanted = func(*wanted_in[0], **wanted_in[1])
    captured_in = _copies(args, kwargs, altered=True)
    graph, found = _captured(func, captured_in)
    for one, other in zip(_tensors(captured_in), _tensors(_copies(args, kwargs)), strict=True):
        one.copy_(other)
    torch.cuda.manual_seed(_SEED)
    graph.replay()
    torch.cuda.synchronize()
    pairs = list(zip(_tensors((found, captured_in)), _tensors((wanted, wanted_in)), strict=True))
    if all([_are_close(one, other) for one, other in pairs]):
        return True
    again_in = _copies(args, kwargs)
    torch.cuda.manual_seed(_SEED)
    again = _tensors((func(*again_in[0], **again_in[1]), again_in))
    varies = not all([_are_close(one, other) for one, (_, other) in zip(again, pairs, strict=True)])
    return varies and all([_are_close(one, other, _NEAR) for one, other in pairs])


def _captured(func: Any, operands: Any) -> tuple[torch.cuda.CUDAGraph, Any]:
    """An operator in a graph, and its results there. PyTorch is in disorder where a capture has failed."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    graph.capture_begin(capture_error_mode="relaxed")
    has_ended = False
    try:
        try:
            found = func(*operands[0], **operands[1])
        finally:
            graph.capture_end()
            has_ended = True
    except Exception:
        if not has_ended:
            _recover(graph)
        raise
    torch.cuda.synchronize()
    return graph, found


def _recover(graph: torch.cuda.CUDAGraph) -> None:
    """Restore what a capture that could not be ended leaves behind; see ``docs/design.md``."""
    stop_routing(torch.cuda.current_device(), graph.pool())
    good = torch.cuda.CUDAGraph()  # generators believe that they are captured, until one ends well
    good.capture_begin(capture_error_mode="relaxed")
    torch.ones(1, device="cuda")
    good.capture_end()
    good.reset()


def _tensors(values: Any) -> list[torch.Tensor]:
    return [each for each in pytree.tree_leaves(values) if isinstance(each, torch.Tensor)]


def _copies(args: Sequence[Any], kwargs: dict[str, Any], *, altered: bool = False) -> Any:
    """The operands with tensors of their own; ``altered``: of other values."""

    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        made = value.detach().clone()
        if not altered:
            return made
        if made.is_floating_point() or made.is_complex():
            return made.copy_(made.flip([*range(made.dim())]).mul_(0.75).add_(0.125))
        return made.zero_()

    return pytree.tree_map(copy, (tuple(args), kwargs))


def _are_close(one: torch.Tensor, other: torch.Tensor, tolerance: float = 0.0) -> bool:
    same = one.shape == other.shape
    return same and bool(torch.isclose(one, other, tolerance, tolerance, equal_nan=True).all())
