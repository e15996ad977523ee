"""Room on the interpreter's stack while a call is traced.

CPython keeps the frames of Python functions in chunks of 16 KB (since 3.11). A frame that does not fit into
the rest of a chunk gets another chunk, which is freed when it returns. A traced call goes into the recorder
and back at every operation. Where a chunk happens to end in between, which depends only on the depth of the
program's call, each operation takes a chunk from the system and frees it: recording took two to three times
as long at one depth in eight.

So a function with a large frame calls the callable: it is the first in a chunk of its own, with room behind
it for a hundred functions. The chunk is freed when the call is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SLOTS = 4096
"""Words of the frame. Chunks are powers of two with room for it and 1,000 more: 64 KB here."""


def on_a_fresh_stack(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function with room for the frames of its callees."""
    return function(*args, **kwargs)


on_a_fresh_stack.__code__ = on_a_fresh_stack.__code__.replace(co_stacksize=SLOTS)
