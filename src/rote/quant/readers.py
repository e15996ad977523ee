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


class Readers(TorchFunctionMode):
    """Watches the outputs of norms.

    Args:
        found: Called with the name of a norm whose output is read.
    """

    def __init__(self, found: Callable[[str], None]) -> None:
        super().__init__()
        self._found = found
        self._made: dict[int, tuple[ReferenceType[Tensor], str]] = {}
        self._expected: Tensor | None = None
        self._quiet = False

    def made(self, norm: str, output: Tensor) -> None:
        """Watch the output of a norm."""
        self._made[id(output)] = (ref(output), norm)

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

    def forget(self) -> None:
        """A batch has ended."""
        self._made.clear()
        self._expected = None

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self._made and not self._quiet:
            made = next(_tensors(result), None)
            writes = getattr(func, "__name__", "").endswith("_")
            for x in _tensors((args, kwargs)) if made is not None else ():
                passed = x is made and not writes  # contiguous() and the like
                if not passed and not (func is F.linear and x is self._expected):
                    self._read(x)
            self._expected = None if func is F.linear else self._expected
        return result

    def _read(self, x: Tensor) -> None:
        known = self._made.get(id(x))
        if known is not None and known[0]() is x:
            self._found(known[1])


def _tensors(value: object) -> Iterator[Tensor]:
    """The tensors in nested containers."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from _tensors(tuple(cast(Mapping[Any, object], value).values()))
    elif isinstance(value, list | tuple):
        for item in cast("list[object]", value):
            yield from _tensors(item)
