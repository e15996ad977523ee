"""What a module keeps beside its parameters (hooks of state dicts, what persists) is read and noticed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import rote
from rote.testing import assert_same


def model():
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()
    made[0].register_buffer("scale", torch.ones(3))
    made.hook = made.register_forward_hook(lambda module, args, *rest: rest[-1] * (len(rest) + 1))
    return made


def summed(m, x):
    return x * sum(value.float().sum() for value in m.state_dict().values())


def counted(m, x):
    return x * len(m.state_dict())


def loaded(m, x):
    m.load_state_dict(m.state_dict(), strict=False)
    return x * m[0].scale.sum()


def called(m, x):
    return m(x)


def names(m, x):
    return x * sum(len(name) for name, _ in (*m.named_parameters(), *m.named_buffers(), *m.named_modules()))


def first(m, x):
    return x * next(iter(m.parameters())).sum()


def reading_all(m, x):
    return x * len(vars(m[0])["_non_persistent_buffers_set"])


def doubled(state, key):
    state[key] = state[key] * 2


CHANGES = {
    "a hook": lambda m: m._register_state_dict_hook(lambda mod, state, *rest: doubled(state, "0.scale")),
    "a hook inside": lambda m: m[0]._register_state_dict_hook(
        lambda mod, state, *rest: doubled(state, "0.scale")
    ),
    "a post-hook": lambda m: m[0].register_state_dict_post_hook(
        lambda mod, state, prefix, local: doubled(state, f"{prefix}scale")
    ),
    "a pre-hook": lambda m: m[0].register_state_dict_pre_hook(
        lambda mod, prefix, keep: setattr(mod, "scale", torch.full_like(mod.scale, 3))
    ),
    "loading, before": lambda m: m.register_load_state_dict_pre_hook(
        lambda mod, state, *rest: doubled(state, "0.scale")
    ),
    "no persistence": lambda m: m[0].register_buffer("scale", m[0].scale, persistent=False),
    "no persistence, by hand": lambda m: m[0]._non_persistent_buffers_set.add("scale"),
    "hooks with keywords": lambda m: m._forward_hooks_with_kwargs.update({m.hook.id: True}),
    "a parameter": lambda m: m[0].register_parameter("more", nn.Parameter(m[0].scale[:2].clone())),
    "the order": lambda m: m[0]._parameters.update(weight=m[0]._parameters.pop("weight")),
    "nothing": lambda m: None,
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("call", [summed, counted, loaded, called, names, first, reading_all])
def test_a_change_of_a_module(call, change, device):
    plain, graphed = model().to(device), model().to(device)
    x = torch.randn(2, 3, device=device)
    g = rote.graph(lambda x: call(graphed, x))
    with torch.no_grad():
        for _ in range(6):
            assert_same(g(x), call(plain, x))
        before = g.report().replayed
        CHANGES[change](plain), CHANGES[change](graphed)
        for _ in range(5):
            assert_same(g(x), call(plain, x))
    assert before >= 4, g.explain()


def test_what_state_dicts_need_is_read_by_them_only(device):
    m = model().to(device)
    g, x = rote.graph(lambda x: m(x)), torch.randn(2, 3, device=device)
    with torch.no_grad():
        for _ in range(9):
            g(x)
            m._register_state_dict_hook(lambda mod, state, *rest: None)
    assert g.report().replayed == 7, g.explain()
