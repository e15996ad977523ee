"""A call with the runtime's notes: what it changes outside of itself, and the code that it runs.

A recording is made from the same notes (:mod:`..runtime.reads`): a check finds the state that matters to one,
and the line that writes it. What PyTorch and the standard library keep for themselves is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ..base import ENVIRONMENT, identity
from ..runtime.objects import is_user, is_users
from ..runtime.reads import WATCH
from ..runtime.reads.trace import SlotChange
from ..runtime.state import ExecutedCode


class TracedCalls:
    """Traces calls of one callable.

    Attributes:
        changes: What the last call changed outside of itself.
        outside: Identities of the objects that it found there, or left there.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.changes: list[SlotChange] = []
        self.outside: set[int] = set()
        self._function = function
        self._executed = ExecutedCode()

    @property
    def codes(self) -> list[CodeType]:
        """The code outside of PyTorch and the standard library that calls have run."""
        return list(self._executed.globals)

    @contextmanager
    def call(self, roots: list[tuple[str, Any]]) -> Generator[None]:
        """The call runs here; ``roots`` are named objects that it is given."""
        executed = self._executed
        trace = executed.followed = WATCH.begin(
            self._function, [*roots, *executed.owners()], executed.apart()
        )
        try:
            with executed:
                yield
            self.changes = list(filter(_matters, trace.changes()))
            self.outside = {*trace.outside, *[identity(each.now) for each in self.changes]}
        finally:
            executed.followed = None
            executed.note_apart(WATCH.end(trace).late)


def _matters(change: SlotChange) -> bool:
    """Whether a change is one of the user's state or of the environment, not of what a library keeps."""
    held = (*change.owners, change.container)
    return any(each is ENVIRONMENT for each in held) or all(map(_is_users, held))


def _is_users(holder: Any) -> bool:
    """Whether something is no function, class, module or namespace of a module, or one of the user's."""
    if isinstance(holder, dict) and isinstance(holder.get("__name__"), str) and "__spec__" in holder:
        return is_user(holder["__name__"])
    return is_users(holder) if isinstance(holder, (FunctionType, ModuleType, type)) else True
