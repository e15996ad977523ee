"""``torch.cuda`` and other ways to the device, as the callable finds them in a check.

A check has its own process, so functions are replaced and never put back. What a capture refuses takes a
note; what is harmless answers as one large GPU would.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent import futures
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import torch
from torch.amp import autocast_mode
from torch.utils import _device

from ...hazards import rules
from ...hazards.rules import Severity
from ..fake import PRETENDED
from ..trial import Trial, here, replaced
from .mask import to_cuda, to_pretended


class Inert:
    """A context manager, or an object to hold, that does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


def _nothing(self: Any, *args: Any, **kwargs: Any) -> None:
    pass


def _refused(text: str, answer: Any) -> Callable[..., Any]:
    """A method that a capture refuses."""

    def ask(self: FakeEvent | Stream, *args: Any) -> Any:
        self.trial.notes.add(rules.SYNCHRONIZE, text)
        return answer

    return ask


class FakeEvent:
    """A CUDA event that nothing waits for."""

    trial: Trial
    __init__ = record = wait = _nothing
    query = _refused("an event is asked whether it is over", True)
    synchronize = _refused("the host waits for an event", None)
    elapsed_time = _refused("the time between two events is asked for", 1.0)


class Stream(Inert):
    """A CUDA stream with nothing on it."""

    trial: Trial
    current: Any = None
    wait_stream = wait_event = _nothing
    query = _refused("a stream is asked whether it is done", True)
    synchronize = _refused("the host waits for a stream", None)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.device, self.cuda_stream, self.stream_id, self.device_index = torch.device("cuda", 0), 0, 0, 0
        if Stream.current is not None:
            text = "a stream is made at every call"
            self.trial.notes.add(rules.STREAM_INSIDE, text, severity=Severity.SPEED)

    def is_capturing(self) -> bool:
        """A call is checked as if it were captured."""
        return not self.trial.building

    def record_event(self, event: Any = None) -> FakeEvent:
        """The event, or a new one; it is over."""
        return event or FakeEvent()


MEMORY = 80 * 1024**3

_REFUSED = {
    "synchronize": rules.SYNCHRONIZE,
    **dict.fromkeys(("empty_cache", "ipc_collect"), rules.EMPTY_CACHE),
}
_ANSWERS: dict[str, Any] = {
    **dict.fromkeys(("is_available", "is_initialized", "is_bf16_supported"), True),
    **{f"{prefix}memory_{name}": 0 for prefix in ("", "max_") for name in ("allocated", "reserved")},
    **dict.fromkeys(("init", "_lazy_init", "set_device", "reset_peak_memory_stats", "seed")),
    "reset_max_memory_allocated": None, "device_count": 1, "current_device": 0, "memory_stats": {},
    "get_device_name": "pretended GPU", "get_device_capability": (9, 0), "get_arch_list": ["sm_90"],
    "mem_get_info": (MEMORY, MEMORY),
}  # fmt: skip


def install(trial: Trial, modes: Callable[[], AbstractContextManager[None]]) -> None:
    """Replace ``torch.cuda``'s functions in this process. Threads that the call starts enter ``modes``."""
    cuda: Any = torch.cuda
    for name, value in _ANSWERS.items():
        setattr(cuda, name, _answering(value))
    for name, rule in _REFUSED.items():
        setattr(cuda, name, _noting(trial, rule, f"torch.cuda.{name}() is called", _answering(None)))
    FakeEvent.trial = Stream.trial = trial
    Stream.current = Stream()
    cuda.Event, cuda.Stream, cuda.ExternalStream = FakeEvent, Stream, Stream
    torch.Event, torch.Stream = FakeEvent, Stream  # pyright: ignore[reportAttributeAccessIssue]
    for name in ("current_stream", "default_stream"):
        setattr(cuda, name, _answering(Stream.current))
    cuda.stream, cuda.device, cuda.device_of = Inert, Inert, Inert
    cuda.is_current_stream_capturing = lambda: not trial.building
    cuda.get_device_properties = _answering(
        SimpleNamespace(
            name="pretended GPU", major=9, minor=0, total_memory=MEMORY, multi_processor_count=132,
            warp_size=32, max_threads_per_multi_processor=2048, shared_memory_per_block_optin=232448,
        )
    )  # fmt: skip
    cuda._initialized = True  # torch.utils.checkpoint asks before it keeps the random state
    cuda.graph = _noting(trial, rules.NESTED_CAPTURE, "a graph is captured inside the call", Inert)
    _install_seeds(trial)
    _install_devices()
    _install_autocast()
    _install_loading()
    _install_modules()
    _install_optimizers(trial)
    _install_launches(trial)
    _install_threads(trial, modes)


def _answering(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


def _install_seeds(trial: Trial) -> None:
    """Setting the random state inside the call takes a note."""
    text = "the random state is set, while a replay goes on from where the generator is"
    for name in ("manual_seed", "seed", "set_rng_state"):
        setattr(torch, name, _noting(trial, rules.RANDOM_STATE_SET, text, getattr(torch, name)))
    torch.cuda.manual_seed_all = _answering(None)  # torch.manual_seed calls it
    for name in ("manual_seed", "set_rng_state", "set_rng_state_all"):
        setattr(torch.cuda, name, _noting(trial, rules.RANDOM_STATE_SET, text, _answering(None)))

    text = "the random state of the device is read, which a capture refuses"
    read = torch.get_rng_state
    for name, function in (
        ("get_rng_state", lambda *args, **kwargs: read()),
        ("get_rng_state_all", lambda: [read()]),
        ("initial_seed", lambda: 0),
    ):
        setattr(torch.cuda, name, _noting(trial, rules.RANDOM_STATE_SET, text, function, Severity.STOPS))


def _noting(
    trial: Trial, rule: rules.Rule, text: str, function: Callable[..., Any], severity: Severity | None = None
) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        trial.notes.add(rule, text, severity=severity)
        return function(*args, **kwargs)

    return call


class _AnyGenerator(type(torch.Generator)):
    """Generators that were made before are instances as well."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _HostGenerator)


_HostGenerator = torch.Generator


class Generator(_HostGenerator, metaclass=_AnyGenerator):
    """A generator of any device, really of the host; nothing is drawn from it on the device."""

    def __new__(cls, device: Any = "cpu") -> Any:
        """The device is ignored."""
        make: Any = _HostGenerator.__new__
        return make(cls, "cpu")


def _install_devices() -> None:
    """Devices that the function mode does not see: contexts, defaults, generators, the accelerator."""
    torch.Generator = Generator
    context: Any = _device.DeviceContext
    make, default = context.__init__, torch.get_default_device
    context.__init__ = lambda self, device: make(self, to_pretended(torch.device(device)))
    torch.get_default_device = lambda: to_cuda(default())
    accelerator: Any = torch.accelerator
    accelerator.is_available = _answering(True)
    accelerator.current_accelerator = _answering(torch.device("cuda"))
    accelerator.device_count = _answering(1)
    accelerator.synchronize = lambda *args: torch.cuda.synchronize()
    accelerator.current_stream = _answering(Stream.current)


def _install_autocast() -> None:
    """``torch.autocast("cuda")`` is autocast of the pretended device."""
    kind: Any = autocast_mode.autocast
    make = kind.__init__

    def begin(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        make(self, _named(device_type), *args, **kwargs)

    kind.__init__ = begin
    torch.set_autocast_dtype(PRETENDED, torch.float16)
    for name in ("is_autocast_enabled", "get_autocast_dtype", "set_autocast_enabled", "set_autocast_dtype"):
        original = getattr(torch, name)
        setattr(torch, name, _renaming(original, ("cuda",) if name == "is_autocast_enabled" else ()))


def _named(device_type: str) -> str:
    return PRETENDED if device_type == "cuda" else device_type


def _renaming(function: Callable[..., Any], default: tuple[str, ...]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        args = args or default
        return function(*[_named(arg) if isinstance(arg, str) else arg for arg in args])

    return call


def _install_loading() -> None:
    """``torch.load(map_location="cuda")`` moves storages, which no mode sees: load, then move tensors."""
    original: Any = torch.load

    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        named = isinstance(map_location, (str, torch.device))
        target = to_pretended(torch.device(map_location)) if named else None
        loaded = original(f, "cpu", *args, **kwargs)
        if target is None or target.type != PRETENDED:
            return loaded
        return replaced(loaded, lambda tensor: tensor.to(target))

    torch.load = load


def _install_modules() -> None:
    """``module.to(device)`` puts fake tensors into the module; PyTorch's own refuses to swap them."""

    def apply(self: torch.nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        memo: dict[int, Any] = {}
        for module in self.modules() if recurse else (self,):
            for table, convert in (
                (module._parameters, _converted),
                (module._buffers, lambda each, fn: fn(each)),
            ):
                for name, value in table.items():
                    if value is not None:
                        if id(value) not in memo:
                            memo[id(value)] = (value, convert(value, fn))
                        table[name] = memo[id(value)][1]
            flatten = getattr(module, "_init_flat_weights", None)  # recurrent layers keep lists of them
            if flatten is not None:
                flatten()
        return self

    torch.nn.Module._apply = apply  # pyright: ignore[reportAttributeAccessIssue]
    # Otherwise recurrent layers lay out their weights anew for cuDNN, at the first call only.
    torch.backends.cudnn.is_acceptable = _answering(False)


def _converted(parameter: Any, fn: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    with torch.no_grad():
        value = fn(parameter)
    made: Any = parameter if value is parameter else torch.nn.Parameter(value, parameter.requires_grad)
    if parameter.grad is not None and made is not parameter:
        made.grad = fn(parameter.grad)
    return made


def _install_optimizers(trial: Trial) -> None:
    """An optimizer that refuses to be captured takes a note instead of raising."""

    def check(self: Any) -> None:
        groups: list[dict[str, Any]] = self.param_groups
        if not all(group.get("capturable", True) for group in groups):
            name = type(self).__name__
            text = f"{name}.step() refuses to be captured without capturable=True"
            remedy = f"{name}(params, ..., capturable=True)"
            trial.notes.add(rules.OPTIMIZER_COUNT, text, severity=Severity.STOPS, remedy=remedy)

    kind: Any = torch.optim.Optimizer
    for name in ("_cuda_graph_capture_health_check", "_accelerator_graph_capture_health_check"):
        setattr(kind, name, check)


def _install_launches(trial: Trial) -> None:
    """Triton kernels that are launched by hand run nothing."""
    jit: Any = getattr(sys.modules.get("triton.runtime.jit"), "JITFunction", None)
    if jit is None:
        return

    def run(self: Any, *args: Any, **kwargs: Any) -> None:
        name = getattr(self, "__name__", "a kernel")
        trial.notes.add(rules.FOREIGN_KERNEL, f"the Triton kernel {name} is launched; it was not run")

    jit.run = run


_STARTING = (threading.__file__, str(Path(futures.__file__).parent))


def _install_threads(trial: Trial, modes: Callable[[], AbstractContextManager[None]]) -> None:
    """A thread that the call starts takes a note, and gets modes of its own, as modes are per thread."""
    start, run = threading.Thread.start, threading.Thread.run

    def begin(self: threading.Thread) -> None:
        self.of_the_call = not trial.building  # pyright: ignore[reportAttributeAccessIssue]
        at: FrameType | None = sys._getframe(1)
        while at is not None and at.f_code.co_filename.startswith(_STARTING):
            at = at.f_back
        trial.notes.add(rules.THREAD_INSIDE, "a thread is started, and no replay starts it", place=here(at))
        start(self)

    def work(self: threading.Thread) -> None:
        with modes() if getattr(self, "of_the_call", False) else nullcontext():
            run(self)

    threading.Thread.start, threading.Thread.run = begin, work
