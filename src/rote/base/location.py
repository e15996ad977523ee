"""Where in the user's program something happened: the innermost frame outside PyTorch and rote."""

from __future__ import annotations

import linecache
import sys
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import NamedTuple

from .address import identity

TORCH_NEEDS = (
    "sympy", "mpmath", "networkx", "jinja2", "typing_extensions.py", "filelock", "fsspec", "triton", "numpy",
)  # fmt: skip
"""Packages that PyTorch itself calls; a frame there is never the user's line."""

_ROTE = str(Path(__file__).resolve().parent.parent) + "/"
_QUANT = f"{_ROTE}quant/"


class Site(NamedTuple):
    """A place in a source file.

    Attributes:
        file: Path as Python knows it.
        line: Line number, from 1.
        function: Name of the function around it.
    """

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
    """Return the innermost frame that belongs neither to PyTorch nor to rote.

    Args:
        frame: Where to start looking outwards; the caller's frame if None.
        until: Where to stop: this frame and those around it are nobody's.
    """
    at = sys._getframe(1) if frame is None else frame  # pyright: ignore[reportPrivateUsage]
    while at is not None and at is not until:
        code = at.f_code
        if not is_internal(code.co_filename):
            return Site(code.co_filename, at.f_lineno, code.co_name)
        at = at.f_back
    return NOWHERE


class Sites:
    """The user's lines of one call, each looked up once: a recording asks at every operation.

    Where an instruction stands in its code does not change, so a line that comes again (the body of a loop,
    the layers of a model) is one look into a table, and all its operations share one :class:`Site`.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Site] = {}
        self._internal: set[str] = set()  # files
        self._codes: list[CodeType] = []  # what is in here keeps its identity

    def here(self) -> Site:
        """What :func:`user_site` returns; the caller and the two frames around it are rote's own."""
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
        """Where a frame is, if it is the user's; it is told again by the identity of its code."""
        code = frame.f_code
        if is_internal(code.co_filename):
            self._internal.add(code.co_filename)
            return None
        self._codes.append(code)
        found = Site(code.co_filename, frame.f_lineno, code.co_name)
        self._known[identity(code), frame.f_lasti] = found
        return found


def traceback_site(traceback: TracebackType | None) -> Site:
    """Return the innermost user frame of a traceback."""
    found = NOWHERE
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not is_internal(code.co_filename):
            found = Site(code.co_filename, traceback.tb_lineno, code.co_name)
        traceback = traceback.tb_next
    return found


@lru_cache(maxsize=4096)
def is_internal(filename: str) -> bool:
    """Whether a source file belongs to PyTorch, to rote or to no file at all."""
    if filename.startswith(_ROTE) or filename.startswith("<frozen"):
        return True
    torch = sys.modules.get("torch")
    home = getattr(torch, "__file__", None)
    if home is not None and filename.startswith(str(Path(home).parent) + "/"):
        return True
    package = _package_of(filename)
    if package in TORCH_NEEDS:
        return True
    return filename.startswith(str(Path(linecache.__file__).parent) + "/") and not _is_package(filename)


def is_own(filename: str) -> bool:
    """Whether a source file is of rote's runtime; quantized layers are what calls run, as others are."""
    return filename.startswith(_ROTE) and not filename.startswith(_QUANT)


@lru_cache(maxsize=4096)
def _shorten(filename: str) -> str:
    """Cut everything up to ``site-packages/`` or the working directory, to keep messages readable."""
    for marker in ("site-packages/", "dist-packages/"):
        if marker in filename:
            return filename.rsplit(marker, 1)[1]
    here = str(Path.cwd()) + "/"
    return filename.removeprefix(here)


def _is_package(filename: str) -> bool:
    """Installed third-party packages lie below the standard library's folder, yet are the user's."""
    return _package_of(filename) is not None


def _package_of(filename: str) -> str | None:
    """Name of the installed package a file belongs to."""
    for marker in ("site-packages/", "dist-packages/"):
        if marker in filename:
            return filename.rsplit(marker, 1)[1].partition("/")[0]
    return None
