"""Private names of PyTorch by which the state around a call is read, or read faster.

Every name here was seen in torch 2.11 and 2.13. A missing accessor falls back on the public property.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from typing import Any, NamedTuple

import torch
from torch.amp import grad_scaler
from torch.autograd import forward_ad
from torch.nn.parameter import UninitializedTensorMixin  # pyright: ignore[reportAttributeAccessIssue]
from torch.utils import _device

from ..base.settings import read_settings

current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
"""The public function asks every time whether CUDA is initialised; this is for when it is. Seen in torch 2.11
and 2.13 (CUDA builds only)."""

is_capturing: Callable[[], bool] = getattr(
    torch._C, "_cuda_isCurrentStreamCapturing", torch.cuda.is_current_stream_capturing
)
"""What the public function asks, whose name rote and others replace for a while. Seen in torch 2.11 and 2.13
(CUDA builds only)."""

stream_handle: Callable[[int], int] = getattr(
    torch._C, "_cuda_getCurrentRawStream", lambda index: torch.cuda.current_stream(index).cuda_stream
)
"""The current stream of a device. Seen in torch 2.11 and 2.13 (CUDA builds only)."""

function_modes: Callable[[], int] = getattr(torch._C, "_len_torch_function_stack", lambda: 0)
"""How many function modes are active: they would see how the attributes of a tensor are read."""

tracing_state: Callable[[], object] = getattr(torch._C, "_get_tracing_state", bool)
"""What modules ask when they are called: whether ``torch.jit`` traces. Seen in torch 2.11 and 2.13."""

_dispatch_modes: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_functorch: Any = getattr(torch._C, "_functorch", None)
_wrapped: Callable[[torch.Tensor], bool] | None = getattr(_functorch, "is_functorch_wrapped_tensor", None)
_batched: Callable[[torch.Tensor], bool] | None = getattr(_functorch, "is_legacy_batchedtensor", None)
"""Seen in torch 2.11 and 2.13."""


def _owns_nothing(tensor: torch.Tensor) -> bool:
    """The same by public means: a wrapper of most kinds has no storage."""
    try:
        tensor.untyped_storage()
    except NotImplementedError:
        return tensor.layout is torch.strided
    return False


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether a tensor is what a ``torch.func`` transform gives its function: its memory is another tensor's.

    It may be kept after the transform. So are the gradients of ``is_grads_batched=True``.
    """
    if _wrapped is None or _batched is None:
        return _owns_nothing(tensor)
    return _wrapped(tensor) or _batched(tensor)


is_lazy_zero: Callable[[torch.Tensor], bool] = getattr(torch.Tensor, "_is_zerotensor", lambda tensor: False)
"""Whether a tensor is a zero of forward-mode differentiation, without memory. Seen in torch 2.11 and 2.13."""


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor has a storage with an address, at least an empty one."""
    strided = tensor.layout is torch.strided and not isinstance(tensor, UninitializedTensorMixin)
    return strided and not is_wrapped(tensor)


transforms: Any = getattr(_functorch, "peek_interpreter_stack", lambda: None)
"""The transform of functions (``vmap``) that interprets operations; None without one."""

is_traced: Callable[[], bool] = getattr(
    torch._C,
    "_is_tracing",
    torch.jit.is_tracing,  # pyright: ignore[reportPrivateImportUsage]
)
"""Whether ``torch.jit.trace`` writes down the operations. Seen in torch 2.11 and 2.13."""


fresh_scaler_state: Any = getattr(grad_scaler, "_refresh_per_optimizer_state", None)
"""Makes the entries of a ``GradScaler``'s table; tells that table from others. Without it, a scaler in a
graphed callable keeps the call eager (its table is another object after each step)."""


_pass_number: Any = getattr(torch._C, "_current_graph_task_id", None)
"""Seen in torch 2.11 and 2.13."""


def in_backward() -> bool:
    """Whether this thread works on a backward pass; yes where PyTorch does not say."""
    return _pass_number is None or _pass_number() >= 0


plain_functions: Any = torch._C.DisableTorchFunctionSubclass
"""Context in which tensor subclasses are treated as plain tensors. Seen in torch 2.11 and 2.13; no fallback
is needed, the class is part of the documented extension interface under this name."""

unseen_functions: Callable[[], AbstractContextManager[Any]] = getattr(
    torch._C, "DisableTorchFunction", nullcontext
)
"""Hides what runs inside from function modes. Seen in torch 2.11 and 2.13."""


undispatched: Callable[[], AbstractContextManager[Any]] = getattr(
    torch._C, "_DisableTorchDispatch", nullcontext
)
"""Hides what runs inside from dispatch modes. Seen in torch 2.11 and 2.13."""


def default_device() -> Any:
    """The device set by ``torch.set_default_device`` or ``with torch.device(...)``, or None."""
    return getattr(_device, "CURRENT_DEVICE", None)


def foreign_modes() -> bool:
    """Whether somebody else sees operations: function or dispatch modes, ``vmap``, forward-mode AD, a trace.

    The default device is a function mode too; it is allowed, and part of the key.
    """
    allowed = 0 if default_device() is None else 1
    if function_modes() > allowed or _dispatch_modes() > 0 or transforms() is not None:
        return True
    return is_traced() or _dual_level() >= 0


_checks: Any = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
_tensor_guards: Any = getattr(_checks, "TensorGuards", None)
_dict_version: Any = getattr(_checks, "dict_version", None)
"""Both are what ``torch.compile`` checks its guards with. Seen in torch 2.11 and 2.13."""


def metadata_check(tensors: Sequence[torch.Tensor]) -> Callable[..., bool] | None:
    """A function that says in one call of C++ whether tensors have the metadata of these; None without it.

    It compares class, dtype, layout, device, shape, strides, ``requires_grad`` and the flags of inference,
    conjugate and negative tensors, in the modes of this moment (it fails in others). It says no if a tensor
    comes twice. It holds no tensor alive.
    """
    if _tensor_guards is None:
        return None
    return _tensor_guards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check


_dispatch_keys: Any = getattr(torch._C, "_dispatch_keys", None)


def raw_keys(tensor: torch.Tensor) -> int | None:
    """The dispatch keys of a tensor as the number by which they are kept; None where they cannot be read so.

    Seen in torch 2.11 and 2.13.
    """
    keys: Any = _dispatch_keys(tensor) if _dispatch_keys is not None else None
    return keys.raw_repr() if hasattr(keys, "raw_repr") else None


def tells_modes() -> bool:
    """Whether a check that is made now fails where other dispatch keys are in force.

    Those of transforms of functions, of traces and of autocast; in inference mode it is several. Not so where
    such keys are left out, as in the handlers of dispatch modes and the kernels of custom operators.
    """
    names = {"FuncTorchDynamicLayerFrontMode": "included", "Tracer": "included", "AutocastCPU": "excluded"}
    key_of: Any = getattr(torch._C, "_parse_dispatch_key", None)  # some keys are no attributes
    if _tensor_guards is None or key_of is None:
        return False
    plain = plain_tensor()
    check = _tensor_guards(plain, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
    for name, state in names.items():
        key = key_of(name)
        get: Any = getattr(torch._C, f"_dispatch_tls_is_dispatch_key_{state}", None)
        put: Any = getattr(torch._C, f"_dispatch_tls_set_dispatch_key_{state}", None)
        if key is None or get is None or put is None:
            return False
        was = get(key)
        put(key, not was)
        try:
            told = not check(plain)
        finally:
            put(key, was)
        if not told:
            return False
    with torch.inference_mode(not torch.is_inference_mode_enabled()):
        return not check(plain)


@cache
def plain_tensor() -> torch.Tensor:
    """A tensor on the host about which there is nothing special: its metadata tell of modes alone."""
    with torch.inference_mode(False):
        return torch.empty(0, device="cpu")


def shows_autocast(tensor: torch.Tensor, kind: str) -> bool:
    """Whether autocast on a kind of device is among the modes that the metadata of a tensor tell of."""
    key: Any = getattr(getattr(torch._C, "DispatchKey", None), f"Autocast{kind.upper()}", None)
    keys: Any = _dispatch_keys(tensor) if _dispatch_keys is not None else None
    return key is not None and hasattr(keys, "has") and keys.has(key)


class Sizes(NamedTuple):
    """How many words of PyTorch's objects may be read: no more than their headers declare.

    Attributes:
        body: Of ``c10::TensorImpl`` up to ``key_set_``, its last member. ``c10/core/TensorImpl.h`` asserts
            the size of each: two words come first, five of pointers (in 2.11 six), eleven of sizes and
            strides, four more.
        autograd: Of ``AutogradMeta`` up to ``requires_grad_`` (``torch/csrc/autograd/variable.h``; in 2.11
            node and accumulator take two words each); others follow it.
        storage: Of ``c10::StorageImpl`` up to the end of ``data_ptr_``; others follow it.
    """

    body: int
    autograd: int
    storage: int


_SIZES = {"2.11": Sizes(23, 19, 6), "2.13": Sizes(22, 17, 6)}
"""The versions of PyTorch whose objects are read word by word; in all others they are asked."""


def sizes_of_objects() -> Sizes | None:
    """How much may be read of PyTorch's objects; None where they must not be read."""
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()  # or they could change meanwhile
    if sys.implementation.name != "cpython" or sys.maxsize < 1 << 62 or not locked:
        return None
    if not read_settings().read_words:
        return None
    return _SIZES.get(".".join(torch.__version__.split(".")[:2]))


negative_view: Any = getattr(torch, "_neg_view", None)
"""A tensor on the same memory that is read with the other sign. Seen in torch 2.11 and 2.13."""


@cache
def dict_version() -> Callable[[dict[Any, Any]], int] | None:
    """A function that numbers the states of a dict: a dict with the same number has not changed; or None.

    Before Python 3.12 dicts have such numbers themselves (PEP 509); since then PyTorch watches the dicts that
    it was asked about. In both an *empty* dict may be filled unnoticed, by ``update`` from another dict. None
    in Python 3.13.0, where a dict of attributes is changed unnoticed, if the attribute is set on the object.
    """
    if _dict_version is None:
        return None
    probe: dict[Any, Any] = {1: None}
    seen = [_dict_version(probe)]
    if _dict_version(probe) != seen[0]:
        return None
    for change in (lambda: probe.update({1: 2}), lambda: probe.update({2: 2}), lambda: probe.pop(1)):
        change()
        if _dict_version(probe) in seen:
            return None
        seen.append(_dict_version(probe))
    return _dict_version if _notices_attributes(_dict_version) else None


def _notices_attributes(version: Callable[[dict[Any, Any]], int]) -> bool:
    """Whether a dict of attributes gets a new number when one is set on the object, by warm code too."""
    owner: Any = type("Probe", (), {})()
    owner.value = None
    attributes = vars(owner)
    number = version(attributes)
    for value in range(_WARM):
        owner.value = value
        following = version(attributes)
        if following == number:
            return False
        number = following
    return True


_WARM = 64
"""After so many runs Python has made an instruction anew for what it met."""


@cache
def numbers_watched_dicts() -> bool:
    """Whether the numbers of :func:`dict_version` are given to the changes of dicts it was asked about alone.

    So it is since Python 3.12. The number of a fresh dict then tells whether any of them has changed.
    """
    version = dict_version()
    if version is None:
        return False
    other: dict[int, int] = {}
    for _ in range(3):  # another thread may change a dict meanwhile
        first = version({})
        other[1] = first
        second = version({})
        version(other)
        third = version({})
        other[1] = third
        if second == first + 1 and version({}) == third + 2:
            return True
        other = {}
    return False


def mode_values() -> tuple[tuple[Any, str, Any], ...]:
    """Attributes of modules that have a value while nobody changes what an operation is."""
    values = ((forward_ad, "_current_level", -1), (_device, "CURRENT_DEVICE", None))
    return tuple([value for value in values if hasattr(value[0], value[1])])


def mode_readers() -> tuple[tuple[Callable[[], Any], Any], ...]:
    """What :func:`foreign_modes` asks beside :func:`mode_values`: readers, what they return without modes.

    Only without a default device, which is a function mode itself.
    """
    return ((function_modes, 0), (_dispatch_modes, 0))


def key_readers() -> tuple[tuple[Callable[[], Any], Any], ...]:
    """The same of modes that show in the dispatch keys of every tensor: a metadata check fails in them."""
    return ((transforms, None), (is_traced, False))


def _dual_level() -> int:
    return getattr(forward_ad, "_current_level", -1)


def frame_watch() -> tuple[Callable[[], Any], Callable[[Any], Any]] | None:
    """How to ask whether the compiler looks at the frames of this thread, and how to hide a function from it.

    The first returns None where it does not look, which is everywhere outside of a compiled function. Only
    where the compiler has been imported; None where PyTorch cannot say. Seen in torch 2.11 and 2.13.
    """
    callback, skip = frame_callback(), getattr(sys.modules.get("torch._dynamo.decorators"), "skip", None)
    return (callback, skip) if callback is not None and skip is not None else None


def frame_callback() -> Callable[[], Any] | None:
    """What tells who looks at the frames of this thread; see :func:`frame_watch`. Seen in 2.11 and 2.13."""
    home: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    return getattr(home, "get_eval_frame_callback", None)


def _lazy_keys() -> tuple[Any, ...]:
    keys: Any = getattr(torch._C, "DispatchKey", None)
    found = [getattr(keys, name, None) for name in ("Conjugate", "Negative", "ZeroTensor")]
    return tuple(key for key in found if _exclude is not None and key is not None)


_exclude: Any = getattr(torch._C, "_dispatch_tls_set_dispatch_key_excluded", None)
"""Seen in torch 2.11 and 2.13. Without it kernels that use lazy tensors of their own are wrong in a mode."""
_LAZY = _lazy_keys()


def resolve_lazily() -> None:
    """Let kernels that a handler calls meet their own lazy tensors as they do outside of a mode.

    PyTorch leaves out what it left out before as soon as the handler returns.
    """
    for key in _LAZY:
        _exclude(key, False)


_counting: Any = getattr(getattr(torch._C, "DispatchKey", None), "ADInplaceOrView", None)
_has_kernel: Any = getattr(torch._C, "_dispatch_has_kernel_for_dispatch_key", None)
"""Both seen in torch 2.11 and 2.13. Without them some operations count no versions in a mode."""


def counts_inside(op: Any) -> bool:
    """Whether the operations in an operation's kernel count the versions of what it writes.

    They do where PyTorch's layer for versions has no kernel of its own for it. Around its own operations that
    write nothing autograd leaves the layer out; those of another library need not say what they write.
    """
    if _exclude is None or _counting is None or _has_kernel is None:
        return False
    writes = op._schema.is_mutable or op.namespace != "aten"
    return writes and not _has_kernel(op.name(), "ADInplaceOrView")


def count_versions() -> None:
    """Let kernels that a handler calls count the versions of what they write as they do outside of a mode.

    PyTorch leaves out what it left out before as soon as the handler returns.
    """
    _exclude(_counting, False)


_is_excluded: Any = getattr(torch._C, "_dispatch_tls_is_dispatch_key_excluded", None)
"""Seen in torch 2.11 and 2.13."""

TELLS_LAZY = len(_LAZY) == 3 and _is_excluded is not None
"""Whether it can be told, and changed, that handlers take lazy tensors for others (:func:`leaves_lazy`)."""


def leaves_lazy() -> bool:
    """Whether lazy tensors count as others at this moment: :func:`resolve_lazily` was not called."""
    return not TELLS_LAZY or _is_excluded(_LAZY[1])


def scripted_names(module: Any) -> list[str]:
    """The attributes that a module of TorchScript keeps in C++ (seen in torch 2.11 and 2.13)."""
    known = getattr(getattr(module, "_concrete_type", None), "get_attributes", None)
    return list(known()) if known is not None and hasattr(module, "_c") else []


def scripted_value(module: Any, name: str) -> Any:
    """What lies in one of :func:`scripted_names`; containers are copies."""
    return module._c.getattr(name)


SCRIPTS: tuple[type, ...] = (torch.jit.ScriptFunction, torch._C.ScriptMethod)
"""What runs code of TorchScript."""


def constants_of(script: Any) -> set[int]:
    """Storages of the constants in code of TorchScript, as written and as it runs (seen in torch 2.11)."""
    graphs = [script.inlined_graph]
    runs = script if hasattr(script, "get_debug_state") else script.owner
    with suppress(AttributeError, RuntimeError):  # it did not run, or is run in another way
        graphs += [plan.graph for plan in runs.get_debug_state().execution_plans.values()]
    nodes = [node for graph in graphs for node in graph.findAllNodes("prim::Constant")]
    tensors = [
        node.t("value") for node in nodes if node.hasAttribute("value") and node.kindOf("value") == "t"
    ]
    return {each.untyped_storage()._cdata for each in tensors if has_memory(each)}
