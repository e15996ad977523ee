"""Operators over Python functions (``torch.cond``, ``while_loop``), run as Python's branches and loops.

Their functions run as in plain Python, so that the operations in them, and the values that the host reads to
choose between them, belong to the call. Nothing is recorded of a call with any other such operator.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch

from ...base import MisuseError
from ..pytorch import REPLACEMENTS, runs_operator


def _cond(pred: Any, true: Callable[..., Any], false: Callable[..., Any], operands: Any) -> Any:
    return true(*operands) if pred else false(*operands)


def _while_loop(going_on: Callable[..., Any], body: Callable[..., Any], carried: Any, additional: Any) -> Any:
    if not going_on(*carried, *additional):
        return tuple([each.clone() if isinstance(each, torch.Tensor) else each for each in carried])
    carried = body(*carried, *additional)
    while going_on(*carried, *additional):
        carried = body(*carried, *additional)
    return carried


_PLAIN: dict[str, Callable[..., Any]] = {"cond": _cond, "while_loop": _while_loop}
_OPERANDS = 4
"""How many both have in torch 2.11 and 2.13."""


def _hides_tensors(args: tuple[Any, ...]) -> bool:
    """Whether functions are among the operands: they may reach tensors that are no operands."""
    return any([callable(each) and not isinstance(each, (type, torch.Tensor)) for each in args])


@contextmanager
def as_python(meet: Callable[[str], None]) -> Generator[None]:
    """A context in which operators over Python functions run in Python, on this thread.

    They are met above autograd. Outside of a trace PyTorch compiles most of them, and finds the tensors with
    gradients that their functions reach. In a trace it does not look for these.

    Args:
        meet: Called with the name of each other operator.

    Raises:
        MisuseError: Another operator may have gradients.
    """
    thread = get_ident()

    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if get_ident() != thread:
            return original(self, *args, **kwargs)
        plain = _PLAIN.get(self.name())
        if plain is not None and len(args) == _OPERANDS and not kwargs:
            return plain(*args)
        if torch.is_grad_enabled() and _hides_tensors(args) and runs_operator(sys._getframe(1).f_code):
            raise MisuseError(
                f"{self.name()} takes Python functions and cannot be called in a graphed callable where "
                "gradients are enabled. Write the branch or the loop in Python, call it under no_grad, "
                "or call it outside."
            )
        meet(self.name())
        return original(self, *args, **kwargs)

    with REPLACEMENTS.replaced(torch._ops.HigherOrderOperator, "__call__", call) as original:
        yield
