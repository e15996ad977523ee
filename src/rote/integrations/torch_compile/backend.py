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
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from ...api import Graphed, Options, of_first_tensor
from ...runtime.pytorch import leave_runtime_alone
from .kernels import KernelPlan
from .sizes import SizesOfInputs
from .torch_private import annotation_of, boxed, compile_number
from .wishes import Wishes

SKIPPED = "skip_dynamic_graphs=True keeps code for sizes that change out of graphs"


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
            options: Options of :func:`rote.graph`, ``kernels`` (``"inductor"`` or ``"aten"``),
                ``skip_dynamic_graphs``, and Inductor's.

        Returns:
            The graphed callable.

        Raises:
            OptionError: A mode or an option is unknown, or has an impossible value.
        """
        wishes = Wishes.of(mode, options).noted(annotation_of(graph))
        leave_runtime_alone()
        number = compile_number()
        name, recording, sizes = f"torch.compile [{number}]", wishes.recording, SizesOfInputs.of(graph)
        around_backward = around_static = None
        if not (recording.forward or wishes.kept_out):
            around_backward = partial(self._around_backward, wishes, f"{name}, backward")
        if sizes.change and wishes.skip_dynamic_graphs:
            wishes = wishes.kept(SKIPPED)
            around_static, around_backward = partial(self._around_static, recording, name), None
        plan = KernelPlan(
            wishes.kernels, wishes.patches, recording.operators(), around_backward, around_static
        )
        return self._graph(plan.compiled(graph, inputs), name, recording, sizes, wishes.kept_out)

    def _graph(
        self,
        function: Callable[..., Any],
        name: str,
        recording: Options,
        sizes: SizesOfInputs | None = None,
        kept_out: str | None = None,
    ) -> Graphed:
        """Graph compiled code."""
        function.__qualname__ = name
        sizes_of = sizes or of_first_tensor
        graphed = Graphed(function, recording, closed=True, sizes_of=sizes_of, keeps_all=kept_out)
        self._graphed.add(graphed)
        return graphed

    def _around_backward(self, wishes: Wishes, name: str, made: Callable[..., Any]) -> Callable[..., Any]:
        """Graph a compiled backward, whose forward is not."""

        def backward(*given: Any) -> Any:
            return made([*given])

        graphed = self._graph(backward, name, replace(wishes.recording, forward=True, capture_sizes=None))

        def call(given: list[Any]) -> Any:
            values = tuple(given)
            given.clear()  # as compiled code does, so that what is needed no more is freed
            return graphed(*values)

        return boxed(call)

    def _around_static(
        self, recording: Options, name: str, made: Callable[..., Any], is_backward: bool
    ) -> Callable[..., Any]:
        """Graph the part of compiled code in which no size changes."""
        if not (recording.backward if is_backward else recording.forward):
            return made

        def static(*given: Any) -> Any:
            return made(*given)

        part = f"{name}, static part of the backward" if is_backward else f"{name}, static part"
        return self._graph(static, part, replace(recording, forward=True, capture_sizes=None))

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
