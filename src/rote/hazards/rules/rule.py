"""Rules, and reasons of the runtime, each of which has a rule."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, Flag, auto
from functools import cached_property
from importlib.resources import files
from typing import NamedTuple

from ...base import Site
from .finding import Severity

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
    """Read the text of a rule, a second-level heading for each part; raises OSError if that cannot be done.

    A part is one paragraph, however its lines are broken, or one fenced block of Python.
    """
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


class Topic(Enum):
    """What a rule is about; each topic has a page of documentation."""

    HOST_READS = "host reads"
    HOST_DATA = "host data"
    SHAPES = "shapes"
    STATE = "state"
    ALIASING = "mutation and aliasing"
    RANDOM = "random numbers"
    MEMORY = "memory"
    STREAMS = "streams"
    LIBRARIES = "libraries"
    AUTOGRAD = "autograd"
    AUTOCAST = "autocast"
    DISTRIBUTED = "distributed"
    GUARDS = "guards"
    LIMITS = "limits"
    VERIFICATION = "verification"
    OUTPUTS = "outputs"
    DEVICES = "devices"

    @property
    def page(self) -> str:
        """Name of its page, without the ending."""
        return self.value.replace(" ", "-")


class Finder(Flag):
    """Who can find a hazard: the source scan, the trial run on fake tensors, the runtime."""

    SCAN = auto()
    TRIAL = auto()
    RUNTIME = auto()
    CHECK = SCAN | TRIAL
    ALL = CHECK | RUNTIME


_IN_WORDS = {
    Finder.SCAN: "the source scan (`rote check --static`)",
    Finder.TRIAL: "the trial run (`rote check`)",
    Finder.RUNTIME: "the runtime (`g.explain()`)",
}


@dataclass(frozen=True)
class Rule:
    """One kind of reason or hazard.

    Attributes:
        code: Stable code, ``RT`` and three digits. A code is never given a new meaning.
        title: What it is, in a few words.
        severity: What it costs a graph, captured by hand or by rote.
        topic: What it is about.
        found_by: Who can find it.
    """

    code: str
    title: str
    severity: Severity
    topic: Topic
    found_by: Finder = Finder.RUNTIME

    @cached_property
    def documentation(self) -> Documentation:
        """The text in parts, read from its file when it is first needed."""
        return documentation(self.code)

    @property
    def finders(self) -> list[str]:
        """Who can find it, in words."""
        return [text for finder, text in _IN_WORDS.items() if finder in self.found_by]

    @property
    def remedy(self) -> str:
        """What to write instead."""
        try:
            return self.documentation.remedy
        except OSError:  # out of file handles: a call must not fail for the words of its reason
            return f"See rote explain {self.code}."


@dataclass(frozen=True)
class Reason:
    """Why something was not replayed, once.

    Attributes:
        message: What happened, with the values that matter.
        where: The user's line, if it is known.
        remedy: What to do about it.
    """

    code: str
    message: str
    where: Site | None
    remedy: str

    @property
    def place(self) -> str:
        """``file:line``, or empty."""
        return str(self.where) if self.where is not None and self.where.line else ""

    def __str__(self) -> str:
        place = f" at {self.place}" if self.place else ""
        return f"{self.code}{place}: {self.message}. {self.remedy}"


def reason(rule: Rule, message: str, where: Site | None = None, remedy: str = "") -> Reason:
    """Make a reason of a rule; its remedy is the rule's unless given."""
    return Reason(rule.code, message, where, remedy or rule.remedy)
