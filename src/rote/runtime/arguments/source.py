"""Source text of a function that is made for one purpose, with the objects it mentions."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from types import CodeType
from typing import Any

NOT_MINE: Any = object()
"""What a generated function returns for a call that is not the one it was made for."""


class Source:
    """Collects lines and constants, and compiles them once; the name shows in tracebacks and profiles."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lines: list[str] = []
        self._depth = 1
        self._names: dict[int, str] = {}
        self._namespace: dict[str, Any] = {"NOT_MINE": NOT_MINE}

    def constant(self, value: Any) -> str:
        """The name under which the function finds an object."""
        known = self._names.get(id(value))
        if known is None:
            known = self._names[id(value)] = f"c{len(self._names)}"
            self._namespace[known] = value  # keeps it alive, so that its identity stays its own
        return known

    def call(self, function: Callable[[], Any]) -> str:
        """The text of a call; of a prepared one its inner call, which is quicker."""
        if isinstance(function, partial) and not function.keywords:
            arguments = [self.constant(each) for each in function.args]
            return f"{self.constant(function.func)}({', '.join(arguments)})"
        return f"{self.constant(function)}()"

    def line(self, text: str) -> None:
        """Add a line."""
        self._lines.append("    " * self._depth + text)

    def refuse(self, condition: str) -> None:
        """The call is not the function's if a condition holds."""
        self.line(f"if {condition}: return NOT_MINE")

    def indent(self, by: int = 1) -> None:
        """Begin a block, or end one with -1."""
        self._depth += by

    @property
    def text(self) -> str:
        """The source so far."""
        return "\n".join([f"def {self._name}(args, kwargs):", *self._lines]) + "\n"

    def compile(self) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
        """The function, of positional and keyword arguments."""
        exec(_code(self.text, self._name), self._namespace)
        return self._namespace.pop(self._name)


@lru_cache(maxsize=256)
def _code(text: str, name: str) -> CodeType:
    """Recordings that are alike in everything but their objects share the code."""
    place = Path(__file__).with_name(f"<{name}>")  # a frame of it is one of ours
    return compile(text, str(place), "exec")
