"""Every probe of a private part has a fallback that still replays the same numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rote.base.errors import CaptureError
from rote.runtime.backends.host import torch_private as compat
from rote.runtime.backends.protocol.torch_private import raw_call

PRIVATE = [
    "_AutoDispatchBelowADInplaceOrView",
    "_InferenceMode",
    "_set_grad_enabled",
    "_len_torch_function_stack",
    "_len_torch_dispatch_stack",
    "_dispatch_has_kernel_for_dispatch_key",
    "_dispatch_dump",
]


class Without:
    """``torch._C`` with a few names missing."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __getattr__(self, name: str) -> Any:
        if name in self._names:
            raise AttributeError(name)
        return getattr(torch._C, name)


class Torch:
    """``torch`` with another ``_C``, and without private functions of its own."""

    def __init__(self, c: Without) -> None:
        self._C = c

    def __getattr__(self, name: str) -> Any:
        if name == "_neg_view":
            raise AttributeError(name)
        return getattr(torch, name)


@pytest.mark.parametrize("names", [*([name] for name in PRIVATE), PRIVATE], ids=lambda names: names[-1])
def test_replay_without(record: Any, monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    monkeypatch.setattr(compat, "torch", Torch(Without(*names)))
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
    for name in PRIVATE:
        assert hasattr(torch._C, name), name
    assert raw_call(torch.ops.aten.mm.default) is not torch.ops.aten.mm.default
    assert hasattr(torch, "_neg_view") and hasattr(torch.UntypedStorage, "_cdata")


def test_a_negated_view_cannot_be_rebuilt_without_its_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "torch", Torch(Without()))
    with pytest.raises(
        CaptureError, match=r"cannot rebuild a lazily negated view \(torch._neg_view is gone\)"
    ):
        compat.negative_view(torch.ones(1))
