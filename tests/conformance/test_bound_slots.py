"""What a call binds outside of itself to tensors of its own: a replay binds it again."""

import collections
import copy
import types

import pytest
import torch
from torch import nn

import rote
from rote.testing import assert_same

CALLS = 12
WARM = 4


class Slotted:
    __slots__ = ("last",)


class Kept:
    pass


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = None

    def forward(self, x):
        self.last = x * 2
        return self.last + 1


def attribute(x):
    STATE.last = x * 2
    return STATE.last + 1


def item(x):
    KEPT["last"] = x * 2
    return KEPT["last"] + 1


def bound_global(x):
    global LAST
    LAST = x * 2
    return LAST + 1


def pair(x):
    STATE.last = (x * 2, x + 3, "kind", None)
    return x + 1


def result_itself(x):
    STATE.last = y = x * 2
    return y


def view_of_the_result(x):
    y = x * 2
    STATE.last = y[1:]
    return y


def twice(x):
    STATE.last = STATE.other = x * 2
    return x + 1


def filled_list(x):
    FEATURES.clear()
    for n in range(3):
        FEATURES.append(x * n)
    return FEATURES[0] + FEATURES[2]


def filled_dict(x):
    KEPT.clear()
    KEPT["a"] = x * 2
    KEPT["b"] = KEPT["a"] + 1
    return KEPT["b"]


def by_setitem(x):
    KEPT.__setitem__("last", x * 2)
    return x + 1


def with_defaults(x):
    STATE.last = collections.defaultdict(list)
    STATE.last["a"].append(x * 2)
    STATE.last["b"] += [x, x * 3]
    return x + 1


def with_defaults_inside(x):
    KEPT["last"] = {"totals": collections.defaultdict(float, n=1.0), "none": [collections.defaultdict(None)]}
    KEPT["last"]["totals"]["sum"] = x.sum()
    return x + 1


def argument_itself(x):
    STATE.last = x
    return x + 1


STATE = types.SimpleNamespace(last=None, other=None)
KEPT = {}
FEATURES = []
LAST = None

PROGRAMS = [
    attribute, item, bound_global, pair, result_itself, view_of_the_result, twice, filled_list, filled_dict,
    by_setitem, with_defaults, with_defaults_inside,
]  # fmt: skip


@pytest.fixture(autouse=True)
def fresh():
    global LAST
    yield
    LAST = None
    STATE.last = STATE.other = None
    KEPT.clear()
    FEATURES.clear()


def seen():
    """All that a program may have left, in a form that shows which tensors are one."""
    flat = [STATE.last, STATE.other, LAST, *KEPT.items(), *FEATURES]
    return [[*part] if isinstance(part, tuple) else [part] for part in flat]


def copied(parts):
    return copy.deepcopy(parts)


def assert_equal(ours, theirs):
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert len(one) == len(other)
        assert_same(one, other)


def inputs(device, count=CALLS):
    return [torch.arange(4.0, device=device) + n for n in range(count)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_replay_binds_what_the_call_binds(device, program):
    g = rote.graph(program)
    for x in inputs(device):
        out = g(x)
        ours = [out, *copied(seen())]
        theirs = [program(x), *copied(seen())]
        assert torch.equal(ours[0], theirs[0])
        assert_equal(ours[1:], theirs[1:])
    assert g.report().replayed >= CALLS - WARM, g.explain()


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_bound_stays_what_it_was(device, program):
    """A later replay writes into none of it."""
    g, held = rote.graph(program), []
    for x in inputs(device):
        g(x)
        held.append((seen(), copied(seen())))
    for now, then in held[-4:]:
        if program is not filled_list and program is not filled_dict:
            assert_equal(now, then)


def test_what_is_one_tensor_is_one_afterwards(device):
    g = rote.graph(result_itself)
    for x in inputs(device):
        out = g(x)
        assert STATE.last is out
    h = rote.graph(view_of_the_result)
    for x in inputs(device):
        out = h(x)
        assert STATE.last.data_ptr() == out[1:].data_ptr()
    k = rote.graph(twice)
    for x in inputs(device):
        k(x)
        assert STATE.last is STATE.other
    assert min(each.report().replayed for each in (g, h, k)) >= CALLS - WARM


def bound(x, box):
    STATE.last = collections.defaultdict(box().make, a=x * 2)
    return STATE.last["a"] + 1


def returned(x, box):
    return collections.defaultdict(box().make, a=x * 2)


def a_method(x, box):
    STATE.last = box().make
    return x + 1


@pytest.mark.parametrize("program", [bound, returned, a_method])
def test_what_makes_defaults_is_the_object_that_the_call_has_found(device, program):
    """A method of an equal object in its place is another one."""

    class Box:
        def make(self):
            return 0.0

    box = Box()
    g = rote.graph(lambda x: program(x, lambda: box))
    for n, x in enumerate(inputs(device, 2 * CALLS)):
        box = box if n % 6 else Box()
        out = g(x)
        kept = STATE.last if STATE.last is not None else out
        made = kept if program is a_method else kept.default_factory
        assert made.__self__ is box
        assert program is a_method or torch.equal(kept["a"], x * 2)
    assert program is a_method or g.report().replayed > 0


def test_what_makes_defaults_is_no_object_of_the_calls_own(device, reason):
    class Zeros:
        def __init__(self, found):
            self.found = found

        def __call__(self):
            return self.found

        def __eq__(self, other):
            return isinstance(other, Zeros)

        __hash__ = None

    def fn(x):
        return collections.defaultdict(Zeros(STATE.other), a=x * 2)

    g = rote.graph(fn)
    for n, x in enumerate(inputs(device)):
        STATE.other = n
        assert g(x)["b"] == n
    assert g.report().replayed == 0


def test_an_argument_that_is_kept(device):
    g = rote.graph(argument_itself)
    for x in inputs(device):
        assert torch.equal(g(x), x + 1)
        assert STATE.last is x


def test_a_slot_of_a_class_with_slots(device):
    o = Slotted()

    def fn(x):
        o.last = x * 2
        return x + 1

    g = rote.graph(fn)
    for x in inputs(device):
        g(x)
        assert torch.equal(o.last, x * 2)
    assert g.report().replayed >= CALLS - WARM


def test_a_variable_of_the_function_around(device):
    last = None

    def fn(x):
        nonlocal last
        last = x * 2
        return last + 1

    g = rote.graph(fn)
    for x in inputs(device):
        g(x)
        assert torch.equal(last, x * 2)
    assert g.report().replayed >= CALLS - WARM


def test_an_attribute_of_a_module(device):
    m = Policy()
    g = rote.graph(m)
    for x in inputs(device):
        assert torch.equal(g(x), x * 2 + 1)
        assert torch.equal(m.last, x * 2)
    assert g.report().replayed >= CALLS - WARM


def test_the_caller_takes_it_away(device):
    g = rote.graph(item)
    for n, x in enumerate(inputs(device)):
        g(x)
        assert torch.equal(KEPT.pop("last") if n % 2 else KEPT["last"], x * 2)
    assert g.report().replayed >= CALLS // 2


def test_a_feature_with_a_graph(device):
    """What a hook keeps takes part in a loss outside."""
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)).to(device)
    kept = {}
    m[1].register_forward_hook(lambda module, args, out: kept.__setitem__("feature", out))
    g, found = rote.graph(m), {}
    for x in inputs(device):
        for name, call in (("ours", g), ("theirs", m)):
            loss = call(x[None]).square().sum() + kept["feature"].abs().sum()
            found[name] = torch.autograd.grad(loss, list(m.parameters()))
        assert all(map(torch.equal, found["ours"], found["theirs"]))
    assert g.report().replayed >= CALLS - WARM, g.explain()


def test_only_one_way_binds(device):
    def fn(x):
        if x.sum() > 30:
            STATE.last = x * 2
        return x + 1

    g = rote.graph(fn)
    for x in inputs(device, 24):
        STATE.last = None
        g(x)
        ours, STATE.last = STATE.last, None
        fn(x)
        assert (ours is None) == (STATE.last is None)
        assert ours is None or torch.equal(ours, STATE.last)
    assert g.report().replayed >= 8, g.explain()


def test_what_is_read_before_it_is_bound_is_carried(device):
    """A state that goes on from call to call."""
    STATE.last = torch.zeros(4, device=device)

    def fn(x):
        STATE.last = STATE.last * 0.5 + x
        return STATE.last + 1

    g, state = rote.graph(fn), torch.zeros(4, device=device)
    for x in inputs(device):
        state = state * 0.5 + x
        assert torch.equal(g(x), state + 1)
        assert torch.equal(STATE.last, state)
    assert g.report().replayed >= CALLS - WARM, g.explain()


@pytest.mark.parametrize("program", [attribute, filled_list, result_itself])
def test_a_check_knows_what_is_bound(device, program):
    g = rote.graph(program, verify=2)
    for x in inputs(device):
        out = g(x)
        ours = copied(seen())
        assert torch.equal(out, program(x))
        assert_equal(ours, copied(seen()))
    assert g.report().verified >= 2, g.explain()


def test_gradients_are_not_wanted(device):
    g = rote.graph(attribute)
    with torch.inference_mode():
        for x in inputs(device):
            g(x)
            assert torch.equal(STATE.last, x * 2) and STATE.last.is_inference()
    assert g.report().replayed >= CALLS - WARM


def test_a_list_that_grows(device):
    def fn(x):
        FEATURES.append(x * 2)
        return x + 1

    g = rote.graph(fn)
    for n, x in enumerate(inputs(device)):
        g(x)
        assert len(FEATURES) == n + 1 and torch.equal(FEATURES[-1], x * 2)
    assert g.report().replayed >= CALLS - WARM


def test_modes_in_turns(device):
    """Two wrappers that set what the other one has set differently."""
    m = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).to(device).requires_grad_(False)

    def training(x):
        m.train()
        return m[0](x) + m.training

    def evaluation(x):
        m.eval()
        return m(x) * 2

    g, h = rote.graph(training), rote.graph(evaluation)
    for x in inputs(device, 16):
        assert torch.equal(g(x[None]), m[0](x[None]) + 1)
        assert m.training and m[1].training
        assert torch.equal(h(x[None]), m[0](x[None]) * 2)
        assert not (m.training or m[1].training)
    assert min(g.report().replayed, h.report().replayed) >= 8, g.explain() + h.explain()


def test_a_constant_that_the_caller_takes_back(device):
    def fn(x):
        STATE.last = "done"
        return x * 2

    g = rote.graph(fn)
    for n, x in enumerate(inputs(device, 24)):
        if n % 3 == 0:
            STATE.last = n
        g(x)
        assert STATE.last == "done"
    assert g.report().replayed >= 8, g.explain()


def test_a_check_of_constants(device):
    def fn(x):
        STATE.last = "done"
        return x * 2

    g = rote.graph(fn, verify=2)
    for n, x in enumerate(inputs(device, 24)):
        if n % 2:
            STATE.last = n
        assert torch.equal(g(x), x * 2)
        assert STATE.last == "done"
    assert g.report().verified >= 2, g.explain()


def test_another_dict_of_attributes(device):
    """Nothing is read of the object but which it is, and a replay writes into the dict that it has."""
    state = types.SimpleNamespace(kept=Kept())

    def fn(x):
        y = x * 2
        state.kept.last = y[:1]
        return y

    g = rote.graph(fn)
    for number in range(CALLS):
        if number == 6:
            state.kept.__dict__ = {"other": 1}
        x = torch.full((3,), float(number), device=device)
        assert torch.equal(g(x), x * 2)
        assert torch.equal(vars(state.kept)["last"], x[:1] * 2), f"call {number}"
    assert g.report().replayed >= 6


class Alternating(nn.Module):
    """Its layers take turns: an index on the module says whose turn it is."""

    def __init__(self, count):
        super().__init__()
        torch.manual_seed(0)
        self.layers = [nn.Linear(3, 3) for _ in range(count)]
        self.turn = 0

    def forward(self, x):
        self.turn = (self.turn + 1) % len(self.layers)
        return [each(x) for each in self.layers][self.turn] * 2


@pytest.mark.parametrize("count", [2, 4])
def test_a_number_that_goes_round(device, count):
    m, n = (Alternating(count) for _ in range(2))
    for each in (m, n):
        each.layers = [layer.to(device) for layer in each.layers]
    g = rote.graph(m, keep=True)
    with torch.no_grad():
        for step in range(60):
            x = torch.full((2, 3), float(step), device=device)
            assert torch.equal(g(x), n(x))
            assert m.turn == n.turn
            if step % 17 == 16:
                m.turn = n.turn = 0
    assert g.report().replayed >= 30, g.explain()
