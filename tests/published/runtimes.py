"""What the layers run under. On the host there are no CUDA graphs, and what takes long is left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import rote
from rote.integrations.torch_compile import backend


class Runtime:
    """A way to run a callable, here as it is.

    Attributes:
        exact: Results have to be those of eager to the bit.
    """

    exact = True

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def replays(self) -> int:
        """How many graphs were replayed so far."""
        return 0


class Compiled(Runtime):
    """``torch.compile``; with Dynamo and AOTAutograd alone on the host."""

    exact = False

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(function, backend="inductor" if self.device.type == "cuda" else "aot_eager")


class ReduceOverhead(Runtime):
    """``torch.compile(mode="reduce-overhead")``, which has graphs on a GPU only."""

    exact = False

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._count = 0
        kind: Any = torch.cuda.CUDAGraph
        plain = kind.replay

        def replay(graph: Any) -> None:
            self._count += 1
            plain(graph)

        kind.replay = replay  # each cell has a process of its own

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(function, mode="reduce-overhead")

    def replays(self) -> int:
        return self._count


class BackendRote(Runtime):
    """``torch.compile(backend="rote")``; with the kernels of eager on the host."""

    exact = False

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        kernels = "inductor" if self.device.type == "cuda" else "aten"
        return torch.compile(function, backend=backend, options={"kernels": kernels})

    def replays(self) -> int:
        return sum(each.report().replayed for each in backend.graphed())


class Graph(Runtime):
    """``rote.graph``."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.graphed: list[rote.Graphed] = []

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self.graphed.append(rote.graph(function))
        return self.graphed[-1]

    def replays(self) -> int:
        return sum(each.report().replayed for each in self.graphed)


RUNTIMES: dict[str, type[Runtime]] = {
    "eager": Runtime,
    "torch.compile": Compiled,
    "reduce-overhead": ReduceOverhead,
    "backend rote": BackendRote,
    "rote.graph": Graph,
}
NEEDS_GPU = ("reduce-overhead",)
