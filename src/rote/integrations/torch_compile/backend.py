"""The backend ``rote`` of ``torch.compile``: kernels by Inductor or ATen, recorded and replayed by rote.

Dynamo turns frames into graphs and guards them. A graph is compiled as it would be without rote, forward and
backward, and the result is graphed like any callable: its first calls are observed, then one is recorded. So
held results stay, addresses are checked, inputs may be written, shapes may change, and what cannot be
captured runs as it is compiled and says why. ``backend.explain()`` has the reports.

Compiled code is one operation a region (:mod:`rote.runtime.operators.compiled`): rote reads no kernels.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...api import Graphed
from ...runtime.pytorch import leave_runtime_alone
from .kernels import compiled
from .torch_private import compile_number
from .wishes import Wishes


class TorchCompileBackend:
    """What PyTorch calls with each graph. There is one, :data:`backend`: PyTorch knows backends by name."""

    __name__ = "rote"

    def __init__(self) -> None:
        self._graphed = weakref.WeakSet[Graphed]()

    def __call__(
        self,
        graph: torch.fx.GraphModule,
        inputs: Sequence[Any],
        *,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Callable[..., Any]:
        """Compile a graph and record it in its first calls.

        Args:
            graph: What Dynamo made of a frame.
            inputs: Examples of its inputs.
            mode: As for Inductor; what it says of CUDA graphs is left out.
            options: Options of :func:`rote.graph`, ``kernels`` (``"inductor"`` or ``"aten"``), and
                Inductor's.

        Returns:
            The graphed callable.

        Raises:
            OptionError: A mode or an option is unknown, or has an impossible value.
        """
        wishes = Wishes.of(mode, options)
        leave_runtime_alone()
        number = compile_number()
        function = compiled(graph, inputs, wishes.kernels, wishes.patches)
        function.__qualname__ = f"torch.compile [{number}]"
        graphed = Graphed(function, wishes.recording, closed=True)
        self._graphed.add(graphed)
        return graphed

    def graphed(self) -> list[Graphed]:
        """The compiled graphs that are alive, each with ``report()``, ``explain()`` and ``reset()``."""
        return sorted(self._graphed, key=lambda each: each.__qualname__)

    def explain(self) -> str:
        """The reports of all compiled graphs that are alive, as text."""
        return "\n".join(each.explain() for each in self.graphed())

    def reset(self) -> None:
        """Free everything that was recorded; ``torch._dynamo.reset()`` calls this."""
        for each in self.graphed():
            each.reset()
        self._graphed.clear()


backend = TorchCompileBackend()
"""The entry point ``rote`` of the group ``torch_dynamo_backends``."""
