"""What a tensor looks like, wherever it lies."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Form(NamedTuple):
    """Metadata of a tensor, its offset apart; ``conj`` and ``neg`` are lazy."""

    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    conj: bool
    neg: bool

    @property
    def plain(self) -> bool:
        """Neither lazy nor overlapping."""
        return not (self.conj or self.neg or self.overlaps)

    @property
    def overlaps(self) -> bool:
        """Whether two elements may share memory, as after ``expand``."""
        if 0 in self.size:
            return False
        reach = 0
        for step, n in sorted(zip(self.stride, self.size, strict=True)):
            if n > 1:
                if step <= reach:
                    return True
                reach += (n - 1) * step
        return False


def form_of(tensor: torch.Tensor) -> Form:
    """The form of a strided tensor."""
    dtype = tensor.dtype
    conj = dtype.is_complex and tensor.is_conj()
    return Form(dtype, tensor.size(), tensor.stride(), conj, tensor.is_neg())
