"""Idioms of transformers, diffusers, timm and torchvision."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .. import rules
from .names import last_name, self_attribute
from .values import Kind, Value

if TYPE_CHECKING:
    from .reader import Reader

_GRIDS = frozenset({"grid_thw", "image_grid_thw", "video_grid_thw"})
_BOXES = frozenset({
    "torchvision.ops.nms", "torchvision.ops.batched_nms", "torchvision.ops.remove_small_boxes",
    "torchvision.ops.boxes.nms", "torchvision.ops.boxes.batched_nms",
    "torchvision.ops.boxes.remove_small_boxes",
})  # fmt: skip
_NORMALIZING = frozenset({
    "torchvision.transforms.functional.normalize", "torchvision.transforms.v2.functional.normalize",
    "torchvision.transforms.v2.functional.normalize_image",
})  # fmt: skip
_COUNTERS = frozenset({
    "AdaBelief", "Adafactor", "AdafactorBigVision", "Adan", "AdamP", "Lamb", "LaProp", "MADGRAD", "Mars",
    "NAdam", "NvNovoGrad", "RAdam",
})  # fmt: skip
_AUGMENTS = ("Random", "ColorJitter", "AutoAugment", "RandAugment", "TrivialAugment", "AugMix", "ScaleJitter")


def library_call(reader: Reader, node: ast.Call, dotted: str) -> None:
    """A function or class of a library that is called by its name."""
    package, _, _ = dotted.partition(".")
    name = dotted.rpartition(".")[2]
    if package == "transformers" or dotted.startswith("."):
        if (
            "masking_utils." in dotted and name.startswith("create_")
        ) or "modeling_attn_mask_utils." in dotted:
            reader.found(rules.MASK_INSIDE, node, f"{name}() asks on the host whether anything is masked")
    elif dotted in _NORMALIZING:
        reader.found(rules.NORMALIZED, node, f"{name}() makes tensors of the mean and the deviation")
    elif dotted in _BOXES:
        reader.found(rules.BOXES_KEPT, node, f"{name}() keeps as many boxes as the values say")
    _keywords(reader, node)


def library_method(
    reader: Reader, node: ast.Call, func: ast.Attribute, base: Value, values: list[Value]
) -> None:
    """A method that is known by its name."""
    name = func.attr
    owner = last_name(func.value).lower()
    own = self_attribute(func, reader.self_name)
    if name == "generate" and not own and (node.args or node.keywords):
        if base.kind in (Kind.MODULE, Kind.UNKNOWN) and not ast.unparse(func.value).startswith("super("):
            reader.found(rules.GENERATE, node, f"{reader.says(node)} reads after each token whether to stop")
    elif name == "set_timesteps":
        reader.found(rules.TIMESTEPS_SET, node, f"{reader.says(node)} makes new tensors from numpy")
    elif name == "step" and len(values) >= 2 and "scheduler" in owner:
        reader.found(rules.SCHEDULER_STEP, node, f"{reader.says(node)} counts its position in Python")
    _keywords(reader, node)


def made_by_library(dotted: str) -> Kind | None:
    """What a constructor of a library makes, if it matters."""
    name = dotted.rpartition(".")[2]
    if dotted.startswith("transformers.") and name == "DynamicCache":
        return Kind.CACHE
    if dotted.startswith("timm.data.") and name == "Mixup":
        return Kind.MIXER
    if dotted.startswith("timm.optim.") and name in _COUNTERS:
        return Kind.COUNTER
    if dotted.startswith("torchvision.transforms.") and name == "Normalize":
        return Kind.NORMALIZER
    if dotted.startswith("torchvision.transforms.") and name.startswith(_AUGMENTS):
        return Kind.AUGMENT
    return None


def _keywords(reader: Reader, node: ast.Call) -> None:
    for each in node.keywords:
        if each.arg == "past_key_values":
            value = reader.evaluate(each.value)
            if value.kind is Kind.CACHE and not value.local:
                text = f"{reader.says(each.value)} grows with every call"
                reader.found(rules.DYNAMIC_CACHE, node, text)
        elif each.arg in _GRIDS and not (isinstance(each.value, ast.Constant) and each.value.value is None):
            reader.found(rules.GRID, node, f"{each.arg} is turned into lists")
