"""The user's line of what happens: the innermost frame outside PyTorch and rote."""

from __future__ import annotations

import linecache
import re
import sys
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import NamedTuple

from .instances import identity

TORCH_NEEDS = (
    "sympy", "mpmath", "networkx", "jinja2", "typing_extensions.py", "filelock", "fsspec", "triton", "numpy",
)  # fmt: skip
"""Packages that PyTorch itself calls; a frame there is never the user's line."""

_ROTE = str(Path(__file__).resolve().parent.parent) + "/"
_IN_CALLS = tuple(f"{_ROTE}{room}/" for room in ("quant", "integrations/openpi", "integrations/lerobot"))
"""Rooms whose code runs in traced calls, where it is followed as others' code is."""
_GENERATED = re.compile(r"/(\w\w)/\w\1[a-z2-7]{40,}\.py$")
"""A file that Inductor has written: named by a hash, in a folder of two of its letters, in any cache."""
_PACKAGES = ("site-packages/", "dist-packages/")


class Site(NamedTuple):
    """A line of a source file, from 1, and the function around it."""

    file: str
    line: int
    function: str

    @property
    def text(self) -> str:
        """The source line, without its indentation; empty when the source is not available."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{_shorten(self.file)}:{self.line}"


NOWHERE = Site("<unknown>", 0, "<unknown>")


def user_site(frame: FrameType | None = None, until: FrameType | None = None) -> Site:
    """The innermost frame outside PyTorch and rote, from ``frame`` (or the caller's) out to ``until``."""
    at = sys._getframe(1) if frame is None else frame  # pyright: ignore[reportPrivateUsage]
    while at is not None and at is not until:
        code = at.f_code
        if not is_internal(code.co_filename):
            return Site(code.co_filename, at.f_lineno, code.co_name)
        at = at.f_back
    return NOWHERE


Lines = tuple[Site, ...]
"""The user's line, behind those of the code that it has called, the innermost first."""


def running_lines() -> Lines:
    """What runs now. A line of the user's may stand for many of a library's: a step of an optimizer."""
    at, found = sys._getframe(1), list[Site]()  # pyright: ignore[reportPrivateUsage]
    while at is not None:
        file = at.f_code.co_filename
        if not is_own(file):
            found.append(Site(file, at.f_lineno, at.f_code.co_name))
            if not is_internal(file):
                break
        at = at.f_back
    return tuple(found) or (NOWHERE,)


class Sites:
    """The user's lines of one call, each looked up once: a recording asks at every operation.

    An instruction keeps its place in its code, so a line that comes again (the body of a loop, the layers of
    a model) is one look into a table, and all its operations share one :class:`Site`.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Site] = {}
        self._internal: set[str] = set()  # files
        self._codes: list[CodeType] = []  # kept alive, so that no other code gets their identity

    def here(self) -> Site:
        """The result of :func:`user_site`; the caller and the two frames around it are rote's own."""
        at, internal = sys._getframe(3).f_back, self._internal  # pyright: ignore[reportPrivateUsage]
        while at is not None:
            code = at.f_code
            if code.co_filename not in internal:
                found = self._known.get((identity(code), at.f_lasti)) or self._look(at)
                if found is not None:
                    return found
            at = at.f_back
        return NOWHERE

    def _look(self, frame: FrameType) -> Site | None:
        """The line of a frame, if it is the user's."""
        code = frame.f_code
        if is_internal(code.co_filename):
            self._internal.add(code.co_filename)
            return None
        self._codes.append(code)
        found = Site(code.co_filename, frame.f_lineno, code.co_name)
        self._known[identity(code), frame.f_lasti] = found
        return found


def traceback_site(traceback: TracebackType | None) -> Site:
    """The innermost user frame of a traceback."""
    found = NOWHERE
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not is_internal(code.co_filename):
            found = Site(code.co_filename, traceback.tb_lineno, code.co_name)
        traceback = traceback.tb_next
    return found


@lru_cache(maxsize=4096)
def is_internal(filename: str) -> bool:
    """Whether a source file belongs to PyTorch, to rote or to no file at all, or was written by Inductor."""
    if filename.startswith(_ROTE) or filename.startswith("<frozen") or _GENERATED.search(filename):
        return True
    torch = sys.modules.get("torch")
    home = getattr(torch, "__file__", None)
    if home is not None and filename.startswith(str(Path(home).parent) + "/"):
        return True
    package = _installed(filename).partition("/")[0]
    if package:  # below the standard library's folder, yet the user's
        return package in TORCH_NEEDS
    return filename.startswith(str(Path(linecache.__file__).parent) + "/")


def is_own(filename: str) -> bool:
    """Whether a source file belongs to rote's runtime, and not to what rote puts into models."""
    return filename.startswith(_ROTE) and not filename.startswith(_IN_CALLS)


def calls_kernels(filename: str) -> bool:
    """Whether a file's code may lie between an operator and its kernel: PyTorch's, or the runtime's."""
    return is_internal(filename) and not filename.startswith(_IN_CALLS)


@lru_cache(maxsize=4096)
def _shorten(filename: str) -> str:
    """Cut everything up to ``site-packages/`` or the working directory, to keep messages readable."""
    return _installed(filename) or filename.removeprefix(str(Path.cwd()) + "/")


def _installed(filename: str) -> str:
    """The path of a file below the folder of installed packages; empty if it is in none."""
    return next((filename.rsplit(marker, 1)[1] for marker in _PACKAGES if marker in filename), "")
