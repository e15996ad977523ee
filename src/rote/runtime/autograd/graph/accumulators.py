"""Parameters of a recorded call stand for themselves: the recorded graph ends in leaves of its own.

``docs/design.md`` says how and why. The aliases stand for their parameters once more while a backward runs
code of a ``torch.autograd.Function``: that may ask for gradients of parameters which it saved (adjoint
methods do), and those are leaves of the recorded graph.

Parameters with hooks are left alone, since hooks belong to the tensor that is set aside, and so are those
whose gradient is of another dtype or shape than they are, which no alias takes. Hooks on the node
(the reducer of ``DistributedDataParallel`` has some) stay where they are: gradients come there from the one
node of a replay, past the recorded graph. A backward inside of the call would not come to them, so in
distributed training such a call is recorded on its parameters themselves.

What does not work: ``torch.autograd.grad`` with respect to a parameter, over a graph that another thread made
just then, which ends in the alias; what ``backward`` over such a graph adds there goes on to the parameter.
"""

from __future__ import annotations

import weakref
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch

from ...program import swap_tensors
from ...pytorch import unseen_functions


class ParameterAliases:
    """The aliases of one recording; extending it takes the same ones again."""

    def __init__(self) -> None:
        self._aliases: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}
        self._hooks: dict[int, Any] = {}
        self._originals: dict[int, weakref.ref[torch.Tensor]] = {}

    def original(self, leaf: torch.Tensor) -> torch.Tensor:
        """The parameter that a leaf of the recorded graph stands for; the leaf itself if for none."""
        reference = self._originals.get(id(leaf))
        found = reference() if reference is not None else None
        return found if found is not None else leaf

    @contextmanager
    def placed(self, parameters: Iterable[torch.Tensor]) -> Generator[None]:
        """Run a recorded call that reads these tensors; only leaves that require grad matter."""
        with ExitStack() as stack:
            for parameter in parameters:
                if can_stand_in(parameter):
                    stack.enter_context(self._placed(parameter))
            yield

    @contextmanager
    def placed_again(self, parameters: Iterable[torch.Tensor]) -> Generator[None]:
        """Run Python code of a recorded graph's backward, which may go by the nodes that the graph ends in.

        Tensors that no leaf of the graph stands for stay what they are.
        """
        with ExitStack() as stack:
            for parameter in parameters:
                known = self._aliases.get(id(parameter))
                if known is not None and known[0]() is parameter:
                    stack.enter_context(_swapped(parameter, known[1]))
            yield

    @contextmanager
    def _placed(self, parameter: torch.Tensor) -> Generator[None]:
        alias, before = self._alias(parameter), parameter.grad
        if not swap_tensors(parameter, alias):
            yield
            return
        parameter.grad = before
        try:
            yield
        finally:
            swap_tensors(parameter, alias)
            _carry(alias, parameter, before)
            alias.grad = None
            if alias.requires_grad:
                hook = partial(_forward, weakref.ref(parameter))
                self._hooks[id(alias)] = alias.register_post_accumulate_grad_hook(hook)

    def _alias(self, parameter: torch.Tensor) -> torch.Tensor:
        known = self._aliases.get(id(parameter))
        if known is not None and known[0]() is parameter and _fits(known[1], parameter):
            hook = self._hooks.pop(id(known[1]), None)
            if hook is not None:
                hook.remove()
            return known[1]
        with torch.inference_mode(False):
            alias = parameter.detach().requires_grad_()
        reference = weakref.ref(parameter)
        self._aliases[id(parameter)] = reference, alias
        self._originals[id(alias)] = reference
        return alias


def can_stand_in(tensor: torch.Tensor) -> bool:
    """Whether an alias can stand for a leaf: hooks would run on each part of the gradient, or not at all."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and tensor.is_leaf
        and tensor.requires_grad
        and not tensor._backward_hooks
        and not getattr(tensor, "_post_accumulate_grad_hooks", None)
        and _takes_gradient(tensor)
    )


def _takes_gradient(tensor: torch.Tensor) -> bool:
    """Whether the gradient of a tensor, now and when it gets one, is like itself."""
    gradient, dtype = tensor.grad, tensor.dtype
    alike = gradient is None or (gradient.dtype is dtype and gradient.shape == tensor.shape)
    return alike and getattr(tensor, "grad_dtype", dtype) is dtype


def _fits(alias: torch.Tensor, parameter: torch.Tensor) -> bool:
    return alias.requires_grad and alias.data_ptr() == parameter.data_ptr() and alias.shape == parameter.shape


@contextmanager
def _swapped(parameter: torch.Tensor, alias: torch.Tensor) -> Generator[None]:
    """Put the alias in place of the parameter; a trace does not see the swap."""
    with unseen_functions():
        before = parameter.grad
        placed = _takes_gradient(parameter) and _fits(alias, parameter) and swap_tensors(parameter, alias)
        if placed:
            parameter.grad = before
    try:
        yield
    finally:
        if placed:
            with unseen_functions():
                swap_tensors(parameter, alias)
                _carry(alias, parameter, before)
                alias.grad = None


def _carry(alias: torch.Tensor, parameter: torch.Tensor, gradient: torch.Tensor | None) -> None:
    """Do to a parameter what the call did to it while the alias stood for it; its gradient was this one."""
    if alias.grad is not gradient:
        parameter.grad = alias.grad
    if alias.untyped_storage()._cdata != parameter.untyped_storage()._cdata or alias.shape != parameter.shape:
        parameter.data = alias.data
    if alias.requires_grad != parameter.requires_grad:
        parameter.requires_grad_(alias.requires_grad)


def _forward(reference: weakref.ref[torch.Tensor], alias: torch.Tensor) -> None:
    """Move a gradient from the alias to its parameter."""
    parameter, gradient, alias.grad = reference(), alias.grad, None
    if parameter is None or gradient is None:
        return
    if parameter.grad is None:
        parameter.grad = gradient
    else:
        parameter.grad.add_(gradient)
