"""Functions under ``torch.compile``: those who look at a call leave them compiled."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import rote
from rote.bench.profile.mode import AskingMode
from rote.runtime.pytorch.modes import DispatchMode


class Compiled:
    """A compiled function, and how often its compiled code has run."""

    def __init__(self) -> None:
        self.runs = 0
        torch.compiler.reset()
        self.call = torch.compile(lambda x: torch.sin(x) + 1, backend=self._compile)

    def _compile(self, module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            self.runs += 1
            return module(*args)

        return run

    def is_compiled(self) -> bool:
        before = self.runs
        self.call(torch.ones(4))
        return self.runs == before + 1


@pytest.mark.parametrize("early", [False, True], ids=["compiled later", "compiled before"])
def test_a_profile_leaves_them_compiled(early: bool) -> None:
    """What it timed is the compiled function, and the next call is as fast."""
    fn = Compiled()
    assert not early or fn.is_compiled()
    before, profile = fn.runs, rote.profile(fn.call, torch.ones(4))
    # plain calls run compiled code: all but the marked ones and one of those that warm up
    assert fn.runs - before == profile.calls_made - 3
    assert fn.is_compiled()


@pytest.mark.parametrize("early", [False, True], ids=["compiled later", "compiled before"])
def test_a_graphed_callable_leaves_them_compiled(early: bool, device: torch.device) -> None:
    fn = Compiled()
    assert not early or fn.is_compiled()
    before, g = fn.runs, rote.graph(lambda x: fn.call(x) * 2)
    x = torch.ones(4, device=device)
    for _ in range(8):
        assert torch.equal(g(x), (torch.sin(x) + 1) * 2)
    assert fn.runs == before + 8  # which is an effect of each call
    assert "runs was" in g.explain()
    assert fn.is_compiled()


def test_a_mode_goes_through_the_wrapper_only_while_the_compiler_looks() -> None:
    """The wrapper takes as long as half of the bookkeeping for an operation."""
    import torch._dynamo

    class Quiet(DispatchMode):
        wrapped = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Quiet.wrapped += any("eval_frame" in frame.filename for frame in traceback.extract_stack())
            return func(*args, **(kwargs or {}))

    with Quiet():
        torch.ones(2) + 1
    assert Quiet.wrapped == 0


def test_an_error_leaves_them_compiled() -> None:
    fn = Compiled()
    assert fn.is_compiled()

    def fails(x: torch.Tensor) -> torch.Tensor:
        fn.call(x)
        raise ValueError("no")

    g = rote.graph(fails)
    for call in (lambda: rote.profile(fails, torch.ones(4)), lambda: g(torch.ones(4))):
        with pytest.raises(ValueError, match=r"^no$"):
            call()
        assert fn.is_compiled()


def test_modes_of_two_threads_leave_the_stance_as_it_was() -> None:
    """The mode that is entered first is left first."""
    fn = Compiled()
    assert fn.is_compiled()
    first, second = AskingMode(), AskingMode()
    with ThreadPoolExecutor(1) as pool:
        first.__enter__()
        pool.submit(second.__enter__).result()
        first.__exit__(None, None, None)
        pool.submit(second.__exit__, None, None, None).result()
    assert fn.is_compiled()


def test_a_counter_beside_the_call_has_no_part_in_it_where_the_compiler_is() -> None:
    """What tells compiled functions to run as written reads no attribute of the user's objects."""

    class Policy:
        def __init__(self) -> None:
            self.count = 0
            self.scale = 2.0

        def act(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return self.infer(x)

        @rote.graph
        def infer(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    Compiled().is_compiled()
    policy = Policy()
    for _ in range(10):
        policy.act(torch.ones(4))
    assert policy.infer.report().replayed >= 7
