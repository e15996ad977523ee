"""Following: the Python code runs again, but what has been replayed returns its recorded results.

Views run for real, since they only make metadata; everything else is looked up. The host's reads are the
branches of the tree: while following, their values are known.
"""

from __future__ import annotations

from typing import Any

import torch

from ..base.errors import MisuseError
from ..hazards import rules
from ..hazards.rules import Rule
from . import events as ev
from .cursor import Cursor, Mode
from .edges import edge_of, result_along, value_of
from .events import Event, Value, assemble, results_of
from .ledger import NEW, Token
from .operands import number_of


class Follower(Cursor):
    """A cursor that can follow a path and go on from its end."""

    def _expect(self, event: Event) -> Event:
        events = self.node.events
        was = events[self.index] if self.index < len(events) else None
        if was is None or (was.operation, was.operands) != (event.operation, event.operands):
            expected = was.operation if was is not None else "the end"
            raise MisuseError(
                f"the callable took another way on the same inputs at {event.site}: {event.operation} where "
                f"{expected} was recorded. What it depends on is neither an argument nor state that rote can "
                "see; pass it in as an argument."
            )
        return was

    def _remembered(self, result: Any, tensors: list[torch.Tensor], event: Event) -> Any:
        """The recorded result of an operation that has been replayed already."""
        if result is None or isinstance(result, int):
            return None if result is None else tensors[result]
        if isinstance(result, Value):
            return result.value
        before, self._suspended = self._suspended, True  # host data is met above the dispatcher
        try:
            tensor = self._from_memory(result)
        finally:
            self._suspended = before
        self.ledger.result(tensor, event.operation, event.site, number_of(result))
        return tensor

    def _from_memory(self, token: Token) -> torch.Tensor:
        storage = self.ledger.storage(token.origin)
        if storage is None and token.origin[0] == NEW:
            storage = self._memory.get(token.origin[1])
        if storage is None:  # dead where the path ends: only its shape matters
            device = torch.device("cpu") if token.on_host else self._device
            return torch.empty_strided(token.shape, token.stride, dtype=token.dtype, device=device)
        tensor = torch.empty(0, dtype=token.dtype, device=storage.device)
        return tensor.set_(storage, token.offset, token.shape, token.stride)

    def _followed(
        self,
        event: Event,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: list[torch.Tensor],
    ) -> Any:
        was = self._expect(event)
        if was.kind in (ev.VIEW, ev.ANYWHERE):
            out = func(*args, **kwargs)
            for part, token in zip(results_of(out)[1], was.results, strict=True):
                if isinstance(token, Token):
                    self.ledger.result(part, event.operation, event.site, number_of(token))
        elif torch.Tag.inplace_view in func.tags:  # memory is as replayed, the tensor is not
            out = func(*args, **kwargs)
        else:
            parts = [self._remembered(result, tensors, event) for result in was.results]
            out = assemble(was.shape, parts)
        self.index += 1
        self._check_stop()
        return out

    def branch(self, event: Event, run: Any, keep: Any, *, shaped: bool, rule: Rule | None = None) -> Any:
        """The host reads a value or a shape: compare, read, and go along the edge.

        Args:
            event: The read.
            run: Reads now.
            keep: Makes a function that reads again at a replay.
            shaped: The edge is the shape of the result, not its value.
            rule: Why it cannot be captured, if that is not what it is for all such reads.
        """
        if self.mode is Mode.FOLLOW:
            return self._follow_branch(event, run, shaped)
        self._meet(event)
        recording = self.mode is Mode.RECORD
        if recording:
            assert self.tape is not None
            read = rules.LIST_READ if event.operation == "tolist" else rules.HOST_READ
            rule = rule or (rules.DYNAMIC_SHAPE if shaped else read)
            out = self.tape.branch(event, run, keep(), rule.code, lambda read: edge_of(read, shaped))
            self.generators.catch_up()
        else:
            out = run()
        value, parts = edge_of(out, shaped)
        if not self.blockers:
            self.node.complete = True
        self._enter(value)
        if shaped:
            tensors = [part for part in parts if isinstance(part, torch.Tensor)]
            for number, tensor in enumerate(tensors):
                self.ledger.result(tensor, event.operation, event.site)
                if recording and number >= len(self.node.arrivals):
                    self.node.arrivals.append(tensor.detach())
        self._after_branch(recording)
        return out

    def _after_branch(self, recording: bool) -> None:
        if not recording:
            self.mode = Mode.OBSERVE
            return
        self.mode = self._next_mode(self.node)
        if self.mode is Mode.RECORD:
            self._start_recording(self.node)
        else:
            self.node.arrivals = []

    def _follow_branch(self, event: Event, run: Any, shaped: bool) -> Any:
        self._expect(event)
        self.index += 1
        if self._follow:
            value = self._follow.pop(0)
            self._enter(value)
            tensors: list[torch.Tensor] = list(self.node.arrivals)
            for tensor in tensors:
                self.ledger.result(tensor, event.operation, event.site)
            out = result_along(value, tensors) if shaped else value_of(value)
            self._check_stop()
            return out
        return self._leave_follow(event, run, shaped)

    def _leave_follow(self, event: Event, run: Any, shaped: bool) -> Any:
        """The last branch of the path: its value is new here, so the call goes on from it."""
        out = run()
        value, parts = edge_of(out, shaped)
        self._enter(value)
        self.mode = self._next_mode(self.node)
        tensors = [part for part in parts if isinstance(part, torch.Tensor)]
        for tensor in tensors:
            self.ledger.result(tensor, event.operation, event.site)
        if self.mode is Mode.RECORD:
            if shaped:
                self.node.arrivals = [tensor.detach() for tensor in tensors]
            self._start_recording(self.node)
        return out
