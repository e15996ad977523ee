"""Code that runs another function in the place of its own, which is chosen when a frame begins.

``torch.compile`` runs other code for a frame than the function has. A traced call has to run that code, and
to note what it reads. So a function that Dynamo may have compiled gets code with its own parameters and
closure, which asks what to run and calls it; and a wrapper that switches Dynamo on gets code that says so
instead. The code is written as text, since it has to have the parameters by their names.

What does not work: to let Dynamo run the frame itself. Its guards look at the modes in force, which a traced
call has more of, and nothing that it runs could be noted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from keyword import iskeyword
from types import CodeType
from typing import Any

from .instrument import OpaqueError

_SUSPENDED = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_CHOOSE, _LEAVE = "rote chooses", "rote leaves"
"""Constants of the text that stand for functions."""
_OURS = "__rote_chooses__"
"""A variable that no parameter has the name of."""


def choosing(code: CodeType, choose: Callable[[dict[str, Any]], Callable[..., Any]]) -> CodeType:
    """Code with the parameters of ``code`` that calls what ``choose`` gives for its variables.

    Raises:
        OpaqueError: A frame with this code can be left and entered again, or has a parameter without a name.
    """
    if code.co_flags & _SUSPENDED:
        raise OpaqueError("a generator or coroutine under torch.compile")
    count = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[:count]
    more = [*code.co_varnames[count:]]
    around = [more.pop(0)] if code.co_flags & CO_VARARGS else []
    named = [more.pop(0)] if code.co_flags & CO_VARKEYWORDS else []
    _check([*names, *around, *named, *code.co_freevars])
    positional, by_name = names[: code.co_argcount], names[code.co_argcount :]
    parameters = [*positional]
    if code.co_posonlyargcount:
        parameters.insert(code.co_posonlyargcount, "/")
    parameters += [f"*{around[0]}"] if around else ["*"] if by_name else []
    parameters += [*by_name, *(f"**{each}" for each in named)]
    given = [
        *positional,
        *(f"*{each}" for each in around),
        *(f"{each}={each}" for each in by_name),
        *(f"**{each}" for each in named),
    ]
    variables = ", ".join(f"{each!r}: {each}" for each in (*names, *around, *named))
    body = [f"{_OURS} = {_CHOOSE!r}", f"return {_OURS}({{{variables}}})({', '.join(given)})"]
    return _written(code, ", ".join(parameters), body, {_CHOOSE: choose})


def switching(
    code: CodeType, enter: Callable[[Any], Callable[..., Any]], leave: Callable[[Any], None]
) -> CodeType:
    """Code of a wrapper around ``fn`` that calls what ``enter`` gives for it, and ``leave`` afterwards."""
    body = [
        f"enter = {_CHOOSE!r}",
        f"leave = {_LEAVE!r}",
        "run = enter(fn)",
        "try:",
        "    return run(*args, **kwargs)",
        "finally:",
        "    leave(run)",
    ]
    return _written(code, "*args, **kwargs", body, {_CHOOSE: enter, _LEAVE: leave})


def silent(code: CodeType) -> CodeType:
    """Code that does nothing."""
    return _written(code, "*args, **kwargs", ["return None"], {})


def _check(names: Sequence[str]) -> None:
    for name in names:
        if not name.isidentifier() or iskeyword(name):
            raise OpaqueError(f"a variable {name!r} under torch.compile")


def _written(code: CodeType, parameters: str, body: list[str], constants: dict[str, Any]) -> CodeType:
    """The code of a function with these parameters and lines, and with the closure of ``code``."""
    free = ", ".join(code.co_freevars)
    # Behind the return, so that nothing is read: a variable may be unset.
    lines = [*body, *([f"({free},)"] if free else [])]
    text = f"def around({free}):\n def inner({parameters}):\n  " + "\n  ".join(lines) + "\n return inner"
    found: dict[str, Any] = {}
    exec(compile(text, code.co_filename, "exec", dont_inherit=True), found)
    around: CodeType = found["around"].__code__
    inner = next(each for each in around.co_consts if isinstance(each, CodeType))
    return inner.replace(
        co_consts=tuple([constants.get(one, one) if type(one) is str else one for one in inner.co_consts]),
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_firstlineno=code.co_firstlineno,
    )
