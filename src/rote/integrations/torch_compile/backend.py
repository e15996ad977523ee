"""The backend ``rote`` of ``torch.compile``: kernels by Inductor or ATen, recorded and replayed by rote.

Dynamo turns frames into graphs and guards them. A graph is compiled as it would be without rote, forward and
backward, and the result is graphed like any callable: its first calls are observed, then one is recorded. So
held results stay, addresses are checked, inputs may be written, shapes may change, and what cannot be
captured runs as it is compiled and says why. ``backend.explain()`` has the reports.

Compiled code is one operation a region (:mod:`rote.runtime.operators.compiled`): rote reads no kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...api import CompiledFrom, Graphed
from ...runtime.pytorch import leave_runtime_alone
from .inputs import inputs_of
from .kernels import compiled
from .listing import Listing
from .torch_private import compile_number
from .wishes import Wishes


class TorchCompileBackend(Listing):
    """What PyTorch calls with each graph. There is one, :data:`backend`: PyTorch knows backends by name."""

    __name__ = "rote"

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
            options: Options of :func:`rote.graph`, ``kernels`` (``"inductor"`` or ``"aten"``),
                ``max_parameter_sets``, and Inductor's.

        Returns:
            The graphed callable.

        Raises:
            OptionError: A mode or an option is unknown, or has an impossible value.
        """
        wishes = Wishes.of(mode, options)
        leave_runtime_alone()
        number, sources = compile_number(), inputs_of(graph)
        function = compiled(graph, inputs, wishes.kernels, wishes.patches)
        function.__qualname__ = f"torch.compile [{number}]"
        graphed = Graphed(
            function,
            wishes.recording,
            compiled=CompiledFrom(wishes.kernels, sources, wishes.max_parameter_sets),
        )
        self._alive.add(graphed)
        return graphed

    def reset(self) -> None:
        """Free everything that was recorded; ``torch._dynamo.reset()`` calls this."""
        super().reset()
        self._alive.clear()


backend = TorchCompileBackend()
"""The entry point ``rote`` of the group ``torch_dynamo_backends``."""
