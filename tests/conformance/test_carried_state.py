"""State that calls replace: what lies in a slot is an argument, and what a call leaves there is an effect."""

import gc
import random
import threading
import types
import weakref
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

import pytest
import torch
from torch import nn

import rote

CALLS = 16
WARM = 7


class Slotted:
    __slots__ = ("s",)


class Module(nn.Module):
    pass


class Buffered(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.register_buffer("s", value)


class Inner:
    pass


# ---------------------------------------------------------------------- where state lies

GLOBAL = None


def in_attribute(value):
    o = types.SimpleNamespace(s=value)
    return lambda: o.s, lambda new: setattr(o, "s", new)


def in_module(value):
    m = Module()
    m.s = value
    return lambda: m.s, lambda new: setattr(m, "s", new)


def in_buffer(value):
    m = Buffered(value if isinstance(value, torch.Tensor) else None)
    m.s = value if isinstance(value, torch.Tensor) else m.s
    if not isinstance(value, torch.Tensor):
        del m.s
        m.s = value
    return lambda: m.s, lambda new: setattr(m, "s", new)


def in_slot(value):
    o = Slotted()
    o.s = value
    return lambda: o.s, lambda new: setattr(o, "s", new)


def in_dict(value):
    o = types.SimpleNamespace(d={"s": value, "other": 1})
    return lambda: o.d["s"], lambda new: o.d.__setitem__("s", new)


def in_list(value):
    o = types.SimpleNamespace(states=[None, value])
    return lambda: o.states[1], lambda new: o.states.__setitem__(1, new)


def deep_inside(value):
    o = types.SimpleNamespace(inner=Inner())
    o.inner.tables = [{"s": value}]
    return lambda: o.inner.tables[0]["s"], lambda new: o.inner.tables[0].__setitem__("s", new)


def in_variable(value):
    s = value

    def put(new):
        nonlocal s
        s = new

    return lambda: s, put


def in_global(value):
    global GLOBAL
    GLOBAL = value

    def put(new):
        global GLOBAL
        GLOBAL = new

    return lambda: GLOBAL, put


def in_class(value):
    kind = type("Kind", (), {"s": value})
    return lambda: kind.s, lambda new: setattr(kind, "s", new)


def in_base(value):
    base = type("Base", (nn.Module,), {"s": value})
    o = type("Derived", (base,), {})()
    return lambda: o.s, lambda new: setattr(base, "s", new)


PLACES = [
    in_attribute, in_module, in_buffer, in_slot, in_dict, in_list, deep_inside, in_variable, in_class,
    in_base,
]  # fmt: skip

# ---------------------------------------------------------------------- what lies there


def tensor(fresh):
    return fresh(), lambda s, f: f(s), lambda s: s


def pair(fresh):
    return (fresh(), fresh()), lambda s, f: (f(s[0]), f(s[1] + s[0])), lambda s: s[0] - s[1]


def in_a_list(fresh):
    return [fresh(), fresh()], lambda s, f: [f(s[1]), f(s[0])], lambda s: s[0] - s[1]


def in_a_dict(fresh):
    return (
        {"h": fresh(), "c": fresh()},
        lambda s, f: {"h": f(s["c"]), "c": f(s["h"])},
        lambda s: s["h"] - s["c"],
    )


def with_plain(fresh):
    return (
        {"h": fresh(), "kind": "gru", "n": 3},
        lambda s, f: {**s, "h": f(s["h"])},
        lambda s: s["h"] * s["n"],
    )


@dataclass(frozen=True, slots=True)
class Fields:
    h: torch.Tensor
    n: float = 0.5

    def __matmul__(self, f):
        return Fields(f(self.h), self.n)


def in_slots(fresh):
    return Fields(fresh()), lambda s, f: s @ f, lambda s: s.h * s.n


VALUES = [tensor, pair, in_a_list, in_a_dict, with_plain, in_slots]


def leaves(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Fields):
        return [value.h]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [leaf for part in parts for leaf in leaves(part)]


def copied(value):
    return [leaf.clone() for leaf in leaves(value)]


def assert_equal(ours, theirs):
    ours, theirs = leaves(ours), leaves(theirs)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype and one.stride() == other.stride()
        assert torch.equal(one, other)


def fresh_on(device, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return lambda *size: torch.randn(*(size or (2, 4)), generator=generator).to(device)


def step_of(place, kind, fresh):
    """A step over state in a place; it, and what reads and replaces the state."""
    value, replaced, read = kind(fresh)
    get, put = place(value)

    def step(x):
        s = get()
        put(replaced(s, lambda each: torch.tanh(each * 0.5 + x)))
        return read(s) + read(get())

    return step, get, put


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("place", PLACES)
def test_a_step_replaces_its_state(device, place, kind):
    ours, get, _ = step_of(place, kind, fresh_on(device))
    theirs, get_theirs, _ = step_of(place, kind, fresh_on(device))
    g, xs, held = rote.graph(ours, keep=True), fresh_on(device, 1), []
    for _ in range(CALLS):
        x = xs()
        assert torch.equal(g(x), theirs(x))
        assert_equal(get(), get_theirs())
        held.append((get(), copied(get())))
    for now, then in held:
        assert_equal(now, then)
    if kind is not in_slots or place not in (in_class, in_base):  # objects in classes may be descriptors
        assert g.report().replayed >= CALLS - WARM, g.explain()


@pytest.mark.parametrize("slots", [False, True])
def test_numbers_beside_it_in_slots(device, slots):
    @dataclass(frozen=True, slots=slots)
    class Pose:
        h: torch.Tensor
        turns: int = 0

        def __matmul__(self, x):
            return replace(self, h=self.h * 0.5 + x, turns=self.turns + 1)

    o, p = types.SimpleNamespace(s=Pose(torch.zeros(3))), types.SimpleNamespace(s=Pose(torch.zeros(3)))

    def step(o, x):
        o.s = o.s @ x
        return o.s.h * o.s.turns

    g, held = rote.graph(partial(step, o), keep=True), []
    for number in range(24):
        x = torch.full((3,), float(number), device=device).cpu()
        assert torch.equal(g(x), step(p, x)) and o.s.turns == p.s.turns
        held.append((o.s, o.s.h.clone(), o.s.turns))
        assert all(torch.equal(each.h, h) and each.turns == turns for each, h, turns in held)
        if number % 9 == 8:
            o.s, p.s = Pose(torch.ones(3)), Pose(torch.ones(3))
    assert g.report().replayed >= 12, g.explain()


@pytest.mark.parametrize("kind", [tensor, pair])
def test_a_global(device, kind):
    g = rote.graph(step_of(in_global, kind, fresh_on(device))[0], keep=True)
    xs, found = fresh_on(device, 1), []
    for _ in range(CALLS):
        found.append(g(xs()).clone())
    assert g.report().replayed >= CALLS - WARM, g.explain()
    theirs, xs = step_of(in_global, kind, fresh_on(device))[0], fresh_on(device, 1)
    for each in found:
        assert torch.equal(each, theirs(xs()))


# ---------------------------------------------------------------------- what comes between two calls


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", [tensor, pair, in_a_dict, in_slots])
def test_whatever_the_caller_does_in_between(device, kind, seed):
    """States are reset, kept, shared with arguments, of other sizes, or written in place."""
    choose = random.Random(seed)
    place = choose.choice(PLACES)
    steps = [step_of(place, kind, fresh_on(device)) for _ in range(2)]
    g = rote.graph(steps[0][0], keep=True)
    calls, held, size = [g, steps[1][0]], [], (2, 4)
    inputs, resets = [[fresh_on(device, 1 + seed) for _ in range(2)] for _ in range(2)]
    kept = [None, None]
    for _ in range(30):
        what = choose.choice(("nothing",) * 8 + ("reset", "size", "write", "keep", "put back", "given"))
        if what == "size":
            size = (choose.choice((1, 2, 3)), 4)
        given = []
        for n, (_, get, put) in enumerate(steps):
            if what in ("reset", "size"):
                put(kind(partial(resets[n], *size))[0])
            elif what == "write":
                leaves(get())[0].mul_(0.5)
                held.clear()
            elif what == "keep":
                kept[n] = get()
            elif what == "put back" and kept[n] is not None and leaves(kept[n])[0].shape == size:
                put(kept[n])
            given.append(leaves(get())[0] if what == "given" else inputs[n](*size))
        results = [call(x) for call, x in zip(calls, given, strict=True)]
        assert torch.equal(*results), what
        assert_equal(steps[0][1](), steps[1][1]())
        held.append((steps[0][1](), copied(steps[0][1]())))
        for now, then in held:
            assert_equal(now, then)
    if kind is not in_slots or place not in (in_class, in_base):
        assert g.report().replayed >= 1, g.explain()


def test_state_that_the_caller_replaces_and_calls_read(device):
    m, n = Module(), Module()
    g, xs, masks = rote.graph(lambda x: x * m.mask, keep=True), fresh_on(device), fresh_on(device, 1)
    for _ in range(CALLS):
        m.mask = n.mask = masks()
        x = xs()
        assert torch.equal(g(x), x * n.mask)
    assert g.report().replayed >= CALLS - WARM - 2, g.explain()


def test_two_tensors_in_turn_are_used_in_place(device):
    """They have a recording each, as ever: nothing is copied."""
    m, both = Module(), [torch.ones(4, device=device), torch.zeros(4, device=device)]
    g = rote.graph(lambda x: x + m.s, keep=True)
    for n in range(CALLS):
        m.s = both[n % 2]
        assert torch.equal(g(torch.ones(4, device=device)), 1 + both[n % 2])
    assert len(g.report().recordings) == 2, g.explain()
    both[0].fill_(7)
    m.s = both[0]
    assert torch.equal(g(torch.ones(4, device=device)), torch.full((4,), 8.0, device=device))


# ---------------------------------------------------------------------- programs


def twice(make):
    torch.manual_seed(0)
    one = make()
    torch.manual_seed(0)
    return one, make()


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 4)
        self.states = None

    def forward(self, x):
        if self.states is None:
            self.states = (torch.zeros_like(x), torch.zeros_like(x))
        self.states = self.cell(x, self.states)
        return self.states[0]


def test_a_policy_with_a_memory_that_is_reset(device):
    m, n = twice(lambda: Recurrent().to(device))
    g, xs = rote.graph(m, keep=True), fresh_on(device)
    with torch.no_grad():
        for number in range(40):
            if number % 10 == 0:
                m.states = n.states = None
            x = xs()
            assert torch.equal(g(x), n(x))
            assert_equal(m.states, n.states)
    assert g.report().replayed >= 24, g.explain()


class OfCells(nn.Module):
    """Keeps the states of several cells in a container, which the user makes anew to reset them."""

    def __init__(self, kind):
        super().__init__()
        self.cells = nn.ModuleList([nn.LSTMCell(4, 4) for _ in range(2)])
        self.kind = kind
        self.reset()

    def reset(self):
        self.states = {"None": lambda: [None, None], "dict": dict, "marks": lambda: [0, "new"]}[self.kind]()

    def forward(self, x):
        for number, cell in enumerate(self.cells):
            known = self.states.get(number) if self.kind == "dict" else self.states[number]
            self.states[number] = cell(x, known if type(known) is tuple else None)
            x = self.states[number][0]
        return x


@pytest.mark.parametrize("kind", ["None", "dict", "marks"])
def test_the_container_of_states_is_made_anew(device, kind):
    m, n = twice(lambda: OfCells(kind).to(device))
    g, xs = rote.graph(m, keep=True), fresh_on(device)
    with torch.no_grad():
        for number in range(72):
            if number % 6 == 0:
                m.reset()
                n.reset()
            if number == 48:
                before = g.report()
            held, x = m.states, xs()
            assert torch.equal(g(x), n(x))
            assert m.states is held
            assert_equal(m.states, n.states)
    after = g.report()
    assert after.replayed - before.replayed == 24, g.explain()  # also the calls after a reset


class Differences(nn.Module):
    """Keeps an argument, and returns what it kept before."""

    def __init__(self):
        super().__init__()
        self.last = None

    def forward(self, x):
        before, self.last = self.last, x
        return x - (x if before is None else before), before


def test_the_argument_of_the_last_call(device):
    m, n = Differences(), Differences()
    g, xs = rote.graph(m, keep=True), fresh_on(device)
    last = None
    for _ in range(CALLS):
        x = xs()
        (ours, before), (theirs, _) = g(x), n(x)
        assert torch.equal(ours, theirs)
        assert before is last and m.last is x
        last = x
    assert g.report().replayed >= CALLS - WARM, g.explain()


class Queue(nn.Module):
    """Three slots, through which tensors move."""

    def __init__(self, device):
        super().__init__()
        self.a, self.b, self.c = (torch.full((2, 4), float(n), device=device) for n in range(3))

    def forward(self, x):
        self.a, self.b, self.c = self.b, self.c, self.a * 0.5 + x
        return self.a + 2 * self.b + 3 * self.c


def test_tensors_move_from_slot_to_slot(device):
    m, n = Queue(device), Queue(device)
    g, xs = rote.graph(m, keep=True), fresh_on(device)
    for number in range(CALLS):
        x, b = xs(), m.b
        assert torch.equal(g(x), n(x))
        assert m.a is b
        assert_equal([m.a, m.b, m.c], [n.a, n.b, n.c])
        if number == 9:
            m.a, n.a = m.b, n.b  # one tensor in two slots
        if number == 12:
            m.a.zero_(), n.a.zero_()
    assert g.report().replayed >= 4, g.explain()


class Written(nn.Module):
    """State is written in place, and replaced every other way of the call."""

    def __init__(self, device):
        super().__init__()
        self.s = torch.zeros(2, 4, device=device)

    def forward(self, x):
        self.s.add_(x)
        out = self.s.clone()
        self.s = self.s * 0.5
        return out


def test_state_that_is_written_and_then_replaced(device):
    m, n = Written(device), Written(device)
    g, xs = rote.graph(m, keep=True), fresh_on(device)
    for _ in range(CALLS):
        x, held, theirs = xs(), m.s, n.s
        assert torch.equal(g(x), n(x))
        assert torch.equal(held, theirs) and torch.equal(m.s, n.s)
    assert g.report().replayed >= CALLS - WARM, g.explain()


class Branching(nn.Module):
    """Which slot is replaced depends on a value."""

    def __init__(self, device):
        super().__init__()
        self.up, self.down = torch.zeros(4, device=device), torch.zeros(4, device=device)

    def forward(self, x):
        if x.sum() > 0:
            self.up = self.up + x
        else:
            self.down = self.down - x
        return self.up - self.down


def test_a_value_decides_what_is_replaced(device):
    m, n = Branching(device), Branching(device)
    g, xs = rote.graph(m, keep=True), fresh_on(device)
    for _ in range(40):
        x, up, down = xs(4), m.up, m.down
        assert torch.equal(g(x), n(x))
        assert torch.equal(m.up, n.up) and torch.equal(m.down, n.down)
        assert (m.up is up) == (x.sum().item() <= 0) and (m.down is down) == (x.sum().item() > 0)
    assert g.report().replayed >= 16, g.explain()


def test_training_with_a_memory(device):
    """A truncated backward: the memory is detached between two steps."""

    def make():
        m = nn.ModuleDict({"cell": nn.GRUCell(4, 4), "head": nn.Linear(4, 1)}).to(device)
        m.h = torch.zeros(2, 4, device=device)

        def step(x):
            m.h = m.cell(x, m.h.detach())
            loss = m.head(m.h).square().mean()
            loss.backward()
            return loss.detach()

        return step, m

    (ours, m), (theirs, n) = twice(make)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (m, n)]
    g, xs = rote.graph(ours, keep=True), fresh_on(device)
    for _ in range(CALLS):
        x = xs()
        assert torch.equal(g(x), theirs(x))
        for one, other in zip(m.parameters(), n.parameters(), strict=True):
            assert torch.equal(one.grad, other.grad)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        assert torch.equal(m.h, n.h)


def test_gradients_through_a_memory(device):
    """The state carries a history from call to call, and one backward goes through three of them."""

    def make():
        m = nn.GRUCell(4, 4).to(device)
        m.h = torch.zeros(2, 4, device=device)

        def step(x):
            m.h = m(x, m.h)
            return m.h

        return step, m

    (ours, m), (theirs, n) = twice(make)
    g, xs = rote.graph(ours, keep=True), fresh_on(device)
    for _ in range(8):
        total = [0.0, 0.0]
        for _ in range(3):
            x = xs()
            total = [total[0] + g(x).sum(), total[1] + theirs(x).sum()]
        torch.testing.assert_close(*total, rtol=0, atol=0)
        for each in total:
            each.backward()
        for one, other in zip(m.parameters(), n.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
        m.h, n.h = m.h.detach(), n.h.detach()
        m.zero_grad(), n.zero_grad()


# ---------------------------------------------------------------------- errors, checks, lifetimes, threads


def test_a_call_that_raises_leaves_the_state_as_plain_does(device):
    def make():
        o = types.SimpleNamespace(s=torch.zeros(4, device=device), fails=False)

        def step(x):
            y = o.s + x
            if o.fails:
                raise ValueError("no")
            o.s = y * 0.5
            return y

        return step, o

    (ours, o), (theirs, p) = make(), make()
    g, xs = rote.graph(ours, keep=True), fresh_on(device)
    for number in range(24):
        x, before = xs(4), o.s
        o.fails = p.fails = number in (1, 2, 5, 11, 12)
        if o.fails:
            for each in (g, theirs):
                with pytest.raises(ValueError, match="no"):
                    each(x)
            assert o.s is before
            continue
        assert torch.equal(g(x), theirs(x))
        assert torch.equal(o.s, p.s)
    assert g.report().replayed >= 6, g.explain()


def test_the_check_runs_the_plain_call_on_the_state_of_the_call(device):
    ours, get, _ = step_of(in_module, pair, fresh_on(device))
    theirs, get_theirs, _ = step_of(in_module, pair, fresh_on(device))
    g, xs = rote.graph(ours, keep=True, verify=2), fresh_on(device, 1)
    for _ in range(CALLS):
        x = xs()
        assert torch.equal(g(x), theirs(x))
        assert_equal(get(), get_theirs())
    report = g.report()
    assert report.replayed >= CALLS - WARM and report.verified >= 2, g.explain()


def test_what_was_replaced_is_not_kept(device):
    ours, get, put = step_of(in_module, tensor, fresh_on(device))
    g, xs = rote.graph(ours, keep=True), fresh_on(device, 1)
    for _ in range(CALLS):
        g(xs())
    old = weakref.ref(get())
    g(xs())
    gc.collect()
    assert old() is None
    put(None)
    del ours, put, get
    gone = weakref.ref(g)
    del g
    gc.collect()
    assert gone() is None


def test_an_owner_that_is_gone(device):
    """Another object comes in its place; it has recordings of its own."""
    box = types.SimpleNamespace(m=None)

    def step(x):
        box.m.s = box.m.s * 0.5 + x
        return box.m.s

    g, xs = rote.graph(step, keep=True), fresh_on(device)
    for _ in range(3):
        box.m = Module()
        box.m.s = state = torch.zeros(2, 4, device=device)
        for _ in range(CALLS):
            x = xs()
            state = state * 0.5 + x
            assert torch.equal(g(x), state)
    assert g.report().replayed >= CALLS - WARM, g.explain()


def scaling(w):
    return lambda x: x * w


def owning(**attributes):
    owner = Inner()
    vars(owner).update(attributes)
    return owner


REPLACED = {
    "attribute": (
        lambda w: owning(w=w), lambda owner, x: x * owner.w, lambda owner, w: setattr(owner, "w", w),
    ),
    "item": (
        lambda w: owning(d={"w": w}), lambda owner, x: x * owner.d["w"],
        lambda owner, w: owner.d.update(w=w),
    ),
    "closure": (
        scaling, lambda owner, x: owner(x),
        lambda owner, w: setattr(owner.__closure__[0], "cell_contents", w),
    ),
}  # fmt: skip


@pytest.mark.parametrize("place", REPLACED)
def test_another_owner_that_reads_the_same(device, place):
    """It lies in the place of the one with the slot, which is carried: its own slot is another one."""
    make, use, put = REPLACED[place]
    box, gone = types.SimpleNamespace(owner=make(torch.rand(4, device=device))), []
    graphed = rote.graph(lambda x: use(box.owner, x), keep=True)
    for n in range(60):
        if n % 20 == 19:
            gone.append(box.owner)
            box.owner = make(torch.rand(4, device=device))
        elif n % 2 == 0:
            put(box.owner, torch.rand(4, device=device))
        x = torch.rand(2, 4, device=device)
        assert torch.equal(graphed(x), use(box.owner, x))
    assert graphed.report().replayed


def test_two_callables_over_one_state(device):
    m, n = Module(), Module()
    m.s = n.s = torch.zeros(2, 4, device=device)

    def write(o, x):
        o.s = o.s + x
        return o.s.sum()

    def read(o, x):
        return o.s * x

    g, h = rote.graph(lambda x: write(m, x), keep=True), rote.graph(lambda x: read(m, x), keep=True)
    xs = fresh_on(device)
    for _ in range(CALLS):
        x = xs()
        assert torch.equal(g(x), write(n, x))
        assert torch.equal(h(x), read(n, x))
    assert min(each.report().replayed for each in (g, h)) >= CALLS - WARM - 2


def test_threads_each_with_a_state_of_their_own(device):
    """One callable for all, whose state lies in a table by thread."""
    table = {}

    def step(x, name):
        table[name] = table[name] * 0.5 + x
        return table[name]

    g, errors = rote.graph(step, keep=True), []

    def work(name):
        try:
            table[name] = state = torch.zeros(2, 4, device=device)
            xs = fresh_on(device, name)
            for _ in range(30):
                x = xs()
                state = state * 0.5 + x
                assert torch.equal(g(x, name), state)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not errors


def test_the_report_names_the_slot(device):
    m = Module()
    m.s = torch.zeros(2, 4, device=device)

    def step(x):
        m.s = m.s + x
        return m.s

    g, xs = rote.graph(step, keep=True), fresh_on(device)
    for _ in range(CALLS):
        g(xs())
    assert "m.s" in g.explain()
    m.s = torch.zeros(1, 4, device=device)
    g(xs())
    assert any("state['" in each.message and "m.s" in each.message for each in g.report().reasons), (
        g.explain()
    )


def test_reset_forgets_what_is_carried(device):
    ours, get, _ = step_of(in_module, tensor, fresh_on(device))
    theirs, get_theirs, _ = step_of(in_module, tensor, fresh_on(device))
    g, xs = rote.graph(ours, keep=True), fresh_on(device, 1)
    for _ in range(3):
        for _ in range(CALLS):
            x = xs()
            assert torch.equal(g(x), theirs(x))
        assert g.report().replayed >= CALLS - WARM
        g.reset()
    assert_equal(get(), get_theirs())


class Mean:
    """What a metric keeps: sums that it adds to in place, and makes anew when it is reset."""

    def __init__(self, device):
        self.device = device
        self.reset()

    def reset(self):
        self.total = torch.tensor(0.0, device=self.device)
        self.weight = torch.tensor(0.0, device=self.device)

    def update(self, x):
        self.total += x.sum()
        self.weight += 1


def test_what_is_added_to_in_place_and_reset_now_and_then(device):
    """A recording that copies an argument finds it in its slot again, and not something the call has left."""
    metric, plain = Mean(device), Mean(device)

    @rote.graph(keep=True)
    def step(x):
        metric.update(x)
        return x * 2

    sums, expected, replayed = [], [], []
    for _ in range(8):
        metric.reset()
        plain.reset()
        before = step.report().replayed
        for _ in range(10):  # nobody else holds a sum, as an assertion would
            x = torch.randn(4, device=device)
            step(x)
            plain.update(x)
            sums.append((float(metric.total), float(metric.weight)))
            expected.append((float(plain.total), float(plain.weight)))
        replayed.append(step.report().replayed - before)
    assert sums == expected
    assert min(replayed[4:]) >= 9
    assert not any([why.code == "RT206" for why in step.report().reasons])


# ---------------------------------------------------------------------- members of enumerations


class Key(Enum):
    IMAGE, MASK = "image", "mask"


LISTS = {
    "as it was": lambda kept: [Key(each) for each in kept],
    "turned": lambda kept: kept[::-1],
    "in a dict": lambda kept: [{"key": each["key"] if isinstance(each, dict) else each} for each in kept],
    "types": lambda kept: [torch.float32 if each is torch.float64 else torch.float64 for each in kept],
    "truth values beside": lambda kept: [Key.MASK if each is True else True for each in kept],
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_members_of_an_enumeration_is_made_anew(name):
    def seen(wrap):
        holder = types.SimpleNamespace(kept=[Key.IMAGE, Key.MASK], calls=0)

        def step(x):
            first = holder.kept[0]
            holder.kept = LISTS[name](holder.kept)
            return x * (2 if first is Key.IMAGE else 3 if first is torch.float32 else 4)

        graphed, lists = wrap(step), []
        for number in range(CALLS):
            if number == WARM + 3:
                holder.kept = [Key.MASK]
            yield graphed(torch.ones(2)).tolist(), list(holder.kept)
            lists.append(holder.kept)
        yield [list(each) for each in lists], len({id(each) for each in lists})
        yield graphed

    *plain, _ = seen(lambda function: function)
    *found, graphed = seen(lambda function: rote.graph(function, keep=True))
    assert found == plain
    assert graphed.report().replayed >= 4, graphed.explain()
