"""The linear layers of a model: which there are, which are meant, and why one is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from ..base.errors import MisuseError
from .config import UNQUANTIZED, DuQuantConfig
from .linear import DuQuantLinear
from .names import check_all_used, check_patterns, first_match

Patterns = str | Sequence[str] | None


@dataclass(frozen=True)
class Candidate:
    """A linear layer of a model.

    Attributes:
        name: Where it is first found.
        module: The layer.
        reason: Why it is not to be quantized; empty if it is.
        weight_bits: Its weight bits.
    """

    name: str
    module: nn.Linear | DuQuantLinear
    reason: str
    weight_bits: int


def candidates(
    model: nn.Module, config: DuQuantConfig, include: Patterns = None, exclude: Patterns = None
) -> list[Candidate]:
    """All linear layers of a model, in its order, each once.

    Raises:
        OptionError: A pattern is none, or fits no layer.
        MisuseError: The model is scripted.
    """
    if isinstance(model, torch.jit.ScriptModule):
        kind = type(model).__name__
        raise MisuseError(f"a {kind} keeps its layers: quantize the module that it was made of")
    found = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear | DuQuantLinear)}
    wanted, unwanted = _listed(include), _listed(exclude) or ()
    for field, patterns in (("include", wanted or ()), ("exclude", unwanted)):
        check_patterns(field, patterns)
        check_all_used(field, patterns, list(found))
    check_all_used("layer_bits", [pattern for pattern, _ in config.layer_bits], list(found))
    tied, read = _tied(model), _read_by_their_owners(model)
    result: list[Candidate] = []
    for name, module in found.items():
        bits = config.bits_of(name)
        reason = _unwanted(name, wanted, unwanted) or _unsuited(name, module, tied)
        reason = reason or read.get(id(module), "")
        if (
            not reason
            and bits >= UNQUANTIZED
            and (config.act_bits >= UNQUANTIZED or config.weight_bits < bits)
        ):
            reason = "set to 16 bits"
        result.append(Candidate(name, module, reason, bits))
    return result


def _listed(patterns: Patterns) -> Sequence[str] | None:
    return (patterns,) if isinstance(patterns, str) else patterns


def _unwanted(name: str, include: Sequence[str] | None, exclude: Sequence[str]) -> str:
    if include is not None and first_match(include, name) is None:
        return "fits no pattern of include"
    pattern = first_match(exclude, name)
    return "" if pattern is None else f"excluded by {pattern!r}"


def _unsuited(name: str, module: nn.Module, tied: dict[int, list[str]]) -> str:
    if isinstance(module, DuQuantLinear):
        return "is quantized already"
    if type(module) is not nn.Linear:
        return f"is a {type(module).__name__}, which may do more than torch.nn.Linear"
    if not name:
        return "is the model itself, which cannot be replaced in place: put it into another module"
    if "weight" not in module._parameters:
        return "its weight is made anew for each call (by weight_norm, spectral_norm, or a pruning mask)"
    if "forward" in vars(module):
        return "its forward was replaced by another function, which would be lost"
    inside = next(iter(module._modules), None)
    if inside is not None:
        return f"has a module of its own, {inside!r}, which would be lost"
    weight: torch.Tensor = module.weight
    if weight.is_meta:
        return "its weight is on the meta device, without data"
    if not weight.is_floating_point():
        return f"its weight is {weight.dtype}"
    if weight.numel() == 0:
        return "its weight is empty"
    if not bool(torch.isfinite(weight).all()):
        return "its weight has values that are not finite"
    owners = [owner for owner in tied[id(weight)] if owner != f"{name}.weight"]
    return f"shares its weight with {owners[0]}" if owners else ""


def _tied(model: nn.Module) -> dict[int, list[str]]:
    """The names under which each parameter is found in different modules."""
    owners: dict[int, list[str]] = {}
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(prefix=prefix, recurse=False, remove_duplicate=False):
            owners.setdefault(id(parameter), []).append(name)
    return owners


def _read_by_their_owners(model: nn.Module) -> dict[int, str]:
    """Why layers are left alone whose owner does not call them, but takes their weights."""
    reason = "its torch.nn.TransformerEncoderLayer takes the weight itself in evaluation"
    return {
        id(child): reason
        for owner in model.modules()
        if type(owner).forward is nn.TransformerEncoderLayer.forward
        for child in owner.children()
    }


_HOOKS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks", "_is_full_backward_hook",
)  # fmt: skip


def replace(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put a module in another's place, wherever that is registered, with the hooks on its calls."""
    for name in _HOOKS:  # the tables themselves, so that handles go on to remove what they stand for
        setattr(new, name, getattr(old, name))
    for parent in model.modules():
        for key, child in parent._modules.items():
            if child is old:
                parent._modules[key] = new
