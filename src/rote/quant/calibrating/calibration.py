"""Calibration: ordinary forward passes of a model, watched.

    with calibrate(model, config) as stats:
        for batch in batches:
            model(**batch)

It looks at exactly ``calib_batches`` batches and ignores later ones. A batch is one call of the model itself;
where another method does the work (``policy.sample_actions``), say ``manual=True`` and call
``stats.end_batch()`` after each, or ``stats.skip_batch()`` after one that failed. Too few batches are an
error at the end of the block, which keeps what was seen. A call that raises is no batch, and nothing that it
saw counts.

The model does not change: there are hooks while the block runs, and none after it, however it ends. Compiled
code runs eagerly meanwhile, since it does not look for hooks. Where the transform is known beforehand (from
the weight), bounds of static scales are taken behind it, from every row; otherwise from the kept rows, after
the search.

Which layers share a transform: names propose (q, k, v; gate, up), calibration decides. Siblings that
calibration saw with the very same tensor in every call form a group whatever their names are; layers with
different inputs do not. Without calibration there are only names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ...base import MisuseError, count_writes
from ..config import UNQUANTIZED, DuQuantConfig
from ..layer import DuQuantLinear
from ..numerics import Chain, find_transform, uncompiled
from .flows import Flows
from .folding import OTHERS, is_norm
from .layers import Patterns, candidates
from .stats import CalibrationStats


def share_by_name(widths: Mapping[str, int], config: DuQuantConfig) -> list[list[str]]:
    """The groups that names propose, in order; ``widths`` of inputs are equal in a group."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, width in widths.items():
        parent, _, last = name.rpartition(".")
        key = (parent, config.group_of(last), width) if config.share_groups else (name,)
        groups.setdefault(key, []).append(name)
    return list(groups.values())


def share(
    widths: Mapping[str, int], config: DuQuantConfig, stats: CalibrationStats | None
) -> list[list[str]]:
    """The groups that names propose and calibration confirms; without ``stats`` those of names alone.

    A MisuseError says that bounds were taken behind the transforms of other groups.
    """
    named = share_by_name(widths, config)
    if stats is None or not (stats.groups or config.share_groups):
        return named
    if not stats.groups:
        return seen_together(widths, stats)
    for group in named:
        if group not in stats.groups:
            raise MisuseError(
                f"calibration saw {group[0]!r} in another group than {group}: calibrate with the same "
                "include and exclude as you quantize with"
            )
    return named


def seen_together(names: Iterable[str], stats: CalibrationStats) -> list[list[str]]:
    """The groups of siblings that calibration saw with the very same input in every call."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for name in names:
        layer = stats.layers.get(name)
        key: tuple[object, ...] = (name,)  # alone, also where its inputs had several leaders
        if layer is not None and len(layer.leaders) == 1:
            key = (name.rpartition(".")[0], *layer.leaders, layer.calls)
        groups.setdefault(key, []).append(name)
    return list(groups.values())


class calibrate:  # noqa: N801  it is used like a function
    """Watch the inputs of a model's linear layers.

    Args:
        model: Stays as it is.
        config: What the statistics are for.
        include: Patterns of the layers to look at; None is all.
        exclude: Patterns of layers to leave out.
        manual: ``stats.end_batch()`` counts batches, and not calls of the model.
        resume: Statistics to go on with.
        progress: Show a line on standard error; None does so on a terminal.

    Raises:
        MisuseError: The block ended with too few batches, or an input was not finite.
    """

    def __init__(
        self,
        model: nn.Module,
        config: DuQuantConfig,
        *,
        include: Patterns = None,
        exclude: Patterns = None,
        manual: bool = False,
        resume: CalibrationStats | None = None,
        progress: bool | None = None,
    ) -> None:
        if resume is not None:
            resume.check(config)
        self._model, self._config, self._manual = model, config, manual
        found = candidates(model, config, include, exclude)
        self._layers = {item.name: cast(nn.Linear, item.module) for item in found if not item.reason}
        self.stats = CalibrationStats(config, config.calib_batches) if resume is None else resume
        self.stats.wanted = config.calib_batches
        self._progress = sys.stderr.isatty() if progress is None else progress
        self._open = ExitStack()
        self._flows = Flows(self._read) if config.fold_smoothing else None
        self._batch = self.stats.begun
        self._depth = 0
        self._ended = False
        self._last: tuple[Tensor, str, int] | None = None
        self._transforms: dict[str, Chain] = {}

    def __enter__(self) -> CalibrationStats:
        self._transforms = self._known_transforms()
        self._open.enter_context(uncompiled())
        if self._flows is not None:
            self._open.enter_context(self._flows)
        self.stats.closing = self._close
        handles: list[RemovableHandle] = []
        for name, module in self._model.named_modules():
            is_linear = isinstance(module, nn.Linear | DuQuantLinear)
            if is_linear:
                hook = _before(self, name, hush=_is_plain(module))
                handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
            if self._flows is not None and (is_linear or is_norm(module)):  # before other hooks read it
                after = _after(self, name)
                handles.append(
                    module.register_forward_hook(after, prepend=True, with_kwargs=True, always_call=True)
                )
        if not self._manual:
            handles.append(self._model.register_forward_pre_hook(self._begin))
            handles.append(self._model.register_forward_hook(self._end))
            handles.append(self._model.register_forward_hook(self._leave, always_call=True))
        for handle in handles:
            self._open.callback(handle.remove)
        return self.stats

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._open.close()
        self._last = self.stats.closing = None
        if self._flows is not None:
            self._flows.clear()
        text = self._too_few()
        self.stats.skip_batch()
        if kind is None and not self.stats.done:
            raise MisuseError(text)

    def _too_few(self) -> str:
        seen, wanted = self.stats.batches, self.stats.wanted
        text = f"calibration saw {seen} of {wanted} batches"
        if not self._manual and seen == 0 and self.stats.begun.layers:
            return (
                f"{text}, though layers were called: the model was used through another method. "
                "Say manual=True and call stats.end_batch() after each batch"
            )
        return f"{text}. Give it more and go on with resume=stats, or set calib_batches={max(seen, 1)}"

    def _known_transforms(self) -> dict[str, Chain]:
        """The transforms that come from weights alone, where static scales need them."""
        config = self._config
        static = config.act_scaling == "static" and config.act_bits < UNQUANTIZED
        if not static or config.needs_activations:
            return {}
        found: dict[str, Chain] = {}
        widths = {name: module.weight.shape[1] for name, module in self._layers.items()}
        self.stats.groups = share_by_name(widths, config)
        for group in self.stats.groups:
            chain = find_transform([self._layers[name].weight for name in group], config, None)
            found.update(dict.fromkeys(group, chain))
        return found

    def _begin(self, module: nn.Module, args: object) -> None:
        self._depth += 1
        self._ended = False

    def _leave(self, module: nn.Module, args: object, output: object) -> None:
        """Called however the call ends."""
        self._depth -= 1
        if self._depth == 0 and not self._ended:
            self.stats.skip_batch()

    def _end(self, module: nn.Module, args: object, output: object) -> None:
        """Not called where the model raised."""
        self._ended = self._depth == 1
        if self._ended and self._flows is not None:
            self._flows.returned(output)
        if self._ended and not self.stats.done:
            self.stats.end_batch()

    def _close(self) -> None:
        """Called before a batch counts."""
        if self._flows is not None:
            self._last = None  # else this input would count as kept
            self._flows.kept()
        if self._progress:
            seen, wanted = self.stats.batches + 1, self.stats.wanted
            end = "" if seen < wanted else "\n"
            print(f"\rcalibration: {seen} of {wanted}", end=end, file=sys.stderr)

    def observe(self, name: str, x: Tensor, *, hush: bool) -> None:
        """Take in the input of a layer; with ``hush`` the layer only multiplies it."""
        if self.stats.done:
            return
        if self._flows is None:
            self._observe(name, x, None)
            return
        self._follow_batch(self._flows)
        found = self._flows.columns(x, name)
        if found is not None:
            self.stats.came_from(name, found[0])
        with self._flows.quiet():
            self._observe(name, x, None if found is None else found[1])
        self._flows.hush(hush)

    @torch.no_grad()
    def _observe(self, name: str, x: Tensor, columns: Tensor | None) -> None:
        if name not in self._layers:
            return
        version = count_writes(x)
        if self._last is None or self._last[0] is not x or self._last[2] != version:
            self._last = (x, name, version)
        if not bool(torch.isfinite(x).all()):
            raise MisuseError(f"calibration: the input of {name!r} has values that are not finite")
        self.stats.observe(name, x, self._transforms.get(name), self._last[1], columns)

    def made(self, name: str, output: object) -> None:
        """Follow the output of a norm or a linear layer."""
        assert self._flows is not None
        self._flows.hush(False)
        if isinstance(output, Tensor) and output.dim() and not self.stats.done:
            self._follow_batch(self._flows)
            self._flows.made(name, output)

    def _follow_batch(self, flows: Flows) -> None:
        """Forget features of a batch that does not count."""
        if self._batch is not self.stats.begun:
            self._batch = self.stats.begun
            flows.clear()

    def _read(self, source: str, reader: str) -> None:
        """Note a reader of a source that is no linear layer of the model."""
        if not self.stats.done:
            self.stats.came_from(OTHERS + reader, source)


def _after(owner: calibrate, name: str) -> Callable[..., None]:
    """A hook that hands the output of a norm or a linear layer to the calibration."""

    def hook(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], output: object) -> None:
        given = [value for value in (*args, *kwargs.values()) if value is not None]
        unread = next(iter(module._forward_hooks.values())) is hook  # by other hooks
        # A module that gets more than rows, as adaptive norms do, may do something else with them.
        owner.made(name, output if unread and len(given) == 1 else None)

    return hook


def _before(owner: calibrate, name: str, *, hush: bool) -> Callable[..., None]:
    """A hook that hands a layer's input to the calibration; it keeps no module alive."""

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = args[0] if args else kwargs["input"]
        width = getattr(module, "in_features", None)
        if width is None or x.shape[-1:] == (width,):  # otherwise the layer raises
            last = next(reversed(module._forward_pre_hooks.values()))
            owner.observe(name, x, hush=hush and last is hook)  # a later hook may read it

    return hook


def _is_plain(module: nn.Module) -> bool:
    """Whether a layer reads its input in one product, and nothing else does meanwhile."""
    return type(module) in (nn.Linear, DuQuantLinear) and "forward" not in vars(module)
