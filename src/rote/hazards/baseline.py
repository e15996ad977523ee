"""A file of known findings: a check reports what is new.

A finding is known by its rule, its file and its source line, not by the line's number, so that a change
elsewhere in the file does not bring it back. As many are silenced as the file counts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from ..base.errors import MisuseError
from .finding import Finding

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
    left = _read(path)
    found: list[Finding] = []
    for finding in findings:
        key = _key(finding, path)
        if left[key] > 0:
            left[key] -= 1
        else:
            found.append(finding)
    return found


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
    """Paths are kept relative to the baseline's folder, where they lie below it."""
    file = Path(finding.where.file)
    try:
        shown = file.resolve().relative_to(path.resolve().parent).as_posix()
    except ValueError:
        shown = str(finding.where).rpartition(":")[0]
    return finding.code, shown, finding.source
