"""How the graph of a frame becomes a callable: with Inductor's kernels, or with those that eager runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as autograd_config
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch.compiler import config

from ...enclosed import unfold
from .torch_private import replayable

Compiled = Callable[..., Any]


def compiled(
    graph: torch.fx.GraphModule, inputs: Sequence[Any], kernels: str, patches: Mapping[str, Any]
) -> Compiled:
    """Compile a graph.

    A recorded backward is walked many times over the memory of one forward. PyTorch refuses that where a
    compiled backward may write to what was saved for it (donated buffers), so it is compiled not to. What
    comes out of the caches was compiled so as well: entries have a tag of their own.

    Args:
        graph: What Dynamo made of a frame.
        inputs: Examples of its inputs.
        kernels: ``"inductor"`` or ``"aten"``.
        patches: Settings of Inductor.
    """
    compiler: Any = config  # its settings are put in when it is loaded
    tagged = compiler.patch(cache_key_tag=f"{compiler.cache_key_tag}+rote")
    unfold(graph)
    with autograd_config.patch(donated_buffer=False), tagged:
        if kernels == "aten":
            return _aten(graph, inputs)
        return cast("Compiled", compile_fx(graph, inputs, replayable(compile_fx_inner), dict(patches)))


def _aten(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    made = aot_autograd(
        fw_compiler=replayable(_as_it_is),
        bw_compiler=_as_it_is,
        inference_compiler=replayable(_as_it_is),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    return made(graph, inputs)


def _as_it_is(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
    return make_boxed_func(graph.forward)
