"""Private PyTorch calls of the check: fake tensors, and an accelerator that does not exist.

A check has its own process (:mod:`..isolation`), so nothing here has to be undone.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, cast

import torch
from torch._subclasses import fake_tensor  # seen in torch 2.11 and 2.13
from torch.utils import backend_registration

FakeTensor: Any = fake_tensor.FakeTensor
FakeTensorMode: Any = fake_tensor.FakeTensorMode

PRETENDED = "pretended"
"""Name of the accelerator that stands for CUDA. PyTorch's C++ side knows it; the callable sees ``cuda``."""


_UNSUPPORTED = (fake_tensor.UnsupportedOperatorException, fake_tensor.UnsupportedFakeTensorException)
_DYNAMIC = (fake_tensor.DynamicOutputShapeException, fake_tensor.DataDependentOutputException)


def fake_device(tensor: torch.Tensor) -> str | None:
    """Type of the device that a fake tensor pretends to lie on; None for a real tensor."""
    return cast("Any", tensor).fake_device.type if isinstance(tensor, FakeTensor) else None


def lacks_fake(error: BaseException) -> bool:
    """Whether an operation failed on fake tensors because it has no fake implementation."""
    if isinstance(error, _UNSUPPORTED):
        return True
    text = str(error)
    missing = ("no fake impl", "Could not run '", "meta implementation", "no meta kernel", "register_fake")
    return isinstance(error, (NotImplementedError, RuntimeError)) and any(part in text for part in missing)


def depends_on_data(error: BaseException) -> bool:
    """Whether an operation failed on fake tensors because its result depends on values."""
    return isinstance(error, _DYNAMIC)


class _Module:
    """The module ``torch.<device>``, as far as PyTorch asks it."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: None

    is_available = staticmethod(lambda: False)  # data from lists is then made under the fake mode
    is_initialized = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
    current_device = staticmethod(lambda: 0)
    get_amp_supported_dtype = staticmethod(lambda: [torch.bfloat16, torch.float16])
    _is_in_bad_fork = staticmethod(lambda: False)


def import_ahead() -> None:
    """Import what PyTorch imports at the first operation under a mode, which takes a second.

    The process that forks does it, so that later checks need not.
    """
    importlib.import_module("torch._dynamo")


def register_device() -> None:
    """Register the accelerator, with autocast; it can be done once in a process."""
    setup: Any = backend_registration._setup_privateuseone_for_python_backend  # seen in 2.11 and 2.13
    setup(PRETENDED, backend_module=_Module())
    _register_autocast()


_LOWER = (
    "_convolution", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d.input",
    "conv_transpose3d.input", "convolution", "prelu", "addmm", "addmv", "addr", "matmul", "einsum", "mm",
    "mv", "linear", "addbmm", "baddbmm", "bmm", "chain_matmul", "linalg_multi_dot", "lstm_cell", "gru_cell",
    "scaled_dot_product_attention",
)  # fmt: skip
_FLOAT = (
    "exp", "expm1", "log", "log10", "log2", "log1p", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "reciprocal",
    "rsqrt", "softplus", "layer_norm", "native_layer_norm", "group_norm", "cosine_similarity", "cdist",
    "nll_loss", "binary_cross_entropy_with_logits", "mse_loss", "l1_loss", "smooth_l1_loss", "cumsum",
    "cumprod", "softmax.int", "log_softmax.int", "sum", "sum.dim_IntList", "prod",
)  # fmt: skip
_libraries: list[Any] = []


def _register_autocast() -> None:
    """Give the accelerator CUDA's casts: PyTorch has none for it, and not even a fallthrough."""
    key = "AutocastPrivateUse1"
    fallback = torch.library.Library("_", "IMPL")
    fallback.fallback(torch.library.fallthrough_kernel, key)
    casts = torch.library.Library("aten", "IMPL")
    _libraries.extend((fallback, casts))  # a library that is collected takes its kernels with it
    guard: Any = torch._C._ExcludeDispatchKeyGuard
    private: Any = torch._C
    keys = private.DispatchKeySet(private.DispatchKey.AutocastPrivateUse1)
    for names, wide in ((_LOWER, False), (_FLOAT, True)):
        for name in names:
            packet, _, overload = name.partition(".")
            found = getattr(torch.ops.aten, packet, None)
            if found is None or (overload or "default") not in found.overloads():
                continue
            casts.impl(name, _casting(getattr(found, overload or "default"), wide, guard, keys), key)


def _casting(func: Any, wide: bool, guard: Any, keys: Any) -> Callable[..., Any]:
    def cast(*args: Any, **kwargs: Any) -> Any:
        target = torch.float32 if wide else torch.get_autocast_dtype(PRETENDED)
        with guard(keys):
            return func(
                *[_cast(arg, target) for arg in args], **{k: _cast(v, target) for k, v in kwargs.items()}
            )

    return cast


def _cast(value: Any, target: torch.dtype) -> Any:
    if isinstance(value, (list, tuple)):
        return [_cast(item, target) for item in value]
    eligible = isinstance(value, torch.Tensor) and value.device.type == PRETENDED
    low = eligible and value.dtype in (torch.float32, torch.float16, torch.bfloat16)
    return value.to(target) if low and value.dtype is not target else value


def run_compiled_code_eagerly() -> None:
    """Functions under ``torch.compile`` run eagerly: a compiler cannot see fake tensors."""
    torch.compiler.set_stance("force_eager")


def show_devices(visible: Callable[[], bool]) -> None:
    """Let fake tensors of the accelerator say ``cuda:0`` where the callable asks for their device.

    Their class has its own ``device`` and ``tolist``, which no function mode sees.
    """
    original = FakeTensor.device.fget
    shown = torch.device("cuda", 0)

    def device(self: Any) -> torch.device:
        found: torch.device = original(self)
        return shown if found.type == PRETENDED and visible() else found

    FakeTensor.device = property(device)
    if "tolist" in vars(FakeTensor):
        del FakeTensor.tolist


def without_function_modes() -> AbstractContextManager[None]:
    """Keep function modes out, which are still active where C++ calls (TorchScript, a backward)."""
    guard: Any = torch._C.DisableTorchFunction  # seen in 2.11 and 2.13
    return guard()


def script_line(module: Any) -> tuple[str, int] | None:
    """File and line of the first operation of a scripted module or function; None for anything else."""
    scripted = isinstance(module, (torch.jit.ScriptModule, torch.jit.ScriptFunction))
    graph: Any = module.graph if scripted else None
    for node in () if graph is None else graph.nodes():
        found = re.search(r'File "(.+)", line (\d+)', node.sourceRange())
        if found is not None:
            return found.group(1), int(found.group(2))
    return None


def make_fake_mode() -> Any:
    """A fake mode that takes real host tensors as operands."""
    return FakeTensorMode(allow_non_fake_inputs=True)
