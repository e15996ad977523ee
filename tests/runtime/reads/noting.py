"""What a call reads, noted without a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rote.base.stack import on_a_fresh_stack as with_room
from rote.runtime.objects.marks import Content
from rote.runtime.reads.trace.noted import Noted
from rote.runtime.reads.watch import WATCH, Watch


def noted(function: Callable[..., Any], *args: Any, watch: Watch = WATCH) -> Noted:
    """One call, and what is noted of it."""
    trace = watch.begin(function, [(f"args[{at}]", each) for at, each in enumerate(args)])
    try:
        with_room(function, args, {})  # ours: who called it, as the test runner, is not looked at
    finally:
        found = watch.end(trace)
    return found


def value_of(read: Any) -> Any:
    """What was read, as it was."""
    return read.value.value if isinstance(read.value, Content) else read.value


def values(found: Noted) -> dict[str, Any]:
    """What was read, by name."""
    return {read.name: value_of(read) for read in found.reads}
