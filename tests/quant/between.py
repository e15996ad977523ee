"""A layer, something, and a layer: what may lie between, and a way to move a divisor to the first of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from rote.quant import DuQuantConfig, calibrate
from rote.quant.calibrating.folding import smooth_group
from rote.quant.calibrating.layers import candidates

from .models import batches

CONFIG = DuQuantConfig(
    block_size=16, rotation_steps=4, calib_batches=2, fold_smoothing=True, weight_bits=8, sample_rows=64
)
WIDTH, HEADS = 32, 4
ALSO = "'up', which feeds it, is also read by "


def calibrated(model, config=CONFIG, **options):
    model.eval()
    with calibrate(model, config, **options) as stats, torch.no_grad():
        for batch in batches(config.calib_batches):
            model(batch)
    return stats


class Between(torch.nn.Module):
    """A layer, something, and a layer."""

    def __init__(self, way, up=WIDTH):
        super().__init__()
        self.way = way
        self.up, self.down = torch.nn.Linear(WIDTH, up), torch.nn.Linear(WIDTH, WIDTH)
        self.gate, self.other = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.gamma = torch.nn.Parameter(torch.rand(WIDTH) + 0.5)
        self.drop, self.relu = torch.nn.Dropout(0.1), torch.nn.ReLU(inplace=True)
        self.norm = torch.nn.LayerNorm(WIDTH)
        with torch.no_grad():
            self.up.weight[3] *= 30  # a hot channel

    def forward(self, x):
        return self.way(self, x)


def heads(x):
    return x.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)


def whole(x):
    return x.transpose(1, 2).flatten(2)


def attended(m, x, values, **options):
    q, k = heads(m.gate(x)), heads(m.other(x))
    return F.scaled_dot_product_attention(q, k[:, : values.shape[1]], values, **options)


def by_hand(m, x):
    """Attention of four heads to two of values, written out."""
    values = heads(m.up(x))[:, :, None].expand(-1, -1, 2, -1, -1).reshape(len(x), HEADS, -1, WIDTH // HEADS)
    weights = (heads(m.gate(x)) @ heads(m.other(x)).mT).softmax(-1)
    return m.down(whole(m.drop(weights) @ values))


def by_einsum(m, x):
    weights = torch.einsum("bhsd,bhtd->bhst", heads(m.gate(x)), heads(m.other(x))).softmax(-1)
    return m.down(torch.einsum("bhst,bhtd->bshd", weights, heads(m.up(x))).flatten(2))


def with_a_cache(m, x):
    values = m.up(x)
    first, last = values[:, :3], values[:, 3:]
    return m.down(whole(attended(m, x, torch.cat([heads(first), heads(last)], -2))))


def in_another_order(m, x):
    first, second = m.up(x).chunk(2, -1)
    return m.down(torch.cat([second, first.flip(-1)], -1))


def with_padded_heads(m, x):
    """As attention on a GPU does it where the size of a head is no multiple of 8."""
    values = F.pad(heads(m.up(x)), (0, 3))
    return m.down(whole(attended(m, x, values)[..., : WIDTH // HEADS]))


def in_place(m, x):
    y = m.up(x)
    y *= F.silu(m.gate(x))
    return m.down(m.relu(y))


def into_the_gate(m, x):
    return m.down(F.silu(m.gate(x)).mul_(m.up(x)))


def twice(m, x):
    y = m.up(x)
    return m.down(F.relu(y) + y * m.gamma - y / 3)


ALLOWED = {
    "gated": lambda m, x: m.down(F.silu(m.gate(x)) * m.up(x)),
    "nothing": lambda m, x: m.down(m.up(x)),
    "relu": lambda m, x: m.down(F.relu(m.up(x))),
    "leaky relu and dropout": lambda m, x: m.down(m.drop(F.leaky_relu(m.up(x)))),
    "in place": in_place,
    "into the gate": into_the_gate,
    "scale of the layer": lambda m, x: m.down(m.up(x) * m.gamma),
    "other type and back": lambda m, x: m.down(m.up(x).float().double()),
    "a view that is written to": lambda m, x: m.down(m.up(x).view(-1).relu_().view_as(x)),
    "in another order": in_another_order,
    "more than once": twice,
    "attention": lambda m, x: m.down(whole(attended(m, x, heads(m.up(x))))),
    "attention by einsum": by_einsum,
    "attention to a cache": with_a_cache,
    "attention of padded heads": with_padded_heads,
}
GROUPED = {
    "grouped attention": lambda m, x: m.down(whole(attended(m, x, heads(m.up(x)), enable_gqa=True))),
    "grouped attention, repeated": lambda m, x: m.down(
        whole(attended(m, x, heads(m.up(x)).repeat_interleave(2, 1)))
    ),
    "grouped attention by hand": by_hand,
}


def applied(model, config, stats, quantized=None):
    """Fold into the dense layers, exactly, whatever :func:`quantize_` would fold; the groups' reasons."""
    found = [item.name for item in candidates(model, config)]
    chosen = found if quantized is None else quantized
    plans = {name: smooth_group(model, [name], config, stats, chosen) for name in chosen}
    with torch.no_grad():
        for name, plan in plans.items():
            if plan.scale is not None:
                weight = model.get_submodule(name).weight
                weight *= plan.scale.to(weight)
            for source, divisors in plan.rows.items():
                layer = model.get_submodule(source)
                layer.weight /= divisors.to(layer.weight)[:, None]
                layer.bias /= divisors.to(layer.bias)
    return {name: plan.why_not for name, plan in plans.items()}
