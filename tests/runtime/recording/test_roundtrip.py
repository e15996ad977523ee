"""When the walk back through the results of a timed call begins and ends, and when it is no sample."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from rote.runtime.arguments import tracing
from rote.runtime.arguments.key import bind
from rote.runtime.backends.select import PROCESS
from rote.runtime.program.torch_private import node_age
from rote.runtime.recording.contest.roundtrip import MOST_INSIDE, Cost, Kind, RoundTrip, Upstream

CPU = torch.device("cpu")
WALKED, ALONE = Cost(Kind.BACK, 5.0), Cost(Kind.THERE, 2.0)


class Watch:
    """A backend's clock: a call takes two seconds, a walk three.

    Attributes:
        log: What happened, in order.
        capturing: Somebody captures.
        queued: The device has not done the walks.
    """

    def __init__(self) -> None:
        self.log: list[str] = []
        self.capturing = self.queued = False

    def is_capturing(self) -> bool:
        return self.capturing

    def start_timing(self, spent: float = 0.0) -> Walk:
        self.log.append("begin")
        return Walk(self)


class Walk:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def stop(self) -> None:
        self._watch.log.append("end")

    def seconds(self) -> float | None:
        return None if self._watch.queued else 3.0


class Two:
    def stop(self) -> None:
        """Has stopped."""

    def seconds(self) -> float:
        return 2.0


@pytest.fixture
def watch() -> Watch:
    return Watch()


def timed(watch: Any, function: Callable[..., Any], *args: Any) -> tuple[RoundTrip, Any]:
    """Make a call, and look out for the walk back."""
    upstream = Upstream.of(bind(args, {}), CPU)
    value = function(*args)
    return RoundTrip(Two(), watch, value, upstream), value


def noting(watch: Watch, name: str) -> Callable[[torch.Tensor], None]:
    return lambda gradient: watch.log.append(name)


def leaf() -> torch.Tensor:
    return torch.ones(3, requires_grad=True)


def test_from_the_result_to_the_argument(watch: Watch) -> None:
    """What is walked before and behind does not count; the leaves of the call do."""
    root, weight = leaf(), leaf()
    x = root.exp().sin()
    trip, y = timed(watch, lambda x: (x * weight).tanh(), x)
    assert trip.cost() == Cost(Kind.OPEN)
    loss = y.cos()
    loss.register_hook(noting(watch, "loss"))
    weight.register_post_accumulate_grad_hook(noting(watch, "weight"))
    root.register_hook(noting(watch, "root"))
    loss.sum().backward()
    assert watch.log == ["loss", "begin", "weight", "end", "root"]
    assert trip.cost() == WALKED


def test_to_the_end_of_the_pass_where_no_argument_was_made(watch: Watch) -> None:
    weight = leaf()
    trip, y = timed(watch, lambda x: x * weight, torch.ones(3))
    weight.register_post_accumulate_grad_hook(noting(watch, "weight"))
    y.sum().backward()
    assert watch.log == ["begin", "weight", "end"]
    watch.queued = True
    assert trip.cost() == Cost(Kind.QUEUED)


def test_several_calls_in_one_pass_do_not_overlap(watch: Watch) -> None:
    x, trips = leaf() * 1, list[RoundTrip]()
    for _ in range(3):
        trip, y = timed(watch, torch.exp, x)
        trips.append(trip)
        x = y.neg()
    x.sum().backward()
    assert watch.log == ["begin", "end"] * 3
    assert [trip.cost() for trip in trips] == [WALKED] * 3


def test_several_results_of_one_call(watch: Watch) -> None:
    trip, found = timed(watch, lambda x: {"a": x * 2, "b": [x.exp(), x.exp().sin()]}, leaf() * 1)
    (found["a"] + found["b"][0] + found["b"][1]).sum().backward()
    assert watch.log == ["begin", "end"] and trip.cost() == WALKED


def test_results_that_nobody_walks_back_through(watch: Watch) -> None:
    trip, y = timed(watch, torch.exp, leaf() * 1)
    torch.autograd.grad(y.sum(), y)  # ends above the call
    assert trip.cost() == Cost(Kind.OPEN)
    del y
    assert trip.cost() == ALONE and not watch.log


class Losses:
    """A result of a class that is taken for one leaf, as those of other libraries."""

    def __init__(self, losses: dict[str, torch.Tensor], before: torch.Tensor) -> None:
        self.losses = losses
        self.before = before


def test_results_within_an_object(watch: Watch) -> None:
    """What was made before the call is none of its results."""
    before = leaf().exp()
    trip, found = timed(watch, lambda x: [Losses({"a": x * 2, "b": x.exp()}, before)], leaf() * 1)
    before.sum().backward()
    assert trip.cost() == Cost(Kind.OPEN) and not watch.log
    (found[0].losses["a"] + found[0].losses["b"]).sum().backward()
    assert watch.log == ["begin", "end"] and trip.cost() == WALKED


def test_an_object_that_leads_far_is_not_searched_to_its_end(watch: Watch) -> None:
    deep: Any = leaf().exp()
    for _ in range(2 * MOST_INSIDE):
        deep = [deep]
    trip, _ = timed(watch, lambda x: Losses({}, deep), leaf() * 1)
    assert trip.cost() == ALONE


@pytest.mark.parametrize("result", ["detached", "an argument", "a leaf", "no tensor"])
def test_results_that_nobody_can_walk_back_through(watch: Watch, result: str) -> None:
    weight, x = leaf(), leaf() * 1
    made = {"detached": x.detach(), "an argument": x, "a leaf": weight, "no tensor": 3}[result]
    trip, y = timed(watch, lambda x: made, x)
    assert trip.cost() == ALONE and y is made
    x.sum().backward()
    assert trip.cost() == ALONE and not watch.log


def test_what_was_walked_twice_is_no_sample(watch: Watch) -> None:
    trip, y = timed(watch, torch.exp, leaf() * 1)
    y.sum().backward(retain_graph=True)
    assert trip.cost() == WALKED
    y.sum().backward()
    assert trip.cost() == Cost(Kind.VOID) and watch.log == ["begin", "end"]


def test_a_gradient_of_the_gradient(watch: Watch) -> None:
    x = leaf() * 1
    trip, y = timed(watch, torch.exp, x)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(second, x.detach().exp()) and trip.cost() == Cost(Kind.VOID)


def test_a_pass_that_raises(watch: Watch) -> None:
    def fail(gradient: torch.Tensor) -> None:
        raise ValueError("not now")

    x = leaf() * 1
    handle = x.register_hook(fail)
    trip, y = timed(watch, torch.exp, x)
    with pytest.raises(ValueError, match="not now"):
        y.sum().backward(retain_graph=True)
    assert trip.cost() == Cost(Kind.OPEN)
    handle.remove()
    y.sum().backward()
    assert trip.cost() == Cost(Kind.VOID) and watch.log == ["begin"]


def test_another_pass_through_an_argument_ends_nothing(watch: Watch) -> None:
    """Here it runs in the middle of the walk."""
    x = leaf() * 1
    trip, y = timed(watch, lambda x: (x * 2).exp(), x)
    other = x.sin().sum()
    weight = leaf()
    loss = (y * weight).sum()

    def within(gradient: torch.Tensor) -> None:
        other.backward(retain_graph=True)
        watch.log.append("other")

    y.grad_fn.next_functions[0][0].register_prehook(lambda gradients: within(gradients[0]))
    loss.backward()
    assert watch.log == ["begin", "other", "end"] and trip.cost() == WALKED


def test_nothing_is_asked_of_the_device_within_a_capture(watch: Watch) -> None:
    for at_the_end in (False, True):
        weight = leaf()
        trip, y = timed(watch, lambda x, weight=weight: x * weight, torch.ones(3))
        watch.capturing = not at_the_end
        weight.register_post_accumulate_grad_hook(lambda _: setattr(watch, "capturing", True))
        y.sum().backward()
        assert trip.cost() == Cost(Kind.VOID)
        watch.capturing = False
    assert watch.log == ["begin"]


def test_nor_within_a_trace(watch: Watch) -> None:
    trip, y = timed(watch, torch.exp, leaf())
    token = tracing.set(True)
    try:
        y.sum().backward()
    finally:
        tracing.reset(token)
    assert trip.cost() == Cost(Kind.VOID) and not watch.log


def test_a_node_that_another_thread_numbered_is_no_end(watch: Watch) -> None:
    """Autograd might run it before the nodes of the call."""
    made: list[torch.Tensor] = []
    here = node_age((leaf() * 1).grad_fn)

    def work() -> None:
        root = leaf()
        while node_age((root * 1).grad_fn) < here + 1000:  # each thread counts its own
            pass
        made.append(root * 1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert Upstream.of(bind((made[0],), {}), CPU).ends == ()
    trip, y = timed(watch, torch.exp, made[0])
    y.sum().backward()
    assert trip.cost() == WALKED
    own = leaf() * 1
    assert Upstream.of(bind((own,), {}), CPU).ends == (own.grad_fn,)


def test_nor_is_one_of_another_device() -> None:
    x = leaf() * 1
    upstream = Upstream.of(bind((x,), {}), torch.device("cuda", 0))
    assert upstream.ends == () and upstream.nodes == {x.grad_fn}


def test_when_it_was_judged_no_hook_is_left(watch: Watch) -> None:
    x = leaf() * 1
    trip, y = timed(watch, torch.exp, x)
    handles = [node.register_prehook(lambda gradients: None) for node in (x.grad_fn, y.grad_fn)]
    assert [len(handle.hooks_dict_ref()) for handle in handles] == [2, 2]
    trip.close()
    assert [len(handle.hooks_dict_ref()) for handle in handles] == [1, 1]
    y.sum().backward()
    assert not watch.log and x._backward_hooks is None and y._backward_hooks is None


def test_an_argument_that_lives_on_keeps_nothing(watch: Watch) -> None:
    x = leaf() * 1
    trip, y = timed(watch, torch.exp, x)
    known = weakref.ref(trip)
    del trip
    assert known() is not None
    del y
    assert known() is None
    x.sum().backward()
    assert not watch.log


def test_the_backends_have_what_it_asks_for(device: torch.device) -> None:
    backend = PROCESS.choose("auto", device)
    root = torch.ones(3, device=device, requires_grad=True)
    x = root * 1
    call, upstream = backend.start_timing(), Upstream.of(bind((x,), {}), backend.device)
    y = x.exp()
    call.stop()
    trip = RoundTrip(call, backend, y, upstream)
    y.sum().backward()
    backend.synchronize()
    assert trip.cost().kind is Kind.BACK and trip.cost().seconds > 0
