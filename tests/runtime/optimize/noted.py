"""Kernels of alternatives, played by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rote.runtime.compiling import KernelSource

KINDS = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}


class Noted:
    """Notes launches in place of launching."""

    def __init__(self) -> None:
        self.launches: list[dict[str, Any]] = []

    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return func(*args, **kwargs).fill_(float("nan"))  # what is not written shows

    def launch(self, source: KernelSource, given: Sequence[Tensor], made: Sequence[Tensor]) -> None:
        kinds = [KINDS[each.dtype] for each in (*given, *made)]
        assert tuple(kinds) == source.tensors and len(kinds) == len(source.aligned)
        text = {"text": source.text, "name": source.name, "programs": source.grid.count}
        self.launches.append({**text, "tensors": [*given, *made], "numbers": []})
