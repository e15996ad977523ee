"""``rote.check``: finds what cannot be captured of a callable, without a GPU."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

from ..hazards import Findings, told_apart
from .device import FakeStage
from .fake import import_ahead
from .isolation import ChildAnswer, TimeUp, isolated
from .session import CheckSession, Work

LIMIT_S = 60.0
"""Seconds that a check may take by default."""


def check(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Findings:
    """Find everything in a callable that a CUDA graph cannot hold, without a GPU.

    The callable runs twice on pretended device tensors, which compute nothing and need no memory, and goes on
    after each hazard, so that one check lists them all. It runs in a forked copy of the process, so the
    caller's objects do not change. If none of the callable's tensors lies on a GPU, all are taken to have
    been moved to one, as by ``.to("cuda")``.

    Args:
        fn: The callable: a function, a module, a bound method, a whole training step.
        args: Its positional arguments.
        kwargs: Its keyword arguments.

    Returns:
        The findings, each with its rule, line, column, call path, evidence and remedy.

    Raises:
        EnvironmentError_: This system cannot fork a process; or the callable runs a backward after one ran on
            a GPU in this process (autograd's threads do not survive a fork).
    """
    return check_work(lambda: (fn, args, kwargs), target=getattr(fn, "__qualname__", type(fn).__name__))


def check_work(build: Callable[[], Work], *, target: str = "", limit_s: float = LIMIT_S) -> Findings:
    """Check a callable that ``build`` makes in the forked process, with its arguments and keyword arguments.

    Args:
        build: Returns the three.
        target: The name of the callable in the findings.
        limit_s: Seconds that the check may take.

    Raises:
        MisuseError: ``build`` raised one.
        EnvironmentError_: See :func:`check`.
    """
    import_ahead()
    linecache.checkcache()  # findings quote lines as they are now
    answer = isolated(lambda: _made(build), limit_s)
    if answer.error is not None:
        raise answer.error
    found = answer.value if isinstance(answer.value, Findings) else Findings(incomplete=_why(answer, limit_s))
    heard, silenced = told_apart(found)
    return Findings(
        heard,
        target=target,
        incomplete=found.incomplete,
        operations=found.operations,
        printed=answer.printed,
        remarks=found.remarks,
        silenced=silenced,
    )


def _made(build: Callable[[], Work]) -> Findings:
    stage = FakeStage()
    try:
        with stage.building():
            work = build()
    except TimeUp as error:
        return Findings(incomplete=f"{error} while the target was being built")
    return CheckSession(stage, work).findings()


def _why(answer: ChildAnswer, limit_s: float) -> str:
    if answer.ended == "time":
        return f"the callable did not end within {limit_s:g} s"
    tail = answer.head.strip().splitlines()
    return f"{answer.ended}; it printed: {tail[-1]}" if tail else answer.ended
