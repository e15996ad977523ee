"""Private names of PyTorch that the recording layer uses, each with a probe and a fallback.

Every name was seen in torch 2.11 and 2.13, unless something else is said beside it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum
from functools import lru_cache, wraps
from threading import get_ident
from typing import Any

import torch
from torch.autograd import grad_mode
from torch.utils import _python_dispatch

from ..operators import python_kernels
from ..pytorch import REPLACEMENTS, is_wrapped, saving_hooks

_top_mode: Any = getattr(_python_dispatch, "_get_current_dispatch_mode", lambda: None)


def mode_below() -> Any:
    """Inside a dispatch mode: the next one below it; None if there is none, or PyTorch does not say."""
    return _top_mode()


_preserve: Any = getattr(grad_mode, "_unsafe_preserve_version_counter", None)
"""Seen in torch 2.13."""


def versions_kept(tensors: list[torch.Tensor]) -> AbstractContextManager[Any]:
    """A context after which tensors have the version counters they had; does nothing where PyTorch cannot."""
    counted = tuple(tensor for tensor in tensors if not tensor.is_inference())
    return _preserve(counted) if _preserve is not None else nullcontext()


_foreach_copy: Any = getattr(torch, "_foreach_copy_", None)


def apply_of(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """The ``apply`` of a function, without a loop over its arguments in Python.

    The loop looks for tensors that a ``functorch`` transform left behind. A replay has no such arguments.
    """
    return super(torch.autograd.Function, function).apply  # pyright: ignore[reportAttributeAccessIssue]


_functorch: Any = getattr(torch._C, "_functorch", None)
_hide_transforms: Any = getattr(torch._C, "_DisableFuncTorch", None)
_WRAPPING = ("Grad", "Jvp")

Wrap = Callable[[torch.Tensor], torch.Tensor]


@contextmanager
def below_transforms() -> Generator[Wrap]:
    """A context that running ``torch.func`` transforms do not see; yields how they wrap host data.

    Host data are met above the dispatcher, and so above the transforms, which give tensors without memory of
    their own.
    """
    if _functorch is None or _hide_transforms is None or _functorch.peek_interpreter_stack() is None:
        yield _same
        return
    levels = [each.level() for each in _functorch.get_interpreter_stack() if each.key().name in _WRAPPING]

    def wrap(tensor: torch.Tensor) -> torch.Tensor:
        for level in levels:
            tensor = _functorch._wrap_for_grad(tensor, level)
        return tensor

    with _hide_transforms():
        yield wrap


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor for which ``torch.func`` takes a gradient; outside of it the tensor itself."""
    while _functorch is not None and _functorch.is_gradtrackingtensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


def innermost(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor below all wrappers of ``torch.func`` transforms."""
    while _functorch is not None and is_wrapped(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


_unflatten: Any = getattr(getattr(torch._C, "_nn", None), "unflatten_dense_tensors", None)
_without_keys: Any = getattr(torch._C, "_ExcludeDispatchKeyGuard", None)


def _keys_of_views() -> Any:
    """The dispatch keys that make views of tensors; None where they cannot be left out."""
    kinds, keys = getattr(torch._C, "DispatchKeySet", None), getattr(torch._C, "DispatchKey", None)
    names = ("ADInplaceOrView", "AutogradCPU", "AutogradCUDA")
    found = [getattr(keys, name, None) for name in names]
    if _unflatten is None or _without_keys is None or kinds is None or None in found:
        return None
    return kinds(found[0]) | kinds(found[1]) | kinds(found[2])


_VIEWS = _keys_of_views()


def parts_of(flat: torch.Tensor, shapes: list[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Tensors on the memory of a flat one, one after the other, each with a version counter of its own.

    Args:
        flat: A tensor that requires no grad.
        shapes: Tensors of their shapes, none of them empty.
    """
    if _VIEWS is not None:  # below what makes views, the same operations give tensors that are none
        with _without_keys(_VIEWS):
            return _unflatten(flat, shapes)
    parts = flat.split([shape.numel() for shape in shapes])
    return [part.view(shape.shape).data for part, shape in zip(parts, shapes, strict=True)]


def copy_all(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """Copy tensors of equal shapes pairwise, in one operation where PyTorch has one."""
    if _foreach_copy is not None and len(targets) > 1:
        _foreach_copy(targets, sources)
        return
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)


_swap: Any = getattr(torch._C, "_swap_tensor_impl", None)


def swap_tensors(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Exchange what is below two Python tensors; False if PyTorch cannot, and nothing has happened.

    ``torch.utils.swap_tensors`` exchanges attributes and types of the Python objects as well, and refuses
    tensors that a graph refers to, as rote's are.
    """
    if _swap is None:
        return False
    try:
        _swap(one, other)
    except RuntimeError:  # somebody refers to one of them weakly from C++
        return False
    return True


def history_of(tensor: torch.Tensor) -> Any:
    """The node of a graph that made a tensor; None if there is none, or if autograd refuses to tell.

    It refuses for a view that was made without gradients, once its base was written in place with them.
    """
    try:
        return tensor.grad_fn
    except RuntimeError:
        return None


def has_refused_history(tensor: torch.Tensor) -> bool:
    """Whether autograd refuses to tell what made a tensor."""
    try:
        _ = tensor.grad_fn
    except RuntimeError:
        return True
    return False


def node_age(node: Any) -> int:
    """The number of an autograd node; nodes that a thread makes later have higher ones.

    Without the probe every node counts as made before the call, and nothing with a graph is recorded.
    """
    number = getattr(node, "_sequence_nr", None)
    return int(number()) if number is not None else -1


_engine: Any = getattr(torch.autograd.Variable, "_execution_engine", None)
_pass_number: Any = getattr(torch._C, "_current_graph_task_id", None)


def current_pass() -> int | None:
    """The number of the backward pass that this thread works on; None outside of one."""
    number = _pass_number() if _pass_number is not None else -1
    return number if number >= 0 else None


_after_pass: Any = getattr(_engine, "queue_callback", None)


def tells_passes() -> bool:
    """Whether PyTorch says which backward pass a thread works on, and when it has ended."""
    return _pass_number is not None and _after_pass is not None


def after_pass(then: Callable[[], None]) -> None:
    """Call something when the backward pass that this thread works on has ended without an error."""
    _after_pass(then)


class Creation(Enum):
    """How autograd looks at a tensor.

    Attributes:
        OWN: It is no view.
        VIEW: A view that gets a history where its base does.
        PART: One of several views that one operation gave; it must not be written.
        OTHER: A view that gets no history (made under ``no_grad``, or in a custom function).
    """

    OWN, VIEW, PART, OTHER = range(4)


_graph: Any = getattr(torch._C, "_autograd", None)
_creation: Any = getattr(_graph, "_get_creation_meta", None)
_creations: Any = getattr(_graph, "CreationMeta", None)
_set_creation: Any = getattr(_graph, "_set_creation_meta", None)


def creation_of(tensor: torch.Tensor) -> Creation | None:
    """How autograd looks at a tensor; None where PyTorch does not say."""
    if not tensor._is_view():
        return Creation.OWN
    if _creation is None or _creations is None:
        return None
    kinds = {_creations.DEFAULT: Creation.VIEW, _creations.MULTI_OUTPUT_NODE: Creation.PART}
    return kinds.get(_creation(tensor), Creation.OTHER)


def tells_creation() -> bool:
    """Whether PyTorch says how views were made, and lets others be like them."""
    return None not in (_creation, _creations, _set_creation)


def is_plain_creation(tensor: torch.Tensor) -> bool:
    """Whether a tensor is no view, or a view that autograd allows to be written, as far as PyTorch says."""
    return creation_of(tensor) in (Creation.OWN, Creation.VIEW)


def creation_kind(tensor: torch.Tensor) -> Any:
    """How PyTorch says that a view was made; None of other tensors, or where it does not say."""
    return _creation(tensor) if tells_creation() and tensor._is_view() else None


def set_creation_kind(view: torch.Tensor, kind: Any) -> None:
    """Mark a view as made like another one; ``kind`` is what :func:`creation_kind` tells of that."""
    if kind is not None and view._is_view() and _creation(view) != kind:
        _set_creation(view, kind)


_increment: Any = getattr(torch.autograd.graph, "increment_version", None)
_put_back: Any = getattr(_graph, "_unsafe_set_version_counter", None)
"""Without them tensors over one memory are taken to count together."""


def counts_apart(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have version counters of their own; they are as before afterwards."""
    if _increment is None or _put_back is None or one.is_inference() or other.is_inference():
        return False
    was, before = one._version, other._version
    _increment(one)
    try:
        return other._version == before
    finally:
        _put_back((one,), (was,))


def saving_is_hooked() -> bool:
    """Whether saved-tensor hooks are in force, so that somebody else decides what a backward keeps."""
    return saving_hooks(True) is not None


in_bad_fork: Callable[[], bool] = getattr(torch._C, "_cuda_isInBadFork", bool)
"""Says whether the process was forked from one that had used CUDA, which only CUDA builds can be."""


def _same(value: Any) -> Any:
    return value


_disabled: Any = getattr(torch._C, "_disabled_torch_function_impl", None)
"""The ``__torch_function__`` of a tensor class that overrides nothing."""


@contextmanager
def unseen_function_mode() -> Generator[None]:
    """Let PyTorch's layers choose their kernels as outside of a trace.

    Attention asks ``torch.overrides.has_torch_function`` before it takes its fast path, and a function mode
    counts there. While a call is traced, under the backend's lock, the function under this name looks at the
    tensors alone.
    """
    with REPLACEMENTS.replaced(torch.overrides, "has_torch_function", _has_overrides):
        yield


@wraps(torch.overrides.has_torch_function)
def _has_overrides(arguments: Iterable[Any]) -> bool:
    """Whether an argument is of a class that overrides functions of PyTorch."""
    kinds = {type(argument) for argument in arguments} - {torch.Tensor}
    return any(getattr(kind, "__torch_function__", _disabled) is not _disabled for kind in kinds)


@contextmanager
def in_backwards(mode: torch.overrides.TorchFunctionMode) -> Generator[None]:
    """A context in which backwards of this thread run in a function mode, as far as they are Python code.

    PyTorch calls a function mode for a backward with that mode off, and the functions of autograd that it
    runs see what is in force then.
    """
    if not hasattr(torch.autograd, _ENGINE_CALL):
        yield
        return

    thread = get_ident()

    def run(*args: Any, **kwargs: Any) -> Any:
        with mode if get_ident() == thread else nullcontext():
            return original(*args, **kwargs)

    with REPLACEMENTS.replaced(torch.autograd, _ENGINE_CALL, run) as original:
        yield


_ENGINE_CALL = "_engine_run_backward"
"""What calls the engine, as ``torch.autograd`` names it. Seen in torch 2.11 and 2.13."""
_OWN_KERNELS = frozenset({"aten/_foreach_mm/CUDA", "aten/bmm/CUDA", "aten/linalg_lu_solve.out/MPS"})
"""Those that PyTorch registers for operations of its own, in 2.13."""
_ELSEWHERE = ("/Meta", "/FuncTorchBatched")
"""Kernels for shapes, and for ``vmap``, which no traced call is in."""


def replaced_kernels() -> bool:
    """Whether somebody has registered Python code as a kernel of one of PyTorch's own operations.

    Then any other operation may run it, since kernels call operations.
    """
    return python_kernels is None or _are_replaced(len(python_kernels))


@lru_cache(maxsize=1)
def _are_replaced(count: int) -> bool:
    """The answer for this number of kernels: there are thousands, most of them for shapes."""
    del count
    return any(
        [
            key.startswith("aten/") and not key.endswith(_ELSEWHERE) and key not in _OWN_KERNELS
            for key in python_kernels
        ]
    )


_unsafe_view: Any = getattr(getattr(torch.ops.aten, "_unsafe_view", None), "default", None)
"""A tensor over the same memory that autograd takes for a new one."""


def without_view(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor over the same memory that autograd takes for a new one, or a copy where PyTorch gives none."""
    if _unsafe_view is None:
        return tensor.clone()
    made = _unsafe_view(tensor, tensor.shape)
    if made.stride() != tensor.stride():  # of a dimension with one element PyTorch says what it likes
        made.data = tensor.detach()
    return made


_will_execute: Any = getattr(torch._C, "_will_engine_execute_node", None)


def asks_for_some(node: Any) -> bool:
    """Inside a backward: whether it was asked for certain gradients; otherwise it adds up all of them.

    ``node`` is one of the walked graph, and nobody asks for its gradient.
    """
    return _will_execute is None or not _will_execute(node)


def watch_hooks(result: torch.Tensor) -> dict[int, Any] | None:
    """Where hooks on a tensor with a history will be; None if PyTorch does not say.

    Their table outlives the tensor, and so do they.
    """
    register: Any = getattr(result.grad_fn, "_register_hook_dict", None)
    if register is None:
        return None
    hooks: OrderedDict[int, Any] = OrderedDict()
    result._backward_hooks = hooks
    register(result)
    return hooks


def with_own_node(result: torch.Tensor) -> torch.Tensor:
    """One of several results of an autograd function, with a node that it does not share with the others.

    Without the probe they share one, as views of one another do in eager, too: hooks on a result are then
    called with None by a walk from another.
    """
    lazy = result.is_conj() or result.is_neg()  # it would be made plain
    return result if _unsafe_view is None or lazy or result._is_view() else without_view(result)
