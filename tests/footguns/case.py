"""What a case is: a small program that graphs callables with ``wrap`` and yields all that its user sees."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import torch

from rote.base.location import Site

Wrap = Callable[[Callable[..., Any]], Any]
Program = Callable[[Wrap, torch.device], Iterator[Any]]

MARKER = re.compile(r"#.*?\b(RT\d{3}(?: and RT\d{3})*)(?: on (host|cuda))?")


class Kind(Enum):
    """What came of a case."""

    WRONG = "wrong"
    """A value differs from the plain callable's and nothing was raised: silently wrong."""
    REFUSED = "refused"
    """An exception the plain program does not raise."""
    RIGHT = "right"
    """Every value is that of the plain callable."""


class Marker(NamedTuple):
    """A reason that the report has to give, and the line it has to name."""

    code: str
    where: str
    backend: str | None


@dataclass(frozen=True)
class Case:
    """One footgun.

    A line of the program that ends in a comment with a code (``# RT204``) states that rote's report has to
    give this reason with this line, as a reason or as an island; ``# RT123 on cuda`` states it for one
    backend. The words ``stops`` and ``wrong`` in a comment are labels for ``tests/corpus``.

    Attributes:
        program: Takes ``wrap`` and the device, yields what the user sees; the first line of its docstring is
            the case's title.
        by_hand: What a graph captured by hand makes of it: how dangerous the footgun is. Tested on the host,
            whose imitation of CUDA graphs is close but refuses less; the table has the GPU's answer.
        replays: Whether rote answers the late calls from a recording: True, False, or None
            where both are right.
        broken: Why rote fails the case today; None if it passes.
    """

    program: Program
    by_hand: Kind
    replays: bool | None = True
    broken: str | None = None

    @property
    def name(self) -> str:
        """The program's name in words."""
        return self.program.__name__.replace("_", " ")

    @property
    def group(self) -> str:
        """The module the program is in."""
        return self.program.__module__.rpartition(".")[2]

    @property
    def title(self) -> str:
        """What happens, in one sentence."""
        return (inspect.getdoc(self.program) or "").partition("\n")[0]

    def markers(self) -> list[Marker]:
        """The reasons stated beside the program's lines."""
        lines, start = inspect.getsourcelines(self.program)
        file = inspect.getsourcefile(self.program) or ""
        return [
            Marker(code, str(Site(file, number, "")), found.group(2))
            for number, line in enumerate(lines, start)
            for found in MARKER.finditer(line)
            for code in found.group(1).split(" and ")
        ]


def case(
    by_hand: Kind, *, replays: bool | str | None = True, broken: str | None = None
) -> Callable[[Program], Case]:
    """Make a program a :class:`Case`."""
    return lambda program: Case(program, by_hand, replays, broken)


def attempt(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a call returns, or the exception it raises."""
    try:
        return function(*args, **kwargs)
    except (Exception, KeyboardInterrupt) as error:
        return error.with_traceback(None)


def full(value: float, device: torch.device, size: int = 4) -> torch.Tensor:
    """Elements of one value."""
    return torch.full((size,), float(value), device=device)


def ramp(value: float, device: torch.device, *shape: int) -> torch.Tensor:
    """Distinct elements, from ``value`` on; (2, 3) unless told."""
    shape = shape or (2, 3)
    return torch.arange(torch.Size(shape).numel(), device=device, dtype=torch.float32).view(shape) + value
