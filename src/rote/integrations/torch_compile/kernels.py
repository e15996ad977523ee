"""How the graph of a frame becomes a callable: with Inductor's kernels, or with those that eager runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as autograd_config
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch.compiler import config

from ...runtime.operators import REGIONS
from .parts import PartedGraph
from .torch_private import boxed, replayable

Compiled = Callable[..., Any]


@dataclass(frozen=True)
class KernelPlan:
    """How a graph is compiled.

    Attributes:
        kernels: ``"inductor"`` or ``"aten"``.
        patches: Settings of Inductor.
        split: Names of operators that no graph may hold.
        around_backward: Makes of compiled code for a backward, which takes a list, what is called instead.
        around_static: The same of what does not depend on sizes that change, if that is to be a part of its
            own; the second argument says whether it is a backward's.
    """

    kernels: str
    patches: Mapping[str, Any] = field(default_factory=dict[str, Any])
    split: Collection[str] = ()
    around_backward: Callable[[Compiled], Compiled] | None = None
    around_static: Callable[[Compiled, bool], Compiled] | None = None

    def compiled(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        """Compile a graph.

        A recorded backward is walked many times over the memory of one forward. PyTorch refuses that where a
        compiled backward may write to what was saved for it (donated buffers), so it is compiled not to. What
        comes out of the caches was compiled so as well: entries have a tag of their own.

        The cache of whole graphs gives compiled code without saying what is in it, and keeps none that is
        wrapped. So it is left out where either matters.
        """
        compiler: Any = config  # its settings are put in when it is loaded
        tagged = compiler.patch(cache_key_tag=f"{compiler.cache_key_tag}+rote")
        changes: dict[str, Any] = {"donated_buffer": False}
        if not self._is_usual():
            changes["enable_autograd_cache"] = False
        with autograd_config.patch(changes), tagged:
            if self.kernels == "aten":
                return self._aten(graph, inputs)
            inner = self._around(self._marked(replayable(compile_fx_inner)))
            return cast("Compiled", compile_fx(graph, inputs, inner, dict(self.patches)))

    def _is_usual(self) -> bool:
        return self.around_backward is None and not self.split

    def _aten(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        forward = replayable(partial(self._as_it_is, is_backward=False))
        made = aot_autograd(
            fw_compiler=forward,
            bw_compiler=self._around(partial(self._as_it_is, is_backward=True), is_backward=True),
            inference_compiler=forward,
            partition_fn=min_cut_rematerialization_partition,
            keep_inference_input_mutations=True,
        )
        return made(graph, inputs)

    def _around(self, compiler: Compiled, *, is_backward: bool = False) -> Compiled:
        """A compiler that puts something around the backwards that it compiles."""
        around = self.around_backward
        if around is None:
            return compiler

        def compile_one(graph: Any, inputs: Any, **options: Any) -> Any:
            made = compiler(graph, inputs, **options)
            return around(made) if is_backward or options.get("is_backward") else made

        return compile_one

    def _marked(self, compiler: Compiled) -> Compiled:
        """A compiler that notes of which operators compiled code is made, if there are any to look for."""
        if not self.split:
            return compiler

        def compile_one(graph: Any, inputs: Any, **options: Any) -> Any:
            made = compiler(graph, inputs, **options)
            called = [node.target for node in graph.graph.nodes if node.op == "call_function"]
            REGIONS.note_operators(made, [op for op in called if isinstance(op, torch._ops.OpOverload)])
            return made

        return compile_one

    def _as_it_is(self, graph: torch.fx.GraphModule, inputs: Sequence[Any], *, is_backward: bool) -> Compiled:
        around = self.around_static
        parts = PartedGraph.of(graph) if around is not None else None
        if around is None or parts is None:
            return make_boxed_func(graph.forward)
        return boxed(parts.joined(around(parts.static.forward, is_backward)))
