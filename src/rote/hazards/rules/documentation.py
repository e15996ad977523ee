"""Reads the text of a rule: ``texts/RT101.md``, a heading of the second level for each part.

A part of prose is one paragraph, however its lines are broken; an example is one fenced block of Python.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import NamedTuple

_HEADING = re.compile(r"^## (\w+)\n", re.M)


class Documentation(NamedTuple):
    """The parts of a rule's text; all but the last two are in every one.

    Attributes:
        what: What it is.
        why: Why it matters to a graph.
        remedy: What to write instead; it ends the runtime's messages too, so it is plain text.
        limits: What is not found, or found although nothing is wrong.
        bad: A short example.
        good: The same, right.
        tried: With which version of a library it was tried.
        unchecked: Why neither the scan nor the trial finds it, where only the runtime does.
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
    """Read the text of a rule; an OSError says that the file can't be read."""
    return parsed(files("rote.hazards.rules").joinpath("texts", f"{code}.md").read_text(encoding="utf-8"))


def parsed(text: str) -> Documentation:
    """The parts of a text; a TypeError says that one is missing, or that there is no such part."""
    _, *parts = _HEADING.split(text)
    named = zip(parts[::2], parts[1::2], strict=True)
    return Documentation(**{name.lower(): _part(body) for name, body in named})


def _part(body: str) -> str:
    body = body.strip()
    if body.startswith("```"):
        return body.removeprefix("```python\n").removesuffix("\n```")
    return " ".join(body.split())
