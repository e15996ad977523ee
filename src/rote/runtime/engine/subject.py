"""What a key records: the callable, where its state is found, and what bounds its recordings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..arguments import PLAIN, Call, CompiledInput, is_known_by_identity
from ..autograd.graph import GradientWalk, kept_storages
from ..backends.protocol import Backend
from ..conditions import SelectingLines
from ..memory import Account
from ..numbers import TrackedNumbers
from ..program import BackwardLog
from ..pytorch import NO_RUN, CallRun
from ..reads import WATCH, aside
from ..reads.trace import Aside, Trace
from ..recording import Numerics
from ..state import ExecutedCode
from .facts import FactStore
from .ledger import Ledger

MAX_WALKS = 4
"""Recordings alive at once for one key of a backward (its state hardly ever changes)."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What bounds the recordings of a key; made from the options, which say what each bound is good for.

    Attributes:
        warmup: Agreeing observations before a recording.
        max_recordings: Recordings alive at once, and replacements before giving up.
        max_paths: Ways through one recording.
        account: Whose budget the recordings count against.
        guess: The place of an argument may be guessed (a wrong guess costs a recording).
        keep: Recordings are not measured against plain calls.
        min_segment: Operations that a segment must have.
        split: Names of operations that run between segments.
        collectives: Collectives are captured where they can be.
        numerics: What may stand in the place of what was captured.
        silent: In strict mode, output that a replay does not repeat counts against it.
        numbers: Numbers that change from call to call are followed.
        ranges: How replays are named in timelines.
        ordered: A call of which a gradient would be a sum is not recorded: eager may add outside first.
    """

    warmup: int
    max_recordings: int
    max_paths: int
    account: Account
    guess: bool
    keep: bool
    min_segment: int
    split: frozenset[str]
    numerics: Numerics
    silent: bool
    numbers: bool = False
    collectives: bool = False
    ranges: str = "off"
    ordered: bool = False


@dataclass(frozen=True)
class Subject:
    """A callable as its keys see it.

    Attributes:
        executed: Code that it was seen to run, shared by all keys.
        pick: Chooses the backend from the devices in use.
        log: Counts backward passes.
        ledger: What its traced calls cost.
        roots: Where its Python state is found, with names.
        trusted: Storages that it reads and that nobody can replace.
        inputs: What its arguments are, if it is compiled code; such code gets at no tensor that is an
            argument in another way, such as by the module that holds it.
        selecting: Lines that select by masks, as all keys know them.
        store: Where what its keys find is kept for later processes; None if nowhere.
    """

    function: Callable[..., Any]
    name: str
    executed: ExecutedCode
    limits: Limits
    pick: Callable[[torch.device], Backend]
    log: BackwardLog
    ledger: Ledger
    roots: tuple[tuple[str, Any], ...]
    trusted: frozenset[int] = frozenset()
    inputs: tuple[CompiledInput, ...] | None = None
    store: FactStore | None = None
    selecting: SelectingLines = field(default_factory=SelectingLines)

    @property
    def staying(self) -> frozenset[int]:
        """The arguments that are parameters and buffers, as the compiler of the callable says."""
        return frozenset(number for number, each in enumerate(self.inputs or ()) if each.stays)

    @property
    def computes(self) -> bool:
        """Whether numbers that change from call to call can be followed."""
        return self.limits.numbers and self.inputs is None

    def follow(
        self,
        call: Call,
        meet: Callable[[Any], None] = lambda tensor: None,
        aside: Aside = aside,
        numbers: TrackedNumbers | None = None,
        run: CallRun = NO_RUN,
        *,
        keeps: bool = False,
    ) -> Trace:
        """Note what the callable reads and writes outside of itself.

        Args:
            meet: Told of tensors that are found outside.
            aside: Runs what is no part of the call.
            run: Runs the call.
            keeps: The call may be attempted once more.
        """
        roots = [*self.roots, *self.executed.owners()]
        leaves = zip(call.names(), call.leaves, call.kinds, strict=True)
        roots += [(name, leaf) for name, leaf, kind in leaves if kind != PLAIN or is_known_by_identity(leaf)]
        roots += [(name, each) for name, each in call.met_by_value() if not isinstance(each, torch.Tensor)]
        apart = self.executed.apart()
        return WATCH.begin(self.function, roots, apart, meet, aside, numbers, run, keeps=keeps)

    def walking(self, walk: GradientWalk) -> Subject:
        """The backward of a recorded call of this callable.

        A graph without Python code depends on no Python state. Python code reaches the callable's state, and
        what its contexts keep.
        """
        kept = kept_storages(walk.results, frozenset())
        roots = (*self.roots, *walk.contexts.roots()) if walk.contexts else ()
        return replace(
            self,
            function=walk,
            inputs=None if self.inputs is None else (),
            name=f"the backward of {self.name}",
            executed=ExecutedCode(),
            store=None,
            limits=replace(
                self.limits,
                max_recordings=MAX_WALKS,
                keep=True,
                numerics=Numerics.PLAIN,
                numbers=bool(walk.numbers),
            ),
            roots=roots,
            trusted=frozenset(kept | walk.memory),
        )
