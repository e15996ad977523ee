"""The commands of the ``rote`` script, from their own help."""

from __future__ import annotations

from typing import Any

import typer

from rote.cli.app import app


def sections() -> str:
    """A section for each command; a sentence if there is none."""
    group: Any = typer.main.get_command(app)
    found: dict[str, Any] = getattr(group, "commands", {})
    if not found:
        return "There is no command yet besides `rote --help` and `rote --version`."
    return "\n\n".join(_section(command, name) for name, command in sorted(found.items()))


def _section(command: Any, name: str) -> str:
    context = command.make_context(name, [], resilient_parsing=True)
    context.info_name = f"rote {name}"
    records = [record for param in command.get_params(context) if (record := param.get_help_record(context))]
    rows = "\n".join(f"- `{flag}`: {' '.join(text.split())}" for flag, text in records)
    help_text = "\n\n".join(
        " ".join(part.split()) for part in (command.help or "").replace("\b", "").split("\n\n")
    )
    return f"## {name}\n\n```text\n{command.get_usage(context)}\n```\n\n{help_text}\n\n{rows}"
