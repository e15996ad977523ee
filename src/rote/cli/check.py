"""``rote check``: find what cannot be captured, without a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from ..base import MisuseError
from ..checker import LIMIT_S, check_work
from ..hazards import Findings, baseline, remarks_of_scan, told_apart
from ..hazards.fix import Fix, fix_found
from ..hazards.fix import fix as fixes_of
from ..hazards.fix import write as write_fixes
from ..hazards.rules import Finding, Remark
from ..hazards.scan import python_files, scanned
from .output import HERE, UNABLE, check_places, told, write
from .targets import Arg, check_arguments, load


def check(
    target: Annotated[
        list[str],
        typer.Argument(help="file.py:function or package.module:function; with --static files and folders."),
    ],
    static: Annotated[bool, typer.Option("--static", help="Only read the source.")] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Show what can be fixed as a diff, ask, write it, and check again.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --fix: do not ask.")] = False,
    json: Annotated[
        Path | None, typer.Option(help="Write the findings there as JSON; - for here, and nothing else.")
    ] = None,
    sarif: Annotated[
        Path | None, typer.Option(help="Write the findings there as SARIF; - for here, and nothing else.")
    ] = None,
    known: Annotated[
        Path | None, typer.Option("--baseline", help="Report only what this file does not know.")
    ] = None,
    write_baseline: Annotated[
        bool, typer.Option("--write-baseline", help="Write the findings to the baseline, and accept them.")
    ] = False,
    arg: Arg = None,
    timeout: Annotated[float, typer.Option(help="Seconds that a target may take.")] = LIMIT_S,
    remedies: Annotated[bool, typer.Option(help="Show source, evidence and remedy.")] = True,
) -> None:
    """Find everything in a callable that a CUDA graph cannot hold.

    The exit status is 1 if there are errors, and 2 if the check could not be made or ended early.
    """
    quiet = HERE in (json, sarif)
    with told():
        if write_baseline and known is None:
            raise MisuseError("--write-baseline needs --baseline FILE")
        if quiet and (fix or json == sarif):
            raise MisuseError("- leaves room here for one of --json and --sarif, and for nothing else")
        check_places(json, sarif, known if write_baseline else None)

        def made() -> list[Findings]:
            if static:
                return [_static(target)]
            return [_trial(name, arg or [], timeout) for name in target]

        if fix and static:
            _offer(fixes_of([Path(path) for path in target]), yes)
        checked = made()
        if fix and not static:
            seen = _all(checked)
            new = seen if known is None or write_baseline else baseline.unknown(known, seen)
            if _offer_found(new, target, agreed=yes):
                checked = made()
        if write_baseline and known is not None:
            baseline.write(known, _all(checked))
            typer.echo(f"{len(_all(checked))} findings written to {known}", err=quiet)
        reported = _reported(target, checked, known, static)
        for place, text in ((json, reported.to_json), (sarif, reported.to_sarif_json)):
            if place is not None:
                write(text(), place)
    _tell(reported)
    if not quiet:
        _show(reported, remedies)
    if reported.errors:
        raise typer.Exit(1)
    if reported.incomplete:
        raise typer.Exit(UNABLE)


def _reported(target: list[str], checked: list[Findings], known: Path | None, static: bool) -> Findings:
    """The findings of all targets together, without those in the baseline."""
    found, remarks = _all(checked), _remarks(checked)
    ended_early = [findings.incomplete for findings in checked if findings.incomplete]
    if known is not None:
        if not ended_early:
            read = python_files(map(Path, target)) if static else ()
            remarks += baseline.stale(known, found, [str(file) for file in read])
        found = baseline.unknown(known, found)
    return Findings(
        found,
        target=" ".join(target),
        incomplete="; ".join(ended_early),
        operations=sum(findings.operations for findings in checked),
        printed=sum(findings.printed for findings in checked),
        remarks=remarks,
        silenced=(finding for findings in checked for finding in findings.silenced),
    )


def _all(checked: list[Findings]) -> list[Finding]:
    return [finding for findings in checked for finding in findings]


def _remarks(checked: list[Findings]) -> list[Remark]:
    """The remarks of all checks, without those on comments that another check makes use of."""
    used = {
        (each.where.file, each.where.line, each.code) for findings in checked for each in findings.silenced
    }
    said = {remark: None for findings in checked for remark in findings.remarks}
    return [each for each in said if (each.where.file, each.where.line, each.code) not in used]


def _static(paths: list[str]) -> Findings:
    for path in paths:
        file, colon, _ = path.rpartition(":")
        if colon and not Path(path).exists() and Path(file).exists():
            raise MisuseError(f"{path}: --static reads whole files and folders: {file}")
    found: list[Finding] = []
    remarks: list[Remark] = []
    unread: list[str] = []
    for each in scanned(map(Path, paths), lambda error: unread.append(str(error))):
        found += each.findings
        remarks += remarks_of_scan(each.text, each.file, each.findings)
    heard, silenced = told_apart(found)
    return Findings(
        heard, target=" ".join(paths), incomplete="; ".join(unread), remarks=remarks, silenced=silenced
    )


def _trial(name: str, arguments: list[str], limit_s: float) -> Findings:
    def build() -> tuple[object, tuple[object, ...], dict[str, object]]:
        made = load(name, arguments)
        check_arguments(made)
        return made.function, made.args, made.kwargs

    return check_work(build, target=name, limit_s=limit_s)  # pyright: ignore[reportArgumentType]


def _show(findings: Findings, remedies: bool) -> None:
    for finding in findings:
        typer.echo(str(finding))
        if remedies:
            for line in _details(finding):
                typer.echo(f"    {line}")
    for remark in findings.remarks:
        typer.echo(str(remark))
    typer.echo(_summary(findings))


def _tell(findings: Findings) -> None:
    """Say what is no finding, on the standard error stream."""
    if findings.printed:
        typer.echo(f"the target printed {findings.printed} characters, which are not shown", err=True)
    if findings.incomplete:
        typer.echo(f"rote: the check ended early: {findings.incomplete}", err=True)


def _details(finding: Finding) -> list[str]:
    lines = [finding.source] if finding.source else []
    if len(finding.path) > 1:
        lines.append("from " + ", ".join(str(site) for site in finding.path[:-1][-4:]))
    if finding.evidence:
        lines.append(f"evidence: {finding.evidence}")
    lines.append(f"instead: {finding.remedy}")
    return lines


def _summary(findings: Findings) -> str:
    counted = Counter(finding.severity for finding in findings)
    parts = [f"{number} {severity}" for severity, number in counted.items()]
    number = findings.operations
    ran = f" in {number} operation{'s' * (number != 1)}" if number else ""
    early = " before it ended early" if findings.incomplete else ""
    return f"{findings.target}: {', '.join(parts) or 'nothing found'}{ran}{early}"


# ------------------------------------------------------------------ --fix


def _offer_found(findings: Iterable[Finding], targets: Iterable[str], *, agreed: bool) -> bool:
    """Show fixes for the findings of trials, and write them if the user agrees; True if a file was changed.

    Only files below the working directory and beside the targets are the user's own. Files of installed
    packages are never changed.
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
    written = write_fixes(fixes)
    typer.echo(f"{told} written" if written == len(fixes) else f"{written} of {len(fixes)} files written")
    return written > 0


def _agrees(told: str) -> bool:
    try:
        return typer.confirm(f"Write {told}?")
    except typer.Abort as error:
        typer.echo()  # the question stands in a line of its own
        raise MisuseError("nothing was written, since nobody answered; --yes does not ask") from error
