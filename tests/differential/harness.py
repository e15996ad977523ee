"""One scenario, run with the plain callable and with the graphed one: whatever it shows has to be equal.

A scenario is a generator function that takes ``wrap``, wraps its callables with it, and yields what a caller
could observe. Everything yielded is frozen at once, so what is changed later does not hide a difference.
A scenario does not raise: a call that may is made with :func:`attempt`, which yields the exception.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch

import rote

Wrap = Callable[[Callable[..., Any]], Any]
Scenario = Callable[[Wrap], Iterator[Any]]
PLAIN = (int, str, bool, bytes, complex, type(None), torch.dtype, torch.Size)


class BoomError(Exception):
    """Raised by callables under test."""


def check(make: Scenario, **options: Any) -> None:
    """Run a scenario twice, plain and graphed, and check that both yield the same.

    Args:
        make: The scenario; it makes its own state, so that both runs start alike.
        **options: Options of :func:`rote.graph`.

    Raises:
        AssertionError: Something differed; the message names the item and shows both.
    """
    graphs: list[rote.Graphed] = []

    def wrap(function: Callable[..., Any]) -> rote.Graphed:
        graphs.append(rote.graph(function, **options))
        return graphs[-1]

    try:
        wanted = _observe(make, lambda function: function)
        try:
            found = _observe(make, wrap)
        except Exception as error:
            raise AssertionError(f"graphed, the scenario raised {type(error).__name__}: {error}") from error
        for number, (ours, theirs) in enumerate(zip(found, wanted, strict=False)):
            if ours[0] != theirs[0]:
                raise AssertionError(f"item {number} is {ours[1]}\nand should be {theirs[1]}")
        assert len(found) == len(wanted), f"{len(found)} items instead of {len(wanted)}"
    finally:
        for graphed in graphs:
            graphed.reset()
        graphs.clear()


def attempt(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a call returns, or the exception it raises."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return error.with_traceback(None)


def full(value: float = 1.0) -> torch.Tensor:
    """Four elements of one value."""
    return torch.full((4,), float(value))


def drive(
    g: Callable[..., Any],
    *,
    args: Callable[[int], tuple[Any, ...]] = lambda i: (full(i),),
    change: Callable[[], Any] | None = None,
    calls: int = 10,
    at: int = 6,
) -> Iterator[Any]:
    """Call ``g`` repeatedly and yield what each call did.

    Args:
        g: The callable.
        args: The arguments of call ``i``.
        change: Changes what the callable depends on, before call ``at``.
        calls: How many calls.
        at: See ``change``.
    """
    for i in range(calls):
        if change is not None and i == at:
            change()
        yield attempt(g, *args(i))


def freeze(value: Any) -> Any:
    """A copy that compares equal only to what looks the same to the bit."""
    kind = type(value).__name__
    if isinstance(value, torch.Tensor):
        return kind, *_tensor(value)
    if isinstance(value, BaseException):
        return "raised", kind, str(value)
    if isinstance(value, float):
        return kind, value.hex()
    if isinstance(value, (list, tuple)):
        return kind, tuple(freeze(item) for item in value)
    if isinstance(value, dict):
        return kind, tuple((repr(key), freeze(item)) for key, item in value.items())
    if isinstance(value, numpy.ndarray):
        return kind, value.dtype.str, value.shape, value.tobytes()
    if dataclasses.is_dataclass(value):
        return kind, freeze(vars(value))
    if isinstance(value, PLAIN):
        return kind, repr(value)
    raise TypeError(f"a scenario yielded a {kind}, which cannot be compared")


def _tensor(value: torch.Tensor) -> tuple[Any, ...]:
    strided = value.layout is torch.strided
    about = (
        *(value.dtype, value.device, value.layout, tuple(value.shape), value.requires_grad),
        *((value.stride(), value.is_conj(), value.is_neg()) if strided else ()),
    )
    if value.is_meta:
        return about
    with torch.no_grad():
        dense = value.detach() if strided else value.detach().to_dense()
        plain = dense.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
        return *about, plain.reshape(-1).view(torch.uint8).numpy().tobytes()


def _observe(make: Scenario, wrap: Wrap) -> list[tuple[Any, str]]:
    """Each item of a scenario, frozen and as text; the last is the state of the random number generators."""
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    items: list[tuple[Any, str]] = []
    with contextlib.closing(make(wrap)) as scenario:  # type: ignore[type-var]
        for item in scenario:
            items.append((freeze(item), _show(item)))
    state = torch.get_rng_state().numpy().tobytes(), random.getstate(), numpy.random.get_state()[1].tobytes()
    items.append((state, "the state of the random number generators"))
    return items


def _show(value: Any) -> str:
    if isinstance(value, torch.Tensor) and not value.is_meta and value.layout is torch.strided:
        values = value.detach().reshape(-1)[:6].tolist()
        return f"{value.dtype}{list(value.shape)} with strides {list(value.stride())}: {values}"
    return repr(value)[:500]
