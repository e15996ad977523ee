"""The host reads a value or a shape: a branch of the tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch

from ....base import Lines, bits_of, running_lines
from ....hazards import rules
from ....hazards.rules import Rule
from ...numbers import NumberRead, TrackedNumbers, copied, is_array
from ...program import NUMBER, Generators, Operation, edge_of, result_along, value_of
from ...recording import NumberBranch
from .cursor import Cursor, Mode
from .follower import Follower
from .resized import ResizedStorages

_READ = frozenset({"aten::_local_scalar_dense", "tolist", "numpy"})
"""The operations that read a number, a list or an array of them."""
MOST_LISTED = 256
"""Numbers of a nested list that are followed; a replay computes with each of them."""


class _Unequal:
    """Carries a value through a comparison without taking part in it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unequal)

    def __hash__(self) -> int:
        return 0


class ReadList(tuple[Any, ...]):
    """A nested list as a hashable value."""

    def __new__(cls, value: Any) -> ReadList:
        """The form of a list, or of what lies in one."""
        if isinstance(value, list):
            return super().__new__(cls, ("list", *(ReadList(item) for item in value)))
        shown = bits_of(value) if isinstance(value, (float, complex)) else repr(value)
        return super().__new__(cls, ("value", type(value).__name__, shown, _Unequal(value)))

    def kinds(self) -> Iterator[str]:
        """The names of the types of what lies in it."""
        if self[0] == "list":
            for item in self[1:]:
                yield from item.kinds()
        else:
            yield self[1]

    def thaw(self) -> Any:
        """The nested list again."""
        return [item.thaw() for item in self[1:]] if self[0] == "list" else self[3].value


@dataclass(frozen=True)
class ReadArray:
    """The numbers of an array as a hashable value, and a copy of it."""

    shape: tuple[int, ...]
    dtype: str
    content: bytes
    array: Any = field(compare=False, repr=False)

    @classmethod
    def of(cls, array: Any) -> ReadArray:
        """Those of an array of numpy's, in the order of its indices."""
        return cls(array.shape, array.dtype.str, array.tobytes(), copied(array))

    def __repr__(self) -> str:
        return f"an array of {self.dtype} {self.shape}"


class HostReads:
    """Takes a call along the edges of the tree."""

    def __init__(
        self,
        cursor: Cursor,
        follower: Follower,
        generators: Generators,
        resized: ResizedStorages,
        numbers: TrackedNumbers | None,
    ) -> None:
        self.lines: dict[Lines, None] = {}  # that read numbers
        self._numbers = numbers
        self._resized = resized
        self._cursor = cursor
        self._follower = follower
        self._generators = generators

    def branch(
        self,
        operation: Operation,
        run: Callable[[], Any],
        keep: Callable[[], Callable[[], Any]],
        *,
        shaped: bool,
        rule: Rule | None,
    ) -> Any:
        """Compare a read, read, and go along the edge.

        Args:
            keep: Makes a function that reads again at a replay.
            shaped: The edge is the shape of the result, not its value.
            rule: Why it cannot be captured, if not for the usual reason.
        """
        cursor = self._cursor
        self._resized.read()
        if self._numbers is not None:
            self._numbers.branch()
        if cursor.mode is Mode.FOLLOW:
            return self._follow(operation, run, shaped=shaped)
        cursor.meet(operation)
        recording = cursor.mode is Mode.RECORD
        if recording:
            rule = rule or (rules.DYNAMIC_SHAPE if shaped else rules.HOST_READ)
            again = keep()
            out = cursor.recorder.branch(cursor, operation, run, rule.code, lambda: edge_of(again(), shaped))
            self._generators.catch_up()
            value, parts = self._edge(operation, out, shaped)
            if value[0] == NUMBER and self._numbers is not None:
                order = value[1]
                way = self._numbers.reader(NumberRead(cursor.way, order, value[2]))
                read = again if type(out) in (int, float) else lambda: numbers_of(again())
                cursor.recorder.count(cursor.node, NumberBranch(read, way, order))
        else:
            out = run()
            value, parts = self._edge(operation, out, shaped)
        if not cursor.blockers:
            cursor.node.complete = True
        self._enter(value, out)
        node = cursor.node
        self._arrive(parts, operation)
        if not recording:
            cursor.mode = Mode.OBSERVE
            return out
        known = len(node.arrivals)
        node.arrivals += [tensor.detach() for tensor in parts[known:]]
        cursor.go_on()
        if cursor.mode is not Mode.RECORD:
            cursor.stray()
        return out

    def _edge(self, operation: Operation, out: Any, shaped: bool) -> tuple[Any, list[torch.Tensor]]:
        """The edge along which a read leads: of a number that changes it is the same one each time."""
        value = numbers_of(out) if operation.name in _READ else None
        if value is not None:
            self.lines[lines := running_lines()] = None
            numbers = self._numbers
            read = (
                numbers.reads(operation.name, lines, value, self._cursor.way) if numbers is not None else None
            )
            if read is not None:
                return (NUMBER, read.order, read.way), []
        return edge_of(out, shaped)

    def _follow(self, operation: Operation, run: Callable[[], Any], *, shaped: bool) -> Any:
        cursor, path = self._cursor, self._follower.path
        cursor.expect(operation)
        cursor.index += 1
        if not path:
            return self._leave(operation, run, shaped=shaped)
        value, way = path.pop(0), cursor.way
        self._enter(value)
        tensors = list(cursor.node.arrivals)
        self._arrive(tensors, operation)
        if value[0] == NUMBER and self._numbers is not None:
            read = NumberRead(way, value[1], value[2])
            again = self._numbers.read_again(operation.name, running_lines(), read)
            out = ReadList(again) if type(again) is list else again
        else:
            out = result_along(value, tensors) if shaped else value_of(value)
        cursor.check_stop()
        if cursor.mode is Mode.OBSERVE:
            cursor.node.arrivals = []
        return out

    def _leave(self, operation: Operation, run: Callable[[], Any], *, shaped: bool) -> Any:
        """Leave the path at its last branch, whose value is read now."""
        out = run()
        value, parts = self._edge(operation, out, shaped)
        self._enter(value, out)
        self._arrive(parts, operation)
        self._cursor.go_on([tensor.detach() for tensor in parts] if shaped else None)
        return out

    def _enter(self, value: Any, out: Any = None) -> None:
        """Go along an edge; of a number's own value there may be as many as there are numbers."""
        edges = self._cursor.node.edges
        self._cursor.enter(value, out)
        if self._numbers is not None:
            few = value[0] in (NUMBER, bool.__name__)
            self._numbers.go_on(alone=few and len(edges) == 1)

    def _arrive(self, parts: list[torch.Tensor], operation: Operation) -> None:
        """A read has given tensors."""
        for tensor in parts:
            self._cursor.storages.result(tensor, operation.name, operation.site)


def numbers_of(out: Any) -> Any:
    """What was read: a number, a nested list of a few, or an array; None where it is something else."""
    if type(out) is ReadArray:
        return out.array if is_array(out.array) else None
    if type(out) is not ReadList:
        return out if type(out) in (int, float) else None
    kinds = [*islice(out.kinds(), MOST_LISTED + 1)] if out[0] == "list" else []
    return out.thaw() if 0 < len(kinds) <= MOST_LISTED and {*kinds} <= {"int", "float"} else None
