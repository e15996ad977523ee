"""The commands of the ``rote`` script, from their own help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from rote.cli.app import app


def sections() -> str:
    """A section for each command; a sentence if there is none."""
    group: Any = typer.main.get_command(app)
    found: dict[str, Any] = getattr(group, "commands", {})
    if not found:
        return "There is no command yet besides `rote --help` and `rote --version`."
    return "\n\n".join(_section(command, name) for name, command in _each(found))


def _each(found: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """All commands with their names, those of groups behind the group's."""
    for name, command in sorted(found.items()):
        inner: dict[str, Any] | None = getattr(command, "commands", None)
        if inner is None:
            yield f"{before}{name}", command
        else:
            yield from _each(inner, f"{before}{name} ")


def _section(command: Any, name: str) -> str:
    context = command.make_context(name, [], resilient_parsing=True)
    context.info_name = f"rote {name}"
    records = [record for param in command.get_params(context) if (record := param.get_help_record(context))]
    rows = "\n".join(f"- `{flag}`: {' '.join(text.split())}" for flag, text in records)
    help_text = "\n\n".join(
        " ".join(part.split()) for part in (command.help or "").replace("\b", "").split("\n\n")
    )
    return f"## {name}\n\n```text\n{command.get_usage(context)}\n```\n\n{help_text}\n\n{rows}"
