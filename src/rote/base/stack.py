"""Room on the interpreter's stack while a call is traced.

CPython keeps the frames of Python functions in chunks of 16 KB (since 3.11). One that does not fit into what
is left of a chunk gets another chunk, which is given back when it returns. A traced call goes into the
recorder and back at every operation. Where a chunk happens to end in between, which depends on nothing but
how deep the program is when it calls, each operation takes a chunk from the system and gives it back:
recording took two to three times as long at one depth in eight.

So the callable is called by a function that has a large frame: it is the first in a chunk of its own, with as
much room behind it as a hundred functions take. It is given back when the call is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SLOTS = 4096
"""Size of the frame in words. Chunks have room for it and for 1,000 more, in powers of two: 64 KB here."""


def on_a_fresh_stack(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function whose callees find room for their frames."""
    return function(*args, **kwargs)


on_a_fresh_stack.__code__ = on_a_fresh_stack.__code__.replace(co_stacksize=SLOTS)
