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
_SKIPS, _SETS = "skip_dynamic_graphs", "max_parameter_sets"
_OURS = frozenset({_SKIPS, _SETS, *[field.name for field in fields(Options)]})
_MOST_SETS = 128
"""Inductor's default for its own limit."""

_OF_CALLS = {
    "triton.cudagraph_or_error": "strict",
    "triton.cudagraph_capture_sizes": "capture_sizes",
    "triton.cudagraph_unexpected_rerecord_limit": _SETS,
}
"""Inductor's settings about CUDA graphs that are about calls, and the options that mean the same."""

_OF_CODE = {
    "triton.cudagraph_min_partition_size": "min_segment_size",
    "triton.cudagraph_skip_dynamic_graphs": _SKIPS,
    "custom_should_partition_ops": "split_ops",
}
"""Those about code, which Inductor minds itself where it compiles for CUDA graphs."""


@dataclass(frozen=True)
class Wishes:
    """What was asked for, sorted by whom it is for.

    Attributes:
        kernels: ``"inductor"`` for compiled kernels, ``"aten"`` for those that eager runs.
        recording: How the compiled code is recorded.
        patches: Settings of Inductor.
        max_parameter_sets: Sets of parameters with which one compiled graph has recordings.
        skip_dynamic_graphs: Code for sizes that change is not recorded.
        kept_out: Why nothing is recorded, where ``recording`` does not say so.
    """

    kernels: str
    recording: Options
    patches: Mapping[str, Any]
    max_parameter_sets: int
    skip_dynamic_graphs: bool
    kept_out: str | None = None

    @classmethod
    def of(cls, mode: str | None, options: Mapping[str, Any] | None, *, for_graphs: bool = False) -> Wishes:
        """Sort the keywords of ``torch.compile``.

        A mode is taken for what it says of kernels. Graphs are rote's, so what it says of graphs is left out.
        What Inductor's own settings say of them is an option of rote's, whether it stands in ``options=``, is
        set for the process or comes from the environment.

        Args:
            options: As given to it, or to a policy.
            for_graphs: Inductor compiles for CUDA graphs, and minds its settings about code itself.

        Raises:
            OptionError: A mode or an option is unknown, or has an impossible value.
        """
        given = dict(options or {})
        kernels = given.pop("kernels", KERNELS[0])
        if kernels not in KERNELS:
            raise OptionError(f"kernels={kernels!r} is not one of {', '.join(map(repr, KERNELS))}")
        meant = _taken_from(given, _OF_CALLS if for_graphs else {**_OF_CALLS, **_OF_CODE})
        wanted = {**meant, **{name: given.pop(name) for name in [*given] if name in _OURS}}
        _check(given, kernels)
        skips, most = wanted.pop(_SKIPS, False), wanted.pop(_SETS, _MOST_SETS)
        if not isinstance(skips, bool):
            raise OptionError(f"{_SKIPS}={skips!r} must be True or False")
        if type(most) is not int or most < 1:
            raise OptionError(f"{_SETS}={most!r} must be a whole number of at least 1")
        patches = {**_of_mode(mode), **given, _GRAPHS: False}
        return cls(kernels, Options.make(**wanted), patches, most, skips)

    def kept(self, why: str) -> Wishes:
        """The same, with nothing recorded, for this reason unless there is another one."""
        return replace(self, kept_out=self.kept_out or why)

    def noted(self, annotation: tuple[bool | None, bool | None]) -> Wishes:
        """The same, where code says of its forward and of its backward whether they may be in graphs.

        As in PyTorch, a backward is not recorded where the forward must not be.
        """
        forward, backward = annotation
        if forward is False:
            return self.kept("the code is within override_cudagraphs(fwd=False)")
        if backward is False:
            return replace(self, recording=replace(self.recording, backward=False))
        return self

    def of_backward(self) -> Wishes:
        """The same for a backward that is a callable of its own.

        Sizes that the user names are those of forwards.
        """
        wishes = self if self.recording.backward else self.kept("backward=False keeps it out of graphs")
        return replace(wishes, recording=replace(self.recording, forward=True, capture_sizes=None))


def _taken_from(given: dict[str, Any], meanings: Mapping[str, str]) -> dict[str, Any]:
    """The options that Inductor's settings mean, as given, which takes them out, or as set."""
    values = {option: given.pop(name, _setting(name)) for name, option in meanings.items()}
    return {option: value for option, value in values.items() if value}


def _setting(name: str) -> Any:
    """A setting of Inductor's, as it is for the process; None where this version has none."""
    found: Any = config
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _check(given: Mapping[str, Any], kernels: str) -> None:
    """Whether what is left of the options is Inductor's, and has a meaning for these kernels."""
    unknown = sorted(given.keys() - set(inductor.list_options()))
    if unknown:
        text = f"is no option of rote.graph, of this backend (kernels, {_SETS}, {_SKIPS}) or of Inductor"
        raise OptionError(f"options={{{unknown[0]!r}: ...}} {text}")
    if kernels != KERNELS[0] and given:
        raise OptionError(
            f"options={{{sorted(given)[0]!r}: ...}} is Inductor's, which kernels={kernels!r} leaves out"
        )


def _of_mode(mode: str | None) -> dict[str, Any]:
    modes = inductor.list_mode_options()
    if mode is not None and mode not in modes:
        raise OptionError(f"mode={mode!r} is not one of {', '.join(map(repr, modes))}")
    return dict(modes[mode]) if mode is not None else {}
