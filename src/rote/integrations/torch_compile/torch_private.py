"""What the backend needs of PyTorch's compiler that has no public name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch._dynamo import trace_rules
from torch._guards import CompileContext, TracingContext

from ... import runtime


def leave_runtime_alone() -> None:
    """Dynamo compiles no frame of rote's runtime from now on, as it compiles none of PyTorch's own.

    Between the frames of a callable with graph breaks autograd calls the runtime, and Dynamo looks at each
    frame that runs there. Seen in torch 2.11 and 2.13.
    """
    if not trace_rules.check_file(runtime.__file__).skipped:
        trace_rules.add(runtime.__name__)


def replayable(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """A compiler whose code can be replayed: what PyTorch's wrapper does around it is the same in each call.

    - Of a forward compiled without donated buffers it says that it has none. PyTorch leaves that open, and
      refuses a second walk back through a forward of which it is open.
    - Results get no hint which of their sizes are dynamic. The hint is an attribute, made anew in each call.
      With it the frame behind a graph break is compiled dynamic at once, without it after the first new size.

    Seen in torch 2.11 and 2.13; elsewhere nothing is changed.
    """

    @wraps(compiler)
    def compile_one(graph: Any, inputs: Any, **options: Any) -> Any:
        metadata: Any = getattr(TracingContext.try_get(), "fw_metadata", None)
        if getattr(metadata, "bw_donated_idxs", ()) is None:
            metadata.bw_donated_idxs = []
        if getattr(metadata, "dynamic_outputs", False):
            metadata.dynamic_outputs = False
        if getattr(metadata, "dynamic_saved_tensors_idxs", None):
            metadata.dynamic_saved_tensors_idxs = {}
        return compiler(graph, inputs, **options)

    return compile_one


@dataclass(frozen=True)
class InputNode:
    """An input of a graph of Dynamo's.

    Attributes:
        source: Where the program has it, in Dynamo's notation; empty if Dynamo does not say.
        of_wrapped: The root of the source is the module that is compiled. PyTorch wraps modules of its own
            (``Sequential``) in a function, which calls them ``fn``.
        static: It is a parameter or a buffer, or was marked by ``mark_static_address``.
        stacks: The stacks of what uses it, in order.
    """

    source: str
    of_wrapped: bool
    static: bool
    stacks: tuple[str | None, ...]


def input_nodes(graph: torch.fx.GraphModule) -> list[InputNode]:
    """The inputs of a graph of Dynamo's. Seen in torch 2.11 and 2.13; elsewhere less is known of them."""
    return [_input_node(node) for node in graph.graph.nodes if node.op == "placeholder"]


def _input_node(node: torch.fx.Node) -> InputNode:
    source: Any = getattr(node.meta.get("grapharg"), "source", None)
    name: Any = getattr(source, "name", "")
    root = source
    while getattr(root, "base", None) is not None:
        root = root.base
    return InputNode(
        source=str(name() if callable(name) else name),
        of_wrapped=getattr(root, "local_name", "") == "fn"
        and getattr(root, "is_derefed_cell_contents", False),
        static="_dynamo_static_input_type" in node.meta.get("tensor_dict", {}),
        stacks=tuple(user.meta.get("stack_trace") for user in node.users),
    )


def compile_number() -> str:
    """The number of the compilation in progress, as PyTorch's logs write it. Seen in torch 2.11 and 2.13."""
    number = CompileContext.current_compile_id()
    return "?" if number is None else str(number)
