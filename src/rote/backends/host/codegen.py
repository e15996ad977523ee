"""From statements to one Python function per segment, with everything bound.

A generated function, one line per call, beats a loop over (function, operands) pairs by a third: there are
no tuples to unpack and no indices to look up. ``fx.GraphModule`` does not: it fetches each tensor by
attribute and is slower than the loop. Tensors and functions are the function's globals, which CPython finds
by index once the function has run a few times; numbers, strings and tuples of numbers are written out. As
default values they would be a nanosecond nearer at each use, and compiling the function, which is the longest
part of finishing a recording, would take twice as long.

The function runs below autograd and version counting, as a CUDA replay does: it builds no graph, and
``tensor._version`` counts only what the user writes. Inference mode and grad mode are as they were at
capture, and are switched only where they change.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch

from .compat import below_tracking, grad_setter, inference_guard
from .lowering import Statement, Store


class Source:
    """The text of a function under construction, and the objects its names stand for."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._bound: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._inference: bool | None = None
        self._grad: bool | None = None
        self._below = self._name(below_tracking())
        self._in_inference = self._name(inference_guard())
        self._set_grad = self._name(grad_setter())

    def add(self, statement: Statement, *, grad: bool, inference: bool) -> None:
        """Append one statement, and before it whatever switches to the modes it was captured under."""
        if inference is not self._inference:
            self._lines.append(f" with {self._in_inference}({inference}), {self._below}():")
            self._inference, self._grad = inference, None
        if grad is not self._grad:
            self._lines.append(f"  {self._set_grad}({grad})")
            self._grad = grad
        self._add_statement(statement)

    def compile(self, name: str) -> Callable[[], None]:
        """The finished function.

        Args:
            name: Shown as the file name in tracebacks.
        """
        namespace = dict(self._bound)
        text = "def replay():\n" + "\n".join(self._lines or [" pass"])
        exec(compile(text, f"<{name}>", "exec"), namespace)
        # Out of its own globals, where it would be a cycle and live on.
        return cast("Callable[[], None]", namespace.pop("replay"))

    def _add_statement(self, statement: Statement) -> None:
        operands = [self._operand(each) for each in statement.args]
        operands += [f"{key}={self._operand(each)}" for key, each in statement.kwargs.items()]
        call = f"{self._name(statement.call)}({', '.join(operands)})"
        if not statement.stores:
            self._lines.append(f"  {call}")
        elif len(statement.stores) == 1:
            self._lines.append(f"  {self._store(statement.stores[0], call)}")
        else:
            self._lines.append(f"  r = {call}")
            self._lines.extend(f"  {self._store(each, 'r')}" for each in statement.stores)
            self._lines.append("  del r")

    def _store(self, store: Store, result: str) -> str:
        value = result + "".join(f"[{n}]" for n in store.path)
        if store.span is not None:
            count, offset = store.span
            value = f"{self._name(torch.as_strided)}({value}, ({count},), (1,), {offset})"
        return f"{self._name(store.target.copy_)}({value})"

    def _operand(self, value: Any) -> str:
        if value is None or type(value) in (bool, int, str):
            return repr(value)
        if isinstance(value, float):
            return repr(value) if math.isfinite(value) else self._name(value)
        if isinstance(value, list):
            items = cast("list[Any]", value)
            if all(type(each) is int or type(each) is bool for each in items):
                return repr(tuple(items))
        return self._name(value)

    def _name(self, value: Any) -> str:
        # The object stays bound, so its id cannot be given to another one.
        found = self._names.get(id(value))
        if found is None:
            found = self._names[id(value)] = f"v{len(self._bound)}"
            self._bound[found] = value
        return found
