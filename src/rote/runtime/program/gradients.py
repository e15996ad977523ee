"""The ``.grad`` slots of external parameters, which a training step changes without returning anything.

A step that clears its gradients with ``set_to_none`` leaves fresh tensors in ``.grad``. In a recording they
are static memory, which ``.grad`` shows after each replay. Somebody who holds the gradient of an earlier step
would see it change. So the owners of the storage are counted before each replay; if somebody besides the
recording owns it, the recording copies gradients from then on.

A recording in which the host reads something copies unless every gradient has left its slot by then.
Otherwise one path may keep a gradient that another path replaces, in memory that their common start writes.

A call that leaves a gradient where there was none (forward and backward inside, optimizer outside) begins
without one. Its replays show the same tensor each time, so that calls which add to it find what they were
recorded with. Those keep no memory of gradients alive: its owners are counted.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ...base import Site
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..arguments import describe_tensor
from ..pytorch import (
    LOCAL,
    SPREAD_AS,
    is_sharded,
    part_of,
    sharded_as,
    stands_for_others,
    storage_owners,
    tensor_owners,
    unseen_functions,
)
from .storages import NEW, StorageTable

UNNAMED = "a tensor made outside"
"""What a tensor is called that lies in no slot that Python reads."""


@dataclass
class GradientEffect:
    """A parameter whose ``.grad`` a call replaces.

    Attributes:
        static: The gradient in the recording's memory; None if the call clears the slot. Of a sharded one it
            is the part that this process has.
        storage: The static memory, kept to count its owners.
        spread: How a gradient is spread over processes; None if it is not.
        owners: References to the static memory that are the recording's own.
        shown: The tensor that was put into the slot last.
    """

    parameter: weakref.ref[torch.Tensor]
    name: str
    static: torch.Tensor | None
    storage: torch.UntypedStorage | None
    spread: Any = None

    owners: int = 0
    shown: torch.Tensor | None = None
    _counts: tuple[int, int] = (0, 0)  # of what is shown, in the slot
    _idle: tuple[int, int] = (0, 0)  # and out of it
    # out of the slot, for the replay to read or to be put back
    _taken: list[torch.Tensor | None] | None = None

    def count_owners(self) -> None:
        """After the recording, while only the slot looks at the static memory: note the recording's own."""
        if self.storage is not None:
            self.owners = storage_owners(self.storage) - 1

    def withdraw(self) -> bool:
        """Before a replay: False if somebody besides the slot still holds the static gradient."""
        parameter, storage, self._taken = self.parameter(), self.storage, None
        if parameter is None or storage is None:
            return True
        if self._is_alone(parameter):
            return True
        if parameter.grad is None:
            if self._is_unheld():
                return True
        else:
            self._take(parameter.grad, storage)
            parameter.grad = None
        self.shown = None
        return storage_owners(storage) <= self.owners

    def _take(self, gradient: torch.Tensor, storage: torch.UntypedStorage) -> None:
        """Note the slot's gradient, but do not own static memory: its owners are about to be counted."""
        ours = gradient.untyped_storage()._cdata == storage._cdata
        self._taken = [None if ours else gradient]

    def put_back(self) -> None:
        """The replay led to what is not recorded: Python runs the start again, and sees the slot."""
        parameter, taken, self._taken = self.parameter(), self._taken, None
        if parameter is None or taken is None or self.static is None:
            return
        parameter.grad = taken[0] if taken[0] is not None else self.static.detach()

    def stands(self) -> bool:
        """After a replay: the slot is as it was left, and nobody else holds the gradient in it."""
        parameter = self.parameter()
        if parameter is None:
            return False
        return parameter.grad is None if self.static is None else self._is_alone(parameter)

    def _is_alone(self, parameter: torch.Tensor) -> bool:
        """Whether the slot shows the static gradient as it was put there, and nobody else holds that.

        Somebody may hold it as an object, from C++ or through a view. It may have got other memory, or look
        at the same in another way.
        """
        shown = self.shown
        if shown is None or parameter.grad is not shown:
            return False
        return _references(shown) == self._counts and self._is_as_shown(shown)

    def rests(self) -> bool:
        """Whether the slot is empty, and nobody holds the gradient that was shown there last."""
        parameter = self.parameter()
        return parameter is not None and parameter.grad is None and self._is_unheld()

    def _is_unheld(self) -> bool:
        """Whether nobody holds the gradient that was shown last, out of its slot, and it is as it was."""
        shown = self.shown
        return shown is not None and _references(shown) == self._idle and self._is_as_shown(shown)

    def _is_as_shown(self, shown: torch.Tensor) -> bool:
        static, storage = self.static, self.storage
        if static is None or storage is None or storage_owners(storage) != self.owners + 1:
            return False
        as_made = not shown.__dict__ and shown.data_ptr() == static.data_ptr()
        return as_made and describe_tensor(shown) == describe_tensor(static)

    def restore(self) -> None:
        """Leave the static memory to whoever holds it: its tensors move to memory of their own.

        That to which an array looks stays, as the array does not move along. On the host it is theirs then.
        """
        self.shown = None
        if self.storage is not None and self.storage.resizable():
            self.storage.resize_(self.storage.nbytes())
        self.put_back()

    def hand_out(self, copy: bool) -> None:
        """After a replay: show the gradient in the slot."""
        parameter, self._taken = self.parameter(), None
        if parameter is None:
            return
        if self.static is None:
            parameter.grad = None
        elif copy:
            part = self.static.clone()
            parameter.grad = part if self.spread is None else sharded_as(part, self.spread)
        elif self.shown is None:
            self.shown = shown = self.static.detach()  # a name for it here, as where they are counted again
            self._idle = _references(shown)
            parameter.grad = shown
            self._counts = _references(shown)
        elif parameter.grad is not self.shown:
            parameter.grad = self.shown


def _references(tensor: torch.Tensor) -> tuple[int, int]:
    """How many references a tensor has, from Python and from C++."""
    return sys.getrefcount(tensor), tensor_owners(tensor)


GradientSlot = tuple[bool, Any, Any]
"""Whether there is a gradient, and the tensor's hooks (autograd calls them; a recording does not)."""

Slots = dict[int, tuple[weakref.ref[torch.Tensor], GradientSlot]]
"""Tensors, weakly and by identity, with the state of their gradient slots."""


def slot_of(tensor: torch.Tensor, gradient: torch.Tensor | None) -> GradientSlot:
    """The state of a gradient slot."""
    hooks, after = tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None)
    return gradient is not None, len(hooks) if hooks else 0, len(after) if after else 0


def _shown(name: str) -> str:
    """What the gradient of a tensor is called."""
    return f"the gradient of {name}" if name is UNNAMED else f"{name}.grad"


class GradientWatch:
    """Compares the ``.grad`` slots of parameters before and after a call.

    A parameter is met before the call can change its slot: when Python finds it or asks for its gradient,
    when it is an operand, or before a backward that may reach it.
    """

    def __init__(self, leaves: Iterable[tuple[str, torch.Tensor]] = ()) -> None:
        self._names: dict[int, str] = {}
        self._before: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
        for name, tensor in leaves:
            self._names[id(tensor)] = name
            self._before[id(tensor)] = tensor, tensor.grad

    def meet(self, tensor: torch.Tensor) -> None:
        """Note a tensor made outside, if it may get a gradient, or has one from before it was frozen."""
        if id(tensor) in self._before:
            return
        with unseen_functions():
            if tensor.is_leaf and (tensor.requires_grad or tensor.grad is not None):
                self._before[id(tensor)] = tensor, tensor.grad

    def teller(self) -> Callable[[torch.Tensor], None]:
        """A function that meets tensors while the watch lives; it keeps neither it nor parameters alive."""
        reference = weakref.WeakMethod(self.meet)

        def tell(tensor: torch.Tensor) -> None:
            meet = reference()
            if meet is not None:
                meet(tensor)

        return tell

    @property
    def met(self) -> Collection[int]:
        """The identities of those that were met."""
        return self._before.keys()

    def name(self, names: Mapping[int, str]) -> None:
        """Note names, by the identity of the tensor."""
        self._names.update(names)

    def _named(self) -> list[tuple[str, torch.Tensor, torch.Tensor | None]]:
        names = self._names
        return [(names.get(key, UNNAMED), tensor, before) for key, (tensor, before) in self._before.items()]

    def leaves(self) -> list[tuple[str, weakref.ref[torch.Tensor]]]:
        """The parameters, weakly, to watch them again at another call."""
        return [(name, weakref.ref(tensor)) for name, tensor, _ in self._named()]

    def gradients(self) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
        """The parameters that had a dense gradient before the call: name, parameter, gradient or its part."""
        return [
            (name, tensor, part_of(grad))
            for name, tensor, grad in self._named()
            if grad is not None and grad.layout is torch.strided  # a sparse one has no single memory
        ]

    def before(self) -> list[torch.Tensor]:
        """The gradients that lay in the slots before the call."""
        return [grad for _, grad in self._before.values() if grad is not None]

    def is_read(self, storages: StorageTable, externals: Container[int]) -> bool:
        """Whether a call, or an earlier one of its recording, reads gradients that were there before it."""
        handles = {gradient.untyped_storage()._cdata for _, _, gradient in self.gradients()}
        read = {tensor.untyped_storage()._cdata for tensor in storages.externals}
        return not handles.isdisjoint(read) or any(handle in externals for handle in handles)

    def have_left(self) -> bool:
        """Whether every gradient from before the call has left its slot by now."""
        slots = self._before.values()
        return all([before is None or tensor.grad is not before for tensor, before in slots])

    def put_back(self) -> None:
        """Undo what Python did to the slots: the operations behind it have not run."""
        for tensor, before in self._before.values():
            if tensor.grad is not before:
                tensor.grad = before

    def presence(self) -> Slots:
        """The state of each slot before the call."""
        return {
            key: (weakref.ref(tensor), slot_of(tensor, grad)) for key, (tensor, grad) in self._before.items()
        }

    def changed(
        self, storages: StorageTable, site: Site
    ) -> tuple[list[GradientEffect], list[Any], list[Reason]]:
        """What the call did to the slots: effects, their form for comparison, reasons not to replay."""
        effects: list[GradientEffect] = []
        keys: list[Any] = []
        blockers: list[Reason] = []
        for name, tensor, before in self._named():
            after = tensor.grad
            if after is before:
                continue
            if after is None:
                effects.append(GradientEffect(weakref.ref(tensor), name, None, None))
                keys.append((name, "cleared"))
                continue
            spread = getattr(after, SPREAD_AS) if is_sharded(type(after)) else None
            part = after if spread is None else getattr(after, LOCAL)
            foreign = stands_for_others(part)
            if foreign or part.layout is not torch.strided:  # as embeddings with sparse=True have it
                what = type(part).__name__ if foreign else str(part.layout).removeprefix("torch.")
                text = f"{_shown(name)} is a {what} tensor"
                blockers.append(reason(rules.UNSUPPORTED_TENSOR, text, site))
                continue
            token = storages.token(part)
            keys.append((name, token))
            if spread is not None:
                keys.append((f"how {name} is spread", str(spread)))
            if token.origin[0] != NEW:
                text = f"{_shown(name)} was replaced by a tensor made outside the call"
                blockers.append(reason(rules.TENSOR_ESCAPES, text, site))
            static = part.detach()
            effects.append(
                GradientEffect(weakref.ref(tensor), name, static, static.untyped_storage(), spread)
            )
        return effects, keys, blockers
