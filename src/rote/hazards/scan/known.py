"""Calls that are hazards by name: synchronisation, clocks, seeds, files, collectives, libraries."""

from __future__ import annotations

import ast
from typing import NamedTuple

from .. import rules
from ..rules import RULES, Rule, Severity
from .program import Reach
from .scope import Scope
from .syntax import CALLS, is_literal, last_name, names, self_attribute, text_of
from .values import Inferred, Type


class KnownCall(NamedTuple):
    """A function or method that is a hazard.

    The message says what it ``does``. ``of`` are the types whose method it is; any type if empty.
    """

    rule: Rule
    does: str
    of: tuple[Type, ...] = ()


_FUNCTIONS = {name: KnownCall(RULES[call["rule"]], call["does"]) for call in CALLS for name in call["names"]}
_WAITS = ("wait_stream", "wait_event")
_CACHES = frozenset({"past_key_values", "cache"})  # before transformers 5.24, and from it on
_GRIDS = frozenset({"grid_thw", "image_grid_thw", "video_grid_thw"})
_COUNTERS = names("timm_counting")
_AUGMENTS = ("Random", "ColorJitter", "AutoAugment", "RandAugment", "TrivialAugment", "AugMix", "ScaleJitter")


def known_function(scope: Scope, node: ast.Call, dotted: str) -> None:
    """A function or class with a dotted name."""
    known, name = _FUNCTIONS.get(dotted), dotted.rpartition(".")[2]
    if known is not None and (known.rule is not rules.NESTED_CAPTURE or scope.reach >= Reach.FORWARD):
        joined = known.rule is rules.STREAM_INSIDE and _joins_streams(scope)
        shown = name if known.rule in (rules.BOXES_KEPT, rules.NORMALIZED) else text_of(node.func)
        text = f"{shown}() {known.does}"
        scope.report(known.rule, node, text, severity=Severity.ISLAND if joined else None)
    if dotted.startswith(("transformers.", ".")) and (
        ("masking_utils." in dotted and name.startswith("create_")) or "modeling_attn_mask_utils." in dotted
    ):
        scope.report(rules.MASK_INSIDE, node, f"{name}() asks on the host whether anything is masked")


def known_method(
    scope: Scope, node: ast.Call, func: ast.Attribute, base: Inferred, values: list[Inferred]
) -> None:
    """A method of a library."""
    name = func.attr
    if name == "generate" and not self_attribute(func, scope.self_name) and (node.args or node.keywords):
        if base.type in (Type.MODULE, Type.UNKNOWN) and not ast.unparse(func.value).startswith("super("):
            scope.found(rules.GENERATE, node, "reads after each token whether to stop")
    elif name == "set_timesteps":
        scope.found(rules.TIMESTEPS_SET, node, "makes new tensors from numpy")
    elif name == "step" and len(values) >= 2 and "scheduler" in last_name(func.value).lower():
        scope.found(rules.SCHEDULER_STEP, node, "counts its position in Python")


def known_keywords(scope: Scope, node: ast.Call) -> None:
    """Keyword arguments that mean the same to every model of a library."""
    for each in node.keywords:
        if each.arg in _CACHES:
            value = scope.evaluate(each.value)
            if value.type is Type.CACHE and not value.local:
                scope.report(rules.DYNAMIC_CACHE, node, f"{text_of(each.value)} grows with every call")
        elif each.arg in _GRIDS and not is_literal(each.value, None):
            scope.report(rules.GRID, node, f"{each.arg} is turned into lists")


def known_object(scope: Scope, node: ast.Call, kind: Type, draws: str = "on the host") -> None:
    """A call of an object of a library."""
    if kind is Type.NORMALIZER:
        scope.found(rules.NORMALIZED, node, "makes tensors of the mean and the deviation")
    elif kind in (Type.MIXER, Type.AUGMENT):
        rule = rules.MIXUP if kind is Type.MIXER else rules.RANDOM_TRANSFORM
        scope.found(rule, node, f"draws {draws}")


def made_by_library(dotted: str) -> Type | None:
    """What a constructor of a library makes; None if it does not matter."""
    name = dotted.rpartition(".")[2]
    if dotted.startswith("transformers.") and name == "DynamicCache":
        return Type.CACHE
    if dotted.startswith("timm.data.") and name == "Mixup":
        return Type.MIXER
    if dotted.startswith("timm.optim.") and name in _COUNTERS:
        return Type.COUNTER
    if dotted.startswith("torchvision.transforms.") and name == "Normalize":
        return Type.NORMALIZER
    if dotted.startswith("torchvision.transforms.") and name.startswith(_AUGMENTS):
        return Type.AUGMENT
    return None


def _joins_streams(scope: Scope) -> bool:
    """Whether the function forks a stream and joins it again."""
    nodes = scope.function.nodes() if scope.function is not None else ()
    waits = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr in _WAITS]
    return len(waits) >= 2
