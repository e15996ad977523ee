"""Tensors that look like one seen before, told in one call of C++.

To ask a tensor for its class, type, device, layout, sizes and strides, one after the other, takes 0.5 us, and
to look such a description up takes as long again. Most tensors of a call look like another one at hand: the
result of an element-wise operation like its operand, an operand like the result that it was. So a description
carries a check of all of it at once (``torch.compile`` guards inputs with it), and is only made anew for a
tensor that fails it.

No check may see a nested tensor: it has no sizes, and the error that says so is lost between C++ and Python,
which ends the process. Whoever checks asks ``tensor.is_nested`` before.

The checks see of a tensor what the dispatcher sees. In the handler of a mode that does not include whether it
is lazily conjugated, negated or zero; where that matters, call
:func:`..pytorch.torch_private.resolve_lazily` first.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..pytorch import metadata_check

MOST = 4
"""Checks of one description: tensors that look alike may differ in class, or in whether they require grad."""


def _no(tensor: torch.Tensor) -> bool:
    del tensor
    return False


class Alike:
    """Base of descriptions of tensors: knows the tensors that it describes, and keeps none of them alive.

    Attributes:
        check: Says whether a tensor is like the last one that was found to be. If it says no, another check
            may say yes.
    """

    __slots__ = ("_checks", "check")

    def __init__(self) -> None:
        self.check: Callable[..., bool] = _no
        self._checks: list[Callable[..., bool]] = []

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor matches one that was added; a tensor with the same description may still fail."""
        for check in self._checks:
            if check(tensor):
                self.check = check
                return True
        return False

    def add(self, tensor: torch.Tensor) -> None:
        """Add a tensor that is described."""
        if len(self._checks) < MOST and not self.knows(tensor):
            self.check = metadata_check((tensor,))
            self._checks.append(self.check)
