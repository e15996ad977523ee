"""The quantized layer.

Everything it needs is a buffer from construction on: a layer fresh from its constructor has the keys and
shapes of a calibrated one, and either loads the other's ``state_dict`` strictly. ``forward`` reads nothing
back to the host, changes nothing on the module, allocates nothing that outlives the call, and has one shape
for one shape of input; so it can be captured, traced and replayed.

A layer keeps its weight once, as codes in the layout that the kernels read; a ``state_dict`` has them in the
plain format of checkpoints and is converted on its way in and out. Only the ``fused`` path adds the weight
that they stand for, in the type of the layer. Like the sums of the codes, it is no part of the state and is
made again when the state is loaded or moved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from ...base import OptionError
from ..config import UNQUANTIZED, DuQuantConfig, check_layer, input_error
from ..kernels import obstacle as transform_obstacle
from ..numerics import (
    PACKED_BITS,
    Grid,
    QuantizedWeight,
    codes_of,
    dense_weight,
    layout,
    layout_shape,
    pack,
    pad_columns,
    padded,
    restore_rows,
    rotation_dtype,
    row_parameters,
    unpack,
)
from . import gradients as gradients  # registers the gradient of the operator
from .buffers import FixedTypes, InputTransform

PATHS = ("reference", "fused", "kernel")
KERNEL_FLOATS = (torch.bfloat16, torch.float16)
"""Types that kernels multiply without quantizing them; float32 is none."""

_DERIVED = ("dense", "marker", "weight_sums")


class DuQuantLinear(FixedTypes):
    """A linear layer with a transformed, quantized input and weight.

    Args:
        in_features: Width of the input.
        out_features: Width of the output.
        config: How it is transformed and quantized.
        bias: With a bias.
        weight_bits: 2 to 8, or 16 to keep the weight; None takes the configuration's.
        transform: Transform shared with other layers; None makes one.
        device: Where the buffers are.
        dtype: Type of the bias, of the ``fused`` path's dense weight, and of a weight that is not quantized.

    Raises:
        OptionError: A size or ``weight_bits`` cannot be.
    """

    free_buffers = frozenset({"bias", "dense", "weight_codes", "marker"})
    weight_codes: Tensor
    weight_scale: Tensor | None
    weight_zero: Tensor | None
    weight_sums: Tensor | None
    act_scale: Tensor | None
    act_zero: Tensor | None
    row_rotation: Tensor | None
    bias: Tensor | None
    dense: Tensor | None
    marker: Tensor
    """Not a number; its type and device are the layer's."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        config: DuQuantConfig,
        *,
        bias: bool = True,
        weight_bits: int | None = None,
        transform: InputTransform | None = None,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features, self.config = in_features, out_features, config
        self.weight_bits = config.weight_bits if weight_bits is None else weight_bits
        check_layer(in_features, out_features, self.weight_bits)
        self.transform = transform or InputTransform(in_features, config, device)
        self.path: str = config.path
        if self.path == "kernel" and self.weight_bits >= UNQUANTIZED:
            self.path = "fused"  # there are no integers to multiply
        for name, tensor in self._skeleton(bias, device, dtype or torch.get_default_dtype()).items():
            self.register_buffer(name, tensor, persistent=name not in _DERIVED)
        self.register_load_state_dict_post_hook(_refresh)

    def _skeleton(self, bias: bool, device: Any, dtype: torch.dtype) -> dict[str, Tensor | None]:
        config, width = self.config, self.transform.width
        block = config.block_out_size or config.block_size
        rows = padded(self.out_features, block) if config.row_rotation else self.out_features
        groups = width // config.weight_group_size if config.weight_group_size else 1
        static = config.act_scaling == "static" and config.act_bits < UNQUANTIZED
        channels = width if config.act_granularity == "channel" else 1
        quantized = self.weight_bits < UNQUANTIZED
        shape = layout_shape(rows, width, self.weight_bits) if quantized else (rows, width)
        exact: Any = {"device": device, "dtype": torch.float32}  # also under another default type of torch
        whole: Any = {"device": device, "dtype": torch.int32}
        free: Any = {"device": device, "dtype": dtype}
        eye = torch.eye(block, device=device, dtype=rotation_dtype(config))
        return {
            "weight_codes": torch.zeros(shape, device=device, dtype=torch.int8 if quantized else dtype),
            "weight_scale": torch.ones(rows, groups, **exact) if quantized else None,
            "weight_zero": torch.zeros(rows, groups, device=device, dtype=torch.int8) if quantized else None,
            "weight_sums": torch.zeros(rows, groups, **whole) if quantized else None,
            "act_scale": torch.ones(channels, **exact) if static else None,
            "act_zero": torch.zeros(1, **whole) if static and channels == 1 else None,
            "row_rotation": eye.repeat(rows // block, 1, 1) if config.row_rotation else None,
            "bias": torch.zeros(self.out_features, **free) if bias else None,
            "dense": torch.zeros(self.out_features, width, **free) if self._is_dense else None,
            "marker": torch.full((1, 1), torch.nan, **free),
        }

    @property
    def _is_dense(self) -> bool:
        return self.path == "fused" and self.weight_bits < UNQUANTIZED

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output.

        Args:
            x: Of shape ``(..., in_features)``.

        Returns:
            Of shape ``(..., out_features)``, in the type of ``x`` (of autocast, where it is on).
        """
        return self.outside_autocast(x, self._run)

    def outside_autocast(self, x: Tensor, run: Callable[[Tensor], Any]) -> Any:
        """Do something with an input of this layer, in the type of autocast where that is on."""
        if x.shape[-1] != self.in_features or not x.is_floating_point():
            raise input_error(x, self.in_features)
        kind = x.device.type
        if kind != "meta" and torch.is_autocast_enabled(kind):
            with torch.autocast(kind, enabled=False):
                return run(x.to(torch.get_autocast_dtype(kind)))
        return run(x)

    def _run(self, x: Tensor) -> Tensor:
        if self.path == "kernel":
            ops = torch.ops.rote_quant
            return (ops.linear if wants_gradient(x) else ops.linear_forward)(x, *self.operands())
        if self.goes_fast(x):
            return self.multiplied(torch.ops.rote_quant.rounded_rows(x, *self.operands()[:8]), x)
        rows = pad_columns(x.reshape(-1, self.in_features), self.transform.width)
        dense = self.dense  # of the fused path; has absorbed scales of channels and the row rotation
        if self.path == "reference":
            rows = self.transform.reference(rows)
            weight = self.weight_values().to(rows)
        else:
            rows = self.transform.chain().apply(rows)
            weight = self.weight_codes if dense is None else dense
        codes = self.folds or (dense is not None and self._per_channel)
        y = F.linear(self.on_grid(rows, codes=codes).to(weight.dtype), weight)
        rotation = self.row_rotation if dense is None else None
        y = restore_rows(y.to(rows.dtype), rotation, self.bias, self.out_features)
        return y.to(x.dtype).reshape(*x.shape[:-1], self.out_features)

    def goes_fast(self, x: Tensor) -> bool:
        """Whether the fused path does everything before the product in one launch.

        That launch has no gradient, and only with rotations in float32 gives the numbers of torch.
        """
        if self.path != "fused" or not x.is_cuda or self.config.act_bits >= UNQUANTIZED or wants_gradient(x):
            return False
        held = self._buffers  # attributes take a microsecond each, and this is before every call
        dense, kind = held["dense"], cast(Tensor, held["marker"]).dtype
        if x.dtype != kind or kind not in KERNEL_FLOATS:
            return False
        restored = dense is not None or held["row_rotation"] is None
        scaled = dense is not None or self.folds or not self._per_channel
        return restored and scaled and self.transform.is_exact

    def multiplied(self, rows: Tensor, x: Tensor) -> Tensor:
        """The fused path's output for ``x`` from its rounded rows, of shape ``(rows, width)``."""
        held = self._buffers
        weight = cast(Tensor, held["weight_codes" if held["dense"] is None else "dense"])
        y = F.linear(rows, weight, held["bias"])
        return y.reshape(*x.shape[:-1], self.out_features)

    def on_grid(self, rows: Tensor, *, codes: bool = False) -> Tensor:
        """What the codes of transformed rows stand for; or the codes, with scales left to the weight."""
        if self.config.act_bits >= UNQUANTIZED:
            return rows
        grid, scale, zero = self.grid_for(rows)
        return (grid.codes if codes and self.act_scale is not None else grid.fake)(rows, scale, zero)

    def grid_for(self, rows: Tensor) -> tuple[Grid, Tensor, Tensor]:
        """The grid of transformed rows, with their scales and zero points."""
        grid = Grid(self.config.act_bits, self.config.act_symmetric)
        if self.act_scale is None:
            return grid, *row_parameters(rows, grid, self.config.act_clip)
        return grid, self.act_scale, rows.new_zeros(()) if self.act_zero is None else self.act_zero

    @property
    def weight(self) -> Tensor:
        """Shape, type and device of the dense weight, without memory; see :meth:`effective_weight`."""
        return self.marker.expand(self.out_features, self.in_features)

    @property
    def folds(self) -> bool:
        """Whether static scales per channel were multiplied into the weight before it was quantized."""
        return self._per_channel and self.config.fold_act_scale

    @property
    def _per_channel(self) -> bool:
        return self.act_scale is not None and self.config.act_granularity == "channel"

    def operands(self) -> tuple[Any, ...]:
        """What ``torch.ops.rote_quant.linear`` takes behind the input."""
        turn, config, held = self.transform, self.config, self._buffers  # attributes take a microsecond each
        return (
            turn.smooth, turn.stages, turn.width,
            config.act_bits, config.act_symmetric, config.act_clip, held["act_scale"], held["act_zero"],
            held["weight_codes"], held["weight_scale"], self.zero, held["weight_sums"],
            held["row_rotation"], held["bias"], self.out_features,
        )  # fmt: skip

    @property
    def zero(self) -> Tensor | None:
        """Zero points of the weight, or None where they are all 0 by configuration."""
        return None if self.config.weight_symmetric else self.weight_zero

    @property
    def _rows(self) -> int:
        """Rows of the transformed weight."""
        return self.out_features if self.row_rotation is None else self.row_rotation[:, 0].numel()

    def codes(self) -> Tensor:
        """The codes of the transformed weight, int8, of shape ``(rows, width)``."""
        if self.weight_bits >= UNQUANTIZED:
            raise OptionError("the weight of this layer has 16 bits, and no codes")
        if self._is_plain:
            return unpack(self.weight_codes, self.weight_bits)
        return codes_of(self.weight_codes, self.transform.width)

    def weight_values(self) -> Tensor:
        """The transformed weight: float32 from codes, or as it is with 16 bits."""
        if self.weight_bits >= UNQUANTIZED:
            return self.weight_codes
        assert self.weight_scale is not None
        return dense_weight(self.weight_codes, self.weight_scale, self.zero, self.transform.width)

    @torch.no_grad()
    def effective_weight(self) -> Tensor:
        """The dense weight ``(out_features, in_features)``, at least float32, that this layer stands for."""
        weight = self.weight_values()
        if self.folds:
            weight = weight / cast(Tensor, self.act_scale)
        if self.row_rotation is not None:
            weight = restore_rows(weight.T, self.row_rotation, None, self.out_features).T
        return self.transform.chain().transposed(weight)[:, : self.in_features]

    @torch.no_grad()
    def fill(self, weight: Tensor | QuantizedWeight) -> None:
        """Take over a transformed weight: quantized, or as it is with 16 bits."""
        if isinstance(weight, QuantizedWeight):
            assert self.weight_scale is not None and self.weight_zero is not None
            self.weight_codes.copy_(layout(weight.codes, weight.bits))
            self.weight_scale.copy_(weight.scale)
            self.weight_zero.copy_(weight.zero)
        else:
            self.weight_codes.copy_(weight)
        self.refresh()

    def set_path(self, path: str) -> None:
        """Choose how the layer is calculated.

        Raises:
            OptionError: There is no such path, or it does not fit the layer.
        """
        if path not in PATHS:
            raise OptionError(f"path={path!r} must be one of {', '.join(map(repr, PATHS))}")
        if path == "kernel" and self.weight_bits >= UNQUANTIZED:
            raise OptionError("path='kernel' needs a quantized weight, and this layer's has 16 bits")
        self.config = self.config.replace(path=path)
        self.path = path
        self.refresh()

    def refresh(self) -> None:
        """Make again what is derived from the state."""
        with torch.inference_mode(self.weight_codes.is_inference()), torch.no_grad():
            if self.weight_sums is not None:
                if self._is_plain:
                    self.weight_codes = layout(self.codes(), self.weight_bits)
                parts = self.codes().reshape(*self.weight_sums.shape, -1)
                self.weight_sums.copy_(parts.sum(-1, dtype=torch.int32))
            self.dense = None
            if self._is_dense:
                weight = self.weight_values()
                if self._per_channel and not self.folds:
                    weight = weight * cast(Tensor, self.act_scale)
                if self.row_rotation is not None:  # restoring the output is linear, too
                    columns = weight.double().T
                    weight = restore_rows(columns, self.row_rotation, None, self.out_features).T
                self.dense = weight.to(self.marker.dtype, memory_format=torch.contiguous_format)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> DuQuantLinear:
        super()._apply(fn, recurse)
        if self.dense is not None and not self.dense.is_meta:
            self.refresh()
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.weight_bits < UNQUANTIZED:
            destination[f"{prefix}weight_codes"] = pack(self.codes(), self.weight_bits)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: list[str],
        unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        name = f"{prefix}weight_codes"
        plain = state_dict.get(name)
        if self.weight_bits < UNQUANTIZED and not self._is_plain and isinstance(plain, Tensor):
            packed = self.weight_bits <= PACKED_BITS
            shape = (self._rows, self.transform.width // 2 if packed else self.transform.width)
            kind = torch.uint8 if packed else torch.int8
            if plain.shape == shape and plain.dtype == kind:
                state_dict = {**state_dict, name: layout(unpack(plain, self.weight_bits), self.weight_bits)}
            else:
                error_msgs.append(
                    f"{name} must be {kind} of shape {shape}, not {plain.dtype} of shape {tuple(plain.shape)}"
                )
                state_dict = {**state_dict, name: self.weight_codes}
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    @property
    def _is_plain(self) -> bool:
        return self.weight_bits < UNQUANTIZED and self.weight_codes.dim() == 2

    def hold_plain(self) -> None:
        """Hold the codes as checkpoints have them until :meth:`refresh`, for loaders that assign by name."""
        if self.weight_bits < UNQUANTIZED:
            self.weight_codes = pack(self.codes(), self.weight_bits)

    @property
    def note(self) -> str:
        """What ``path="kernel"`` leaves to torch on a GPU, and why; empty for nothing."""
        if self.config.path == "kernel" and self.weight_bits >= UNQUANTIZED:
            return "path='fused': a weight of 16 bits has no integers to multiply"
        if self.path != "kernel":
            return ""
        if self.weight_scale is not None and self.weight_scale.shape[1] > 1:
            return "all through torch: scales for groups of columns leave no single integer sum"
        if self.config.act_bits >= UNQUANTIZED and self.marker.dtype not in KERNEL_FLOATS:
            return f"all through torch: kernels take no {self.marker.dtype} that is not quantized"
        chains = [("transform", self.transform.stages, self.transform.width)]
        if self.row_rotation is not None:
            chains.append(("row rotation", [self.row_rotation], self._rows))
        found = [(what, transform_obstacle(stages, width)) for what, stages, width in chains]
        parts = [f"{what} ({obstacle})" for what, obstacle in found if obstacle]
        return f"through torch: {' and '.join(parts)}" if parts else ""

    def extra_repr(self) -> str:
        """Sizes, bits and path."""
        bits = f"W{self.weight_bits}A{self.config.act_bits}"
        sizes = f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"
        return f"{sizes}, {bits}, path={self.path!r}"


def wants_gradient(x: Tensor) -> bool:
    """Whether autograd may ask for the gradient of an input."""
    return torch.is_grad_enabled() and x.requires_grad


def _refresh(module: torch.nn.Module, keys: object) -> None:
    cast(DuQuantLinear, module).refresh()
