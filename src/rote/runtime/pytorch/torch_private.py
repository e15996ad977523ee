"""Private names of PyTorch that read the state around a call, or read it faster.

Every name was seen in torch 2.11 and 2.13; those that only CUDA builds have fall back on the public one.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.amp import grad_scaler
from torch.autograd import forward_ad
from torch.nn.parameter import UninitializedTensorMixin  # pyright: ignore[reportAttributeAccessIssue]
from torch.utils import _device

from ...base import may_read_words

_C: Any = torch._C

current_device: Callable[[], int] = getattr(_C, "_cuda_getDevice", torch.cuda.current_device)
"""Only where CUDA is initialised, which the public function asks every time."""

is_capturing: Callable[[], bool] = _C._cuda_isCurrentStreamCapturing
"""What the public function calls; rote and others replace the name of that for a while."""

stream_handle: Callable[[int], int] = getattr(
    _C, "_cuda_getCurrentRawStream", lambda index: torch.cuda.current_stream(index).cuda_stream
)
"""The current stream of a device."""

dispatched_functions: Callable[[], Any] = _C._get_torch_function_state
"""Whether ``__torch_function__`` of tensors and modes is called; guards of compiled code look at it."""
set_dispatched_functions: Callable[[Any], None] = _C._set_torch_function_state

function_modes: Callable[[], int] = _C._len_torch_function_stack
"""How many function modes are active, which see that attributes of a tensor are read."""

_dispatch_modes: Callable[[], int] = _C._len_torch_dispatch_stack
_wrapped: Callable[[torch.Tensor], bool] = _C._functorch.is_functorch_wrapped_tensor
_batched: Callable[[torch.Tensor], bool] = _C._functorch.is_legacy_batchedtensor


class KeptObjects(NamedTuple):
    """How objects are kept for a thread, and for those on which autograd works for it."""

    put: Callable[[str, object], None]
    has: Callable[[str], bool]
    get: Callable[[str], object]


KEPT_OBJECTS = KeptObjects(_C._stash_obj_in_tls, _C._is_key_in_tls, _C._get_obj_in_tls)

_DISPATCH: Any = vars(torch.Tensor)["__torch_dispatch__"]


def stands_for_others(tensor: torch.Tensor) -> bool:
    """Whether a tensor's class says what operations do with it: its memory is that of other tensors.

    A fake tensor of a check is one, too.
    """
    kind: Any = type(tensor)
    return kind.__torch_dispatch__ is not _DISPATCH


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether a tensor is what a ``torch.func`` transform gives its function, over another tensor's memory.

    It may outlive the transform. The gradients of ``is_grads_batched=True`` are such tensors.
    """
    return _wrapped(tensor) or _batched(tensor)


is_lazy_zero: Callable[[torch.Tensor], bool] = torch.Tensor._is_zerotensor  # pyright: ignore[reportAttributeAccessIssue]
"""Whether a tensor is a zero of forward-mode differentiation, which has no memory."""


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor has a storage with an address, even an empty one."""
    strided = tensor.layout is torch.strided and not isinstance(tensor, UninitializedTensorMixin)
    return strided and not is_wrapped(tensor)


transforms: Any = _C._functorch.peek_interpreter_stack
"""The transform of functions (``vmap``) that runs; None without one."""

is_traced: Callable[[], bool] = _C._is_tracing
"""Whether ``torch.jit.trace`` writes down the operations."""

fresh_scaler_state: Any = grad_scaler._refresh_per_optimizer_state
"""Makes the entries of a ``GradScaler``'s table, and tells that table from others."""

_pass_number: Callable[[], int] = _C._current_graph_task_id


def in_backward() -> bool:
    """Whether this thread works on a backward pass."""
    return _pass_number() >= 0


node_at_work: Callable[[], Any] = _C._current_autograd_node
"""The node of autograd's whose backward runs on this thread, if one does."""

set_saving_hooks: Callable[[Any, Any], None] = _C._autograd._push_saved_tensors_default_hooks
leave_saving_hooks: Callable[[], None] = _C._autograd._pop_saved_tensors_default_hooks
saving_hooks: Callable[[bool], Any] = _C._autograd._top_saved_tensors_default_hooks
"""The innermost saved-tensor hooks, which a trace of PyTorch's switches off, too; None if there are none."""

plain_functions: Any = torch._C.DisableTorchFunctionSubclass
"""A context in which tensor subclasses are plain tensors, of the documented extension interface."""

unseen_functions: Callable[[], AbstractContextManager[Any]] = _C.DisableTorchFunction
"""Hides what runs inside from function modes."""

undispatched: Callable[[], AbstractContextManager[Any]] = _C._DisableTorchDispatch
"""Hides what runs inside from dispatch modes."""

below_autograd: Callable[[], AbstractContextManager[Any]] = _C._AutoDispatchBelowADInplaceOrView
"""Runs kernels as autograd does, on tensors that require grad, in any grad mode; else graphs are built."""


def default_device() -> Any:
    """The device set by ``torch.set_default_device`` or ``with torch.device(...)``, or None."""
    return _device.CURRENT_DEVICE


def in_dispatch_mode() -> bool:
    """Whether this thread runs in a dispatch mode; one of autograd does where its caller does."""
    return _dispatch_modes() > 0


def foreign_modes() -> bool:
    """Whether somebody else sees operations: function or dispatch modes, ``vmap``, forward-mode AD, a trace.

    The default device is a function mode, too. It is allowed, and part of the key.
    """
    allowed = 0 if default_device() is None else 1
    if function_modes() > allowed or _dispatch_modes() > 0 or transforms() is not None:
        return True
    return is_traced() or forward_ad._current_level >= 0


def is_faking() -> bool:
    """Whether operations find out shapes alone, on tensors without memory, as PyTorch does for DTensor."""
    return _C._get_dispatch_mode(_C._TorchDispatchModeKey.FAKE) is not None


_tensor_guards: Any = _C._dynamo.guards.TensorGuards
_dict_version: Any = _C._dynamo.guards.dict_version
"""Both check guards of ``torch.compile``."""


def metadata_check(tensors: Sequence[torch.Tensor]) -> Callable[..., bool]:
    """A function that tells in one call of C++ whether tensors have the metadata of these.

    It compares class, dtype, layout, device, shape, strides, ``requires_grad`` and the flags of inference,
    conjugate and negative tensors. It is False in other modes than those of this moment, and if a tensor
    comes twice. It holds no tensor alive.
    """
    return _tensor_guards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check


def raw_keys(tensor: torch.Tensor) -> int:
    """The dispatch keys of a tensor as one number."""
    return _C._dispatch_keys(tensor).raw_repr()


def tells_modes() -> bool:
    """Whether a check that is made now fails where other dispatch keys are in force.

    These are the keys of transforms of functions, of traces and of autocast, and several of inference mode.
    The handlers of dispatch modes and the kernels of custom operators run without such keys.
    """
    plain = plain_tensor()
    check = metadata_check([plain])
    states = {"FuncTorchDynamicLayerFrontMode": "included", "Tracer": "included", "AutocastCPU": "excluded"}
    for name, state in states.items():
        key = _C._parse_dispatch_key(name)  # some keys are no attributes
        get, put = (getattr(_C, f"_dispatch_tls_{verb}_dispatch_key_{state}") for verb in ("is", "set"))
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
    """An ordinary tensor on the host: its metadata tell of modes alone."""
    with torch.inference_mode(False):
        return torch.empty(0, device="cpu")


def shows_autocast(tensor: torch.Tensor, kind: str) -> bool:
    """Whether the metadata of a tensor tell of autocast on a kind of device."""
    return _C._dispatch_keys(tensor).has(getattr(_C.DispatchKey, f"Autocast{kind.upper()}"))


class Sizes(NamedTuple):
    """How many words of PyTorch's objects may be read: no more than their headers declare.

    Attributes:
        body: Of ``c10::TensorImpl`` up to ``key_set_``, its last member. ``c10/core/TensorImpl.h`` asserts
            the sizes: two words, five of pointers (in 2.11 six), eleven of sizes and strides, four more.
        autograd: Of ``AutogradMeta`` up to ``requires_grad_`` (``torch/csrc/autograd/variable.h``; in 2.11
            node and accumulator take two words each); others follow it.
        storage: Of ``c10::StorageImpl`` up to the end of ``data_ptr_``; others follow it.
    """

    body: int
    autograd: int
    storage: int


_SIZES = {"2.11": Sizes(23, 19, 6), "2.13": Sizes(22, 17, 6)}
"""The versions of PyTorch whose objects are read word by word."""


def _version() -> str:
    return ".".join(torch.__version__.split(".")[:2])


def sizes_of_objects() -> Sizes | None:
    """How much may be read of PyTorch's objects; None where they must not be read."""
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()  # or they could change meanwhile
    if sys.implementation.name != "cpython" or sys.maxsize < 1 << 62 or not locked:
        return None
    if not may_read_words():
        return None
    return _SIZES.get(_version())


negative_view: Any = torch._neg_view  # pyright: ignore[reportPrivateImportUsage]
"""A tensor on the same memory that is read with the other sign."""


@cache
def dict_version() -> Callable[[dict[Any, Any]], int] | None:
    """A function that numbers the states of a dict, or None: a dict with the same number has not changed.

    Before Python 3.12 dicts have such numbers themselves (PEP 509). Since then PyTorch watches the dicts that
    it was asked about. In both cases ``update`` from another dict may fill an *empty* dict unnoticed. None in
    Python 3.13.0, where an attribute that is set on the object changes its dict unnoticed.
    """
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
"""After so many runs Python has specialized an instruction."""


@cache
def numbers_watched_dicts() -> bool:
    """Whether :func:`dict_version` numbers only the changes of dicts that it was asked about.

    It does since Python 3.12. The number of a fresh dict then tells whether any of them has changed.
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
    return ((forward_ad, "_current_level", -1), (_device, "CURRENT_DEVICE", None))


def mode_readers() -> tuple[tuple[Callable[[], Any], Any], ...]:
    """What :func:`foreign_modes` asks beside :func:`mode_values`: readers, and their results without modes.

    Only without a default device, which is a function mode itself.
    """
    return ((function_modes, 0), (_dispatch_modes, 0))


def key_readers() -> tuple[tuple[Callable[[], Any], Any], ...]:
    """The same for modes that show in the dispatch keys of every tensor: a metadata check fails in them."""
    return ((transforms, None), (is_traced, False))


def frame_watch() -> tuple[Callable[[], Any], Callable[[Any], Any]] | None:
    """How to ask whether the compiler looks at the frames of this thread, and to hide a function from it.

    The first returns None outside of compiled functions, where the compiler does not look. None if the
    compiler is not imported.
    """
    skip = getattr(sys.modules.get("torch._dynamo.decorators"), "skip", None)
    return (frame_callback, skip) if skip is not None else None


frame_callback: Callable[[], Any] = _C._dynamo.eval_frame.get_eval_frame_callback
"""What tells who looks at the frames of this thread; see :func:`frame_watch`."""

_exclude: Callable[[Any, bool], None] = _C._dispatch_tls_set_dispatch_key_excluded
_LAZY = (_C.DispatchKey.Conjugate, _C.DispatchKey.Negative, _C.DispatchKey.ZeroTensor)


def resolve_lazily() -> None:
    """Let kernels that a handler calls resolve their own lazy tensors as outside of a mode.

    It holds until the handler returns.
    """
    for key in _LAZY:
        _exclude(key, False)


def leaves_lazy() -> bool:
    """Whether lazy tensors pass for plain ones now: :func:`resolve_lazily` was not called."""
    return _C._dispatch_tls_is_dispatch_key_excluded(_C.DispatchKey.Negative)


_has_kernel: Any = _C._dispatch_has_kernel_for_dispatch_key


def counts_inside(op: Any) -> bool:
    """Whether the operations in an operation's kernel count the versions of what it writes.

    They do where PyTorch's layer for versions has no kernel for the operation. Autograd leaves the layer out
    for PyTorch's own operations that write nothing; those of another library need not say what they write.
    An operation made of others meets a mode in inference mode only, where its views are views of their base.
    """
    writes = op._schema.is_mutable or op.namespace != "aten"
    made_of_others = _has_kernel(op.name(), "CompositeImplicitAutograd")
    return (writes or made_of_others) and not _has_kernel(op.name(), "ADInplaceOrView")


def count_versions() -> None:
    """Let kernels that a handler calls count versions as outside of a mode, until the handler returns."""
    _exclude(_C.DispatchKey.ADInplaceOrView, False)


_AUTOGRAD = ("AutogradFunctionality", "AutogradOther", "AutogradNestedTensor", "ADInplaceOrView")
_TRANSFORMS = ("Batched", "VmapMode", "GradWrapper", "DynamicLayerBackMode", "DynamicLayerFrontMode")
_ABOVE = [
    getattr(_C.DispatchKey, name) for name in (*_AUTOGRAD, *(f"FuncTorch{each}" for each in _TRANSFORMS))
]


@contextmanager
def above_dispatch() -> Generator[None]:
    """A context in a kernel or handler in which operations are called as from outside: autograd sees them.

    So do transforms of functions.
    """
    included, excluded = _C._dispatch_tls_local_include_set(), _C._dispatch_tls_local_exclude_set()
    for key in (*_ABOVE, *_LAZY):
        excluded = excluded.remove(key)
    with _C._ForceDispatchKeyGuard(included, excluded):
        yield


def scripted_names(module: Any) -> list[str]:
    """The attributes that a module of TorchScript keeps in C++."""
    known = getattr(getattr(module, "_concrete_type", None), "get_attributes", None)
    return list(known()) if known is not None and hasattr(module, "_c") else []


def scripted_value(module: Any, name: str) -> Any:
    """The value of one of :func:`scripted_names`; containers are copies."""
    return module._c.getattr(name)


SCRIPTS: tuple[type, ...] = (torch.jit.ScriptFunction, torch._C.ScriptMethod)
"""Classes that run code of TorchScript."""


def calls_python(script: Any) -> bool:
    """Whether a function of TorchScript may get values from Python code (``torch.jit.ignore``)."""
    graph = getattr(script, "inlined_graph", None)
    return graph is None or bool(graph.findAllNodes("prim::PythonOp"))


def constants_of(script: Any) -> set[int]:
    """Storages of the constants in code of TorchScript, as written and as executed."""
    graphs = [script.inlined_graph]
    runs = script if hasattr(script, "get_debug_state") else script.owner
    with suppress(AttributeError, RuntimeError):  # it did not run, or is run in another way
        graphs += [plan.graph for plan in runs.get_debug_state().execution_plans.values()]
    nodes = [node for graph in graphs for node in graph.findAllNodes("prim::Constant")]
    tensors = [
        node.t("value") for node in nodes if node.hasAttribute("value") and node.kindOf("value") == "t"
    ]
    return {each.untyped_storage()._cdata for each in tensors if has_memory(each)}


_ACCESSORS = (
    "_get_cublas_allow_fp16_reduced_precision_reduction",
    "_get_cublas_allow_bf16_reduced_precision_reduction",
    "_get_cudnn_enabled",
    "_get_cudnn_benchmark",
    "_get_cudnn_deterministic",
    "_get_flash_sdp_enabled",
    "_get_mem_efficient_sdp_enabled",
    "_get_math_sdp_enabled",
    "_get_cudnn_sdp_enabled",
    "_get_mkldnn_enabled",
    "_get_deterministic_algorithms",
)


def _precision_of(operation: str) -> str:
    """The precision of float32 in operations of a kind on CUDA; unset is that of the standard.

    The accessors of ``allow_tf32`` raise once a program has used the newer names.
    """
    found = _C._get_fp32_precision_getter("cuda", operation)
    return "ieee" if found == "none" else found


ACCESSORS: dict[str, Callable[[], Any]] = {
    **{name: getattr(_C, name) for name in _ACCESSORS},
    **{operation: partial(_precision_of, operation) for operation in ("matmul", "conv", "rnn")},
}
"""Readers of the global switches that change which kernels run, by name."""


class SwitchPlaces(NamedTuple):
    """Where the switches lie in ``at::Context``, as ``ATen/Context.h`` declares it, in bytes.

    Attributes:
        end: Behind the last one that an accessor reads.
        flags: Switches of one byte, by the name of the accessor.
        table: The table of precisions, a ``std::unordered_map``.
    """

    address: int
    first: int
    end: int
    flags: tuple[tuple[str, int], ...]
    table: int


_FLAGS = {
    "_get_cudnn_enabled": 1008,
    "_get_cudnn_deterministic": 1009,
    "_get_deterministic_algorithms": 1011,
    "_get_flash_sdp_enabled": 1036,
    "_get_mem_efficient_sdp_enabled": 1038,
    "_get_math_sdp_enabled": 1039,
    "_get_cudnn_sdp_enabled": 1040,
    "_get_cudnn_benchmark": 1043,
    "_get_mkldnn_enabled": 1068,
}
_KNOWN = ("2.11", "2.13")
"""The versions of PyTorch in which they lie there."""


def place_of_switches() -> SwitchPlaces | None:
    """Where the switches lie; None if that is not known."""
    if _version() not in _KNOWN or sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"))
        found = library._ZN2at13globalContextEv
    except (OSError, AttributeError):
        return None
    found.restype, found.argtypes = ctypes.c_void_p, ()
    return SwitchPlaces(found(), 1008, 1072, tuple(_FLAGS.items()), 1088)


@cache
def _same() -> Any:
    text = "def same(tensors: List[Tensor]) -> List[Tensor]:\n    return tensors\n"
    return torch.jit.CompilationUnit(text).same


def future_of(tensors: list[torch.Tensor]) -> Any:
    """A future of the type that C++ takes apart, holding tensors; one made by Python holds an object."""
    return torch._C.fork(_same(), tensors)


_OTHER_REDUCERS = (
    "find_unused_parameters", "static_graph", "gradient_as_bucket_view", "mixed_precision", "_comm_hooks",
    "_use_python_reducer", "_delay_all_reduce_params", "_accum_grad_hooks",
)  # fmt: skip
"""Attributes of ``DistributedDataParallel`` that are false where its reducer has no work of another kind."""


_ORDERLESS = 2
"""Numbers that have one sum in any order."""


def reducer_obstacle(wrapper: Any, new: str) -> str:
    """Why what the reducer of a ``DistributedDataParallel`` does cannot be done again, in a few words.

    Empty if it can; ``new`` if its buckets are still to be made anew.
    """
    for name in _OTHER_REDUCERS:
        if getattr(wrapper, name, None):
            return name.strip("_")
    if hasattr(wrapper, "buffer_hook"):
        return "a hook for buffers"
    try:
        if wrapper._join_config.enable:
            return "join()"
        if not wrapper._has_rebuilt_buckets:
            return new
        if wrapper.logger._get_ddp_logging_data().strs_map.get("comm_hook"):
            return "a hook for the communication"
        wrapper.reducer._check_reducer_finalized()
    except AttributeError:
        return "a reducer that does not tell what it does"
    except RuntimeError:
        return "a backward that is not over"
    return ""


def sorts_buckets(wrapper: Any) -> bool:
    """Whether the next backward decides in which order the ranks of a wrapper add, if there is one."""
    try:
        never = wrapper.find_unused_parameters and not wrapper.static_graph
        return not (wrapper._has_rebuilt_buckets or never) and wrapper.process_group.size() > _ORDERLESS
    except AttributeError:
        return False


tensor_owners: Callable[[torch.Tensor], int] = torch.Tensor._use_count  # pyright: ignore[reportAttributeAccessIssue]
"""How many references from C++ a tensor has."""


def storage_owners(storage: torch.UntypedStorage) -> int:
    """How many references a storage has."""
    return _C._storage_Use_Count(storage._cdata)


def stop_routing(device: int, pool: tuple[int, int]) -> None:
    """After a failed capture: stop the allocator from serving the pool, and drop the capture's reference.

    Through torch 2.13 a capture that fails to end does neither, so the pool's memory would never be given
    back. The pinned-memory allocator keeps a note of its own that cannot be undone from Python: the pool's
    handle must not be captured into again.
    """
    _C._cuda_endAllocateToPool(device, pool)
    _C._cuda_releasePool(device, pool)
