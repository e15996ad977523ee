"""Programs of two processes, and what runs them: ``python -m tests.differential.rank_programs RANK FILE``.

Each program makes a callable and the state that it works on; it is made twice, for a plain and a graphed run,
which take turns, so that both ranks meet in the same order. A line of JSON for each says what came out.
"""

from __future__ import annotations

import copy
import datetime
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DataParallel, DistributedDataParallel

import rote

RANKS = 2
STEPS = 9
PROGRAMS: dict[str, Callable[[int, Any], Any]] = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def trained(parts: nn.Module, step: Any) -> Any:
    """The callable, and what it leaves behind."""
    return step, lambda: [t for p in parts.parameters() for t in (p, p.grad) if t is not None]


def nothing() -> list[torch.Tensor]:
    return []


# ---------------------------------------------------------------------- collectives of results


@program
def all_reduce(rank, wrap):
    def call(x):
        y = x * 2 + rank
        dist.all_reduce(y)
        return y + 1

    return wrap(call), nothing


@program
def all_reduce_of_an_argument(rank, wrap):
    def call(x):
        x.mul_(2)
        dist.all_reduce(x)
        return x + 1

    return wrap(call), nothing


@program
def waited_for(rank, wrap):
    def call(x):
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        z = x + 1
        work.wait()
        return y + z

    return wrap(call), nothing


@program
def of_the_group_itself(rank, wrap):
    group = dist.group.WORLD

    def call(x):
        y = x * 2
        group.allreduce([y]).wait()
        return y + 1

    return wrap(call), nothing


@program
def of_the_backend_itself(rank, wrap):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))

    def call(x):
        y = x * 2
        backend.allreduce([y]).wait()
        return y + 1

    return wrap(call), nothing


@program
def of_a_store(rank, wrap):
    store = dist.PrefixStore(f"{wrap.__name__}", dist.distributed_c10d._get_default_store())

    def call(x):
        n = store.add(f"calls{rank}", 1)
        return x * 2 if n >= 0 else x

    return wrap(call), lambda: [torch.tensor(store.add(f"calls{rank}", 0))]


@program
def gathered(rank, wrap):
    def call(x):
        parts = [torch.empty_like(x) for _ in range(RANKS)]
        dist.all_gather(parts, x * 2)
        return torch.stack(parts)

    return wrap(call), nothing


@program
def functional_collective(rank, wrap):
    def call(x):
        return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    return wrap(call), nothing


@program
def sent_and_received(rank, wrap):
    def call(x):
        y, got = x * 2, torch.empty_like(x)
        if rank == 0:
            dist.send(y, 1)
            dist.recv(got, 1)
        else:
            dist.recv(got, 0)
            dist.send(y, 0)
        return y + got

    return wrap(call), nothing


@program
def objects(rank, wrap):
    def call(x):
        found = [None] * RANKS
        dist.all_gather_object(found, {"scale": rank + 1})
        return x * sum(each["scale"] for each in found)

    return wrap(call), nothing


@program
def barrier(rank, wrap):
    def call(x):
        y = x * 2
        dist.barrier()
        return y + 1

    return wrap(call), nothing


@program
def on_one_branch(rank, wrap):
    calls = iter(range(100))

    def call(x, late):
        y = x * 2
        if late.sum() > 0:
            dist.all_reduce(y)
        return y + 1

    g = wrap(call)
    return Late(g, calls), nothing


class Late:
    """Gives the flag that leads to a collective after some calls, when there is a recording."""

    def __init__(self, g, calls):
        self.g, self.calls = g, calls

    def __call__(self, x):
        return self.g(x, torch.tensor([float(next(self.calls) > 4)]))

    def __getattr__(self, name):
        return getattr(self.g, name)


# ---------------------------------------------------------------------- training


@program
def gradients(rank, wrap):
    net = model()

    def step(x):
        net.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            with torch.no_grad():
                p -= 0.01 * p.grad
        return loss.detach()

    return trained(net, wrap(step))


@program
def gradients_in_hooks(rank, wrap):
    net = model()
    for p in net.parameters():
        p.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad))

    def step(x):
        net.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        return loss.detach()

    return trained(net, wrap(step))


@program
def ddp(rank, wrap):
    net = model()
    g = wrap(DistributedDataParallel(net))
    return trained(net, Step(net, g))


@program
def ddp_called(rank, wrap):
    net = model()
    wrapped = DistributedDataParallel(net)

    def forward(x):
        return wrapped(x) * 2

    return trained(net, Step(net, wrap(forward)))


@program
def ddp_whole_step(rank, wrap):
    net = model()
    step = Step(net, DistributedDataParallel(net))
    return trained(net, wrap(step.__call__))


@program
def ddp_around(rank, wrap):
    net = model()
    g = wrap(net)
    step = Step(net, DistributedDataParallel(g))
    step.g = g
    return trained(net, step)


@program
def sharded(rank, wrap):
    net = copy.deepcopy(model())
    mesh = dist.device_mesh.init_device_mesh("cpu", (RANKS,))
    fully_shard(net, mesh=mesh)
    g = wrap(net)
    step = Step(net, g)

    def left():
        return [t.to_local().clone() for p in net.parameters() for t in (p, p.grad) if t is not None]

    return step, left


@program
def parallel_on_one_device(rank, wrap):
    net = model()
    g = wrap(DataParallel(net))
    return trained(net, Step(net, g))


class Step:
    """A training step around a forward."""

    def __init__(self, net, forward):
        self.net, self.forward, self.g = net, forward, forward
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def __call__(self, x):
        self.optimizer.zero_grad()
        loss = self.forward(x).square().sum()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def report(self):
        return self.g.report()


# ---------------------------------------------------------------------- what only reads


@program
def rank_read(rank, wrap):
    def call(x):
        if dist.is_available() and dist.is_initialized():
            return x * (dist.get_rank() + 1) / dist.get_world_size()
        return x

    return wrap(call), nothing


# ---------------------------------------------------------------------- running


def same(one: list[torch.Tensor], two: list[torch.Tensor]) -> bool:
    return len(one) == len(two) and all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def plain(function: Any, /) -> Any:
    return function


def play(name: str, rank: int) -> dict[str, Any]:
    """Run one program in both ways."""
    made = PROGRAMS[name]
    (eager, kept), (graphed, left) = made(rank, plain), made(rank, rote.graph)
    equal: list[bool] = []
    for step in range(STEPS):
        inputs = [torch.full((3, 4), step + 0.5) * (rank + 1) for _ in range(2)]
        one, two = eager(inputs[0]), graphed(inputs[1])
        equal.append(same([one, inputs[0], *kept()], [two, inputs[1], *left()]))
    report = graphed.report()
    codes = sorted({found.code for found in report.reasons})
    return {
        "name": name,
        "equal": equal,
        "replayed": report.replayed,
        "codes": codes,
        "said": graphed_text(report),
    }


def graphed_text(report: Any) -> list[str]:
    return [f"{found.code} {found.message}" for found in report.reasons]


def main(rank: int, file: str) -> None:
    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=60)
    store = dist.FileStore(file, RANKS)
    for number, name in enumerate(PROGRAMS):
        dist.init_process_group(
            "gloo", store=dist.PrefixStore(str(number), store), rank=rank, world_size=RANKS, timeout=timeout
        )
        try:
            found = play(name, rank)
        except Exception:
            found = {"name": name, "error": traceback.format_exc()}
        print(json.dumps(found), flush=True)
        if "error" in found:
            return  # the other rank waits for what this one did not do
        dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
