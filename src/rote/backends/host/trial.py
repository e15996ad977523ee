"""Does an ``out=`` overload really do what the functional operation did? Try it, once per kind of call.

An ``out=`` kernel is free to treat its output as scratch: ``mse_loss.out`` resizes it to the size of the
input before reducing, and PyTorch says so nowhere that a program can read. In planned memory it would write
over its neighbours.

So while the operands of a captured call are still at hand, its ``out=`` overload is run on fresh memory and
must leave every output where it was, of the shape it had, with bitwise the numbers the call returned. The
outputs lie side by side in one storage, as they will in planned memory: ``linalg_qr.out`` takes two tensors
of one storage for one and the same. A
call of the same operation with operands of the same types, shapes and numbers is not tried again, so a
model of twelve equal layers pays for one. Random operations are never tried (it would advance the
generator); they are run and copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, cast

import torch

from .compat import below_tracking
from .forms import Form
from .plan import aligned
from .variants import Variant

_Tensor = torch.Tensor
PLAIN_VALUES = frozenset({int, float, bool, type(None), str, torch.dtype, torch.device})
"""Types of operands that are no tensors and contain none."""


def fits(
    variant: Variant, args: tuple[Any, ...], kwargs: dict[str, Any], results: Sequence[torch.Tensor]
) -> bool:
    """Whether ``variant`` writes bitwise ``results`` into memory of their shape and strides."""
    args, kwargs = variant.operands(args, kwargs)
    with below_tracking()():
        outs = _side_by_side(results)
        before = [_where(each) for each in outs]
        try:
            variant.op(*args, **kwargs, **dict(zip(variant.outs, outs, strict=True)))
        except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError):
            return False
        stayed = before == [_where(each) for each in outs]
        return stayed and all(_same_bits(a, b) for a, b in zip(outs, results, strict=True))


def _side_by_side(results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Memory for results, in one storage."""
    spans = [aligned(each.untyped_storage().nbytes()) for each in results]
    storage = torch.empty(sum(spans), dtype=torch.uint8).untyped_storage()
    outs: list[torch.Tensor] = []
    for each, start in zip(results, accumulate(spans, initial=0), strict=False):
        out = torch.empty(0, dtype=each.dtype)
        outs.append(out.set_(storage, start // each.dtype.itemsize, each.size(), each.stride()))
    return outs


def kind_of(
    number: int, args: tuple[Any, ...], kwargs: dict[str, Any], forms: Iterable[Form]
) -> tuple[Any, ...]:
    """A hashable description of a call: of tensors their forms, of other operands their types and values.

    Args:
        number: Stands for the operation.
        args: Its positional operands.
        kwargs: Its keyword operands.
        forms: What the tensors in both look like, in order.
    """
    rest = iter(forms)
    described: list[Any] = [number]
    for each in args:
        kind = type(each)
        described.append(
            next(rest) if kind is _Tensor else (kind, each) if kind in PLAIN_VALUES else _kind(each, rest)
        )
    for name, each in kwargs.items():
        described.extend((name, _kind(each, rest)))
    return tuple(described)


def _kind(value: Any, rest: Iterator[Form]) -> Any:
    kind = type(value)
    if kind in PLAIN_VALUES:
        return kind, value
    if isinstance(value, _Tensor):
        return next(rest)
    if isinstance(value, (list, tuple)):
        return tuple([_kind(each, rest) for each in cast("list[Any] | tuple[Any, ...]", value)])
    return kind, value


def _where(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.size(), tensor.stride()


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(_bits(one), _bits(other))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg().reshape(-1).contiguous().view(torch.uint8)
