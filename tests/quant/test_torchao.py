"""The configuration for torchao's quantize_, where torchao is installed."""

from __future__ import annotations

import pytest
import torch

from rote import MisuseError
from rote.quant import DuQuantConfig, DuQuantLinear, quantize_

from .models import Tiny, batches

pytest.importorskip("torchao")
PLAIN = DuQuantConfig(
    block_size=16, rotation="hadamard", permutation="none", smooth_alpha=None, share_groups=False
)


def test_it_does_what_quantize_does():
    from torchao.quantization import quantize_ as theirs

    from rote.quant.torchao import DuQuantAOConfig

    model, twin = Tiny(), Tiny()
    twin.load_state_dict(model.state_dict())
    theirs(model, DuQuantAOConfig(PLAIN), filter_fn=lambda module, name: name.endswith("_proj"))
    quantize_(twin, PLAIN, include="*_proj")
    assert isinstance(model.layers[0].mlp.up_proj, DuQuantLinear) and type(model.head) is torch.nn.Linear
    x = batches(1)[0]
    assert torch.equal(model(x), twin(x))


def test_what_needs_calibration_is_refused():
    from rote.quant.torchao import DuQuantAOConfig

    with pytest.raises(MisuseError, match="has no calibration, and this configuration needs it"):
        DuQuantAOConfig(DuQuantConfig())
