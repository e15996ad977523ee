"""For a functional operation, the overload that writes its results into memory given to it.

Of some 1500 functional ATen overloads 960 have an ``out=`` overload by name, but most of those are
generated: they compute functionally and copy, and some raise on results that are None. Only those with a
CPU kernel of their own are worth calling; for all others the recording computes and copies itself.

A few functional operations have no overload of their own but are, in PyTorch's source, one line that calls
an operation which has: ``relu`` is ``clamp_min(x, 0)``, ``sum()`` is ``sum(dim=[])``. Those are rewritten;
the kernel that runs is the same, so the numbers are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from .calls import function_of
from .compat import Call, OpOverload, has_cpu_kernel, schema_of

# Their kernels use the output as scratch: a trial would reject them, after PyTorch has printed a warning.
SCRATCH_LOSSES = frozenset(
    {"mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "binary_cross_entropy"}
)

Operands = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Variant:
    """An ``out=`` overload.

    Attributes:
        op: The overload.
        outs: Names of its output operands, in the order of the functional operation's results.
        adapt: Turns the functional operation's operands into this overload's, if they differ.
    """

    op: OpOverload
    outs: tuple[str, ...]
    adapt: Callable[[tuple[Any, ...], dict[str, Any]], Operands] | None = None

    @cached_property
    def call(self) -> Call:
        """What calls it at the least cost."""
        return function_of(self.op)

    def operands(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Operands:
        """The operands to call ``op`` with, less the outputs."""
        return (args, kwargs) if self.adapt is None else self.adapt(args, kwargs)


def find_variant(func: OpOverload) -> Variant | None:
    """The native ``out=`` overload of a functional operation, or None if there is none."""
    if func.namespace != "aten":  # somebody's own kernel may do more than it says; it is not run for a trial
        return None
    rewritten = _rewritten(func)
    if rewritten is not None:
        return rewritten
    schema = schema_of(func)
    if func.overloadpacket.__name__ in SCRATCH_LOSSES or torch.Tag.nondeterministic_seeded in func.tags:
        return None
    if not schema.returns or any(_written(each) for each in schema.arguments):
        return None
    if any(str(each.type) != "Tensor" or each.alias_info is not None for each in schema.returns):
        return None
    packet = func.overloadpacket
    for name in packet.overloads():
        candidate = getattr(packet, name)
        outs = _outs(schema, schema_of(candidate))
        if outs and _is_native(candidate):
            return Variant(candidate, outs)
    return None


def _outs(functional: Any, candidate: Any) -> tuple[str, ...]:
    """Names of the candidate's outputs if it takes what the functional one takes, else nothing."""
    written = [each for each in candidate.arguments if _written(each)]
    plain = [each for each in candidate.arguments if not _written(each)]
    if len(written) != len(functional.returns) or len(candidate.returns) != len(written):
        return ()
    if any(not each.kwarg_only or str(each.type) != "Tensor" for each in written):
        return ()
    if [_signature(each) for each in plain] != [_signature(each) for each in functional.arguments]:
        return ()
    return tuple(str(each.name) for each in written)


def _signature(argument: Any) -> tuple[str, str, bool, str]:
    return argument.name, str(argument.type), argument.kwarg_only, repr(argument.default_value)


def _written(argument: Any) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def _is_native(op: OpOverload) -> bool:
    return has_cpu_kernel(op) and torch.Tag.generated not in op.tags


def _rewritten(func: OpOverload) -> Variant | None:
    aten = torch.ops.aten
    if func is aten.relu.default and _is_native(aten.clamp_min.out):
        return Variant(aten.clamp_min.out, ("out",), _relu)
    if func is aten.sum.default and _is_native(aten.sum.IntList_out):
        return Variant(aten.sum.IntList_out, ("out",), _over_all)
    if func is aten.mean.default and _is_native(aten.mean.out):
        return Variant(aten.mean.out, ("out",), _over_all)
    return None


def _relu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Operands:
    return (*args, *kwargs.values(), 0), {}


def _over_all(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Operands:
    rest = dict(kwargs)
    first = args or (rest.pop("self"),)
    return (*first, [], False), rest
