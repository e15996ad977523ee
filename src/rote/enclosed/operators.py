"""Operators for calls of graphed callables, which PyTorch's compiler holds, orders and differentiates.

Where a graph of Dynamo's runs as it is, its call goes to the graphed callable, with autograd around it. Where
PyTorch traces the graph further it meets an operator, ``call``; with gradients a differentiable function of
two: ``keep`` in the forward, ``walk`` in the backward. Python runs them when compiled code comes to them.

Compiled code runs without autograd. So ``keep`` keeps the autograd graph of the result, for ``walk``, and
returns copies: compiled code may use the memory of results and of what it has made itself again, while that
graph needs it. What is kept is known by a number in a tensor (a *ticket*), which PyTorch saves for the
backward like any other. The memory of the ticket holds what is kept, which ends when PyTorch lets go of that
memory.

The operators are defined when the first call is traced: importing rote defines nothing.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from ..base import EnvironmentError_, MisuseError
from ..runtime.pytorch import DispatchMode, above_dispatch, dispatch_modes
from .call import EnclosedCall, laid_out

MARK = "__rote_enclosed__"
"""The attribute of a function in a graph that leads to the call which it stands for."""
_NAMESPACE = "rote_enclosed"
_CALL = "call(str name, Tensor[] tensors, SymInt[] sizes) -> Tensor[]"
_KEEP = (
    "keep(str name, Tensor[] tensors, SymInt[] sizes, int[] differentiable)"
    " -> (Tensor[] results, Tensor ticket)"
)
_WALK = (
    "walk(str name, Tensor ticket, Tensor[] grads, int[] results, int[] operands, SymInt[] looks) -> Tensor[]"
)
_CALLS: dict[str, EnclosedCall] = {}
"""The calls in compiled code, by name; each as long as its graphed callable is there."""
_NUMBERS = itertools.count()
_KEPT = weakref.WeakValueDictionary[int, "Ticket"]()
"""The forwards that wait for a backward."""


def function_of(call: EnclosedCall) -> Callable[..., Any]:
    """The function that stands for a call in a graph of Dynamo's."""
    operators()

    def enclosed(*operands: Any) -> tuple[torch.Tensor, ...]:
        if all(isinstance(mode, DispatchMode) for mode in dispatch_modes()):  # nobody traces the graph
            return tuple(call.run(operands))
        tensors, sizes = operands[: call.tensors], operands[call.tensors :]
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return _Differentiable.apply(call, sizes, *tensors)
        return tuple(operators().call(call.name, [*tensors], [*sizes]))

    setattr(enclosed, MARK, call)
    _CALLS[call.name] = call
    graphed = call.graphed()
    if graphed is not None:
        weakref.finalize(graphed, _CALLS.pop, call.name, None).atexit = False
    return enclosed


class Ticket(bytearray):
    """The memory of a ticket. It holds the autograd graph of one forward.

    Attributes:
        operands: What it was called with, by number.
    """

    results: Sequence[torch.Tensor]
    operands: Sequence[torch.Tensor]

    @classmethod
    def make(cls, results: Sequence[torch.Tensor], operands: Sequence[torch.Tensor]) -> torch.Tensor:
        """The ticket for a forward, as a tensor."""
        number = next(_NUMBERS)
        memory = cls(number.to_bytes(8, "little"))
        memory.results, memory.operands = results, operands
        _KEPT[number] = memory
        return torch.frombuffer(memory, dtype=torch.int64)


def try_on_fakes(call: EnclosedCall, fakes: Sequence[Any]) -> None:
    """Have PyTorch find out what a call returns, as it will when it traces the graph further.

    Raises:
        Exception: It cannot.
    """
    operators().call(call.name, [*fakes[: call.tensors]], [*fakes[call.tensors :]])


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: EnclosedCall, sizes: Sequence[Any], *tensors: torch.Tensor) -> Any:
        differentiable = [n for n, needs in enumerate(ctx.needs_input_grad[2:]) if needs]
        results, ticket = operators().keep(call.name, [*tensors], [*sizes], differentiable)
        ctx.save_for_backward(ticket)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(
            *(each for each, look in zip(results, call.looks, strict=True) if not look.needs_grad)
        )
        ctx.call, ctx.tensors, ctx.differentiable = call, len(tensors), frozenset(differentiable)
        ctx.looks = {n: (*tensors[n].shape, *tensors[n].stride()) for n in differentiable}
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        call: EnclosedCall = ctx.call
        (ticket,) = ctx.saved_tensors
        results = [n for n, grad in enumerate(grads) if grad is not None and call.looks[n].needs_grad]
        reached = frozenset[int]().union(*(call.reached[n] for n in results))
        operands = sorted(reached & ctx.differentiable)
        given: list[Any] = [None] * ctx.tensors
        if operands:
            looks = [number for n in operands for number in ctx.looks[n]]
            walked = operators().walk(
                call.name, ticket, [grads[n] for n in results], results, operands, looks
            )
            for n, grad in zip(operands, walked, strict=True):
                given[n] = grad
        return None, None, *given


def _call(name: str, tensors: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
    call, _, results = _ran(name, tensors, sizes)
    return [look.lay_out(each.detach()) for each, look in zip(results, call.looks, strict=True)]


def _keep(
    name: str, tensors: Sequence[torch.Tensor], sizes: Sequence[int], differentiable: Sequence[int]
) -> tuple[list[torch.Tensor], torch.Tensor]:
    call, given, results = _ran(name, tensors, sizes, differentiable)
    for place, each, look in zip(call.places, results, call.looks, strict=True):
        if each.requires_grad != look.needs_grad:
            raise MisuseError(
                f"compiled code calls {call.called}, and requires_grad of tensor {place} of its result was "
                f"{look.needs_grad} when that code was compiled and is {each.requires_grad}. "
                "Compile it again by torch._dynamo.reset(), or call the callable outside of compiled code"
            )
    copies = [look.lay_out(each.detach().clone()) for each, look in zip(results, call.looks, strict=True)]
    return copies, Ticket.make(results, given)


def _ran(
    name: str, tensors: Sequence[torch.Tensor], sizes: Sequence[int], differentiable: Sequence[int] = ()
) -> tuple[EnclosedCall, list[torch.Tensor], list[torch.Tensor]]:
    """A call by its name, the tensors that it was given, and its results."""
    call = _found(name)
    given = [_given(call, n, tensors, differentiable) for n in range(len(tensors))]
    with above_dispatch():
        return call, given, call.run([*given, *sizes])


def _given(
    call: EnclosedCall, number: int, tensors: Sequence[torch.Tensor], differentiable: Sequence[int]
) -> torch.Tensor:
    """What the callable gets for an operand: the tensor itself, if that is what PyTorch has traced.

    It is a copy where the autograd graph needs it and compiled code writes over it. Compiled code leaves out
    copies that the program makes; that must not make one object of two.
    """
    tensor, needs = tensors[number], call.inputs[number].needs_grad
    if differentiable and (number in call.made or number in differentiable) and not tensor.requires_grad:
        return tensor.detach().clone().requires_grad_(needs)
    if tensor.requires_grad != needs or any(tensor is other for other in tensors[:number]):
        return tensor.detach().requires_grad_(needs)
    return tensor


def _call_fake(name: str, tensors: Sequence[torch.Tensor], sizes: Sequence[Any]) -> list[torch.Tensor]:
    with above_dispatch():
        return [each.detach() for each in _found(name).body(*tensors, *sizes)]


def _keep_fake(
    name: str, tensors: Sequence[torch.Tensor], sizes: Sequence[Any], differentiable: Sequence[int]
) -> tuple[list[torch.Tensor], torch.Tensor]:
    return _call_fake(name, tensors, sizes), torch.empty(1, dtype=torch.int64, device="cpu")


def _walk(
    name: str,
    ticket: torch.Tensor,
    grads: Sequence[torch.Tensor],
    results: Sequence[int],
    operands: Sequence[int],
    looks: Sequence[int],
) -> list[torch.Tensor]:
    number = int(ticket.item())
    kept = _KEPT.get(number)
    if kept is None:
        raise EnvironmentError_(
            "the forward of a graphed callable in compiled code is gone before its backward: what was saved "
            "for the backward was copied (saved-tensor hooks do that); call it outside of compiled code"
        )
    asked = [kept.operands[n] for n in operands]
    lost = [n for n, tensor in zip(operands, asked, strict=True) if not tensor.requires_grad]
    found: Sequence[torch.Tensor] = []
    if not lost:
        walked: Any = torch.autograd.grad(
            [kept.results[n] for n in results], asked, [*grads], retain_graph=True, allow_unused=True
        )
        lost, found = [n for n, grad in zip(operands, walked, strict=True) if grad is None], walked
    if lost:
        raise MisuseError(
            f"compiled code calls a graphed callable, and no gradient comes to its operand {lost[0]}, to "
            "which one came when that code was compiled; call it outside of compiled code"
        )
    return [
        laid_out(grad, strides)
        for grad, (_, strides) in zip(found, _taken_apart([each.dim() for each in asked], looks), strict=True)
    ]


def _walk_fake(
    name: str,
    ticket: torch.Tensor,
    grads: Sequence[torch.Tensor],
    results: Sequence[int],
    operands: Sequence[int],
    looks: Sequence[Any],
) -> list[torch.Tensor]:
    inputs = [_found(name).inputs[n] for n in operands]
    return [
        torch.empty_strided(shape, strides, dtype=each.dtype, device=each.device)
        for each, (shape, strides) in zip(
            inputs, _taken_apart([len(each.shape) for each in inputs], looks), strict=True
        )
    ]


def _taken_apart(dimensions: Sequence[int], looks: Sequence[Any]) -> list[tuple[list[Any], list[Any]]]:
    """Shapes and strides of tensors, which an operator gets as one row of numbers."""
    rest = iter(looks)
    return [([next(rest) for _ in range(n)], [next(rest) for _ in range(n)]) for n in dimensions]


def _found(name: str) -> EnclosedCall:
    call = _CALLS.get(name)
    if call is None:
        raise MisuseError("compiled code calls a graphed callable that no longer exists")
    return call


@dataclass(frozen=True)
class Operators:
    """The operators; they are defined as long as this lives.

    Attributes:
        call: The call, where no gradients are recorded.
        keep: The call, with its autograd graph kept for a ticket.
        library: Keeps them defined.
    """

    call: Any
    keep: Any
    walk: Any
    library: torch.library.Library


@cache
def operators() -> Operators:
    """The operators, defined at the first call."""
    library = torch.library.Library(_NAMESPACE, "DEF")
    tags = [torch.Tag.cudagraph_unsafe, torch.Tag.nondeterministic_seeded, torch.Tag.needs_exact_strides]
    for schema, real, fake in (
        (_CALL, _call, _call_fake),
        (_KEEP, _keep, _keep_fake),
        (_WALK, _walk, _walk_fake),
    ):
        name = schema.partition("(")[0]
        library.define(schema, tags=tags)
        library.impl(name, real, "CompositeExplicitAutograd")
        library.impl(name, torch.library.fallthrough_kernel, "Autograd")
        torch.library.register_fake(f"{_NAMESPACE}::{name}", fake, lib=library)
    namespace = getattr(torch.ops, _NAMESPACE)
    return Operators(namespace.call.default, namespace.keep.default, namespace.walk.default, library)
