"""What ``rote check --static --fix`` does: the changes as a diff, a question, and then the files."""

from __future__ import annotations

from pathlib import Path

import typer

from ..hazards.fix import fix, write


def offer(paths: list[Path], *, agreed: bool) -> None:
    """Show what can be fixed, and write it if the user agrees.

    Args:
        paths: Files and folders.
        agreed: The user has agreed already, and is not asked.

    Raises:
        MisuseError: There is no such path, or a file is not Python.
        EnvironmentError_: ``libcst`` is not installed.
    """
    fixes = fix(paths)
    if not fixes:
        typer.echo("nothing that can be fixed without a doubt")
        return
    for each in fixes:
        typer.echo(each.diff, nl=False)
    number = sum(len(each.findings) for each in fixes)
    files = "1 file" if len(fixes) == 1 else f"{len(fixes)} files"
    told = f"{number} {'fix' if number == 1 else 'fixes'} in {files}"
    if agreed or typer.confirm(f"Write {told}?"):
        written = write(fixes)
        typer.echo(f"{told} written" if written == len(fixes) else f"{written} of {len(fixes)} files written")
    else:
        typer.echo("nothing written")
