"""Tensors that a recording reads in place: alive, where they were, and as they looked at their memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from ...base import Site
from ..pytorch import metadata_check, plain_functions
from ..state import Difference, Entry, read, show_tensor

_data_ptr = torch.Tensor.data_ptr

_Looker = Callable[[torch.Tensor], Any]
_dtype: _Looker = torch.Tensor.dtype.__get__  # pyright: ignore[reportAttributeAccessIssue]
_device: _Looker = torch.Tensor.device.__get__  # pyright: ignore[reportAttributeAccessIssue]
_LOOKS: tuple[_Looker, ...] = (
    torch.Tensor.stride, torch.Tensor.size, _dtype, _device, torch.Tensor.is_conj, torch.Tensor.is_neg, type,
)  # fmt: skip
"""How a tensor looks at its memory: all that ``.data = ...`` and the like may change, besides the address."""


class Watched(NamedTuple):
    """A tensor that is read in place, and how it was when the recording was made.

    Attributes:
        entry: The slot it was found in; None for an argument.
        site: The user's line that read it first.
        looks: How it looked at its memory.
    """

    entry: Entry | None
    name: str
    site: Site | None
    address: int
    requires_grad: bool
    looks: tuple[Any, ...]

    @classmethod
    def of(cls, entry: Entry | None, name: str, tensor: torch.Tensor, site: Site | None) -> Watched:
        """A tensor as it is now."""
        with plain_functions():  # to look at a tensor of the user's class is not to use it
            return cls(entry, name, site, tensor.data_ptr(), tensor.requires_grad, _looks_of(tensor))

    def difference(self, tensor: torch.Tensor | None) -> Difference | None:
        """What differs of the tensor, which is None if it has died."""
        found = read(self.entry) if self.entry is not None else tensor
        if tensor is None or found is not tensor:
            return self._moved(f"the tensor at {self.address:#x}", show_tensor(found))
        if tensor.data_ptr() != self.address:
            return self._moved(f"at address {self.address:#x}", f"at {tensor.data_ptr():#x}")
        looks = _looks_of(tensor)
        if looks != self.looks:
            return self._moved(_layout(self.looks), _layout(looks))
        if tensor.requires_grad != self.requires_grad:
            return self._moved(f"requires_grad={self.requires_grad}", f"{tensor.requires_grad}")
        return None

    def _moved(self, was: str, now: str) -> Difference:
        return Difference(self.name, was, now, True, self.site)


class WatchedTensors:
    """A condition on tensors; the death of one of them ends it.

    Attributes:
        asks_flags: Whether it matters which of them require grad.
        dead: One of them has died.
    """

    def __init__(
        self,
        places: Iterable[Watched],
        tensors: Iterable[torch.Tensor | None],
        *,
        flags: bool,
        known: Iterable[torch.Tensor | None] = (),
    ) -> None:
        pairs = list(zip(places, tensors, strict=True))
        alive = [(place, tensor) for place, tensor in pairs if tensor is not None]
        by_identity = [*known]  # an identity is one as long as they live
        self.dead = len(alive) < len(pairs) or any([tensor is None for tensor in by_identity])
        self.asks_flags = flags
        self._check: Callable[..., bool] | None = None  # of all that they look like, if it says yes
        died = _notice(self)
        self._places = [place for place, _ in alive]
        self._known = [weakref.ref(tensor, died) for tensor in by_identity if tensor is not None]
        self.references = [weakref.ref(tensor, died) for _, tensor in alive]
        self.addresses = [place.address for place in self._places]
        self._flags = [place.requires_grad for place in self._places]
        columns = zip(*[place.looks for place in self._places], strict=True)
        self._looks = [list(column) for column in columns] or [[] for _ in _LOOKS]

    def again(self, follow: Callable[[Entry], Entry | None]) -> WatchedTensors:
        """The same tensors, in the slots in which they lie now; without a slot if ``follow`` gives None."""
        places = [
            place if place.entry is None else place._replace(entry=follow(place.entry))
            for place in self._places
        ]
        tensors = [reference() for reference in self.references]
        known = [reference() for reference in self._known]
        return WatchedTensors(places, tensors, flags=self.asks_flags, known=known)

    def holds(self) -> bool:
        """Whether they are alive and at the same addresses, and look at their memory as before."""
        return self.stand() and self._look_same()

    def stand(self) -> bool:
        """Whether they are alive and at the same addresses."""
        if self.dead:
            return False
        tensors: list[Any] = [reference() for reference in self.references]
        try:
            with plain_functions():
                if list(map(_data_ptr, tensors)) != self.addresses:
                    return False
                return not self.asks_flags or [tensor.requires_grad for tensor in tensors] == self._flags
        except TypeError:  # one is dead
            return False

    def _look_same(self) -> bool:
        """Whether they look at their memory as before (``.data`` may have been rebound in place)."""
        tensors: list[Any] = [reference() for reference in self.references]
        try:
            with plain_functions():
                if self._check is not None and self._check(*tensors):
                    return True
                if [list(map(look, tensors)) for look in _LOOKS] != self._looks:
                    return False
                if self._check is None and tensors and not any([tensor.is_nested for tensor in tensors]):
                    self._check = metadata_check(tensors)
        except TypeError:
            return False
        return True

    def named(self) -> list[tuple[str, torch.Tensor]]:
        """Those that are alive, with their names."""
        found = zip(self._places, self.references, strict=True)
        return [(place.name, tensor) for place, reference in found if (tensor := reference()) is not None]

    def where(self) -> set[tuple[int, int]]:
        """Identities of those that are alive, each with its address."""
        found = zip(self.references, self.addresses, strict=True)
        return {(id(tensor), address) for reference, address in found if (tensor := reference()) is not None}

    def differences(self) -> list[Difference]:
        """What differs, tensor by tensor."""
        pairs = zip(self._places, self.references, strict=True)
        found = [place.difference(reference()) for place, reference in pairs]
        return [each for each in found if each is not None]


def _notice(tensors: WatchedTensors) -> Callable[[object], None]:
    """What is called when one of some tensors dies."""
    reference = weakref.ref(tensors)

    def died(_: object) -> None:
        alive = reference()
        if alive is not None:
            alive.dead = True

    return died


def _looks_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tuple([look(tensor) for look in _LOOKS])


def _layout(looked: tuple[Any, ...]) -> str:
    """A short text for how a tensor looks at its memory."""
    stride, size, dtype, device, conjugate, negative, kind = looked
    text = f"{str(dtype).removeprefix('torch.')}{list(size)} strides {list(stride)}"
    marks = [name for name, on in (("conjugate", conjugate), ("negative", negative)) if on]
    marks += [f"on {device}"] if 0 in size else []  # without memory, the address says nothing of it
    marks += [f"a {kind.__name__}"] if kind not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) else []
    return ", ".join([text, *marks])
