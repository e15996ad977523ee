"""A dispatch mode that notes which line of the user asks for which operation."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import torch
from torch.profiler import record_function
from torch.utils._pytree import tree_iter

from ...base import NOWHERE, Site, user_site
from ...runtime.operators import composite_call
from ...runtime.pytorch import DispatchMode, resolve_lazily

MARK = "rote::operation "
"""Begins the name of an operation's range in the trace; the operation's number follows."""

_UNSEEN = ("aten::detach", "profiler::")
"""Not counted: while a mode is active, autograd makes aliases of its own; a profiler's ranges are no work."""


@dataclass(frozen=True)
class AskedOperation:
    """One operation of a call, as ``aten::add``, with the user's line.

    Attributes:
        waited_us: Host time since the operation before it (or the beginning of the call), without the mode's.
        took_us: Host time of the operation itself.
        view: It only looks at memory of an operand in another way.
    """

    name: str
    site: Site
    waited_us: float
    took_us: float
    view: bool = False


class AsWritten:
    """Compiled functions run as written, from the first :meth:`begin` to the last :meth:`end`.

    The stance is that of all threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._stance: Any = None

    def begin(self) -> bool:
        """Begin; False where nothing can be compiled."""
        if "torch._dynamo" not in sys.modules:
            return False
        with self._lock:
            if not self._users:
                self._stance = torch.compiler.set_stance("force_eager")
            self._users += 1
        return True

    def end(self) -> None:
        """Take one :meth:`begin` back."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._stance.__exit__(None, None, None)
                self._stance = None


_AS_WRITTEN = AsWritten()
"""One for the process, as the stance is."""


class AskingMode(DispatchMode):
    """Notes every operation below autograd, in order, and marks its range in a trace.

    ``outside`` is the line of operations that only PyTorch's own code is around; None stands for the line of
    the caller. ``devices`` are the GPUs of all tensors. ``rest_us`` is host time from the last operation to
    the end of the mode.
    """

    def __init__(self, outside: Site | None = None) -> None:
        super().__init__()
        self._outside = outside
        self._until: FrameType | None = None
        self.asked: list[AskedOperation] = []
        self.devices: set[torch.device] = set()
        self.rest_us = 0.0
        self._thread = threading.get_ident()
        self._left = 0
        self._stances: list[bool] = []

    def __enter__(self) -> AskingMode:
        """Enter the mode. Compiled functions run as written: a region of theirs has no operations."""
        self._stances.append(_AS_WRITTEN.begin())
        super().__enter__()
        self._until = sys._getframe(1) if self._outside is not None else None
        self._left = time.perf_counter_ns()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.rest_us = (time.perf_counter_ns() - self._left) / 1e3
        self._until = None
        super().__exit__(*exception)
        if self._stances.pop():
            _AS_WRITTEN.end()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        entered = time.perf_counter_ns()
        resolve_lazily()
        plain = isinstance(func, torch._ops.OpOverload)  # others take Python functions, as torch.cond
        parts = composite_call(func) if plain and torch.is_inference_mode_enabled() else None
        if parts is not None:
            with self._reentered():  # they come back here one by one, as they do outside of inference mode
                return parts(*args, **(kwargs or {}))
        name = func.name().partition(".")[0] if plain else str(func)
        if name.startswith(_UNSEEN):
            return func(*args, **(kwargs or {}))
        waited = (entered - self._left) / 1e3
        site = self._site()
        number = len(self.asked)
        asked = AskedOperation(name, site, waited, 0.0, view=plain and _is_view(func))
        self.asked.append(asked)  # autograd's threads may come in between
        with record_function(f"{MARK}{number}"):
            began = time.perf_counter_ns()
            result = func(*args, **(kwargs or {}))
            took = (time.perf_counter_ns() - began) / 1e3
        self.asked[number] = replace(asked, took_us=took)
        self.note_devices((args, kwargs, result))
        self._left = time.perf_counter_ns()
        return result

    def note_devices(self, values: Any) -> None:
        """Note the GPUs of tensors among the values."""
        for leaf in tree_iter(values):
            if isinstance(leaf, torch.Tensor) and leaf.device.type == "cuda":
                self.devices.add(leaf.device)

    @contextmanager
    def _reentered(self) -> Generator[None]:
        """The mode inside itself; its clock runs on."""
        super().__enter__()
        try:
            yield
        finally:
            super().__exit__(None, None, None)

    def take_least(self, others: list[AskingMode]) -> None:
        """Take the shorter times of other calls that asked for the same."""
        for other in others:
            if [each.name for each in other.asked] != [each.name for each in self.asked]:
                continue
            self.rest_us = min(self.rest_us, other.rest_us)
            for number, (ours, its) in enumerate(zip(self.asked, other.asked, strict=True)):
                waited, took = min(ours.waited_us, its.waited_us), min(ours.took_us, its.took_us)
                self.asked[number] = replace(ours, waited_us=waited, took_us=took)

    def _site(self) -> Site:
        """The user's line; in autograd's own threads, the calling thread's."""
        site = user_site(sys._getframe(1), self._until)
        if site is NOWHERE and threading.get_ident() != self._thread:
            site = user_site(sys._current_frames().get(self._thread), self._until)
        return self._outside or NOWHERE if site is NOWHERE else site


def _is_view(operation: torch._ops.OpOverload) -> bool:
    """Whether its schema says that it returns memory of an operand and writes nothing."""
    aliases = [given.alias_info for given in operation._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)
