"""``rote explain``: a rule, why it matters, and what to write instead."""

from __future__ import annotations

from typing import Annotated

import typer

from ..base import MisuseError
from ..hazards.rules import RULES, Rule
from .output import told


def explain(code: Annotated[str, typer.Argument(help="The code of a rule, as in RT101.")]) -> None:
    """Explain a rule."""
    with told():
        rule = RULES.get(code.upper())
        if rule is None:
            near = sorted(RULES, key=lambda other: (other[:3] != code.upper()[:3], other))[:6]
            raise MisuseError(f"there is no rule {code!r}; there are {', '.join(near)} and others")
        typer.echo(_text(rule))


def _text(rule: Rule) -> str:
    """The rule as text for a terminal."""
    parts = rule.documentation
    lines = [
        f"{rule.code}: {rule.title}",
        f"{rule.severity.capitalize()} ({rule.topic.value}).",
        f"Found by {' and '.join(rule.finders)}.",
        "",
        parts.what,
    ]
    prose = {"Why": parts.why, "Limits": parts.limits, "Tried": parts.tried, "Not checked": parts.unchecked}
    for title, text in prose.items():
        lines += ["", f"{title}: {text}"] if text else []
    for title, code in (("Bad", parts.bad), ("Good", parts.good)):
        lines += ["", f"{title}:", *(f"    {line}" for line in code.splitlines())]
    return "\n".join([*lines, "", f"Instead: {parts.remedy}"])
