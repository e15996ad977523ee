"""The directories of plans that this process uses, each opened once.

    DIR/key                  32 random bytes, for digests of what is not written down
    DIR/*.facts              facts, one file for each key of a callable, named by a digest
    DIR/code/*.code          compiled kernels
    DIR/code/*.certificate   what was proved of them on this machine

The facts may be shared and copied. A copy of ``code`` is not used, since its files say in which folder they
were written, nor is one that anybody else may write.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import threading
from weakref import WeakValueDictionary

from .folder import PlanError, PlanFolder
from .here import Sources
from .shelf import CodeShelf

_log = logging.getLogger("rote")

KEY, KEY_BYTES = "key", 32
CODE_FOLDER = "code"


class PlanDirectory:
    """One directory.

    Attributes:
        path: Where it is; it is made if it is missing, unless ``make`` says otherwise.
        sources: The source files that were looked at.
        folder: The folder; None if it cannot be used.
        shelf: The compiled kernels; None if they are not used.
        failures: Why something is not used.
    """

    def __init__(self, path: str, *, make: bool = True) -> None:
        self.path = path
        self.sources = Sources()
        self.folder: PlanFolder | None = None
        self.shelf: CodeShelf | None = None
        self.failures: list[str] = []
        self._warned = False
        self._key = b""
        try:
            self.folder = PlanFolder(path, make=make)
            self._key = _key_of(self.folder, make=make)
        except PlanError as error:
            self.folder = None
            self.fail(f"no plan is used: {error}")
            return
        self._open_shelf(self.folder, make=make)

    def _open_shelf(self, folder: PlanFolder, *, make: bool) -> None:
        try:
            inner = PlanFolder(CODE_FOLDER, folder, make=make and not folder.distrust())
            why = folder.distrust() or inner.distrust()
            if why:
                raise PlanError(why)
            self.shelf = CodeShelf(inner, self.fail)
        except PlanError as error:
            self.fail(f"compiled code is made anew, and not kept: {error}", warn=bool(make))

    def fail(self, why: str, *, warn: bool = True) -> None:
        """Something is done without. The report says so, and the log does once."""
        if why not in self.failures and len(self.failures) < 32:
            self.failures.append(why)
        if warn and not self._warned:
            self._warned = True
            _log.warning("plans in %s: %s", self.path, why)

    def digest(self, text: str) -> str:
        """A digest that nobody makes without the directory's key."""
        return hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()

    def hide(self, text: str) -> str:
        """What stands for a text that is not written down."""
        return f"<{len(text)} characters, {self.digest(text)[:16]}>"


def _key_of(folder: PlanFolder, *, make: bool) -> bytes:
    """The key of a directory, made by whoever comes first."""
    found = folder.read(KEY, KEY_BYTES)
    if found is None and make:
        folder.write(KEY, secrets.token_bytes(KEY_BYTES), replace=False)
        found = folder.read(KEY, KEY_BYTES)
    if found is None or len(found) != KEY_BYTES:
        size = "is missing" if found is None else f"has {len(found)} bytes, not {KEY_BYTES}"
        raise PlanError(f"{os.path.join(folder.path, KEY)} {size}; remove the directory, or name another one")
    return found


class PlansOfProcess:
    """The directories in use, by path."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: WeakValueDictionary[str, PlanDirectory] = WeakValueDictionary()

    def of(self, path: str) -> PlanDirectory:
        """The directory of a path. Never raises; what is wrong stands in its failures."""
        whole = os.path.abspath(os.path.expanduser(path))
        with self._lock:
            found = self._open.get(whole)
            if found is None:
                found = self._open[whole] = PlanDirectory(whole)
            return found


PLANS = PlansOfProcess()
"""The one place where directories are kept open: callables that name the same one share it."""
