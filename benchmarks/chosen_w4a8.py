"""A network of W4A8 layers with the alternative that an integration offers; ways as in :mod:`.chosen`.

``python -m benchmarks.run --case chosen_w4a8 --device cuda`` writes the JSON.
"""

from __future__ import annotations

import torch
from torch import nn

from rote.integrations.duquant import offer_alternatives
from rote.quant import DuQuantConfig, calibrate, quantize_

from .chosen import measure
from .common import Outcome, Settings

NEEDS_GPU = False
WIDTH, WIDE, ROWS = 2048, 8192, (16, 64, 256, 800)


@torch.no_grad()
def run(settings: Settings) -> Outcome:
    """Each number of rows."""
    out = Outcome()
    torch.manual_seed(0)
    width, wide = (WIDTH, WIDE) if settings.on_gpu else (64, 128)
    model = nn.Sequential(nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width))
    dtype = torch.bfloat16 if settings.on_gpu else torch.float32
    model = model.to(settings.device, dtype).eval()
    config = DuQuantConfig(block_size=32, calib_batches=1)
    with calibrate(model, config) as stats:
        model(torch.randn(64, width, device=settings.device, dtype=dtype))
    quantize_(model, config, stats)
    offer_alternatives()
    for rows in ROWS if settings.on_gpu else ROWS[:2]:
        x = [{"x": torch.randn(rows, width, device=settings.device, dtype=dtype)} for _ in range(4)]
        measure(out, f"{rows} rows", lambda x: model(x), x, settings)
    return out
