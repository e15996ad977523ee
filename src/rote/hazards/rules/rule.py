"""What a rule is, and a reason of a rule: the words that the checker and the runtime share."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import NamedTuple

from ...base.location import Site
from ..finding import Severity


class Group(Enum):
    """What a rule is about; a group has one page of documentation."""

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
    """Who can find it.

    Attributes:
        SCAN: The source scan (``rote check --static``).
        TRIAL: The trial run on fake tensors (``rote check``).
        RUNTIME: The runtime (``g.report()``, ``g.explain()``).
    """

    SCAN = auto()
    TRIAL = auto()
    RUNTIME = auto()


class Documentation(NamedTuple):
    """The parts of a rule's text.

    Attributes:
        what: What it is.
        why: Why it matters to a graph.
        limits: What is not found, or found although nothing is wrong.
        unchecked: Why neither the scan nor the trial finds it, where only the runtime does.
        bad: A short example.
        good: The same, right.
        tried: With which version of a library it was tried.
    """

    what: str
    why: str
    limits: str
    bad: str
    good: str
    tried: str = ""
    unchecked: str = ""


@dataclass(frozen=True)
class Rule:
    """One kind of reason.

    Attributes:
        code: Stable code, ``RT`` and three digits. A code is never given a new meaning.
        title: What it is, in a few words.
        remedy: What to write instead.
        severity: What it costs, of a graph captured by hand or of rote's.
        group: What it is about.
        found_by: Who can find it.
        text: Its documentation: a paragraph on what it is, then ``Why:``, ``Limits:``, for libraries
            ``Tried:``, for what only the runtime finds ``Unchecked:``, ``Bad::`` and ``Good::``, the last two
            followed by indented code.
    """

    code: str
    title: str
    remedy: str
    severity: Severity = Severity.UNKNOWN
    group: Group = Group.GUARDS
    found_by: Finder = Finder.RUNTIME
    text: str = ""

    @property
    def documentation(self) -> Documentation:
        """The text, in parts; a part that is missing is empty."""
        parts: dict[str, list[str]] = {"what": []}
        part = parts["what"]
        for line in inspect.cleandoc(self.text).splitlines():
            head, colon, rest = line.partition(":")
            if colon and head in _HEADS:
                part = parts.setdefault(head.lower(), [])
                line = rest.removeprefix(":").strip()
            part.append(line)
        prose = {name: " ".join(" ".join(parts.get(name, ())).split()) for name in _PROSE}
        code = {name: inspect.cleandoc("\n".join(["", *parts.get(name, ())])) for name in ("bad", "good")}
        return Documentation(**prose, **code)


_HEADS = frozenset({"Why", "Limits", "Tried", "Unchecked", "Bad", "Good"})
_PROSE = ("what", "why", "limits", "tried", "unchecked")


@dataclass(frozen=True)
class Reason:
    """Why something was not replayed, once.

    Attributes:
        code: Code of the rule.
        message: What happened, with the values that matter.
        where: The user's line, if one is known.
        remedy: What to do about it.
    """

    code: str
    message: str
    where: Site | None
    remedy: str

    @property
    def place(self) -> str:
        """``file:line``, or nothing."""
        return str(self.where) if self.where is not None and self.where.line else ""

    def __str__(self) -> str:
        place = f" at {self.place}" if self.place else ""
        return f"{self.code}{place}: {self.message}. {self.remedy}"


def reason(rule: Rule, message: str, where: Site | None = None, remedy: str = "") -> Reason:
    """Make a reason of a rule; with the rule's remedy, if no better one is known."""
    return Reason(rule.code, message, where, remedy or rule.remedy)
