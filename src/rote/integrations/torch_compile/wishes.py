"""What ``mode=`` and ``options=`` of ``torch.compile`` ask of the backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch._inductor as inductor
from torch._inductor import config

from ...api import Options
from ...base import OptionError

KERNELS = ("inductor", "aten")
_OURS = frozenset(field.name for field in fields(Options))
_GRAPHS, _OR_ERROR = "triton.cudagraphs", "triton.cudagraph_or_error"
_LIMIT, _RECORDINGS_OF_TREES = "cudagraph_unexpected_rerecord_limit", 128
"""The setting of Inductor that bounds the recordings of a compiled graph, and its default."""


@dataclass(frozen=True)
class Wishes:
    """What was asked for, sorted by whom it is for.

    Attributes:
        kernels: ``"inductor"`` for compiled kernels, ``"aten"`` for those that eager runs.
        recording: How the compiled code is recorded.
        patches: Settings of Inductor.
        max_parameter_sets: Sets of parameters with which one compiled graph has recordings.
    """

    kernels: str
    recording: Options
    patches: Mapping[str, Any]
    max_parameter_sets: int

    @classmethod
    def of(cls, mode: str | None, options: Mapping[str, Any] | None) -> Wishes:
        """Sort the keywords of ``torch.compile``.

        A mode is taken for what it says of kernels. Graphs are rote's, so what it says of graphs is left out,
        and ``triton.cudagraph_or_error`` means ``strict=True``, be it an option, Inductor's setting or the
        variable ``TORCHINDUCTOR_CUDAGRAPH_OR_ERROR``, which is that setting.

        Raises:
            OptionError: A mode or an option is unknown, or has an impossible value.
        """
        given = dict(options or {})
        kernels = given.pop("kernels", KERNELS[0])
        if kernels not in KERNELS:
            raise OptionError(f"kernels={kernels!r} is not one of {', '.join(map(repr, KERNELS))}")
        most = given.pop("max_parameter_sets", getattr(config.triton, _LIMIT, _RECORDINGS_OF_TREES))
        if type(most) is not int or most < 1:
            raise OptionError(f"max_parameter_sets={most!r} must be a whole number of at least 1")
        wanted = {name: given.pop(name) for name in [*given] if name in _OURS}
        unknown = sorted(given.keys() - set(inductor.list_options()))
        if unknown:
            text = "is no option of rote.graph, of this backend (kernels, max_parameter_sets) or of Inductor"
            raise OptionError(f"options={{{unknown[0]!r}: ...}} {text}")
        if kernels != KERNELS[0] and given:
            raise OptionError(
                f"options={{{sorted(given)[0]!r}: ...}} is Inductor's, which kernels={kernels!r} leaves out"
            )
        if given.get(_OR_ERROR, getattr(config.triton, "cudagraph_or_error", False)):
            wanted.setdefault("strict", True)
        return cls(kernels, Options.make(**wanted), {**_of_mode(mode), **given, _GRAPHS: False}, most)


def _of_mode(mode: str | None) -> dict[str, Any]:
    modes = inductor.list_mode_options()
    if mode is not None and mode not in modes:
        raise OptionError(f"mode={mode!r} is not one of {', '.join(map(repr, modes))}")
    return dict(modes[mode]) if mode is not None else {}
