"""A guard asks the slot first that differed last: one question, while that differs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.runtime.reads.noting import noted

from rote.runtime.conditions.guards import Guard
from rote.runtime.conditions.quick import QuickGuard
from rote.runtime.state import ExecutedCode, look_again


class Settings:
    """Values of several kinds, all of which a call reads."""

    def __init__(self) -> None:
        self.rate, self.groups = 0.5, [{"lr": 0.1}, {"lr": 0.2}]
        self.names, self.mean = {"a", "b"}, torch.zeros(2)


def read(settings: Settings) -> Any:
    found = [group["lr"] for group in settings.groups]
    return settings.rate, found, len(settings.groups), "a" in settings.names, settings.mean


def guard_of(settings: Settings) -> Guard:
    again = look_again(noted(lambda: read(settings)).reads, ExecutedCode(), {})
    assert not again.changed
    return Guard(again.snapshot, {}, {}, [], {}, set())


def set_rate(settings: Settings, anew: bool) -> None:
    settings.rate = 0.75 if anew else 0.5


def set_lr(settings: Settings, anew: bool) -> None:
    settings.groups[1]["lr"] = 0.3 if anew else 0.2


def add_group(settings: Settings, anew: bool) -> None:
    settings.groups[2:] = [{"lr": 0.4}] if anew else []


def drop_name(settings: Settings, anew: bool) -> None:
    settings.names.discard("a") if anew else settings.names.add("a")


CHANGES = [set_rate, set_lr, add_group, drop_name]


@pytest.mark.parametrize("change", CHANGES)
def test_one_question_says_that_it_does_not_hold(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings()
    guard = guard_of(settings)
    assert guard.holds() and not guard.still_differs()
    change(settings, True)
    assert not guard.holds() and guard.still_differs()
    monkeypatch.setattr(guard, "conditions", [])  # nothing else is asked
    assert not guard.holds() and not QuickGuard(guard).holds()
    change(settings, False)
    assert not guard.still_differs() and guard.holds()


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("one", CHANGES)
@pytest.mark.parametrize("other", CHANGES)
def test_what_no_longer_differs_says_nothing_of_the_rest(one: Any, other: Any, quick: bool) -> None:
    settings = Settings()
    guard: Any = QuickGuard(guard_of(settings)) if quick else guard_of(settings)
    for first, second in [(0, 0), (1, 0), (0, 0), (0, 1), (1, 1), (0, 1), (0, 0), (1, 0), (0, 0)]:
        one(settings, bool(first))
        if other is not one:
            other(settings, bool(second))
        assert guard.holds() is (not first and not (second and other is not one))


@pytest.mark.parametrize("change", [set_rate, set_lr])
def test_where_nothing_was_replaced_nothing_is_looked_for(
    change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings()
    guard = guard_of(settings)
    change(settings, True)
    assert not guard.holds()
    looked = list[int]()
    differing = Guard._differing
    monkeypatch.setattr(Guard, "_differing", lambda self: looked.append(1) or differing(self))
    assert guard.moved() is None and not looked
    change(settings, False)
    assert guard.holds()


def test_what_lies_in_the_place_of_another_is_found_though_the_other_differs() -> None:
    """The slot that differed last belongs to an object that is gone."""
    home = {"settings": Settings()}
    again = look_again(noted(lambda: read(home["settings"])).reads, ExecutedCode(), {})
    guard, old = Guard(again.snapshot, {}, {}, [], {}, set()), home["settings"]
    set_lr(old, True)
    assert not guard.holds() and guard.still_differs()
    home["settings"] = Settings()
    home["settings"].mean = old.mean
    assert not guard.holds()
    moved = guard.moved()
    assert moved is not None and moved.holds()
