"""Who owns pool memory: a recording holds the sessions it was captured in until it is released."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Protocol

from ..backends.protocol import Backend, Session


class Evictable(Protocol):
    """What a budget asks of a recording; see :class:`..recording.Recording`."""

    replays: int

    @property
    def busy(self) -> bool:
        """Its memory is in use: it must not be released now."""
        ...

    def placed_bytes(self) -> int:
        """Bytes that it holds in no region."""
        ...

    def evict(self, why: str) -> None:
        """Give its memory back; it may be recorded again."""
        ...


@dataclass(eq=False)
class Account:
    """What the recordings of one wrapper may hold on each device; None for no limit of its own."""

    name: str
    limit: int | None = None

    @property
    def tenant(self) -> Hashable:
        """Whom its recordings share memory with: each other if there is a limit to hold, else everybody."""
        return None if self.limit is None else id(self)


class Worth:
    """How often a recording was replayed since it was last recorded, recent replays counting more."""

    def __init__(self, replays: int) -> None:
        self.score = 1.0  # it was asked for
        self._counted = replays

    def fresh(self, replays: int) -> int:
        """Replays that were not counted yet."""
        return replays - self._counted

    def age(self, factor: float, replays: int) -> None:
        """Let earlier replays count less, and count the fresh ones."""
        self.score = self.score * factor + self.fresh(replays)
        self._counted = replays


@dataclass(eq=False)
class Holding:
    """The memory of one recording.

    Attributes:
        exclusive: No other recording writes this memory (values in it outlive the call).
        account: Whose budget it counts against.
        owner: Gives the recording, while it is alive (a weak reference).
        demand: Bytes the recording was expected to need alone.
        operations: Operations that one replay saves.
        sessions: The captures the recording consists of; each unseen path adds one.
    """

    backend: Backend
    exclusive: bool
    account: Account
    owner: Callable[[], Evictable | None]
    demand: int = 0
    operations: int = 0
    sessions: list[Session] = field(default_factory=list[Session])
    _beside: dict[int, int] = field(default_factory=dict[int, int])

    def __post_init__(self) -> None:
        owner = self.owner()
        self.worth = Worth(owner.replays if owner is not None else 0)

    def keep(self, session: Session, beside: int = 0) -> None:
        """Freeze a finished session.

        Args:
            beside: Bytes that it needs besides the regions that it lies in.

        Raises:
            CaptureError: The device refused it.
            RuntimeError: There is no memory for it; it may be tried again.
        """
        session.finish()
        self.sessions.append(session)
        self._beside[id(session)] = beside

    @property
    def bytes_beside(self) -> int:
        """Bytes that the sessions need besides the regions that they lie in."""
        return sum(self._beside.values())

    def give_up(self, session: Session) -> None:
        """A session is not needed any more, or was never finished."""
        if session in self.sessions:
            self.sessions.remove(session)
            del self._beside[id(session)]
        session.release()

    def regions(self) -> frozenset[Hashable]:
        """The regions of memory that all sessions lie in."""
        return frozenset(region for session in self.sessions for region in session.regions())

    def release(self) -> None:
        """Give everything back. Idempotent."""
        for session in self.sessions:
            session.release()
        self.sessions.clear()
        self._beside.clear()
