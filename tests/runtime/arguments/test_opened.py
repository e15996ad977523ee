"""The slots of a class, found without a look at all that the class has."""

from __future__ import annotations

import functools
from collections import deque
from types import MemberDescriptorType
from typing import Any, NamedTuple

import numpy
import torch
from hypothesis import given
from hypothesis import strategies as st

from rote.runtime.arguments.opened import slots_of


class Pair(NamedTuple):
    """Of C's tuples."""

    left: int
    right: int


def looked_for(kind: type) -> dict[str, Any]:
    """Each name of the class and its bases is looked at."""
    found: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        found.update(
            {
                name: slot
                for name, slot in vars(each).items()
                if type(slot) is MemberDescriptorType and name != "__dict__"
            }
        )
    return found


def derived(kind: type) -> set[type]:
    """A class and all that are derived from it by now."""
    return {kind}.union(*[derived(each) for each in type.__subclasses__(kind)])


def test_all_classes_that_there_are() -> None:
    kinds = derived(object) - {torch.Generator}
    assert {Pair, deque, numpy.ndarray, functools.partial, torch.Tensor} <= kinds and len(kinds) > 1000
    assert not [kind for kind in kinds if slots_of(kind) != looked_for(kind)]


SLOTS = st.one_of(
    st.none(), st.lists(st.sampled_from("abcd"), unique=True, max_size=3), st.just(["__dict__"])
)
BASES = st.sampled_from([object, dict, list, tuple, int, Exception, torch.nn.Module, deque])


@given(BASES, st.lists(SLOTS, min_size=1, max_size=4))
def test_classes_one_derived_from_the_other(base: type, chain: list[list[str] | None]) -> None:
    kind = base
    for number, slots in enumerate(chain):
        body: dict[str, Any] = {} if slots is None else {"__slots__": slots}
        try:
            kind = type(kind)(f"Class{number}", (kind,), body)
        except TypeError:  # a second dict, or slots where C has no room for them
            continue
        assert slots_of(kind) == looked_for(kind)
