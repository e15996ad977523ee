"""Copies the seeds of attention's dropout to the host, where a backward outside of a capture reads them.

The memory-efficient kernel returns its seed and offset on the host in eager, on the device in a capture, and
its backward reads them in the same way: outside of a capture it dereferences them on the host. A recorded
forward that is walked back by plain autograd has them on the device, so they are copied to the host first
(seen in torch 2.11; a crash without it).
"""

from __future__ import annotations

from typing import Any

import torch

from ...operators import facts_of
from ...pytorch import DispatchMode, resolve_lazily


def seeds_on_host(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The operands of an operation that runs outside of a capture."""
    if not isinstance(func, torch._ops.OpOverload) or "seeds" not in (row := facts_of(func).row):
        return args, kwargs
    seeds = row["seeds"].split()
    names = [argument.name for argument in func._schema.arguments]
    moved = tuple(value.cpu() if name in seeds else value for name, value in zip(names, args, strict=False))
    return moved, {name: value.cpu() if name in seeds else value for name, value in kwargs.items()}


class HostSeeds(DispatchMode):
    """Mode in which the graph of a recorded call can be walked by plain autograd."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        resolve_lazily()
        args, kwargs = seeds_on_host(func, args, kwargs or {})
        return func(*args, **kwargs)
