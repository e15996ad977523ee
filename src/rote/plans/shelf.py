"""Compiled kernels and certificates, in a folder that is the user's alone.

A kernel is machine code, and a certificate spares the proof that a kernel calculates what PyTorch does: both
are believed as they are. So the folder is checked when it is opened and each file when it is read: owner,
mode, size, hash, for what it was made, and in which folder. A copy of the folder says that it is one.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, cast

from ..base import read_compile_settings
from ..runtime.compiling import Binary, KernelSource, Language, RefusedError, compiler_command
from .folder import CERTIFICATE, CODE, PlanError, PlanFolder, seal, unseal
from .here import tools

CODE_ENDING, CERTIFICATE_ENDING = ".code", ".certificate"
COPIED = "compiled code is made anew: it was copied from elsewhere, and a copy brings facts only"
MOST_CODE, MOST_CERTIFICATE = 16 << 20, 4096


class CodeShelf:
    """The kernels of one directory; see :class:`~..runtime.compiling.Shelf`. Nothing here raises.

    Args:
        folder: Where; the user's alone.
        fail: Told why something is not used.
    """

    def __init__(self, folder: PlanFolder, fail: Callable[[str], None]) -> None:
        self.folder = folder
        self._fail = fail

    def copied(self) -> str:
        """Whether it holds code that was written in another folder, and is not used here; empty if not."""
        for each in self.folder.places():
            payload = self._read(each.name, CODE, MOST_CODE) if each.name.endswith(CODE_ENDING) else None
            if payload is not None and _told(payload).get("folder") != self.folder.number:
                return COPIED
        return ""

    def find(self, source: KernelSource) -> Binary | None:
        """A kernel that was compiled earlier."""
        about = _about(source)
        payload = self._read(about + CODE_ENDING, CODE, MOST_CODE)
        if payload is None:
            return None
        told, (_, _, code) = _told(payload), payload.partition(b"\n")
        symbol, shared = told.get("symbol"), told.get("shared_bytes")
        if told.get("folder") != self.folder.number:
            self._fail(COPIED)
        elif told.get("about") == about and type(symbol) is str and type(shared) is int:
            return Binary(source, code, symbol, shared)
        return None

    def keep(self, binary: Binary) -> None:
        """Keep a kernel."""
        about = _about(binary.source)
        told = {
            "about": about,
            "folder": self.folder.number,
            "symbol": binary.symbol,
            "shared_bytes": binary.shared_bytes,
        }
        if len(binary.code) < MOST_CODE // 2:
            self._write(about + CODE_ENDING, seal(CODE, json.dumps(told).encode() + b"\n" + binary.code))

    def certifies(self, source: KernelSource, proved: str) -> bool:
        """Whether something was proved of a kernel earlier, here, with the same tools."""
        about = _about(source, proved)
        payload = self._read(about + CERTIFICATE_ENDING, CERTIFICATE, MOST_CERTIFICATE)
        return payload == self._certificate(about)

    def certify(self, source: KernelSource, proved: str) -> None:
        """Something was proved of a kernel."""
        about = _about(source, proved)
        self._write(about + CERTIFICATE_ENDING, seal(CERTIFICATE, self._certificate(about)))

    def _certificate(self, about: str) -> bytes:
        return f"{about} {self.folder.number}".encode("ascii")

    def _read(self, name: str, kind: str, most: int) -> bytes | None:
        try:
            content = self.folder.read(name, most, own=True)
            return unseal(kind, content) if content is not None else None
        except PlanError as error:
            self._fail(f"{os.path.join(self.folder.path, name)} is not used: {error}")
            return None

    def _write(self, name: str, content: bytes) -> None:
        try:
            self.folder.write(name, content)
        except PlanError as error:
            self._fail(str(error))


def _told(payload: bytes) -> dict[str, Any]:
    """What a file of code says of itself; nothing if that cannot be read."""
    try:
        found = json.loads(payload.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if type(found) is dict else {}


def _about(source: KernelSource, *proved: str) -> str:
    """What a kernel, or what was proved of it, is found by."""
    text = "\n".join([*proved, repr(source), _compiler(source.language)])
    return hashlib.sha256(text.encode()).hexdigest()[:40]


@cache
def _compiler(language: Language) -> str:
    """What compiles: the C++ compiler with its file's date, or Triton's version; and what else matters."""
    if language is Language.TRITON:
        known = find_spec("triton") is not None
        return f"{tools()}\nTriton {importlib.metadata.version('triton') if known else ''}"
    try:
        command = compiler_command(read_compile_settings().compiler)
    except (RefusedError, ValueError):
        return f"{tools()}\nno compiler"
    path = os.path.realpath(shutil.which(command[0]) or command[0])
    found = os.stat(path)
    return f"{tools()}\n{command} {path} {found.st_mtime_ns} {found.st_size}"
