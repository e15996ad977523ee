"""Operators that libraries bring in C++: whether a graph holds all that they do is tried.

A kernel that is launched without saying on which stream runs on the legacy one. Under a capture in relaxed
mode it runs there and then, no error is raised, and the graph has everything but this kernel. Operators of
PyTorch do not do that. Those of libraries may, and so may code that keeps something on the host from one run
to the next. So such an operator is captured once by itself, with other values than it is to be run with. Then
its results are overwritten, the graph is launched with its operands' values, and has to give what a plain
call gives. That is made on the default stream, where kernels on the legacy one wait for others. Values for
which a plain call gives what it gives for the others, as zeros may be, tell nothing.

Whole numbers are zero while it is captured, which is right for indices. An operator that cannot be captured
runs between segments. Nothing is recorded of a call with one that gives something else: between segments, its
kernels would not wait for those before them either. The same is true of one that cannot be tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..pytorch import REPLACEMENTS, unseen_functions
from .torch_private import schema_of


class GraphTrial(Enum):
    """What a trial has shown: a graph REPEATS the operator, REFUSES to hold it, or gives what DIFFERS.

    An operator is UNTRIED that gives nothing, whose operands a trial cannot have for itself, or whose results
    do not depend on the values of this call.
    """

    REPEATS = "repeats"
    REFUSES = "refuses"
    DIFFERS = "differs"
    UNTRIED = "untried"


@dataclass(frozen=True)
class CapturedAlone:
    """An operation in a segment of its own.

    Attributes:
        results: What it returned; they lie in the segment's memory.
        replay: Runs it again.
    """

    results: Any
    replay: Callable[[], object]


Alone = Callable[[Any, tuple[Any, ...], dict[str, Any]], AbstractContextManager[CapturedAlone]]
"""Captures an overload with its operands."""

MOST_BYTES = 1 << 30
"""Operands of more than this are not copied for a trial."""
_COPIED = (
    torch.Tensor, int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout,
    torch.memory_format,
)  # fmt: skip
"""Types of operands of which a trial has its own, or that nobody can change: objects of C++ are none."""
_SEED = 0
_POISON = 0xA5
"""The bytes of results that no launch of the graph has written."""
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

    def attempt(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], alone: Alone) -> GraphTrial:
        """Try it, while nothing is being captured; ``alone`` captures it."""
        tensors = _tensors((args, kwargs))
        gpus = {each.device for each in tensors if each.device.type == "cuda"}
        if not gpus:
            return GraphTrial.REFUSES
        if len(gpus) > 1 or not _may_run(func, args, kwargs, tensors):
            return GraphTrial.UNTRIED
        found = _try(func, args, kwargs, gpus.pop(), alone)
        if found is not GraphTrial.UNTRIED:
            self._known[_key(func, args, kwargs)] = found
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


def _try(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], device: torch.device, alone: Alone
) -> GraphTrial:
    with REPLACEMENTS.withdrawn(), unseen_functions(), torch.no_grad(), _draws_put_back(device):
        try:
            return _compare(func, args, kwargs, device, alone)
        except Exception:  # whatever the operator, the driver or the allocator says
            return GraphTrial.REFUSES
        finally:
            torch.cuda.synchronize(device)


@contextmanager
def _draws_put_back(device: torch.device) -> Generator[None]:
    """What a trial draws is not drawn by the call, nor is it the call that sets a seed."""
    generators = torch.default_generator, torch.cuda.default_generators[device.index]
    states = [generator.get_state() for generator in generators]
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


@dataclass(frozen=True)
class _Run:
    """A plain call with operands of its own: what it gave, and what has become of the operands."""

    results: list[torch.Tensor]
    operands: list[torch.Tensor]

    @classmethod
    def of(cls, func: Any, operands: Any, device: torch.device) -> _Run:
        """Run it where kernels on the legacy stream wait for others, and others for them."""
        torch.cuda.synchronize(device)
        _seed(device)
        with torch.cuda.stream(torch.cuda.default_stream(device)):
            results = _tensors(func(*operands[0], **operands[1]))
        torch.cuda.synchronize(device)
        return cls(results, _tensors(operands))

    def differs(self, other: _Run, tolerance: float = 0.0) -> bool:
        """Whether another run has given or written something else."""
        mine, theirs = (*self.results, *self.operands), (*other.results, *other.operands)
        pairs = zip(mine, theirs, strict=True)
        return not all([_are_close(one, another, tolerance) for one, another in pairs])

    def tells(self, before: Any, other: _Run) -> bool:
        """Whether a run with other operands gave or wrote something else, and this one more than zeros.

        A product with a weight of zeros says nothing of its other factor.
        """
        written = [not _are_close(*pair) for pair in zip(self.operands, _tensors(before), strict=True)]
        pairs = [*zip(self.results, other.results, strict=True)]
        pairs += itertools.compress(zip(self.operands, other.operands, strict=True), written)
        return any([not _are_close(*pair) and bool(pair[0].any()) for pair in pairs])


def _compare(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], device: torch.device, alone: Alone
) -> GraphTrial:
    wanted = _Run.of(func, _copies(args, kwargs), device)
    found = _graphed(func, args, kwargs, device, alone)
    if found.differs(wanted):
        again = _Run.of(func, _copies(args, kwargs), device)
        varies = again.differs(wanted) and not found.differs(wanted, _NEAR)
        return GraphTrial.REPEATS if varies else GraphTrial.DIFFERS
    altered = _Run.of(func, _copies(args, kwargs, altered=True), device)
    told = wanted.tells(_copies(args, kwargs), altered)
    return GraphTrial.REPEATS if told else GraphTrial.UNTRIED


def _graphed(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], device: torch.device, alone: Alone
) -> _Run:
    """What a graph gives that was captured with other values."""
    operands = _copies(args, kwargs, altered=True)
    with alone(func, *operands) as captured:
        results = _tensors(captured.results)
        for result in results:
            torch.empty(0, dtype=torch.uint8, device=device).set_(result.untyped_storage()).fill_(_POISON)
        for one, other in zip(_tensors(operands), _tensors(_copies(args, kwargs)), strict=True):
            one.copy_(other)
        torch.cuda.synchronize(device)
        _seed(device)
        captured.replay()
        torch.cuda.synchronize(device)
        return _Run([each.clone() for each in results], _tensors(operands))


def _seed(device: torch.device) -> None:
    """What an operator draws is equal, too."""
    torch.cuda.default_generators[device.index].manual_seed(_SEED)


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
