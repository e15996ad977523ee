"""Results that nothing has calculated yet: to time the call that gives one is to time nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any

from ..base.errors import MisuseError


def refuse_unread(result: Any) -> None:
    """Refuse what only runs once it is read.

    Args:
        result: Of a call that is to be measured.

    Raises:
        MisuseError: It is a generator or a coroutine.
    """
    if isinstance(result, (Generator, AsyncGenerator, Coroutine)):
        raise MisuseError(
            f"the callable returned a {type(result).__name__}, which has run nothing yet: measure a function "
            f"that reads it to its end, as lambda *args: list(fn(*args))"
        )
