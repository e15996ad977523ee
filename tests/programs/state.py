"""State and results: rings, results that are kept, arguments that are changed, threads, settings around."""

from __future__ import annotations

import copy
import threading
import time
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from .program import Made, batches, frozen, mlp, normal, program


@program()
def results_kept_and_read(device: torch.device) -> Made:
    """Each result is kept in a list, and the last three are added."""
    model, kept = mlp(device), list[Tensor]()

    @torch.no_grad()
    def forward(x: Tensor) -> Any:
        kept.append(model(x))
        return sum(kept[-3:])

    return Made(forward, batches(device), (kept,))


@program()
def argument_changed_and_returned(device: torch.device) -> Made:
    """The argument is written and returned, with two views of what was added."""
    model = mlp(device)

    @torch.no_grad()
    def forward(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = model(x)
        x.add_(y)
        return x, y.view(-1), y[2:4]

    return Made(forward, batches(device))


@program()
def ring_of_rows(device: torch.device) -> Made:
    """A ring of rows with a place that counts, read in order."""
    model, ring, kept = mlp(device), torch.zeros(16, 64, device=device), {"place": 0}

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        place = kept["place"]
        ring[place % 16] = x[0]
        kept["place"] = place + 1
        return model(torch.roll(ring, -(place % 16), 0)[-8:])

    return Made(forward, batches(device), (ring, kept))


@program()
def weights_loaded_in_each_call(device: torch.device) -> Made:
    """Half of one model's weights are loaded into another one."""
    model, other = mlp(device), mlp(device)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        other.load_state_dict({name: value * 0.5 for name, value in model.state_dict().items()})
        return other(x)

    return Made(forward, batches(device), (other,))


@program()
def inference_mode(device: torch.device) -> Made:
    """A function under inference mode."""
    model = mlp(device)
    return Made(torch.inference_mode()(lambda x: model(x).softmax(-1)), batches(device))


@program()
def default_device(device: torch.device) -> Made:
    """Tensors are made on a default device."""
    model = mlp(device)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        with torch.device(device):
            factor = torch.ones(8, 64) + torch.arange(64)
        return model(x * factor)

    return Made(forward, batches(device))


class Named(NamedTuple):
    """A result, and what is said of it."""

    result: Tensor
    about: dict[str, Any]


@program()
def named_tuple_returned(device: torch.device) -> Made:
    """A named tuple of a tensor and a dict of numbers and shapes."""
    model = mlp(device)

    def forward(x: Tensor) -> Named:
        return Named(model(x), {"norm": x.norm(), "shape": (x.shape, x.device.type)})

    return Made(frozen(forward), batches(device))


@program()
def another_thread_at_work(device: torch.device) -> Made:
    """While the program runs, another thread computes something else."""
    model, kept = mlp(device), {"calls": 0}

    def beside() -> None:
        generator = torch.Generator(device).manual_seed(1)
        for _ in range(50):
            torch.randn(100, device=device, generator=generator).sum().item()
            time.sleep(0.001)

    def inputs() -> tuple[Tensor]:
        kept["calls"] += 1
        if kept["calls"] == 1:
            threading.Thread(target=beside, daemon=True).start()
        return (normal(device),)

    return Made(frozen(model), inputs)


@program()
def copy_made_in_each_call(device: torch.device) -> Made:
    """A model is copied, its copy changed and asked."""
    model = mlp(device, depth=1)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        other = copy.deepcopy(model)
        for parameter in other.parameters():
            parameter.mul_(0.5)
        return other(x) + model(x)

    return Made(forward, batches(device), (model,))


@program()
def statistics_in_an_array(device: torch.device) -> Made:
    """An array of numpy is filled with numbers that are read from the device."""
    model, table = mlp(device), numpy.zeros(8, numpy.float32)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        y = model(x)
        table[:] = y.mean(1).cpu().numpy()
        return y

    return Made(forward, batches(device), (table,))


@program()
def best_so_far(device: torch.device) -> Made:
    """The best score is kept as a number, and what it belongs to is copied."""
    model, kept = mlp(device), dict[str, Any](score=float("-inf"), best=None)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        score = model(x).mean().item()
        if score > kept["score"]:
            kept["score"], kept["best"] = score, x.clone()
        return kept["best"] * 2

    return Made(forward, batches(device), (kept,))


@program()
def memory_by_key(device: torch.device) -> Made:
    """A dict keeps one tensor for each kind of batch, by a text."""
    model, memory, calls = mlp(device), dict[str, Tensor](), {"number": 0}

    @torch.no_grad()
    def forward(x: Tensor, kind: str) -> Tensor:
        y = model(x)
        memory[kind] = 0.9 * memory[kind] + 0.1 * y if kind in memory else y
        return memory[kind].sum()

    def inputs() -> tuple[Tensor, str]:
        calls["number"] += 1
        return normal(device), ("walk", "run")[calls["number"] % 2]

    return Made(forward, inputs, (memory,))
