"""Operations on tensors of which each process has a part (``DTensor``), as in tensor parallelism.

PyTorch makes such an operation of others: on the part that this process has, and collectives between. Those
are what a call consists of. Which they are follows from how the operands are spread over processes, and that
is a condition where an operand lies outside of the call (:meth:`...reads.trace.outside.Outside.read`).

What does not work: gradients, since those are such tensors as well, and a replay hands out none; writing to
one that lies outside, which may spread it anew; random numbers, for which PyTorch sets generators; other
tensors as operands, which a setting of PyTorch's allows or not.
"""

from __future__ import annotations

from typing import Any

import torch

from ....base import user_site
from ....hazards import rules
from ....hazards.rules import reason
from ...operators import tensors_of
from ...program import EXTERNAL
from ...pytorch import LOCAL, is_sharded, stands_for_others
from .cursor import Cursor

_REMEDY = "Call it under torch.no_grad(), and work on the parts: tensor.to_local()."


def meet_sharded(cursor: Cursor, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """An operation is about to be made of others; the call is blocked if those may be others next time."""
    if cursor.blockers:
        return
    found = "draws random numbers for a DTensor" if torch.Tag.nondeterministic_seeded in func.tags else ""
    for tensor in tensors_of(args, kwargs):
        found = found or _why_not(cursor, func, tensor)
    if found:
        cursor.block(reason(rules.UNSUPPORTED_TENSOR, f"{func.name()} {found}", user_site(), _REMEDY))


def _why_not(cursor: Cursor, func: Any, tensor: torch.Tensor) -> str:
    if not is_sharded(type(tensor)):
        return "takes a DTensor together with another tensor" if tensor.dim() else ""
    if tensor.requires_grad and torch.is_grad_enabled():
        return "takes a DTensor that requires grad"
    part = getattr(tensor, LOCAL)
    if not func._schema.is_mutable or stands_for_others(part):
        return ""
    origin = cursor.storages.origin(part)
    outside = origin is None or origin[0] == EXTERNAL
    return "may write a DTensor that was made outside the call" if outside else ""
