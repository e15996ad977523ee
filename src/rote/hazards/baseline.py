"""A file of known findings: a check reports what is new.

A finding is known by its rule, its file and its source line, not by its line number: a change elsewhere in
the file does not bring it back. The baseline counts equal findings, and silences as many.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Set
from pathlib import Path
from typing import Any, cast

from ..base import MisuseError, Site
from .rules import RULES, Finder, Finding, Remark

VERSION = 1
Key = tuple[str, str, str]


def write(path: Path, findings: Iterable[Finding]) -> None:
    """Write the findings as the known ones."""
    counted = sorted(Counter(_key(finding, path) for finding in findings).items())
    known = [{"code": c, "path": p, "source": s, "count": n} for (c, p, s), n in counted]
    path.write_text(json.dumps({"version": VERSION, "findings": known}, indent=2) + "\n")


def unknown(path: Path, findings: Iterable[Finding]) -> list[Finding]:
    """The findings that a baseline does not have.

    Raises:
        MisuseError: There is no such file, or it is no baseline.
    """
    return _compared(_read(path), path, findings)[0]


def stale(path: Path, findings: Iterable[Finding], scanned: Collection[str] = ()) -> list[Remark]:
    """The entries of a baseline that certainly silence nothing any more.

    Another target, or a branch that was not taken, may still have the finding. So an entry counts as stale
    only if its file or source line is gone, or if the source scan read its file (``scanned``) and would have
    found it.

    Raises:
        MisuseError: There is no such file, or it is no baseline.
    """
    entries = _read(path)
    left = _compared(entries, path, findings)[1]
    read = {str(Path(file).resolve()) for file in scanned}
    numbered = enumerate(path.read_text().splitlines(), 1)
    lines = [number for number, line in numbered if line.lstrip().startswith('"source":')]
    found: list[Remark] = []
    for number, key in enumerate(entries):
        why = _why_stale(key, path, read) if left[key] else ""
        if why:
            line = lines[number] if len(lines) == len(entries) else 1
            where, (code, file, _) = Site(str(path), line, ""), key
            found.append(Remark(where, 0, f"the entry for {code} in {file} silences nothing: {why}", code))
    return found


def _why_stale(key: Key, path: Path, read: Set[str]) -> str:
    code, shown, source = key
    file = path.resolve().parent / shown
    if ".." in Path(shown).parts or Path(shown).is_absolute() or not file.resolve().parent.is_dir():
        return ""  # the file does not lie below the baseline's folder
    if not file.is_file():
        return "there is no such file"
    if source not in (line.strip() for line in file.read_text(errors="replace").splitlines()):
        return "its source line is gone"
    rule = RULES.get(code)
    if rule is not None and Finder.SCAN in rule.found_by and str(file.resolve()) in read:
        return "the source scan does not find it any more"
    return ""


def _compared(
    known: Counter[Key], path: Path, findings: Iterable[Finding]
) -> tuple[list[Finding], Counter[Key]]:
    """The findings that a baseline does not have, and how many of each entry were not found."""
    left = known.copy()
    found: list[Finding] = []
    for finding in findings:
        key = _key(finding, path)
        if left[key] > 0:
            left[key] -= 1
        else:
            found.append(finding)
    return found, left


def _read(path: Path) -> Counter[Key]:
    try:
        content: Any = json.loads(path.read_text())
        if content["version"] != VERSION:
            raise MisuseError(f"{path} is a baseline of version {content['version']}, not {VERSION}")
        known = cast("list[dict[str, Any]]", content["findings"])
        return Counter({(each["code"], each["path"], each["source"]): int(each["count"]) for each in known})
    except FileNotFoundError as error:
        raise MisuseError(f"there is no baseline {path}; --write-baseline makes one") from error
    except (ValueError, KeyError, TypeError) as error:
        raise MisuseError(f"{path} is no baseline: {error}") from error


def _key(finding: Finding, path: Path) -> Key:
    """What a finding is known by; a path below the baseline's folder is relative to it."""
    file = Path(finding.where.file)
    try:
        shown = file.resolve().relative_to(path.resolve().parent).as_posix()
    except ValueError:
        shown = str(finding.where).rpartition(":")[0]
    return finding.code, shown, finding.source
