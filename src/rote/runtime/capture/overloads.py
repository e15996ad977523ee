"""What the tracer knows of an overload, worked out once for a traced call."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..backends.protocol import raw_call
from ..operators import REGIONS, TOLD_SIZES, Facts, composite_call, facts_of, is_named, is_region
from ..program import replaced_kernels
from ..pytorch import Running, counts_inside
from .zeros import LAZY_ZEROS

DETACH = torch.ops.aten.detach.default
LIFT = torch.ops.aten.lift_fresh.default


@dataclass(frozen=True, slots=True)
class Overload:
    """What is known of an overload.

    Attributes:
        facts: What its schema and the table of operators say.
        raw: The call without Python code around it.
        parts: Takes it apart, if it has no kernel of its own.
        seen: Its kernel may be Python code of the user's, which is watched.
        seeds: It takes the seeds of an attention.
        special: An alias or a literal, which are no ordinary operations.
        alias: It only looks at memory of its operands, so their looks decide its results.
        quiet: It only makes results, in this process.
        vectors: It is a decomposition that may be asked for its values alone.
        apart: It is never captured, but runs between two segments.
        inside: The operations in its kernel count the versions of what it writes.
        running: What is noted while it runs, if its kernel may be Python code.
    """

    func: Any
    facts: Facts
    raw: Callable[..., Any]
    parts: Callable[..., Any] | None
    seen: bool
    seeds: bool
    special: bool
    alias: bool
    quiet: bool
    vectors: bool
    apart: bool
    inside: bool
    running: Running | None

    @classmethod
    def of(cls, func: Any, split: Collection[str] = ()) -> Overload:
        """What is known of ``func``.

        Args:
            split: Names of operations that the user wants apart.
        """
        own = func.namespace == "aten" or is_region(func)
        seen = not own or replaced_kernels()
        special = func is DETACH or func is LIFT
        parts, facts = composite_call(func), facts_of(func)
        if facts.name in TOLD_SIZES.broken:
            facts = replace(facts, dynamic=True, simple=False)
        seeds, vectors = "seeds" in facts.row, "vectors" in facts.row
        running = Running(func.name(), len(func._schema.arguments)) if seen else None
        apart = facts.apart or (not func.is_view and is_named(func, split))
        apart = apart or (is_region(func) and REGIONS.has_one_of(facts.name, split))
        odd = facts.blank or apart or special or seen or seeds or vectors or func is LAZY_ZEROS
        alias = func.is_view and facts.simple and parts is None and not odd
        quiet = not (facts.written or facts.seeded or facts.collective)
        return cls(
            func, facts, raw_call(func), parts, seen, seeds, special, alias, quiet, vectors, apart,
            counts_inside(func), running,
        )  # fmt: skip
