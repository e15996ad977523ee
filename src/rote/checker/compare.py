"""What differs between two calls with the same arguments: none of it can be in a graph."""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import CodeType
from typing import Any, NamedTuple, cast

from ..base import Site
from ..hazards import rules
from ..hazards.rules import Rule, Severity
from ..runtime.autograd.graph import line_that_advances, line_that_calls, line_that_changes
from ..runtime.capture import HostRandom
from ..runtime.engine import NEXT
from ..runtime.objects import TensorMark, mark
from ..runtime.operators import short
from ..runtime.program import Number, Operand
from ..runtime.state import ATTRIBUTE, LENGTH, Difference, Entry, Snapshot, same, show
from .differing import differences
from .fake import is_module_dict
from .surroundings import AGAIN
from .trial import CodePlace, ShapedTensor, TracedOperation, TrialNotes

SHOWN = 24
"""Differences of the state that are reported."""

PLACES = 256
"""Operations whose operands differ of which the place is asked for."""

EXPLAINING = frozenset({"RT201", "RT205", "RT212", "RT413"})
"""Rules whose findings explain why operands differ."""

COUNTING = frozenset({"RT411"})
"""Rules whose findings explain why operands of one operation differ, at any line."""

_OF_ARGUMENT = re.compile(r"(args|kwargs)\[[^]]+\]\.\w+")
"""An attribute of an object that is an argument."""

Trace = list[TracedOperation]


def state(
    notes: TrialNotes, before: Snapshot, after: Snapshot, codes: Iterable[CodeType], line: CodePlace
) -> None:
    """Slots that a call leaves with something else in them."""
    codes = list(codes)
    found = [each for each in differences(before, after, SHOWN) if not each.advanced]
    scheduler = next((each for each in found if each.scheduler is not None), None)
    if scheduler is not None:  # all else that changed may follow from it
        owner = scheduler.name.rpartition(".")[0]
        site = line_that_calls(owner, "step", codes)
        text = f"the call steps a {scheduler.scheduler}"
        notes.add(rules.SCHEDULER_INSIDE, text, evidence=_shown(scheduler), place=_place(site, line))
        return
    slots = _Slots(after, codes)
    tensors = _new_tensors(before, after)
    for entry in tensors:
        slot = slots.of(after.name_of(entry))
        rule = rules.SCALE_ON_SELF if is_module_dict(entry.container) else rules.TENSOR_ESCAPES
        text, severity = f"a tensor of the call is stored in {slot.name}", None
        if _OF_ARGUMENT.fullmatch(slot.name):
            rule, text, severity = rules.ARGUMENT_CHANGED, f"{text}; {AGAIN}", Severity.SPEED
        else:
            text += "; a replay stores nothing, and overwrites its memory"
        notes.add(
            slot.rule or rule, text, evidence=slot.name, severity=severity, place=_place(slot.site, line)
        )
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
        slot = slots.of(difference.name)
        text = f"{slot.name} is changed by every call, and by no replay"
        severity = None
        if difference.name in made_anew:
            text = f"{slot.name} is made anew with the same content by every call, which rote runs eagerly"
            severity = Severity.SPEED
        if slot.rule is not None:
            text += "; the default is one object for all calls"
        notes.add(
            slot.rule or rules.STATE_CHANGES,
            text,
            evidence=_shown(difference),
            severity=severity,
            place=_place(slot.site, line),
        )


class _Slot(NamedTuple):
    """A slot that changed: its name, the line that changes it, and its rule, if it lies in a default."""

    name: str
    site: Site | None
    rule: Rule | None


class _Slots:
    """Names slots as a user would: what lies in the default of a parameter by the parameter."""

    def __init__(self, after: Snapshot, codes: list[CodeType]) -> None:
        self._defaults = _defaults(after)
        self._codes = codes

    def of(self, name: str) -> _Slot:
        """The slot of a name that a walk gave."""
        for slot, (parameter, code) in self._defaults.items():
            if name.startswith(slot):
                name = parameter + name.removeprefix(slot)
                return _Slot(name, line_that_changes(name, [code]), rules.MUTABLE_DEFAULT)
        return _Slot(name, line_that_changes(name, self._codes), None)


def _defaults(after: Snapshot) -> dict[str, tuple[str, CodeType]]:
    """Slots of the defaults of functions, each with the parameter's name and the function's code."""
    found: dict[str, tuple[str, CodeType]] = {}
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
    """Slots with another list, tuple or dict than before, in which lies what lay there before."""
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


def _shown(difference: Difference) -> str:
    return f"was {difference.was}, is {difference.now}"


def iterators(
    notes: TrialNotes, moved: Iterable[Difference], codes: Iterable[CodeType], line: CodePlace
) -> None:
    """Iterators that the call advances."""
    codes = list(codes)
    for each in moved:
        text = f"{each.name} is advanced by every call, and by no replay"
        place = _place(line_that_advances(each.name, codes), line)
        notes.add(
            rules.STATE_CHANGES, text, evidence=f"was {each.was}, is {each.now}", place=place, remedy=NEXT
        )


def random_numbers(
    notes: TrialNotes,
    states: tuple[HostRandom, HostRandom],
    drawn: dict[str, list[CodePlace]],
    line: CodePlace,
) -> None:
    """Python's or numpy's generators were used."""
    before, after = states
    for used, module in (
        (before.python != after.python, "random"),
        (before.array != after.array, "numpy.random"),
    ):
        if used:
            text = f"a number is drawn from {module}; replays use the first one for ever"
            for place in drawn.get(module, [line]):
                notes.add(rules.HOST_RANDOM, text, place=place)


def results(notes: TrialNotes, earlier: list[Any], later: list[Any], line: CodePlace) -> None:
    """Plain values in the result."""
    for was, now in zip(earlier, later, strict=False):
        if was != now and not (was != was and now != now):
            text = "a plain value in the result differs between two calls with the same arguments"
            notes.add(rules.OUTPUT_DIFFERS, text, evidence=f"was {was!r}, is {now!r}", place=line)
            return


def differing(earlier: Trace, later: Trace) -> list[int]:
    """Positions of operations that differ: the first one, and those after it that get other plain operands.

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
    """Whether two operands are the same but for plain values in them."""
    if isinstance(was, ShapedTensor):
        return was == now
    if type(was) is not tuple or type(now) is not tuple:
        return True
    return len(was) == len(now) and all(_plain_only(a, b) for a, b in zip(was, now, strict=True))


def traces(
    notes: TrialNotes, earlier: Trace, later: Trace, index: int, place: CodePlace, explained: bool
) -> None:
    """Operations or their plain operands differ from call to call."""
    was = earlier[index] if index < len(earlier) else TracedOperation("the end of the call")
    now = later[index] if index < len(later) else TracedOperation("the end of the call")
    if was.name == now.name:
        text = f"{short(was.name)} gets another plain operand in every call; a graph keeps the first"
        pairs = _pairs(was.every_operand, now.every_operand)
        differing = [f"{_text(a)} became {_text(b)}" for a, b in pairs if a != b]
        notes.add(rules.OPERAND_DIFFERS, text, evidence="; ".join(differing[:2]), place=place)
    elif not explained:
        text = "other operations run in every call; a graph repeats those of one"
        notes.add(
            rules.OPERATIONS_DIFFER, text, evidence=f"{short(was.name)} became {short(now.name)}", place=place
        )


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


def _place(site: Site | None, line: CodePlace) -> CodePlace:
    return CodePlace(site, 0, ()) if site is not None else line
