"""Plain Python values that the code reads: frozen in a recording, and watched."""

from __future__ import annotations

import torch
from torch import nn

import rote
from rote.testing import count_recordings

WARM = rote.Options().warmup + 1


def test_a_plain_value_that_the_code_reads(device, reason):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 2.0
            self.options = {"bias": 1.0, "deep": [0.5]}

        def forward(self, x):
            return x * self.scale + self.options["bias"] + self.options["deep"][0]

    model = Model()
    g, x = rote.graph(model), torch.ones(2, device=device)

    def settle():
        for _ in range(WARM + 1):
            assert torch.equal(g(x), model(x))

    settle()
    model.scale = 3.0
    settle()
    model.options["bias"] = 4.0
    settle()
    model.options["deep"][0] = 8.0
    settle()
    texts = {item.message for item in g.report().reasons if item.code == "RT302"}
    assert "Model.scale was 2.0 and is 3.0" in texts or len(texts) == 1
    assert count_recordings(g) == 4


def test_a_closure_cell(device):
    scale = 2.0

    def fn(x):
        return x * scale

    g, x = rote.graph(fn), torch.ones(2, device=device)
    for value in (2.0, 3.0, 2.0, 5.0):
        scale = value
        for _ in range(WARM + 1):
            assert g(x).tolist() == [value, value]
    assert count_recordings(g) == 3


SCALE = 2.0


def test_a_global(device):
    global SCALE
    g, x = rote.graph(lambda x: x * SCALE), torch.ones(2, device=device)
    try:
        for value in (2.0, 3.0, 2.0):
            SCALE = value
            for _ in range(WARM + 1):
                assert g(x).tolist() == [value, value]
    finally:
        SCALE = 2.0
    assert count_recordings(g) == 2


def test_a_default_argument_and_a_class_attribute(device):
    class Config:
        scale = 2.0

    def fn(x, by=[3.0]):  # noqa: B006
        return x * by[0] * Config.scale

    g, x = rote.graph(fn), torch.ones(1, device=device)
    for scale, by in ((2.0, 3.0), (4.0, 3.0), (4.0, 5.0)):
        Config.scale, fn.__defaults__[0][0] = scale, by
        for _ in range(WARM + 1):
            assert g(x).item() == scale * by
