"""Around every test: one thread, one seed, poisoned memory, and nothing left over."""

from __future__ import annotations

import gc
import inspect
import os
import random
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy
import pytest
import torch
from _pytest.logging import LogCaptureHandler, caplog_handler_key, catching_logs
from tests import frozen
from tests.clock import set_costs
from tests.seeds import seed
from tests.warm.python import started

from rote import Graphed
from rote.base.location import Site
from rote.inspect import ReasonReport
from rote.runtime.backends.cuda.backend import CudaBackend
from rote.runtime.backends.host.backend import HostBackend
from rote.testing import assert_pool_empty, poisoned

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
"""Read when cuBLAS starts; without it deterministic algorithms cannot be switched on later."""

for profile, repeats in (("the same each time", True), ("random", False)):
    hypothesis.settings.register_profile(
        profile,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
        derandomize=repeats,
        database=None if repeats else hypothesis.settings.default.database,
    )
hypothesis.settings.load_profile("the same each time")  # ``make test-long`` looks for others

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")
SAMPLED = {1: 1, 4: 8, 16: 24}
"""From so many cases of a test on, one in how many runs, if it says nothing else."""
WHOLE = frozenset({"architecture", "docs", "examples", "hazards"})
"""Rooms of which all cases run: each is about a page, a rule or a file of its own."""
_FILE = pytest.StashKey[Path]()
"""The file whose tests run."""

DEVICES = [
    pytest.param("cpu", id="host"),
    pytest.param("cuda", id="cuda", marks=[pytest.mark.cuda, CUDA]),
]


frozen.install()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Without the collector, which would look through fifty thousand tests again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One in a few cases of a test runs each time, by a hash of its name; the others are long."""
    tests = defaultdict[tuple[Path, str, bool], list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("long") is None:
            tests[item.path, getattr(item, "originalname", ""), "cuda" in item.name].append(item)
    for cases in tests.values():
        mark = cases[0].get_closest_marker("sampled")
        room = cases[0].path.relative_to(Path(__file__).parent).parts[0]
        usual = max([SAMPLED[least] for least in SAMPLED if len(cases) >= least]) if room not in WHOLE else 1
        one_in = usual if mark is None else max(mark.args[0], usual) if mark.args[0] > 1 else 1
        cases.sort(key=lambda item: zlib.crc32(item.name.encode()))
        for item in cases[-(-len(cases) // one_in) :]:
            item.add_marker("long")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before the first test of a file, and before fixtures are made."""
    if item.config.stash.get(_FILE, None) != item.path:
        item.config.stash[_FILE] = item.path
        if "torch._dynamo" in sys.modules:
            torch.compiler.reset()  # once anything is compiled in a process, all calls of it are noted
            # Each compilation would empty the processor's caches, to tell a log how long its guards take.
            sys.modules["torch._dynamo.guards"].profile_guard_manager = lambda *_: 0.0  # pyright: ignore
        frozen.freeze()


class _SameTime:
    """A call costs what any other one costs: no recording is faster than a plain call, and none is slower."""

    def __init__(self, *_: Any) -> None:
        pass

    def stop(self) -> None:
        pass

    def seconds(self) -> float:
        return 1e-3


@pytest.fixture(autouse=True)
def _same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on how fast the machine is; plain calls are made in between all the same."""
    for backend in (HostBackend, CudaBackend):
        monkeypatch.setattr(backend, "start_timing", _SameTime)


@pytest.fixture(autouse=True)
def _same_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    set_costs(monkeypatch)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch.set_num_threads(1)
    seed(0)
    random.seed(0)
    numpy.random.seed(0)
    before = _ambient()
    callbacks, gc.callbacks[:] = list(gc.callbacks), []  # those of the test tools
    with poisoned():
        yield
    gc.callbacks[:] = callbacks
    assert _ambient() == before, "the test changed grad mode or the default dtype"
    for name in (
        "last_value",
        "last_traceback",
        "last_exc",
    ):  # a failure would keep the test's wrappers alive
        vars(sys).pop(name, None)
    assert_pool_empty()


def _ambient() -> tuple[object, ...]:
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()


@pytest.fixture
def caplog(request: pytest.FixtureRequest) -> Iterator[pytest.LogCaptureFixture]:
    """What pytest's plugin offers, which would go through all loggers of PyTorch's six times in each test."""
    with catching_logs(LogCaptureHandler()) as handler:
        request.node.stash[caplog_handler_key] = handler
        found = pytest.LogCaptureFixture(request.node, _ispytest=True)
        yield found
        found._finalize()


@pytest.fixture(scope="session")
def warm_path() -> Iterator[str]:
    """A Python that has imported PyTorch."""
    with started() as path:
        yield path


@pytest.fixture
def warm_python(warm_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that the test starts with ``sys.executable`` need not import PyTorch, nor do theirs."""
    monkeypatch.setattr(sys, "executable", warm_path)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each device the runtime works on."""
    return torch.device(request.param)


@pytest.fixture
def where() -> Callable[[Any, str], str]:
    """Finds the ``file:line`` of a piece of a function's source, as messages write it."""

    def find(function: Any, text: str) -> str:
        lines, start = inspect.getsourcelines(function)
        numbers = [number for number, line in enumerate(lines, start) if text in line]
        assert len(numbers) == 1, f"{text!r} is in {len(numbers)} lines"
        return str(Site(inspect.getsourcefile(function) or "", numbers[0], ""))

    return find


@pytest.fixture
def reason() -> Callable[[Graphed, str], ReasonReport]:
    """Finds the reason with a code in a report, and checks that there is one such."""

    def find(graphed: Graphed, code: str) -> ReasonReport:
        found = [item for item in graphed.report().reasons if item.code == code]
        assert len(found) == 1, f"{len(found)} reasons {code}:\n{graphed.explain()}"
        return found[0]

    return find
