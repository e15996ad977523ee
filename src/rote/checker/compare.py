"""Differences between two calls with the same arguments: a graph can hold none of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from types import CodeType, FunctionType
from typing import Any, cast

import torch
from torch.optim.lr_scheduler import LRScheduler

from ..base import Site
from ..hazards import rules
from ..hazards.rules import Rule, Severity
from ..runtime.autograd.graph import line_that_changes
from ..runtime.engine import NEXT
from ..runtime.numbers import HostRandom
from ..runtime.objects import Position, mark
from ..runtime.operators import short
from ..runtime.program import Number, Operand
from ..runtime.reads.trace import SlotChange
from ..runtime.state import same, show
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

_DEFAULT = re.compile(r"^.*__(kw)?defaults__\[[^]]+\]")
"""The default of a parameter, as a part of its function."""

Trace = list[TracedOperation]
_END = TracedOperation("the end of the call")


class Comparison:
    """Notes what differs between two calls, at the line that changes it or else at ``line``."""

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

    def state(self, changes: list[SlotChange]) -> None:
        """What the call changes outside of itself."""
        found = changes[:SHOWN]
        stepped = next(
            (each for each in found if isinstance(next(iter(each.owners), None), LRScheduler)), None
        )
        if stepped is not None:  # all other changes may follow from its step
            text = f"the call steps a {type(stepped.owners[0]).__name__}"
            self._add(rules.SCHEDULER_INSIDE, text, _shown(stepped), stepped.site)
            return
        for each in found:
            if type(each.was) is Position:
                text = f"{each.name} is advanced by every call, and by no replay"
                self._add(rules.STATE_CHANGES, text, _shown(each), each.site, remedy=NEXT)
            elif isinstance(each.now, torch.Tensor):
                self._stored(each)
            else:
                self._changed(each)

    def _stored(self, each: SlotChange) -> None:
        """A tensor of the call lies in a slot."""
        name, of_default = _named(each)
        rule = rules.SCALE_ON_SELF if is_module_dict(each.container) else rules.TENSOR_ESCAPES
        text, severity = f"a tensor of the call is stored in {name}", None
        if _OF_ARGUMENT.fullmatch(name):
            rule, text, severity = rules.ARGUMENT_CHANGED, f"{text}; {AGAIN}", Severity.SPEED
        else:
            text += "; a replay stores nothing, and overwrites its memory"
        self._add(of_default or rule, text, name, self._site(each), severity)

    def _changed(self, each: SlotChange) -> None:
        """Something else lies in a slot."""
        name, of_default = _named(each)
        text, severity = f"{name} is changed by every call, and by no replay", None
        if _same_content(each.was, each.now):
            text = f"{name} is made anew with the same content by every call, which rote runs eagerly"
            severity = Severity.SPEED
        if of_default is not None:
            text += "; the default is one object for all calls"
        self._add(of_default or rules.STATE_CHANGES, text, _shown(each), self._site(each), severity)

    def _site(self, each: SlotChange) -> Site | None:
        return each.site or line_that_changes(each.name, self._codes)

    def kept(self, tensors: Iterable[KeptTensor]) -> None:
        """Tensors that only the first call makes."""
        for each in islice(tensors, SHOWN):
            self._add(rules.LAZY_STATE, each.text, each.evidence, each.site, remedy=each.remedy)

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


def _shown(change: SlotChange) -> str:
    return f"was {show(change.was)}, is {show(mark(change.now))}"


def _named(change: SlotChange) -> tuple[str, Rule | None]:
    """A slot's name in the user's terms, and its rule if it is in the default of a parameter."""
    for function in [owner for owner in change.owners if isinstance(owner, FunctionType)]:
        code, given = function.__code__, function.__defaults__ or ()
        names = code.co_varnames[code.co_argcount - len(given) : code.co_argcount]
        defaults = {**dict(zip(names, given, strict=True)), **(function.__kwdefaults__ or {})}
        for name, default in defaults.items():
            if any(default is owner for owner in change.owners):
                return _DEFAULT.sub(name, change.name), rules.MUTABLE_DEFAULT
    return change.name, None


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
