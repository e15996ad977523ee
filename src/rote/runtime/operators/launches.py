"""Kernels of Triton that a call launches itself, as regions of compiled code.

A kernel is launched past the dispatcher, so a dispatch mode does not see what it does. It need not: a launch
is a function of its arguments, and the compiled kernel's own code says to which of them it stores. So the
method by which Triton launches is replaced while a mode wants to see it, and the mode is handed a
:class:`TritonLaunch`, which looks like any other region (:class:`..pytorch.CompiledGraph`).

Which kernel runs may be chosen by Triton: heuristics and the autotuner stand before the kernel. They choose
when a call is traced, by numbers and types of the arguments, which a recording compares anyway.

What does not work: kernels whose arguments are neither tensors nor plain values (descriptors of tensors,
tuples with tensors), and hooks, which are Python code that runs at each launch. Nothing is recorded of a
call that launches these.

Every name of Triton here was seen in 3.6 and 3.7. What is missing is not replaced, and a launch is code of
which nothing is known.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

import torch

from ..pytorch import REPLACEMENTS, DispatchMode, WithoutModes, dispatch_modes, run_kernel
from .stores import stores

_KERNELS = (("triton.runtime.jit", "JITFunction"), ("triton.runtime.interpreter", "InterpretedFunction"))
_TUNERS = (("triton.runtime.autotuner", "Autotuner"),)
_HEURISTICS = (("triton.runtime.autotuner", "Heuristics"),)
_NUMBERS = (int, float, bool)
_CONSTANTS = (str, type(None), torch.dtype)
_OF_LANGUAGE = "triton.language.core"
"""The module of Triton's own types and of ``constexpr``."""


class UnseenLaunchError(Exception):
    """A launch that is not like a region; the message says why."""


@dataclass(frozen=True)
class _Argument:
    """An argument of a kernel, or an option of its launch.

    Attributes:
        name: Its name.
        kind: ``Tensor``, ``number``, or ``constant``.
        compiled: What a kernel is compiled for: the value of a constant, the type of a tensor, and whether a
            whole number is 1, or a multiple of 16. Where it stores may depend on that.
        value: That of a constant; None for others.
    """

    name: str
    kind: str
    compiled: tuple[Any, ...]
    value: Any = None


@dataclass(frozen=True, eq=False)
class TritonLaunch:
    """A kernel with all that is fixed of its arguments. It is a region, too.

    Attributes:
        kernel: The kernel.
        run: Triton's own method by which it is launched.
        arguments: What it is given, in this order; the three numbers of the grid come last.
        device_types: The kinds of devices that it uses.
        mutated_input_idxs: The numbers of the inputs to which it stores.
        source_code: Says that it has no random numbers but those that it computes, and no collectives.
        cudagraph_info: What PyTorch's own graphs know of it.
    """

    kernel: Any
    run: Callable[..., Any]
    arguments: tuple[_Argument, ...]
    device_types: frozenset[str]
    mutated_input_idxs: frozenset[int]
    source_code: str = "a kernel of Triton"
    cudagraph_info: None = None

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return _name(self.kernel)

    def __call__(self, inputs: list[Any]) -> list[Any]:
        """Launch it, which empties the list of its inputs."""
        given = iter(inputs)
        named = {each.name: each.value if each.kind == "constant" else next(given) for each in self.arguments}
        grid = tuple(given)
        inputs.clear()
        run_kernel(self.run, self.kernel, (), {**named, "grid": grid, "warmup": False})
        return []


@dataclass(frozen=True, eq=False)
class LaunchCall:
    """A call of a kernel, as the program makes it.

    Attributes:
        run: Triton's own method.
        kernel: The kernel, or what chooses one.
        args: Its arguments, by position.
        named: Those by name, and options of the launch.
    """

    run: Callable[..., Any]
    kernel: Any
    args: tuple[Any, ...]
    named: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return _name(self.kernel)

    def plainly(self) -> Any:
        """Launch it as Triton does."""
        return run_kernel(self.run, self.kernel, self.args, self.named)

    def chosen(self) -> LaunchCall:
        """The call of the kernel itself: heuristics and the autotuner have had their say.

        Raises:
            UnseenLaunchError: Python code runs at each launch.
        """
        kernel, named = self.kernel, dict(self.named)
        while not isinstance(kernel, _classes(_KERNELS)):
            if isinstance(kernel, _classes(_HEURISTICS)):
                for name, value in kernel.values.items():
                    named[name] = value({**dict(zip(kernel.arg_names, self.args, strict=False)), **named})
                kernel = kernel.fn
            elif isinstance(kernel, _classes(_TUNERS)):
                tuned = run_kernel(_tuned, kernel, self.args, named)
                kernel, named = kernel.fn, tuned
            else:
                raise UnseenLaunchError(f"{type(kernel).__qualname__} launches kernels")
        if getattr(kernel, "pre_run_hooks", None):
            raise UnseenLaunchError("a hook runs at each launch of it")
        return LaunchCall(_original(type(kernel)), kernel, self.args, named)

    def bound(self) -> dict[str, Any]:
        """All arguments of a kernel by name, in the order of its parameters, and options behind them."""
        parameters = inspect.signature(self.kernel.fn).parameters
        found = dict(zip(parameters, self.args, strict=False))
        for name, parameter in parameters.items():
            if name in self.named:
                found[name] = self.named[name]
            elif name not in found and parameter.default is not parameter.empty:
                found[name] = parameter.default
        ordered = {name: found[name] for name in parameters if name in found}
        options = {name: value for name, value in self.named.items() if name not in parameters}
        return ordered | {name: value for name, value in options.items() if name not in ("grid", "warmup")}

    def grid(self, bound: Mapping[str, Any]) -> tuple[int, int, int]:
        """How many programs run; a function of the arguments says so, or the caller.

        Raises:
            UnseenLaunchError: It is no tuple of numbers.
        """
        found: Any = self.named.get("grid")
        if callable(found):
            found = found({name: bound[name] for name in self.kernel.arg_names if name in bound})
        numbers: tuple[Any, ...] = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        if len(numbers) > 3 or not all([isinstance(each, int) for each in numbers]):
            raise UnseenLaunchError(f"its grid is {found!r}")
        x, y, z = (*numbers, 1, 1, 1)[:3]
        return x, y, z


@dataclass
class TritonLaunches:
    """The launches met so far: a kernel that Triton compiles anew is another one.

    They live as long as the process, as what Triton has compiled does.
    """

    _known: dict[tuple[int, tuple[_Argument, ...]], TritonLaunch] = field(default_factory=dict)

    def of(self, call: LaunchCall) -> tuple[TritonLaunch, list[Any]]:
        """The launch that a call makes, with its inputs.

        Args:
            call: What :meth:`LaunchCall.chosen` gives.

        Raises:
            UnseenLaunchError: Nothing is recorded of a call that launches it.
        """
        bound = call.bound()
        grid = call.grid(bound)
        constant = _constant_names(call.kernel)
        arguments = tuple([_argument(name, value, name in constant) for name, value in bound.items()])
        key = id(call.kernel), arguments
        launch = self._known.get(key)
        if launch is None:
            launch = self._known[key] = _launch(call, arguments, bound, grid)
        inputs = [
            value for each, value in zip(arguments, bound.values(), strict=True) if each.kind != "constant"
        ]
        return launch, [*inputs, *grid]


LAUNCHES = TritonLaunches()
"""Triton's kernels are the process's, and so are the operators that stand for their launches."""


@contextmanager
def seeing_launches() -> Generator[None]:
    """A context in which launches of kernels are handed to a mode of this thread that meets compiled code."""
    with ExitStack() as stack:
        for owner in _classes((*_KERNELS, *_TUNERS, *_HEURISTICS)):
            stack.enter_context(REPLACEMENTS.replaced(owner, "run", _through_modes(owner.run)))
        yield


def _classes(names: tuple[tuple[str, str], ...]) -> tuple[type, ...]:
    """Triton's classes, where something has imported it."""
    found = [getattr(sys.modules.get(module), name, None) for module, name in names]
    return tuple([each for each in found if each is not None and hasattr(each, "run")])


def _through_modes(original: Any) -> Any:
    @functools.wraps(original)
    def run(kernel: Any, *args: Any, **named: Any) -> Any:
        for mode in dispatch_modes():
            if isinstance(mode, DispatchMode) and mode.meets_compiled and not named.get("warmup"):
                with WithoutModes():
                    return mode.meet_launch(LaunchCall(original, kernel, args, named))
        return run_kernel(original, kernel, args, named)

    return run


_RUN_CODE: CodeType = _through_modes(inspect.unwrap).__code__


def globals_of_launch(function: FunctionType, given: Sequence[Any]) -> list[tuple[str, dict[str, Any]]]:
    """The globals that Triton compares at each launch of a compiled kernel, each with its namespace.

    Args:
        function: What is called: any function.
        given: What it is given.
    """
    if function.__code__ is not _RUN_CODE or not given:
        return []
    kernel = given[0]
    while hasattr(kernel, "fn") and not hasattr(kernel, "used_global_vals"):
        kernel = kernel.fn
    getattr(kernel, "cache_key", None)  # which finds them, before the kernel is compiled
    compared: dict[tuple[str, int], tuple[Any, dict[str, Any]]] = getattr(kernel, "used_global_vals", {})
    return [(name, namespace) for (name, _), (_, namespace) in compared.items()]


def _name(kernel: Any) -> str:
    while not inspect.isfunction(kernel) and hasattr(kernel, "fn"):
        kernel = kernel.fn
    return getattr(kernel, "__name__", "kernel")


def _original(kind: type) -> Callable[..., Any]:
    """Triton's own method, while it is replaced."""
    run: Any = kind.run  # pyright: ignore[reportAttributeAccessIssue]
    return getattr(run, "__wrapped__", run)


class _Caught:
    """Stands where the autotuner has its kernel: keeps what the kernel is given, once that is decided."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        self.measures = False
        self.given: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fn, name)

    def run(self, *args: Any, **named: Any) -> Any:
        if self.measures:
            return self.fn.run(*args, **named)
        self.given = named
        return None


def _tuned(tuner: Any, *args: Any, **named: Any) -> dict[str, Any]:
    """What the autotuner gives its kernel by name; it measures where it does not know yet."""
    caught = _Caught(tuner.fn)
    stand_in = copy.copy(tuner)  # with the same table of what was measured

    def bench(*args: Any, **named: Any) -> Any:
        caught.measures = True
        try:
            return type(tuner)._bench(stand_in, *args, **named)
        finally:
            caught.measures = False

    stand_in.fn, stand_in._bench = caught, bench
    _original(type(tuner))(stand_in, *args, **named)
    if getattr(stand_in.best_config, "pre_hook", None) is not None:
        raise UnseenLaunchError("its configuration has a hook that runs at each launch")
    tuner.best_config = stand_in.best_config
    return caught.given


def _constant_names(kernel: Any) -> frozenset[str]:
    """The parameters that a kernel is compiled for."""
    annotations = getattr(kernel.fn, "__annotations__", {})
    return frozenset([name for name, said in annotations.items() if "constexpr" in str(said)])


def _argument(name: str, value: Any, constant: bool) -> _Argument:
    if isinstance(value, torch.Tensor):
        return _Argument(name, "Tensor", (value.dtype,))
    if type(value) in _NUMBERS and not constant:
        whole = type(value) is int
        return _Argument(name, "number", (type(value), whole and value == 1, whole and value % 16 == 0))
    if _is_constant(value):
        return _Argument(name, "constant", (type(value),), value)
    raise UnseenLaunchError(f"its argument {name} is a {type(value).__qualname__}")


def _is_constant(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_constant, value))
    of_language = type(value).__module__ == _OF_LANGUAGE and type(value).__hash__ is not None
    return isinstance(value, (*_CONSTANTS, *_NUMBERS)) or of_language or isinstance(value, _classes(_KERNELS))


def _launch(
    call: LaunchCall, arguments: tuple[_Argument, ...], bound: Mapping[str, Any], grid: tuple[int, int, int]
) -> TritonLaunch:
    inputs = [each for each in arguments if each.kind != "constant"]
    tensors = [number for number, each in enumerate(inputs) if each.kind == "Tensor"]
    compiled = run_kernel(call.run, call.kernel, (), {**bound, "grid": grid, "warmup": True})
    code = getattr(compiled, "asm", {}).get("ttir") if compiled is not None else None
    found = stores(code) if isinstance(code, str) else None
    if found is None or found.pointers != len(tensors):  # to any of them, as far as is known
        stored = frozenset(tensors)
    else:
        stored = frozenset([tensors[number] for number in found.stored])
    kinds = frozenset([bound[each.name].device.type for each in inputs if each.kind == "Tensor"])
    return TritonLaunch(call.kernel, call.run, arguments, kinds, stored)
