"""Who owns pool memory: a recording holds the sessions it was captured in until it is released."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..backends.base import Backend, Session


@dataclass
class Holding:
    """The memory of one recording.

    Attributes:
        backend: The device.
        exclusive: No other recording writes this memory (values in it outlive the call).
        sessions: The captures the recording consists of; each unseen path adds one.
        bytes_held: Bytes held by all sessions.
    """

    backend: Backend
    exclusive: bool
    sessions: list[Session] = field(default_factory=list[Session])
    bytes_held: int = 0

    def keep(self, session: Session) -> None:
        """Freeze a finished session and count its memory."""
        self.bytes_held += session.finish()
        self.sessions.append(session)

    def release(self) -> None:
        """Give everything back. Idempotent."""
        for session in self.sessions:
            session.release()
        self.sessions.clear()
        self.bytes_held = 0
