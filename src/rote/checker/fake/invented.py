"""Invented values: what the host reads where nothing was computed.

A read of a fake tensor needs an answer, with which the callable goes on. It is the one that a sound program
hopes for: nothing is NaN, no check fails, a loop that waits for a small residual is over. A line that reads
again and again gets the other answer from time to time, so that a loop that waits for it ends. Known values
(data from Python, arguments that were not changed) are read as they are.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from ...base import Site

PATIENCE = 8
"""Every so many reads, a line gets the other truth value."""

LARGEST = 1 << 24
"""Elements up to which a tensor copied to the host gets real, invented values."""

_HOPED = frozenset({"all", "isfinite", "equal", "allclose", "is_same_size", "isreal"})
_OPPOSITE = frozenset({"logical_not", "bitwise_not"})
_KEEPING = frozenset({"view", "squeeze", "reshape", "select", "detach", "_to_copy"})


class Inventor:
    """Gives the answers of one check, the same ones in each of its runs."""

    def __init__(self) -> None:
        self._truths: dict[int, tuple[weakref.ref[torch.Tensor], bool]] = {}
        self._reads: dict[Site, int] = {}
        self.flipped: set[Site] = set()
        self.asked: list[Site] = []

    def begin(self) -> None:
        """A new run begins."""
        self._truths.clear()
        self._reads.clear()
        self.asked.clear()

    def meet(self, name: str, tensors: list[torch.Tensor], result: Any) -> None:
        """Remember which answer to hope for, by the operation that made a truth value."""
        if not isinstance(result, torch.Tensor) or result.dtype is not torch.bool:
            return
        packet = name.partition("::")[2].partition(".")[0]
        if packet not in _KEEPING:
            hoped = not self._hoped(tensors[0]) if packet in _OPPOSITE else packet in _HOPED
            self._truths[id(result)] = (weakref.ref(result), hoped)

    def _hoped(self, tensor: torch.Tensor | None) -> bool:
        reference, answer = self._truths.get(id(tensor), (None, False))
        return answer if reference is not None and reference() is tensor else False

    def scalar(self, tensor: torch.Tensor, site: Site) -> bool | int | float | complex:
        """The value of a tensor of one element."""
        if tensor.dtype is torch.bool:
            return self.truth(tensor, site)
        if tensor.is_complex():
            return 1 + 0j
        return 1.0 if tensor.is_floating_point() else 1

    def truth(self, tensor: torch.Tensor | None, site: Site) -> bool:
        """A truth value, mostly the one to hope for."""
        self.asked.append(site)
        count = self._reads[site] = self._reads.get(site, 0) + 1
        hoped = True if tensor is None else self._hoped(tensor)
        return hoped ^ (site in self.flipped) ^ (count % PATIENCE == 0)

    def flip(self, site: Site) -> None:
        """Switch the answers that a line gets from now on."""
        self.flipped ^= {site}

    def flip_last(self) -> bool:
        """Switch the last answer that is not switched yet; False if there is none."""
        for site in reversed(self.asked):
            if site not in self.flipped:
                self.flipped.add(site)
                return True
        return False


def host_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A real host tensor of ones, like a fake one."""
    return torch.ones(tuple(tensor.shape), dtype=tensor.dtype)


def nested(shape: torch.Size, value: Any) -> Any:
    """A nested list of one value."""
    return value if not shape else [nested(shape[1:], value) for _ in range(shape[0])]
