"""What surrounds a call decides with the arguments which recording it has."""

from __future__ import annotations

import torch

import rote
from rote.testing import count_recordings


def test_ambient_state_is_part_of_the_key(device):
    layer = torch.nn.Linear(4, 4, device=device)
    x = torch.randn(2, 4, device=device)
    g = rote.graph(lambda x: layer(x).detach())
    for _ in range(5):
        for context in (torch.enable_grad, torch.no_grad, torch.inference_mode):
            with context():
                out = g(x)
                assert torch.equal(out, layer(x)) and out.is_inference() == (context is torch.inference_mode)
        with torch.autocast(device.type, dtype=torch.bfloat16), torch.no_grad():
            out = g(x)
            assert out.dtype is torch.bfloat16 and torch.equal(out, layer(x))
    assert count_recordings(g) == 4


def test_default_dtype_is_part_of_the_key(device):
    g = rote.graph(lambda: torch.full((2,), 1.0, device=device))
    try:
        for _ in range(5):
            for dtype in (torch.float32, torch.float64):
                torch.set_default_dtype(dtype)
                assert g().dtype is dtype
    finally:
        torch.set_default_dtype(torch.float32)
    assert count_recordings(g) == 2


def test_too_many_keys_drop_the_oldest(device, reason):
    g = rote.graph(lambda x, n: x * n, max_keys=2)
    x = torch.randn(3, device=device)
    for n in (1, 2, 3):
        for _ in range(4):
            assert torch.equal(g(x, n), x * n)
    assert count_recordings(g) == 2
    found = reason(g, "RT305")
    assert (found.message, found.remedy) == (
        "more than 2 keys",
        "Call with fewer distinct shapes and values.",
    )


def test_layers_that_look_for_function_modes(device):
    """Attention takes its fast path only where nobody overrides functions; a trace must not count as that."""
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).to(device).eval()
    g = rote.graph(layer)
    with torch.no_grad():
        for _ in range(5):
            x = torch.randn(2, 3, 8, device=device)
            assert torch.equal(g(x), layer(x))
    assert g.report().replayed == 3
