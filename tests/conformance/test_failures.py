"""A failed call harms nothing: the exception is the user's, and everything works afterwards."""

from __future__ import annotations

import linecache
import threading
from argparse import Namespace
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import rote
from rote.base.errors import CaptureError
from rote.runtime.backends.cuda.session import CudaSession
from rote.runtime.backends.host.session import HostSession
from rote.testing import compare, count_recordings

WARM = rote.Options().warmup + 1


class OwnError(Exception):
    """The user's."""


def random_state(device):
    return torch.get_rng_state() if device.type == "cpu" else torch.cuda.get_rng_state()


def everything_works(device):
    """Random numbers, another recording, and eager."""
    g = compare(
        lambda x: (x * torch.rand_like(x)).sum(), [(torch.randn(4, device=device),) for _ in range(6)]
    )
    assert g.report().replayed == 6 - WARM


@pytest.mark.parametrize(
    "kind", [OwnError, RuntimeError, KeyboardInterrupt, SystemExit, StopIteration, AssertionError]
)
@pytest.mark.parametrize("call", range(WARM + 2))
@pytest.mark.parametrize("place", ["start", "middle", "end"])
def test_an_exception_at_any_stage(device, kind, call, place):
    fail = [False]
    effects = torch.zeros((), device=device)

    def fn(x):
        if fail[0] and place == "start":
            raise kind("stop")
        effects.add_(1)
        y = x * 2
        if fail[0] and place == "middle":
            raise kind("stop")
        y = y + torch.rand_like(y)
        if fail[0] and place == "end":
            raise kind("stop")
        return y

    g = rote.graph(fn)
    for _ in range(call):
        g(torch.ones(4, device=device))
    fail[0] = True
    torch.manual_seed(1)
    with pytest.raises(kind, match="stop"):
        g(torch.ones(4, device=device))
    after = random_state(device)
    fail[0] = False
    assert effects.item() == call + (place != "start")
    torch.manual_seed(1)
    if place == "end":
        torch.rand(4, device=device)
    assert torch.equal(after, random_state(device))
    for n in range(WARM + 2):
        torch.manual_seed(n)
        out = g(torch.ones(4, device=device))
        torch.manual_seed(n)
        assert torch.equal(out, torch.ones(4, device=device) * 2 + torch.rand(4, device=device))
    assert g.report().replayed >= 2
    everything_works(device)


@pytest.mark.parametrize("kind", [OwnError, KeyboardInterrupt])
def test_an_exception_while_recording(device, kind):
    """The recorded call itself raises: state of the standard library, which no walk sees, decides it."""
    stop = threading.Event()

    def fn(x):
        y = (x * 2).exp()
        if stop.is_set():
            raise kind("while recording")
        return y + 1

    g = rote.graph(fn)
    for _ in range(WARM - 1):
        g(torch.ones(3, device=device))
    stop.set()
    with pytest.raises(kind, match="while recording"):
        g(torch.ones(3, device=device))
    stop.clear()
    assert count_recordings(g) == 0
    for _ in range(WARM + 2):
        assert torch.equal(g(torch.ones(3, device=device)), (torch.ones(3, device=device) * 2).exp() + 1)
    assert g.report().replayed >= 1
    everything_works(device)


def test_an_exception_past_a_host_read(device):
    def fn(x):
        y = x * 2
        n = y.sum().item()
        if n < 0:
            raise OwnError(f"negative: {n}")
        return y + n

    g = rote.graph(fn)
    for sign in (1, 1, 1, 1, 1, -1, -1, 1, -1, -1, 1, 1):
        x = torch.full((2,), float(sign), device=device)
        if sign < 0:
            with pytest.raises(OwnError, match=r"negative: -4\.0"):
                g(x)
        else:
            assert g(x).tolist() == [6.0, 6.0]
    assert g.report().replayed >= 3
    everything_works(device)


def test_a_wrong_call(device):
    g = rote.graph(lambda x, y: x @ y)
    good = (torch.randn(2, 3, device=device), torch.randn(3, 2, device=device))
    bad = (torch.randn(2, 3, device=device), torch.randn(2, 3, device=device))
    compare(lambda x, y: x @ y, [good, bad, good, bad, good, good, bad, good])
    for _ in range(WARM + 1):
        g(*good)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'"):
        g(good[0])
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        g(*good, z=1)
    assert torch.equal(g(*good), good[0] @ good[1])


def test_the_users_traceback_is_kept(device):
    def inner(x):
        raise OwnError("deep")

    g = rote.graph(lambda x: inner(x * 2))
    with pytest.raises(OwnError) as caught:
        g(torch.ones(2, device=device))
    assert caught.traceback[-1].name == "inner"
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_an_exception_in_backward(device):
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise OwnError("in backward")

    layer = nn.Linear(3, 3).to(device)
    broken = [True]

    def step(x):
        layer.zero_grad(set_to_none=False)
        y = layer(x)
        (Wrong.apply(y) if broken[0] else y).sum().backward()

    layer.weight.grad = torch.zeros_like(layer.weight)
    layer.bias.grad = torch.zeros_like(layer.bias)
    g, x = rote.graph(step), torch.ones(1, 3, device=device)
    for _ in range(WARM + 1):
        with pytest.raises(OwnError, match="in backward"):
            g(x)
    broken[0] = False
    for _ in range(WARM + 2):
        g(x)
        assert torch.equal(layer.weight.grad, torch.ones(3, 3, device=device))
    assert g.report().replayed >= 1
    everything_works(device)


def test_exceptions_the_callable_handles(device):
    def fn(x):
        try:
            y = x @ x  # of the wrong shape
        except RuntimeError:
            y = x * 2
        return y

    g = compare(fn, [(torch.randn(2, 3, device=device),) for _ in range(8)])
    assert g.report().replayed + g.report().eager == 8
    everything_works(device)


def failed(g):
    """What the report and the findings say of a capture that failed: the same, in the same words."""
    (why,) = [each for each in g.report().reasons if each.code == "RT132"]
    (found,) = [each for each in g.findings() if each.code == "RT132"]
    assert found.message == why.message and str(found.where) == why.where and found.remedy == why.remedy
    assert f"{why.code} at {why.where}, " in g.explain() and why.message in g.explain()
    return found


def test_a_segment_that_is_refused_names_operation_and_line(device, monkeypatch, where):
    """Whatever the device says at its end, which is the same for all of them."""
    session = HostSession if device.type == "cpu" else CudaSession

    def end(self):
        self.abort()
        raise CaptureError("the segment was refused: CUDA error: operation failed due to a previous error")

    def fn(x):
        y = x * 2
        return y.exp() + 1

    g = rote.graph(fn)
    for call in range(WARM + 3):
        if call == WARM - 1:
            monkeypatch.setattr(session, "end", end)
        assert torch.equal(g(torch.ones(2, device=device)), fn(torch.ones(2, device=device)))
    found = failed(g)
    assert found.message == (
        "the segment was refused: CUDA error: operation failed due to a previous error; "
        "the last operation captured was aten::add.Tensor"
    )
    assert str(found.where) == where(fn, "y.exp() + 1") and found.source == "return y.exp() + 1"


class Busy:
    """State that is another one in the middle of a call, and as it was behind it."""

    __slots__ = ("__dict__", "slot")
    shared = 0

    def __init__(self):
        self.slot, self.attribute, self.gone = 0, 0, 0
        self.table, self.row, self.group = {"a": 1}, [1, 2, 3], {1}
        self.queue, self.nested = deque([1, 2]), Namespace(depth=0)

    def seen(self):
        """All of it, in its order."""
        return (
            self.slot, dict(vars(self)), [*self.table.items()], [*self.row], {*self.group}, [*self.queue],
            vars(self.nested).copy(), Busy.shared,
        )  # fmt: skip


def an_attribute(busy):
    busy.attribute += 1
    yield
    busy.attribute -= 1


def an_attribute_that_is_new(busy):
    busy.new = 1
    yield
    del busy.new


def an_attribute_that_is_gone(busy):
    was = busy.gone
    del busy.gone
    yield
    busy.gone = was


def a_slot(busy):
    busy.slot = 5
    yield
    busy.slot = 0


def an_attribute_of_a_class(busy):
    Busy.shared = 5
    yield
    Busy.shared = 0


def an_object_in_it(busy):
    busy.nested.depth += 1
    yield
    busy.nested.depth -= 1


def a_key(busy):
    busy.table["a"], busy.table["b"] = 2, 3
    yield
    busy.table["a"] = 1
    del busy.table["b"]


def all_keys(busy):
    was = dict(busy.table)
    busy.table.clear()
    yield
    busy.table.update(was)


def the_last_member(busy):
    last = busy.row.pop()
    yield
    busy.row.append(last)


def a_member_more(busy):
    busy.row.append(7)
    yield
    busy.row.pop()


def the_order(busy):
    busy.row.reverse()
    yield
    busy.row.reverse()


def a_member_of_a_set(busy):
    busy.group.add(9)
    yield
    busy.group.discard(9)


def both_ends_of_a_queue(busy):
    busy.queue.appendleft(busy.queue.pop())
    yield
    busy.queue.append(busy.queue.popleft())


WHILE = [
    an_attribute, an_attribute_that_is_new, an_attribute_that_is_gone, a_slot, an_attribute_of_a_class,
    an_object_in_it, a_key, all_keys, the_last_member, a_member_more, the_order, a_member_of_a_set,
    both_ends_of_a_queue,
]  # fmt: skip


@pytest.mark.parametrize("change", WHILE)
@pytest.mark.parametrize("times", [1, 2])
def test_a_call_that_is_attempted_once_more_finds_what_it_had_found(device, monkeypatch, change, times):
    """A segment is refused while the state of the callable is another one for a while."""
    session = HostSession if device.type == "cpu" else CudaSession
    really_end, left, busy = session.end, [times], Busy()
    before = busy.seen()

    def end(self):
        if not left[0]:
            return really_end(self)
        left[0] -= 1
        self.abort()
        raise CaptureError("the segment was refused")

    def fn(x):
        y = x * 3 if busy.seen() != before else x * 2
        steps = change(busy)
        next(steps)
        z = y + 1
        z = z - 1 if z.sum().item() > 1e9 else z * 2
        next(steps, None)
        return z

    monkeypatch.setattr(session, "end", end)
    g = rote.graph(fn)
    for call in range(WARM + 6):
        x = torch.full((3,), call + 0.5, device=device)
        assert torch.equal(g(x), (x * 2 + 1) * 2)
        assert busy.seen() == before
    assert left[0] < times


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")
def test_a_call_that_cuda_refuses_is_named_with_its_line():
    call = "torch._C._cuda_synchronize()"
    lines = ["def fn(x):", "    y = x * 2", f"    {call}", "    return y + 1"]
    file = f"<{call}>"
    linecache.cache[file] = (0, None, [line + "\n" for line in lines], file)
    space = {"torch": torch}
    exec(compile("\n".join(lines), file, "exec"), space)
    g = rote.graph(space["fn"])
    for _ in range(WARM + 2):
        assert g(torch.ones(2, device="cuda")).tolist() == [3.0, 3.0]
    found = failed(g)
    assert f"{call} raised " in found.message
    assert "the last operation captured was aten::mul.Tensor" in found.message
    assert "captur" in found.message and "\n" not in found.message
    assert (found.where.line, found.source) == (3, call)
    everything_works(torch.device("cuda"))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")  # torch.compile makes such a one
@pytest.mark.parametrize("what", ["inv", "synchronize", "event", "new stream", "empty_cache"])
def test_what_cuda_refuses_in_a_capture(what):
    device = torch.device("cuda")

    def fn(x):
        y = x * 2 + torch.rand_like(x) * 0
        if what == "inv":
            y = torch.linalg.inv(y)
        elif what == "synchronize":
            torch.cuda.synchronize()
        elif what == "event":
            event = torch.cuda.Event()
            event.record()
            event.synchronize()
        elif what == "new stream":
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                y = y + 1
            torch.cuda.current_stream().wait_stream(stream)
        else:
            torch.cuda.empty_cache()
        return y + 1

    stream = torch.cuda.current_stream()
    eye = torch.eye(4, device=device)
    g = compare(fn, [(eye + torch.rand(4, 4, device=device) / 8,) for _ in range(8)])
    assert torch.cuda.current_stream() == stream
    del g
    everything_works(device)
    compiled = torch.compile(lambda x: (x * 2 + torch.rand_like(x) * 0).sum(), mode="reduce-overhead")
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        assert compiled(torch.ones(4, device=device)).item() == 8.0
    everything_works(device)


def matrices(device, failing):
    """Positive definite, but for some."""
    generator = torch.Generator().manual_seed(0)
    for call in range(14):
        root = torch.randn(3, 3, generator=generator)
        yield (root @ root.T + (torch.eye(3) if call not in failing else -9 * torch.eye(3))).to(device)


@pytest.mark.parametrize("failing", [(1, 2), (6, 9), (3, 4, 5, 8)])
def test_a_factorization_whose_failure_the_callable_catches(device, failing):
    def factor(x):
        y = x * 2
        try:
            return torch.linalg.cholesky(y)
        except torch.linalg.LinAlgError as error:
            return (y + 1).square().sum() + len(str(error)), y

    g = compare(factor, [(x,) for x in matrices(device, failing)])
    assert g.report().replayed >= 8, g.explain()


def test_a_factorization_whose_failure_the_callable_catches_beside_state(device):
    def made():
        total = torch.zeros((), device=device)

        def factor(x):
            total.add_(1)
            try:
                y = torch.linalg.inv(x)
            except RuntimeError:
                y = x
                total.mul_(2)
            total.add_(y.sum())
            return y + torch.rand(1, device=device)

        return factor, lambda: total

    (fn, state), (plain, other) = made(), made()
    calls = [(x if i % 4 != 3 else torch.zeros_like(x),) for i, x in enumerate(matrices(device, ()))]
    g = compare(fn, calls, plain=plain, states=(state, other))
    assert g.report().replayed >= 8, g.explain()


def test_a_factorization_whose_failure_escapes(device):
    layer = nn.Linear(3, 3, device=device)

    def step(x):
        layer.zero_grad()
        loss = torch.linalg.cholesky(x + 0 * layer(x)).sum()
        loss.backward()
        return loss.detach()

    def state():
        return [None if each.grad is None else each.grad.clone() for each in layer.parameters()]

    g = compare(step, [(x,) for x in matrices(device, (5, 8, 9))], states=(state, state))
    assert g.report().replayed >= 6, g.explain()
    assert [each.code for each in g.report().recordings[0].islands] == ["RT131"]


INDEXING = {
    "rows": lambda table, rows: table[rows],
    "index_select": lambda table, rows: table.index_select(0, rows),
    "embedding": lambda table, rows: nn.functional.embedding(rows, table),
    "gather": lambda table, rows: table.gather(0, rows[:, None]),
    "beside a read": lambda table, rows: table[rows] * (2 if rows.sum() > 4 else 1),
}


@pytest.mark.parametrize("bad", [{4, 5, 8}, {0, 1, 2, 3, 7}, {3}], ids=["later", "first", "once"])
@pytest.mark.parametrize("name", INDEXING)
def test_an_index_out_of_range_that_the_callable_catches(name, bad):
    """On the host an operation raises in its replay, too (a device stops working for good)."""
    table = torch.arange(12.0).view(4, 3)

    def fn(rows):
        try:
            return INDEXING[name](table, rows) * 2
        except (IndexError, RuntimeError):
            return table[:2] - 1

    g = rote.graph(fn)
    for number in range(12):
        rows = torch.tensor([number % 4, 9 if number in bad else 1])
        assert torch.equal(g(rows), fn(rows)), f"call {number}"
    assert g.report().calls == 12 and g.report().replayed >= 3, g.explain()
    assert any("of a replay raised" in why.message for why in g.report().reasons), g.explain()


def test_an_index_out_of_range_that_leaves_the_callable():
    table = torch.arange(12.0).view(4, 3)
    g = rote.graph(lambda rows: table[rows] * 2)
    for number in range(12):
        rows = torch.tensor([0, 9 if number in (5, 8) else 1])
        if number in (5, 8):
            with pytest.raises(IndexError, match="index 9 is out of bounds"):
                g(rows)
        else:
            assert torch.equal(g(rows), table[rows] * 2)
    assert g.report().replayed >= 6


OUT_OF_RANGE: dict[str, tuple[Callable[[torch.Tensor, Any], Any], float]] = {
    "a negative power": (lambda x, n: x.long() ** (6 - n), 1),
    "stored in bytes": (lambda x, n: x.byte().fill_(n * 30), 1),
    "chosen for bytes": (lambda x, n: torch.where(x > 2, x.byte(), n * 30), 1),
    "stored": (lambda x, n: x.fill_(10.0**n), 6.0),
    "multiplied in place": (lambda x, n: x.add_(x, alpha=10.0**n), 6.0),
    "divided in place": (lambda x, n: x.addcdiv_(x, x, value=10.0**n), 6.0),
    "divided": (lambda x, n: x.long() // (7 - n), 1),
    "drawn": (lambda x, n: x.uniform_(0, 6 - n), 1),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_a_number_that_an_operation_cannot_take(name):
    """It raises where the call would, and what stands before and behind is as the call would leave it."""
    operation, rise = OUT_OF_RANGE[name]

    def steps(wrap):
        state, written = {"n": 0}, torch.zeros(4)

        def step(x):
            state["n"] += rise
            written.add_(1)
            written.add_(operation(x.clone(), state["n"]).sum())

        g = wrap(step)
        torch.manual_seed(0)
        for _ in range(11):
            try:
                g(torch.arange(1.0, 5.0))
            except RuntimeError as error:
                yield str(error)
            yield written.tolist(), state["n"]

    assert list(steps(rote.graph)) == list(steps(lambda function: function))


def test_an_index_out_of_range_in_a_call_that_has_written():
    table, count = torch.arange(12.0).view(4, 3), torch.zeros(())

    def fn(rows):
        count.add_(1)
        try:
            return table[rows] * 2
        except IndexError:
            return table[:2] - 1

    g = rote.graph(fn)
    for _ in range(5):
        g(torch.tensor([0, 1]))
    assert torch.equal(g(torch.tensor([0, 9])), table[:2] - 1)
    assert count == 6  # what the replay had counted is taken back
    assert torch.equal(g(torch.tensor([0, 1])), table[:2] * 2) and count == 7


@pytest.mark.parametrize("way", ["raised", "raised beside another", "noted", "given a traceback"])
def test_an_exception_made_outside_keeps_what_happens_to_it(device, way):
    error = ValueError("kept")

    def doubled(x):
        try:
            if way == "raised":
                raise error
            if way == "raised beside another":
                try:
                    raise KeyError
                except KeyError:
                    raise error  # noqa: B904
            if way == "noted":
                error.add_note("seen")
            else:
                error.with_traceback(other.__traceback__)
        except ValueError:
            pass
        return x * 2

    try:
        raise TypeError
    except TypeError as caught:
        other = caught
    g = rote.graph(doubled)
    for number in range(6):
        error.__traceback__ = error.__context__ = None
        g(torch.ones(2, device=device))
        assert (error.__traceback__ is None) == (way == "noted")
        assert (type(error.__context__) is KeyError) == (way == "raised beside another")
        assert len(getattr(error, "__notes__", ())) == (number + 1 if way == "noted" else 0)
