"""Arrays over the memory of tensors among the arguments: metrics in numpy, of labels that are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import rote


def accuracy(s: Any, x: Any, y: Any) -> Any:
    return float((s.net(x).argmax(1).cpu().numpy() == y.cpu().numpy()).mean())


def kept(s: Any, x: Any, y: Any) -> Any:
    s.found.append(y.cpu().numpy() * 2)
    return x * 2


def of_views(s: Any, x: Any, y: Any) -> Any:
    return x[1:, ::2].cpu().numpy().sum(0), y[2:].cpu().numpy().max(), x.T.cpu().numpy() - 1


def collected(s: Any, x: Any, y: Any) -> Any:
    scores, labels = [], []
    for part in range(2):
        scores.append(s.net(x[part * 3 : part * 3 + 3]).cpu().numpy())
        labels.append(y[part * 3 : part * 3 + 3].cpu().numpy())
    scores, labels = np.concatenate(scores), np.concatenate(labels)
    return {"accuracy": float((scores.argmax(1) == labels).mean()), "score": scores.max(1).mean()}


def written_before(s: Any, x: Any, y: Any) -> Any:
    x.add_(1)
    return x.cpu().numpy().sum() * 2


def written_behind(s: Any, x: Any, y: Any) -> Any:
    found = x.cpu().numpy() * 2
    x.add_(1)
    return found, x * 3


def seen_behind(s: Any, x: Any, y: Any) -> Any:
    found = x.cpu().numpy()
    x.add_(1)
    return found * 2


def handed_out(s: Any, x: Any, y: Any) -> Any:
    found = y.cpu().numpy()
    return found, found + 1, y


def becomes_an_operand(s: Any, x: Any, y: Any) -> Any:
    return x * float(y.cpu().numpy().mean())


def of_state(s: Any, x: Any, y: Any) -> Any:
    return s.table.cpu().numpy()[:2] + 1, x * s.table.sum()


PROGRAMS = (
    accuracy, kept, of_views, collected, written_before, written_behind, seen_behind, handed_out,
    becomes_an_operand, of_state,
)  # fmt: skip
FOLLOWED = (accuracy, kept, of_views, collected)


class State:
    def __init__(self, device: torch.device) -> None:
        torch.manual_seed(0)
        self.net = torch.nn.Linear(4, 3).to(device)
        self.found: list[Any] = []
        self.table = torch.arange(4.0, device=device)


def shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shown(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(each) for each in value]
    array = value.cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    return type(value), array.dtype, array.shape, array.tobytes()


@pytest.mark.parametrize("form", ["plain", "strided", "one memory"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_numpy_computes_with_arguments(device, program, form):
    states = [State(device), State(device)]
    graphed = rote.graph(lambda x, y: program(states[0], x, y), keep=True)
    ways = (graphed, lambda x, y: program(states[1], x, y))
    held: list[Any] = []
    with torch.no_grad():
        for call in range(14):
            states[0].table[0] = states[1].table[0] = float(call)
            seen = []
            for run in ways:
                made = torch.Generator().manual_seed(call)
                x, y = torch.randn(6, 4, generator=made), torch.randint(0, 3, (6,), generator=made)
                if form == "strided":
                    x, y = (
                        torch.randn(4, 6, generator=made).T,
                        torch.randint(0, 3, (12,), generator=made)[::2],
                    )
                x, y = x.to(device), y.to(device)
                if form == "one memory":
                    y = x.view(torch.int32)[:, 0].abs() % 3
                result = run(x, y)
                held.append(result)
                seen.append([shown(result), shown([x, y])])
            assert seen[0] == seen[1], f"call {call}\n{graphed.explain()}"
            assert shown(states[0].found) == shown(states[1].found)
        before = shown(held)
        for _ in range(3):
            graphed(torch.randn(6, 4, device=device), torch.zeros(6, dtype=torch.int64, device=device))
        assert shown(held) == before  # what was handed out is the caller's
    if program in FOLLOWED and form == "plain" and device.type == "cpu":
        assert graphed.report().replayed >= 8, graphed.explain()
