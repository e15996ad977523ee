"""What the backend needs of PyTorch's compiler that has no public name."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch._guards import CompileContext, TracingContext


def replayable(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """A compiler whose forward can be walked back through more than once.

    Of a forward compiled without donated buffers it says that it has none. PyTorch leaves that open, and
    refuses a second walk back through a forward of which it is open.

    Seen in torch 2.11 and 2.13; elsewhere nothing is changed.
    """

    @wraps(compiler)
    def compile_one(graph: Any, inputs: Any, **options: Any) -> Any:
        metadata: Any = getattr(TracingContext.try_get(), "fw_metadata", None)
        if getattr(metadata, "bw_donated_idxs", ()) is None:
            metadata.bw_donated_idxs = []
        return compiler(graph, inputs, **options)

    return compile_one


def annotation_of(graph: torch.fx.GraphModule) -> tuple[bool | None, bool | None]:
    """What ``torch._dynamo.override_cudagraphs`` says of forward and backward of a graph; None: nothing.

    Seen in torch 2.13; earlier versions have no such thing.
    """
    found: Any = graph.meta.get("cudagraph_annotation")
    return getattr(found, "fwd", None), getattr(found, "bwd", None)


def is_static_input(node: torch.fx.Node) -> bool:
    """Whether an input of a graph is a parameter or a buffer. Seen in torch 2.11 and 2.13."""
    said: Any = node.meta.get("tensor_dict") or {}
    return bool(said.get("_dynamo_static_input_type"))


def boxed(call: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Mark a function that takes its inputs in a list, as PyTorch asks for. Seen in torch 2.11 and 2.13."""
    made: Any = call
    made._boxed_call = True
    return call


def compile_number() -> str:
    """The number of the compilation in progress, as PyTorch's logs write it. Seen in torch 2.11 and 2.13."""
    number = CompileContext.current_compile_id()
    return "?" if number is None else str(number)
