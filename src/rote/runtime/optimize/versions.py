"""Operations in place as values: what they give is the next version of the memory that they write.

``p.mul_(0.9)`` followed by ``p.sub_(u)`` is ``p' = p * 0.9``, ``p'' = p' - u`` and one store of ``p''`` where
``p`` lies. So a group of operations that contains such ones is written into kernels like any other; only the
last version has to be in memory. That is where the group found the first one, if the memory comes from
outside, or others read there what the stretch has made: it *stays*. Of other memory the last version lies
elsewhere, and all that is read later is read from there. This is right if

- each operation in place writes all of the memory, and nothing else lies there under another name: outside it
  has none, and what a stretch has made is known by one name. It is shown to others after one segment at most;
- the operation in place calculates in the type of that memory, as the one that makes a result does, and the
  two are one kernel of PyTorch's (``_ALIKE`` and ``_OTHERS`` name those);
- whoever reads the first version has done so when the last one is stored: no kernel behind that store reads
  it, and where it stays, the kernel that stores it reads only the very element that it stores.

Where one of these does not hold for a group, operations in place stay what they are, and end it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..fusion import ElementPosition, Fusible, Loaded, NoKernelError, Written, common_type
from ..program import Number, Operation, Origin, Token

_VERSION = "version"

_ALIKE = frozenset((
    "abs_", "add_", "addcdiv_", "addcmul_", "clamp_", "clamp_max_", "clamp_min_", "div_", "exp_", "gelu_",
    "hardsigmoid_", "hardswish_", "hardtanh_", "leaky_relu_", "lerp_", "log_", "masked_fill_", "mul_", "neg_",
    "reciprocal_", "relu_", "rsqrt_", "sigmoid_", "silu_", "sqrt_", "sub_", "tanh_",
))  # fmt: skip
"""Operations in place that are one kernel with the operation of their name without the mark at its end."""

_OTHERS = {"copy_": "_to_copy", "fill_.Scalar": "full_like", "zero_": "zeros_like"}
"""Those whose value has another name, and no operand in the type of the memory."""

Whole = Callable[[Token], bool]
"""Whether a tensor is all of a memory that has no other name."""


@dataclass(frozen=True)
class InPlaceStore:
    """An operation in place: what gives the value, and the tensor that it writes."""

    value: Fusible
    target: Token

    @classmethod
    def of(cls, index: int, operation: Operation, whole: Whole) -> InPlaceStore | None:
        """An operation in place as a value; None if it is none, or no such value."""
        name = _value(operation.name.removeprefix("aten::"))
        if name is None or operation.written != (0,) or not isinstance(operation.operands[0], Token):
            return None
        target = operation.operands[0]
        if target.offset or not whole(target):
            return None
        result = Token((_VERSION, index), target.look, 0)
        operands, named = operation.operands, operation.named
        if name == "_to_copy":
            operands, named = (operands[1],), (("dtype", target.dtype),)
        value = Operation.called(operation.kind, f"aten::{name}", operands, named, operation.site)
        try:
            if name not in _OTHERS.values():
                given = [each for each in operands if isinstance(each, (Token, Number))]
                if common_type(given) is not target.dtype:
                    return None
            return cls(Fusible.of(index, value.ended("one", (result,))), target)
        except NoKernelError:
            return None


def _value(name: str) -> str | None:
    """The operation that gives what one in place writes; None if none is known to."""
    packet, point, overload = name.partition(".")
    return packet[:-1] + point + overload if packet in _ALIKE else _OTHERS.get(name)


class Versions:
    """A group of operations, some of them in place, with what these write as values.

    Args:
        stays: Whether the last version of a memory lies where the first one does.

    Attributes:
        group: The operations, as they are written into kernels.
        last: The operation that gives the last version of each memory.
    """

    def __init__(
        self, waiting: Sequence[Fusible], stores: Mapping[int, InPlaceStore], stays: Callable[[Origin], bool]
    ) -> None:
        self.group: list[Fusible] = []
        self.last: dict[Origin, int] = {}
        self._count = Counter[Origin]()
        self._stores = stores
        self._stays = stays
        self._makers = {each.result.origin: each.index for each in waiting if each.index not in stores}
        now: dict[Origin, Origin] = {}
        for each in waiting:
            self.group.append(replace(each, operation=_renamed(each.operation, now)))
            store = stores.get(each.index)
            if store is not None:
                origin = store.target.origin
                now[origin] = each.result.origin
                self.last[origin] = each.index
                self._count[origin] += 1

    @property
    def replaced(self) -> frozenset[int]:
        """The operations whose results have other versions in the end."""
        return frozenset([self._makers[origin] for origin in self.last if origin in self._makers])

    def settled(self, planned: Sequence[Written | Fusible]) -> list[Written | int] | None:
        """What runs, if every version is read and stored in time."""
        found: list[Written | int] = []
        stored: set[Origin] = set()  # by now
        for item in planned:
            reads = _reads(item)
            if not stored.isdisjoint(reads) or any([kind == _VERSION for kind, _ in reads]):
                return None
            indices = item.stores if isinstance(item, Written) else (item.index,)
            mine = {self._stores[index].target.origin: index for index in indices if index in self._stores}
            if any([self.last[origin] != index for origin, index in mine.items()]):
                return None
            if not self.replaced.isdisjoint(indices):
                return None
            if isinstance(item, Written):
                staying = {origin: index for origin, index in mine.items() if self._stays(origin)}
                targets = [self._stores[index].target for index in staying.values()]
                if not all([_is_read_where_it_is_stored(item, target) for target in targets]):
                    return None
                in_place = any([origin in staying for origin in reads])
                found.append(replace(item, body=replace(item.body, in_place=in_place)) if in_place else item)
            else:
                if any([self._count[origin] > 1 for origin in mine]):
                    return None
                found.append(item.index)
            stored.update(mine)
        return found


def _renamed(operation: Operation, now: Mapping[Origin, Origin]) -> Operation:
    """An operation that reads the newest versions."""
    if not now:
        return operation

    def leaf(operand: Any) -> Any:
        if type(operand) is tuple:
            return tuple([leaf(each) for each in operand])
        if type(operand) is Token and operand.origin in now:
            return operand._replace(origin=now[operand.origin])
        return operand

    named = tuple([(name, leaf(each)) for name, each in operation.named])
    return operation._replace(operands=tuple([leaf(each) for each in operation.operands]), named=named)


def _reads(item: Written | Fusible) -> Collection[Origin]:
    if isinstance(item, Written):
        return {origin for origin, _ in item.reads}
    return {token.origin for token in item.operation.tokens}


def _is_read_where_it_is_stored(kernel: Written, target: Token) -> bool:
    """Whether a kernel looks at no element of a memory but the one that it stores there."""
    types = {number: dtype for number, (origin, dtype) in enumerate(kernel.reads) if origin == target.origin}
    if any([dtype is not target.dtype for dtype in types.values()]):
        return False
    same = ElementPosition.same(kernel.body.count)
    loaded = [value for value in kernel.body.values if isinstance(value, Loaded) and value.tensor in types]
    return all([value.position == same and not value.within for value in loaded])
