"""Runs a case in one way beside the plain callable, and says what came of it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy
import torch

from rote.runtime.arguments.leaves import flatten, paths

from .case import Kind, Program, Wrap
from .ways import Eager, Rote, Way, opened

PLAIN = (int, float, str, bool, bytes, complex, type(None), torch.dtype, torch.Size)
RTOL, ATOL = 2e-3, 1e-4  # compilers fuse and reorder; what is stale or frozen is further off than that


class Runnable(Protocol):
    """A case, or anything else that has a program."""

    @property
    def program(self) -> Program:
        """Takes ``wrap`` and the device, yields what the user sees."""
        ...


@dataclass(frozen=True)
class Outcome:
    """What a way made of a case.

    Attributes:
        kind: Right, silently wrong or refused.
        detail: The first difference, or the exception's type and first line.
    """

    kind: Kind
    detail: str = ""


@dataclass(frozen=True)
class Seen:
    """One item a case yielded, copied at once: structure, names of the leaves, leaves."""

    spec: Any
    names: list[str]
    leaves: list[Any]


@dataclass(frozen=True)
class SeenTensor:
    """A tensor's values on the host, and its properties."""

    values: torch.Tensor
    about: dict[str, Any]


def run(case: Runnable, way: Way, device: torch.device) -> Outcome:
    """Run the case with the plain callable, then in the given way, with the same seeds.

    The first difference decides: what is wrong before an exception is wrong silently.

    Raises:
        Exception: What the plain run raises: a mistake in the case.
    """
    expected = list(_observe(case, Eager(device).wrap, device))
    number = 0
    with opened(way):
        try:
            for number, found in enumerate(_observe(case, way.wrap, device, exact=way.exact)):
                if isinstance(way, Rote):
                    way.sample()
                if number == len(expected):
                    return Outcome(Kind.WRONG, f"there are more than {len(expected)} items")
                outcome = _compare(number, found, expected[number], exact=way.exact)
                if outcome is not None:
                    return outcome
        except (Exception, KeyboardInterrupt) as error:
            return Outcome(Kind.REFUSED, _headline(error))
    if number + 1 < len(expected) - (not way.exact):
        return Outcome(Kind.WRONG, f"{number + 1} items instead of {len(expected)}")
    return Outcome(Kind.RIGHT)


def _observe(case: Runnable, wrap: Wrap, device: torch.device, *, exact: bool = True) -> Iterator[Seen]:
    """The items of a run; the last, in an exact one, is the state of the random number generators."""
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    with contextlib.closing(case.program(wrap, device)) as program:  # type: ignore[type-var]
        for item in program:
            seen = _see(item)
            del item  # a gradient that is held here would change what comes next
            yield seen
    if exact:
        states = [torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1]]
        if device.type == "cuda":
            states.append(torch.cuda.get_rng_state())
        yield _see(states)


def _see(item: Any) -> Seen:
    leaves: list[Any] = []
    spec = flatten(item, leaves)
    return Seen(spec, paths(spec, ""), [_see_leaf(leaf) for leaf in leaves])


def _see_leaf(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        with torch.no_grad():
            values = leaf.detach().to("cpu", copy=True).contiguous()
        about = {name: getattr(leaf, name) for name in ("dtype", "device", "shape", "requires_grad")}
        return SeenTensor(values, {**about, "strides": leaf.stride(), "leaf": leaf.is_leaf})
    if isinstance(leaf, numpy.ndarray):
        return torch.from_numpy(leaf.copy()).tolist()
    if isinstance(leaf, (BaseException, *PLAIN)):
        return leaf
    raise TypeError(f"a case yielded a {type(leaf).__name__}, which cannot be compared")


def _compare(number: int, found: Seen, expected: Seen, *, exact: bool) -> Outcome | None:
    for raised in found.leaves:
        if isinstance(raised, BaseException) and not any(
            _same_error(raised, other) for other in expected.leaves
        ):
            return Outcome(Kind.REFUSED, _headline(raised))
    if found.spec != expected.spec:
        return Outcome(Kind.WRONG, f"item {number} has another structure")
    for name, mine, other in zip(expected.names, found.leaves, expected.leaves, strict=True):
        text = _differs(mine, other, exact=exact)
        if text:
            return Outcome(Kind.WRONG, f"item {number}{name} {text}")
    return None


def _differs(mine: Any, other: Any, *, exact: bool) -> str | None:
    """How two leaves differ, or None."""
    if not isinstance(mine, SeenTensor) or not isinstance(other, SeenTensor):
        same = type(mine) is type(other) and (_same_error(mine, other) or repr(mine) == repr(other))
        return None if same else f"is {mine!r} and should be {other!r}"
    for what, wanted in other.about.items():
        if mine.about[what] != wanted and (exact or what not in ("strides", "leaf")):
            return f"has {what} {mine.about[what]} and should have {wanted}"
    if not exact:
        close = torch.allclose(mine.values, other.values, rtol=RTOL, atol=ATOL, equal_nan=True)
    else:
        close = torch.equal(_bits(mine.values), _bits(other.values))
    return None if close else f"is {_excerpt(mine.values)} and should be {_excerpt(other.values)}"


def _bits(values: torch.Tensor) -> torch.Tensor:
    return values.reshape(-1).view(torch.uint8)


def _excerpt(values: torch.Tensor) -> str:
    return f"{values.reshape(-1)[:4].tolist()}{'...' if values.numel() > 4 else ''}"


def _same_error(mine: Any, other: Any) -> bool:
    return isinstance(mine, BaseException) and type(mine) is type(other) and str(mine) == str(other)


def _headline(error: BaseException) -> str:
    """An exception's type and the first line of its text, without the folder it was run in."""
    lines = str(error).replace(f"{Path.cwd()}/", "").strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")
