"""The hot paths of a wrapper: which there are, and when they are dropped."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..hazards.rules import Reason
from ..runtime.arguments import NOT_MINE, Call, Shapes, shapes_of, tracing
from ..runtime.backends.protocol import Lock
from ..runtime.engine import PlainPath, Specialization
from ..runtime.program import PLAINLY, Result, Tally
from ..runtime.pytorch import function_modes
from ..runtime.recording import Recording
from ..runtime.replay import Counts, HotPath

if TYPE_CHECKING:
    from .graphed import Graphed

MOST = 4
"""Hot paths that are tried one by one: for two shapes or two modes in turn, for example."""

MANY = 512
"""Further hot paths, found by the shapes and plain values of the arguments."""

SPACE = 16
"""Calls that a plain path leaves alone at least behind one that it answers, where hardly any key replays."""

JUDGED = 32
"""Calls that a plain path answers until it is known how many other keys answer."""

FEW_REPLAYS = 0.1
"""Share of replays below which other calls are left alone: to look for them costs the others more."""

EXPECTED_LOOKS = 2
"""Looks at calls of a key that has a recording and no hot path, while other calls are left alone."""


class Rest:
    """A path that leaves so many calls alone, for some reasons.

    Attributes:
        left: Calls that are still left alone.
    """

    __slots__ = ("_begun", "_counts", "left", "reasons")

    def __init__(self, calls: int, counts: Counts, reasons: list[Reason]) -> None:
        self.left = self._begun = calls
        self._counts = counts
        self.reasons = reasons

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """PLAINLY; NOT_MINE after its last call, or for a call that is none to be left alone.

        That is one that somebody traces, which is not counted, and one that a recording would answer which is
        to be measured: else that recording would answer none until the rest is over. The calls are counted
        when it is told of them: to do less here is what a rest is for.
        """
        if self.left <= 0 or self._counts.due or tracing.get():
            return NOT_MINE
        self.left -= 1
        return PLAINLY

    def begin(self, calls: int) -> None:
        """Leave so many calls alone, after those before were all left alone."""
        self._begun += calls - self.left
        self.left = calls

    def tell(self) -> int:
        """The calls that were left alone since the last question; they are counted now."""
        untold, self._begun = self._begun - self.left, self.left
        self._counts.calls += untold
        return untold


class SpacedPath:
    """A plain path that answers one call, and leaves the next ones alone, whichever they are.

    It takes longer to find out whether a call has the key of the path than to count it. That has to be known
    where another key may replay, and else now and then. While tracing costs nothing yet, the next call may be
    another one, to be traced: so the first calls leave none alone then. Where other keys replay, none is left
    alone until they have answered less than a share of ``FEW_REPLAYS`` of what was looked at.
    """

    __slots__ = (
        "_answers",
        "_counts",
        "_first",
        "_length",
        "_path",
        "_pays",
        "_replayed",
        "_space",
        "_spaces",
    )

    def __init__(
        self, path: PlainPath, space: Rest, counts: Counts, *, first: int, spaces: bool, pays: int
    ) -> None:
        self._path = path
        self._pays = pays
        self._length = max(SPACE, pays) if spaces else SPACE
        self._space = space
        self._counts = counts
        self._first = first
        self._spaces = spaces
        self._answers, self._replayed = 0, counts.replayed

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """PLAINLY; NOT_MINE for a call of another key."""
        value = self._space.call(args, kwargs)
        if value is PLAINLY:
            return value
        value = self._path.call(args, kwargs)
        if value is PLAINLY:
            if self._first:
                self._first -= 1
                return value
            self._answers += 1
            if self._answers == JUDGED:
                self._judge()
            if self._spaces:
                self._space.begin(self._length)
        return value

    def _judge(self) -> None:
        """Find out from the last calls that were looked at whether others are worth a look."""
        replayed = self._counts.replayed - self._replayed
        self._spaces = replayed < FEW_REPLAYS * (replayed + self._answers)
        self._length = SPACE if replayed else max(SPACE, self._pays)
        self._answers, self._replayed = 0, self._counts.replayed


Path = HotPath | PlainPath | SpacedPath

NOBODY = Rest(0, Counts(), [])
"""A path that answers nothing."""


class Paths:
    """The general path adds a hot path when it has replayed, and clears them when it did more.

    Attributes:
        plain: What is called where nothing is replayed.
        newest: The path that is tried first.
        alone: That path, where it leaves calls alone without a look: the wrapper does that itself.
        left: Calls that are made until the wrapper asks whether it is the slower way.
        known: The hot paths that are tried one by one, the newest first.
        others: Further paths by :func:`shapes_of` the arguments, as of a server that meets a hundred batch
            sizes. They are looked for first: four vain attempts take longer than one replay.
        finish: Takes the result of a call that was more than a replay.
    """

    def __init__(
        self, graphed: Graphed, function: Callable[..., Any], lock: Lock, counts: Counts, *, sorts: bool
    ) -> None:
        self.plain = self._function = self._with_parts = function
        self.newest: Path | Rest = NOBODY
        self.alone = NOBODY
        self.left = sys.maxsize
        self._pause: Rest | None = None
        self._paused: Path | Rest = NOBODY  # what is tried first behind the pause
        self._rest = NOBODY
        self._behind: Path | Rest = NOBODY  # tried first again when the rest is over
        self.known: tuple[Path, ...] = ()
        self.others: dict[Shapes, Path] = {}
        self._expected: dict[Shapes, int] = {}  # calls worth a look, by how many looks are left
        self._space: Rest | None = None  # behind a call that a spaced path has answered
        self._lock = lock
        self._counts = counts
        self._sorts = sorts
        self.finish = _finish(weakref.ref(graphed))

    def learn(self, entry: Specialization, variant: Recording, call: Call, shapes: Shapes | None) -> None:
        """A call was replayed: the next one like it need not come this way."""
        path = entry.generate(variant, call, self._lock, self._counts, self.finish, sorts=self._sorts)
        if path is not None:
            self._keep(path, shapes)
        self._expect(shapes, 0)

    def expect(self, shapes: Shapes | None) -> None:
        """A call like this one was recorded, or observed: the next one is not left alone."""
        self._expect(shapes, EXPECTED_LOOKS)

    def _expect(self, shapes: Shapes | None, looks: int) -> None:
        if shapes is not None and (shapes in self._expected or len(self._expected) < MANY):
            self._expected[shapes] = looks

    @property
    def expects(self) -> bool:
        """Whether there are calls that are worth a look."""
        return any(self._expected.values())

    def forget_expected(self) -> None:
        """No call is worth more than another."""
        self._expected.clear()

    def learn_plain(
        self,
        entry: Specialization,
        call: Call,
        tally: Tally,
        shapes: Shapes | None,
        *,
        first: int | None,
        pays: int,
    ) -> None:
        """A key runs eagerly: if it does so for good, the next call need not come this way.

        Args:
            tally: Counts its reasons.
            shapes: What :meth:`look` has said of its arguments.
            first: Calls of the key that leave none alone. None where a key replays: else it does little harm
                if calls of others are left alone.
            pays: Calls that pay for one that a path answers.
        """
        if not PlainPath.possible(entry, call):
            return
        path = PlainPath(entry, call, self._lock, self._counts, tally, sorts=self._sorts)
        self._space = self._space or Rest(0, self._counts, entry.eager_reasons)
        replays = first is None
        spaced = SpacedPath(
            path, self._space, self._counts,
            first=first or 0, spaces=not replays, pays=pays,
        )  # fmt: skip
        self._keep(spaced, shapes)
        if not replays:
            self._try_first(self._space)

    def rest(self, calls: int, reasons: list[Reason], *, covers: bool = False) -> None:
        """Leave so many calls alone that no hot path answers; with ``covers`` none is asked."""
        self._rest = Rest(calls, self._counts, reasons)
        if covers or (self.newest is NOBODY and not self.others and not self._expected):
            self._behind = self.newest
            self._try_first(self._rest)

    def rested(self) -> list[tuple[list[Reason], int]]:
        """Why calls were left alone, and how many since the last question."""
        rests = (self._rest, self._space, self._pause)
        return [(each.reasons, calls) for each in rests if each is not None and (calls := each.tell())]

    def meet_parts(self, function: Callable[..., Any]) -> None:
        """Calls that run plainly are made by this function: it meets the parts of the callable, or none."""
        self._with_parts = function
        if self._pause is None:
            self.plain = function

    def pause(self, calls: int, reasons: list[Reason]) -> None:
        """Nothing is asked in so many calls, nor are parts met; what was there is there behind them."""
        self._paused, self._pause = self.newest, Rest(calls, self._counts, reasons)
        self.newest = self.alone = self._pause
        self.plain = self._function

    def resume(self) -> None:
        """The calls of the pause are made."""
        if self._pause is not None:
            self._pause, self.plain = None, self._with_parts
            self._try_first(self._paused)

    def end_rest(self) -> None:
        """Look at calls again."""
        self._counts.due = False
        if self.newest is self._rest:
            self._try_first(self._behind)
        self._rest.tell()  # calls of other threads, since the last question
        self._rest = NOBODY

    def look(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Shapes | None:
        """The shapes of arguments before a call changes them; None where somebody would see that."""
        return None if tracing.get() or function_modes() else shapes_of(args, kwargs)

    def _keep(self, path: Path, shapes: Shapes | None) -> None:
        others = [known for known in self.known if known is not path]
        self.known = (path, *others)[:MOST]
        if len(others) < MOST and not self.others:
            self._try_first(path)
            return
        self._try_first(NOBODY)
        if len(self.others) >= MANY:
            self.others.clear()
        if shapes is not None:
            self.others[shapes] = path

    def _try_first(self, path: Path | Rest) -> None:
        if self._pause is not None:  # on another thread
            self._paused = path
            return
        self.newest = path
        self.alone = path if type(path) is Rest else NOBODY

    def answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The answer of a path that is not the newest, or NOT_MINE; the path for these shapes comes first."""
        paths = self.known[1:] if self.known and self.newest is self.known[0] else self.known
        asks = self.others or (self._expected and self._rest is not NOBODY)
        if asks and (shapes := self.look(args, kwargs)) is not None:
            looks = self._expected.get(shapes, 0)
            if looks:
                self._expected[shapes] = looks - 1
                return NOT_MINE
            path = self.others.get(shapes)
            # Where none is known by these shapes, all are of others but for one that was learned just now.
            paths = paths[:1] if path is None else (path, *paths)
        for path in paths:
            value = path.call(args, kwargs)
            if value is not NOT_MINE:
                if value is PLAINLY and self._space is not None and self._space.left > 0:
                    self._try_first(self._space)  # the next calls are left alone, whichever they are
                return value
        return self._rest.call(args, kwargs)

    def clear(self) -> None:
        """The general path did more than replay: what had a hot path is worth a look."""
        self._expected = dict.fromkeys(self._expected, EXPECTED_LOOKS)
        self._rest.tell()
        self._try_first(NOBODY)
        self._behind, self._rest, self.known = NOBODY, NOBODY, ()
        self.others.clear()


def _finish(graphed: weakref.ref[Graphed]) -> Callable[[Specialization, Result], Any]:
    """Gives the result of a call that was more than a replay to the wrapper, without keeping that alive."""

    def finish(entry: Specialization, result: Result) -> Any:
        wrapper = graphed()
        return wrapper.finish(entry, result) if wrapper is not None else result.value

    return finish
