"""Containers from outside that methods give back to instructions and functions of C that look into them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import rote

ROW = torch.arange(4.0)
FOUND: list[str] = []


class Asked(type):
    def __instancecheck__(cls, instance: object) -> Any:
        return FOUND


class Looks(metaclass=Asked):
    def __contains__(self, key: object) -> Any:
        return FOUND

    def __eq__(self, other: object) -> Any:
        return FOUND

    def __dir__(self) -> list[str]:
        return FOUND

    def keys(self) -> Sequence[str]:
        return FOUND

    def __getitem__(self, key: str) -> int:
        return 1

    __hash__ = None  # type: ignore[assignment]


def matched(value: Any) -> int:
    match value:
        case Looks():
            return 1
        case _:
            return 0


LOOKS: dict[str, Callable[[Any], int]] = {
    "in": lambda asked: (3 in asked) + 1, "equal": lambda asked: bool(asked == 3) + 1,
    "member": lambda asked: (3 in [asked]) + 1, "pair": lambda asked: ((asked, 1) == (3, 1)) + 1,
    "instance": lambda asked: isinstance(3, Looks) + 1, "class": lambda asked: matched(3) + 1,
    "names": lambda asked: len(dir(asked)) + 1, "merged": lambda asked: len({**asked}) + 1,
    "spread": lambda asked: (lambda **given: len(given))(**asked) + 1,
}  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", [*LOOKS])
def test_what_they_hold_is_a_condition(name: str) -> None:
    seen: list[list[Any]] = []
    for graphs in (True, False):
        asked, look = Looks(), LOOKS[name]
        FOUND.clear()

        def step(x: torch.Tensor, asked: Any = asked, look: Any = look) -> torch.Tensor:
            return x * look(asked)

        call: Any = rote.graph(step, keep=True) if graphs else step
        seen.append([])
        for turn in range(16):
            if turn in (6, 11):
                FOUND[:] = [] if FOUND else ["a"]
            seen[-1].append(call(ROW).tolist())
        assert not graphs or call.report().replayed >= 6
    assert seen[0] == seen[1]
