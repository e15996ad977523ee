"""Storages outside that a call gives memory to and empties again, as FSDP does with gathered parameters."""

from __future__ import annotations

import pytest
import torch

import rote

CALLS = 10
NBYTES = 12 * 4


class Gathered:
    """A tensor whose storage is empty between calls. It is written where no version counts."""

    def __init__(self):
        self.whole = torch.empty(12)
        self.view = self.whole.view(3, 4)
        self.other = torch.empty(12)
        self.empty()

    def fill(self, tensor=None):
        storage = (self.whole if tensor is None else tensor).untyped_storage()
        if storage.size() != NBYTES:
            storage.resize_(NBYTES)

    def empty(self):
        for each in (self.whole, self.other):
            if each.untyped_storage().size() != 0:
                each.untyped_storage().resize_(0)

    def once(self, x):
        self.fill()
        self.whole.data.copy_(x.reshape(-1) * 2)
        y = self.view @ self.view.T
        self.empty()
        return y + 1

    def twice(self, x):
        y = self.once(x)
        self.fill()
        torch.mul(x.reshape(-1), y.sum(), out=self.whole.data)
        z = self.view * y.mean()
        self.empty()
        return z

    def both(self, x):
        self.fill()
        self.fill(self.other)
        self.whole.data.copy_(x.reshape(-1))
        torch.add(self.whole, 1, out=self.other.data)
        y = self.other * self.whole
        self.empty()
        return y

    def backward(self, x):
        """Autograd keeps the tensor, which has other memory by the time of the backward."""
        weight = x.sum().detach().requires_grad_()
        self.fill()
        self.whole.data.copy_(x.reshape(-1))
        y = (self.view.detach() * weight).sum()
        self.empty()
        self.fill()
        self.whole.data.copy_(x.reshape(-1) * 3)
        (gradient,) = torch.autograd.grad(y, weight)
        self.empty()
        return gradient

    def read_behind(self, x):
        y = self.once(x)
        return y * 2 if y.sum().item() > 300 else y - 1

    def read_while_filled(self, x):
        self.fill()
        self.whole.data.copy_(x.reshape(-1))
        big = self.whole.sum().item() > 30
        y = self.whole * 2 if big else self.whole - 1
        self.empty()
        return y

    def left_filled(self, x):
        self.fill()
        self.whole.data.copy_(x.reshape(-1))
        return self.view * 2

    def between_segments(self, x):
        self.fill()
        self.whole.data.copy_(x.reshape(-1))
        y = torch.linalg.svdvals(self.view)
        self.empty()
        return y

    def counted(self, x):
        self.fill()
        self.whole.copy_(x.reshape(-1))
        y = self.whole * 2
        self.empty()
        return y

    def looked_at(self, x):
        y = self.whole.sum() + x
        if self.whole.untyped_storage().size() == 0:
            self.fill()
        self.whole.add_(1)
        return y

    def unwritten(self, x):
        self.fill()
        y = self.whole * 0
        self.empty()
        return y.isnan() | x.reshape(-1).isnan()

    def grown(self, x):
        self.fill()
        self.whole.data.copy_(x.reshape(-1))
        self.whole.untyped_storage().resize_(2 * NBYTES)
        y = self.whole * 2
        self.empty()
        return y


def inputs(number):
    return torch.arange(12.0).reshape(3, 4) * (number + 1) / 7


def both_ways(way, before=lambda holder, number: None):
    """Calls plain and graphed, and the report."""
    mine, theirs = Gathered(), Gathered()
    g, plain = rote.graph(getattr(mine, way), keep=True), getattr(theirs, way)
    for number in range(CALLS):
        for each in (mine, theirs):
            before(each, number)
        one, two = g(inputs(number)), plain(inputs(number))
        assert torch.equal(one, two), number
        assert mine.whole.untyped_storage().nbytes() == theirs.whole.untyped_storage().nbytes()
    return g.report()


@pytest.mark.parametrize("way", ["once", "twice", "both", "backward", "read_behind"])
def test_what_is_emptied_again_replays(way):
    assert both_ways(way).replayed > 2


@pytest.mark.parametrize(
    ("way", "code", "said"),
    [
        ("read_while_filled", "RT205", "the host reads a value while storages from outside have memory"),
        ("left_filled", "RT205", "gives memory to a storage from outside, and leaves it there"),
        ("between_segments", "RT205", "runs between two segments, on memory that the call gave a storage"),
        ("unwritten", "RT123", "reads memory that aten::empty made and that no operation has written"),
        ("counted", "RT205", "whose storage the call empties again has another version behind it"),
        ("grown", "RT218", "resizes the storage of a tensor, which has memory"),
    ],
)
def test_what_does_not_replay_says_why(way, code, said):
    report = both_ways(way)
    assert report.replayed == 0
    assert any([each.code == code and said in each.message for each in report.reasons]), report.reasons


def filled_before(holder, number):
    if number in (5, 6):
        holder.fill()
        holder.whole.fill_(3.0)


def replaced_before(holder, number):
    if number == 5:
        holder.whole = torch.zeros(12)
        holder.view = holder.whole.view(3, 4)
        holder.empty()


@pytest.mark.parametrize("before", [filled_before, replaced_before])
@pytest.mark.parametrize("way", ["once", "both"])
def test_that_it_is_empty_before_is_a_condition(way, before):
    assert both_ways(way, before).replayed >= 2


def test_a_storage_with_memory_is_filled_by_nobody():
    """A replay would leave what is in it."""

    def kept(holder, number):
        holder.fill()
        holder.whole.fill_(float(number))

    assert both_ways("looked_at", kept).replayed == 0
