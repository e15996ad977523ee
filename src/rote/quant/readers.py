"""Who reads the output of a norm besides linear layers, which is what smoothing must not be folded past.

While calibration runs, every function of torch that is given the output of a norm and makes a tensor of it,
or writes to it, counts as another reader: a residual that leaves behind the norm, a product with a weight by
hand, the model's caller. What is not seen: numbers that the host reads, scripted code, threads of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast
from weakref import ReferenceType, ref

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


class Outputs:
    """The outputs of norms, of which none is kept alive."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[ReferenceType[Tensor], str]] = {}

    def add(self, norm: str, output: Tensor) -> None:
        """Remember what a norm returned."""
        self._made[id(output)] = (ref(output), norm)

    def norm_of(self, x: Tensor) -> str | None:
        """The norm that returned this very tensor, if one did."""
        known = self._made.get(id(x))
        return known[1] if known is not None and known[0]() is x else None

    def clear(self) -> None:
        """Forget all."""
        self._made.clear()


class Readers(TorchFunctionMode):
    """Watches the outputs of norms.

    Args:
        outputs: What they returned.
        found: Called with the name of a norm whose output is read.
    """

    def __init__(self, outputs: Outputs, found: Callable[[str], None]) -> None:
        super().__init__()
        self._outputs, self._found = outputs, found
        self._expected: Tensor | None = None
        self._quiet = False

    def expect(self, x: Tensor, observe: Callable[[], None]) -> None:
        """A linear layer is about to read ``x``; what ``observe`` does with it is no reading."""
        self._quiet = True
        try:
            observe()
        finally:
            self._quiet = False
        self._expected = x

    def returned(self, result: object) -> None:
        """Something was handed to the caller of the model."""
        for x in _tensors(result):
            self._read(x)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not self._quiet:
            made = next(_tensors(result), None)
            writes = getattr(func, "__name__", "").endswith("_")
            for x in _tensors((args, kwargs)) if made is not None else ():
                passed = x is made and not writes  # contiguous() and the like
                if not passed and not (func is F.linear and x is self._expected):
                    self._read(x)
            self._expected = None if func is F.linear else self._expected
        return result

    def _read(self, x: Tensor) -> None:
        norm = self._outputs.norm_of(x)
        if norm is not None:
            self._found(norm)


def _tensors(value: object) -> Iterator[Tensor]:
    """The tensors in nested containers."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from _tensors(tuple(cast(Mapping[Any, object], value).values()))
    elif isinstance(value, list | tuple):
        for item in cast("list[object]", value):
            yield from _tensors(item)
