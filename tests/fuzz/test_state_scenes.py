"""The scenes about state themselves: valid, printable, the same for one seed, deterministic without rote."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from string import Template
from typing import Any

import pytest

pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, Phase, given, seed, settings

from .pieces import PIECES, Piece
from .play import check_graph, check_text
from .state import CALL, HOMES, NUMBERS, TENSORS, Placed, StateScene, state_scenes
from .world import SURROUNDINGS, World, seed_everything

SCENES = 60


def drawn(number: int, used: Callable[[StateScene], object]) -> None:
    """Scenes of one seed, each handed to a function."""

    @seed(number)
    @settings(
        max_examples=SCENES, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(state_scenes())
    def draw(scene: StateScene) -> None:
        used(scene)

    draw()


def program(text: str) -> Callable[[World], None]:
    """The function that a printed scene checks."""
    found: list[Any] = []
    names: dict[str, Any] = {**SURROUNDINGS, "__name__": "scene"}
    names["check"] = lambda scene, **_: found.append(scene)
    exec(compile(text, "<scene>", "exec", dont_inherit=True), names)
    return found[0]


def test_one_seed_makes_the_same_scenes() -> None:
    first: list[str] = []
    again: list[str] = []
    drawn(3, lambda scene: first.append(repr(scene)))
    drawn(3, lambda scene: again.append(repr(scene)))
    assert first == again and len(set(first)) > SCENES // 2


def test_a_scene_is_deterministic_without_rote() -> None:
    """Played plainly twice; a scene that ends by an exception of its own moves is one that tests little."""
    ended = 0

    def play(scene: StateScene) -> None:
        nonlocal ended
        check_text(scene, graph=lambda function: function)
        world = World("cpu", None)
        seed_everything()
        try:
            program(repr(scene))(world)
        except Exception:
            ended += 1

    drawn(0, play)
    assert ended <= SCENES // 10


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.name)
def test_a_piece(piece: Piece) -> None:
    """What it reads, writes and changes works from the start; each lives somewhere else."""
    homes = itertools.cycle(dict.fromkeys(HOMES))
    use = (TENSORS if piece.tensor else NUMBERS)[0]
    for text in (*(Template(use).safe_substitute(r=read) for read in piece.reads), *piece.writes):
        placed = Placed(piece, next(homes), 0)
        inside = placed.fill(text, placed.inside, n=3)
        forward = Template(inside).substitute(a="x", b="y", v="v").split("\n")
        seen = played(StateScene([*forward, "return x * 1"], [], [CALL, CALL], pieces=[placed]))
        assert not raised(seen), f"{placed.home}: {text} {raised(seen)}"
    for text in piece.moves:
        placed = Placed(piece, next(homes), 0)
        move = Template(placed.fill(text, placed.outside)).substitute(n=3)
        seen = played(StateScene(["return x * 1"], [], [move, CALL], pieces=[placed]))
        assert not raised(seen), f"{placed.home}: {move} {raised(seen)}"


def played(scene: StateScene) -> list[Any]:
    """What a plain run sees; it raises what a move raises."""
    world = World("cpu", None)
    seed_everything()
    program(repr(scene))(world)
    return world.seen


def raised(seen: list[Any]) -> list[str]:
    return [value for step in seen for _, value in step if "raised" in str(value)]


def test_a_difference_is_found() -> None:
    """A wrapper that answers every call with its first result is caught, and the program is printed."""

    def first_forever(function: Any) -> Any:
        kept: list[Any] = []

        def call(*args: Any, **kwargs: Any) -> Any:
            kept.append(kept[0] if kept else function(*args, **kwargs))
            return kept[0]

        return call

    placed = Placed(next(piece for piece in PIECES if piece.name == "dict"), "closure", 0)
    scene = StateScene(["return x * s0['k']"], [], [CALL, "s0['k'] = 5", CALL], pieces=[placed])
    with pytest.raises(AssertionError, match=r"from tests\.fuzz\.play import \*") as found:
        check_text(scene, graph=first_forever)
    assert 's0 = {"k": 1, "j": 2}' in str(found.value)
    check_graph(program(repr(scene)), lambda function: function)
