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
_GRAPHS = "triton.cudagraphs"


@dataclass(frozen=True)
class Wishes:
    """What was asked for, sorted by whom it is for.

    Attributes:
        kernels: ``"inductor"`` for compiled kernels, ``"aten"`` for those that eager runs.
        recording: How the compiled code is recorded.
        patches: Settings of Inductor.
    """

    kernels: str
    recording: Options
    patches: Mapping[str, Any]

    @classmethod
    def of(cls, mode: str | None, options: Mapping[str, Any] | None) -> Wishes:
        """Sort the keywords of ``torch.compile``.

        A mode is taken for what it says of kernels. Graphs are rote's, so what it says of graphs is left out,
        and ``triton.cudagraph_or_error`` means ``strict=True``.

        Raises:
            OptionError: A mode or an option is unknown, or has an impossible value.
        """
        given = dict(options or {})
        kernels = given.pop("kernels", KERNELS[0])
        if kernels not in KERNELS:
            raise OptionError(f"kernels={kernels!r} is not one of {', '.join(map(repr, KERNELS))}")
        wanted = {name: given.pop(name) for name in [*given] if name in _OURS}
        unknown = sorted(given.keys() - set(inductor.list_options()))
        if unknown:
            text = "is no option of rote.graph, of this backend (kernels) or of Inductor"
            raise OptionError(f"options={{{unknown[0]!r}: ...}} {text}")
        if kernels != KERNELS[0] and given:
            raise OptionError(
                f"options={{{sorted(given)[0]!r}: ...}} is Inductor's, which kernels={kernels!r} leaves out"
            )
        if getattr(config.triton, "cudagraph_or_error", False):
            wanted.setdefault("strict", True)
        return cls(kernels, Options.make(**wanted), {**_of_mode(mode), **given, _GRAPHS: False})


def _of_mode(mode: str | None) -> dict[str, Any]:
    modes = inductor.list_mode_options()
    if mode is not None and mode not in modes:
        raise OptionError(f"mode={mode!r} is not one of {', '.join(map(repr, modes))}")
    return dict(modes[mode]) if mode is not None else {}
