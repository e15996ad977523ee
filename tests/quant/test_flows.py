"""Where features go: what leaves them apart, what reads them, and that nothing is folded past a reader."""

from __future__ import annotations

import threading
import warnings
import weakref
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from hypothesis import event, given, settings
from hypothesis import strategies as st

from rote.quant import calibrate, quantize_

from .between import (
    ALLOWED,
    ALSO,
    CONFIG,
    GROUPED,
    WIDTH,
    Between,
    applied,
    attended,
    calibrated,
    heads,
    whole,
)
from .models import batches


@dataclass
class Handed:
    result: object
    inner: object


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", [*ALLOWED, *GROUPED])
def test_a_divisor_moves_to_the_layer_before_exactly(name, mode, device):
    way = ALLOWED.get(name) or GROUPED[name]
    model = Between(way, WIDTH // 2 if name in GROUPED else WIDTH).to(device).double().eval()
    x, before = batches(1, seed=4)[0].to(device).double(), model.up.weight.detach().clone()
    expected = model(x)
    with calibrate(model, CONFIG) as stats, mode():
        for batch in batches(2):
            model(batch.to(device).double())
    reasons = applied(model, CONFIG, stats)
    assert not reasons["down"]
    assert reasons["up"] and reasons["gate"]
    assert not torch.allclose(model.up.weight, before)
    rounding = 1e-7 if "other type" in name else 1e-14
    assert (model(x) - expected).norm() / expected.norm() < 10 * rounding


def returned_with_others(m, x):
    y = m.up(x)
    return m.down(y), {"more": [y]}


def returned_inside(m, x):
    y = m.up(x)
    return Handed(m.down(y), y[..., :1])


def kept(m, x):
    m.memory = m.up(x).transpose(0, 1)
    return m.down(m.memory.transpose(0, 1))


def written_to(m, x):
    y = m.up(x)
    y[..., 0] = 1
    return m.down(y)


def written_through_a_view(m, x):
    y = m.up(x)
    y.view(-1).add_(1)
    return m.down(y)


def written_into_a_cache(m, x):
    cache = torch.zeros_like(x)
    cache[:] = m.up(x)
    return m.down(cache)


def read_by_the_host(m, x):
    y = m.up(x)
    return m.down(y) * (2 if y[0, 0, 0].item() > 1e9 else 1)


def bytes_of(m, x):
    y = m.up(x)
    return m.down(y) + (y.view(torch.int32) & 1).sum()


def curve(y):
    return torch.tanh(y)


def in_script(m, x):
    y = m.up(x)
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        return m.down(y) + torch.jit.script(curve)(y)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return y * y


def in_a_function(m, x):
    y = m.up(x)
    return m.down(y) + Square.apply(y)


def another_order_now_and_then(m, x):
    m.calls = getattr(m, "calls", 0) + 1
    y = m.up(x)
    return m.down(y if m.calls % 2 else y.flip(-1))


def not_always(m, x):
    m.calls = getattr(m, "calls", 0) + 1
    return m.down(m.up(x) if m.calls % 2 else x)


def order_of_rows(m, x):
    y = m.up(x)
    return m.down(torch.cat([y[:1], y[1:].flip(-1)]))


def also(read):
    return lambda m, x: m.down(m.up(x)) + read(m, m.up(x))


REFUSED = {
    "tanh": (lambda m, x: m.down(torch.tanh(m.up(x))), "no norm or linear layer feeds it"),
    "clamp": (lambda m, x: m.down(m.up(x).clamp(-1e9, 1e9)), "no norm or linear layer feeds it"),
    "a sum": (lambda m, x: m.down(m.up(x) + 1), "no norm or linear layer feeds it"),
    "its square": (lambda m, x: m.down(m.up(x) * m.up(x)), "no norm or linear layer feeds it"),
    "a gate that is itself": (lambda m, x: m.down((y := m.up(x)) * y), "no norm or linear"),
    "integers": (lambda m, x: m.down(m.up(x).to(torch.int32).float()), "no norm or linear layer feeds it"),
    "floor": (lambda m, x: m.down(m.up(x).div(1e-3, rounding_mode="floor")), "no norm or linear"),
    "written into a cache": (written_into_a_cache, "no norm or linear layer feeds it"),
    "a residual": (lambda m, x: m.down(y := m.up(x)) + y, ALSO + "aten::add"),
    "another layer": (lambda m, x: m.down(y := m.up(x)) + m.other(y), ALSO + "'other'"),
    "a norm": (lambda m, x: m.down(y := m.up(x)) + m.norm(y), ALSO + "aten::native_layer_norm"),
    "another call": (also(lambda m, y: y.exp()), ALSO + "aten::exp"),
    "a product by hand": (also(lambda m, y: y @ m.other.weight), ALSO + "aten::mm"),
    "attention's mask": (
        lambda m, x: m.down(whole(attended(m, x, heads(y := m.up(x)), attn_mask=y[:, None, :, :16]))),
        ALSO + "aten::_scaled_dot_product",
    ),
    "attention's queries": (also(lambda m, y: whole(attended(m, y, heads(y)))), ALSO + "'gate'"),
    "a sum of features": (also(lambda m, y: y.sum(-1, keepdim=True)), ALSO + "aten::sum"),
    "returned": (lambda m, x: (m.down(y := m.up(x)), y), ALSO + "its caller"),
    "returned with others": (returned_with_others, ALSO + "its caller"),
    "returned inside": (returned_inside, ALSO + "its caller"),
    "kept": (kept, ALSO + "what keeps it when the call is over"),
    "written to": (written_to, ALSO + "aten::fill_"),
    "written through a view": (written_through_a_view, ALSO + "aten::add_"),
    "read by the host": (read_by_the_host, ALSO + "aten::_local_scalar_dense"),
    "its bytes": (bytes_of, ALSO + "aten::view"),
    "in script": (in_script, ALSO + "aten::tanh"),
    "in a function": (in_a_function, ALSO + "aten::mul"),
    "two sources": (lambda m, x: m.down(m.up(x)) + m.down(m.gate(x)), "it is fed by 'gate', 'up'"),
    "two sources at once": (
        lambda m, x: m.down(torch.cat([m.up(x)[..., :16], m.gate(x)[..., :16]], -1)),
        "no norm or linear layer feeds it",
    ),
    "a sum of two": (lambda m, x: m.down(m.up(x) + m.gate(x)), "no norm or linear layer feeds it"),
    "another order now and then": (
        another_order_now_and_then,
        "the features of 'up' are not in the same columns in every call",
    ),
    "another order in other rows": (order_of_rows, "no norm or linear layer feeds it"),
    "not always": (not_always, "'up' feeds it in some calls only"),
}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_established_is_not_folded(name, mode):
    way, reason = REFUSED[name]
    model = Between(way).eval()
    with calibrate(model, CONFIG) as stats, mode():
        for batch in batches(2):
            model(batch)
    report = quantize_(model, CONFIG, stats, include=["up", "down"])
    assert f"smoothed when called: {reason}" in report["down"].note
    assert all(row.note.startswith("smoothed when called") for row in report.quantized)


def test_a_layer_that_may_do_more_reads_its_input():
    class Adapted(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) + x.tanh()

    model = Between(lambda m, x: m.down(y := m.up(x)) + m.other(y))
    model.other = Adapted(WIDTH, WIDTH)
    assert ALSO + "'other'" in quantize_(model, CONFIG, calibrated(model))["down"].note


def test_hooks_read_too():
    for register in ("register_forward_hook", "register_forward_pre_hook"):
        for before in (True, False):
            model, seen = Between(ALLOWED["gated"]).eval(), []
            hooked = model.up if register == "register_forward_hook" else model.down

            def look(module, args, output=None, seen=seen):
                seen.append((args[0] if output is None else output).tanh().sum())

            if before:
                getattr(hooked, register)(look)
            with calibrate(model, CONFIG) as stats, torch.no_grad():
                if not before:
                    getattr(hooked, register)(look)
                for batch in batches(2):
                    model(batch)
            assert seen
            note = quantize_(model, CONFIG, stats)["down"].note
            assert ALSO + ("aten::t" if before or hooked is model.up else "aten::") in note


def test_a_hook_that_comes_first_leaves_nothing_to_follow():
    model = Between(ALLOWED["gated"]).eval()
    with calibrate(model, CONFIG) as stats, torch.no_grad():
        model.up.register_forward_hook(lambda module, args, output: output.tanh(), prepend=True)
        for batch in batches(2):
            model(batch)
    assert "no norm or linear layer feeds it" in quantize_(model, CONFIG, stats)["down"].note


def test_what_another_thread_does_is_not_followed():
    def in_a_thread(m, x):
        found = []
        worker = threading.Thread(target=lambda: found.append(m.up(x)))
        worker.start()
        worker.join()
        return m.down(found[0])

    model = Between(in_a_thread)
    with torch.no_grad():
        report = quantize_(model, CONFIG, calibrated(model))
    assert "no norm or linear layer feeds it" in report["down"].note


def test_what_wraps_features_is_looked_into():
    def nested(m, x):
        y = m.up(x)
        offsets = torch.tensor([0, 2, y.shape[1]])
        parts = [torch.nested.nested_tensor_from_jagged(each, offsets) for each in y]
        return m.down(y) + sum(part.tanh().values() for part in parts)

    model = Between(nested)
    report = quantize_(model, CONFIG, calibrated(model))
    assert ALSO + "aten::" in report["down"].note


def test_a_branch_as_an_operation_reads():
    def branch(m, x):
        y = m.up(x)
        return m.down(y) + torch.cond(x.sum() > 0, torch.sin, torch.cos, (y,))

    model = Between(branch)
    report = quantize_(model, CONFIG, calibrated(model))
    assert ALSO + "cond" in report["down"].note


def test_autograd_keeps_what_it_was_given():
    model = Between(ALLOWED["gated"])
    with calibrate(model, CONFIG) as stats:
        for batch in batches(2):
            model(batch)
    note = quantize_(model, CONFIG, stats)["down"].note
    assert note.endswith("autograd, without torch.no_grad())")


def test_nothing_is_held_when_a_batch_is_over():
    found = []

    def way(m, x):
        y = m.up(x)
        found.append(weakref.ref(y.untyped_storage()))
        return m.down(y)

    model = Between(way).eval()
    with calibrate(model, CONFIG, manual=True) as stats, torch.no_grad():
        for batch in batches(2):
            model(batch)
            stats.end_batch()
            assert found.pop()() is None


STEPS = {
    "relu": lambda m, a, b: a.relu(), "neg": lambda m, a, b: -a, "scaled": lambda m, a, b: a * m.gamma,
    "tanh": lambda m, a, b: a.tanh(), "shifted": lambda m, a, b: a + 0.1, "sum": lambda m, a, b: a + b,
    "product": lambda m, a, b: a * b, "gate": lambda m, a, b: a * b.sigmoid(), "third": lambda m, a, b: a / 3,
    "halves": lambda m, a, b: torch.cat([a[..., 16:], b[..., :16]], -1),
    "pairs": lambda m, a, b: a.unflatten(-1, (2, 16)).transpose(-1, -2).flatten(-2),
    "rolled": lambda m, a, b: a.roll(1, -1), "tokens": lambda m, a, b: a.flip(1),
    "weighted": lambda m, a, b: (b @ b.mT).softmax(-1) @ a, "mixed": lambda m, a, b: a @ m.other.weight,
    "attention": lambda m, a, b: whole(F.scaled_dot_product_attention(heads(b), heads(b), heads(a))),
    "in place": lambda m, a, b: a.clone().mul_(b), "written": lambda m, a, b: a.add_(0.1),
    "doubled": lambda m, a, b: a.mul_(2), "part": lambda m, a, b: a[..., :16].repeat(1, 1, 2),
    "again": lambda m, a, b: m.up(a), "gated": lambda m, a, b: m.gate(a), "down": lambda m, a, b: m.down(a),
    "single": lambda m, a, b: a.float().double().relu_(), "clamped": lambda m, a, b: a.clamp(min=-0.5),
    "first": lambda m, a, b: a[:, :1].expand_as(a).contiguous(), "most": lambda m, a, b: torch.maximum(a, b),
}  # fmt: skip


LAST = st.sampled_from([0, 0, 0, 0, 0, 1, 2, 3])  # chains, more often than not


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(list(STEPS)), LAST, st.integers(0, 5)), max_size=4),
    st.lists(LAST, min_size=1, max_size=2),
)
def test_what_is_folded_in_any_program_is_exact(steps, read):
    def way(m, x):
        known = [x.clone(), m.gate(x), m.up(x)]
        for name, first, second in steps:
            known.append(STEPS[name](m, known[-1 - first % len(known)], known[-1 - second % len(known)]))
        return sum(m.down(known[-1 - which % len(known)]) for which in read)

    torch.manual_seed(0)
    model, every = Between(way).double().eval(), [batch.double() / 4 for batch in batches(3, rows=5)]
    with torch.no_grad():
        expected = model(every[2])
        with calibrate(model, CONFIG) as stats:
            model(every[0])
            model(every[1])
        if not expected.isfinite().all() or not stats.layers:
            return
        names = [name for name in ("up", "gate", "down") if name in stats.layers]
        reasons = applied(model, CONFIG, stats, names)
        event("folded" if not all(reasons.values()) else "as it is")
        assert (model(every[2]) - expected).norm() <= 1e-6 * expected.norm()
