"""Frames that Dynamo has compiled: what code runs in the place of a frame's own, and for how long.

``torch.compile`` compiles frames, not functions. A wrapper around the function switches Dynamo on for its
thread; of each frame that begins meanwhile Dynamo asks the guards of what it has compiled for that code, and
runs the first that fits in its place. Frames that it does not compile run as they are.

Every name here was seen in torch 2.11 and 2.13. Where one is missing nothing counts as compiled. A wrapper
that is not recognised switches Dynamo on by itself, and a call that does is not recorded
(``set_eval_frame`` in ``reads/table/calls.toml``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import torch
from torch.overrides import (
    _get_current_function_mode_stack as function_modes,  # pyright: ignore[reportPrivateUsage]
)
from torch.overrides import _pop_mode as pop_mode  # pyright: ignore[reportPrivateUsage]
from torch.overrides import _push_mode as push_mode  # pyright: ignore[reportPrivateUsage]

from ...base import identity, is_own
from .compiled import WithoutModes
from .replaced import REPLACEMENTS
from .torch_private import dispatched_functions, frame_callback, set_dispatched_functions

_KINDS = ("cpu", "cuda")
_WRAPPERS = {"compile_wrapper": "_TorchDynamoContext", "_fn": "DisableContext"}
"""The wrappers by their names, and the classes that make them."""
_PYTORCH = Path(torch.__file__).parent
_OF_OPERATORS = (f"{_PYTORCH / '_higher_order_ops'}", f"{_PYTORCH / 'nn' / 'attention'}")
"""Where the functions around operators over Python functions lie."""
_HINTS = ("mark_dynamo_propagated_dynamic_indices", "maybe_mark_dynamic_helper")
_RUNTIME = __name__.rpartition(".pytorch.")[0]
_OURS = f"{__name__.partition('.')[0]}."
_MAIN_REGION = -1
"""Entries that belong to no wrapper of their own (``isolate_recompiles``)."""


class CompiledFrame(NamedTuple):
    """One entry of Dynamo's cache.

    Attributes:
        code: What runs in the place of the frame's own code.
        guards: What must hold of the frame's variables, and of all that they lead to.
    """

    code: CodeType
    guards: Any

    def fits(self, variables: dict[str, Any]) -> bool:
        """Whether Dynamo would run this code for a frame with these variables."""
        return self.guards.cache_entry is not None and bool(self.guards.check(variables))

    def misfit(self, variables: dict[str, Any]) -> str:
        """What does not hold, in Dynamo's words."""
        if self.guards.cache_entry is None:
            return "Dynamo has dropped it"
        parts = self.guards.check_verbose(variables).verbose_code_parts
        return str(parts[0]).partition("#")[0].strip() if parts else "a guard does not hold"


class Switch(NamedTuple):
    """What a wrapper around a function tells Dynamo to do while the function runs.

    Attributes:
        backend: Whose compiled code runs; None if frames run as they are.
        context: Wraps another function in the same way.
        plain: Dynamo does nothing but look for code compiled for this backend, or nothing at all.
    """

    function: Any
    backend: Any
    context: Any
    plain: bool


def _module(name: str) -> Any:
    return sys.modules.get(f"torch._dynamo.{name}")


def is_compiling() -> bool:
    """Whether anything in this process is under ``torch.compile``."""
    frames = _module("eval_frame")
    return frames is not None and any(each is not None for each in frames.cached_backends.values())


def is_looking() -> bool:
    """Whether Dynamo looks at the frames of this thread, and may compile what is called."""
    return _module("eval_frame") is not None and callable(frame_callback())


def is_switching(code: CodeType) -> bool:
    """Whether code is that of the wrappers that switch Dynamo on or off for a function."""
    frames = _module("eval_frame")
    if frames is None or code.co_name not in _WRAPPERS:
        return False
    kind = getattr(frames, _WRAPPERS[code.co_name], None)
    made = kind.__call__.__code__.co_consts if kind is not None else ()
    return any(each is code for each in made) and {"fn", "self"} <= {*code.co_freevars}


def is_hint(code: CodeType) -> bool:
    """Whether code is that by which compiled code tells later frames which sizes of a result are dynamic."""
    module = sys.modules.get("torch._functorch._aot_autograd.runtime_wrappers")
    return code.co_name in _HINTS and getattr(getattr(module, code.co_name, None), "__code__", None) is code


def runs_operator(code: CodeType) -> bool:
    """Whether code is PyTorch's own around an operator over Python functions, such as ``torch.cond``.

    Outside of compiled code it compiles a frame around the operator, which gives what it gives as written.
    """
    return code.co_filename.startswith(_OF_OPERATORS)


def switch_of(wrapper: FunctionType, code: CodeType) -> Switch:
    """What a wrapper does, read off its closure; ``code`` is its own code."""
    cells = zip(code.co_freevars, wrapper.__closure__ or (), strict=True)
    found = {name: cell.cell_contents for name, cell in cells if name in ("fn", "self", "callback")}
    frames, context = _module("eval_frame"), found["self"]
    given = found.get("callback", context.callback)
    callback = frames._callback_from_stance(given)
    whole = getattr(context, "_isolate_recompiles_id", _MAIN_REGION) == _MAIN_REGION
    code_of_function = getattr(found["fn"], "__code__", None)
    if code_of_function is not None and runs_operator(code_of_function):
        return Switch(found["fn"], None, context, True)
    plain = callback is None or (callback is given and callable(callback) and whole)
    return Switch(found["fn"], None if callback is None else backend_of(callback), context, plain)


def watching_compilations(begun: Callable[[], None], ended: Callable[[], None]) -> Callable[[], None] | None:
    """Call a function before Dynamo compiles a frame, on any thread, and another one afterwards.

    Returns:
        What ends that; None where nothing can be compiled.
    """
    handler = getattr(_module("callback"), "callback_handler", None)
    if handler is None:
        return None
    leave_runtime_alone()

    def begins(_: Any) -> None:
        begun()

    def ends(_: Any) -> None:
        ended()

    handler.register_start_callback(begins)
    handler.register_end_callback(ends)

    def stop() -> None:
        with suppress(ValueError):  # torch._dynamo.reset() forgets them
            handler.remove_start_callback(begins)
            handler.remove_end_callback(ends)

    return stop


def leave_runtime_alone() -> None:
    """Dynamo compiles no frame of rote's runtime from now on, as it compiles none of PyTorch's own.

    What runs for a frame of compiled code may call the runtime, and Dynamo looks at each frame there.
    """
    rules = _module("trace_rules")
    if rules is not None and not rules.check_file(__file__).skipped:
        rules.add(_RUNTIME)


def leave_alone(code: CodeType) -> bool:
    """Let Dynamo compile no frame with this code; frames that it calls are compiled as ever.

    Returns:
        Whether that was done: False where there is no Dynamo yet.
    """
    skip = getattr(_module("eval_frame"), "skip_code", None)
    if skip is not None:
        skip(code)
    return skip is not None


def backend_of(callback: Any) -> Any:
    """The backend behind what Dynamo calls with a frame."""
    while hasattr(callback, "_torchdynamo_orig_backend"):
        callback = callback._torchdynamo_orig_backend
    return callback


def stance() -> str:
    """What ``torch.compiler.set_stance`` says."""
    now = getattr(_module("eval_frame"), "_stance", None)
    said, backend = getattr(now, "stance", "default"), getattr(now, "backend", None)
    return f"{said} {backend}" if backend is not None else said


def told_by_stance() -> tuple[dict[str, Any], ...]:
    """The dicts in which everything lies that :func:`stance` reads; none where there is no such thing yet."""
    frames = _module("eval_frame")
    now = getattr(frames, "_stance", None)
    return (vars(frames), vars(now)) if hasattr(now, "__dict__") else ()


def compiled_frames(code: CodeType, backend: Any) -> list[CompiledFrame]:
    """What Dynamo has compiled for frames with this code, in the order in which it asks.

    Args:
        backend: By which backend; None for any.
    """
    entries = getattr(_module("eval_frame"), "_debug_get_cache_entry_list", None)
    return [
        CompiledFrame(each.code, each.guard_manager)
        for each in (entries(code) if entries is not None else None) or ()
        if getattr(each, "isolate_recompiles_id", _MAIN_REGION) == _MAIN_REGION
        and (backend is None or each.backend is backend or each.backend == backend)
    ]


class LeftAlone:
    """Code whose frames Dynamo has looked at and compiled nothing for.

    Dynamo does not say which those are: where it failed to compile it fails again in each call, and where it
    was never asked it will be. So it is seen in calls that step aside.
    """

    def __init__(self) -> None:
        self._codes: dict[int, CodeType] = {}

    def has_run(self, code: CodeType) -> None:
        """A frame with this code has run where Dynamo was asked, and nothing was raised."""
        if not compiled_frames(code, None):
            self._codes[identity(code)] = code

    def runs_as_it_is(self, code: CodeType) -> bool:
        """Whether Dynamo leaves frames with this code alone, or those of its whole file."""
        converting, rules = _module("convert_frame"), _module("trace_rules")
        if converting is None or rules is None or is_own(code.co_filename):
            return True
        known = identity(code) in self._codes and code in converting.input_codes  # until Dynamo is reset
        return (known and not compiled_frames(code, None)) or bool(rules.check(code))


LEFT_ALONE = LeftAlone()
"""Dynamo's marks are the process's."""


@contextmanager
def untraced() -> Generator[None]:
    """A context without dispatch modes, and without what rote puts around a traced call.

    That is its function modes, and names of PyTorch that it replaces. The user's function modes are in force.
    """
    with REPLACEMENTS.withdrawn(), WithoutModes():
        stack = [pop_mode() for _ in function_modes()]
        users = [mode for mode in reversed(stack) if not type(mode).__module__.startswith(_OURS)]
        for mode in users:
            push_mode(mode)
        try:
            yield
        finally:
            for _ in users:
                pop_mode()
            for mode in reversed(stack):
                push_mode(mode)


@dataclass(frozen=True)
class FrameState:
    """What guards of compiled code look at besides the variables of its frame, and what a call may have set.

    Attributes:
        functions: Whether ``__torch_function__`` is called. It makes no difference to the code, but rote
            looks at tensors with it off.
        grad: Whether gradients are enabled.
        autocast: For each kind of device whether autocast is on, and its type.
    """

    functions: Any
    grad: bool
    autocast: tuple[tuple[bool, torch.dtype], ...]

    @classmethod
    def now(cls) -> FrameState:
        """The state of this thread."""
        autocast = [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in _KINDS]
        return cls(dispatched_functions(), torch.is_grad_enabled(), tuple(autocast))

    def put(self) -> None:
        """Make it the state of this thread."""
        torch.set_grad_enabled(self.grad)
        for kind, (on, dtype) in zip(_KINDS, self.autocast, strict=True):
            torch.set_autocast_enabled(kind, on)
            torch.set_autocast_dtype(kind, dtype)
        set_dispatched_functions(self.functions)
