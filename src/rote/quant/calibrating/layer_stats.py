"""Statistics of one layer's input.

Statistics of batches are merged so that order and split do not matter: counts are added, and of peaks and of
percentiles, taken call by call, the largest stays. Each row gets a random number, and the rows with the
``sample_rows`` smallest stay: a uniform sample of everything seen, whatever is merged with what.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..config import DuQuantConfig, is_whole
from ..numerics import Chain, bounds_of, pad_columns, padded


@dataclass
class LayerStats:
    """Statistics of one layer's input.

    Attributes:
        peak: The largest absolute value of every channel, of shape ``(in,)``.
        rows: A uniform sample of the rows, float32, of shape ``(kept, in)``.
        keys: The random number of each, of shape ``(kept,)``.
        bounds: Smallest and largest value of every transformed channel that a static scale has to cover, of
            shape ``(2, width)``; None where the transform is only known after calibration.
        leaders: How often each layer was the first to get the very same input.
        columns: For each column, its feature of the module that the input came from, of shape ``(in,)``; None
            without such a module, where it varies, or where nobody asked.
    """

    calls: int
    count: int
    peak: Tensor
    rows: Tensor
    keys: Tensor
    bounds: Tensor | None = None
    leaders: dict[str, int] = field(default_factory=dict[str, int])
    columns: Tensor | None = None

    @classmethod
    def empty(cls, features: int) -> LayerStats:
        """Nothing seen yet."""
        peak, rows = (torch.zeros(*shape, features, dtype=torch.float32) for shape in ((), (0,)))
        return cls(0, 0, peak, rows, torch.zeros(0, dtype=torch.float64))

    def observe(
        self, x: Tensor, config: DuQuantConfig, transform: Chain | None, *, before: int = 0,
        columns: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Take in the input of one call, of shape ``(..., in)``, after ``before`` calls seen elsewhere."""
        rows = x.detach().reshape(-1, x.shape[-1]).float()
        # Seeded by the call and its content: separate calibrations must not draw the same numbers.
        content = int(rows.double().sum().view(torch.int64)) if len(rows) else 0
        call = before + self.calls
        generator = torch.Generator().manual_seed((config.seed + (call << 20)) ^ abs(content))
        keys = torch.rand(len(rows), generator=generator, dtype=torch.float64)
        seen = LayerStats.empty(rows.shape[1])
        seen.calls, seen.count, seen.columns = 1, len(rows), columns
        if len(rows):
            seen.peak = rows.abs().amax(0).cpu()
            kept = keys.argsort(stable=True)[: config.sample_rows]
            seen.rows, seen.keys = rows[kept.to(rows.device)].cpu(), keys[kept]
            if transform is not None:
                wide = pad_columns(rows, padded(rows.shape[1], config.block_size))
                seen.bounds = torch.stack(bounds_of(transform.apply(wide), config)).float().cpu()
        self.merge(seen, config.sample_rows)

    def merge(self, other: LayerStats, limit: int) -> None:
        """Add another's statistics, and keep at most ``limit`` rows."""
        if not self.count:
            self.columns = other.columns
        elif other.count and self.columns is not None:
            same = other.columns is not None and torch.equal(self.columns, other.columns)
            self.columns = self.columns if same else None
        self.calls += other.calls
        self.count += other.count
        self.peak = torch.maximum(self.peak, other.peak)
        keys = torch.cat([self.keys, other.keys])
        kept = keys.argsort(stable=True)[:limit]
        self.rows, self.keys = torch.cat([self.rows, other.rows])[kept], keys[kept]
        if other.bounds is not None:
            mine = other.bounds if self.bounds is None else self.bounds
            low, high = torch.minimum(mine[0], other.bounds[0]), torch.maximum(mine[1], other.bounds[1])
            self.bounds = torch.stack([low, high])
        add_counts(self.leaders, other.leaders)

    def wrong_part(self, block: int) -> str | None:
        """The first attribute that no calibration gives, with rotations of that block size."""
        features, kept, bounds, columns = self.peak.numel(), len(self.rows), self.bounds, self.columns
        width = padded(features, block)
        parts = {
            "calls": is_count(self.calls),
            "count": is_count(self.count) and self.count >= kept,
            "leaders": are_counts(self.leaders),
            "peak": _numbers(self.peak, (features,)) and bool((self.peak >= 0).all()),
            "rows": _numbers(self.rows, (kept, features)),
            "keys": _numbers(self.keys, (kept,), torch.float64),
            "bounds": bounds is None
            or (_numbers(bounds, (2, width)) and bool((bounds[0] <= bounds[1]).all())),
            "columns": columns is None
            or (_numbers(columns, (features,), torch.int32) and bool((columns >= 0).all())),
        }
        return next((part for part, fine in parts.items() if not fine), None)


def is_count(value: Any) -> bool:
    """Whether a value from a file counts something."""
    return is_whole(value) and value >= 0


def add_counts(total: dict[str, int], more: Mapping[str, int]) -> None:
    """Add counts by name."""
    for name, times in more.items():
        total[name] = total.get(name, 0) + times


def are_counts(values: Any) -> bool:
    """Whether a value from a file has counts by name."""
    return isinstance(values, dict) and all(isinstance(k, str) and is_count(v) for k, v in values.items())


def _numbers(values: Tensor, shape: tuple[int, ...], kind: torch.dtype = torch.float32) -> bool:
    return values.shape == shape and values.dtype == kind and bool(values.isfinite().all())
