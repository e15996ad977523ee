"""Operators over Python functions (``torch.cond``, ``while_loop``), as the branches and loops that they are.

Their functions run as they would in plain Python, so that the operations in them, and the values that the
host reads to choose between them, are those of the call. Nothing of a call with another one is recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import get_ident
from types import FrameType
from typing import Any

import torch

from ...base import MisuseError


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


def _as_python(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any] | None:
    """What an operator over Python functions is in Python; None where that is not known."""
    if len(args) != _OPERANDS or kwargs:  # another one than in torch 2.11 and 2.13
        return None
    return _PLAIN.get(operator.name())


def _hides_tensors(args: tuple[Any, ...]) -> bool:
    """Whether there are functions among operands, which may reach tensors that are no operands."""
    return any([callable(each) and not isinstance(each, (type, torch.Tensor)) for each in args])


def _is_compiled(frame: FrameType | None) -> bool:
    """Whether a frame is inside of a function under ``torch.compile``, which runs as it was written."""
    compiler = getattr(sys.modules.get("torch._dynamo.eval_frame"), "__file__", None)
    while compiler is not None and frame is not None and frame.f_code.co_filename != compiler:
        frame = frame.f_back
    return compiler is not None and frame is not None


@contextmanager
def as_python(meet: Callable[[str], None]) -> Generator[None]:
    """A context in which operators over Python functions are what they are in Python, on this thread.

    They are met above autograd: outside of a trace PyTorch compiles most, and finds the tensors that their
    functions reach and that have gradients. Where they are called as written it does not look for these.
    An operator that no compiled function calls is called as it is in plain Python.

    Args:
        meet: Is told the name of each other operator.

    Raises:
        MisuseError: Another operator, of a compiled function, may have gradients.
    """
    operators: Any = torch._ops.HigherOrderOperator
    original, thread = operators.__call__, get_ident()

    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if get_ident() != thread:
            return original(self, *args, **kwargs)
        plain = _as_python(self, args, kwargs)
        if plain is not None:
            return plain(*args)
        if torch.is_grad_enabled() and _hides_tensors(args) and _is_compiled(sys._getframe(1)):
            raise MisuseError(
                f"{self.name()} takes Python functions and cannot be called in a graphed callable where "
                "gradients are enabled. Write the branch or the loop in Python, call it under no_grad, "
                "or call it outside."
            )
        meet(self.name())
        return original(self, *args, **kwargs)

    operators.__call__ = call
    try:
        yield
    finally:
        operators.__call__ = original
