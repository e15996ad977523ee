"""The host reads a value or a shape: a branch of the tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ....hazards import rules
from ....hazards.rules import Rule
from ...program import Generators, Operation, Token, edge_of, result_along, value_of
from .cursor import Cursor, Mode
from .follower import Follower


class HostReads:
    """Takes a call along the edges of the tree."""

    def __init__(self, cursor: Cursor, follower: Follower, generators: Generators) -> None:
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
            operation: The read.
            run: Reads now.
            keep: Makes a function that reads again at a replay.
            shaped: The edge is the shape of the result, not its value.
            rule: Why it cannot be captured, if not for the usual reason.
        """
        cursor = self._cursor
        if cursor.mode is Mode.FOLLOW:
            return self._follow(operation, run, shaped=shaped)
        cursor.meet(operation)
        recording = cursor.mode is Mode.RECORD
        if recording:
            rule = rule or (rules.DYNAMIC_SHAPE if shaped else rules.HOST_READ)
            out = cursor.recorder.branch(
                cursor, operation, run, keep(), rule.code, lambda read: edge_of(read, shaped)
            )
            self._generators.catch_up()
        else:
            out = run()
        value, parts = edge_of(out, shaped)
        if not cursor.blockers:
            cursor.node.complete = True
        cursor.enter(value)
        node = cursor.node
        node.arrived = self._arrived(parts, operation)
        if not recording:
            cursor.mode = Mode.OBSERVE
            return out
        known = len(node.arrivals)
        node.arrivals += [tensor.detach() for tensor in parts[known:]]
        cursor.go_on()
        if cursor.mode is not Mode.RECORD:
            node.arrivals = []
        return out

    def _follow(self, operation: Operation, run: Callable[[], Any], *, shaped: bool) -> Any:
        cursor, path = self._cursor, self._follower.path
        cursor.expect(operation)
        cursor.index += 1
        if not path:
            return self._leave(operation, run, shaped=shaped)
        value = path.pop(0)
        cursor.enter(value)
        tensors = list(cursor.node.arrivals)
        for tensor in tensors:
            cursor.storages.result(tensor, operation.name, operation.site)
        out = result_along(value, tensors) if shaped else value_of(value)
        cursor.check_stop()
        return out

    def _leave(self, operation: Operation, run: Callable[[], Any], *, shaped: bool) -> Any:
        """Leave the path at its last branch, whose value is read now."""
        out = run()
        value, parts = edge_of(out, shaped)
        self._cursor.enter(value)
        self._cursor.node.arrived = self._arrived(parts, operation)
        self._cursor.go_on([tensor.detach() for tensor in parts] if shaped else None)
        return out

    def _arrived(self, parts: list[torch.Tensor], operation: Operation) -> tuple[Token, ...]:
        """The tokens of the tensors that a read has given."""
        result = self._cursor.storages.result
        return tuple([result(tensor, operation.name, operation.site) for tensor in parts])
