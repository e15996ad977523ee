"""The hot path of a key that runs eagerly for good: one generated function that says so.

Such a key gains nothing from rote and is not to lose much by it either: arguments and surroundings are
checked as in :mod:`.hot`, the call is counted with its reasons, and the caller runs the callable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..backends.base import Lock
from ..signature.admission import Admission
from ..signature.key import Call
from ..signature.source import Source
from .compat import in_bad_fork
from .entry import Entry
from .hot import Counts
from .log import Tally
from .result import PLAINLY
from .run import tracing
from .states import State


class PlainPath:
    """Answers the calls of one key with PLAINLY.

    Args:
        entry: The key.
        call: One of its calls.
        lock: The wrapper's lock.
        counts: The wrapper's counts.
        tally: Counts reasons.
        sorts: The order of the keywords does not matter.

    Attributes:
        call: The function, of positional and keyword arguments: PLAINLY, or NOT_MINE for another key.
    """

    __slots__ = ("call",)

    def __init__(
        self, entry: Entry, call: Call, lock: Lock, counts: Counts, tally: Tally, *, sorts: bool
    ) -> None:
        source = Source("plain")
        constant = source.constant
        source.refuse(f"{constant(tracing.get)}()")
        source.refuse(f"{constant(in_bad_fork)}()")
        Admission(source, call, sorts=sorts).write()
        source.refuse(f"not {constant(lock.acquire)}(False)")
        source.line("try:")
        source.indent()
        source.refuse(f"{constant(entry)}.dead")
        for counted in (counts, entry):
            source.line(f"{constant(counted)}.calls += 1")
        source.line(f"{constant(tally.add)}({constant(entry.eager_reasons)})")
        source.line(f"return {constant(PLAINLY)}")
        source.indent(-1)
        source.line("finally:")
        source.line(f"    {constant(lock.release)}()")
        self.call: Callable[[tuple[Any, ...], dict[str, Any]], Any] = source.compile()

    @staticmethod
    def possible(entry: Entry, call: Call) -> bool:
        """Whether the key runs eagerly for good, and its calls can be told by what is given."""
        final = entry.life.final and entry.life.state is State.EAGER
        return final and not call.borrowed and Admission.possible(call)
