"""How a recorded stretch was captured: enough to capture its operations anew without the user's code."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ..arguments import read_switches
from ..backends.protocol import Segment
from ..program import Origin


class KernelModes(NamedTuple):
    """What kernels look at besides their operands.

    Attributes:
        grad: Grad mode; some kernels choose their arithmetic by it.
        tracked: Which of the tensor operands require grad, in grad mode; some kernels choose by that, too.
    """

    grad: bool
    inference: bool
    dtype: torch.dtype
    switches: tuple[Any, ...]
    tracked: tuple[int, ...]

    @classmethod
    def now(cls, operands: Sequence[torch.Tensor] = ()) -> KernelModes:
        """Those of this thread, for an operation on these tensors."""
        grad = torch.is_grad_enabled()
        modes = grad, torch.is_inference_mode_enabled(), torch.get_default_dtype()
        tracked = [number for number, each in enumerate(operands) if each.requires_grad] if grad else []
        return cls(*modes, read_switches(), tuple(tracked))


@dataclass(frozen=True)
class CapturedSegment:
    """One segment of a stretch.

    Attributes:
        modes: The operations that were captured into it, by index, each with the modes that it ran under.
    """

    segment: Segment
    modes: Mapping[int, KernelModes]


@dataclass(frozen=True)
class CapturedStretch:
    """The segments of a recorded stretch, and the memory that was there when it ended."""

    segments: tuple[CapturedSegment, ...]
    storages: Mapping[Origin, weakref.ref[torch.UntypedStorage]]
