"""What lies in a directory of plans, for people: listed, checked, and cleared away. It needs no GPU."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from .directory import KEY, PlanDirectory
from .folder import CERTIFICATE, CODE, FACTS, KeptFile, PlanError, PlanFolder, unseal
from .form import read
from .here import Sources, around, difference
from .shelf import CERTIFICATE_ENDING, CODE_ENDING, MOST_CERTIFICATE, MOST_CODE
from .store import ENDING, MOST_BYTES, PlanFile

DAY_S = 86_400.0


@dataclass(frozen=True)
class PlanEntry:
    """A file of a directory.

    Attributes:
        days: How long ago it was written.
        plan: What it holds, if those are facts that can be read.
        fault: Why it cannot be read; empty if it can.
    """

    name: str
    nbytes: int
    days: float
    plan: PlanFile | None = None
    fault: str = ""


def opened(path: str) -> tuple[PlanDirectory, dict[str, PlanFolder]]:
    """A directory that is there, and its folders, by what stands before the names of their files.

    Raises:
        PlanError: It is not, or cannot be opened.
    """
    found = PlanDirectory(path, make=False)
    if found.folder is None:
        raise PlanError("; ".join(found.failures))
    return found, {"": found.folder, **({"code/": found.shelf.folder} if found.shelf is not None else {})}


def entries(path: str) -> list[PlanEntry]:
    """The files of a directory, facts first, those in ``code`` with that before their names.

    Raises:
        PlanError: The directory cannot be opened.
    """
    folders = opened(path)[1].items()
    files = [(prefix, folder, each) for prefix, folder in folders for each in folder.places()]
    return [_entry(prefix, folder, each) for prefix, folder, each in files if prefix + each.name != KEY]


def _entry(prefix: str, folder: PlanFolder, place: KeptFile) -> PlanEntry:
    days = max(time.time() - place.changed, 0.0) / DAY_S
    plan, fault = None, ""
    try:
        plan = _read(folder, place)
    except PlanError as error:
        fault = str(error)
    return PlanEntry(prefix + place.name, place.nbytes, days, plan, fault)


def _read(folder: PlanFolder, place: KeptFile) -> PlanFile | None:
    """The facts in a file; None where there are none.

    Raises:
        PlanError: The file is not whole, or none of a plan.
    """
    kinds = {
        ENDING: (FACTS, MOST_BYTES),
        CODE_ENDING: (CODE, MOST_CODE),
        CERTIFICATE_ENDING: (CERTIFICATE, MOST_CERTIFICATE),
    }
    for ending, (kind, most) in kinds.items():
        if place.name.endswith(ending):
            payload = unseal(kind, folder.read(place.name, most) or b"")
            return read(PlanFile, payload) if kind == FACTS else None
    raise PlanError("it is none of rote's files")


def check(path: str) -> Iterator[tuple[str, str]]:
    """What of a directory would not be used here, as pairs of a name and the reason.

    Options are those of each callable, so they are left out; so is the device where it is a GPU, which is not
    looked for.

    Raises:
        PlanError: The directory cannot be opened.
    """
    found, _ = opened(path)
    yield from [(path, failure) for failure in found.failures]
    if found.shelf is not None and (why := found.shelf.copied()):
        yield path, why
    sources, here = Sources(), around({})
    now = {name: here[name] for name in ("rote", "torch", "Python")}
    for each in entries(path):
        if each.fault:
            yield each.name, each.fault
        elif each.plan is not None:
            stale = difference(each.plan.around, now) or sources.difference(each.plan.code)
            if stale:
                yield each.name, f"{each.plan.callable} {each.plan.facts.key}: stale, {stale}"


def prune(path: str, *, older: float, all_stale: bool) -> list[str]:
    """Remove what cannot be read, was never finished or is older than so many days; returns the names.

    Args:
        older: Days.
        all_stale: Remove what would not be used here, too.

    Raises:
        PlanError: The directory cannot be opened, or a file cannot be removed.
    """
    _, folders = opened(path)
    stale = {name for name, _ in check(path)} if all_stale else set[str]()
    gone = [each.name for each in entries(path) if each.fault or each.days > older or each.name in stale]
    gone = [name for name in gone if name.endswith((ENDING, CODE_ENDING, CERTIFICATE_ENDING))]
    gone += folders[""].leftovers()
    for name in gone:
        prefix = name[: name.rfind("/") + 1]
        folders[prefix].remove(name.removeprefix(prefix))
    return gone
