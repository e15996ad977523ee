"""Names: globals, builtins, closures, defaults, and what ``eval`` and ``exec`` make of them."""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch
from tests.footguns.case import Wrap
from tests.state_programs.program import Change, item, put, state, turns

Items = Iterator[Any]
GAIN: Any = 1.5
TABLE: dict[str, float] = {}


def rebind(value: Any) -> Change:
    """A change of the global ``GAIN``."""
    return lambda: globals().update(GAIN=value)


def gain() -> Any:
    """The global, read by a function the callable calls."""
    return GAIN


@state("reads")
def global_number(wrap: Wrap, device: torch.device) -> Items:
    """A global is rebound."""
    rebind(1.5)()
    yield from turns(wrap(lambda x: x * GAIN), device, rebind(2.5), rebind(1.5))


@state("reads")
def global_of_a_helper(wrap: Wrap, device: torch.device) -> Items:
    """A global that a helper reads is rebound."""
    rebind(1.5)()
    yield from turns(wrap(lambda x: x * gain()), device, rebind(2.5))


@state("reads")
def global_function(wrap: Wrap, device: torch.device) -> Items:
    """A global function is rebound."""
    names: dict[str, Any] = {"act": lambda x: x * 1.5}
    exec("def fn(x):\n    return act(x)", names)
    yield from turns(wrap(names["fn"]), device, item(names, "act", lambda x: x * 2.5))


@state("limits")
def global_by_computed_name(wrap: Wrap, device: torch.device) -> Items:
    """``globals()`` with a name made at run time."""
    rebind(1.5)()
    g = wrap(lambda x: x * globals()["niag"[::-1].upper()])
    yield from turns(g, device, rebind(2.5))


@state("reads")
def global_deleted(wrap: Wrap, device: torch.device) -> Items:
    """A global that hides a builtin is deleted."""
    names: dict[str, Any] = {"len": lambda value: 7}
    exec("def fn(x):\n    return x * len(x)", names)
    yield from turns(wrap(names["fn"]), device, lambda: names.pop("len"))


@state("reads")
def builtin_replaced(wrap: Wrap, device: torch.device) -> Items:
    """A builtin is replaced."""
    before = builtins.abs
    try:
        g = wrap(lambda x: x * abs(-1.5))
        yield from turns(g, device, put(builtins, abs=lambda value: 9.0), put(builtins, abs=before))
    finally:
        builtins.abs = before


@state("reads")
def builtin_added(wrap: Wrap, device: torch.device) -> Items:
    """A name that only the builtins module has, as debuggers and gettext put there."""
    builtins.state_program_gain = 1.5  # type: ignore[attr-defined]
    try:
        names: dict[str, Any] = {}
        exec("def fn(x):\n    return x * state_program_gain", names)
        yield from turns(wrap(names["fn"]), device, put(builtins, state_program_gain=2.5))
    finally:
        del builtins.state_program_gain  # type: ignore[attr-defined]


@state("reads")
def own_builtins(wrap: Wrap, device: torch.device) -> Items:
    """A namespace with builtins of its own."""
    own = {"gain": 1.5}
    names: dict[str, Any] = {"__builtins__": own}
    exec("def fn(x):\n    return x * gain", names)
    yield from turns(wrap(names["fn"]), device, item(own, "gain", 2.5))


@state("reads")
def eval_of_a_text(wrap: Wrap, device: torch.device) -> Items:
    """``eval`` of a constant text that reads a global."""
    rebind(1.5)()
    yield from turns(wrap(lambda x: x * eval("GAIN * 2")), device, rebind(2.5))


@state("reads")
def eval_of_a_text_that_changes(wrap: Wrap, device: torch.device) -> Items:
    """``eval`` of a text that is state."""
    o = types.SimpleNamespace(rule="1.5")
    yield from turns(wrap(lambda x: x * eval(o.rule)), device, put(o, rule="2 + 0.5"))


@state("reads")
def exec_of_a_text(wrap: Wrap, device: torch.device) -> Items:
    """``exec`` inside the call, with a namespace from outside."""
    names = {"k": 1.5}

    def fn(x: torch.Tensor) -> torch.Tensor:
        found: dict[str, Any] = {}
        exec("out = k * 2", names, found)
        return x * found["out"]

    yield from turns(wrap(fn), device, item(names, "k", 2.5))


@state("reads")
def closure_number(wrap: Wrap, device: torch.device) -> Items:
    """A variable of the enclosing function is rebound."""
    k = 1.5

    def change() -> None:
        nonlocal k
        k += 1.0

    yield from turns(wrap(lambda x: x * k), device, change, change)


@state("reads")
def closure_of_a_helper(wrap: Wrap, device: torch.device) -> Items:
    """A variable that a nested helper closes over is rebound."""
    k = 1.5

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * k

    def change() -> None:
        nonlocal k
        k = 2.5

    yield from turns(wrap(lambda x: scaled(x) + 1), device, change)


@state("reads")
def cell_contents(wrap: Wrap, device: torch.device) -> Items:
    """A closure cell is written through ``cell_contents``."""
    k = 1.5

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * k

    cell = fn.__closure__[0]  # type: ignore[index]
    yield from turns(wrap(fn), device, put(cell, cell_contents=2.5))


@state("reads")
def closure_variable_unbound(wrap: Wrap, device: torch.device) -> Items:
    """A closure variable is deleted: the call raises as the plain one does, and works again later."""
    k = 1.5

    def fn(x: torch.Tensor) -> torch.Tensor:
        try:
            return x * k
        except NameError:
            return x - 1

    def forget() -> None:
        nonlocal k
        del k

    def again() -> None:
        nonlocal k
        k = 2.5

    yield from turns(wrap(fn), device, forget, again)


@state("reads")
def default_of_the_callable(wrap: Wrap, device: torch.device) -> Items:
    """The callable's default is replaced."""

    def fn(x: torch.Tensor, k: float = 1.5) -> torch.Tensor:
        return x * k

    yield from turns(wrap(fn), device, put(fn, __defaults__=(2.5,)))


@state("reads")
def mutable_default(wrap: Wrap, device: torch.device) -> Items:
    """A list that is a default is changed in place from outside."""

    def fn(x: torch.Tensor, k: list[float] = [1.5]) -> torch.Tensor:  # noqa: B006
        return x * sum(k)

    yield from turns(wrap(fn), device, lambda: fn.__defaults__[0].append(1.0))  # type: ignore[index]


@state("reads")
def keyword_default(wrap: Wrap, device: torch.device) -> Items:
    """A keyword-only default of a helper is changed in its dict."""

    def scaled(x: torch.Tensor, *, k: float = 1.5) -> torch.Tensor:
        return x * k

    g = wrap(lambda x: scaled(x))
    yield from turns(g, device, item(scaled.__kwdefaults__, "k", 2.5), put(scaled, __kwdefaults__={"k": 3.5}))


@state("reads")
def default_of_a_helper(wrap: Wrap, device: torch.device) -> Items:
    """A helper's defaults are replaced."""

    def scaled(x: torch.Tensor, k: float = 1.5) -> torch.Tensor:
        return x * k

    yield from turns(wrap(lambda x: scaled(x)), device, put(scaled, __defaults__=(2.5,)))


@state("limits")
def code_of_a_helper(wrap: Wrap, device: torch.device) -> Items:
    """A helper's ``__code__`` is replaced in place, as hot reloading does."""

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * 1.5

    def other(x: torch.Tensor) -> torch.Tensor:
        return x * 2.5

    yield from turns(wrap(lambda x: scaled(x)), device, put(scaled, __code__=other.__code__))


@state("limits")
def code_of_the_callable(wrap: Wrap, device: torch.device) -> Items:
    """The callable's own ``__code__`` is replaced in place."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * 1.5

    def other(x: torch.Tensor) -> torch.Tensor:
        return x * 2.5

    yield from turns(wrap(fn), device, put(fn, __code__=other.__code__))


@state("reads")
def constant_of_the_code(wrap: Wrap, device: torch.device) -> Items:
    """A helper's code with one constant replaced."""

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * 1.5

    code = scaled.__code__
    changed = code.replace(co_consts=tuple(2.5 if const == 1.5 else const for const in code.co_consts))
    yield from turns(
        wrap(lambda x: scaled(x)), device, put(scaled, __code__=changed), put(scaled, __code__=code)
    )


@state("reads")
def module_in_sys_modules(wrap: Wrap, device: torch.device) -> Items:
    """A module is replaced in ``sys.modules``; the call imports it."""

    def made(k: float) -> types.ModuleType:
        module = types.ModuleType("state_program_config")
        module.k = k  # type: ignore[attr-defined]
        return module

    def fn(x: torch.Tensor) -> torch.Tensor:
        import state_program_config  # type: ignore[import-not-found]

        return x * state_program_config.k

    sys.modules["state_program_config"] = made(1.5)
    try:
        yield from turns(wrap(fn), device, item(sys.modules, "state_program_config", made(2.5)))
    finally:
        del sys.modules["state_program_config"]


@state("reads")
def module_by_name(wrap: Wrap, device: torch.device) -> Items:
    """A module is looked up in ``sys.modules`` by name and read."""
    module = types.ModuleType("state_program_config")
    module.k = 1.5  # type: ignore[attr-defined]
    sys.modules["state_program_config"] = module
    try:
        g = wrap(lambda x: x * sys.modules["state_program_config"].k)
        yield from turns(g, device, put(module, k=2.5))
    finally:
        del sys.modules["state_program_config"]


@state("reads")
def annotations(wrap: Wrap, device: torch.device) -> Items:
    """The annotations of a function decide."""

    def scaled(x: Any) -> None:
        pass

    g = wrap(lambda x: x * len(scaled.__annotations__))
    yield from turns(g, device, item(scaled.__annotations__, "more", int))


@state("reads")
def docstring(wrap: Wrap, device: torch.device) -> Items:
    """A function's docstring and name decide."""

    def scaled() -> None:
        """Two words."""

    g = wrap(lambda x: x * len(scaled.__doc__ or "") + len(scaled.__name__))
    yield from turns(g, device, put(scaled, __doc__="Now three words."), put(scaled, __name__="s"))


@state("reads")
def global_dict_item(wrap: Wrap, device: torch.device) -> Items:
    """An item of a global dict."""
    TABLE.clear()
    TABLE["k"] = 1.5
    yield from turns(wrap(lambda x: x * TABLE["k"]), device, item(TABLE, "k", 2.5))


@state("reads")
def frame_of_the_caller(wrap: Wrap, device: torch.device) -> Items:
    """A variable of the caller's frame, through ``sys._getframe``."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        frame = sys._getframe()
        while frame is not None and "state_program_scale" not in frame.f_locals:
            frame = frame.f_back  # type: ignore[assignment]
        return x * frame.f_locals["state_program_scale"]

    g = wrap(fn)

    def called(x: torch.Tensor, state_program_scale: float) -> torch.Tensor:
        return g(x)

    for scale in (1.5, 1.5, 1.5, 1.5, 2.5, 2.5):
        yield called(torch.ones(4, device=device), scale)


@state("reads")
def builtin_appears(wrap: Wrap, device: torch.device) -> Items:
    """A name that is nowhere becomes a builtin, then a global."""
    space: dict[str, Any] = {}
    exec("def fn(x):\n    try:\n        return x * nowhere\n    except NameError:\n        return x", space)
    try:
        yield from turns(wrap(space["fn"]), device, put(builtins, nowhere=3.0), item(space, "nowhere", 4.0))
    finally:
        del builtins.nowhere  # type: ignore[attr-defined]
