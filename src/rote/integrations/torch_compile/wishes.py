"""What ``mode=`` and ``options=`` of ``torch.compile`` ask of the backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch._inductor as inductor
from torch._inductor import config

from ...api import Options
from ...base import OptionError

KERNELS = ("inductor", "aten")
_GRAPHS = "triton.cudagraphs"
_SKIPS = "skip_dynamic_graphs"
_OURS = frozenset({_SKIPS, *[field.name for field in fields(Options)]})

_MEANT = {
    "triton.cudagraph_or_error": "strict",
    "triton.cudagraph_capture_sizes": "capture_sizes",
    "triton.cudagraph_min_partition_size": "min_segment_size",
    "triton.cudagraph_skip_dynamic_graphs": _SKIPS,
    "custom_should_partition_ops": "split_ops",
}
"""Inductor's settings about CUDA graphs, and the options that mean the same."""


@dataclass(frozen=True)
class Wishes:
    """What was asked for, sorted by whom it is for.

    Attributes:
        kernels: ``"inductor"`` for compiled kernels, ``"aten"`` for those that eager runs.
        recording: How the compiled code is recorded.
        patches: Settings of Inductor.
        skip_dynamic_graphs: Code for sizes that change is not recorded.
        kept_out: Why nothing is recorded, where the compiled code itself wants that.
    """

    kernels: str
    recording: Options
    patches: Mapping[str, Any]
    skip_dynamic_graphs: bool = False
    kept_out: str | None = None

    @classmethod
    def of(cls, mode: str | None, options: Mapping[str, Any] | None) -> Wishes:
        """Sort the keywords of ``torch.compile``.

        A mode is taken for what it says of kernels. Graphs are rote's, so what it says of graphs is left out.
        What Inductor's own settings say of them is an option of rote's (:data:`_MEANT`), whether it stands in
        ``options=`` or is set for the process.

        Raises:
            OptionError: A mode or an option is unknown, or has an impossible value.
        """
        given = dict(options or {})
        kernels = given.pop("kernels", KERNELS[0])
        if kernels not in KERNELS:
            raise OptionError(f"kernels={kernels!r} is not one of {', '.join(map(repr, KERNELS))}")
        meant = {name: given.pop(name) for name in _MEANT if name in given}
        wanted = {name: given.pop(name) for name in [*given] if name in _OURS}
        unknown = sorted(given.keys() - set(inductor.list_options()))
        if unknown:
            text = "is no option of rote.graph, of this backend (kernels) or of Inductor"
            raise OptionError(f"options={{{unknown[0]!r}: ...}} {text}")
        if kernels != KERNELS[0] and given:
            raise OptionError(
                f"options={{{sorted(given)[0]!r}: ...}} is Inductor's, which kernels={kernels!r} leaves out"
            )
        for name, option in _MEANT.items():
            value = meant[name] if name in meant else _setting(name)
            if value and option not in wanted:
                wanted[option] = value
        skips = wanted.pop(_SKIPS, False)
        if not isinstance(skips, bool):
            raise OptionError(f"{_SKIPS}={skips!r} must be True or False")
        return cls(kernels, Options.make(**wanted), {**_of_mode(mode), **given, _GRAPHS: False}, skips)

    def kept(self, why: str) -> Wishes:
        """The same, with nothing recorded, for this reason unless there is another one."""
        return replace(self, kept_out=self.kept_out or why)

    def noted(self, annotation: tuple[bool | None, bool | None]) -> Wishes:
        """The same, where code says of its forward and of its backward whether they may be in graphs.

        As in PyTorch, a backward is not recorded where the forward must not be.
        """
        forward, backward = annotation
        if forward is False:
            return replace(self, kept_out="the code is within override_cudagraphs(fwd=False)")
        if backward is False:
            return replace(self, recording=replace(self.recording, backward=False))
        return self


def _setting(name: str) -> Any:
    """A setting of Inductor's, as it is for the process; None where this version has none."""
    found: Any = config
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _of_mode(mode: str | None) -> dict[str, Any]:
    modes = inductor.list_mode_options()
    if mode is not None and mode not in modes:
        raise OptionError(f"mode={mode!r} is not one of {', '.join(map(repr, modes))}")
    return dict(modes[mode]) if mode is not None else {}
