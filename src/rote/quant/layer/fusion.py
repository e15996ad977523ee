"""Layers with the same input, called together: one transform and one product for q, k and v, or gate and up.

Layers that share their transform form a group whatever their names are. Layers that have a transform each, as
in the policy variant, form one by the names in ``config.groups``; one launch then transforms the input for
all of them. On the fused path only the transform is shared, and the products stay with cuBLAS.

:func:`fuse_` leaves modules, names and state as they are, and changes how the module that holds such layers
is called. Its ``forward`` runs on a stand-in that lives for one call and has the module's attributes. The
first layer of a group that is called calculates the whole group; the others, called with that very tensor,
return what is there. A layer called with another tensor, or from elsewhere, runs as if nothing were fused.
Nothing is kept between calls, so a graph, a second thread or an error finds no stale state.

Containers are left alone, and so is a ``forward`` that uses ``super()`` or is an attribute of the module
itself. Layers with hooks are called one by one, but hooks on all modules of the process do not see fused
layers. A ``forward`` that changes the group's input in place between two calls is noticed eagerly, but not
under ``torch.compile`` or in inference mode (calibration makes no group of such layers).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from types import MethodType
from typing import Any, cast

import torch
from torch import Tensor, nn

from ...base import count_writes
from ..config import UNQUANTIZED
from ..kernels import MOST_WEIGHTS, turns
from .linear import DuQuantLinear, wants_gradient

Groups = tuple[tuple[str, ...], ...]
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def fuse_(model: nn.Module, among: Sequence[Sequence[str]] | None = None) -> list[tuple[str, ...]]:
    """Call sibling layers with the same input together, wherever they are called with the same tensor.

    The numbers are those of the separate layers. On ``path="kernel"`` layers with scales for groups of
    columns are not fused; on ``path="fused"`` only layers that have a transform and a static scale per
    channel each are.

    Args:
        model: With layers that :func:`~..quantize_` made. Modules that hold groups get a subclass of the same
            name as their class.
        among: Names of layers that get the same input, group by group; None takes ``config.groups``. Layers
            that share a transform need neither.

    Returns:
        The names of the layers of each group. Fusing a fused model changes nothing.
    """
    found: list[tuple[str, ...]] = []
    known = None if among is None else {name: index for index, names in enumerate(among) for name in names}
    for name, module in model.named_modules():
        groups = () if isinstance(module, DuQuantLinear) else _groups(module, name, known)
        if not groups or not (isinstance(module, Fused) or _can_stand_in(module)):
            continue
        if not isinstance(module, Fused):
            cast(Any, module).__class__ = _fused(type(module))
        vars(module)["fused_groups"] = groups
        found += [tuple(f"{name}.{member}" if name else member for member in group) for group in groups]
    return found


def unfuse_(model: nn.Module) -> None:
    """Undo :func:`fuse_`."""
    for module in model.modules():
        if isinstance(module, Fused):
            del vars(module)["fused_groups"]
            cast(Any, module).__class__ = module.fused_from


class Fused:
    """A module with fused groups, besides being what it was."""

    fused_from: type[nn.Module]
    fused_groups: Groups

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own forward, on a stand-in."""
        return self.fused_from.forward(_StandIn(cast(nn.Module, self), self.fused_groups), *args, **kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _restored, (self.fused_from,), dict(vars(self))


def _restored(kind: type[nn.Module]) -> nn.Module:
    made = _fused(kind)
    return made.__new__(made)


@functools.cache
def _fused(kind: type[nn.Module]) -> type[nn.Module]:
    names = {"fused_from": kind, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return cast(type[nn.Module], type(kind.__name__, (Fused, kind), {**names, "__doc__": kind.__doc__}))


def _can_stand_in(module: nn.Module) -> bool:
    """Whether a module's forward works on a stand-in."""
    kind = type(module)
    container = any(hasattr(kind, name) for name in ("__iter__", "__len__", "__getitem__", "__contains__"))
    return not container and "forward" not in vars(module) and not _uses_super(kind.forward)


def _uses_super(function: Any) -> bool:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code is None or "__class__" in code.co_freevars


def _groups(module: nn.Module, prefix: str, known: dict[str, int] | None) -> Groups:
    """The groups among a module's children."""
    children: dict[object, list[str]] = {}
    for name, child in module.named_children():
        if isinstance(child, DuQuantLinear) and _suits(child):
            key = (child.path, child.config, child.weight_bits <= 4, child.bias is None, child.in_features)
            if _has_own(child):
                place = f"{prefix}.{name}" if prefix else name
                peers = child.config.group_of(name) if known is None else known.get(place, place)
                children.setdefault((peers, *key), []).append(name)
            elif child.path == "kernel":
                children.setdefault((id(child.transform), *key), []).append(name)
    whole: list[tuple[str, ...]] = []
    for names in children.values():
        parts = [names[i : i + MOST_WEIGHTS] for i in range(0, len(names), MOST_WEIGHTS)]
        whole += [tuple(part) for part in parts if len(part) > 1 and _agree(module, part)]
    return tuple(whole)


def _suits(layer: DuQuantLinear) -> bool:
    one = layer.weight_scale is not None and layer.weight_scale.shape[1] == 1
    return one and layer.path in ("kernel", "fused")


def _has_own(layer: DuQuantLinear) -> bool:
    """Whether a layer has a transform of its own that one launch does for several layers."""
    turn = layer.transform
    alone = not layer.config.share_groups and layer.config.act_bits < UNQUANTIZED
    return alone and turns.suits(turn.smooth, turn.stages, layer.act_scale, turn.width)


def _agree(module: nn.Module, names: Sequence[str]) -> bool:
    """Whether the layers' static scales are equal, where a group needs one."""
    first, *others = (cast(DuQuantLinear, module.get_submodule(name)) for name in names)
    return _has_own(first) or all(
        mine is None or (its is not None and torch.equal(mine, its))
        for other in others
        for mine, its in ((first.act_scale, other.act_scale), (first.act_zero, other.act_zero))
    )


class _StandIn:
    """A module as its own forward sees it during one call."""

    _module: nn.Module
    _groups: Groups
    _found: dict[tuple[str, ...], tuple[Tensor, int, list[Tensor], set[int]]]

    def __init__(self, module: nn.Module, groups: Groups) -> None:
        # Not by vars(self): Dynamo of 2.11 does not trace that.
        object.__setattr__(self, "_module", module)
        object.__setattr__(self, "_groups", groups)
        object.__setattr__(self, "_found", {})

    def __getattr__(self, name: str) -> Any:
        module = self._module
        for group in self._groups:
            if name in group:
                return _Member(self, group, group.index(name))
        value = getattr(module, name)
        if isinstance(value, MethodType) and value.__self__ is module and not _uses_super(value.__func__):
            # Helpers of the forward call layers, too. A partial, since Dynamo makes no methods.
            return functools.partial(value.__func__, self)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._module, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._module(*args, **kwargs)


class _Member:
    """A layer of a group as the forward sees it."""

    def __init__(self, owner: _StandIn, group: tuple[str, ...], index: int) -> None:
        self.owner, self.group, self.index = owner, group, index

    def layers(self) -> list[Any]:
        """The layers of the group."""
        return [getattr(self.owner._module, name) for name in self.group]

    def __call__(self, x: Tensor) -> Tensor:
        found = self.owner._found
        at = found.get(self.group)
        version = 0 if torch.compiler.is_compiling() else count_writes(x)
        if at is None or at[0] is not x or at[1] != version:
            layers = self.layers()
            # A second input: names were wrong, as in attention across inputs.
            again = at is not None and _has_own(layers[0])
            if again or not all(_plain(layer) for layer in layers):
                return layers[self.index](x)
            at = found[self.group] = (x, version, together(layers, x), set())
        outputs, taken = at[2], at[3]
        taken.add(self.index)
        if len(taken) == len(outputs):  # a later call (checkpoint makes one) calculates again
            del found[self.group]
        return outputs[self.index]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.layers()[self.index], name)


def _plain(layer: Any) -> bool:
    """Whether a layer has no hooks and runs by kernels."""
    fast = type(layer) is DuQuantLinear and layer.path in ("kernel", "fused")
    return fast and not any(getattr(layer, hooks) for hooks in _HOOKS)


def together(layers: Sequence[DuQuantLinear], x: Tensor) -> list[Tensor]:
    """The outputs of layers of one group for the same input, of shape ``(..., in_features)``."""
    return layers[0].outside_autocast(x, lambda x: _outputs(layers, x))


def _outputs(layers: Sequence[DuQuantLinear], x: Tensor) -> list[Tensor]:
    if layers[0].path == "kernel":
        ops = torch.ops.rote_quant
        return (ops.linears if wants_gradient(x) else ops.linears_forward)(x, *_operands(layers))
    if not all(layer.goes_fast(x) for layer in layers):
        return [layer(x) for layer in layers]
    config = layers[0].config
    stages = [stage for layer in layers for stage in layer.transform.stages]
    scales = [layer._buffers["act_scale"] for layer in layers]
    rows = torch.ops.rote_quant.rounded_apart(
        x, stages, layers[0].transform.width, config.act_bits, config.act_symmetric, scales
    )
    return [layer.multiplied(mine, x) for layer, mine in zip(layers, rows.unbind(), strict=True)]


def _operands(layers: Sequence[DuQuantLinear]) -> tuple[Any, ...]:
    """What ``torch.ops.rote_quant.linears`` takes behind the input."""
    first, held = layers[0], [layer._buffers for layer in layers]  # attributes take a microsecond each
    turn, config = first.transform, first.config
    leading = layers if layers[1].transform is not turn else layers[:1]
    zeros = [] if config.weight_symmetric else [each["weight_zero"] for each in held]
    return (
        turn.smooth, [stage for layer in leading for stage in layer.transform.stages], turn.width,
        config.act_bits, config.act_symmetric, config.act_clip,
        _there("act_scale", held[: len(leading)]), held[0]["act_zero"],
        _there("weight_codes", held), _there("weight_scale", held), zeros, _there("weight_sums", held),
        _there("row_rotation", held), _there("bias", held), [layer.out_features for layer in layers],
    )  # fmt: skip


def _there(name: str, held: Sequence[dict[str, Tensor | None]]) -> list[Tensor]:
    """A buffer of each layer; none if they have none."""
    return [tensor for tensor in (each[name] for each in held) if tensor is not None]
