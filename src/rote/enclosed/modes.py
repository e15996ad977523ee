"""The modes in which a call stands in the code: gradients and autocast."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class ModesAtCall:
    """The modes of one moment.

    PyTorch's compiler puts them into the operations that it traces, and compiled code runs without them.
    """

    grad: bool
    casts: tuple[tuple[bool, torch.dtype], ...]
    cache: bool

    @classmethod
    def now(cls) -> ModesAtCall:
        """The modes in force."""
        casts = tuple((torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in _DEVICES)
        return cls(torch.is_grad_enabled(), casts, torch.is_autocast_cache_enabled())

    @contextmanager
    def in_force(self) -> Generator[None]:
        """A context with these modes."""
        with ExitStack() as stack:
            if torch.is_grad_enabled() != self.grad:
                stack.enter_context(torch.set_grad_enabled(self.grad))
            for kind, (enabled, dtype) in zip(_DEVICES, self.casts, strict=True):
                if (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) != (enabled, dtype):
                    cast = torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=self.cache)
                    stack.enter_context(cast)
            yield
