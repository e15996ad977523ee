"""What ``rote check --fix`` does: the changes as a diff, a question, and then the files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import typer

from ..base import MisuseError
from ..hazards.fix import Fix, fix, fix_found, write
from ..hazards.rules import Finding


def offer_files(paths: list[Path], *, agreed: bool) -> bool:
    """Show what can be fixed of what the source scan finds, and write it if the user agrees.

    Raises:
        MisuseError: There is no such path, a file is not Python, or nobody answers.
        EnvironmentError_: ``libcst`` is not installed.
    """
    return _offer(fix(paths), agreed)


def offer_found(findings: Iterable[Finding], targets: Iterable[str], *, agreed: bool) -> bool:
    """Show what can be fixed of what a trial run of targets found, and write it if the user agrees.

    Only files below the working directory and beside the targets are the user's own; those of installed
    packages are not touched wherever they lie. The result is whether a file was changed.

    Raises:
        MisuseError: Nobody answers.
        EnvironmentError_: ``libcst`` is not installed.
    """
    places = (target.rpartition(":")[0] for target in targets)
    folders = {Path.cwd(), *(Path(place).resolve().parent for place in places if place.endswith(".py"))}
    return _offer(fix_found(findings, folders), agreed)


def _offer(fixes: list[Fix], agreed: bool) -> bool:
    if not fixes:
        typer.echo("nothing that can be fixed without a doubt")
        return False
    for each in fixes:
        typer.echo(each.diff, nl=False)
    number = sum(len(each.findings) for each in fixes)
    files = "1 file" if len(fixes) == 1 else f"{len(fixes)} files"
    told = f"{number} {'fix' if number == 1 else 'fixes'} in {files}"
    if not agreed and not _agrees(told):
        typer.echo("nothing written")
        return False
    written = write(fixes)
    typer.echo(f"{told} written" if written == len(fixes) else f"{written} of {len(fixes)} files written")
    return written > 0


def _agrees(told: str) -> bool:
    try:
        return typer.confirm(f"Write {told}?")
    except typer.Abort as error:
        typer.echo()  # the question stands in a line of its own
        raise MisuseError("nothing was written, since nobody answered; --yes does not ask") from error
