"""Memory that no operation has written before it is read: the host may have filled it, which is not seen."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import rote
from rote.testing import compare

WARM = rote.Options().warmup + 1
CALLS = 8
LENGTHS = (12, 12), (4, 3)


def inputs(device, *shape):
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(*shape, generator=generator).to(device),) for _ in range(CALLS)]


def test_lengths_as_python_numbers(device, where, reason):
    targets = torch.randint(1, 5, (2, 4), device=device)

    def fn(x):
        torch.empty(2).fill_(99.0)  # what else may lie in memory that is made next
        return F.ctc_loss(x.log_softmax(-1), targets, *LENGTHS)

    g = compare(fn, inputs(device, 12, 2, 5))
    assert g.report().replayed == 0
    found = reason(g, "RT123")
    assert "reads memory that aten::empty made and that no operation has written" in found.message
    assert found.where == where(fn, "F.ctc_loss")
    assert found.remedy == (
        "Pass a tensor that was made outside (lengths as a tensor, not as numbers), or write the memory with "
        "an operation (copy_, fill_, out=)."
    )


def test_lengths_as_tensors_replay(device):
    targets = torch.randint(1, 5, (2, 4), device=device)
    lengths = [torch.tensor(each, device=device) for each in LENGTHS]

    def fn(x):
        return F.ctc_loss(x.log_softmax(-1), targets, *lengths)

    assert compare(fn, inputs(device, 12, 2, 5)).report().replayed == CALLS - WARM


def fill(tensor: torch.Tensor, value: float) -> torch.Tensor:
    """Write the memory of a tensor on the host past PyTorch."""
    array = (ctypes.c_float * tensor.numel()).from_address(tensor.data_ptr())
    array[:] = [value] * tensor.numel()
    return tensor


def _by_new(x: torch.Tensor) -> torch.Tensor:
    return x.cpu() + fill(x.cpu().new_empty(3), 7.0)


def _by_view(x: torch.Tensor) -> torch.Tensor:
    return x.cpu() + fill(torch.empty_strided((2, 3), (3, 1)), 7.0)[1]


def _in_place(x: torch.Tensor) -> torch.Tensor:
    return fill(torch.empty(3), 7.0).add_(x.cpu())


def _resized(x: torch.Tensor) -> torch.Tensor:
    return fill(torch.empty(0).resize_(3), 7.0) * x.cpu()


def _read(x: torch.Tensor) -> torch.Tensor:
    return x * fill(torch.empty(1), 7.0).item()


def _listed(x: torch.Tensor) -> torch.Tensor:
    return x * fill(torch.empty(2), 7.0).tolist()[0]


def _masked(x: torch.Tensor) -> torch.Tensor:
    return x.cpu()[fill(torch.empty(3), 7.0) > 5]


def _returned(x: torch.Tensor) -> Any:
    return x * 2, fill(torch.empty(3), 7.0)


def _copied(x: torch.Tensor) -> torch.Tensor:
    return x + torch.zeros(3, device=x.device).copy_(fill(torch.empty(3), 7.0))


def _on_one_way(x: torch.Tensor) -> torch.Tensor:
    memory = torch.empty(3)
    if x.sum() > 0:
        return x.cpu() + memory.fill_(1.0)
    return x.cpu() + fill(memory, 7.0)


@pytest.mark.parametrize(
    "fn", [_by_new, _by_view, _in_place, _resized, _read, _listed, _masked, _returned, _copied]
)
def test_memory_that_the_host_fills(device, fn, reason):
    g = compare(fn, inputs(device, 3))
    assert g.report().replayed == 0
    assert "no operation has written" in reason(g, "RT123").message


def test_memory_that_the_host_fills_on_one_way(device, reason):
    calls = [(torch.full((3,), float(sign), device=device),) for sign in [1, 1, 1, 1, -1, -1, 1, -1]]
    g = compare(_on_one_way, calls)
    assert g.report().replayed > 0
    assert "no operation has written" in reason(g, "RT123").message


def test_memory_that_is_filled_in_deterministic_mode(device, reason, monkeypatch):
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    try:
        g = compare(lambda x: x.cpu() + torch.empty(3).isnan(), inputs(device, 3))
        assert g.report().replayed == CALLS - WARM
        g = compare(_by_new, inputs(device, 3))
        assert g.report().replayed == 0
        assert "no operation has written" in reason(g, "RT123").message
    finally:
        torch.use_deterministic_algorithms(False)


def _by_out(x: torch.Tensor) -> torch.Tensor:
    return torch.mul(x, 2, out=torch.empty(3, device=x.device)) + 1


def _by_copy(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x).copy_(x) + 1


def _by_parts(x: torch.Tensor) -> torch.Tensor:
    memory = torch.empty(2, 3, device=x.device)
    memory[0], memory[1] = x, 2.0
    return memory * 2


def _by_shape(x: torch.Tensor) -> torch.Tensor:
    memory = torch.empty(2, 3, device=x.device)
    return torch.zeros_like(memory) + memory.new_ones(3) + x.expand_as(memory)


def _by_mask(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x).masked_fill_(x > 0, 1.0).masked_fill_(x <= 0, 2.0)


def _by_draws(x: torch.Tensor) -> torch.Tensor:
    return x * torch.empty_like(x).uniform_()


def _by_nothing(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.empty(0, device=x.device), x])


def _by_factor(x: torch.Tensor) -> torch.Tensor:
    scores = torch.empty(1, 3, 3, device=x.device)
    return torch.baddbmm(scores, x.view(1, 3, 1), x.view(1, 1, 3), beta=0, alpha=0.5)


def _by_lists(x: torch.Tensor) -> list[torch.Tensor]:
    memory = [torch.empty_like(x), torch.empty_like(x)]
    torch._foreach_copy_(memory, [x, x * 2])
    return memory


@pytest.mark.parametrize(
    "fn",
    [_by_out, _by_copy, _by_parts, _by_shape, _by_mask, _by_draws, _by_nothing, _by_factor, _by_lists],
)
def test_memory_that_operations_write_replays(device, fn: Callable[..., Any]):
    assert compare(fn, inputs(device, 3)).report().replayed == CALLS - WARM
