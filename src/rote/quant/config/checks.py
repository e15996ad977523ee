"""The checks of a configuration: each field's value, and which fields go together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from torch import Tensor

from ...base import MisuseError, OptionError
from .names import check_patterns

UNQUANTIZED = 16
"""Bits from which on a number is not quantized."""

_COUNTS = {"rotation_steps": 0, "permutation_rounds": 0, "calib_batches": 1, "sample_rows": 1, "seed": 0}
_MOST = {"permutation_rounds": 64, "seed": 2**63 - 1}
"""A file from elsewhere may ask for more stages than fit memory, and a generator takes seeds below 2^63."""
_BITS = "2 to 8, or 16 for no quantization"
_BLOCKS = (2, 4096)
_IDLE: tuple[tuple[str, Any, str, Any], ...] = (
    ("weight_clip", 1.0, "weight_range", "minmax"),
    ("act_range", "max", "act_scaling", "static"),
    ("act_percentile", 99.9, "act_range", "percentile"),
    ("block_out_size", None, "row_rotation", True),
)
"""Field, its default, and the other field's value without which the field must keep its default."""

Demands = Iterator[tuple[bool, str, str]]
"""Whether a field is right, its name, and what it must be."""


def check(config: Any, kinds: Mapping[str, Any]) -> None:
    """Raise an OptionError that names a wrong field and what it must be; ``kinds`` are the fields' types."""
    for demands in (_each(config, kinds), _blocks(config), _lists(config), _together(config)):
        for good, name, must in demands:
            if not good:
                raise OptionError(f"{name}={getattr(config, name)!r} {must}")


def check_layer(in_features: int, out_features: int, weight_bits: int) -> None:
    """Raise an OptionError that names an argument of a layer that cannot be."""
    for name, value in (("in_features", in_features), ("out_features", out_features)):
        if not is_whole(value) or value < 1:
            raise OptionError(f"{name}={value!r} must be a whole number of at least 1")
    if not can_be_bits(weight_bits):
        raise OptionError(f"weight_bits={weight_bits!r} must be {_BITS}")


def input_error(x: Tensor, features: int) -> MisuseError:
    """The error of an input that a layer for rows of ``features`` numbers does not take."""
    if x.is_floating_point():
        return MisuseError(f"the input has {x.shape[-1]} features, this layer takes {features}")
    return MisuseError(f"the input is {x.dtype}, this layer takes real floating point numbers")


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def can_be_bits(value: Any) -> bool:
    """Whether a value is a number of bits."""
    return is_whole(value) and (2 <= value <= 8 or value == UNQUANTIZED)


def _each(config: Any, kinds: Mapping[str, Any]) -> Demands:
    for name, kind in kinds.items():
        value, allowed = getattr(config, name), get_args(kind)
        if allowed and isinstance(allowed[0], str):
            yield value in allowed, name, f"must be one of {', '.join(map(repr, allowed))}"
        elif kind is bool:
            yield isinstance(value, bool), name, "must be True or False"
    for name, least in _COUNTS.items():
        value = getattr(config, name)
        yield is_whole(value) and value >= least, name, f"must be a whole number of at least {least}"
        yield value <= _MOST.get(name, value), name, f"must be at most {_MOST.get(name)}"
    for name in ("weight_bits", "act_bits"):
        yield can_be_bits(getattr(config, name)), name, f"must be {_BITS}"
    for name, most in (("weight_clip", 1), ("act_clip", 1), ("act_percentile", 100)):
        value = getattr(config, name)
        yield _number(value) and 0 < value <= most, name, f"must be over 0 and at most {most}"
    alpha = config.smooth_alpha
    yield alpha is None or (_number(alpha) and 0 <= alpha <= 1), "smooth_alpha", "must be 0 to 1, or None"


def _blocks(config: Any) -> Demands:
    low, high = _BLOCKS
    for name in ("block_size", "block_out_size"):
        value: Any = getattr(config, name)
        good = is_whole(value) and low <= value <= high and value & (value - 1) == 0
        unset = value is None and name == "block_out_size"
        yield good or unset, name, f"must be a power of two from {low} to {high}"
    size = config.weight_group_size
    if config.weight_granularity == "group":
        good = is_whole(size) and size >= 2 and config.block_size % size == 0
        yield good, "weight_group_size", f"must divide block_size={config.block_size}"
    else:
        yield size is None, "weight_group_size", "needs weight_granularity='group'"


def _lists(config: Any) -> Demands:
    pairs, groups = config.layer_bits, config.groups
    good = isinstance(pairs, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs)
    yield good, "layer_bits", "must be a tuple of (pattern, bits)"
    check_patterns("layer_bits", [pattern for pattern, _ in pairs])
    for pattern, bits in pairs:
        if not can_be_bits(bits):
            raise OptionError(f"layer_bits: {pattern!r} has {bits!r} bits; {_BITS}")
    good = isinstance(groups, tuple) and all(
        isinstance(group, tuple) and len(group) > 1 and all(isinstance(name, str) for name in group)
        for group in groups
    )
    yield good, "groups", "must be a tuple of tuples of at least two names"


def _together(config: Any) -> Demands:
    for name, unset, other, needed in _IDLE:
        fine = getattr(config, other) == needed or getattr(config, name) == unset
        yield fine, name, f"has no effect without {other}={needed!r}"
    smooths = config.smooth_alpha is not None or not config.fold_smoothing
    yield smooths, "fold_smoothing", "has nothing to fold with smooth_alpha=None"
    scaling, granularity = config.act_scaling, config.act_granularity
    yield (
        (granularity == "token") == (scaling == "dynamic"), "act_granularity",
        f"does not go with act_scaling={scaling!r}: 'token' is dynamic, 'tensor' and 'channel' are static",
    )  # fmt: skip
    if granularity == "channel":
        yield config.act_symmetric, "act_symmetric", "must be True with act_granularity='channel'"
        yield (
            config.fold_act_scale or config.path != "kernel" or config.act_bits == UNQUANTIZED,
            "fold_act_scale",
            "must be True with path='kernel': a scale that varies along the summed dimension cannot leave an "
            "integer sum; take path='fused' for fake quantization",
        )
    if config.rotation == "svd":
        yield not config.shared_rotation, "shared_rotation", "must be False with rotation='svd'"
        one = config.permute_first or config.permutation == "none" or config.permutation_rounds == 0
        yield one, "permute_first", "must be True with rotation='svd': its basis is that of the last order"
    one = not config.permute_first or config.permutation_rounds <= 1
    yield one, "permutation_rounds", "must be 1 with permute_first=True"


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
