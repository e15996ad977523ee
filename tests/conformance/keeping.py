"""A wrapper for programs that run plainly and graphed: it keeps the graphed callable for its report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rote


class KeptGraph:
    """Graphs what it is called with; nothing is measured."""

    def __init__(self) -> None:
        self.graphed: rote.Graphed[..., Any]

    def __call__(self, function: Callable[..., Any]) -> rote.Graphed[..., Any]:
        self.graphed = rote.graph(function, keep=True)
        return self.graphed
