"""Borrowed outputs: the graph's own memory, and an error where a stale one is read."""

from __future__ import annotations

import re

import pytest
import torch

import rote
from rote import StaleOutputError
from rote.testing import compare

WARM = rote.Options().warmup + 1


@pytest.fixture
def lent(device):
    """A wrapper that borrows, past its warm-up."""
    g = rote.graph(lambda x: x * 2, outputs="borrow")
    for _ in range(WARM + 1):
        g(torch.ones(3, device=device))
    yield g
    g.reset()


def ones(device, value=1.0):
    return torch.full((3,), value, device=device)


def test_borrowed_values_are_right(device):
    g = compare(
        lambda x: (x * 2, {"a": x + 1}),
        [(torch.randn(3, device=device),) for _ in range(8)],
        outputs="borrow",
    )
    assert g.report().replayed == 8 - WARM


def test_borrowed_memory_is_the_graphs_own(device, lent):
    addresses = set()
    for n in range(4):
        out = lent(ones(device, float(n)))
        assert out.tolist() == [2.0 * n] * 3
        addresses.add(out.data_ptr())
    assert len(addresses) == 1


READS = {
    "arithmetic": lambda t: t + 1,
    "item": lambda t: t.sum().item(),
    "tolist": lambda t: t.tolist(),
    "repr": repr,
    "index": lambda t: t[0],
    "numpy": lambda t: t.cpu().numpy(),
    "clone": lambda t: t.clone(),
    "write": lambda t: t.add_(1),
    "bool": lambda t: bool(t[0] > 0),
    "in a list": lambda t: torch.stack([t, t]),
    "out": lambda t: torch.add(torch.ones_like(t.shape and torch.ones(3)), 1, out=t),
    "iteration": list,
    "data_ptr": lambda t: t.data_ptr(),
    "copy from": lambda t: torch.zeros(3, device=t.device).copy_(t),
}


@pytest.mark.parametrize("name", READS)
def test_a_stale_read_raises(device, lent, name):
    old = lent(ones(device))
    lent(ones(device, 5.0))
    with pytest.raises(StaleOutputError, match="is stale"):
        READS[name](old)


def test_the_text_names_both_calls(device, lent, where):
    def body():
        old = lent(ones(device))
        lent(ones(device, 5.0))  # overwrites
        return old

    old = body()
    with pytest.raises(StaleOutputError) as caught:
        old.tolist()
    name = "lent.<locals>.<lambda>"
    made, call, later = (
        where(lent.__wrapped__, "x * 2"),
        where(body, "old = lent"),
        where(body, "# overwrites"),
    )
    assert str(caught.value) == (
        f"this output of {name}, made by aten::mul.Tensor at {made} in the call at {call}, is stale: "
        f'call {WARM + 3} of {name} at {later} overwrote it. Clone it before that, or use outputs="safe".'
    )


def test_the_line_is_the_users(device, lent, where):
    """Through a function of PyTorch's, over more than one line, in a frame that is gone."""

    def body():
        old = lent(ones(device))
        torch.enable_grad()(lent)(  # overwrites
            ones(device, 5.0),
        )
        return old

    for _ in range(3):
        with pytest.raises(StaleOutputError, match=re.escape(f"at {where(body, '# overwrites')} overwrote")):
            body().tolist()


def test_views_of_it_are_stale_too(device, lent):
    old = lent(ones(device))
    views = [old[1:], old.view(3, 1), old.detach(), old.expand(2, 3), *old.split(1)]
    lent(ones(device, 5.0))
    for view in views:
        with pytest.raises(StaleOutputError):
            view.tolist()


def test_a_clone_is_ones_own(device, lent):
    old = lent(ones(device, 4.0)).clone()
    lent(ones(device))
    assert old.tolist() == [8.0] * 3


def test_what_was_computed_from_it_stays(device, lent):
    later = lent(ones(device, 4.0)) + 1
    lent(ones(device))
    assert later.tolist() == [9.0] * 3


def test_metadata_of_a_stale_output(device, lent):
    old = lent(ones(device))
    lent(ones(device))
    assert old.shape == (3,) and old.dtype is torch.float32 and old.device.type == device.type
    assert old.dim() == 1 and len(old) == 3 and old.stride() == (1,)


def test_another_key_leaves_it_alone(device, lent):
    old = lent(ones(device))
    lent(torch.ones(7, device=device))
    assert old.tolist() == [2.0] * 3


def test_step_ends_every_loan(device, lent, where):
    def body():
        rote.step()

    old = lent(ones(device))
    fresh = torch.ones(2, device=device)
    body()
    with pytest.raises(StaleOutputError) as caught:
        old.tolist()
    assert f"is stale: rote.step() at {where(body, 'rote.step()')} began a new step. Clone it" in str(
        caught.value
    )
    assert fresh.tolist() == [1.0, 1.0]
    assert lent(ones(device, 3.0)).tolist() == [6.0] * 3


def test_step_without_loans():
    rote.step()
    rote.step()


def test_borrowed_outputs_as_arguments(device, lent):
    h = rote.graph(lambda y: y + 1)
    for n in range(6):
        out = h(lent(ones(device, float(n))))
        assert out.tolist() == [2.0 * n + 1] * 3
    stale = lent(ones(device))
    lent(ones(device))
    with pytest.raises(StaleOutputError):
        h(stale)


def test_feeding_an_output_back(device):
    g = rote.graph(lambda x: x * 2, outputs="borrow")
    state = torch.ones(3, device=device)
    for n in range(8):
        state = g(state)
        assert state.tolist() == [2.0 ** (n + 1)] * 3


def test_outputs_of_the_warmup_may_be_held(device):
    """Memory that nothing overwrites is not stale."""
    g = rote.graph(lambda x: x * 2, outputs="borrow")
    first = g(ones(device, 1.0))
    for n in range(6):
        g(ones(device, float(n)))
    assert first.tolist() == [2.0] * 3


def test_reset_ends_the_loan(device, lent):
    old = lent(ones(device))
    lent.reset()
    try:
        assert old.tolist() == [2.0] * 3  # kept alive by its owner
    except StaleOutputError as error:
        assert re.search(r"is stale: .*reset", str(error))


def test_inputs_and_parameters_are_not_lent(device):
    weight = torch.nn.Parameter(torch.ones(3, device=device), requires_grad=False)
    g = rote.graph(lambda x: (x, weight, x * 2), outputs="borrow")
    for _ in range(WARM + 2):
        x = ones(device)
        first, second, _ = g(x)
        assert first is x and second is weight
    held = first, second
    g(ones(device))
    assert held[0].tolist() == [1.0] * 3 and held[1].tolist() == [1.0] * 3
