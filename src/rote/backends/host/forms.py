"""What tensors look like, each way once.

A recording asks of every tensor whether it has been tried with tensors like it, whether its elements
overlap and, at the end, whether the tensor at a place has been made. Made once for all of its kind, a form is
compared by identity, and what follows from it is known.
"""

from __future__ import annotations

import torch

from ...signature.alike import Alike

MAX_FORMS = 4096
"""Forms that are remembered; with more of them all are forgotten, and a new one equals no earlier one."""


class Form(Alike):
    """Metadata of a tensor, its offset apart; equal only to itself.

    Attributes:
        dtype: Data type.
        size: Sizes.
        stride: Strides in elements.
        conj: It is lazily conjugated.
        neg: It is lazily negated.
        overlaps: Two elements may share memory, as after ``expand``.
        plain: Neither lazy nor overlapping.
    """

    __slots__ = ("conj", "dtype", "neg", "overlaps", "plain", "size", "stride")

    def __init__(
        self, dtype: torch.dtype, size: tuple[int, ...], stride: tuple[int, ...], conj: bool, neg: bool
    ) -> None:
        super().__init__()
        self.dtype = dtype
        self.size = size
        self.stride = stride
        self.conj = conj
        self.neg = neg
        self.overlaps = _overlaps(size, stride)
        self.plain = not (conj or neg or self.overlaps)


class Forms:
    """The forms of the tensors seen so far.

    Attributes:
        guesses: What results of operations looked like, by the identity of the operation's facts and of its
            first operand's form, and the position among the results. What comes next may look otherwise.
    """

    def __init__(self) -> None:
        self.guesses: dict[tuple[int, int, int], Form] = {}
        self._forms: dict[tuple[torch.dtype, tuple[int, ...], tuple[int, ...], bool, bool], Form] = {}

    def of(self, tensor: torch.Tensor) -> Form:
        """The form of a strided tensor."""
        dtype = tensor.dtype
        conj = dtype.is_complex and tensor.is_conj()
        key = (dtype, tensor.size(), tensor.stride(), conj, tensor.is_neg())
        found = self._forms.get(key)
        if found is None:
            if len(self._forms) >= MAX_FORMS:
                self._forms.clear()
                self.guesses.clear()
            found = self._forms[key] = Form(*key)
        found.add(tensor)
        return found


def _overlaps(size: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    reach = 0
    for step, n in sorted(zip(stride, size, strict=True)):
        if n == 0:
            return False
        if n > 1:
            if step <= reach:
                return True
            reach += (n - 1) * step
    return False
