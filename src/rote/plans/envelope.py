"""Files of a plan: a line that says what follows, how long it is and what it hashes to, and then that."""

from __future__ import annotations

import hashlib

from ..base import EnvironmentError_

FORMAT = 1
MOST_HEAD = 128
FACTS, CODE, CERTIFICATE = "facts", "code", "certificate"


class PlanError(EnvironmentError_):
    """A file or a folder of a plan cannot be used; the message says why."""


def seal(kind: str, payload: bytes) -> bytes:
    """A payload with its head."""
    head = f"rote-plan {FORMAT} {kind} {len(payload)} {hashlib.sha256(payload).hexdigest()}\n"
    return head.encode("ascii") + payload


def unseal(kind: str, content: bytes) -> bytes:
    """The payload of a file."""
    end = content.find(b"\n", 0, MOST_HEAD)
    words = content[: max(end, 0)].split(b" ")
    if len(words) != 5 or words[0] != b"rote-plan":
        raise PlanError("it is no file of a plan")
    if words[1] != str(FORMAT).encode("ascii"):
        version = words[1][:8].decode("ascii", "replace")
        raise PlanError(f"it has format {version!r}, and this version of rote reads {FORMAT}")
    payload = content[end + 1 :]
    if words[2] != kind.encode("ascii"):
        raise PlanError("it holds something else than its name says")
    if words[3] != str(len(payload)).encode("ascii"):
        raise PlanError("it is cut off, or too long")
    if words[4] != hashlib.sha256(payload).hexdigest().encode("ascii"):
        raise PlanError("it was changed: its content does not hash to what its head says")
    return payload
