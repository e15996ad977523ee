"""The picture of a report."""

from __future__ import annotations

import pytest
import torch

from rote import MisuseError
from rote.quant import DuQuantConfig, calibrate, quantize_
from rote.quant.converting.report import draw

from .models import Tiny, batches

CONFIG = DuQuantConfig(block_size=16, rotation_steps=4, calib_batches=1)


def test_a_picture_of_every_layer(tmp_path):
    pytest.importorskip("matplotlib")
    model = Tiny(blocks=1)
    with calibrate(model, CONFIG) as stats, torch.no_grad():
        model(batches(1)[0])
    report = quantize_(model, CONFIG, stats, stages=True)
    draw(report, tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    assert content.startswith(b"\x89PNG") and len(content) > 20_000
    width, height = (int.from_bytes(content[start : start + 4], "big") for start in (16, 20))
    assert height > width > 900, "a row for each of the eight layers"


def test_a_report_without_stages(tmp_path):
    report = quantize_(torch.nn.Linear(16, 16), CONFIG, dry_run=True)
    with pytest.raises(MisuseError, match="has no stages to draw"):
        draw(report, tmp_path / "a.png")
