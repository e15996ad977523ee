"""The text of a rule, read from ``texts/RT101.md``: a second-level heading for each part.

A part is one paragraph, however its lines are broken, or one fenced block of Python.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import NamedTuple

_HEADING = re.compile(r"^## (\w+)\n", re.M)


class Documentation(NamedTuple):
    """The parts of a rule's text; only the last two may be missing.

    Attributes:
        remedy: What to write instead; it also ends the runtime's messages, so it is plain text.
        limits: False negatives and false positives.
        tried: The version of the library with which it was tried.
        unchecked: Why only the runtime finds it.
    """

    what: str
    why: str
    remedy: str
    limits: str
    bad: str
    good: str
    tried: str = ""
    unchecked: str = ""


def documentation(code: str) -> Documentation:
    """Read the text of a rule; raises OSError if the file cannot be read."""
    return parsed(files("rote.hazards.rules").joinpath("texts", f"{code}.md").read_text(encoding="utf-8"))


def parsed(text: str) -> Documentation:
    """The parts of a text; raises TypeError if one is missing or unknown."""
    _, *parts = _HEADING.split(text)
    named = zip(parts[::2], parts[1::2], strict=True)
    return Documentation(**{name.lower(): _part(body) for name, body in named})


def _part(body: str) -> str:
    body = body.strip()
    if body.startswith("```"):
        return body.removeprefix("```python\n").removesuffix("\n```")
    return " ".join(body.split())
