"""The function mode of a check, which shows the callable devices called ``cuda``.

PyTorch's C++ side knows the pretended device by another name. The mode translates in both directions, and
handles what the dispatcher does not see: tensors that are built from Python data or turned into lists,
arrays, text and addresses. It does not see calls that PyTorch's Python functions make to each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch.overrides import TorchFunctionMode

from ...base import user_site
from ...hazards import rules
from ...runtime.program import below_transforms, innermost
from ..fake import PRETENDED, FakeTensor, nested
from ..trial import Trial, shown

_Tensor: Any = torch.Tensor
_CUDA = torch.device("cuda", 0)
_FULL = (
    "torch.full({shape}, {value}, device=...) makes it on the device, with no copy; or build the tensor "
    "outside of the callable."
)


def to_pretended(device: Any) -> Any:
    """A device as PyTorch knows it: ``cuda`` is the pretended one."""
    kind = device.type if isinstance(device, torch.device) else device
    there = type(kind) is int or (isinstance(kind, str) and kind.partition(":")[0] == "cuda")
    return torch.device(PRETENDED, 0) if there else device


def to_cuda(device: torch.device) -> torch.device:
    """A device as the callable sees it."""
    return _CUDA if device.type == PRETENDED else device


class Mask(TorchFunctionMode):
    """Function mode above a trial."""

    def __init__(self, trial: Trial) -> None:
        super().__init__()
        self._trial = trial
        self._special: dict[Any, Callable[..., Any]] = {
            _Tensor.device.__get__: self._device,
            _Tensor.is_cuda.__get__: lambda func, x: self._lies_there(x) or func(x),
            _Tensor.is_cpu.__get__: lambda func, x: not self._lies_there(x) and func(x),
            _Tensor.get_device: lambda func, x: 0 if self._lies_there(x) else func(x),
            _Tensor.cuda: self._cuda,
            _Tensor.to: self._to,
            _Tensor.tolist: self._tolist,
            _Tensor.numpy: self._numpy,
            _Tensor.__array__: self._array,
            _Tensor.__dlpack__: self._dlpack,
            torch.to_dlpack: self._dlpack,
            _Tensor.__repr__: self._repr,
            _Tensor.__format__: self._format,
            _Tensor.__deepcopy__: self._deepcopy,
            _Tensor.data_ptr: self._data_ptr,
            _Tensor.data.__set__: self._set_data,
            _Tensor.pin_memory: self._pin,
            _Tensor.is_pinned: self._is_pinned,
            _Tensor.backward: self._backward,
            _Tensor.record_stream: lambda func, x, stream: None,
            _Tensor.new_tensor: self._new_tensor,
            _Tensor.new: self._new,
            torch.tensor: self._build,
            torch.as_tensor: self._build,
            torch.asarray: self._build,
            torch.from_numpy: self._from_numpy,
            _Tensor.__getitem__: self._indexed,
            _Tensor.__setitem__: self._indexed,
        }

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if "device" in kwargs:
            kwargs = {**kwargs, "device": self._meant(kwargs["device"])}
        special = self._special.get(func)
        self._trial.inside += 1
        try:
            return func(*args, **kwargs) if special is None else special(func, *args, **kwargs)
        finally:
            self._trial.inside -= 1

    def _lies_there(self, tensor: Any) -> bool:
        """Whether a tensor is on the device, or will be when an operation meets it."""
        trial, tensor = self._trial, innermost(tensor)
        if not isinstance(tensor, FakeTensor):
            tensor = trial.standins.adopt(tensor, trial.made)
        return trial.on_device(tensor)

    def _is_real(self, tensor: Any) -> bool:
        return not isinstance(tensor, FakeTensor) and not self._lies_there(tensor)

    # ------------------------------------------------------------------ devices

    def _device(self, func: Any, tensor: Any) -> torch.device:
        return _CUDA if self._lies_there(tensor) else to_cuda(func(tensor))

    def _cuda(
        self, func: Any, tensor: Any, device: Any = None, non_blocking: bool = False, **kwargs: Any
    ) -> Any:
        return self._to(_Tensor.to, tensor, _CUDA, non_blocking=non_blocking, **kwargs)

    def _to(self, func: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if args and not isinstance(args[0], torch.Tensor):
            args = (self._meant(args[0]), *args[1:])
        return func(tensor, *args, **kwargs)

    def _meant(self, device: Any) -> Any:
        """The device that the callable means.

        If all tensors are taken to have been moved, so is a ``torch.device`` that the callable keeps. The
        string ``"cpu"`` means the host, and so does a device that the call makes of it.
        """
        if isinstance(device, torch.device) and self._trial.standins.has_moved(device):
            return self._trial.device
        return to_pretended(device)

    def _backward(self, func: Any, tensor: Any, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
        """A backward runs code of the callable: hooks, and backwards of its own functions."""
        before, self._trial.inside = self._trial.inside, 0
        names = ("retain_graph", "create_graph", "inputs")
        try:
            with self:
                torch.autograd.backward(tensor, gradient, **dict(zip(names, args, strict=False)), **kwargs)
        finally:
            self._trial.inside = before

    # ------------------------------------------------------------------ in

    def _build(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """A tensor of Python data: really made on the host, then placed on its device."""
        device = kwargs.pop("device", None)
        data = args[0] if args else kwargs.get("data", kwargs.get("obj"))
        if isinstance(data, torch.Tensor):
            moved = {} if device is None else {"device": device}
            return func(*args, **kwargs, **moved)
        data = self._read(data)
        args, kwargs = (data, *args[1:]), {key: kwargs[key] for key in kwargs if key not in ("data", "obj")}
        with below_transforms() as wrap:
            return wrap(self._of_data(func, device, *args, **kwargs))

    def _of_data(self, func: Any, device: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        default = torch.get_default_device()
        target = device if device is not None else to_pretended(default)
        if torch.device(target).type != PRETENDED:
            return self._on_host(func, *args, **kwargs, **({} if device is None else {"device": device}))
        with torch.device("cpu"), self._trial.aside():
            tensor = func(*args, **kwargs)
        if tensor.numel():
            self._note_built(func.__name__, tensor, isinstance(args[0], numpy.ndarray))
        return self._placed(tensor)

    def _note_built(self, name: str, tensor: torch.Tensor, of_array: bool) -> None:
        rule = rules.HOST_DATA if of_array else rules.CONSTANT
        text = f"{name}() builds a tensor on the host and copies it to the device, which waits for the copy"
        remedy = rule.remedy
        if tensor.numel() == 1 and not of_array:
            shape = "()" if not tensor.dim() else str(tuple(tensor.shape))
            with self._trial.aside():
                value = tensor.item()
            remedy = _FULL.format(shape=shape, value=value)
        self._trial.notes.add(rule, text, evidence=shown(tensor), remedy=remedy)

    def _placed(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of the device with the values of a host tensor."""
        trial = self._trial
        with torch.no_grad(), trial.aside():
            made = trial.standins.like(tensor.detach())
        return made.requires_grad_() if tensor.requires_grad else made

    def _on_host(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """A host tensor of Python data, which belongs to the call and stays on the host."""
        if self._trial.building or torch.device(kwargs.get("device") or "cpu").type != "cpu":
            return func(*args, **kwargs)
        with self._trial.aside():
            made = func(*args, **kwargs)
        self._trial.made.add(made)
        return made

    def _read(self, data: Any) -> Any:
        """Python data with the values of its tensors, which PyTorch reads to build a tensor."""
        if isinstance(data, torch.Tensor):
            if self._is_real(data):
                return data
            if data.dim():
                return self._tolist(_Tensor.tolist, data)
            if self._lies_there(data):
                self._note(rules.HOST_READ, "the host reads a tensor, which waits for the device", data)
            return self._trial.read_value(data)
        if type(data) in (list, tuple) and any(
            isinstance(item, (torch.Tensor, list, tuple)) for item in data
        ):
            return [self._read(item) for item in data]
        return data

    def _new_tensor(self, func: Any, like: Any, data: Any, **kwargs: Any) -> Any:
        device = kwargs.pop("device", torch.device(PRETENDED, 0) if self._lies_there(like) else None)
        kwargs.setdefault("dtype", like.dtype)
        return self._build(torch.tensor, data, device=device, **kwargs)

    def _new(self, func: Any, like: Any, *args: Any, **kwargs: Any) -> Any:
        """``x.new(...)``, which takes sizes or data."""
        data = args[0] if args else kwargs.get("data")
        if isinstance(data, torch.Tensor):
            return data.detach()
        if isinstance(data, (list, tuple, numpy.ndarray)) and not isinstance(data, torch.Size):
            return self._new_tensor(func, like, data)
        sizes = args or (kwargs.get("size", (0,)),)
        return like.new_empty(sizes[0] if isinstance(sizes[0], tuple) else sizes)

    def _from_numpy(self, func: Any, array: Any) -> torch.Tensor:
        with self._trial.aside():
            tensor = func(array)
        self._trial.made.add(tensor)
        return tensor

    def _indexed(self, func: Any, tensor: Any, index: Any, *value: Any) -> Any:
        if self._lies_there(tensor):
            parts = index if type(index) is tuple else (index,)
            if any(_is_listed(part) for part in parts):
                listed = tuple(self._listed(part) for part in parts)
                index = listed if type(index) is tuple else listed[0]
        return func(tensor, index, *value)

    def _listed(self, part: Any) -> Any:
        """A list, or an array, as an index becomes a tensor below the dispatcher."""
        if not _is_listed(part):
            return part
        with below_transforms() as wrap:
            with torch.device("cpu"), self._trial.aside():
                tensor = torch.tensor(part, dtype=torch.long if not len(part) else None)
            kind = "an array" if isinstance(part, numpy.ndarray) else "a list"
            text = f"{kind} as an index is copied to the device, which waits for the copy"
            self._note(rules.LIST_INDEX, text, tensor)
            return wrap(self._placed(tensor))

    # ------------------------------------------------------------------ out

    def _tolist(self, func: Any, tensor: Any) -> Any:
        trial = self._trial
        if not self._lies_there(tensor):
            return nested(tensor.shape, 1) if isinstance(tensor, FakeTensor) else func(tensor)
        self._note(rules.LIST_READ, "tolist() reads a tensor, which waits for the device", tensor)
        known = trial.standins.value_of(tensor)
        if known is not None:
            return known.tolist()
        if not tensor.dim():
            return trial.inventor.scalar(tensor, user_site())
        return nested(tensor.shape, 1.0 if tensor.is_floating_point() else 1)

    def _numpy(self, func: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if self._is_real(tensor):
            return func(tensor, *args, **kwargs)
        if self._lies_there(tensor):
            text = "numpy() of a tensor on the device raises; a copy to the host waits for the device"
            self._note(rules.MEMORY_ESCAPE, text, tensor)
        return self._invented(tensor).numpy()

    def _array(self, func: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        return numpy.asarray(self._numpy(_Tensor.numpy, tensor), *args, **kwargs)

    def _invented(self, tensor: Any) -> torch.Tensor:
        known = self._trial.standins.value_of(tensor)
        if known is not None:
            return known
        dtype = tensor.dtype if tensor.dtype is not torch.bfloat16 else torch.float32
        return torch.ones(tensor.shape, dtype=dtype, device="cpu")

    def _dlpack(self, func: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if self._lies_there(tensor):
            self._note(rules.MEMORY_ESCAPE, "the memory of a tensor is handed out of PyTorch", tensor)
            tensor = self._invented(tensor)
        return func(tensor, *args, **kwargs)

    def _repr(self, func: Any, tensor: Any, *args: Any, **kwargs: Any) -> str:
        if self._is_real(tensor):
            return func(tensor, *args, **kwargs)
        if self._lies_there(tensor):
            self._note(rules.PRINTED, "a tensor is turned into text, which reads its values", tensor)
        return f"tensor(..., size={tuple(tensor.shape)}, dtype={tensor.dtype})"

    def _format(self, func: Any, tensor: Any, spec: str) -> str:
        if self._is_real(tensor):
            return func(tensor, spec)
        return format(tensor.item(), spec) if not tensor.dim() else self._repr(_Tensor.__repr__, tensor)

    def _data_ptr(self, func: Any, tensor: Any) -> int:
        if not self._lies_there(tensor):
            return 0 if isinstance(tensor, FakeTensor) else func(tensor)
        text = "the address of a tensor is read; a kernel that gets it uses the same one at every replay"
        self._note(rules.ADDRESS_READ, text, tensor)
        return 0x10000000 + tensor.untyped_storage()._cdata % 0x10000000 * 16

    def _set_data(self, func: Any, tensor: Any, value: Any) -> None:
        if tensor.untyped_storage()._cdata != value.untyped_storage()._cdata:
            text = "a tensor is given other memory (x.data = ...); a replay goes on with the old one"
            self._note(rules.TENSOR_MOVED, text, tensor)
        func(tensor, value)

    def _deepcopy(self, func: Any, tensor: Any, memo: dict[int, Any]) -> Any:
        if not isinstance(tensor, FakeTensor):
            return func(tensor, memo)
        if id(tensor) in memo:
            return memo[id(tensor)]
        with torch.no_grad():
            made: Any = tensor.detach().clone()
        if isinstance(tensor, torch.nn.Parameter):
            made = torch.nn.Parameter(made, tensor.requires_grad)
        elif tensor.requires_grad:
            made.requires_grad_()
        memo[id(tensor)] = made
        return made

    # ------------------------------------------------------------------ pinned memory

    def _pin(self, func: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        text = "pin_memory() allocates host memory, which a capture refuses"
        self._note(rules.PINNED_INSIDE, text, tensor)
        made = tensor.clone()
        self._trial.pinned.add(made)
        return made

    def _is_pinned(self, func: Any, tensor: Any, *args: Any) -> bool:
        return tensor in self._trial.pinned

    def _note(self, rule: rules.Rule, text: str, tensor: Any) -> None:
        self._trial.notes.add(rule, text, evidence=shown(tensor))


def _is_listed(part: Any) -> bool:
    """Whether PyTorch makes a host tensor of an index: Python or numpy data."""
    if isinstance(part, numpy.ndarray):
        return bool(part.ndim)
    return type(part) is list and not any(isinstance(item, (torch.Tensor, slice)) for item in part)
