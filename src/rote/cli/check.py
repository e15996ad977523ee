"""``rote check``: what cannot be captured, found without a GPU."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from ..base.errors import MisuseError
from ..checking.check import LIMIT_S, check_work
from ..hazards import baseline
from ..hazards.finding import Finding, Remark
from ..hazards.findings import Findings
from ..hazards.ignores import remarks_of_scan, silenced, without_ignored
from ..hazards.scan import scanned
from ..hazards.scan.files import python_files
from .failures import UNABLE, told
from .fixing import offer_files, offer_found
from .target import load


def check(
    target: Annotated[
        list[str],
        typer.Argument(help="file.py:function or package.module:function; with --static files and folders."),
    ],
    real: Annotated[
        bool, typer.Option("--real", help="Run on real CPU tensors, where branches depend on values.")
    ] = False,
    static: Annotated[bool, typer.Option("--static", help="Only read the source.")] = False,
    fix: Annotated[
        bool,
        typer.Option("--fix", help="Show what can be fixed as a diff, ask, write it, and check again."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --fix: do not ask.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write the findings there as JSON.")] = None,
    sarif: Annotated[Path | None, typer.Option(help="Write the findings there as SARIF.")] = None,
    known: Annotated[
        Path | None, typer.Option("--baseline", help="Report only what this file does not know.")
    ] = None,
    write_baseline: Annotated[
        bool, typer.Option("--write-baseline", help="Write the findings to the baseline, and accept them.")
    ] = False,
    arg: Annotated[list[str] | None, typer.Option(help="name=value, an argument of the target.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that a target may take.")] = LIMIT_S,
    remedies: Annotated[bool, typer.Option(help="Show source, evidence and remedy.")] = True,
) -> None:
    """Find everything in a callable that a CUDA graph cannot hold.

    The exit status is 1 if there are errors, and 2 if the check could not be made or ended early.
    """
    with told():
        if write_baseline and known is None:
            raise MisuseError("--write-baseline needs --baseline FILE")
        if static and real:
            raise MisuseError("--static only reads the source, --real runs it: give one of them")

        def made() -> list[Findings]:
            return (
                [_static(target)] if static else [_trial(name, arg or [], real, timeout) for name in target]
            )

        if fix and static:
            offer_files([Path(path) for path in target], agreed=yes)
        checked = made()
        if fix and not static:
            seen = _all(checked)
            new = seen if known is None or write_baseline else baseline.unknown(known, seen)
            if offer_found(new, target, agreed=yes):
                checked = made()
        found, remarks = _all(checked), _remarks(checked)
        if write_baseline and known is not None:
            baseline.write(known, found)
            typer.echo(f"{len(found)} findings written to {known}")
        if known is not None:
            if not any(findings.incomplete for findings in checked):
                read = python_files(map(Path, target)) if static else ()
                remarks += baseline.stale(known, found, [str(file) for file in read])
            found = baseline.unknown(known, found)
        reported = Findings(
            found,
            target=" ".join(target),
            incomplete="; ".join(findings.incomplete for findings in checked if findings.incomplete),
            operations=sum(findings.operations for findings in checked),
            printed=sum(findings.printed for findings in checked),
            remarks=remarks,
            silenced=(finding for findings in checked for finding in findings.silenced),
        )
        if json is not None:
            json.write_text(reported.to_json() + "\n")
        if sarif is not None:
            sarif.write_text(reported.to_sarif_json() + "\n")
    _show(reported, remedies)
    if reported.errors:
        raise typer.Exit(1)
    if reported.incomplete:
        raise typer.Exit(UNABLE)


def _all(checked: list[Findings]) -> list[Finding]:
    return [finding for findings in checked for finding in findings]


def _remarks(checked: list[Findings]) -> list[Remark]:
    """The remarks of all checks; a comment that one of them makes use of is in use."""
    used = {
        (each.where.file, each.where.line, each.code) for findings in checked for each in findings.silenced
    }
    said = {remark: None for findings in checked for remark in findings.remarks}
    return [each for each in said if (each.where.file, each.where.line, each.code) not in used]


def _static(paths: list[str]) -> Findings:
    found: list[Finding] = []
    remarks: list[Remark] = []
    for each in scanned(Path(path) for path in paths):
        found += each.findings
        remarks += remarks_of_scan(each.text, each.file, each.findings)
    hidden = silenced(found)
    return Findings(without_ignored(found), target=" ".join(paths), remarks=remarks, silenced=hidden)


def _trial(name: str, arguments: list[str], real: bool, limit_s: float) -> Findings:
    def build() -> tuple[object, tuple[object, ...], dict[str, object]]:
        made = load(name, arguments)
        return made.function, made.args, made.kwargs

    return check_work(build, target=name, real=real, limit_s=limit_s)  # pyright: ignore[reportArgumentType]


def _show(findings: Findings, remedies: bool) -> None:
    for finding in findings:
        typer.echo(str(finding))
        if remedies:
            for line in _details(finding):
                typer.echo(f"    {line}")
    for remark in findings.remarks:
        typer.echo(str(remark))
    if findings.printed:
        typer.echo(f"the target printed {findings.printed} characters, which are not shown", err=True)
    if findings.incomplete:
        typer.echo(f"rote: the check ended early: {findings.incomplete}", err=True)
    typer.echo(_summary(findings))


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
    ran = f" in {findings.operations} operations" if findings.operations else ""
    return f"{findings.target}: {', '.join(parts) or 'nothing found'}{ran}"
