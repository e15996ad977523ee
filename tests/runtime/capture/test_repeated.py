"""What a later call does otherwise than an earlier one at the same place is found."""

from __future__ import annotations

import pytest
import torch

import rote


def write(u, v, flag):
    (v if flag else u).add_(1)
    return u * v


WAYS = {
    "number": lambda x, a, b, flag: x * (2.0 + flag),
    "number and type": lambda x, a, b, flag: x * (True if flag else 1),
    "tensor made outside": lambda x, a, b, flag: x + (b if flag else a),
    "tensor made inside": lambda x, a, b, flag: (lambda u, v: (v if flag else u).exp())(x + 1, x + 2),
    "order": lambda x, a, b, flag: torch.sub(*((b, a) if flag else (a, b))) + x,
    "order in a list": lambda x, a, b, flag: torch.cat([b, a] if flag else [a, b]) + 1,
    "length of a list": lambda x, a, b, flag: torch.cat([a, b, a] if flag else [a, b]).sum() + x,
    "offset": lambda x, a, b, flag: x.flatten()[flag : 2 + flag] + 1,
    "shape": lambda x, a, b, flag: x.view((3, 2) if flag else (2, 3)) + 1,
    "named number": lambda x, a, b, flag: torch.add(x, a, alpha=2 + flag),
    "named or not": lambda x, a, b, flag: torch.add(x, a, alpha=2) if flag else torch.add(x, a),
    "place of a write": lambda x, a, b, flag: write(x * 2, x * 3, flag),
    "operation": lambda x, a, b, flag: x.sin() if flag else x.cos(),
    "view or not": lambda x, a, b, flag: (lambda u: (u.clone() if flag else u.t().t()).add_(1) + u)(x * 2),
    "number of operations": lambda x, a, b, flag: x.exp().sin() if flag else x.exp(),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_what_differs_in_a_later_observation_is_found(way, device, tmp_path):
    a, b = torch.arange(6.0, device=device).view(2, 3), torch.arange(6.0, 12.0, device=device).view(2, 3)
    file, fn = tmp_path / "flag", WAYS[way]
    read = rote.pure(lambda: file.read_text())  # which is not true: state that rote cannot see

    def call(x):
        met = a + b  # in this order: tensors made outside are known by the order in which they are met
        return fn(x, a, b, int(read())) + met.sum()

    g, x = rote.graph(call, warmup=3), torch.ones(2, 3, device=device)
    for flag in (0, 0, 1):
        file.write_text(str(flag))
        assert torch.equal(g(x), call(x))
    assert {each.code for each in g.report().reasons} & {"RT202", "RT203"}, g.explain()
    assert g.report().recorded == 0
    for _ in range(6):
        x = x + 1
        assert torch.equal(g(x), call(x))
    assert g.report().replayed > 0, g.explain()


def test_lazy_tensors_are_what_they_are_in_later_calls(device):
    z = torch.view_as_complex(torch.arange(12.0, device=device).view(6, 2)).conj()
    same, other = z.real, z.imag  # one memory; the second is negated when it is read
    assert other.is_neg() and not same.is_neg()

    def call(x):
        return (
            x + same,
            x * other,
            torch.mul(other, 2.0),
            (x * 1j).conj().imag + x,
            torch.view_as_real(z.resolve_conj()),
        )

    g = rote.graph(call, warmup=3)
    for step in range(7):
        x = torch.arange(6.0, device=device) + step
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(g(x), call(x), strict=True))


@torch.no_grad()
def test_a_real_tensor_may_be_negated_lazily_where_none_is_complex(device):
    outside = torch._neg_view(torch.arange(6.0, device=device))
    plain = outside._base if outside._base is not None else outside

    def call(x):
        y = torch._neg_view(x * 2)
        return x + outside, y * 3, y + plain, torch.relu(y)

    g = rote.graph(call, warmup=3)
    for step in range(7):
        x = torch.arange(6.0, device=device) - step
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(g(x), call(x), strict=True))
