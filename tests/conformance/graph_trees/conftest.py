"""Each behaviour of PyTorch's CUDA graph trees, by ``rote.graph`` and by ``torch.compile(backend="rote")``.

The tests are of what the user sees. Where rote differs on purpose, they assert what rote does: a result that
is held stays, nothing has to be marked, and nothing is warned of.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests.seeds import seed

import rote
from rote.integrations.torch_compile import backend
from rote.testing import assert_same


@dataclass
class Way:
    """One way of graphing a callable.

    Attributes:
        compiles: It is ``torch.compile``.
        warm: Calls before the first replay, where nothing changes.
        near: How far results may be from eager's. Compiled graphs call other overloads for some operators,
            and CUDA has other kernels for these.
    """

    compiles: bool
    warm: int
    near: float

    def __post_init__(self) -> None:
        self._made: list[Any] = []

    def __call__(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """Graph a callable, with options of rote's."""
        if self.compiles:
            return torch.compile(function, backend=backend, options={"kernels": "aten", **options})
        made = rote.graph(function, **options)
        self._made.append(made)
        return made

    def reports(self) -> list[rote.Report]:
        """Of all that was graphed; of what was compiled, the living."""
        return [each.report() for each in (backend.graphed() if self.compiles else self._made)]

    def replays(self) -> int:
        """Calls that were replayed."""
        return sum(report.replayed for report in self.reports())

    def walks(self) -> int:
        """Backward passes that were replayed."""
        return sum(report.backwards_replayed for report in self.reports())

    def recordings(self) -> int:
        """How many recordings there are."""
        return sum(len(report.recordings) for report in self.reports())

    def codes(self) -> set[str]:
        """Codes of the reasons that are not about the warm-up."""
        return {why.code for report in self.reports() for why in report.reasons if not why.warm_up}

    def forget(self) -> None:
        """Let go of what was graphed."""
        self._made.clear()

    def same(self, function: Callable[..., Any], calls: list[tuple[Any, ...]], **options: Any) -> Any:
        """Make calls graphed and plainly; all results are held, and compared again at the end."""
        graphed, held = self(function, **options), list[Any]()
        for number, given in enumerate(calls):
            seed(number)
            expected = function(*[_copied(each) for each in given])
            seed(number)
            actual = graphed(*given)
            assert_same(actual, expected, f"call {number}", tolerance=self.near)
            held.append((actual, expected))
        for number, (actual, expected) in enumerate(held):
            assert_same(actual, expected, f"call {number}, looked at again", tolerance=self.near)
        return graphed


def _copied(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or isinstance(value, torch.nn.Parameter):
        return value
    return value.clone() if value.is_leaf else value


@pytest.fixture(params=["graph", "compile"])
def way(request: pytest.FixtureRequest, device: torch.device) -> Iterator[Way]:
    """Each way, and nothing compiled before or after."""
    compiles = request.param == "compile"
    if compiles:
        logging.getLogger("torch").setLevel(logging.ERROR)
        torch._dynamo.reset()
    made = Way(compiles, 3 if compiles else 2, 1e-5 if compiles and device.type == "cuda" else 0.0)
    yield made
    made.forget()
    if compiles:
        torch._dynamo.reset()


CALLS = 8


@pytest.fixture
def inputs(device: torch.device) -> Callable[..., list[tuple[torch.Tensor, ...]]]:
    """Makes the arguments of some calls, one tensor each."""

    def make(*shape: int, count: int = CALLS) -> list[tuple[torch.Tensor, ...]]:
        return [(torch.randn(*(shape or (4, 4)), device=device),) for _ in range(count)]

    return make
