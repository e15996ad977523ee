"""Differences between two calls with the same arguments: a graph can hold none of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from types import CodeType
from typing import Any, cast

from ..base import Site
from ..hazards import rules
from ..hazards.rules import Rule, Severity
from ..runtime.autograd.graph import line_that_advances, line_that_calls, line_that_changes
from ..runtime.engine import NEXT
from ..runtime.numbers import HostRandom
from ..runtime.objects import TensorMark, mark
from ..runtime.operators import short
from ..runtime.program import Number, Operand
from ..runtime.state import (
    ATTRIBUTE,
    DEFINED,
    LENGTH,
    MISSING,
    Difference,
    Entry,
    Snapshot,
    difference_in,
    read,
    same,
    show,
)
from .fake import is_module_dict
from .kept import KeptTensor
from .surroundings import AGAIN
from .trial import CodePlace, ShapedTensor, TracedOperation, TrialNotes

SHOWN = 24
"""Differences of the state that are reported."""

PLACES = 256
"""Operations with differing operands whose places are looked up."""

EXPLAINING = frozenset({"RT201", "RT205", "RT212", "RT413"})
"""Rules whose findings explain why operands differ."""

COUNTING = frozenset({"RT411"})
"""Rules whose findings explain why operands of one operation differ, at any line."""

_OF_ARGUMENT = re.compile(r"(args|kwargs)\[[^]]+\]\.\w+")
"""An attribute of an object that is an argument."""

Trace = list[TracedOperation]
Defaults = dict[str, tuple[str, CodeType]]
_END = TracedOperation("the end of the call")


class Comparison:
    """Notes what differs between two calls, at the line of their code that changes it or else at ``line``."""

    def __init__(self, notes: TrialNotes, codes: list[CodeType], line: CodePlace) -> None:
        self._notes = notes
        self._codes = codes
        self._line = line

    def _add(
        self,
        rule: Rule,
        text: str,
        evidence: str,
        site: Site | None = None,
        severity: Severity | None = None,
        remedy: str = "",
    ) -> None:
        place = CodePlace(site, 0, ()) if site is not None else self._line
        self._notes.add(rule, text, evidence=evidence, severity=severity, remedy=remedy, place=place)

    def state(self, before: Snapshot, after: Snapshot) -> None:
        """Slots that the call changes."""
        found = [each for each in differences(before, after, SHOWN) if not each.advanced]
        scheduler = next((each for each in found if each.scheduler is not None), None)
        if scheduler is not None:  # all other changes may follow from its step
            site = line_that_calls(scheduler.name.rpartition(".")[0], "step", self._codes)
            text = f"the call steps a {scheduler.scheduler}"
            self._add(rules.SCHEDULER_INSIDE, text, _shown(scheduler), site)
            return
        defaults = _defaults(after)
        tensors = _new_tensors(before, after)
        for entry in tensors:
            name, site, of_default = self._slot(after.name_of(entry), defaults)
            rule = rules.SCALE_ON_SELF if is_module_dict(entry.container) else rules.TENSOR_ESCAPES
            text, severity = f"a tensor of the call is stored in {name}", None
            if _OF_ARGUMENT.fullmatch(name):
                rule, text, severity = rules.ARGUMENT_CHANGED, f"{text}; {AGAIN}", Severity.SPEED
            else:
                text += "; a replay stores nothing, and overwrites its memory"
            self._add(of_default or rule, text, name, site, severity)
        names = {after.name_of(entry) for entry in tensors}
        made_anew = _made_anew(before, after)
        changed = {difference.name for difference in found}
        for difference in found:
            if difference.name in names or "a tensor at" in difference.now:
                continue
            if tensors and "(" in difference.name:  # the length of what a tensor was put into
                continue
            owner = difference.name.removesuffix(" (order)")
            if owner != difference.name and any(name.startswith(f"{owner}[") for name in changed):
                continue  # it has more items, so they have another order
            name, site, of_default = self._slot(difference.name, defaults)
            text, severity = f"{name} is changed by every call, and by no replay", None
            if difference.name in made_anew:
                text = f"{name} is made anew with the same content by every call, which rote runs eagerly"
                severity = Severity.SPEED
            if of_default is not None:
                text += "; the default is one object for all calls"
            self._add(of_default or rules.STATE_CHANGES, text, _shown(difference), site, severity)

    def _slot(self, name: str, defaults: Defaults) -> tuple[str, Site | None, Rule | None]:
        """A slot's name in the user's terms, the line that changes it, and its rule if it is in a default."""
        for slot, (parameter, code) in defaults.items():
            if name.startswith(slot):
                name = parameter + name.removeprefix(slot)
                return name, line_that_changes(name, [code]), rules.MUTABLE_DEFAULT
        return name, line_that_changes(name, self._codes), None

    def iterators(self, moved: Iterable[Difference]) -> None:
        """Iterators that the call advances."""
        for each in moved:
            text = f"{each.name} is advanced by every call, and by no replay"
            site = line_that_advances(each.name, self._codes)
            self._add(rules.STATE_CHANGES, text, _shown(each), site, remedy=NEXT)

    def kept(self, tensors: Iterable[KeptTensor]) -> None:
        """Tensors that only the first call makes."""
        for each in islice(tensors, SHOWN):
            site = line_that_changes(each.name, self._codes)
            self._add(rules.LAZY_STATE, each.text, each.evidence, site, remedy=each.remedy)

    def random_numbers(
        self, states: tuple[HostRandom, HostRandom], drawn: dict[str, list[CodePlace]]
    ) -> None:
        """Draws from the generators of Python and numpy."""
        before, after = states
        used = {"random": before.python != after.python, "numpy.random": before.array != after.array}
        for module in (module for module, draws in used.items() if draws):
            text = f"a number is drawn from {module}; replays use the first one for ever"
            for place in drawn.get(module, [self._line]):
                self._notes.add(rules.HOST_RANDOM, text, place=place)

    def results(self, earlier: list[Any], later: list[Any]) -> None:
        """Plain values in the result."""
        for was, now in zip(earlier, later, strict=False):
            if was != now and not (was != was and now != now):
                text = "a plain value in the result differs between two calls with the same arguments"
                self._add(rules.OUTPUT_DIFFERS, text, f"was {was!r}, is {now!r}")
                return

    def traces(
        self, earlier: Trace, later: Trace, index: int, place: CodePlace | None, explained: bool
    ) -> None:
        """An operation that differs, or its plain operands."""
        was = earlier[index] if index < len(earlier) else _END
        now = later[index] if index < len(later) else _END
        place = place or self._line
        if was.name == now.name:
            text = f"{short(was.name)} gets another plain operand in every call; a graph keeps the first"
            pairs = _pairs(was.every_operand, now.every_operand)
            differing = [f"{_text(a)} became {_text(b)}" for a, b in pairs if a != b]
            self._notes.add(rules.OPERAND_DIFFERS, text, evidence="; ".join(differing[:2]), place=place)
        elif not explained:
            text = "other operations run in every call; a graph repeats those of one"
            evidence = f"{short(was.name)} became {short(now.name)}"
            self._notes.add(rules.OPERATIONS_DIFFER, text, evidence=evidence, place=place)


def differences(before: Snapshot, after: Snapshot, limit: int = 8) -> list[Difference]:
    """The slots whose content differs between two walks."""
    found: list[Difference] = []
    for address, entry in before.entries.items():
        later = after.entries.get(address)
        if later is not None and (entry.value is later.value or same(entry.value, later.value)):
            continue
        if later is not None:
            found.append(difference_in(after, entry, later, before.name_of(entry)))
        else:
            now = read(entry)
            if now is MISSING or (entry.kind == DEFINED and not same(entry.value, now)):
                found.append(Difference(before.name_of(entry), show(entry.value), show(now)))
        if len(found) >= limit:
            return found
    for address, entry in after.entries.items():
        if address not in before.entries and (LENGTH, address[1], None) in before.entries:
            found.append(Difference(after.name_of(entry), "absent", show(entry.value)))
            if len(found) >= limit:
                break
    return sorted(found, key=lambda difference: "(" in difference.name)


def _shown(difference: Difference) -> str:
    return f"was {difference.was}, is {difference.now}"


def _defaults(after: Snapshot) -> Defaults:
    """Slots of the defaults of functions, each with the parameter's name and the function's code."""
    found: Defaults = {}
    for entry in after.entries.values():
        if entry.kind != ATTRIBUTE or entry.key not in ("__defaults__", "__kwdefaults__"):
            continue
        code: CodeType = entry.container.__code__
        slot = after.name_of(entry)
        if entry.key == "__kwdefaults__":
            found.update({f"{slot}[{name!r}]": (name, code) for name in entry.container.__kwdefaults__})
        else:
            last = code.co_argcount - len(entry.container.__defaults__)
            names = code.co_varnames[last : code.co_argcount]
            found.update({f"{slot}[{number}]": (name, code) for number, name in enumerate(names)})
    return found


def _new_tensors(before: Snapshot, after: Snapshot) -> list[Entry]:
    """Slots that hold another tensor than before."""
    found: list[Entry] = []
    for address, entry in after.entries.items():
        if not isinstance(entry.value, TensorMark) or entry.kind == LENGTH:
            continue
        was = before.entries.get(address)
        if was is None and (LENGTH, address[1], None) not in before.entries:
            continue
        if was is None or was.value != entry.value:
            found.append(entry)
    return found[:SHOWN]


def _made_anew(before: Snapshot, after: Snapshot) -> set[str]:
    """Slots with another list, tuple or dict than before, with the same content."""
    found: set[str] = set()
    for address, entry in before.entries.items():
        later = after.entries.get(address)
        if later is not None and later.value is not entry.value and _same_content(entry.value, later.value):
            found.add(before.name_of(entry))
    return found


def _same_content(was: Any, now: Any) -> bool:
    if type(was) is not type(now) or not isinstance(was, (list, tuple, dict)):
        return False
    if isinstance(was, dict):
        others = cast("dict[Any, Any]", now)
        return list(was) == list(others) and _same_content(list(was.values()), list(others.values()))
    pairs = zip(cast("list[Any]", was), cast("list[Any]", now), strict=False)
    return len(was) == len(now) and all(same(mark(a), mark(b)) or _same_content(a, b) for a, b in pairs)


def differing(earlier: Trace, later: Trace) -> list[int]:
    """Positions of operations that differ: the first one, and later ones that get other plain operands.

    What comes after an operation of another kind, or gets tensors of other shapes, follows from the first.
    """
    if earlier == later:
        return []
    found: list[int] = []
    for index, (was, now) in enumerate(zip(earlier, later, strict=False)):
        if was == now:
            continue
        if not found or (was.name == now.name and _plain_only(was.every_operand, now.every_operand)):
            found.append(index)
        if was.name != now.name or len(found) >= PLACES:
            break
    return found or [min(len(earlier), len(later))]


def _plain_only(was: Operand, now: Operand) -> bool:
    """Whether two operands differ in nothing but plain values."""
    if isinstance(was, ShapedTensor):
        return was == now
    if type(was) is not tuple or type(now) is not tuple:
        return True
    return len(was) == len(now) and all(_plain_only(a, b) for a, b in zip(was, now, strict=True))


def _pairs(was: Operand, now: Operand) -> Iterable[tuple[Operand, Operand]]:
    """Operands in pairs, lists and tensors opened."""
    opened = type(was) in (tuple, ShapedTensor) and type(now) is type(was)
    if opened and len(was) == len(now):
        for one, other in zip(was, now, strict=True):
            yield from _pairs(one, other)
    else:
        yield was, now


def _text(operand: Operand) -> str:
    return show(operand.value if isinstance(operand, Number) else operand)
