"""Private names of PyTorch that the recording layer uses. Each was seen in torch 2.11 and 2.13."""

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

_C: Any = torch._C

mode_below: Callable[[], Any] = _python_dispatch._get_current_dispatch_mode
"""Inside a dispatch mode: the next one below it; None if there is none."""


def versions_kept(tensors: list[torch.Tensor]) -> AbstractContextManager[Any]:
    """A context after which tensors have the version counters they had."""
    counted = tuple(tensor for tensor in tensors if not tensor.is_inference())
    return grad_mode._unsafe_preserve_version_counter(counted)


def apply_of(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """The ``apply`` of a function, without a loop over its arguments in Python.

    The loop looks for tensors that a ``functorch`` transform left behind. A replay has no such arguments.
    """
    return super(torch.autograd.Function, function).apply  # pyright: ignore[reportAttributeAccessIssue]


_functorch: Any = _C._functorch
_WRAPPING = ("Grad", "Jvp")

Wrap = Callable[[torch.Tensor], torch.Tensor]


@contextmanager
def below_transforms() -> Generator[Wrap]:
    """A context that running ``torch.func`` transforms do not see; yields how they wrap host data.

    Host data are met above the dispatcher, and so above the transforms, which give tensors without memory of
    their own.
    """
    if _functorch.peek_interpreter_stack() is None:
        yield _same
        return
    levels = [each.level() for each in _functorch.get_interpreter_stack() if each.key().name in _WRAPPING]

    def wrap(tensor: torch.Tensor) -> torch.Tensor:
        for level in levels:
            tensor = _functorch._wrap_for_grad(tensor, level)
        return tensor

    with _C._DisableFuncTorch():
        yield wrap


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor for which ``torch.func`` takes a gradient; outside of it the tensor itself."""
    while _functorch.is_gradtrackingtensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


def innermost(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor below all wrappers of ``torch.func`` transforms."""
    while is_wrapped(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


_VIEWS: Any = (
    _C.DispatchKeySet(_C.DispatchKey.ADInplaceOrView)
    | _C.DispatchKeySet(_C.DispatchKey.AutogradCPU)
    | _C.DispatchKeySet(_C.DispatchKey.AutogradCUDA)
)
"""The dispatch keys that make views of tensors."""


def parts_of(flat: torch.Tensor, shapes: list[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Tensors on the memory of a flat one, one after the other, each with a version counter of its own.

    Args:
        flat: A tensor that requires no grad.
        shapes: Tensors of their shapes, none of them empty.
    """
    with _C._ExcludeDispatchKeyGuard(_VIEWS):  # the same operations give tensors that are no views
        return _C._nn.unflatten_dense_tensors(flat, shapes)


def copy_all(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """Copy tensors of equal shapes pairwise, in one operation."""
    if len(targets) > 1:
        torch._foreach_copy_(targets, sources)  # pyright: ignore[reportPrivateImportUsage]
        return
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)


def swap_tensors(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Exchange what is below two Python tensors; False if PyTorch cannot, and nothing has happened.

    ``torch.utils.swap_tensors`` exchanges attributes and types of the Python objects as well, and refuses
    tensors that a graph refers to, as rote's are.
    """
    try:
        _C._swap_tensor_impl(one, other)
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
    """The number of an autograd node; nodes that a thread makes later have higher ones, and none has -1."""
    return int(node._sequence_nr()) if node is not None else -1


def current_pass() -> int | None:
    """The number of the backward pass that this thread works on; None outside of one."""
    number = _C._current_graph_task_id()
    return number if number >= 0 else None


def after_pass(then: Callable[[], None]) -> None:
    """Call something when the backward pass that this thread works on has ended without an error."""
    engine: Any = torch.autograd.Variable._execution_engine
    engine.queue_callback(then)


class Creation(Enum):
    """How autograd looks at a tensor.

    Attributes:
        OWN: It is no view.
        VIEW: A view that gets a history where its base does.
        PART: One of several views that one operation gave; it must not be written.
        OTHER: A view that gets no history (made under ``no_grad``, or in a custom function).
    """

    OWN, VIEW, PART, OTHER = range(4)


_creation: Any = _C._autograd._get_creation_meta
_creations: Any = _C._autograd.CreationMeta


def creation_of(tensor: torch.Tensor) -> Creation:
    """How autograd looks at a tensor."""
    if not tensor._is_view():
        return Creation.OWN
    kinds = {_creations.DEFAULT: Creation.VIEW, _creations.MULTI_OUTPUT_NODE: Creation.PART}
    return kinds.get(_creation(tensor), Creation.OTHER)


def creation_kind(tensor: torch.Tensor) -> Any:
    """How PyTorch says that a view was made; None of other tensors."""
    return _creation(tensor) if tensor._is_view() else None


def set_creation_kind(view: torch.Tensor, kind: Any) -> None:
    """Mark a view as made like another one; ``kind`` is what :func:`creation_kind` tells of that."""
    if kind is not None and view._is_view() and _creation(view) != kind:
        _C._autograd._set_creation_meta(view, kind)


def counts_apart(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have version counters of their own; they are as before afterwards."""
    if one.is_inference() or other.is_inference():
        return False
    was, before = one._version, other._version
    torch.autograd.graph.increment_version(one)
    try:
        return other._version == before
    finally:
        _C._autograd._unsafe_set_version_counter((one,), (was,))


def saving_is_hooked() -> bool:
    """Whether saved-tensor hooks are in force, so that somebody else decides what a backward keeps."""
    return saving_hooks(True) is not None


in_bad_fork: Callable[[], bool] = getattr(_C, "_cuda_isInBadFork", bool)
"""Says whether the process was forked from one that had used CUDA, which only CUDA builds can be."""


def _same(value: Any) -> Any:
    return value


_disabled: Any = _C._disabled_torch_function_impl
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
    thread = get_ident()

    def run(*args: Any, **kwargs: Any) -> Any:
        with mode if get_ident() == thread else nullcontext():
            return original(*args, **kwargs)

    with REPLACEMENTS.replaced(torch.autograd, _ENGINE_CALL, run) as original:
        yield


_ENGINE_CALL = "_engine_run_backward"
"""What calls the engine, as ``torch.autograd`` names it."""
_OWN_KERNELS = frozenset({"aten/_foreach_mm/CUDA", "aten/bmm/CUDA", "aten/linalg_lu_solve.out/MPS"})
"""Those that PyTorch registers for operations of its own, in 2.13."""
_ELSEWHERE = ("/Meta", "/FuncTorchBatched")
"""Kernels for shapes, and for ``vmap``, which no traced call is in."""


def replaced_kernels() -> bool:
    """Whether somebody has registered Python code as a kernel of one of PyTorch's own operations.

    Then any other operation may run it, since kernels call operations.
    """
    return _are_replaced(len(python_kernels))


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


def without_view(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor over the same memory that autograd takes for a new one."""
    made = torch.ops.aten._unsafe_view.default(tensor, tensor.shape)
    if made.stride() != tensor.stride():  # of a dimension with one element PyTorch says what it likes
        made.data = tensor.detach()
    return made


def asks_for_some(node: Any) -> bool:
    """Inside a backward: whether it was asked for certain gradients; otherwise it adds up all of them.

    ``node`` is one of the walked graph, and nobody asks for its gradient.
    """
    return not _C._will_engine_execute_node(node)


def watch_hooks(result: torch.Tensor) -> dict[int, Any]:
    """Where hooks on a tensor with a history will be.

    Their table outlives the tensor, and so do they.
    """
    node: Any = result.grad_fn
    hooks: OrderedDict[int, Any] = OrderedDict()
    result._backward_hooks = hooks
    node._register_hook_dict(result)
    return hooks


def with_own_node(result: torch.Tensor) -> torch.Tensor:
    """One of several results of an autograd function, with a node that it does not share with the others."""
    lazy = result.is_conj() or result.is_neg()  # it would be made plain
    return result if lazy or result._is_view() else without_view(result)
