"""What Dynamo traces where a compiled function calls a graphed callable.

Dynamo traces the plain callable, as it would without rote. So all that the callable reads of Python state is
under Dynamo's guards, and what it reads of tensors are inputs of the graph that Dynamo makes. Then the traced
operations are cut out of the graph, and one call takes their place (:mod:`.call`). When the compiled code
runs, that call goes through the graphed callable: it is observed, recorded, replayed.

The operations that were cut out are its definition: from them PyTorch learns what the results look like
(:mod:`.body`). They never run.

A call stands in the graph if that cannot be told from the plain callable: Dynamo traces all of it, it writes
nothing but memory of its own, and nothing that the compiled function does before is put off behind it. Else
the graph breaks at the call, and the graphed callable runs between two graphs, in a frame that Dynamo leaves
alone.

What does not work:

- **``torch._dynamo.leaf_function`` and ``allow_in_graph``.** They trace nothing, so nothing is under guard.
  The first keeps one autograd graph for each compilation: of two forwards before a backward, one has wrong
  gradients.
- **An operator whose fake result is the callable's, run on fake tensors.** Parameters behind a closure are no
  inputs then, and get no gradients.
- **Leaving the traced operations for PyTorch to remove.** The backend ``eager`` removes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from .call import tensors_of
from .torch_private import Tracing

_torch: Any = torch  # its compiler is imported when a traced function asks for it


def enclose(
    graphed: Any,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    owner: Any = None,
) -> Any:
    """Call a graphed callable in a function that Dynamo traces; this function is traced, too.

    Args:
        owner: The instance, where the callable is a method of its class.
    """
    _torch._dynamo.comptime.comptime(_begin)
    given = tree_flatten((args, kwargs))
    try:
        result = function(*args, **kwargs) if owner is None else function(owner, *args, **kwargs)
    except BaseException:
        _torch._dynamo.comptime.comptime(_raised)
        raise
    _replace(graphed, owner, *given, tensors_of(result), *tree_flatten((args, kwargs)), result)
    return result


def _replace(
    graphed: Any,
    owner: Any,
    operands: list[Any],
    structure: Any,
    results: list[torch.Tensor],
    operands_after: list[Any],
    structure_after: Any,
    result: Any,
) -> None:
    """Put a call in the place of what Dynamo has traced; the variables are read by their names."""
    _torch._dynamo.comptime.comptime(_finish)


def leave_alone() -> None:
    """Have Dynamo run rote's own frames as they are, unless it traces them from a caller's frame."""
    _torch._dynamo.comptime.comptime(_leave_alone)


def _leave_alone(context: Any) -> None:
    Tracing.of(context).leave_frames_alone()


def _begin(context: Any) -> None:
    Tracing.of(context).begin()


def _raised(context: Any) -> None:
    Tracing.of(context).refuse("it raises")


def _finish(context: Any) -> None:
    Tracing.of(context).finish()
