"""Tensors that the first call makes and the callable keeps: a table, a scale from the first batch.

rote waits until two calls agree, so such a tensor costs it a call. Whoever captures the first call, and
``reduce-overhead`` always, gets a tensor in the memory of a graph, which the next replay overwrites.

What counts lies in an attribute of a module or of a user's object, or in lists and dicts there. An optimizer
makes its state at the first step as well, and a backward its gradients: these are as they should be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from types import FunctionType
from typing import Any, NamedTuple

import torch

from ..base import Site
from ..runtime.objects import is_users
from ..runtime.reads.trace import SlotChange
from ..runtime.state import MISSING, lying_in
from .fake import is_module_dict
from .trial import shown


class KeptTensor(NamedTuple):
    """A tensor that was not there before the first call, and that later calls leave where it is.

    Attributes:
        text: What it is, and for whom it is wrong.
        evidence: Its type and shape.
        remedy: The buffer to write instead; empty where it is no attribute of a module.
    """

    text: str
    evidence: str
    site: Site | None
    remedy: str


def kept_tensors(
    roots: Collection[Any], known: Collection[int], first: list[SlotChange], last: list[SlotChange]
) -> Iterator[KeptTensor]:
    """The tensors that the first call has made and the last one has left alone.

    Args:
        roots: The callable, and the object that it is a method of.
        known: Storages that were there before the first call.
    """
    growing = {id(each.container) for each in last if each.was is MISSING}
    for each in first:
        tensor = each.now
        if (
            isinstance(tensor, torch.Tensor)
            and tensor.layout is torch.strided
            and tensor.untyped_storage()._cdata not in known
            and id(each.container) not in growing
            and _is_of_object(each, roots)
            and _holds(each, tensor)
        ):
            module = next((owner for owner in each.owners if isinstance(owner, torch.nn.Module)), None)
            own = is_module_dict(each.container) or (module and each.container is module._buffers)
            text = (
                f"{each.name} keeps a tensor that the first call makes: settled after one call for rote; "
                "captured in that call, or under reduce-overhead, it lies where the next replay overwrites it"
            )
            yield KeptTensor(text, shown(tensor), each.site, _buffer(each.key, tensor) if own else "")


def _buffer(name: str, tensor: torch.Tensor) -> str:
    made = f"torch.zeros({tuple(tensor.shape)}, dtype={tensor.dtype})"
    return (
        f'Register a buffer in __init__, self.register_buffer("{name}", {made}), and write it in place, '
        f"self.{name}.copy_(value), in a call before the first capture."
    )


def _holds(change: SlotChange, tensor: torch.Tensor) -> bool:
    """Whether a tensor still lies where the call has put it."""
    try:
        return lying_in(change.kind, change.container, change.key) is tensor
    except (KeyError, IndexError, ValueError, AttributeError):
        return False


def _is_of_object(change: SlotChange, roots: Collection[Any]) -> bool:
    """Whether a slot is an attribute of a module or of a user's object, or lies in lists and dicts there."""
    holders = [owner for owner in change.owners if not isinstance(owner, (list, tuple, dict))]
    holder = holders[0] if holders else None
    if isinstance(holder, FunctionType):
        return holder in roots
    users = is_users(type(holder)) and not isinstance(holder, (torch.optim.Optimizer, torch.Tensor))
    return holder is not None and (users or isinstance(holder, torch.nn.Module))
