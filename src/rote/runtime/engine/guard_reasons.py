"""Why a call does not fit the recordings there are, or fits one that is not all graphs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import CodeType

from ...base import Site
from ...hazards import rules
from ...hazards.rules import Reason, reason
from ..autograd.graph import line_that_calls, line_that_reads
from ..capture import rate_reason
from ..recording import Recording
from ..state import Difference
from .steadiness import SHOWN
from .subject import Limits

FROZEN_OR_NOT = "Nothing has to be done if it is seldom: each way of freezing has a recording of its own."


def guard_reasons(
    recordings: list[Recording],
    codes: Collection[CodeType],
    site: Site | None,
    lines: Mapping[str, Site | None],
) -> list[Reason]:
    """Compare the state with that of the recording used last, or else of the last observation.

    Args:
        codes: Code that the callable was seen to run.
        lines: Where compiled code uses its inputs, by their names.
    """
    known = [recording for recording in recordings if recording.recorded] or recordings
    if not known:
        return []
    files = [code.co_filename for code in codes]
    if site is not None:
        files.append(site.file)
    found = known[0].explain()[:SHOWN]
    return [
        rate_reason(part, files, site) or _reason(part, codes, lines.get(part.name), site) for part in found
    ]


def island_reasons(recording: Recording) -> list[Reason]:
    """The islands and host reads of a recording, as reasons."""
    found: list[Reason] = []
    for part in (*recording.islands(), *recording.branches()):
        why = reason(rules.RULES[part.code], f"{part.operation} runs between two segments", part.site)
        if why not in found:
            found.append(why)
    return found


def strict_reasons(recording: Recording, limits: Limits) -> list[Reason]:
    """What strict mode has against a recording."""
    output = dict.fromkeys(recording.output()) if limits.silent else ()
    said = [reason(rules.OUTPUT, f"{each.what} writes output", each.site) for each in output]
    return island_reasons(recording) + said


def _reason(
    difference: Difference, codes: Collection[CodeType], used: Site | None, site: Site | None
) -> Reason:
    """A slot that differs, as a reason; ``used`` is the line that uses it, where compiled code tells."""
    if difference.moved and difference.key == "grad":
        line = line_that_calls("zero_grad", codes)
        return reason(rules.GRADIENT_MOVED, str(difference), line or difference.site)
    rule = rules.TENSOR_MOVED if difference.moved else rules.VALUE_CHANGED
    remedy = FROZEN_OR_NOT if difference.was.startswith("requires_grad=") else ""
    line = used or difference.site or line_that_reads(difference.name, codes) or site
    return reason(rule, str(difference), line, remedy)
