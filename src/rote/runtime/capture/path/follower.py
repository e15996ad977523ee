"""Following: the Python code runs again, and replayed operations return their recorded results.

Only views run, since they make nothing but metadata. The values of the host's reads are known: they are the
branches of the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...program import NEW, Operation, Reference, Token, Value, assemble, results_of
from ...program import operations as ops
from ...recording import Node
from .cursor import Cursor, Mode, Stop


class Follower:
    """Finds the recorded results of a call that follows a path.

    Args:
        path: Values of the branches to follow, from the root. Behind the last one the call follows up to the
            next branch, whose value is then read.
        stop: Where following ends instead.

    Attributes:
        path: Values of the branches still to be followed.
        memory: The storages that the recording of the path holds, by number.
    """

    def __init__(self, cursor: Cursor, path: Sequence[Any], stop: Stop | None) -> None:
        self.path = list(path)
        self._cursor = cursor
        self.memory: dict[int, torch.UntypedStorage] = {}
        if cursor.mode is Mode.FOLLOW or stop is not None:
            self.memory = _held(cursor.node, path, stop)

    def remembered(self) -> frozenset[int]:
        """Numbers of the storages that the recording of the followed path holds."""
        return frozenset(self.memory)

    def run(
        self,
        operation: Operation,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: list[torch.Tensor],
    ) -> Any:
        """The results of an operation that has run."""
        cursor = self._cursor
        was = cursor.expect(operation)
        if was.kind in (ops.VIEWED, ops.ANYWHERE):
            out = func(*args, **kwargs)
            for part, token in zip(results_of(out)[1], was.results, strict=True):
                if isinstance(token, Token):
                    cursor.storages.result(part, operation.name, operation.site, token.made)
        elif torch.Tag.inplace_view in func.tags:  # memory is as replayed, the tensor is not
            out = func(*args, **kwargs)
        else:
            parts = [self.recall(result, tensors, operation) for result in was.results]
            out = assemble(was.structure, parts)
        cursor.passed()
        return out

    def recall(self, result: Any, tensors: list[torch.Tensor], operation: Operation) -> Any:
        """One recorded result of an operation that has run."""
        if result is None or isinstance(result, Reference):
            return None if result is None else tensors[result.operand]
        if isinstance(result, Value):
            return result.value
        # Quietly, since host data are met above the dispatcher.
        tensor = self._cursor.quietly(lambda: self._from_memory(result))
        self._cursor.storages.result(tensor, operation.name, operation.site, result.made)
        return tensor

    def _from_memory(self, token: Token) -> torch.Tensor:
        storage = self._cursor.storages.storage(token.origin)
        if storage is None and token.origin[0] == NEW:
            storage = self.memory.get(token.origin[1])
        if storage is None:  # dead where the path ends: only its shape matters
            device = torch.device("cpu") if token.on_host else self._cursor.device
            return torch.empty_strided(token.shape, token.stride, dtype=token.dtype, device=device)
        tensor = torch.empty(0, dtype=token.dtype, device=storage.device)
        return tensor.set_(storage, token.offset, token.shape, token.stride)


def _held(root: Node, path: Sequence[Any], stop: Stop | None) -> dict[int, torch.UntypedStorage]:
    """The storages that the recording of a path holds, by number."""
    node, held = root, dict(root.held)
    for value in path:
        node = node.edges[value]
        held.update(node.held)
    if stop is not None:
        held.update(stop.node.held)
    return held
