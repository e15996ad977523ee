"""A call of a graphed callable in a compiled function."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_unflatten

from ..base import MisuseError
from .body import Traced, fake_of

_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class ModesAtCall:
    """The modes of one moment.

    PyTorch's compiler puts them into the operations that it traces, and compiled code runs without them.

    Attributes:
        casts: For each kind of device whether autocast is on, and to which type it casts.
        cache: Whether autocast keeps casts of parameters.
    """

    grad: bool
    casts: tuple[tuple[bool, torch.dtype], ...]
    cache: bool

    @classmethod
    def now(cls) -> ModesAtCall:
        """The modes in force."""
        casts = tuple((torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in _DEVICES)
        return cls(torch.is_grad_enabled(), casts, torch.is_autocast_cache_enabled())

    @contextmanager
    def in_force(self) -> Generator[None]:
        """A context with these modes."""
        with ExitStack() as stack:
            if torch.is_grad_enabled() != self.grad:
                stack.enter_context(torch.set_grad_enabled(self.grad))
            for kind, (enabled, dtype) in zip(_DEVICES, self.casts, strict=True):
                if (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) != (enabled, dtype):
                    cast = torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=self.cache)
                    stack.enter_context(cast)
            yield


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors in lists, tuples, dicts and dataclasses. Dynamo traces this; it runs on real results."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in tensors_of(each)]
    if isinstance(value, dict):
        return [tensor for each in value.values() for tensor in tensors_of(each)]
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is None:
        return []
    return [tensor for name in fields for tensor in tensors_of(getattr(value, name, None))]


@dataclass(frozen=True)
class Operands:
    """The arguments of the callable in terms of the operands of the call.

    Attributes:
        values: The leaves that are the same in each call, objects as references that do not keep them
            alive; None for others.
        numbers: For each other leaf the number of an operand.
        structure: How leaves lie in positional and keyword arguments.
    """

    values: Sequence[Any]
    numbers: Mapping[int, int]
    structure: Any

    def arguments(self, operands: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments of one call."""
        leaves = [each() if isinstance(each, weakref.ref) else each for each in self.values]
        for place, number in self.numbers.items():
            leaves[place] = operands[number]
        args, kwargs = tree_unflatten(leaves, self.structure)
        return tuple(args), kwargs


def laid_out(tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """The tensor, copied if it has other strides."""
    if tensor.stride() == tuple(strides):
        return tensor
    return tensor.new_empty_strided(tensor.shape, [*strides]).copy_(tensor)


@dataclass(frozen=True)
class Promise:
    """How a tensor looks while PyTorch traces: a size that is not known then is None."""

    shape: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    dtype: torch.dtype
    device: torch.device
    needs_grad: bool

    @classmethod
    def of(cls, fake: torch.Tensor) -> Promise:
        """What a fake tensor promises."""
        shape, strides = (
            tuple(None if isinstance(number, torch.SymInt) else number for number in numbers)
            for numbers in (fake.shape, fake.stride())
        )
        return cls(shape, strides, fake.dtype, fake.device, fake.requires_grad)

    def fits(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor looks like that; its strides may be others."""
        if tensor.dtype is not self.dtype or tensor.device != self.device or tensor.dim() != len(self.shape):
            return False
        return all(
            known is None or known == size for known, size in zip(self.shape, tensor.shape, strict=True)
        )

    def lay_out(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor, copied if it has other strides than compiled code expects."""
        known = [stride for stride in self.strides if stride is not None]
        return tensor if len(known) < len(self.strides) else laid_out(tensor, known)

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{[*self.shape]} on {self.device}"


@dataclass(frozen=True, eq=False)
class EnclosedCall:
    """A call of a graphed callable in the graph of a compiled function.

    Its operands are tensors, then sizes. Among the tensors are those that the callable does not get as
    arguments and reaches in another way, such as parameters.

    Attributes:
        name: Known to this process alone, so that no cache of compiled code takes it for another one.
        graphed: The graphed callable, which the compiled function does not keep alive.
        owner: The instance, if it is a method that was graphed in a class, likewise.
        operands: How the operands make arguments.
        made: The numbers of those that the compiled code makes, in memory that it uses again.
        body: What the plain callable does, as a graph over the operands; it never runs on real tensors.
        inputs: How the tensors among the operands look.
        places: For each result of the call, which tensor it is of what the callable returns.
        looks: What is promised of each result.
        reached: For each result, the numbers of the operands to which a gradient goes.
    """

    name: str
    graphed: weakref.ref[Any]
    owner: weakref.ref[Any] | None
    called: str
    operands: Operands
    tensors: int
    made: frozenset[int]
    body: GraphModule
    inputs: Sequence[Promise]
    places: Sequence[int]
    looks: Sequence[Promise]
    reached: Sequence[frozenset[int]]
    modes: ModesAtCall

    @classmethod
    def of(
        cls,
        graphed: Any,
        owner: Any,
        operands: Operands,
        traced: Traced,
        body: GraphModule,
        results: Sequence[Node],
        modes: ModesAtCall,
    ) -> EnclosedCall:
        """Make a call of what Dynamo has traced, while its fake tensors are there."""
        return cls(
            name=uuid.uuid4().hex,
            graphed=weakref.ref(graphed),
            owner=None if owner is None else weakref.ref(owner),
            called=getattr(graphed, "__qualname__", "") or type(graphed).__name__,
            operands=operands,
            tensors=traced.tensors,
            made=frozenset(n for n, each in enumerate(traced.inputs) if each.op != "placeholder"),
            body=body,
            inputs=[Promise.of(fake_of(each)) for each in traced.inputs[: traced.tensors]],
            places=[results.index(each) for each in traced.results],
            looks=[Promise.of(fake_of(each)) for each in traced.results],
            reached=_reached(traced),
            modes=modes,
        )

    def run(self, operands: Sequence[Any]) -> list[torch.Tensor]:
        """Call the graphed callable.

        Raises:
            MisuseError: The graphed callable is gone, or it returned something else than was compiled for.
        """
        graphed = self.graphed()
        if self.owner is not None and graphed is not None:
            graphed = graphed.__get__(self.owner())
        if graphed is None:
            raise MisuseError(f"the graphed {self.called} that compiled code calls no longer exists")
        args, kwargs = self.operands.arguments(operands)
        with self.modes.in_force():
            found = tensors_of(graphed(*args, **kwargs))
        for place, look in zip(self.places, self.looks, strict=True):
            if len(found) <= place or not look.fits(found[place]):
                was = Promise.of(found[place]) if place < len(found) else "nothing"
                raise MisuseError(
                    f"compiled code calls {self.called}, tensor {place} of its result was {look} when that "
                    f"code was compiled and is {was}; torch.compile saw no reason to compile it again. "
                    "Compile it again by torch._dynamo.reset(), or call the callable outside of compiled code"
                )
        return [found[place] for place in self.places]


def _reached(traced: Traced) -> list[frozenset[int]]:
    """For each result the inputs that get a gradient from it, by a walk back on fake tensors."""
    fakes = {n: fake_of(each) for n, each in enumerate(traced.inputs[: traced.tensors])}
    asked = {n: fake for n, fake in fakes.items() if fake.requires_grad}
    found: list[frozenset[int]] = []
    for result in map(fake_of, traced.results):
        if not result.requires_grad or not asked:
            found.append(frozenset())
            continue
        grads: Any = torch.autograd.grad(
            result, [*asked.values()], torch.zeros_like(result), retain_graph=True, allow_unused=True
        )
        found.append(frozenset(n for n, grad in zip(asked, grads, strict=True) if grad is not None))
    return found
