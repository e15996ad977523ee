"""The hot path of a key that runs eagerly for good: one generated function that says so.

Such a key gains nothing from rote and should lose little. Arguments and surroundings are checked as in
:mod:`..replay.generated`, the call is counted with its reasons, and the caller runs the callable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arguments import Admission, Call, Source, tracing
from ..backends.protocol import Lock
from ..program import PLAINLY, Tally, in_bad_fork
from ..replay import Counts
from .specialization import Specialization
from .states import State


class PlainPath:
    """Answers the calls of one key with PLAINLY.

    Attributes:
        call: The function, of positional and keyword arguments: PLAINLY, or NOT_MINE for another key.
    """

    __slots__ = ("call",)

    def __init__(
        self, entry: Specialization, call: Call, lock: Lock, counts: Counts, tally: Tally, *, sorts: bool
    ) -> None:
        source = Source("plain")
        constant = source.constant
        source.refuse(f"{constant(tracing.get)}()")
        source.refuse(f"{constant(in_bad_fork)}()")
        admission = Admission(source, call, sorts=sorts)
        admission.write()
        admission.write_sharing()
        admission.write_switches()
        source.refuse(f"not {constant(lock.acquire)}(False)")
        source.line("try:")
        source.indent()
        source.refuse(f"{constant(entry.counts)}.dead")
        for counted in (counts, entry.counts):
            source.line(f"{constant(counted)}.calls += 1")
        source.line(f"{constant(tally.add)}({constant(entry.eager_reasons)})")
        source.line(f"return {constant(PLAINLY)}")
        source.indent(-1)
        source.line("finally:")
        source.line(f"    {constant(lock.release)}()")
        self.call: Callable[[tuple[Any, ...], dict[str, Any]], Any] = source.compile()

    @staticmethod
    def possible(entry: Specialization, call: Call) -> bool:
        """Whether the key runs eagerly, and its calls can be told by their arguments."""
        return entry.life.state is State.EAGER and Admission.possible(call)
