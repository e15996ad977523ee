"""An operation in a segment of its own, on both backends."""

from __future__ import annotations

import pytest
import torch

from rote.base import CaptureError
from rote.runtime.backends import PROCESS

ADD, PICK = torch.ops.aten.add_.Tensor, torch.ops.aten.nonzero.default


def test_it_runs_again(device: torch.device) -> None:
    backend = PROCESS.of(torch.empty(0, device=device).device)  # with its index
    x, y = torch.ones(3, device=device), torch.arange(3.0, device=device)
    with backend.lock, backend.alone(ADD, (x, y), {}) as captured:
        assert captured.results is x
        assert x.tolist() == [1, 2, 3]
        y.fill_(10)
        if device.type == "cuda":
            torch.cuda.synchronize()
        captured.replay()
        if device.type == "cuda":
            torch.cuda.synchronize()
        assert x.tolist() == [11, 12, 13]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")
def test_one_that_is_refused() -> None:
    """Random numbers can be drawn afterwards, and the next one is captured."""
    device = torch.device("cuda", 0)
    backend, x = PROCESS.of(device), torch.ones(3, device=device)
    with backend.lock:
        for _ in range(2):
            with pytest.raises(CaptureError), backend.alone(PICK, (x,), {}):
                pass
            torch.rand(1, device=device)
            with backend.alone(ADD, (x, x), {}) as captured:
                captured.replay()
    torch.rand(1, device=device)
    assert x.tolist() == [16, 16, 16]
