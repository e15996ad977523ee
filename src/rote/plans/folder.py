"""A folder that is held open: what is checked of it, read in it and written to it is one and the same."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import time
import weakref
from contextlib import suppress
from typing import NamedTuple

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


_OPENING = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not keep us waiting
_MAKING = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

UNFINISHED = ".unfinished"
"""How files end that are being written, and those that their process never finished."""


class KeptFile(NamedTuple):
    """A file in a folder.

    Attributes:
        changed: When it was written, in seconds.
    """

    name: str
    nbytes: int
    changed: float


class PlanFolder:
    """A folder, by its descriptor.

    Args:
        path: Its path, or its name in ``inside``.
        inside: The folder that it lies in; None for a path.
        make: Make it if it is missing.

    Raises:
        PlanError: It cannot be opened, or is a symbolic link.
    """

    def __init__(self, path: str, inside: PlanFolder | None = None, *, make: bool = True) -> None:
        at = inside.descriptor if inside is not None else None
        self.path = os.path.join(inside.path, path) if inside is not None else path
        try:
            if make and inside is not None:
                with suppress(FileExistsError):
                    os.mkdir(path, 0o700, dir_fd=at)
            elif make:
                os.makedirs(path, 0o700, exist_ok=True)
            self.descriptor = os.open(path, _OPENING, dir_fd=at)
        except OSError as error:
            link = os.path.islink(self.path)
            why = "it is a symbolic link; name the folder that it leads to" if link else _told(error)
            raise PlanError(f"{self.path} cannot be opened: {why}") from error
        weakref.finalize(self, os.close, self.descriptor)

    def distrust(self) -> str:
        """Why code in it is not used; empty if it is the user's, and nobody else may write it."""
        return _distrust(os.fstat(self.descriptor), self.path)

    @property
    def number(self) -> int:
        """A number that a copy of the folder does not have."""
        return os.fstat(self.descriptor).st_ino

    def read(self, name: str, most: int, *, own: bool = False) -> bytes | None:
        """A file's content; None if there is no such file.

        Args:
            own: It has to be the user's alone.

        Raises:
            PlanError: It cannot be read, or is no file, or too large.
        """
        try:
            descriptor = os.open(name, _READING, dir_fd=self.descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PlanError(_told(error)) from error
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise PlanError("it is no regular file")
            if found.st_size > most:
                raise PlanError(f"it has {found.st_size} bytes, and may have {most}")
            if own and (why := _distrust(found, name)):
                raise PlanError(why)
            with os.fdopen(os.dup(descriptor), "rb") as file:
                return file.read(most + 1)
        except OSError as error:
            raise PlanError(_told(error)) from error
        finally:
            os.close(descriptor)

    def write(self, name: str, content: bytes, *, replace: bool = True) -> None:
        """Write a file whole, under another name, and give it its own then.

        Args:
            replace: A file of that name goes; else it stays, and nothing is written.

        Raises:
            PlanError: That is not possible; nothing is left behind.
        """
        made = f".{secrets.token_hex(8)}{UNFINISHED}"
        try:
            descriptor = os.open(made, _MAKING, 0o600, dir_fd=self.descriptor)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                if replace:
                    os.replace(made, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
                else:
                    with suppress(FileExistsError):
                        os.link(made, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(made, dir_fd=self.descriptor)
        except OSError as error:
            raise PlanError(f"{name} cannot be written to {self.path}: {_told(error)}") from error

    def places(self) -> list[KeptFile]:
        """The regular files in it, by name.

        Raises:
            PlanError: It cannot be read.
        """
        try:
            with os.scandir(self.descriptor) as found:
                kept = [(each.name, each.stat(follow_symlinks=False)) for each in found]
        except OSError as error:
            raise PlanError(f"{self.path} cannot be read: {_told(error)}") from error
        files = [(name, at) for name, at in kept if stat.S_ISREG(at.st_mode)]
        return sorted([KeptFile(name, at.st_size, at.st_mtime) for name, at in files])

    def remove(self, name: str) -> None:
        """Remove a file.

        Raises:
            PlanError: That is not possible.
        """
        try:
            os.unlink(name, dir_fd=self.descriptor)
        except OSError as error:
            raise PlanError(f"{os.path.join(self.path, name)} cannot be removed: {_told(error)}") from error

    def leftovers(self, age_s: float = 3600.0) -> list[str]:
        """Files that a process began so long ago and never finished."""
        old = time.time() - age_s
        return [each.name for each in self.places() if each.name.endswith(UNFINISHED) and each.changed < old]


def _distrust(found: os.stat_result, name: str) -> str:
    if found.st_uid != os.geteuid():
        return f"{name} belongs to user {found.st_uid}, and this process is of user {os.geteuid()}"
    if found.st_mode & _OTHERS_WRITE:
        return f"{name} may be written by others (mode {stat.S_IMODE(found.st_mode):o}); chmod go-w it"
    return ""


def _told(error: OSError) -> str:
    return error.strerror or type(error).__name__
