"""Texts that leave the process: what they quote of values may be a secret.

A report says what changed (``os.environ['TOKEN'] was 'abc'``), and shows lines of source. In a file that is
handed on, strings of more than :data:`LONGEST` characters, and all values of environment variables, are a
digest with the length. It shows whether two values are the same.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

LONGEST = 32
"""Characters of a string that is shown as it is."""

_STRING = re.compile(r"""(\[)?([bBrRuUfF]{0,2})("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')""")
_CUT = re.compile(r"""['"][^'"\n]{30,}\.\.\.""")
"""A string that was shortened, and has lost its end."""

_CONTROL = {code: "\ufffd" for code in range(32) if chr(code) not in "\t\n"}
"""Characters that no page may have."""

_ENVIRONMENT = re.compile(r"environ|getenv")


def masked(text: str) -> str:
    """A text whose long strings, and values of environment variables, are digests."""
    environment = _ENVIRONMENT.search(text) is not None

    def digest(found: re.Match[str]) -> str:
        content = found[3][1:-1]
        is_name = found[1] is not None or found.string[found.end() :].startswith("]")
        if len(content) <= LONGEST and (not environment or is_name):
            return found[0]
        return f"{found[1] or ''}<{len(content)} characters, sha256 {_digest(content)}>"

    text = _STRING.sub(digest, text.translate(_CONTROL))
    return _CUT.sub(lambda found: f"<a long string, its beginning sha256 {_digest(found[0])}>", text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def hidden(value: Any) -> Any:
    """The same frozen values with all texts masked."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, tuple):
        return tuple([hidden(each) for each in cast("tuple[Any, ...]", value)])
    if isinstance(value, dict):
        return {hidden(key): hidden(each) for key, each in cast("dict[Any, Any]", value).items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: hidden(getattr(value, each.name)) for each in fields(value)})
    return value
