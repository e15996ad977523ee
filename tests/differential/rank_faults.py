"""Steps of several processes of which one has faults: ``python -m tests.differential.rank_faults RANK FILE``.

A fault is one after which a call is still right, so that no other rank may notice: what is recorded is
refused, has no memory or is thrown away, calls are kept out of graphs, state is replaced, the rank is late,
another thread has a call of its own. Each step is compared with that of a plain twin. Further arguments:
ranks, steps, device.
"""

from __future__ import annotations

import datetime
import gc
import json
import math
import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from tests.faults.injection import Injector
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import rote
from rote.api.parts import part
from rote.base.errors import CaptureError
from rote.runtime.backends.cuda.session import CudaSession
from rote.runtime.backends.host.pool import Chunk
from rote.runtime.backends.host.session import HostSession
from rote.runtime.recording.inputs import StaticInputs

LIMIT = datetime.timedelta(seconds=100)
SEED, OFTEN = 7, 0.4


def refused() -> BaseException:
    return CaptureError("refused, as asked for")


def out_of_memory() -> BaseException:
    return torch.OutOfMemoryError("out of memory, as asked for")


class Net(nn.Module):
    def __init__(self, device: torch.device) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)
        self.to(device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


def decoding(wrap: Any, device: torch.device) -> Any:
    net = Net(device).requires_grad_(False)

    @wrap
    def step(x: torch.Tensor) -> torch.Tensor:
        work = dist.all_reduce(y := net.first(x), async_op=True)
        z = x.sin()
        work.wait()
        y = functional.all_reduce(net.second(y), "sum", dist.group.WORLD)
        return y + z.sum()

    return step, net


def training(wrap: Any, device: torch.device) -> Any:
    net = Net(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)

    @wrap
    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = net(x).square().mean()
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        return loss.detach()

    return step, net


def _stepped(wrap: Any, net: Any, optimizer: torch.optim.Optimizer) -> Any:
    @wrap
    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def data_parallel(wrap: Any, device: torch.device) -> Any:
    net = Net(device)
    parallel = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)

    return _stepped(wrap, parallel, optimizer), net


def tensor_parallel(wrap: Any, device: torch.device) -> Any:
    net = Net(device)
    mesh = dist.device_mesh.init_device_mesh(device.type, (dist.get_world_size(),))
    parallelize_module(net, mesh, {"first": ColwiseParallel(), "second": RowwiseParallel()})
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)

    return _stepped(wrap, net, optimizer), net


def fully_sharded(wrap: Any, device: torch.device) -> Any:
    net: Any = Net(device)
    mesh = dist.device_mesh.init_device_mesh(device.type, (dist.get_world_size(),))
    for each in (net.first, net.second, net):
        fully_shard(each, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)

    return _stepped(wrap, net, optimizer), net


PROGRAMS = {
    "decoding": decoding, "training": training, "data parallel": data_parallel,
    "tensor parallel": tensor_parallel, "fully sharded": fully_sharded,
}  # fmt: skip


def programs_on(kind: str) -> list[str]:
    """Those that have faults on a type of device.

    On a GPU a call starts again where a capture is refused, and finds FSDP in the middle of a step.
    """
    return [name for name in PROGRAMS if kind == "cpu" or name != "fully sharded"]


class Injectors(NamedTuple):
    """What is refused when it is captured, and has no memory for itself."""

    operations: Injector
    allocations: Injector

    @classmethod
    def made(cls, kind: str) -> Injectors:
        """Those of a device."""
        patch, session = pytest.MonkeyPatch(), CudaSession if kind == "cuda" else HostSession
        own: list[tuple[type, str]] = [(StaticInputs, "like")]
        own += [] if kind == "cuda" else [(Chunk, "__init__")]
        return cls(Injector(patch, [(session, "run")]), Injector(patch, own))


class Faults:
    """What happens to one rank.

    Args:
        injectors: Let what the runtime calls fail.
        g: The graphed callable.
        net: What it works on.
    """

    def __init__(self, injectors: Injectors, g: Any, net: nn.Module) -> None:
        self._g, self._net, self._replayed = g, net, 0
        self._random = random.Random(SEED)
        self.kinds: dict[str, Callable[[], Any]] = {
            "refused": lambda: injectors.operations.arm(self._random.randrange(30), refused),
            "out of memory": lambda: injectors.allocations.arm(self._random.randrange(3), out_of_memory),
            "reset": self._reset, "kept out": rote.no_graphs, "late": lambda: time.sleep(0.02),
            "collected": gc.collect, "replaced": self._replace, "another thread": self._call_elsewhere,
        }  # fmt: skip

    def next(self, *, last: bool) -> tuple[str, Any]:
        """A fault for the step, or none, and what the step is to run in.

        The last step is kept out, so that the report of all ranks has a line of this one: after a reset it
        knows of the calls since.
        """
        kind = self._random.choice(list(self.kinds)) if self._random.random() < OFTEN else ""
        kind = "kept out" if last else kind
        found = self.kinds[kind]() if kind else None
        return kind, found if kind == "kept out" else nullcontext()

    def replayed(self) -> int:
        """Calls that were replayed so far, of the callable or of a part."""
        report = self._g.report()
        return self._replayed + report.replayed + sum([each.replayed for each in report.parts])

    def _reset(self) -> None:
        self._replayed = self.replayed()
        self._g.reset()

    def _replace(self) -> None:
        if isinstance(self._net, FSDPModule):  # which keeps parts of its own
            self._net.load_state_dict({name: each.clone() for name, each in self._net.state_dict().items()})
            return
        for p in self._net.parameters():
            p.data = p.data.clone()

    def _call_elsewhere(self) -> None:
        """A call of another callable is traced meanwhile, so that ours may find the device taken."""
        other = rote.graph(lambda x: x.sin() + 1)
        x = torch.ones(3, device=next(self._net.parameters()).device)
        threading.Thread(target=lambda: [other(x) for _ in range(4)]).start()


def kept(function: Callable[..., Any], *, captured: bool) -> Any:
    """A graphed callable whose recordings stay, however long a replay takes."""
    return rote.graph(function, keep=True, capture_collectives=captured)


def parts(net: nn.Module) -> list[torch.Tensor]:
    """Of each parameter what this rank has of it."""
    return [p.to_local() if isinstance(p, DTensor) else p for p in net.parameters()]


def play(
    name: str, rank: int, steps: int, device: torch.device, injectors: Injectors, *, captured: bool
) -> dict[str, Any]:
    ways = (lambda f: f, partial(kept, captured=captured))
    (plain, theirs), (g, mine) = (PROGRAMS[name](wrap, device) for wrap in ways)
    faults, met, wrong = Faults(injectors, g, mine), set[str](), list[int]()
    for number in range(steps):
        faulty, last = rank == dist.get_world_size() - 1, number == steps - 1
        kind, around = faults.next(last=last) if faulty else ("", nullcontext())
        met.add(kind)
        x = torch.full((3, 4), (number % 7 + 0.5) * (rank + 1), device=device)
        with around:
            found = g(x)
        with injectors.operations.paused():
            expected = plain(x)
        pairs = [(found, expected), *zip(parts(mine), parts(theirs), strict=True)]
        if not all([torch.equal(one, two) for one, two in pairs]):
            wrong.append(number)
    told = {"name": name, "wrong": wrong, "replayed": faults.replayed(), "met": sorted(met - {""})}
    return {**told, "ranks": g.explain_ranks(), "explained": str(g.explain())}


def main(rank: int, file: str, ranks: int, steps: int, kind: str, captured: str = "") -> None:
    torch.set_num_threads(1)
    part.LEAST_S, part.MARGIN = 0.0, math.inf
    device = torch.device(kind, rank) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if kind == "cuda" else "gloo", store=dist.FileStore(file, ranks), rank=rank, world_size=ranks,
        timeout=LIMIT,
    )  # fmt: skip
    injectors = Injectors.made(kind)
    for name in programs_on(kind):
        told = play(name, rank, steps, device, injectors, captured=bool(captured))
        print(json.dumps(told), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
