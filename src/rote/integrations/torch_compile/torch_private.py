"""What the backend needs of PyTorch's compiler that has no public name."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

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


def compile_number() -> str:
    """The number of the compilation in progress, as PyTorch's logs write it. Seen in torch 2.11 and 2.13."""
    number = CompileContext.current_compile_id()
    return "?" if number is None else str(number)
