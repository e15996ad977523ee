"""Operations made of other operations, chosen by what no operation shows.

A dispatch mode sees and records the parts alone. So these operations are caught by name above the dispatcher,
as host data are. Their choice depends on one of two things:

- **A host read.** ``tensor_split`` and everything about packed sequences read the elements of a tensor
  straight from its memory. Here the places to split at are read first, a host read like any other. A packed
  sequence stays eager: nearly every batch has other lengths, each a path of its own. ``one_hot`` reads the
  least and the largest element to refuse what is no class. Here it is read whether there is such an element,
  so that one path answers for all others.
- **An active mode.** Some operations calculate in another way in a mode, with other last bits, to be safe
  with unknown classes of tensors. Singular values and eigenvalues come with vectors; a product of batches,
  one of length one, is folded into a product of matrices; the gradient of a product multiplies the other
  factors, where it is divided by each outside of a mode. Here they run as outside of a mode. The loss of CTC
  reads lengths on the host, and in a mode hands them to the kernel, which wants them on its device.

A deep copy of a tensor copies its storage, which is made past the dispatcher. Of a tensor that fills its
storage it is a clone.

The gradient of a product is divided by a hook behind the node of its backward. The hook holds neither the
node nor the result: the three would be a cycle that no collector finds.

They were found by running every operation that PyTorch describes for its own tests, plain and graphed. The
same operations called from C++ or from a scripted function are not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch

from ...base import user_site
from ...hazards import rules
from ...hazards.rules import reason
from ..operators import rows_with
from ..pytorch import is_wrapped
from .tracer import Tracer


def _functions(name: str) -> list[Any]:
    """The Python functions that call an operator."""
    short = name.removeprefix("linalg_")
    if name != short:
        return [getattr(torch.linalg, short)]
    named = (
        (torch, name),
        (torch.nn.functional, name),
        *((torch.Tensor, each) for each in (name, f"__{name}__", f"__r{name}__")),
    )
    return [getattr(home, each) for home, each in named if hasattr(home, each)]


def _with(fact: str) -> dict[Any, str]:
    return {function: value for name, value in rows_with(fact) for function in _functions(name)}


_SPLITS, _LENGTHS, _PACKED, _VALUES, _PRODUCTS, _DIVIDED, _REFUSES = map(
    _with, ("splits", "lengths", "packed", "values", "product", "divides", "refuses")
)
_COPIES = torch.Tensor.__deepcopy__
COMPOSITES = frozenset((*_SPLITS, *_LENGTHS, *_PACKED, *_VALUES, *_PRODUCTS, *_DIVIDED, *_REFUSES, _COPIES))
"""The functions that :func:`call_composite` is for."""


def call_composite(
    tracer: Tracer,
    read: Callable[[torch.Tensor], list[Any]],
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call one of :data:`COMPOSITES` in a traced call."""
    if func is _COPIES:
        return _copied(*args, **kwargs)
    if func in _PRODUCTS:
        return func(*_of_one_length(args), **kwargs)
    if func in _SPLITS:
        return _split(read, func, args, kwargs)
    if func in _LENGTHS:
        return _with_lengths(func, args, kwargs)
    if func in _DIVIDED:
        return _divided(func(*args, **kwargs))
    if func in _REFUSES:
        return _of_classes(func, args, kwargs)
    if func in _VALUES:
        with tracer.without_vectors():
            return func(*args, **kwargs)
    position = _PACKED[func]
    if not position or isinstance(args[int(position)], torch.Tensor):
        text = f"{func.__name__}() reads the lengths of a packed sequence on the host"
        tracer.cursor.block(reason(rules.PACKED, text, user_site()))
    return func(*args, **kwargs)


def _copied(tensor: torch.Tensor, memo: dict[Any, Any]) -> torch.Tensor:
    """A deep copy; tensors that share their storage have copies that share theirs."""
    if id(tensor) in memo or not _fills_its_storage(tensor):
        return _COPIES(tensor, memo)
    handle, storages = tensor.untyped_storage()._cdata, memo.setdefault("torch", {})
    if handle in storages:
        return _COPIES(tensor, memo)
    made = memo[id(tensor)] = tensor.clone()
    storages[handle] = made.untyped_storage()
    return made


def _fills_its_storage(tensor: torch.Tensor) -> bool:
    """Whether a tensor has nothing but its elements, in a row from the start of a storage of that size."""
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided or tensor.is_quantized:
        return False
    if (
        tensor.requires_grad
        or tensor.grad is not None
        or tensor.__dict__
        or tensor.is_conj()
        or tensor.is_neg()
    ):
        return False
    whole = tensor.is_contiguous() and not tensor.storage_offset()
    return whole and 0 < tensor.nbytes == tensor.untyped_storage().nbytes()


def _split(
    read: Callable[[torch.Tensor], list[Any]], func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    name = _SPLITS[func]
    places = args[1] if len(args) > 1 else kwargs.get(name)
    if not isinstance(places, torch.Tensor) or (places.dim(), places.dtype) != (1, torch.int64):
        return func(*args, **kwargs)  # an operation reads a single number; anything else is an error
    indices = tuple(read(places))
    if len(args) > 1:
        return func(args[0], indices, *args[2:], **kwargs)
    others = {key: value for key, value in kwargs.items() if key != name}
    return func(*args, **others, indices=indices)


def _with_lengths(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The loss of CTC with its lengths where its probabilities are: in a mode they go to the kernel."""
    probs = args[0] if args else kwargs["log_probs"]

    def moved(value: Any) -> Any:
        return value.to(probs.device) if isinstance(value, torch.Tensor) and value.dim() == 1 else value

    names = _LENGTHS[func].split()
    others = {name: moved(value) if name in names else value for name, value in kwargs.items()}
    return func(*args[:2], *map(moved, args[2:4]), *args[4:], **others)


def _of_classes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A column for each class, in which each element has a one."""
    classes: Any = args[0] if args else kwargs.get("input")
    count = args[1] if len(args) > 1 else kwargs.get("num_classes", -1)
    plain = type(classes) is torch.Tensor and classes.device.type == "cpu" and not is_wrapped(classes)
    if plain and classes.dtype is torch.int64 and classes.numel() and type(count) is int and count >= -1:
        least, largest = torch.aminmax(classes)
        if count < 0:
            count = int(largest) + 1
        if bool((least >= 0) & (largest < count)):
            return classes.new_zeros((*classes.shape, count)).scatter_(-1, classes.unsqueeze(-1), 1)
    return func(*args, **kwargs)


def _of_one_length(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Two batches of matrices; the broadcast one is expanded, unless it needs a gradient."""
    if len(args) != 2 or not all(isinstance(tensor, torch.Tensor) and tensor.dim() == 3 for tensor in args):
        return args
    length = max(args[0].shape[0], args[1].shape[0])
    return tuple(
        tensor.expand(length, -1, -1) if tensor.shape[0] == 1 and not tensor.requires_grad else tensor
        for tensor in args
    )


# ---------------------------------------------------------------------- gradients of products


_OF_ALL, _OF_ONE_DIMENSION, _CUMULATED = "ProdBackward0", "ProdBackward1", "CumprodBackward0"
_Gradients = tuple[torch.Tensor | None, ...]


def _divided(result: torch.Tensor) -> torch.Tensor:
    """A product, whose backward divides as outside of a mode."""
    if result.grad_fn is None:
        return result
    node, name = cast(Any, result.grad_fn), result.grad_fn.name()
    if name in (_OF_ALL, _OF_ONE_DIMENSION, _CUMULATED):
        factors = node._saved_self.detach()
        dim = 0 if name == _OF_ALL else _signed(node._saved_dim) % max(factors.dim(), 1)
        keeps = name != _OF_ONE_DIMENSION or node._saved_keepdim
        if factors.dim() and factors.numel() > 1:
            node.register_hook(_Division(name, factors, result.detach(), dim, keeps))
    return result


@dataclass(frozen=True)
class _Division:
    """A hook behind the backward of a product.

    Attributes:
        factors: What was multiplied.
        dim: The dimension that was multiplied over.
        keeps: The product has that dimension, too.
    """

    name: str
    factors: torch.Tensor
    result: torch.Tensor
    dim: int
    keeps: bool

    def __call__(self, made: _Gradients, given: _Gradients) -> _Gradients | None:
        """The gradients that the node gives on; None for those that it has made."""
        if torch.is_grad_enabled() or made[0] is None or given[0] is None:
            return None
        if self.name == _CUMULATED and self.factors.shape[self.dim] == 1:
            return None
        if bool((self.factors == 0).any()):
            return None
        return (self._gradient(given[0].to(self.factors.dtype)), *made[1:])

    def _gradient(self, given: torch.Tensor) -> torch.Tensor:
        if self.name == _CUMULATED:
            weighted = self.result.conj() * given
            return weighted.flip(self.dim).cumsum(self.dim).flip(self.dim).div(self.factors.conj())
        result = self.result
        if not self.keeps:
            given, result = given.unsqueeze(self.dim), result.unsqueeze(self.dim)
        return given * (result / self.factors).conj()


def _signed(number: int) -> int:
    """A dimension, which a node shows without its sign."""
    return number - (1 << 64) if number >= 1 << 63 else number
