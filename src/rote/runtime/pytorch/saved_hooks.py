"""Saved-tensor hooks of the runtime's, which step aside where the call wants to run without any.

Transforms of ``torch.func`` (``vjp``, ``linearize``) forbid such hooks while they run, and raise if there are
some. In a plain call there are none, so those around a recorded one are gone from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import local
from typing import Any

import torch

from .torch_private import leave_saving_hooks, saving_hooks, set_saving_hooks


class _Standing(local):
    pack: Any = None  # of the innermost hooks of the runtime's on this thread, unless these stepped aside


_STANDING = _Standing()


@contextmanager
def standing_hooks(
    pack: Callable[[torch.Tensor], Any], unpack: Callable[[Any], torch.Tensor]
) -> Generator[None]:
    """Run with these hooks, as under ``saved_tensors_hooks``, until they step aside."""
    before, _STANDING.pack = _STANDING.pack, pack
    set_saving_hooks(pack, unpack)
    try:
        yield
    finally:
        if _STANDING.pack is pack:
            leave_saving_hooks()
        _STANDING.pack = before


def step_aside() -> None:
    """Hooks are about to be forbidden: take away those of the runtime's, and no others."""
    top = saving_hooks(True)
    if top is not None and top[0] is _STANDING.pack:
        leave_saving_hooks()
        _STANDING.pack = None
