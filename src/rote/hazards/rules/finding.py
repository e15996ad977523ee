"""Findings: hazards at places of the user's program."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ...base import Site


class Severity(StrEnum):
    """What a hazard costs; the first two are errors.

    Attributes:
        STOPS: A capture fails there.
        WRONG: A replay of a plain CUDA graph is silently wrong.
        ISLAND: rote runs the operation outside of the graphs.
        SPEED: It only costs time.
        UNKNOWN: It cannot be known, for example of a custom operation without a fake implementation.
    """

    STOPS = "stops capture"
    WRONG = "silently wrong when replayed"
    ISLAND = "costs an island"
    SPEED = "costs speed"
    UNKNOWN = "unknown"

    @property
    def is_error(self) -> bool:
        """Whether it fails a check."""
        return self in (Severity.STOPS, Severity.WRONG)


@dataclass(frozen=True)
class Finding:
    """A hazard at a place.

    Attributes:
        code: Code of the rule, ``RT104``.
        where: The user's line.
        message: What happens there, in one sentence without a period.
        remedy: What to write instead.
        column: Column of the expression, from 1; 0 if it is not known.
        source: The source line, without its indentation.
        path: The lines of the user's program that led there, from the callable on.
        evidence: The value, the shape or the state that changed; may be empty.
    """

    code: str
    severity: Severity
    where: Site
    message: str
    remedy: str
    column: int = 0
    source: str = ""
    path: tuple[Site, ...] = ()
    evidence: str = ""

    def __str__(self) -> str:
        return f"{self.where}:{self.column or 1}: {self.code} {self.message} ({self.severity})"


@dataclass(frozen=True)
class Remark:
    """Something wrong with a comment or a baseline entry that should silence findings. It is no hazard.

    Columns count from 1; 0 is unknown. The code may be empty.
    """

    where: Site
    column: int
    message: str
    code: str = ""

    def __str__(self) -> str:
        return f"{self.where}:{self.column or 1}: note: {self.message}"
