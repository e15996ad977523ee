"""A tensor is read at a position that changes: a replay reads what lies there, or that is a condition."""

from __future__ import annotations

import random
import types

import pytest
import torch
import torch.nn.functional as F
from tests.conformance.numbers_programs import bits
from tests.seeds import seed
from torch.utils.checkpoint import checkpoint

import rote

COMPUTES = pytest.mark.parametrize("device", ["cpu"], indirect=True)

SIZE = 40
READS = {
    "a row": lambda table, n: table[n],
    "a row behind": lambda table, n: table[n, ...],
    "a column": lambda table, n: table.t()[:, n],
    "by select": lambda table, n: table.select(0, n),
    "by select from the end": lambda table, n: table.t().select(-1, n),
    "by a function": lambda table, n: torch.select(table, 0, n),
    "a part": lambda table, n: table[n : n + 2].sum(0),
    "a part of columns": lambda table, n: table.t()[:, n : n + 2].amax(1),
    "by narrow": lambda table, n: table.narrow(0, n, 3)[1],
    "by narrow of a column": lambda table, n: torch.narrow(table.t(), 1, n, 1)[:, 0],
    "computed": lambda table, n: table[n * 2 % SIZE],
    "behind": lambda table, n: table[n + 1],
    "of a view": lambda table, n: table[4:][n],
    "of what is made": lambda table, n: (table * 2)[n],
    "twice": lambda table, n: table[n] + table[n + 1] * 2,
    "along the other": lambda table, n: table[:, n % 3].sum() + table[n],
    "beside one that stays": lambda table, n: table.view(2, 20, 3)[1, n],
    "beside one from the end": lambda table, n: table.view(2, 20, 3)[-1, n, :],
    "beside a part": lambda table, n: table.view(2, 20, 3)[:1, n, 0:].sum(0),
    "with a new dimension": lambda table, n: table[None, n, None].sum(0)[0],
    "at two": lambda table, n: table.view(2, 20, 3)[n % 2, n],
    "at a number and a part": lambda table, n: table.view(2, 20, 3)[n % 2, n : n + 2].sum(0),
    "one after the other": lambda table, n: table.view(2, 20, 3)[n % 2][n],
    "of complex numbers": lambda table, n: torch.complex(table, table * 2)[n].abs(),
}
VIEWS = {
    "as it is": lambda row: row,
    "with a dimension": lambda row: row[None][0],
    "unsqueezed": lambda row: row.unsqueeze(-1).squeeze(-1),
    "spread": lambda row: row.expand(2, 3)[1],
    "shaped": lambda row: row.reshape(3, 1).view(-1) if row.is_contiguous() else row.reshape(3),
    "in parts": lambda row: torch.cat([row[:1], row[1:]]),
    "taken apart": lambda row: torch.stack(list(row)),
    "chunked": lambda row: torch.cat(row.chunk(3)),
    "detached": lambda row: row.detach(),
    "reversed": lambda row: row.flip(0),
    "cloned": lambda row: row.clone(),
    "copied": lambda row: torch.empty_like(row).copy_(row),
    "put": lambda row: put(torch.zeros_like(row), row),
}
USES = {
    "times": lambda x, row, state: x * row,
    "exponential": lambda x, row, state: row.exp() + x,
    "product": lambda x, row, state: torch.stack([row, x]) @ torch.stack([x, row]).t(),
    "sum": lambda x, row, state: x * row.sum(),
    "first": lambda x, row, state: x * row[0],
    "last": lambda x, row, state: x * row[-1] + row[1],
    "order": lambda x, row, state: row.sort().values + x,
    "twice": lambda x, row, state: (row * x) + (row - x),
    "where": lambda x, row, state: torch.where(row > 0, x, row),
    "in place of x": lambda x, row, state: x.mul_(row).add_(row),
    "shape": lambda x, row, state: x * row.shape[0] + row.dim(),
    "strides": lambda x, row, state: x * row.stride(0) + row,
    "written before": lambda x, row, state: (state.table.mul_(1.5), row * x)[1],
    "written between": lambda x, row, state: row * x + (state.table.add_(0.25), row)[1],
    "alone": lambda x, row, state: row.abs(),
    "written": lambda x, row, state: row.mul_(0.5) + x,
    "filled": lambda x, row, state: (row.fill_(2.0), x + state.table.sum())[1],
    "first filled": lambda x, row, state: (row[:1].fill_(2.0), x + state.table.sum())[1],
    "set": lambda x, row, state: (row.__setitem__(0, x[0]), x + state.table.sum())[1],
    "copied into": lambda x, row, state: (row.copy_(x), x + row)[1],
    "copied into in double": lambda x, row, state: (row.copy_(x.double()), x + row)[1],
    "an element copied into": lambda x, row, state: (row[1].copy_(x.sum()), x + row)[1],
    "several times": lambda x, row, state: (row.add_(x).mul_(0.5).clamp_(-1, 1), row[1:].neg_(), x * 2)[2],
    "by what it was": lambda x, row, state: (row.add_(row * 0.5), x + row)[1],
    "drawn into": lambda x, row, state: (row.normal_(generator=None), x + row)[1],
    "by a number": lambda x, row, state: (row.mul_(state.n).add_(x, alpha=state.n), x + row)[1],
    "written and read beside": lambda x, row, state: (row.add_(x), state.table.t() @ state.table @ x)[1],
    "tracked": lambda x, row, state: tracked(x, row),
    "gated": lambda x, row, state: (row.masked_fill_(x > 0, 0.5), x + state.table.sum())[1],
}
OTHER_READS = {
    "from the end": lambda table, n: table[-n],
    "beyond": lambda table, n: table[n + SIZE - 12],
    "a growing part": lambda table, n: table[: n + 1].sum(0),
    "a part beyond": lambda table, n: table[n + SIZE - 12 : n + SIZE - 10].sum(0),
    "with steps": lambda table, n: table[n : n + 4 : 2].sum(0),
    "two": lambda table, n: table[n, n % 3] * table[0],
    "one after the other": lambda table, n: table[n][n % 3] * table[0],
    "by a tensor": lambda table, n: table[torch.tensor(n, device=table.device)],
    "by a list": lambda table, n: table[[n, n + 1]].sum(0),
    "by take": lambda table, n: table.index_select(0, torch.tensor([n], device=table.device))[0],
    "in a loop": lambda table, n: sum(table[each] for each in (n, 3, n + 2)),
    "at times": lambda table, n: table[n] if n % 3 else table[3],
    "the first at times": lambda table, n: table[n % 2] + table[0] + table[1],
    "strided": lambda table, n: table.as_strided((3,), (1,), n * 3),
    "by name": lambda table, n: table.select(dim=0, index=n),
    "narrow to n": lambda table, n: table.narrow(0, 0, n + 1).sum(0),
    "expanded": lambda table, n: table[:1].expand(SIZE, 3)[n],
    "unfolded": lambda table, n: table.unfold(0, 2, 1)[n].sum(-1),
}


def stored(table, key, new):
    table[key] = new


def added(table, key, new):
    table[key] += new


def added_to(table, one, other):
    table[one, other] += 1
    return table[one, other].add_(2)


def stored_behind(table, position):
    new = table[position].add_(1)
    table[position.add_(1)] = new


STORED = {
    "a row": lambda table, n, x: added(table, n, x),
    "a row behind": lambda table, n, x: added(table, n + 1, x),
    "a column": lambda table, n, x: added(table.t()[:, : SIZE - 1], (slice(None), n), x),
    "a part": lambda table, n, x: added(table, slice(n, n + 2), x),
    "of all columns": lambda table, n, x: added(table, (n, slice(None)), x),
    "of others": lambda table, n, x: added(table, (..., n % 3), x.sum()),
    "twice": lambda table, n, x: (added(table, n, x), added(table, n, x)),
    "by hand": lambda table, n, x: stored(table, n, table[n].add_(x)),
    "copied": lambda table, n, x: (added(table, n, x), table[n + 1].copy_(x)),
    "at two": lambda table, n, x: added(table.view(2, 20, 3), (n % 2, n), x),
    "an element": lambda table, n, x: added(table, (n, 1), x.sum()),
}
OTHER_STORED = {
    "a column of some": lambda table, n, x: added(table.t()[:, : n + 1], (slice(None), n), x),
    "unwritten": lambda table, n, x: stored(table, n, table[n]),
    "beside": lambda table, n, x: stored(table, n + 1, table[n].add_(x)),
    "a view": lambda table, n, x: stored(table, n, table[n].add_(x)[:]),
    "another view": lambda table, n, x: stored(table, n, table[n].add_(x)[:1]),
    "by a tensor that moves": lambda table, n, x: stored_behind(table, torch.tensor(n, device=table.device)),
    "where two are turned": lambda table, n, x: stored(table[:3], (n % 3, 1), added_to(table, 1, n % 3)),
    "another dimension": lambda table, n, x: stored(
        table[:3], (slice(None), n % 3), table[:3][n % 3].add_(x)
    ),
    "what is computed": lambda table, n, x: stored(table, n, table[n] + x),
    "two": lambda table, n, x: added(table, (n, n % 3), 1),
    "from the end": lambda table, n, x: added(table, -n, x),
    "with steps": lambda table, n, x: added(table, slice(n, n + 4, 2), x),
}
OTHER_VIEWS = {
    "data": lambda row: row.data,
    "other bits": lambda row: row.contiguous().view(torch.int32).view(torch.float32),
    "same bits": lambda row: row.view(torch.int32).float() if row.is_contiguous() else row,
    "alias": lambda row: torch.ops.aten.alias(row),
    "as strided": lambda row: row.as_strided((2,), (1,)).repeat(2)[:3],
    "as strided from the front": lambda row: row.as_strided((3,), (1,), 0),
    "parameter": lambda row: torch.nn.Parameter(row, requires_grad=False),
    "of numpy": lambda row: torch.from_numpy(row.numpy()),
    "by its memory": lambda row: row.new_empty(0).set_(
        row.untyped_storage(), row.storage_offset(), row.shape, row.stride()
    ),
    "of a list": lambda row: row.new_tensor(row.tolist()),
    "of numbers": lambda row: row.new_tensor([each.item() for each in row]),
    "real": lambda row: row.real,
    "unsafe parts": lambda row: torch.cat([each.mul_(2) for each in torch.unsafe_chunk(row, 3)]),
    "an unsafe part": lambda row: torch.unsafe_split(row, 3)[0],
    "zero elements": lambda row: torch.cat([row[:0], row]),
    "moved": lambda row: row.to(torch.float64).to(torch.float32),
    "transposed": lambda row: row[None].t().contiguous()[:, 0],
    "unbound": lambda row: row.unbind()[1] + row,
    "twice": lambda row: row + row,
}
OTHER_USES = {
    "itself": lambda x, row, state: row,
    "a view of it": lambda x, row, state: row[None],
    "both": lambda x, row, state: (row, x * row),
    "in a list": lambda x, row, state: [x, [row]],
    "out": lambda x, row, state: torch.add(x, 1, out=row) * 1,
    "written and given": lambda x, row, state: row.add_(x),
    "by itself": lambda x, row, state: (row.add_(row), x * 2)[1],
    "by another row": lambda x, row, state: (row.copy_(state.table[0]), x * 2)[1],
    "by what lies beside": lambda x, row, state: (row[1:].copy_(row[:-1]), x * 2)[1],
    "by those behind": lambda x, row, state: (row[:2].copy_(row[1:]), x * 2)[1],
    "too long": lambda x, row, state: (row.copy_(x.repeat(2)), x * 2)[1],
    "by lists": lambda x, row, state: (torch._foreach_add_([row, x], 1), x * 2)[1],
    "transposed in place": lambda x, row, state: (row.unsqueeze_(0), x * row)[1],
    "detached in place": lambda x, row, state: (row.detach_().add_(x), x * row)[1],
    "tracked in": lambda x, row, state: tracked_in(x, row),
    "left": lambda x, row, state: (setattr(state, "left", row), x * 2)[1],
    "left in a list": lambda x, row, state: (setattr(state, "left", [row]), x * 2)[1],
    "appended": lambda x, row, state: (state.seen.append(row), x * 2)[1],
    "left and written": lambda x, row, state: (setattr(state, "left", row), state.table.add_(1), x * row)[2],
    "offset": lambda x, row, state: x * row.storage_offset(),
    "memory": lambda x, row, state: x * (row.data_ptr() - row.untyped_storage().data_ptr()),
    "same memory": lambda x, row, state: x * row.is_set_to(state.table[3]),
    "storage": lambda x, row, state: x * row.untyped_storage().nbytes(),
    "base": lambda x, row, state: x * (row._base is not None) + row.is_leaf,
    "number": lambda x, row, state: x * row.sum().item(),
    "numbers": lambda x, row, state: x * sum(row.tolist()),
    "decides": lambda x, row, state: x * 2 if row.sum() > 0 else x * row,
    "text": lambda x, row, state: x * len(str(row)),
    "closed over": lambda x, row, state: (setattr(state, "call", lambda: row), x * 2)[1],
    "tracked and written": lambda x, row, state: tracked(x, row, state.table),
}


TRAINED = {
    "product": lambda x, row, state: trained(state, (row @ state.weight).square().sum()),
    "of a part": lambda x, row, state: trained(state, (row[:2] @ state.weight[1:]).square().sum()),
    "aim": lambda x, row, state: trained(state, F.mse_loss(x @ state.weight, row)),
    "both": lambda x, row, state: trained(state, F.mse_loss(row @ state.weight, row * 2)),
    "beside one that stays": lambda x, row, state: trained(
        state, ((row + state.table[3]) @ state.weight).norm()
    ),
    "twice": lambda x, row, state: trained(state, (row @ state.weight).exp().sum(), times=2),
    "by a function of one's own": lambda x, row, state: trained(
        state, Product.apply(row, state.weight).sum()
    ),
    "with a penalty": lambda x, row, state: trained(state, penalty(state, (row @ state.weight).exp().sum())),
    "with what is left": lambda x, row, state: trained(state, left_of(state, row @ state.weight)),
}
OTHER_TRAINED = {
    "checkpointed": lambda x, row, state: trained(
        state, checkpoint(lambda: (row @ state.weight).exp().sum(), use_reentrant=False)
    ),
    "outside": lambda x, row, state: (row @ state.weight).square().sum(),
    "beside": lambda x, row, state: [
        trained(state, (row @ state.weight).sum(), times=2), (row * state.weight).sum()
    ],
    "graph left": lambda x, row, state: (
        setattr(state, "left", (row @ state.weight).exp()),
        trained(state, (x @ state.weight).sum()),
    )[1],
    "graph in the gradient": lambda x, row, state: (
        (row @ state.weight).exp().sum().backward(create_graph=True),
        state.weight.grad.detach().clone(),
    )[1],
    "written between": lambda x, row, state: trained(
        state, (row @ state.weight).exp().sum() + (state.table.add_(1), 0)[1]
    ),
    "written as data": lambda x, row, state: trained(
        state, (row @ state.weight).exp().sum() + (state.table.data.add_(1), 0)[1]
    ),
    "itself": lambda x, row, state: trained(state, (row.requires_grad_() @ state.weight).sum()),
}  # fmt: skip


class Product(torch.autograd.Function):
    """It keeps the view as an attribute, too."""

    @staticmethod
    def forward(ctx, row, weight):
        ctx.save_for_backward(row, weight)
        ctx.row = row
        return row @ weight

    @staticmethod
    def backward(ctx, gradient):
        row, weight = ctx.saved_tensors
        return None, row[:, None] * gradient + ctx.row[:, None] * weight


def trained(state, loss, times=1):
    """What a step of gradient descent finds."""
    for _ in range(times):
        loss.backward(retain_graph=times > 1)
    with torch.no_grad():
        state.weight -= 0.05 * state.weight.grad
    found, state.weight.grad = state.weight.grad.clone(), None
    return found


def penalty(state, loss):
    return loss + torch.autograd.grad(loss, state.weight, create_graph=True)[0].square().sum()


def left_of(state, feature):
    state.left = feature
    return feature.square().sum()


def put(tensor, new):
    tensor[:] = new
    return tensor


def tracked(x, row, table=None):
    with torch.enable_grad():
        weight = torch.ones_like(x, requires_grad=True)
        loss = (weight * row * weight).sum() + (weight * x).sum()
        if table is not None:
            with torch.no_grad():
                table.add_(1)
    return torch.autograd.grad(loss, weight)[0]


def tracked_in(x, row):
    with torch.enable_grad():
        weight = torch.ones_like(x, requires_grad=True)
        return torch.autograd.grad((row * 1).add_(weight * row).sum() + (weight * x).sum(), weight)[0]


def seen_of(value):
    """A result with how it lies, and whether writing to it is seen elsewhere."""
    found = value if isinstance(value, (list, tuple)) else [value]
    flat = [each for part in found for each in (part if isinstance(part, list) else [part])]
    return [(bits(each), each.stride()) for each in flat]


def play(program, positions, device, *, grad=False):
    """A program that reads a table, plainly and graphed, with what it leaves; how many calls it replayed."""

    def make():
        values = torch.randn(SIZE, 3, generator=torch.Generator().manual_seed(7))
        weight = (torch.eye(3, device=device) * 0.5).requires_grad_()
        state = types.SimpleNamespace(
            n=0, table=values.to(device), left=None, seen=[], call=None, weight=weight
        )
        return (lambda x: program(x, state)), state

    (graphed, state), (plain, other) = make(), make()
    run = rote.graph(graphed, keep=True)
    for number, position in enumerate(positions):
        both = []
        for call, its in ((run, state), (plain, other)):
            its.n = position
            x = torch.randn(3, generator=torch.Generator().manual_seed(number)).to(device)
            seed(number)
            try:
                with torch.set_grad_enabled(grad):
                    found = call(x)
                    given = seen_of(found)
                    if type(found) is torch.Tensor and found.requires_grad:
                        found.sum().backward()
                    its.table[position % SIZE].add_(0.125)  # a view of the table sees it
                    both.append((given, seen_of(found), bits(x)))
            except (IndexError, RuntimeError, TypeError) as error:
                both.append(str(error))
            if its.weight.grad is not None:
                both[-1], its.weight.grad = (both[-1], bits(its.weight.grad.detach())), None
            left = its.weight, its.left, its.call() if its.call is not None else None, its.seen[-2:]
            both[-1] = both[-1], bits(its.table), bits(left)
        assert both[0] == both[1], (number, position)
    return run.report().replayed


ONE_BY_ONE = [*range(2, 16), 3, 3, 9, 1, 0, 5, 6, 7, 8, 2]
A_FEW = [*range(2, 9), 3, 3, 9, 1, 0]
"""Where the position is a condition, so that no call of another one replays."""


def program(read, view, use):
    return lambda x, state: use(x, view(read(state.table, state.n)), state)


@COMPUTES
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("view", ["as it is", "in parts"])
def test_what_is_read(device, read, view):
    assert play(program(READS[read], VIEWS[view], USES["times"]), ONE_BY_ONE, device) >= 16


@COMPUTES
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("read", ["a row", "a column"])
def test_what_is_made_of_it(device, view, read):
    assert play(program(READS[read], VIEWS[view], USES["twice"]), ONE_BY_ONE, device) >= 14


@COMPUTES
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("read", ["a row", "a column"])
def test_what_takes_it(device, use, read):
    assert play(program(READS[read], VIEWS["as it is"], USES[use]), ONE_BY_ONE, device) >= 14


@COMPUTES
@pytest.mark.parametrize("use", TRAINED)
@pytest.mark.parametrize("read", ["a row", "a column", "computed"])
def test_what_a_backward_takes(device, use, read):
    run = program(READS[read], VIEWS["as it is"], TRAINED[use])
    assert play(run, ONE_BY_ONE, device, grad=True) >= 12


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.sampled(1)
@pytest.mark.parametrize("use", OTHER_TRAINED)
@pytest.mark.parametrize("read", ["a row", "a part"])
def test_what_a_backward_does_not_take(device, use, read):
    """A part has one row here: a vector, as a row is."""
    reads = READS["a row"] if read == "a row" else lambda table, n: table[n : n + 1].view(3)
    play(program(reads, VIEWS["as it is"], OTHER_TRAINED[use]), A_FEW, device, grad=True)


@COMPUTES
@pytest.mark.parametrize("store", STORED.values(), ids=STORED)
def test_what_is_stored_back(device, store):
    def run(x, state):
        store(state.table, state.n, x)
        return x * 2

    assert play(run, ONE_BY_ONE, device) >= 14


SAID_BY_TENSORS = {
    "read": lambda table, n, m, x: table.view(2, 20, 3)[1, n] * x,
    "read by two": lambda table, n, m, x: table[n, m] * x,
    "counted": lambda table, n, m, x: added(table, n, x),
    "counted by two": lambda table, n, m, x: added(table, (n, m), 1),
    "a number": lambda table, n, m, x: stored(table, (n, m), 2.5),
    "a row": lambda table, n, m, x: stored(table.view(2, 20, 3), (1, n), x),
}


@COMPUTES
@pytest.mark.parametrize("use", SAID_BY_TENSORS.values(), ids=SAID_BY_TENSORS)
def test_what_tensors_say(device, use):
    """A position that is read twice is one condition more."""

    def run(x, state):
        n, m = torch.tensor([state.n, state.n % 2], device=device)
        found = use(state.table, n, m, x)
        return x * 2 if found is None else found

    assert play(run, [*ONE_BY_ONE, *ONE_BY_ONE], device) >= 16


@pytest.mark.sampled(1)
@pytest.mark.parametrize("store", OTHER_STORED.values(), ids=OTHER_STORED)
def test_what_is_stored_elsewhere(device, store):
    def run(x, state):
        store(state.table, state.n, x)
        return x * 2

    play(run, A_FEW, device)


class Rollout:
    """A storage of what a policy has done, as libraries of reinforcement learning keep it."""

    def __init__(self, device):
        self.obs, self.rewards = torch.zeros(9, 2, 3, device=device), torch.zeros(8, 2, device=device)
        self.dones, self.returns = (
            torch.zeros(8, 2, dtype=torch.bool, device=device),
            torch.zeros(9, device=device),
        )
        self.step = 0

    def insert(self, obs, reward):
        self.obs[self.step + 1].copy_(obs)
        self.rewards[self.step].copy_(reward)
        self.dones[self.step].copy_(reward > 1)
        self.returns[self.step + 1] += reward.mean()
        self.step = (self.step + 1) % 8
        return obs.sum()


@COMPUTES
def test_a_storage_of_what_was_done(device):
    ours, theirs = Rollout(device), Rollout(device)
    insert = rote.graph(ours.insert, keep=True)
    for number in range(60):
        given = torch.randn(2, 4, generator=torch.Generator().manual_seed(number)).to(device)
        found, expected = (call(given[:, :3], given[:, 3]) for call in (insert, theirs.insert))
        assert bits(found) == bits(expected)
        for mine, other in zip(vars(ours).values(), vars(theirs).values(), strict=True):
            assert mine == other if isinstance(mine, int) else torch.equal(mine, other)
    assert insert.report().replayed >= 50


@pytest.mark.sampled(2)
@pytest.mark.parametrize("read", OTHER_READS)
def test_other_reads(device, read):
    for use in ("times", "written between"):
        play(program(OTHER_READS[read], VIEWS["as it is"], USES[use]), A_FEW, device)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("view", OTHER_VIEWS)
def test_other_views(device, view):
    for read in ("a row", "a column"):
        play(program(READS[read], OTHER_VIEWS[view], USES["times"]), A_FEW, device)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("use", OTHER_USES)
def test_other_uses(device, use, grad):
    for read in ("a row", "a column", "by narrow"):
        play(program(READS[read], VIEWS["as it is"], OTHER_USES[use]), A_FEW, device, grad=grad)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "block", [*range(6), *(pytest.param(n, marks=pytest.mark.long) for n in range(6, 40))]
)
def test_random_programs(device, block):
    """Reads, views and uses, with such among them that make the position a condition, at random positions."""
    for number in range(block * 12, block * 12 + 12):
        chance = random.Random(number)
        often = chance.random() < 0.5

        def choose(known, others, chance=chance, often=often):
            table = known if often or chance.random() < 0.8 else others
            return table[chance.choice(list(table))]

        steps = [(choose(READS, OTHER_READS), choose(VIEWS, OTHER_VIEWS), choose(USES, OTHER_USES))
                 for _ in range(chance.choice([1, 1, 2, 3]))]  # fmt: skip

        def run(x, state, steps=steps):
            for read, view, use in steps:
                found = use(x, view(read(state.table, state.n)), state)
                if isinstance(found, torch.Tensor) and found.shape == (3,):
                    x = found
            return found

        begin = chance.randrange(4)
        often = chance.choice([1, 1, 2, 3])  # the call that checks may have the same position
        rising = [begin + each // often for each in range(9 + 3 * often)]
        positions = [*rising, *[chance.randrange(14) for _ in range(9)], *[chance.choice(rising)] * 3]
        play(run, positions, device, grad=chance.random() < 0.2)


# ---------------------------------------------------------------------- what is read, and by which numbers


class Sampler(torch.nn.Module):
    """A sampler: a schedule, a position in it, and a network; as diffusers has it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("sigmas", torch.linspace(10, 0.1, SIZE, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, SIZE * 3).reshape(SIZE, 3))
        self.order = torch.randperm(SIZE, generator=torch.Generator().manual_seed(3))
        self.index = 0
        self.last = None

    def forward(self, x, way, n):
        return getattr(self, way)(x, n)

    def schedule(self, x, n):
        sigma, following = self.sigmas[self.index], self.sigmas[self.index + 1]
        self.index = (self.index + 1) % 20
        return x + (following - sigma) * (x / (sigma**2 + 1) ** 0.5)

    def counted(self, x, n):
        row = self.weight[int(self.count.item())]
        self.count.add_(1).remainder_(30)
        return x * row

    def by_argument(self, x, n):
        return x @ torch.stack([self.weight[n + each] for each in range(3)])

    def looked_up(self, x, n):
        return x * self.weight[self.order[n]] + self.order[n]

    def made_anew(self, x, n):
        row = self.weight.detach()[n]
        self.sigmas = self.sigmas * 0.9
        return x * row + self.sigmas[n]

    def kept(self, x, n):
        before, self.last = self.last, self.sigmas[n] * 1
        return x if before is None else x * before

    def kept_itself(self, x, n):
        before, self.last = self.last, self.sigmas[n]
        return x if before is None else x * before

    def written_to(self, x, n):
        row = self.weight[n]
        self.weight.mul_(1.01)
        self.weight[n + 1] = row
        return x + self.weight[n + 1] - row

    def drawn(self, x, n):
        return torch.dropout(x * self.weight[n], 0.5, True)

    def decided(self, x, n):
        if self.weight[n].sum() > 0:
            return x * self.weight[n]
        return x + self.weight[n + 2]


WAYS = [
    name for name, value in vars(Sampler).items() if callable(value) and name[0] != "_" and name != "forward"
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("noted", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_samplers(device, way, noted):
    plain, graphed = Sampler().to(device), Sampler().to(device)
    run = rote.graph(graphed, keep=True)
    for number in range(44):
        seen = []
        for call, model in ((run, graphed), (plain, plain)):
            x = torch.randn(3, generator=torch.Generator().manual_seed(number)).to(device)
            seed(number)
            with torch.set_grad_enabled(noted and way in ("schedule", "kept", "kept_itself")):
                found = call(x, way, number % 30)
            with torch.no_grad():
                model.sigmas.mul_(0.99)
            last = model.last.clone() if model.last is not None else None
            seen.append((bits(found), bits(list(model.state_dict().values())), model.index, bits(last)))
        assert seen[0] == seen[1], number
    follows = device.type == "cpu" and way in ("schedule", "counted", "by_argument", "kept", "drawn")
    assert run.report().replayed >= 20 * follows, run.explain()
