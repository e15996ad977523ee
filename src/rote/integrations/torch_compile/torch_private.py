"""What the backend needs of PyTorch's compiler that has no public name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch._guards import CompileContext, TracingContext
from torch._inductor import config, cudagraph_utils
from torch._inductor import utils as inductor_utils
from torch.utils._ordered_set import OrderedSet


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


def boxed(call: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Mark a function that takes its inputs in a list, as PyTorch asks for. Seen in torch 2.11 and 2.13."""
    made: Any = call
    made._boxed_call = True
    return call


@dataclass(frozen=True)
class InputNode:
    """An input of a graph of Dynamo's.

    Attributes:
        source: Where the program has it, in Dynamo's notation; empty if Dynamo does not say.
        of_wrapped: The root of the source is the module that is compiled. PyTorch wraps modules of its own
            (``Sequential``) in a function, which calls them ``fn``.
        stays: It is a parameter or a buffer, or was marked by ``mark_static_address``.
        stacks: The stacks of what uses it, in order.
    """

    source: str
    of_wrapped: bool
    stays: bool
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
        stays="_dynamo_static_input_type" in node.meta.get("tensor_dict", {}),
        stacks=tuple(user.meta.get("stack_trace") for user in node.users),
    )


PolicyBase: Any = getattr(cudagraph_utils, "CUDAGraphPolicy", object)
"""What Inductor asks how compiled code becomes CUDA graphs. Seen in torch 2.13; torch 2.11 has none."""


def has_policies() -> bool:
    """Whether Inductor has the setting ``cudagraph_policy``. Seen in torch 2.13; torch 2.11 has not."""
    return hasattr(config, "cudagraph_policy")


def skips_backward(graph: Any) -> bool:
    """Whether Inductor itself has a reason against graphs of a compiled backward, told as it tells it.

    It would ask its own runtime of graphs about the forward then, which a policy has kept from being made.
    Seen in torch 2.13.
    """
    reasons = getattr(getattr(graph, "cudagraph_info", None), "cudagraph_fail_reasons", None)
    if not reasons or not graph.fx_kwargs.get("is_backward"):
        return False
    said: Any = cudagraph_utils.log_cudagraph_skip_and_bump_counter
    said(f"skipping cudagraphs due to {reasons}")
    return True


@dataclass(frozen=True)
class HandedPart:
    """What Inductor says of code that it hands over to be graphed.

    Attributes:
        names: What it calls the inputs.
        stacks: The stack of each: of what makes it or uses it first.
        static: The numbers of those that lie where they lay, as parameters do.
        written: The numbers of those that it may write.
        constants: Tensors that the code uses and that are no inputs.
    """

    names: tuple[str, ...]
    stacks: tuple[str | None, ...]
    static: frozenset[int]
    written: frozenset[int]
    constants: tuple[torch.Tensor, ...]


def whole_part(
    static: Iterable[int],
    *,
    placeholders: Iterable[Any] = (),
    mutated_input_idxs: Iterable[int] = (),
    constants: Iterable[torch.Tensor] = (),
    **more: Any,
) -> HandedPart:
    """The code of a whole graph, by what Inductor passes to a policy. Seen in torch 2.13."""
    del more
    given, stack_of = tuple(placeholders), cudagraph_utils.get_placeholder_stack_trace
    return HandedPart(
        tuple(str(each.name) for each in given),
        tuple(stack_of(each) for each in given),
        frozenset(static),
        frozenset(mutated_input_idxs),
        tuple(constants),
    )


def parts_of(graph: Any, static: Iterable[int], more: Mapping[str, Any]) -> list[HandedPart]:
    """The parts of a compiled graph that a CUDA graph can hold; what lies between them runs as it is.

    What a part takes from another one, or from between, it may write: its memory may be used again for a
    result, and an operation may write it in place. Inductor says that of inputs of the whole graph alone.
    Seen in torch 2.13.

    Args:
        graph: A ``CompiledFxGraph`` that Inductor has partitioned.
        static: The numbers of its inputs that lie where they lay.
        more: What Inductor passes to a policy.
    """
    utils: Any = cudagraph_utils
    written = OrderedSet(more["mutated_input_idxs"])
    tensors = [name for name, value in (graph.constants or {}).items() if isinstance(value, torch.Tensor)]
    constants = dict(zip([*tensors, *graph.frozen_param_names], more["constants"], strict=False))
    known = utils.CudagraphMetadata(
        more["placeholders"], OrderedSet(static), written, more["stack_traces"], constants
    )
    found = [utils.get_partition_cudagraph_metadata(each, known) for each in graph.partition_maps]
    return [
        whole_part(
            each.static_input_idxs,
            placeholders=each.placeholders,
            mutated_input_idxs=[*each.mutated_input_idxs, *_from_between(partition.input_index_mapping)],
            constants=each.constants.values(),
        )
        for partition, each in zip(graph.partition_maps, found, strict=True)
    ]


def _from_between(mapping: Iterable[int | None]) -> list[int]:
    """The inputs of a part that are none of the whole graph."""
    return [number for number, given in enumerate(mapping) if given is None]


def aligned(function: Callable[[list[Any]], Any], written: frozenset[int]) -> Callable[[list[Any]], Any]:
    """Compiled code that takes inputs at any address. Inductor leaves that to who graphs its code.

    Seen in torch 2.13.
    """
    utils: Any = inductor_utils

    def run(inputs: list[Any]) -> Any:
        tensors = [number for number, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
        given, copies = utils.copy_misaligned_inputs(inputs, tensors, OrderedSet(written))
        results = function(inputs)
        for tensor, copy in zip(given, copies, strict=True):
            tensor.copy_(copy)
        return results

    return run


def compile_number() -> str:
    """The number of the compilation in progress, as PyTorch's logs write it. Seen in torch 2.11 and 2.13."""
    number = CompileContext.current_compile_id()
    return "?" if number is None else str(number)
