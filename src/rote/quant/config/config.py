"""The configuration of DuQuant: one frozen object, kept as JSON."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_type_hints

from ...base import OptionError
from .checks import UNQUANTIZED, check
from .names import matches


@dataclass(frozen=True)
class DuQuantConfig:
    """How linear layers are transformed and quantized.

    Attributes:
        weight_bits: Bits of a weight, 2 to 8, or 16 to leave weights as they are.
        act_bits: Bits of an activation, 2 to 8, or 16 to leave activations as they are.
        layer_bits: Pairs of a name pattern and weight bits; the first that fits a layer replaces
            ``weight_bits``. 16 leaves the whole layer as it is.
        block_size: Channels that one rotation mixes, a power of two. Inputs are padded with zeros to a
            multiple.
        block_out_size: The same for row rotations; None takes ``block_size``.
        rotation: How rotations are made: ``"greedy"`` search over the activations, ``"hadamard"``, ``"svd"``
            of the weight's blocks, or ``"none"``.
        shared_rotation: One matrix for all blocks of a stage, or one per block.
        rotation_steps: Steps of the greedy search; the best prefix of them is kept.
        permutation: ``"zigzag"`` deals the channels by size to the blocks, ``"energy"`` alternates the
            largest and the smallest weight columns, ``"none"`` keeps the order and leaves one rotation.
        permutation_rounds: Permutations, at most 64. Each stands between two rotations, or before one.
        permute_first: Permute, then rotate (P R), and not rotate, permute, rotate (R P R).
        row_rotation: Rotate the weight's rows too, by the SVD of row blocks, and restore the output.
        transform_dtype: Type that rotations are rounded to, ``"float32"``, ``"bfloat16"`` or ``"float16"``;
            the weight absorbs the inverse of the rounded matrix. The transform is calculated in float32.
        smooth_alpha: Strength of smoothing, 0 to 1; None does none. 0.5 to 0.6 is usual.
        fold_smoothing: Fold the divisors of a group's input into the norm or linear layer before it, where
            calibration shows one whose output nothing else reads. A linear layer must be quantized in the
            same call. Other layers divide their inputs and have ``fold_smoothing=False`` in their
            configuration; the report says why.
        weight_symmetric: Without a zero point.
        weight_granularity: One scale per ``"tensor"``, ``"channel"`` (row), or ``"group"`` of a row.
        weight_group_size: Columns in such a group; divides ``block_size``.
        weight_range: ``"minmax"``, ``"mse"`` (search of the clipping ratio per row), ``"grid"`` (the coarse
            search of the policy variant), or ``"learned"`` (clipping trained on the layer's output).
        weight_clip: Factor on the weight's range, with ``weight_range="minmax"``.
        act_scaling: ``"dynamic"`` (from each call's tokens) or ``"static"`` (from calibration).
        act_symmetric: Without a zero point.
        act_granularity: One scale per ``"token"`` (dynamic), ``"tensor"`` or ``"channel"`` (static).
        act_range: ``"max"``, ``"percentile"`` or ``"mse"``, for static scales.
        act_percentile: Percentile of absolute values, over 0 and at most 100, with
            ``act_range="percentile"``.
        act_clip: Factor on the activation's range. 0.9 helps with 4 bits and hurts with 6 and more.
        fold_act_scale: Multiply static per-channel scales into the weight before it is quantized, which
            integer arithmetic needs. Without it the layer is fake quantization.
        calib_batches: Batches that calibration takes, exactly.
        sample_rows: Input rows per layer kept from calibration for searches and the report.
        share_groups: Layers of a group (q, k, v; gate, up) share one transform.
        fuse_groups: Layers of a group are also calculated in one launch, where ``path="kernel"`` and the
            model calls them with the same tensor (see :func:`~..fuse_`). With ``path="fused"`` one launch
            transforms them, if each has its own transform and static scales.
        groups: The last names of layers that form groups when they are siblings.
        path: How layers are calculated: ``"reference"`` (readable), ``"fused"`` (floating point, fast),
            ``"kernel"`` (integers).
        seed: Seed of the random completions.
    """

    weight_bits: int = 4
    act_bits: int = 8
    layer_bits: tuple[tuple[str, int], ...] = ()
    block_size: int = 128
    block_out_size: int | None = None
    rotation: Literal["greedy", "hadamard", "svd", "none"] = "greedy"
    shared_rotation: bool = True
    rotation_steps: int = 256
    permutation: Literal["zigzag", "energy", "none"] = "zigzag"
    permutation_rounds: int = 1
    permute_first: bool = False
    row_rotation: bool = False
    transform_dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    smooth_alpha: float | None = 0.6
    fold_smoothing: bool = False
    weight_symmetric: bool = False
    weight_granularity: Literal["tensor", "channel", "group"] = "channel"
    weight_group_size: int | None = None
    weight_range: Literal["minmax", "mse", "grid", "learned"] = "mse"
    weight_clip: float = 1.0
    act_scaling: Literal["dynamic", "static"] = "dynamic"
    act_symmetric: bool = False
    act_granularity: Literal["token", "tensor", "channel"] = "token"
    act_range: Literal["max", "percentile", "mse"] = "max"
    act_percentile: float = 99.9
    act_clip: float = 1.0
    fold_act_scale: bool = True
    calib_batches: int = 32
    sample_rows: int = 256
    share_groups: bool = True
    fuse_groups: bool = True
    groups: tuple[tuple[str, ...], ...] = (
        ("q_proj", "k_proj", "v_proj"),
        ("query", "key", "value"),
        ("gate_proj", "up_proj"),
        ("w1", "w3"),
    )
    path: Literal["reference", "fused", "kernel"] = "kernel"
    seed: int = 0

    def __post_init__(self) -> None:
        check(self, _kinds())

    @classmethod
    def vla(cls, **changes: Any) -> DuQuantConfig:
        """The variant that public forks of openpi use for policies.

        Rotation from the SVD of the weight's blocks after an energy permutation, row rotation with output
        restore, static per-channel percentile scales, symmetric grids. Its scales vary along the summed
        dimension, so it is fake quantization; with ``path="kernel"`` they are folded into the weight, which
        changes the numbers a little.
        """
        config = cls(
            block_size=16, rotation="svd", shared_rotation=False, permutation="energy", permute_first=True,
            row_rotation=True, smooth_alpha=None, weight_symmetric=True,
            weight_range="grid", act_scaling="static",
            act_symmetric=True, act_granularity="channel", act_range="percentile", act_percentile=99.9,
            fold_act_scale=changes.get("path") == "kernel", share_groups=False, path="fused",
        )  # fmt: skip
        return config.replace(**changes)

    def replace(self, **changes: Any) -> DuQuantConfig:
        """The same with some fields changed.

        Raises:
            OptionError: A name is unknown or a value impossible.
        """
        _known(changes)
        return replace(self, **changes)

    def bits_of(self, name: str) -> int:
        """The weight bits of a layer."""
        return next((bits for pattern, bits in self.layer_bits if matches(pattern, name)), self.weight_bits)

    def group_of(self, name: str) -> int | str:
        """The index of the group of a layer with this last name, or the name if it is in none."""
        return next((i for i, group in enumerate(self.groups) if name in group), name)

    @property
    def needs_activations(self) -> bool:
        """Whether the transform depends on activations, so that calibration has to come first."""
        searched = self.rotation == "greedy" or (self.permutation == "zigzag" and self.permutation_rounds > 0)
        return searched or self.smooth_alpha is not None

    @property
    def needs_calibration(self) -> bool:
        """Whether statistics are needed at all."""
        static = self.act_bits < UNQUANTIZED and self.act_scaling == "static"
        return self.needs_activations or static or self.weight_range == "learned"

    def to_json(self) -> str:
        """All fields, as one line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> DuQuantConfig:
        """The configuration that :meth:`to_json` wrote.

        Raises:
            OptionError: The text is no JSON object, a name is unknown or a value impossible.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise OptionError(f"a DuQuant configuration must be a JSON object: {error}") from error
        if not isinstance(values, dict):
            raise OptionError(f"a DuQuant configuration must be a JSON object, not {type(values).__name__}")
        _known(values)
        return cls(**{name: _tuples(value) for name, value in values.items()})

    @property
    def digest(self) -> str:
        """A hash of all fields that shape a layer's numbers.

        ``path``, ``fuse_groups`` and the size of calibration do not.
        """
        free = ("path", "fuse_groups", "calib_batches", "sample_rows")
        kept = {k: v for k, v in asdict(self).items() if k not in free}
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


@functools.cache
def _kinds() -> dict[str, Any]:
    return get_type_hints(DuQuantConfig)


def _known(values: Mapping[Any, Any]) -> None:
    names = [field.name for field in fields(DuQuantConfig)]
    for name in values:
        if name not in names:
            raise OptionError(f"{name} is no field of DuQuantConfig; the fields are {', '.join(names)}")


def _tuples(value: Any) -> Any:
    """JSON knows lists only, the configuration tuples only."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
