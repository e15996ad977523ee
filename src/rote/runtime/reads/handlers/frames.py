"""Calls of compiled functions: what Dynamo runs for a frame runs here, and is followed like other code.

A traced call does not switch Dynamo on. Where a wrapper would, the trace keeps what it says
(:class:`...pytorch.Switch`); where a function of compiled code begins, Dynamo's guards are asked, and the
code that they choose runs with notes of its own: what it reads of modules and globals are reads, what it
writes are effects, its regions are operations. That the guards choose the same code is a condition, asked of
a frame whose tensors are stand-ins without memory (:class:`FrameCheck`).

Where Dynamo would compile first, it does: all functions have their own code and no mode is in force
meanwhile, so that it compiles what a plain call would. Nothing of such a call is recorded.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import torch

from ....base import identity
from ...objects import said_name
from ...pytorch import (
    LEFT_ALONE,
    CompiledFrame,
    FrameState,
    compiled_frames,
    stance,
    switch_of,
    untraced,
)
from ..bytecode import copied
from ..trace import PLAIN_TYPES, Trace
from . import names

VALID = "valid"
_STAND_INS = (torch.Tensor, torch.nn.Parameter)
_CONTAINERS = (tuple, list)
_PLAIN = (*PLAIN_TYPES, slice, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
_MARKS = "_dynamo_"
"""What the names of Dynamo's own attributes of tensors begin with: which sizes are dynamic."""


class ForeignError(Exception):
    """A variable of a frame that cannot be kept for its guards: the message says what it is."""


@dataclass(frozen=True, eq=False)
class FrameCheck:
    """Asks Dynamo's guards whether they still choose a frame's code.

    Attributes:
        kept: Variables as they are, stand-ins for tensors among them.
        objects: Other variables, weakly: a recording keeps no model alive.
        state: What else they look at, as the call had set it where the frame ran.
    """

    frame: CompiledFrame
    kept: dict[str, Any]
    objects: dict[str, Callable[[], Any]]
    state: FrameState

    def __call__(self) -> str:
        """``VALID``, or what does not hold."""
        found = {name: get() for name, get in self.objects.items()}
        if any([value is None for value in found.values()]):
            return "an object of it is gone"
        variables = {**self.kept, **found}
        now = FrameState.now()
        if now == self.state:
            return self._say(variables)
        self.state.put()
        try:
            return self._say(variables)
        finally:
            now.put()

    def _say(self, variables: dict[str, Any]) -> str:
        return VALID if self.frame.fits(variables) else self.frame.misfit(variables)


def enter(trace: Trace, wrapper: FunctionType, code: CodeType) -> Callable[..., Any]:
    """A wrapper is called that switches Dynamo on or off: what it calls is to be called."""
    switch = switch_of(wrapper, code)
    trace.outside.find(stance, None, "torch.compiler.set_stance")
    trace.outside.ask(stance, (), "")
    if not switch.plain:
        return _aside(trace, copied(wrapper, code))
    trace.callables.switch(switch)
    return switch.function


def choose(
    trace: Trace, function: FunctionType, code: CodeType, variables: dict[str, Any]
) -> Callable[..., Any]:
    """What runs for a function that is called with these variables."""
    switch = trace.callables.switched
    if switch is None or switch.backend is None:
        return _followed(trace, function, code, code)
    for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        names.cell(trace, cell)
        if _is_filled(cell):
            variables[variable] = cell.cell_contents
    with untraced(), trace.running.swaps.withdrawn():  # guards look at the code of functions
        frames = compiled_frames(code, switch.backend)
        frame = next((each for each in frames if each.fits(variables)), None)
    if frame is not None:
        _guard(trace, function, frame, variables)
        return _followed(trace, function, frame.code, code)
    if not frames and LEFT_ALONE.runs_as_it_is(code):
        return _followed(trace, function, code, code)
    return _aside(trace, switch.context(copied(function, code)), code)


def _followed(trace: Trace, function: FunctionType, code: CodeType, own: CodeType) -> Callable[..., Any]:
    made, why = trace.running.swaps.copy(function, code, own)
    if why:
        name = f"{function.__module__}.{function.__qualname__}"
        trace.running.refuse(name, f"runs {name}, which cannot be followed: {why}")
    return made


def _aside(trace: Trace, function: Callable[..., Any], frames: CodeType | None = None) -> Callable[..., Any]:
    """What runs a function that switches Dynamo on; ``frames`` is the code of what it is around."""

    def aside(*args: Any, **kwargs: Any) -> Any:
        returned = trace.run_aside(lambda: function(*args, **kwargs))
        if frames is not None:
            LEFT_ALONE.has_run(frames)
        return returned

    return aside


def _guard(trace: Trace, function: FunctionType, frame: CompiledFrame, variables: dict[str, Any]) -> None:
    """Note that Dynamo's guards choose a frame's code."""
    name = f"the compiled code of {function.__qualname__}"
    kept: dict[str, Any] = {}
    objects: dict[str, Callable[[], Any]] = {}
    try:
        with untraced(), trace.running.swaps.withdrawn():
            stand_ins: dict[int, torch.Tensor] = {}
            for variable, value in variables.items():
                if _is_object(value):
                    objects[variable] = _reference(trace, value)
                else:
                    kept[variable] = _kept(trace, value, stand_ins)
            check = FrameCheck(frame, kept, objects, FrameState.now())
            said = check()
    except ForeignError as error:
        trace.running.refuse(name, f"runs {name} with {error}")
        return
    if said != VALID:
        trace.running.refuse(name, f"runs {name}, whose guards look at what tensors hold: {said}")
        return
    looks = _look(trace, (*kept.items(), *objects.items()))
    check = trace.same_answer((identity(frame.guards), *looks), check)
    trace.outside.find(check, None, name)
    trace.outside.answers(check, VALID)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _is_object(value: Any) -> bool:
    return not (isinstance(value, torch.Tensor) or type(value) in (*_PLAIN, *_CONTAINERS, dict))


def _reference(trace: Trace, value: Any) -> Callable[[], Any]:
    """A variable that is known by which object it is."""
    trace.outside.identify(value, "runs compiled code with it")
    if not (trace.outside.has(value) or isinstance(value, type)):
        raise ForeignError(f"a {said_name(type(value))} that the call makes")
    trace.outside.pin(value)
    if type(value).__weakrefoffset__:
        return weakref.ref(value)
    return lambda: value


def _kept(trace: Trace, value: Any, stand_ins: dict[int, torch.Tensor]) -> Any:
    """A variable as it is kept: containers of the call's own made anew, stand-ins for tensors."""
    kind, outside = type(value), trace.outside
    if kind in (*_CONTAINERS, dict) and outside.has(value) and outside.given.number_of(value) is None:
        return value  # what it holds may change, and guards look at that
    if isinstance(value, torch.Tensor):
        found = stand_ins.get(identity(value))
        return stand_ins.setdefault(identity(value), _stand_in(value)) if found is None else found
    if kind in _CONTAINERS:
        return kind([_kept(trace, each, stand_ins) for each in value])
    if kind is dict:
        return {key: _kept(trace, each, stand_ins) for key, each in value.items()}
    if kind in _PLAIN:
        return value
    return _reference(trace, value)()


def _look(trace: Trace, value: Any) -> tuple[Any, ...]:
    """How a variable looks that is kept, such that equal looks stand for equal answers of guards.

    A container from outside is known by its identity: what it holds may change, and guards look at that.
    """
    kind = type(value)
    if isinstance(value, torch.Tensor):
        marks = ((name, repr(mark)) for name, mark in vars(value).items())
        facts = (value.shape, value.stride(), value.dtype, value.device, value.requires_grad)
        return kind, *facts, value.is_inference(), *marks
    if kind in _CONTAINERS and not trace.outside.has(value):
        return kind, *[_look(trace, each) for each in value]
    if kind is weakref.ref:
        return kind, identity(value())
    return kind, repr(value) if kind in _PLAIN else identity(value)


def _stand_in(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that looks like another one to guards, and has no memory."""
    kind = type(tensor)
    if kind not in _STAND_INS or tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
        raise ForeignError(f"a {said_name(kind)} of a kind that has no stand-in")
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        made.untyped_storage().resize_(0)
        if kind is torch.nn.Parameter:
            made = torch.nn.Parameter(made, requires_grad=False)
    made.requires_grad_(tensor.requires_grad)
    for name, value in vars(tensor).items():
        if name.startswith(_MARKS):
            setattr(made, name, value)
    return made
