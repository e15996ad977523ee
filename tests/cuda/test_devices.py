"""Which backend takes a call: that of the device whose tensors it uses, not of those that it could reach."""

from __future__ import annotations

import pytest
import torch

import rote

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False"),
]
CALLS = 8


class Holder:
    """State on both devices, of which a call uses one."""

    def __init__(self) -> None:
        self.weights = {device: torch.ones(3, device=device) for device in ("cpu", "cuda")}

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weights[x.device.type]).exp()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_state_on_another_device_is_not_used(device):
    holder = Holder()
    g = rote.graph(holder.scaled, keep=True)
    for number in range(CALLS):
        x = torch.full((3,), number / CALLS, device=device)
        assert torch.equal(g(x), holder.scaled(x))
    assert g.report().replayed >= CALLS - 4, g.explain()
    assert not g.report().recordings[0].islands


def test_without_arguments_on_the_host():
    held = {"unused": torch.ones(3, device="cuda"), "used": torch.ones(3)}
    g = rote.graph(lambda: held["used"] * 2, keep=True)
    for number in range(CALLS):
        held["used"].fill_(number)
        assert g().tolist() == [2.0 * number] * 3
    assert g.report().replayed >= CALLS - 4, g.explain()


def test_the_users_choice_stays():
    held = {"unused": torch.ones(3, device="cuda"), "used": torch.ones(3)}
    g = rote.graph(lambda: held["used"] * 2, keep=True, backend="cuda")
    for number in range(CALLS):
        held["used"].fill_(number)
        assert g().tolist() == [2.0 * number] * 3
    assert "RT603" not in [each.code for each in g.report().reasons]
