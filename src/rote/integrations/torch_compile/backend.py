"""The backend ``rote`` of ``torch.compile``: kernels by Inductor or ATen, recorded and replayed by rote.

Dynamo turns frames into graphs and guards them. A graph is compiled as it would be without rote, forward and
backward, and the result is graphed like any callable: its first calls are observed, then one is recorded. So
held results stay, addresses are checked, inputs may be written, shapes may change, and what cannot be
captured runs as it is compiled and says why. ``backend.explain()`` has the reports.

Compiled code is one operation a region (:mod:`rote.runtime.operators.compiled`): rote reads no kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from ...enclosed import unfold
from ...runtime.pytorch import leave_runtime_alone
from .inputs import SizesOfInputs, inputs_of
from .kernels import KernelPlan
from .listing import Listing, of_list
from .torch_private import annotation_of, compile_number
from .wishes import Wishes

SKIPPED = "skip_dynamic_graphs=True keeps code for sizes that change out of graphs"


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
            mode: As for Inductor; what it says of CUDA graphs is left out.
            options: Options of :func:`rote.graph`, ``kernels`` (``"inductor"`` or ``"aten"``),
                ``max_parameter_sets``, ``skip_dynamic_graphs``, and Inductor's.

        Returns:
            The graphed callable.

        Raises:
            OptionError: A mode or an option is unknown, or has an impossible value.
        """
        wishes = Wishes.of(mode, options).noted(annotation_of(graph))
        leave_runtime_alone()
        name, sources = f"torch.compile [{compile_number()}]", inputs_of(graph)
        unfold(graph)
        sizes = SizesOfInputs.of(graph, sources)
        around_backward = around_static = None
        if sizes.change and wishes.skip_dynamic_graphs:
            around_static = partial(self._around_static, wishes, name)
            wishes = wishes.kept(SKIPPED)
        elif not (wishes.recording.forward or wishes.kept_out):
            around_backward = partial(self._around_backward, wishes, name)
        plan = KernelPlan(
            wishes.kernels, wishes.patches, wishes.recording.operators(), around_backward, around_static
        )
        return self._graph(plan.compiled(graph, inputs), name, wishes, sources, sizes)

    def _around_backward(self, wishes: Wishes, name: str, made: Callable[..., Any]) -> Callable[..., Any]:
        """Graph a compiled backward, whose forward is not."""

        def backward(*given: Any) -> Any:
            return made([*given])

        return of_list(self._graph(backward, f"{name}, backward", wishes.of_backward()))

    def _around_static(
        self, wishes: Wishes, name: str, made: Callable[..., Any], is_backward: bool
    ) -> Callable[..., Any]:
        """Graph the part of compiled code in which no size changes."""

        def static(*given: Any) -> Any:
            return made(*given)

        if is_backward:
            return self._graph(static, f"{name}, static part of the backward", wishes.of_backward())
        return self._graph(static, f"{name}, static part", wishes)

    def reset(self) -> None:
        """Free everything that was recorded; ``torch._dynamo.reset()`` calls this."""
        super().reset()
        self._alive.clear()


backend = TorchCompileBackend()
"""The entry point ``rote`` of the group ``torch_dynamo_backends``."""
