"""Real tensors and the fake ones that stand for them.

A callable whose tensors all lie on the host is checked as if it had been moved: fake tensors on the pretended
device replace its arguments, parameters, buffers and other tensors that it reaches. Tensors in plain
attributes of modules stay where they are, as ``module.to(device)`` leaves them. A tensor that a walk of the
state does not reach (in a tuple, in a global of a function that has not run yet) is replaced at the operation
that meets it. Nothing is put back: a check has its own process.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from types import FunctionType
from typing import Any, Generic, TypeVar

import torch
from torch.nn.parameter import UninitializedTensorMixin  # pyright: ignore[reportAttributeAccessIssue]

from ...base import MisuseError
from ...runtime.arguments import assign
from ...runtime.conditions import Slot, slots_in
from ...runtime.objects import is_users
from ...runtime.state import ITEM, mentions_of
from .torch_private import PRETENDED, FakeTensor, fake_device

T = TypeVar("T")


class FakeStorages(Generic[T]):
    """Values of storages, by the tensors that lie in them; a tensor that is not strided has none.

    PyTorch reuses the handle of a storage that is gone. So a weak reference follows each: it keeps nothing
    alive, and no new storage inherits.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[torch.UntypedStorage], T]] = {}

    def put(self, tensor: torch.Tensor, value: T) -> None:
        """Give the memory of a tensor a value."""
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            self._known[storage._cdata] = (weakref.ref(storage), value)

    def get(self, tensor: torch.Tensor) -> T | None:
        """The value of the memory of a tensor, None if it has none."""
        if not self._known or tensor.layout is not torch.strided:
            return None
        reference, value = self._known.get(tensor.untyped_storage()._cdata, (None, None))
        return value if reference is not None and reference() is not None else None

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return self.get(tensor) is not None

    def update(self, others: FakeStorages[T]) -> None:
        """Take over what others know of living memory."""
        self._known.update((key, each) for key, each in others._known.items() if each[0]() is not None)


class FakeMemory(FakeStorages[bool]):
    """A set of storages, asked for by the tensors that lie in them."""

    def add(self, tensor: torch.Tensor) -> None:
        """Add the memory of a tensor."""
        self.put(tensor, True)


_TABLES = frozenset({"_parameters", "_buffers", "_modules"})
"""Attributes of a module with what ``.to()`` moves."""

KNOWN = 1 << 16
"""Elements up to which the values of a tensor are remembered."""


class StandIns:
    """Knows which fake tensor stands for which real one.

    While it is ``adopting``, host tensors that were made outside of the call count as tensors of the device.
    """

    def __init__(self, fake: Any) -> None:
        self.fake = fake
        self.adopting = False
        self._device = torch.device(PRETENDED, 0)
        self._fakes: dict[int, tuple[torch.Tensor, Any]] = {}
        self._bases: dict[tuple[int, torch.dtype], Any] = {}
        self._staying = FakeMemory()
        self._values: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}
        self._sharing: dict[int, set[int]] = {}
        self._arguments: FakeStorages[str] = FakeStorages()
        self._host_arguments = FakeMemory()
        self._devices: dict[int, torch.device] = {}

    # ------------------------------------------------------------------ tensors

    def moves(self, tensor: torch.Tensor) -> bool:
        """Whether ``.to("cuda")`` would still move a tensor."""
        if isinstance(tensor, FakeTensor):
            return self.adopting and fake_device(tensor) == "cpu"
        plain = tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested
        return plain and tensor.device.type in (("cpu",) if self.adopting else ("cuda",))

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The fake tensor on the device that stands for a tensor."""
        known = self._fakes.get(id(tensor))
        if known is None:
            known = self._fakes[id(tensor)] = (tensor, self._make(tensor))
        return known[1]

    def adopt(self, tensor: torch.Tensor, made: FakeMemory) -> torch.Tensor:
        """An operand of an operation: its stand-in, unless it was made in the call or stays on the host."""
        stays = (
            fake_device(tensor) == PRETENDED or tensor.layout is not torch.strided or not self.moves(tensor)
        )
        return tensor if stays or tensor in made or tensor in self._staying else self.of(tensor)

    def keep(self, made: FakeMemory) -> None:
        """Tensors in this memory stay on the host."""
        self._staying.update(made)

    def _make(self, tensor: torch.Tensor) -> Any:
        key = (tensor.untyped_storage()._cdata, tensor.dtype)
        with torch.no_grad(), self.fake:
            base = self._bases.get(key)
            if base is None:
                length = tensor.untyped_storage().nbytes() // tensor.itemsize
                base = self._bases[key] = torch.empty(length, dtype=tensor.dtype, device=self._device)
            made: Any = base.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
            made = made.detach()
        if isinstance(tensor, torch.nn.Parameter):
            made = torch.nn.Parameter(made, tensor.requires_grad)
        elif tensor.requires_grad:
            made.requires_grad_()
        vars(made).update({key: value for key, value in vars(tensor).items() if key not in vars(made)})
        if tensor.is_leaf and tensor.grad is not None:
            made.grad = self.of(tensor.grad)
        if not isinstance(tensor, FakeTensor) and tensor.is_cpu:
            self.know_value(made, tensor.detach())
        return made

    # ------------------------------------------------------------------ values

    def know_value(self, fake: torch.Tensor, value: torch.Tensor) -> None:
        """Remember the values of a fake tensor, if it is small."""
        if value.numel() > KNOWN or fake.layout is not torch.strided:
            return
        key, handle = id(fake), fake.untyped_storage()._cdata
        sharing = self._sharing.setdefault(handle, set())
        sharing.add(key)

        def lost(_: Any) -> None:
            sharing.discard(key)
            self._values.pop(key, None)
            if not sharing and self._sharing.get(handle) is sharing:
                del self._sharing[handle]

        self._values[key] = (weakref.ref(fake, lost), value)

    def like(self, value: torch.Tensor) -> torch.Tensor:
        """A tensor of the device with known values."""
        with self.fake:
            made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=self._device)
        self.know_value(made, value)
        return made

    def value_of(self, fake: torch.Tensor) -> torch.Tensor | None:
        """The values of a fake tensor, if they are known."""
        reference, value = self._values.get(id(fake), (None, None))
        return value if reference is not None and reference() is fake else None

    def forget_value(self, fake: torch.Tensor) -> None:
        """A tensor is written: the values of all tensors in its memory are unknown from now on."""
        if fake.layout is torch.strided:
            for key in self._sharing.pop(fake.untyped_storage()._cdata, ()):
                self._values.pop(key, None)

    # ------------------------------------------------------------------ arguments

    def name_argument(self, tensor: torch.Tensor, name: str) -> None:
        """Remember that a tensor is an argument."""
        if tensor not in self._arguments:
            self._arguments.put(tensor, name)
        if tensor.device.type == "cpu":
            self._host_arguments.add(tensor)

    def argument_name(self, tensor: torch.Tensor) -> str | None:
        """The argument whose memory a tensor lies in."""
        return self._arguments.get(tensor)

    def is_host_argument(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in the memory of an argument on the host."""
        return tensor in self._host_arguments

    # ------------------------------------------------------------------ state

    def meet(self, values: Iterable[Any]) -> None:
        """Remember the devices that the callable reaches: they have moved with its tensors."""
        self._devices.update((id(each), each) for each in values if isinstance(each, torch.device))

    def has_moved(self, device: Any) -> bool:
        """Whether a host device stands for the GPU: it was there before the call."""
        return self.adopting and device.type == "cpu" and id(device) in self._devices

    def replace_state(self, holders: list[Any]) -> None:
        """Put the stand-ins where the callable will look for its tensors, in all that it reaches."""
        slots = [slot for holder in holders for slot in (*slots_in(holder), *_globals_of(holder))]
        found = [slot for slot in slots if issubclass(type(slot.value), torch.Tensor)]
        owned = _module_attributes(slots)
        moving = {
            slot.value.untyped_storage()._cdata
            for slot in found
            if slot.value.layout is torch.strided and id(slot.container) not in owned
        }
        for kind, container, key, value, _ in found:
            if not self.moves(value) or fake_device(value) not in (None, "cpu"):
                continue
            if value.untyped_storage()._cdata in moving:
                assign(kind, container, key, self.of(value))
            else:
                self._staying.add(value)
        for holder in holders:
            self._rekey(holder)

    def _rekey(self, container: Any) -> None:
        """Tables with tensors as keys (the state of an optimizer) get the stand-ins as keys."""
        fakes = self._fakes
        if isinstance(container, dict) and any(id(key) in fakes for key in container):
            items = [
                (fakes[id(key)][1] if id(key) in fakes else key, value) for key, value in container.items()
            ]
            container.clear()
            container.update(items)


def _globals_of(holder: Any) -> list[Slot]:
    """The globals that a function names."""
    if type(holder) is not FunctionType or not is_users(holder):
        return []
    namespace = holder.__globals__
    names = mentions_of(holder.__code__) & namespace.keys()
    return [Slot(ITEM, namespace, name, namespace[name], "") for name in names]


def _module_attributes(slots: list[Slot]) -> set[int]:
    """Identities of each module's ``__dict__``, with lists, tuples and dicts in it: ``.to()`` keeps those."""
    owned: set[int] = set()
    for kind, container, key, value, _ in slots:  # breadth first: what holds a container comes before it
        if kind != ITEM or not (is_module_dict(container) or id(container) in owned):
            continue
        owned.add(id(container))
        if isinstance(value, (list, tuple, dict)) and key not in _TABLES:
            owned.add(id(value))
    return owned


def is_module_dict(container: Any) -> bool:
    """Whether a container is the ``__dict__`` of a module."""
    return isinstance(container, dict) and "_parameters" in container and "_buffers" in container


def refuse_lazy(values: Iterable[Any]) -> None:
    """Refuse lazy modules, whose parameters have no shape before the first call.

    Raises:
        MisuseError: There is one among the callable's modules.
    """
    for module in [value for value in values if isinstance(value, torch.nn.Module)]:
        for name, parameter in module.named_parameters():
            if isinstance(parameter, UninitializedTensorMixin):
                raise MisuseError(
                    f"{type(module).__name__}.{name} has no shape yet, as it is a lazy module's: call the "
                    "module once on small real tensors, then check it"
                )
