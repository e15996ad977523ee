"""Plays a scene plain and graphed, and compares what both saw."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

import torch

from rote.testing import assert_pool_empty

from .scene import Scene
from .world import SURROUNDINGS, Close, Seen, World, seed_everything

globals().update(SURROUNDINGS)

LEAST_REPLAYED = 0.3
"""Share of the calls that a run has to replay; with less it tests eager against eager."""


@dataclass
class Tally:
    """What a run did.

    Attributes:
        examples: Scenes played.
        calls: Calls of graphed callables.
        replayed: Calls that were replayed.
        replaying: Scenes in which a call was replayed.
        raised: Calls that raised.
        reasons: How often each rule was the reason not to replay.
    """

    examples: int = 0
    calls: int = 0
    replayed: int = 0
    replaying: int = 0
    raised: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def share(self) -> float:
        """Share of the calls that were replayed."""
        return self.replayed / max(self.calls, 1)

    def count(self, world: World) -> None:
        """Add a scene."""
        reports = world.reports
        self.examples += 1
        self.calls += sum(report.calls for report in reports)
        self.replayed += sum(report.replayed for report in reports)
        self.replaying += any(report.replayed for report in reports)
        for report in reports:
            self.reasons.update({reason.code: reason.count for reason in report.reasons})
        self.raised += sum(str(value).find("raised") >= 0 for seen in world.seen for _, value in seen[:1])

    def add(self, other: Tally) -> None:
        """Add another run."""
        for name, value in vars(other).items():
            if name == "reasons":
                self.reasons.update(value)
            else:
                setattr(self, name, getattr(self, name) + value)


def check(
    scene: Callable[[World], None], device: str = "cpu", tally: Tally | None = None, **options: Any
) -> None:
    """Play a scene twice and compare.

    Args:
        scene: What happens; it may not depend on anything but its world.
        device: ``"cpu"`` or ``"cuda"``.
        tally: Counts what happened.
        **options: Options of ``rote.graph``.

    Raises:
        AssertionError: Something differed; the message names the step and what it was.
    """
    with _deterministic(device):
        plain = _play(scene, World(device, None))
        world = World(device, options)
        try:
            graphed = _play(scene, world)
            if tally is not None:
                tally.count(world)
        finally:
            for graph in world.graphs:
                graph.reset()
    _compare(plain, graphed)
    del world, graph
    assert_pool_empty()


def check_graph(
    scene: Callable[[World], None], graph: Callable[..., Any], device: str = "cpu", **_: Any
) -> None:
    """Play a scene twice, the second time with callables made by something else than rote.

    Numbers may differ by rounding.

    Raises:
        AssertionError: As :func:`check`.
    """
    with _deterministic(device):
        plain = _play(scene, World(device, None))
        world = World(device, None, graph=graph)
        found = _play(scene, world)
    _compare(plain, found, near=True)


def check_text(scene: Scene, tally: Tally | None = None, graph: Callable[..., Any] | None = None) -> None:
    """Run the program that a scene is.

    Args:
        scene: What happens.
        tally: Counts what happened.
        graph: What takes the place of ``rote.graph``; the scene's options are rote's and left out then.

    Raises:
        AssertionError: As :func:`check`; the message ends with the program.
    """
    text = repr(scene)
    names: dict[str, Any] = {**SURROUNDINGS, "__name__": "scene"}
    names["check"] = partial(check, tally=tally) if graph is None else partial(check_graph, graph=graph)
    code = compile(text, "<scene>", "exec", dont_inherit=True)
    try:
        with contextlib.nullcontext(names) if graph is None else _as_module(names) as scope:
            exec(code, scope)
    except AssertionError as error:
        raise AssertionError(f"{error}\n\nfrom tests.fuzz.play import *\n\n{text}") from error


@contextlib.contextmanager
def _as_module(names: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The names of a module that can be imported while the scene plays: Dynamo imports what it compiles."""
    module = ModuleType("scene")
    vars(module).update(names)
    sys.modules["scene"] = module
    try:
        yield vars(module)
    finally:
        del sys.modules["scene"]


def _play(scene: Callable[[World], None], world: World) -> list[Seen]:
    """Everything a run saw; a move that raises ends the scene, in both runs alike."""
    seed_everything()
    try:
        scene(world)
    except Exception as error:
        world.look(ended=f"{type(error).__name__}: {error}"[:60])
    world.close()
    return world.seen


def _compare(plain: list[Seen], graphed: list[Seen], *, near: bool = False) -> None:
    for step, (wanted, found) in enumerate(zip(plain, graphed, strict=False)):
        for (name, should), (other, value) in zip(wanted, found, strict=False):
            if name != other:
                raise AssertionError(f"step {step}: {other} is {_show(value)} where {name} should be")
            if near:
                value, should = _rounded(value), _rounded(should)
            if value != should:
                raise AssertionError(f"step {step}: {name} is {_show(value)}\nand should be {_show(should)}")
        assert len(found) == len(wanted), f"step {step}: {len(found)} values instead of {len(wanted)}"
    assert len(graphed) == len(plain), f"{len(graphed)} steps instead of {len(plain)}"


def _rounded(value: Any) -> Any:
    """A form that equals what differs by rounding only."""
    if _is_tensor(value) and value[0].is_floating_point:
        return *value[:-1], Close.of(value[-1], value[0])
    return value


def _is_tensor(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and bool(value)
        and isinstance(value[0], torch.dtype)
        and isinstance(value[-1], bytes)
    )


def _show(value: Any) -> str:
    if _is_tensor(value):
        elements = torch.frombuffer(bytearray(value[-1]), dtype=value[0])[:8].tolist() if value[-1] else []
        return f"{value[0]}{list(value[1])} strides {value[2]} requires_grad={value[3]}: {elements}"
    return repr(value)[:300]


@contextlib.contextmanager
def _deterministic(device: str) -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(device == "cuda" or before)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.use_deterministic_algorithms(before)
