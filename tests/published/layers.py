"""Quantized layers whose users get "accessing tensor output of CUDAGraphs that has been overwritten".

They are fake quantization as public forks of openpi have it: a scale for each input channel from a percentile
of what comes in, weights that are rounded at the first call, a rotation block by block. Each class has one
habit of such layers, :class:`DuQuantLinear` has them all. ``keep`` is where a scale is kept; remedies replace
that.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, BLOCK = 32, 8
PERCENTILE = 0.999
CALIBRATION = 4
"""Calls until a calibrator is full."""


def fake_quantize(x: Tensor, scale: Tensor | float, bits: int) -> Tensor:
    most = 2 ** (bits - 1) - 1
    return (x / scale).round().clamp(-most - 1, most) * scale


class QuantLinear(nn.Module):
    """What the layers share: a weight, and activations that are rounded with the scale of ``scale_of``."""

    keeps_a_scale = True
    _act_scale: Tensor | None

    def __init__(self, name: str, act_bits: int = 8) -> None:
        super().__init__()
        self.name, self.act_bits = name, act_bits
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH**0.5)
        self._act_scale = None

    def keep(self, scale: Tensor) -> None:
        self._act_scale = scale

    @property
    def is_calibrated(self) -> bool:
        return self._act_scale is not None

    def percentile(self, x: Tensor) -> Tensor:
        found = torch.quantile(x.abs().float(), PERCENTILE, dim=0) / (2 ** (self.act_bits - 1) - 1)
        return found.clamp_min(1e-6)

    def scale_of(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        if self.act_bits >= 16:
            return F.linear(x, self.weight)
        return F.linear(fake_quantize(x, self.scale_of(x), self.act_bits), self.weight)


class Smoothed(QuantLinear):
    """A quantile in each call, mixed into the scale that the call before has kept."""

    def scale_of(self, x: Tensor) -> Tensor:
        scale = self.percentile(x)
        if self.is_calibrated:
            scale = 0.9 * self._act_scale + 0.1 * scale
        self.keep(scale)
        return scale


class FirstBatch(QuantLinear):
    """The scale is that of the first batch."""

    def scale_of(self, x: Tensor) -> Tensor:
        if not self.is_calibrated:
            self.keep(self.percentile(x))
        return self._act_scale


class Calibrator:
    """The largest percentiles of some batches."""

    def __init__(self) -> None:
        self.seen, self.largest = 0, None

    def observe(self, scale: Tensor) -> None:
        self.seen += 1
        self.largest = scale if self.largest is None else torch.maximum(self.largest, scale)

    def is_full(self) -> bool:
        return self.seen >= CALIBRATION


class Calibrated(QuantLinear):
    """A calibrator that is full after some calls; then the scale stays what it is."""

    def __init__(self, name: str, act_bits: int = 8) -> None:
        super().__init__(name, act_bits)
        self.calibrator = Calibrator()

    def scale_of(self, x: Tensor) -> Tensor:
        if not self.calibrator.is_full():
            self.calibrator.observe(self.percentile(x))
            self.keep(self.calibrator.largest)
        return self._act_scale


class WrittenView(QuantLinear):
    """Rows are copied into a view of a buffer that the layer keeps, and scaled there in place."""

    keeps_a_scale = False

    def __init__(self, name: str, act_bits: int = 8) -> None:
        super().__init__(name, act_bits)
        self.register_buffer("work", torch.zeros(64, WIDTH), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.work[: len(x)]
        rows.copy_(x)
        if self.act_bits < 16:
            for start in range(0, WIDTH, BLOCK):
                part = rows[:, start : start + BLOCK]
                scale = part.abs().amax() / (2 ** (self.act_bits - 1) - 1)
                part.div_(scale).round_().mul_(scale)
        return F.linear(rows, self.weight)


class NumpyPercentile(QuantLinear):
    """The percentiles are numpy's."""

    keeps_a_scale = False

    def scale_of(self, x: Tensor) -> Tensor:
        array = x.detach().abs().float().cpu().numpy()
        found = np.percentile(array, 100 * PERCENTILE, axis=0) / (2 ** (self.act_bits - 1) - 1)
        return torch.from_numpy(found).to(x)


class ArrayCalibrator(Calibrator):
    """The same in numpy, on the host."""

    def observe(self, scale: Tensor) -> None:
        self.seen += 1
        array = scale.detach().cpu().numpy()
        self.largest = array.copy() if self.largest is None else np.maximum(self.largest, array)


class DuQuantLinear(QuantLinear):
    """All of it: a calibrator in numpy, weights rounded at the first call, a rotation written in place."""

    def __init__(self, name: str, act_bits: int = 8) -> None:
        super().__init__(name, act_bits)
        self.calibrator = ArrayCalibrator()
        self.register_buffer("perm", torch.argsort(self.weight.detach().square().mean(0), descending=True))
        rotated, _ = torch.linalg.qr(torch.randn(WIDTH // BLOCK, BLOCK, BLOCK))
        self.register_buffer("blocks", rotated)
        self._weight_q = None

    def scale_of(self, x: Tensor) -> Tensor:
        if not self.calibrator.is_full():
            self.calibrator.observe(self.percentile(x))
            self.keep(torch.from_numpy(self.calibrator.largest).to(x.device))
        return self._act_scale

    def transform(self, x: Tensor) -> Tensor:
        y = x.index_select(-1, self.perm)
        for number, start in enumerate(range(0, WIDTH, BLOCK)):
            part = y[..., start : start + BLOCK]
            part.copy_(part @ self.blocks[number])
        return y

    def forward(self, x: Tensor) -> Tensor:
        if self._weight_q is None:
            weight = self.transform(self.weight.detach())
            self._weight_q = fake_quantize(weight, weight.abs().amax(1, keepdim=True) / 7, 4)
        x = self.transform(x)
        if self.act_bits < 16:
            x = fake_quantize(x, self.scale_of(x), self.act_bits)
        return F.linear(x, self._weight_q)


class Counted(FirstBatch):
    """Each call is counted under the layer's name."""

    def __init__(self, name: str, act_bits: int = 8) -> None:
        super().__init__(name, act_bits)
        self.calls = {}

    def forward(self, x: Tensor) -> Tensor:
        self.calls[self.name] = self.calls.get(self.name, 0) + 1
        return super().forward(x)


class QuantPolicy(nn.Module):
    """Two quantized layers of different names, as a policy has them."""

    def __init__(self, kind: type[QuantLinear], act_bits: int = 8) -> None:
        super().__init__()
        self.layers = nn.ModuleList([kind("expert.up_proj", act_bits), kind("expert.down_proj", act_bits)])

    def forward(self, x: Tensor) -> Tensor:
        up, down = self.layers
        return down(torch.tanh(up(x)))
