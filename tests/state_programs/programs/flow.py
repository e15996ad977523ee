"""Where a call's path depends on state: exceptions, context managers, generators, threads, lifetimes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import threading
import traceback
import types
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from tests.footguns.case import Wrap, full
from tests.state_programs.program import item, put, state, turns

Items = Iterator[Any]


@state("reads")
def exception_that_state_asks_for(wrap: Wrap, device: torch.device) -> Items:
    """The call raises what state says, then no longer."""
    o: Any = types.SimpleNamespace(error=None)

    def fn(x: torch.Tensor) -> torch.Tensor:
        if o.error is not None:
            raise o.error
        return x * 2

    yield from turns(wrap(fn), device, put(o, error=ValueError("state")), put(o, error=None))


@state("reads")
def exception_handled_by_class(wrap: Wrap, device: torch.device) -> Items:
    """Which exceptions are handled is state."""
    o: Any = types.SimpleNamespace(handled=(KeyError,), cfg={})

    def fn(x: torch.Tensor) -> torch.Tensor:
        try:
            return x * o.cfg["k"]
        except o.handled:
            return x - 1

    g = wrap(fn)
    yield from turns(
        g, device, put(o, handled=(ValueError,)), put(o, handled=LookupError), put(o, cfg={"k": 2.5})
    )


@state("reads")
def finally_with_state(wrap: Wrap, device: torch.device) -> Items:
    """``finally`` overrides a result by state."""
    o = types.SimpleNamespace(override=False)

    def fn(x: torch.Tensor) -> torch.Tensor:
        try:
            return x * 1.5
        finally:
            if o.override:
                return x * 2.5  # noqa: B012

    yield from turns(wrap(fn), device, put(o, override=True), put(o, override=False))


@state("reads")
def context_manager_that_swallows(wrap: Wrap, device: torch.device) -> Items:
    """``__exit__`` says by state whether an exception goes on."""

    class Guard:
        swallow = True

        def __enter__(self) -> None:
            pass

        def __exit__(self, *error: object) -> bool:
            return self.swallow

    guard = Guard()

    def fn(x: torch.Tensor) -> torch.Tensor:
        with guard:
            raise ValueError("inside")
        return x * 1.5

    yield from turns(wrap(fn), device, put(guard, swallow=False), put(guard, swallow=True))


@state("reads")
def generator_context_manager(wrap: Wrap, device: torch.device) -> Items:
    """A context manager made of a generator that reads state."""
    o = types.SimpleNamespace(k=1.5)

    @contextlib.contextmanager
    def scaled() -> Iterator[float]:
        yield o.k

    def fn(x: torch.Tensor) -> torch.Tensor:
        with scaled() as k, contextlib.suppress(ValueError):
            return x * k
        return x

    yield from turns(wrap(fn), device, put(o, k=2.5))


@state("reads")
def exit_stack(wrap: Wrap, device: torch.device) -> Items:
    """An exit stack with callbacks that state decides."""
    o = types.SimpleNamespace(n=1)

    def fn(x: torch.Tensor) -> torch.Tensor:
        done: list[int] = []
        with contextlib.ExitStack() as stack:
            for k in range(o.n):
                stack.callback(done.append, k)
        return x * (1 + len(done))

    yield from turns(wrap(fn), device, put(o, n=3))


@state("reads")
def generator_inside(wrap: Wrap, device: torch.device) -> Items:
    """A generator made in the call reads state as it goes."""
    ks = [1.0, 2.0]

    def made() -> Iterator[float]:
        yield from ks
        yield len(ks) * 1.0

    yield from turns(wrap(lambda x: x * sum(made())), device, lambda: ks.append(5.0))


@state("reads")
def generator_returned(wrap: Wrap, device: torch.device) -> Items:
    """The call returns a list made by comprehensions over state."""
    ks = {"a": 1.0, "b": 2.0}
    g = wrap(lambda x: {name: x * k for name, k in ks.items() if k > 0.5})
    yield from turns(g, device, item(ks, "b", 0.1), item(ks, "c", 3.0))


@state("reads")
def coroutine_inside(wrap: Wrap, device: torch.device) -> Items:
    """A coroutine is driven inside the call and reads state."""
    o = types.SimpleNamespace(k=1.5)

    async def gain() -> float:
        return o.k

    def fn(x: torch.Tensor) -> torch.Tensor:
        coroutine = gain()
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return x * stop.value
        return x

    yield from turns(wrap(fn), device, put(o, k=2.5))


@state("reads")
def event_loop(wrap: Wrap, device: torch.device) -> Items:
    """The call is made in an event loop, and asks for its task's name."""
    g = wrap(lambda x: x * len(asyncio.current_task().get_name()))  # type: ignore[union-attr]

    async def run(name: str) -> Any:
        asyncio.current_task().set_name(name)  # type: ignore[union-attr]
        return g(full(1, device))

    for name in ("ab",) * 4 + ("abcd",) * 3:
        yield asyncio.run(run(name))


@state("limits")
def work_on_a_thread(wrap: Wrap, device: torch.device) -> Items:
    """A part of the work is done by a thread that the call starts and joins."""
    o = types.SimpleNamespace(k=1.5)

    def fn(x: torch.Tensor) -> torch.Tensor:
        found: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: found.append(x * o.k))
        thread.start()
        thread.join()
        return found[0] + 1

    yield from turns(wrap(fn), device, put(o, k=2.5))


@state("limits")
def work_in_a_pool(wrap: Wrap, device: torch.device) -> Items:
    """A part of the work is done by a pool that lives outside."""
    o = types.SimpleNamespace(k=1.5)
    with ThreadPoolExecutor(1) as pool:
        g = wrap(lambda x: pool.submit(lambda: x * o.k).result() + 1)
        yield from turns(g, device, put(o, k=2.5))


@state("limits")
def number_from_a_thread(wrap: Wrap, device: torch.device) -> Items:
    """A thread computes a number in Python that the call waits for."""
    o = types.SimpleNamespace(k=1.5)
    with ThreadPoolExecutor(1) as pool:
        yield from turns(wrap(lambda x: x * pool.submit(lambda: o.k).result()), device, put(o, k=2.5))


@state("reads")
def event_and_lock(wrap: Wrap, device: torch.device) -> Items:
    """An event that is set outside, a lock that is held."""
    event, lock = threading.Event(), threading.Lock()
    g = wrap(lambda x: x * (2.5 if event.is_set() else 1.5) + (3.0 if lock.locked() else 0.0))
    yield from turns(g, device, event.set, lock.acquire, lock.release)


@state("reads")
def semaphore_taken(wrap: Wrap, device: torch.device) -> Items:
    """A semaphore that each call takes once."""
    left = threading.Semaphore(7)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * (1.5 if left.acquire(blocking=False) else 2.5)

    yield from turns(wrap(fn), device, left.release, before=9)


@state("effects")
def destructor_counts(wrap: Wrap, device: torch.device) -> Items:
    """``__del__`` of an object that the call makes and drops counts."""
    dead: list[int] = []

    class Temporary:
        def __del__(self) -> None:
            dead.append(1)

    def fn(x: torch.Tensor) -> torch.Tensor:
        Temporary()
        return x * 2

    yield from turns(wrap(fn), device, dead.clear, watch=lambda: (gc.collect(), len(dead))[1])


@state("reads")
def fresh_identifier(wrap: Wrap, device: torch.device) -> Items:
    """A new identifier is part of each result."""
    seen: set[str] = set()
    g = wrap(lambda x: (x * 2, str(uuid.uuid4())))
    for n in range(6):
        out, name = g(full(n, device))
        yield out, name in seen
        seen.add(name)


@state("reads")
def fresh_object(wrap: Wrap, device: torch.device) -> Items:
    """Each result holds a list of its own."""
    g = wrap(lambda x: {"y": x * 2, "names": []})
    held = []
    for n in range(6):
        out = g(full(n, device))
        yield out
        out["names"].append(n)
        held.append(out)
    yield held


@state("reads")
def recursion(wrap: Wrap, device: torch.device) -> Items:
    """A recursive function over a tree that grows."""
    tree: Any = {"k": 1.0, "children": [{"k": 2.0, "children": []}]}

    def total(node: Any) -> float:
        return node["k"] + sum(total(child) for child in node["children"])

    grow = lambda: tree["children"][0]["children"].append({"k": 5.0, "children": []})  # noqa: E731
    yield from turns(wrap(lambda x: x * total(tree)), device, grow, item(tree["children"][0], "k", 9.0))


@state("reads")
def loop_until_state(wrap: Wrap, device: torch.device) -> Items:
    """A loop runs as long as state says."""
    o = types.SimpleNamespace(steps=2)

    def fn(x: torch.Tensor) -> torch.Tensor:
        for k in itertools.count():
            if k >= o.steps:
                break
            x = x * 1.5
        return x

    yield from turns(wrap(fn), device, put(o, steps=4), put(o, steps=0))


@state("reads")
def conditional_import(wrap: Wrap, device: torch.device) -> Items:
    """A feature flag picks one of two functions inside."""
    o = types.SimpleNamespace(fast=False)

    def fn(x: torch.Tensor) -> torch.Tensor:
        def slow(v: torch.Tensor) -> torch.Tensor:
            return v * 1.5

        def fast(v: torch.Tensor) -> torch.Tensor:
            return v * 2.5

        act = fast if o.fast else slow
        return act(x)

    yield from turns(wrap(fn), device, put(o, fast=True))


@state("reads")
def stack_inspected(wrap: Wrap, device: torch.device) -> Items:
    """The depth of the stack decides."""
    g = wrap(lambda x: x * (2.5 if "deeper" in {f.name for f in traceback.extract_stack()} else 1.5))

    def deeper(x: torch.Tensor) -> Any:
        return g(x)

    for call in (g, g, g, g, deeper, deeper, g):
        yield call(full(1, device))


@state("reads")
def truth_of_a_tensor_outside(wrap: Wrap, device: torch.device) -> Items:
    """A flag on the device decides, written in place."""
    flag = torch.zeros((), dtype=torch.bool, device=device)
    g = wrap(lambda x: x * 2.5 if flag else x * 1.5)
    yield from turns(g, device, lambda: flag.fill_(True), lambda: flag.fill_(False))


@state("reads")
def walrus_and_chained_comparison(wrap: Wrap, device: torch.device) -> Items:
    """Chained comparisons of state."""
    o = types.SimpleNamespace(k=1.5)
    g = wrap(lambda x: x * (n if (n := o.k) and 1 < n < 2 <= n + 1 else 9.0))
    yield from turns(g, device, put(o, k=2.5), put(o, k=1.25))
