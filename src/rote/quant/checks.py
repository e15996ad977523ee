"""What a configuration may say: the value of each field, and which fields go together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..base.errors import MisuseError, OptionError
from .names import check_patterns

if TYPE_CHECKING:
    from .config import DuQuantConfig

_CHOICES: dict[str, tuple[str, ...]] = {
    "rotation": ("greedy", "hadamard", "svd", "none"),
    "permutation": ("zigzag", "energy", "none"),
    "transform_dtype": ("float32", "bfloat16", "float16"),
    "weight_granularity": ("tensor", "channel", "group"),
    "weight_range": ("minmax", "mse", "grid", "learned"),
    "act_scaling": ("dynamic", "static"),
    "act_granularity": ("token", "tensor", "channel"),
    "act_range": ("max", "percentile", "mse"),
    "path": ("reference", "fused", "kernel"),
}
_COUNTS = {"rotation_steps": 0, "permutation_rounds": 0, "calib_batches": 1, "sample_rows": 1, "seed": 0}
_MOST = {"permutation_rounds": 64, "seed": 2**63 - 1}
"""A file from elsewhere may ask for more stages than there is memory; and what a generator takes."""
_BITS = (2, 3, 4, 5, 6, 7, 8, 16)
_BLOCKS = (2, 4096)
_FLAGS = (
    "shared_rotation", "permute_first", "row_rotation", "fold_smoothing", "weight_symmetric", "act_symmetric",
    "fold_act_scale", "share_groups", "fuse_groups",
)  # fmt: skip


_IDLE: tuple[tuple[str, Any, str, Any], ...] = (
    ("weight_clip", 1.0, "weight_range", "minmax"),
    ("act_range", "max", "act_scaling", "static"),
    ("act_percentile", 99.9, "act_range", "percentile"),
    ("block_out_size", None, "row_rotation", True),
)
"""Fields that another one has to allow: else they would have no effect, and have to be as they are unset."""


def check(config: DuQuantConfig) -> None:
    """Refuse a configuration that means nothing.

    Raises:
        OptionError: The message names the field, its value and what is allowed.
    """
    for name, allowed in _CHOICES.items():
        _demand(
            getattr(config, name) in allowed, config, name, f"must be one of {', '.join(map(repr, allowed))}"
        )
    for name, least in _COUNTS.items():
        value = getattr(config, name)
        _demand(_whole(value) and value >= least, config, name, f"must be a whole number of at least {least}")
        _demand(value <= _MOST.get(name, value), config, name, f"must be at most {_MOST.get(name)}")
    for name in _FLAGS:
        _demand(isinstance(getattr(config, name), bool), config, name, "must be True or False")
    for name in ("weight_bits", "act_bits"):
        _demand(_bits(getattr(config, name)), config, name, "must be 2 to 8, or 16 for no quantization")
    _check_numbers(config)
    _check_blocks(config)
    _check_lists(config)
    _check_together(config)


def check_layer(in_features: int, out_features: int, weight_bits: int) -> None:
    """Refuse a layer that cannot be.

    Raises:
        OptionError: The message names the argument.
    """
    for name, value in (("in_features", in_features), ("out_features", out_features)):
        if not _whole(value) or value < 1:
            raise OptionError(f"{name}={value!r} must be a whole number of at least 1")
    if not _bits(weight_bits):
        raise OptionError(f"weight_bits={weight_bits!r} must be 2 to 8, or 16 for no quantization")


def input_error(x: Tensor, features: int) -> MisuseError:
    """What is wrong with the input of a layer that takes rows of ``features`` numbers."""
    if x.is_floating_point():
        return MisuseError(f"the input has {x.shape[-1]} features, this layer takes {features}")
    return MisuseError(f"the input is {x.dtype}, this layer takes real floating point numbers")


def _check_numbers(config: DuQuantConfig) -> None:
    for name in ("weight_clip", "act_clip"):
        value = getattr(config, name)
        _demand(_number(value) and 0 < value <= 1, config, name, "must be over 0 and at most 1")
    value: Any = config.act_percentile
    _demand(_number(value) and 0 < value <= 100, config, "act_percentile", "must be over 0 and at most 100")
    alpha: Any = config.smooth_alpha
    _demand(
        alpha is None or (_number(alpha) and 0 <= alpha <= 1),
        config,
        "smooth_alpha",
        "must be 0 to 1, or None",
    )


def _check_blocks(config: DuQuantConfig) -> None:
    low, high = _BLOCKS
    for name in ("block_size", "block_out_size"):
        value: Any = getattr(config, name)
        if value is None and name == "block_out_size":
            continue
        good = value is not None and _whole(value) and low <= value <= high and value & (value - 1) == 0
        _demand(good, config, name, f"must be a power of two from {low} to {high}")
    size: Any = config.weight_group_size
    if config.weight_granularity == "group":
        good = _whole(size) and size >= 2 and config.block_size % size == 0
        _demand(good, config, "weight_group_size", f"must divide block_size={config.block_size}")
    else:
        _demand(size is None, config, "weight_group_size", "needs weight_granularity='group'")


def _check_lists(config: DuQuantConfig) -> None:
    pairs: Any = config.layer_bits
    good = isinstance(pairs, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs)
    _demand(good, config, "layer_bits", "must be a tuple of (pattern, bits)")
    check_patterns("layer_bits", [pair[0] for pair in pairs])
    for pattern, bits in pairs:
        if not _bits(bits):
            raise OptionError(f"layer_bits: {pattern!r} has {bits!r} bits; 2 to 8, or 16 for no quantization")
    groups: Any = config.groups
    good = isinstance(groups, tuple) and all(
        isinstance(group, tuple) and len(group) > 1 and all(isinstance(name, str) for name in group)
        for group in groups
    )
    _demand(good, config, "groups", "must be a tuple of tuples of at least two names")


def _check_together(config: DuQuantConfig) -> None:
    for name, unset, other, needed in _IDLE:
        idle = getattr(config, other) != needed and getattr(config, name) != unset
        _demand(not idle, config, name, f"has no effect without {other}={needed!r}")
    _demand(
        config.smooth_alpha is not None or not config.fold_smoothing, config, "fold_smoothing",
        "has nothing to fold with smooth_alpha=None",
    )  # fmt: skip
    scaling, granularity = config.act_scaling, config.act_granularity
    _demand(
        (granularity == "token") == (scaling == "dynamic"), config, "act_granularity",
        f"does not go with act_scaling={scaling!r}: 'token' is dynamic, 'tensor' and 'channel' are static",
    )  # fmt: skip
    if granularity == "channel":
        _demand(config.act_symmetric, config, "act_symmetric", "must be True with act_granularity='channel'")
        folds = config.fold_act_scale or config.path != "kernel" or config.act_bits == 16
        _demand(
            folds, config, "fold_act_scale",
            "must be True with path='kernel': a scale that varies along the summed dimension cannot leave an "
            "integer sum; take path='fused' for fake quantization",
        )  # fmt: skip
    if config.rotation == "svd":
        _demand(not config.shared_rotation, config, "shared_rotation", "must be False with rotation='svd'")
        one = config.permute_first or config.permutation == "none" or config.permutation_rounds == 0
        _demand(
            one,
            config,
            "permute_first",
            "must be True with rotation='svd': its basis is that of the last order",
        )
    if config.permute_first:
        _demand(
            config.permutation_rounds <= 1, config, "permutation_rounds", "must be 1 with permute_first=True"
        )


def _demand(condition: bool, config: DuQuantConfig, name: str, must: str) -> None:
    if not condition:
        raise OptionError(f"{name}={getattr(config, name)!r} {must}")


def _bits(value: Any) -> bool:
    return _whole(value) and value in _BITS


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
