"""Arguments under another name: a tensor over the same memory that is known by a storage of its own.

An argument may be a part of a tensor that the call reads by itself: a sampler goes through
``for t in scheduler.timesteps``, and the step looks ``t`` up in them. In a recording the two are apart, since
the argument is copied. An observed call has to tell them apart as well, and by their memory nobody can. So it
is given another tensor over the argument's memory. What is written through one is there through the other,
and both count one version, so the call does what it would have done.

What does not work: to give it a copy. That the call writes one of the two is known too late then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from ...base import MisuseError
from ..arguments import Call
from .placement import group_members, placeable, span_of


def renamable(call: Call) -> frozenset[int]:
    """The arguments for which other tensors can stand that lie where they do. The key says which."""
    alone = [members[0] for members in group_members(call) if len(members) == 1]
    return frozenset([each for each in alone if may_be_renamed(call, [each])])


def may_be_renamed(call: Call, members: Iterable[int]) -> bool:
    """Whether other tensors can stand for all of some arguments that share their memory with no argument."""
    tensors: list[torch.Tensor] = [call.leaves[each] for each in members]
    plain = [type(each) is torch.Tensor and placeable([each]) for each in tensors]
    return all(plain) and not any([each.requires_grad or each.is_inference() for each in tensors])


def renamed(leaves: tuple[Any, ...], members: Collection[int]) -> tuple[Any, ...]:
    """Argument leaves, of which these, that are renamable, have other storages."""
    if not members:
        return leaves
    with torch.inference_mode(False):
        return tuple([_other(leaf) if index in members else leaf for index, leaf in enumerate(leaves)])


def give_back(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """The call is over: what it has left on the tensor that stood for an argument is left on that.

    Raises:
        MisuseError: It has made it require grad, so histories lead to a tensor that nobody has.
    """
    if other.requires_grad:
        raise MisuseError(
            "the callable makes an argument require grad that shares memory with state of its own; "
            "pass a clone of it, or call requires_grad_() outside"
        )
    copy_attributes(other, tensor)
    if other.data_ptr() != tensor.data_ptr():
        tensor.data = other.detach()
    elif (other.shape, other.stride()) != (tensor.shape, tensor.stride()):
        tensor.data = tensor.detach().as_strided(other.shape, other.stride(), tensor.storage_offset())


def _other(tensor: torch.Tensor) -> torch.Tensor:
    span = tensor.detach().as_strided((span_of(tensor),), (1,), tensor.storage_offset())
    # Bytes, since not every type has a name outside of PyTorch.
    memory: torch.Tensor = from_dlpack(torch.to_dlpack(span.view(torch.uint8))).view(tensor.dtype)
    other = tensor.detach()  # counts the versions of what it was made of, whatever its memory becomes
    other.data = memory.as_strided(tensor.shape, tensor.stride(), 0)
    copy_attributes(tensor, other)
    return other


def copy_attributes(source: torch.Tensor, target: torch.Tensor) -> None:
    """Give a tensor the attributes that users have added to another one."""
    theirs, own = vars(source), vars(target)
    if theirs or own:
        own.clear()
        own.update(theirs)
