"""The linear layers of a model, and why one is not quantized.

Modules of other classes that hold the matrix of a linear map (``Conv1D`` of transformers, experts in one
tensor, ``MultiheadAttention``) are never quantized, but listed, so that nobody takes their weights for
quantized. They have a parameter of two or three dimensions with "weight" or "proj" in its name, and are no
embeddings, convolutions or norms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from ...base import MisuseError
from ..config import UNQUANTIZED, DuQuantConfig, check_all_used, check_patterns, first_match
from ..layer import DuQuantLinear

Patterns = str | Sequence[str] | None


@dataclass(frozen=True)
class Candidate:
    """A linear layer of a model, under its first name; with a ``reason`` it will not be quantized."""

    name: str
    module: nn.Module
    reason: str
    weight_bits: int

    @property
    def shape(self) -> tuple[int, ...]:
        """``(out, in)``; of another module its largest weight's."""
        module = self.module
        if isinstance(module, nn.Linear | DuQuantLinear):
            return (module.out_features, module.in_features)
        return tuple(max(_matrices(module).values(), key=torch.Tensor.numel).shape)


def bytes_of(module: nn.Module) -> int:
    """The bytes of a module's parameters and buffers; a quantized layer's transform counts."""
    deep = isinstance(module, DuQuantLinear)
    tensors = [*module.parameters(recurse=deep), *module.buffers(recurse=deep)]
    return sum(t.numel() * t.element_size() for t in tensors)


def candidates(
    model: nn.Module, config: DuQuantConfig, include: Patterns = None, exclude: Patterns = None
) -> list[Candidate]:
    """All linear layers of a model and modules with weights of others, in the model's order, each once."""
    if isinstance(model, torch.jit.ScriptModule):
        kind = type(model).__name__
        raise MisuseError(f"a {kind} keeps its layers: quantize the module that it was made of")
    found = {
        name: module for name, module in model.named_modules() if _is_linear(module) or _matrices(module)
    }
    linear = [name for name, module in found.items() if _is_linear(module)]
    wanted, unwanted = _listed(include), _listed(exclude) or ()
    for field, patterns, names in (("include", wanted or (), linear), ("exclude", unwanted, list(found))):
        check_patterns(field, patterns)
        check_all_used(field, patterns, names)
    check_all_used("layer_bits", [pattern for pattern, _ in config.layer_bits], linear)
    tied, read = _tied(model), _read_by_their_owners(model)
    result: list[Candidate] = []
    for name, module in found.items():
        bits = config.bits_of(name)
        reason = _unwanted(name, wanted, unwanted) or _unsuited(name, module, tied)
        reason = reason or read.get(id(module), "")
        exempt = config.act_bits >= UNQUANTIZED or config.weight_bits < bits
        if not reason and bits >= UNQUANTIZED and exempt:
            reason = "set to 16 bits"
        result.append(Candidate(name, module, reason, bits))
    return result


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | DuQuantLinear)


_NO_MATRIX = (nn.Embedding, nn.EmbeddingBag, nn.modules.conv._ConvNd)  # pyright: ignore[reportPrivateUsage]


def _matrices(module: nn.Module) -> dict[str, torch.Tensor]:
    """The parameters of a module that look like matrices of linear maps."""
    if isinstance(module, _NO_MATRIX) or "Norm" in type(module).__name__:
        return {}
    return {
        name: parameter
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.dim() in (2, 3) and ("weight" in name or "proj" in name)
    }


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
    if not isinstance(module, nn.Linear):
        held = ", ".join(_matrices(module))
        return f"is a {type(module).__name__} with weights of its own ({held}), and no torch.nn.Linear"
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
    weight = module.weight.detach()
    if weight.is_meta:
        return "its weight is on the meta device, without data"
    if not weight.is_floating_point():
        return f"its weight is {weight.dtype}"
    if weight.numel() == 0:
        return "its weight is empty"
    if not bool(torch.isfinite(weight).all()):
        return "its weight has values that are not finite"
    owners = [owner for owner in tied[id(module.weight)] if owner != f"{name}.weight"]
    return f"shares its weight with {owners[0]}" if owners else ""


def _tied(model: nn.Module) -> dict[int, list[str]]:
    """The names of each parameter, by its id."""
    owners: dict[int, list[str]] = {}
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(prefix=prefix, recurse=False, remove_duplicate=False):
            owners.setdefault(id(parameter), []).append(name)
    return owners


def _read_by_their_owners(model: nn.Module) -> dict[int, str]:
    """Reasons for layers whose owner takes their weights without calling them."""
    reason = "its torch.nn.TransformerEncoderLayer takes the weight itself in evaluation"
    return {
        id(child): reason
        for owner in model.modules()
        if type(owner).forward is nn.TransformerEncoderLayer.forward
        for child in owner.children()
    }
