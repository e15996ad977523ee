"""The attributes of openpi's objects by which rote enters it. Some are private; each is looked for first."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn

from ...api import Graphed
from ...base import MisuseError

SEEN = "openpi at commit 15a9616 (2026-06-16)"
"""The newest version that was read; the attributes are the same since PyTorch models came (2025-08-28)."""

_ABSENT: Any = object()


class Hook(NamedTuple):
    """One attribute.

    Attributes:
        name: The attribute.
        what: What it holds, for a message.
        kind: Its class; ``object`` for anything that can be called.
    """

    name: str
    what: str
    kind: type = object

    def of(self, owner: Any, caller: str) -> Any:
        """The value of the attribute.

        Args:
            owner: An object of openpi's.
            caller: The function that asks.

        Raises:
            MisuseError: The attribute is not there, or holds something else.
        """
        found = getattr(owner, self.name, _ABSENT)
        fits = isinstance(found, self.kind) if self.kind is not object else callable(found)
        if found is not _ABSENT and fits:
            return found
        problem = "no such attribute" if found is _ABSENT else f"a {type(found).__name__}"
        raise MisuseError(
            f"{caller} needs {type(owner).__name__}.{self.name}, {self.what} in {SEEN}, and finds {problem}; "
            f"{_remedy(owner)}"
        )

    def plain(self, owner: Any, caller: str) -> Any:
        """The same of a callable that is not graphed yet.

        Raises:
            MisuseError: As above, or it is graphed.
        """
        found = self.of(owner, caller)
        if graphed_in(found) is not None:
            name = f"{type(owner).__name__}.{self.name}"
            raise MisuseError(f"{caller}: {name} is graphed already; leave the second call out")
        return found


def graphed_in(value: Any) -> Graphed | None:
    """The graphed callable that a hook holds, or that lies in what it holds; None if there is none."""
    if isinstance(value, Graphed):
        return value
    found = getattr(value, "graphed", None)
    return found if isinstance(found, Graphed) else None


_WRAPPERS = {"_policy": "PolicyRecorder", "module": "DistributedDataParallel"}
"""Attributes by which a wrapper of openpi's own, or of its training script, is known."""


def _remedy(owner: Any) -> str:
    for name, wrapper in _WRAPPERS.items():
        if hasattr(owner, name):
            return f"pass what the {wrapper} wraps, its {name}"
    method = "sample_actions" if isinstance(owner, nn.Module) else "_sample_actions"
    return (
        "pass what create_trained_policy returns, or a PI0Pytorch; with another version of openpi, graph the "
        f"method itself: rote.graph(....{method})"
    )
