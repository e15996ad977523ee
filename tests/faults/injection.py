"""Faults at chosen points: the points are counted in one run, then each is hit in a run of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import rote


def unseen(function: Any) -> Any:
    """A function that calls do not notice, as it runs inside of what is rote's own."""
    function.__code__ = function.__code__.replace(co_filename=rote.__file__)
    return function


class Injector:
    """Counts the calls of some functions, and lets one of them fail.

    Args:
        patch: Undoes the patches at the end of the test.
        targets: Classes with the name of a method.
    """

    def __init__(self, patch: pytest.MonkeyPatch, targets: list[tuple[type, str]]) -> None:
        self.points: list[str] = []
        self._trip: int | None = None
        self._after = False
        self._fault: Callable[[], BaseException] = RuntimeError
        self._paused = self._stopped = False
        self.error: BaseException | None = None
        for owner, name in targets:
            raw = vars(owner)[name]
            plain = raw.__func__ if isinstance(raw, classmethod) else raw
            wrapped = self._wrap(f"{owner.__name__}.{name}", plain)
            patch.setattr(owner, name, classmethod(wrapped) if isinstance(raw, classmethod) else wrapped)

    def arm(self, point: int | None, fault: Callable[[], BaseException], *, after: bool = False) -> None:
        """Count from zero again; fail at a point (None: nowhere), before it or when it has run."""
        self.points, self.error = [], None
        self._trip, self._fault, self._after = point, fault, after
        self._stopped = False

    def stop(self) -> None:
        """Count no further."""
        self._stopped = True

    def forget(self) -> None:
        """Let go of the error: its frames hold tensors, and who holds a gradient is noticed."""
        self.error = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing here is a point."""
        self._paused = True
        yield
        self._paused = False

    def _wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @unseen
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            trips = self.trips(name)
            if trips and not self._after:
                self._raise()
            out = function(*args, **kwargs)
            if trips and self._after:
                self._raise()
            return out

        return wrapper

    @unseen
    def trips(self, name: str = "") -> bool:
        """Count a point; whether it is the one that fails."""
        if self._paused or self._stopped:
            return False
        self.points.append(name)
        return len(self.points) - 1 == self._trip

    @unseen
    def _raise(self) -> None:
        self.error = self._fault()
        raise self.error
