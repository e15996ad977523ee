"""The statistics of a calibration, in batches, and their file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from ...base import MisuseError
from ..config import DuQuantConfig
from ..numerics import Chain
from ..saving import storage
from .layer_stats import LayerStats, add_counts, are_counts, is_count

FORMAT = "rote.quant.calibrating.calibration"
_TENSORS = ("peak", "rows", "keys", "bounds", "columns")

Sources = dict[str, dict[str, int]]
"""For every linear layer, how often its input came from each norm or linear layer."""


@dataclass
class Batch:
    """What has been seen since the last batch ended; it counts once this one ends."""

    layers: dict[str, LayerStats] = field(default_factory=dict[str, LayerStats])
    sources: Sources = field(default_factory=dict[str, dict[str, int]])


@dataclass
class CalibrationStats:
    """What calibration has seen, in whole batches.

    Attributes:
        config: What it was taken for.
        wanted: Batches asked for.
        sources: With ``fold_smoothing``, for every linear layer how often its input came from each norm or
            linear layer; names behind :data:`~.folding.OTHERS` are other readers of outputs.
        groups: The groups behind whose transforms bounds were taken; empty if none were.
        begun: The batch that has not ended; it is not saved.
        closing: Called before a batch counts.
    """

    config: DuQuantConfig
    wanted: int
    batches: int = 0
    layers: dict[str, LayerStats] = field(default_factory=dict[str, LayerStats])
    groups: list[list[str]] = field(default_factory=list[list[str]])
    sources: Sources = field(default_factory=dict[str, dict[str, int]])
    begun: Batch = field(default_factory=Batch, repr=False, compare=False)
    closing: Callable[[], None] | None = field(default=None, repr=False, compare=False)

    def observe(
        self, name: str, x: Tensor, transform: Chain | None, leader: str, columns: Tensor | None
    ) -> None:
        """Take in the input of a layer; ``leader`` was the first layer to get it."""
        layer = self.begun.layers.setdefault(name, LayerStats.empty(x.shape[-1]))
        before = self.layers[name].calls if name in self.layers else 0
        layer.observe(x, self.config, transform, before=before, columns=columns)
        add_counts(layer.leaders, {leader: 1})

    def came_from(self, layer: str, source: str) -> None:
        """Note that an input of a layer is the output of a norm or of another layer."""
        add_counts(self.begun.sources.setdefault(layer, {}), {source: 1})

    @property
    def done(self) -> bool:
        """Whether all batches have been seen; later ones are ignored."""
        return self.batches >= self.wanted

    def end_batch(self) -> None:
        """Count a batch; for models that are not called as such, see :class:`~..calibrate`."""
        if self.closing is not None:
            self.closing()
        self.batches += 1
        self._take(self.begun.layers, self.begun.sources)
        self.begun = Batch()

    def skip_batch(self) -> None:
        """Forget what was seen since the last batch ended."""
        self.begun = Batch()

    def _take(self, layers: dict[str, LayerStats], sources: Sources) -> None:
        for reader, counts in sources.items():
            add_counts(self.sources.setdefault(reader, {}), counts)
        for name, layer in layers.items():
            mine = self.layers.setdefault(name, LayerStats.empty(len(layer.peak)))
            if len(mine.peak) != len(layer.peak):
                raise MisuseError(
                    f"layer {name!r} had {len(mine.peak)} input features in one calibration and "
                    f"{len(layer.peak)} in another"
                )
            mine.merge(layer, self.config.sample_rows)

    @classmethod
    def combine(cls, parts: Iterable[CalibrationStats]) -> CalibrationStats:
        """The statistics of several calibrations, of other batches or layers.

        Raises:
            MisuseError: There are none, or they were taken for different configurations.
        """
        parts = list(parts)
        if not parts:
            raise MisuseError("combine needs at least one calibration")
        first = parts[0]
        result = cls(first.config, 0)
        for part in parts:
            part.check(first.config)
            result.wanted += part.wanted
            result.batches += part.batches
            result.groups += [group for group in part.groups if group not in result.groups]
            result._take(part.layers, part.sources)
        return result

    def check(self, config: DuQuantConfig) -> None:
        """Refuse another configuration.

        Raises:
            MisuseError: A field that the statistics depend on differs; the message names it.
        """
        for name in _dependent(config):
            was, now = getattr(self.config, name), getattr(config, name)
            if was != now:
                raise MisuseError(
                    f"the statistics were taken with {name}={was!r} and are to be used with {name}={now!r}; "
                    "calibrate again"
                )

    def save(self, path: str | Path) -> None:
        """Write everything to a safetensors file."""
        tensors: dict[str, Tensor] = {}
        layers: dict[str, Any] = {}
        for name, layer in self.layers.items():
            layers[name] = {"calls": layer.calls, "count": layer.count, "leaders": layer.leaders}
            for key in _TENSORS:
                value = getattr(layer, key)
                if value is not None:
                    tensors[f"{name}:{key}"] = value
        content = {
            "format": FORMAT, "config": self.config.to_json(), "layers": layers, "wanted": self.wanted,
            "batches": self.batches, "groups": self.groups, "sources": self.sources,
        }  # fmt: skip
        storage.write(path, tensors, content)

    @classmethod
    def load(cls, path: str | Path) -> CalibrationStats:
        """Read what :meth:`save` wrote.

        Raises:
            MisuseError: The file is damaged, or something else.
        """
        tensors, content = storage.read(path)
        if content.get("format") != FORMAT:
            raise MisuseError(f"{path}: is no calibration: its format is {content.get('format')!r}")
        try:
            config = DuQuantConfig.from_json(content["config"])
            stats = cls(config, content["wanted"], content["batches"], groups=content["groups"])
            stats.sources = content["sources"]
            for name, values in content["layers"].items():
                kept = {key: tensors.get(f"{name}:{key}") for key in _TENSORS}
                stats.layers[name] = LayerStats(**values, **cast(Any, kept))
            stats._check_parts()
        except (KeyError, TypeError, AttributeError, MisuseError) as error:
            raise MisuseError(f"{path}: is a damaged calibration: {error}") from error
        return stats

    def _check_parts(self) -> None:
        """Refuse what no calibration gives."""
        groups: Any = self.groups
        sources: Any = self.sources
        good = {
            "wanted": is_count(self.wanted),
            "batches": is_count(self.batches),
            "groups": isinstance(groups, list) and all(map(_are_names, groups)),
            "sources": isinstance(sources, dict) and all(map(are_counts, sources.values())),
        }
        for name, fine in good.items():
            if not fine:
                raise MisuseError(f"{name} cannot be {getattr(self, name)!r}")
        for name, layer in self.layers.items():
            part = layer.wrong_part(self.config.block_size)
            if part is not None:
                raise MisuseError(f"{part} of {name!r} cannot be as it is")

    def __str__(self) -> str:
        lines = [f"calibration: {self.batches} of {self.wanted} batches, {len(self.layers)} layers"]
        for name, layer in self.layers.items():
            typical = layer.peak.median().item() if len(layer.peak) else 0.0
            largest = layer.peak.max().item() if len(layer.peak) else 0.0
            text = f"{layer.calls} calls, {layer.count} rows, channel peaks {typical:.3g} (median)"
            lines.append(f"  {name}: {text}, {largest:.3g} (largest)")
        return "\n".join(lines)


def _dependent(config: DuQuantConfig) -> list[str]:
    """The fields that statistics depend on: whether sources are followed, and what bounds are taken of."""
    folds = ["fold_smoothing"] if config.fold_smoothing else []
    if config.act_scaling != "static" or config.needs_activations:
        return [*folds, "act_scaling"] if config.act_scaling == "static" else folds
    return [
        "act_scaling", "act_range", "act_percentile", "block_size", "rotation", "shared_rotation",
        "permutation", "permutation_rounds", "permute_first", "transform_dtype", "share_groups", "seed",
    ]  # fmt: skip


def _are_names(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
