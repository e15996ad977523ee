"""Code that Inductor compiles for CUDA graphs of PyTorch's own, recorded and replayed by rote instead.

Inductor asks a policy, if there is one, what takes the place of compiled code in its CUDA graphs
(``torch._inductor.config.cudagraph_policy``). So a program keeps ``mode="reduce-overhead"``, and gets rote's
recordings. Unlike a backend the policy sees what AOTAutograd calls: a forward and a backward apart, each
without gradients, with everything that the backward needs among the results of the forward. These results are
handed out as any others, as copies, which the backend ``rote`` does not need.

A backward may use the memory of what was saved for it for its results. That does not show in what Inductor
says of it, nor is it to be trusted in what AOTAutograd says, since code comes out of caches. So a result of a
backward that lies in the memory of an input gets memory of its own.

Where Inductor partitions its code, it hands a policy the whole: kernels on the host and what no graph may
hold lie between the partitions, past the dispatcher. So each partition is a callable of its own.

What does not work: what is static for a backward. Inductor means the results of the forward, which lie in one
place in CUDA graphs that own them. Here they lie elsewhere in each step. Nor does ``wrap_output``, which
would see whole graphs with their partitions: it is called for code that nobody wants graphed, too.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from ...base import EnvironmentError_, OptionError
from ...runtime.arguments import CompiledInput
from ...runtime.pytorch import HandedRegion, leave_runtime_alone
from .inputs import line_of
from .listing import Listing, of_list
from .torch_private import (
    HandedPart,
    PolicyBase,
    aligned,
    compile_number,
    has_policies,
    parts_of,
    skips_backward,
    whole_part,
)
from .wishes import Wishes

_log = logging.getLogger("rote")

Code = Callable[[list[Any]], Any]
"""Compiled code, which takes a list of its inputs and empties it."""


class CudagraphPolicy(Listing, PolicyBase):
    """What Inductor asks, made by :func:`cudagraph_policy`."""

    def __init__(self, wishes: Wishes) -> None:
        super().__init__()
        self._wishes = wishes
        self._offered = threading.local()

    def __deepcopy__(self, memo: Any) -> CudagraphPolicy:
        """Itself: PyTorch copies its settings, and compiles with one or the other."""
        del memo
        return self

    def should_wrap(self, compiled_graph: Any) -> bool:
        """Whether a compiled graph is graphed; Inductor asks just before it hands one over."""
        self._offered.graph = weakref.ref(compiled_graph)
        return not skips_backward(compiled_graph)

    def cudagraphify(
        self,
        model: Code,
        example_inputs: Sequence[Any],
        static_input_idxs: Sequence[int],
        *,
        device_index: int,
        is_backward: bool,
        is_inference: bool,
        **more: Any,
    ) -> Code:
        """What takes the place of compiled code.

        Args:
            static_input_idxs: The numbers of the inputs that lie where they lay.
            more: What Inductor tells besides: names and lines of the inputs, which are written, constants.
        """
        del example_inputs, device_index, is_inference
        leave_runtime_alone()
        static = () if is_backward else static_input_idxs
        name = f"torch.compile [{compile_number()}]{' backward' if is_backward else ''}"
        graph = self._graph_of(model)
        wrap = partial(self._graphed, graph, backward=is_backward)
        if graph is None or graph.partition_maps is None or graph.recursively_apply_fns is None:
            return wrap(name, whole_part(static, **more), model)
        parts = parts_of(graph, static, more)
        if not parts:
            text = "%s runs as it is: no CUDA graph can hold any part of it"
            _log.info(text, name)
        names = [f"{name} part {number}" for number in range(len(parts))] if len(parts) > 1 else [name]
        graph.recursively_apply_fns(
            [partial(wrap, *each, partitioned=True) for each in zip(names, parts, strict=True)]
        )
        return aligned(model, frozenset(more["mutated_input_idxs"]))  # for what lies between the parts

    def _graph_of(self, model: Code) -> Any:
        """The compiled graph that some code belongs to; None if Inductor has not offered it."""
        offered = getattr(self._offered, "graph", None)
        graph = offered() if offered is not None else None
        return graph if graph is not None and graph.current_callable is model else None

    def _graphed(
        self,
        graph: Any,
        name: str,
        part: HandedPart,
        model: Code,
        *,
        backward: bool,
        partitioned: bool = False,
    ) -> Code:
        """Code that records itself and replays, in place of the code of a part."""
        kinds = frozenset[str](graph.device_types if graph is not None else ())
        code = aligned(model, part.written)
        region = HandedRegion(
            _apart(code) if backward else code,
            kinds - {"cpu"} if partitioned else kinds,
            part.written,
            graph.source_code if graph is not None else "",
            part.constants,
            None if graph is not None else "unknown",
        )

        def function(*inputs: Any) -> Any:
            return region(list(inputs))

        inputs = tuple(
            CompiledInput(name, line_of(stack), number in part.static)
            for number, (name, stack) in enumerate(zip(part.names, part.stacks, strict=True))
        )
        wishes = self._wishes.of_backward() if backward else self._wishes
        return of_list(self._graph(function, name, wishes, inputs))


def _apart(code: Code) -> Code:
    """Code whose results do not lie in the memory of its inputs; parameters are not written by a backward."""

    def run(inputs: list[Any]) -> Any:
        given = {
            value.untyped_storage().data_ptr()
            for value in inputs
            if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter)
        }
        copies: dict[int, torch.UntypedStorage] = {}

        def own(value: Any) -> Any:
            place = value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) else 0
            if not place or place not in given:
                return value
            if place not in copies:
                empty = torch.empty(0, dtype=torch.uint8, device=value.device)
                copies[place] = empty.set_(value.untyped_storage()).clone().untyped_storage()
            made = torch.empty(0, dtype=value.dtype, device=value.device)
            return made.set_(copies[place], value.storage_offset(), value.size(), value.stride())

        return tuple([own(value) for value in code(inputs)])

    return run


def cudagraph_policy(**options: Any) -> CudagraphPolicy:
    """A policy that puts rote in the place of PyTorch's own CUDA graphs.

    ``torch._inductor.config.cudagraph_policy = cudagraph_policy()`` does so for the process, and
    ``torch._inductor.config.patch(cudagraph_policy=cudagraph_policy())`` for what is compiled within. Code
    that is compiled then with ``mode="reduce-overhead"``, or where ``triton.cudagraphs`` is set, is recorded
    and replayed by rote.

    Args:
        options: Options of :func:`rote.graph`, and ``max_parameter_sets`` as for the backend.

    Returns:
        The policy, with ``graphed()``, ``explain()`` and ``reset()``.

    Raises:
        EnvironmentError_: This PyTorch has no such setting.
        OptionError: An option is unknown, or has an impossible value.
    """
    if not has_policies():
        raise EnvironmentError_(
            f"torch {torch.__version__} has no torch._inductor.config.cudagraph_policy (torch 2.13 has it); "
            'compile with backend="rote" instead of mode="reduce-overhead"'
        )
    wishes = Wishes.of(None, options, for_graphs=True)
    others = sorted({*options} & {"kernels", "skip_dynamic_graphs", *wishes.patches})
    if others:
        text = "says how code is compiled, which a policy does not decide; say it where you compile"
        raise OptionError(f"{others[0]} {text}")
    return CudagraphPolicy(wishes)
