"""The hot paths of a wrapper: which there are, and when they are thrown away."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..hazards.rules import Reason
from ..runtime.arguments import NOT_MINE, Call, tracing
from ..runtime.backends.protocol import Lock
from ..runtime.engine import PlainPath, Specialization
from ..runtime.program import PLAINLY, Result, Tally
from ..runtime.pytorch import function_modes
from ..runtime.recording import Recording
from ..runtime.replay import Counts, HotPath

if TYPE_CHECKING:
    from .graphed import Graphed

MOST = 4
"""Hot paths that are tried one by one: two shapes or two modes in turn, for example."""

MANY = 512
"""Hot paths that are found by the shapes and plain values of the arguments, where there are more."""

_PLAIN = frozenset({int, float, bool, str})
Shapes = tuple[Any, ...]
Given = tuple[tuple[Any, ...], dict[str, Any]]


class Paths:
    """Kept by the general path, which adds one when it has replayed, and clears them when it did more.

    Args:
        graphed: The wrapper.
        lock: Its lock.
        counts: Its counts.
        sorts: The order of keywords does not matter to its callable.

    Attributes:
        newest: What is tried first: a path, a rest, or nobody.
        known: The hot paths that are tried one by one, the newest first.
        others: Where there are more, paths by :func:`shapes_of` the arguments: a server that meets a hundred
            batch sizes. They are looked for first, since to try four in vain takes longer than one replay.
        finish: Takes the result of a call that was more than a replay.
    """

    def __init__(self, graphed: Graphed, lock: Lock, counts: Counts, *, sorts: bool) -> None:
        self.newest: HotPath | PlainPath | Rest | Nobody = NOBODY
        self._rest: Rest | Nobody = NOBODY
        self.known: tuple[HotPath | PlainPath, ...] = ()
        self.others: dict[Shapes, HotPath | PlainPath] = {}
        self._graphed = weakref.ref(graphed)
        self._lock = lock
        self._counts = counts
        self._sorts = sorts
        self.finish = _Finish(self._graphed)

    def learn(self, entry: Specialization, variant: Recording, call: Call, given: Given) -> None:
        """A call was replayed: the next one like it need not come this way.

        Args:
            entry: The key.
            variant: The recording.
            call: The arguments.
            given: As they were given.
        """
        path = entry.generate(variant, call, self._lock, self._counts, self.finish, sorts=self._sorts)
        if path is not None:
            self._keep(path, given)

    def learn_plain(self, entry: Specialization, call: Call, tally: Tally, given: Given) -> None:
        """A key runs eagerly: if it does so for good, the next call need not come this way."""
        if PlainPath.possible(entry, call):
            path = PlainPath(entry, call, self._lock, self._counts, tally, sorts=self._sorts)
            self._keep(path, given)

    def rest(self, calls: int, reasons: list[Reason]) -> None:
        """Leave calls alone that no hot path answers, so many of them: none is to be traced."""
        self._rest = Rest(calls, self._counts, reasons)
        if self.newest is NOBODY and not self.others:
            self.newest = self._rest

    def rested(self) -> tuple[list[Reason], int]:
        """Why calls were left alone, and how many since this was asked last."""
        rest = self._rest
        return (rest.reasons, rest.tell()) if type(rest) is Rest else ([], 0)

    def end_rest(self) -> None:
        """Look at calls again."""
        if self.newest is self._rest:
            self.newest = NOBODY
        self._rest = NOBODY

    def _keep(self, path: HotPath | PlainPath, given: Given) -> None:
        others = [known for known in self.known if known is not path]
        self.known = (path, *others)[:MOST]
        if len(others) < MOST and not self.others:
            self.newest = path
            return
        self.newest = NOBODY
        if len(self.others) >= MANY:
            self.others.clear()
        args, kwargs = given
        self.others[shapes_of(args, kwargs)] = path

    def answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a path says that is not the newest, or NOT_MINE.

        The one that is found by the shapes is asked first, but not where somebody would see that they are
        looked at.
        """
        paths = self.known[1:] if self.known and self.newest is self.known[0] else self.known
        if self.others and not tracing.get() and not function_modes():
            path = self.others.get(shapes_of(args, kwargs))
            paths = paths if path is None else (path, *paths)
        for path in paths:
            value = path.call(args, kwargs)
            if value is not NOT_MINE:
                return value
        return self._rest.call(args, kwargs)

    def clear(self) -> None:
        """The general path did more than replay."""
        self.newest, self._rest, self.known = NOBODY, NOBODY, ()
        self.others.clear()


class Rest:
    """A path that leaves calls alone, so many of them.

    Args:
        calls: How many.
        counts: The wrapper's counts.
        reasons: Why.

    Attributes:
        reasons: Why.
    """

    __slots__ = ("_counts", "_left", "_untold", "reasons")

    def __init__(self, calls: int, counts: Counts, reasons: list[Reason]) -> None:
        self._left = calls
        self._untold = 0
        self._counts = counts
        self.reasons = reasons

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """PLAINLY, or NOT_MINE once it is over or where somebody traces: such a call is not counted."""
        del args, kwargs
        if self._left <= 0 or tracing.get():
            return NOT_MINE
        self._left -= 1
        self._untold += 1
        self._counts.calls += 1
        return PLAINLY

    def tell(self) -> int:
        """Calls that were left alone since this was asked last."""
        untold, self._untold = self._untold, 0
        return untold


class Nobody:
    """A path that answers nothing."""

    __slots__ = ()

    @staticmethod
    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """NOT_MINE."""
        del args, kwargs
        return NOT_MINE


NOBODY = Nobody()


def shapes_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Shapes:
    """What tells calls apart well enough to guess which path is theirs: the path itself looks at all.

    Shapes of tensors and plain values, such as the number of a step.
    """
    given = (*args, *kwargs.values()) if kwargs else args
    return tuple(
        [
            value.shape if type(value) is Tensor else value if type(value) in _PLAIN else None
            for value in given
        ]
    )


class _Finish:
    """Gives the result of a call that was more than a replay to the wrapper, without keeping that alive."""

    def __init__(self, graphed: weakref.ref[Graphed]) -> None:
        self._graphed = graphed

    def __call__(self, entry: Specialization, result: Result) -> Any:
        graphed = self._graphed()
        return graphed.finish(entry, result) if graphed is not None else result.value
