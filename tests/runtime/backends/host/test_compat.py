"""Every probe of a private part has a fallback that still replays the same numbers."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from rote.runtime.backends.host import operations, program
from rote.runtime.backends.protocol.torch_private import raw_call

FALLBACKS = {
    (program, "below_autograd"): nullcontext,
    (program, "in_inference"): torch.inference_mode,
    (program, "set_grad"): torch.set_grad_enabled,
    (operations, "is_replaced"): lambda name: True,
}


@pytest.mark.parametrize(
    "missing", [*([each] for each in FALLBACKS), [*FALLBACKS]], ids=lambda each: each[-1][1]
)
def test_replay_without(record: Any, monkeypatch: pytest.MonkeyPatch, missing: list[Any]) -> None:
    for module, name in missing:
        monkeypatch.setattr(module, name, FALLBACKS[module, name])
    x, p = torch.randn(4, 4), torch.nn.Parameter(torch.randn(4, 4))

    def step() -> torch.Tensor:
        loss = (x @ p).relu().sum()
        (g,) = torch.autograd.grad(loss, p)
        with torch.no_grad():
            p.sub_(g, alpha=0.1)
        return loss.detach()

    recording = record(step)
    start = p.detach().clone()
    recording.replay()
    mine = p.detach().clone(), recording.output.clone()
    with torch.no_grad():
        p.copy_(start)
    assert torch.equal(mine[1], step()) and torch.equal(mine[0], p)


def test_every_probe_finds_its_private_part() -> None:
    for name in (
        "_AutoDispatchBelowADInplaceOrView",
        "_InferenceMode",
        "_set_grad_enabled",
        "_dispatch_dump",
    ):
        assert hasattr(torch._C, name), name
    assert hasattr(torch._C, "_dispatch_dump")
    assert raw_call(torch.ops.aten.mm.default) is not torch.ops.aten.mm.default
