"""Programs of two processes, and what runs them: ``python -m tests.differential.rank_programs RANK FILE``.

Each program makes a callable and the state that it works on; it is made twice, for a plain and a graphed run,
which take turns, so that both ranks meet in the same order. A line of JSON for each says what came out. With
``cuda`` as a third argument the same programs run over NCCL, a GPU for each rank.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import json
import math
import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import rote
from rote.api.parts import part

STEPS = 9


class Program(NamedTuple):
    """A program.

    Attributes:
        make: Makes it, for a rank, a way to wrap callables and a device.
        code: Why it is not replayed; empty if it is.
        host: It works on the host only.
        nccl: Why it is not replayed over NCCL, where that differs.
        least: Calls that are replayed.
        optimised: The exact tier is made, after many more calls.
        part: Calls are replayed of a module that it calls, after more calls.
        walks: Backward passes are replayed as well.
        steps: Calls of the callable, if it says so.
    """

    make: Callable[[int, Any, torch.device], Any]
    code: str = ""
    host: bool = False
    nccl: str | None = None
    least: int = STEPS - 4
    optimised: bool = False
    part: bool = False
    walks: bool = False
    steps: int = 0

    @property
    def calls(self) -> int:
        """Calls of the callable."""
        return self.steps or (150 if self.optimised else 2 * STEPS if self.part else STEPS)


PROGRAMS: dict[str, Program] = {}


def program(code: str = "", **rest: Any):
    def note(function):
        PROGRAMS[function.__name__] = Program(function, code, **rest)
        return function

    return note


def model(device: torch.device) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).to(device)


def trained(parts: nn.Module, step: Any) -> Any:
    """The callable, and what it leaves behind."""
    return step, lambda: [t for p in parts.parameters() for t in (p, p.grad) if t is not None]


def nothing() -> list[torch.Tensor]:
    return []


# ---------------------------------------------------------------------- collectives of results


@program()
def all_reduce(rank, wrap, device):
    def call(x):
        y = x * 2 + rank
        dist.all_reduce(y)
        return y + 1

    return wrap(call), nothing


@program()
def all_reduce_of_an_argument(rank, wrap, device):
    def call(x):
        x.mul_(2)
        dist.all_reduce(x)
        return x + 1

    return wrap(call), nothing


@program()
def waited_for(rank, wrap, device):
    def call(x):
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        z = x + 1
        work.wait()
        return y + z

    return wrap(call), nothing


@program()
def of_the_group_itself(rank, wrap, device):
    group = dist.group.WORLD

    def call(x):
        y = x * 2
        group.allreduce([y]).wait()
        return y + 1

    return wrap(call), nothing


@program("RT801", host=True)
def of_the_backend_itself(rank, wrap, device):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))

    def call(x):
        y = x * 2
        backend.allreduce([y]).wait()
        return y + 1

    return wrap(call), nothing


@program("RT801")
def of_a_store(rank, wrap, device):
    store = dist.PrefixStore(f"{wrap.__name__}", dist.distributed_c10d._get_default_store())

    def call(x):
        n = store.add(f"calls{rank}", 1)
        return x * 2 if n >= 0 else x

    return wrap(call), lambda: [torch.tensor(store.add(f"calls{rank}", 0))]


@program()
def gathered(rank, wrap, device):
    def call(x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x * 2)
        return torch.stack(parts)

    return wrap(call), nothing


@program()
def functional_collective(rank, wrap, device):
    def call(x):
        return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    return wrap(call), nothing


@program()
def sent_and_received(rank, wrap, device):
    def call(x):
        y, got = x * 2, torch.empty_like(x)
        if rank % 2 == 0:
            dist.send(y, rank ^ 1)
            dist.recv(got, rank ^ 1)
        else:
            dist.recv(got, rank ^ 1)
            dist.send(y, rank ^ 1)
        return y + got

    return wrap(call), nothing


@program("RT801")
def objects(rank, wrap, device):
    def call(x):
        found = [None] * dist.get_world_size()
        dist.all_gather_object(found, {"scale": rank + 1})
        return x * sum(each["scale"] for each in found)

    return wrap(call), nothing


BARRIER_LEAVES = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 12)
"""The C++ of a process group keeps the tensor of its last barrier."""


@program(code="RT205" if BARRIER_LEAVES else "")
def barrier(rank, wrap, device):
    def call(x):
        y = x * 2
        dist.barrier()
        return y + 1

    return wrap(call), nothing


@program(least=1)
def on_one_branch(rank, wrap, device):
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
        return self.g(x, torch.tensor([float(next(self.calls) > 4)], device=x.device))

    def __getattr__(self, name):
        return getattr(self.g, name)


# ---------------------------------------------------------------------- other collectives


@program()
def of_the_largest(rank, wrap, device):
    def call(x):
        y = x * (rank - 0.5)
        dist.all_reduce(y, op=dist.ReduceOp.MAX)
        return y

    return wrap(call), nothing


@program()
def gathered_into_one(rank, wrap, device):
    def call(x):
        whole = torch.empty(dist.get_world_size() * 3, 4, device=x.device)
        dist.all_gather_into_tensor(whole, x * 2)
        return whole.sum(0)

    return wrap(call), nothing


@program()
def scattered_sums(rank, wrap, device):
    def call(x):
        part = torch.empty(4 // dist.get_world_size(), 3, device=x.device)
        dist.reduce_scatter_tensor(part, (x * 2).t().contiguous())
        return part + 1

    return wrap(call), nothing


@program()
def exchanged(rank, wrap, device):
    def call(x):
        got = torch.empty(4, 3, device=x.device)
        dist.all_to_all_single(got, (x * 2).t().contiguous())
        return got + 1

    return wrap(call), nothing


@program()
def exchanged_in_parts(rank, wrap, device):
    ranks = range(dist.get_world_size())
    given, taken = [1 + (rank + 2 * n) % 3 for n in ranks], [1 + (n + 2 * rank) % 3 for n in ranks]

    def call(x):
        got = torch.empty(sum(taken), 3, device=x.device)
        dist.all_to_all_single(got, (x * 2).t().repeat(len(ranks), 1)[: sum(given)], taken, given)
        return got + 1

    return wrap(call), nothing


@program()
def broadcast(rank, wrap, device):
    def call(x):
        y = x * 2 if rank == 0 else torch.empty_like(x)
        dist.broadcast(y, 0)
        return y + 1

    return wrap(call), nothing


@program()
def reduced(rank, wrap, device):
    def call(x):
        y = x * 2
        dist.reduce(y, 1)
        return y + 1 if rank == 1 else x + 1

    return wrap(call), nothing


@program()
def gathered_at_one(rank, wrap, device):
    def call(x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())] if rank == 0 else None
        dist.gather(x * 2, parts, dst=0)
        return torch.cat(parts) if rank == 0 else x

    return wrap(call), nothing


@program()
def scattered(rank, wrap, device):
    def call(x):
        got = torch.empty_like(x)
        dist.scatter(got, [x * (n + 2) for n in range(dist.get_world_size())] if rank == 0 else None, src=0)
        return got + 1

    return wrap(call), nothing


@program(nccl="RT801")
def sent_without_waiting(rank, wrap, device):
    """Both send first: whoever waits for one before the other begins to receive would wait for ever."""

    def call(x):
        y, got = x * 2, torch.empty_like(x)
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.isend, y, rank ^ 1), dist.P2POp(dist.irecv, got, rank ^ 1)
        ])  # fmt: skip
        for work in works:
            work.wait()
        return y + got

    return wrap(call), nothing


@program(host=True)
def sent_large_before_receiving(rank, wrap, device):
    """More than sockets take before somebody receives."""

    def call(x):
        y = (x[0] * 2).repeat(1 << 19)
        got = torch.empty_like(y)
        sending = dist.isend(y, rank ^ 1)
        dist.recv(got, rank ^ 1)
        sending.wait()
        return y[:4] + got[:4]

    return wrap(call), nothing


@program()
def several_in_flight(rank, wrap, device):
    def call(x):
        y, z = x * 2, x * 3
        one = dist.all_reduce(y, async_op=True)
        two = dist.all_reduce(z, async_op=True)
        w = x.sin()
        two.wait()
        one.wait()
        return y + z + w

    return wrap(call), nothing


@program(least=4)
def in_flight_where_the_host_reads(rank, wrap, device):
    calls = iter(range(100))

    def call(x, late):
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        factor = 3 if late.sum() > 0 else 5
        work.wait()
        return y * factor

    g = wrap(call)
    return Late(g, calls), nothing


@program()
def several_groups(rank, wrap, device):
    alone = [dist.new_group([each]) for each in range(dist.get_world_size())]
    both = [dist.new_group([each, each + 1]) for each in range(0, dist.get_world_size(), 2)][rank // 2]

    def call(x):
        y = x * 2
        dist.all_reduce(y, group=alone[rank])
        dist.all_reduce(y, group=alone[rank ^ 1])  # of which it is no member
        dist.all_reduce(y, group=both)
        dist.all_reduce(y)
        return y

    return wrap(call), nothing


@program()
def group_of_a_mesh(rank, wrap, device):
    mesh = dist.device_mesh.init_device_mesh(device.type, (dist.get_world_size(),), mesh_dim_names=("parts",))

    def call(x):
        y = x * (mesh.get_local_rank() + 2)
        dist.all_reduce(y, group=mesh.get_group("parts"))
        return functional.all_reduce(y, "sum", mesh) / mesh.size()

    return wrap(call), nothing


@program(least=0)
def from_another_rank_each_time(rank, wrap, device):
    calls = iter(range(100))

    def call(x, turn):
        y = x * (rank + 1)
        dist.broadcast(y, turn % dist.get_world_size())
        return y + turn

    g = wrap(call)
    return Outside(lambda x: g(x, next(calls)), g), nothing


@program(least=0)
def from_a_rank_that_state_says(rank, wrap, device):
    class Turns:
        count = 0

    def call(x):
        Turns.count += 1
        y = x * (rank + 1)
        dist.broadcast(y, Turns.count % dist.get_world_size())
        return (
            functional.broadcast(y * (rank + 1), (Turns.count // 2) % dist.get_world_size(), dist.group.WORLD)
            + 1
        )

    return wrap(call), nothing


@program(least=0)
def sent_with_another_tag_each_time(rank, wrap, device):
    calls = iter(range(100))

    def call(x, turn):
        y, got = x * 2, torch.empty_like(x)
        if rank % 2 == 0:
            dist.send(y, rank ^ 1, tag=turn)
            return y
        dist.recv(got, rank ^ 1, tag=turn)
        return got

    g = wrap(call)
    return Outside(lambda x: g(x, next(calls)), g), nothing


@program()
def by_one_of_two_operators(rank, wrap, device):
    """Which one is a member of an object, and changes."""

    class Mode:
        op = dist.ReduceOp.SUM

    calls = iter(range(100))

    def call(x):
        y = x * (rank + 1)
        dist.all_reduce(y, op=Mode.op)
        return y

    g = wrap(call)

    def outside(x):
        Mode.op = dist.ReduceOp.MAX if next(calls) // 2 % 2 else dist.ReduceOp.SUM
        return g(x)

    return Outside(outside, g), nothing


# ---------------------------------------------------------------------- functional collectives


@program()
def functional_gather(rank, wrap, device):
    def call(x):
        return functional.all_gather_tensor(x * 2, 0, dist.group.WORLD).sum(0)

    return wrap(call), nothing


@program()
def functional_scattered_sums(rank, wrap, device):
    def call(x):
        y = (x * 2).t().contiguous()
        return functional.reduce_scatter_tensor(y, "sum", 0, dist.group.WORLD) + 1

    return wrap(call), nothing


@program()
def functional_exchange(rank, wrap, device):
    def call(x):
        return functional.all_to_all_single((x * 2).t().contiguous(), None, None, dist.group.WORLD) + 1

    return wrap(call), nothing


@program()
def functional_in_flight(rank, wrap, device):
    def call(x):
        y = functional.all_reduce(x * 2, "sum", dist.group.WORLD)
        z = functional.broadcast(x * 3, 1, dist.group.WORLD)
        w = x.sin()
        return z * w + y

    return wrap(call), nothing


@program()
def functional_several(rank, wrap, device):
    def call(x):
        y, z = functional.all_reduce_coalesced([x * 2, x * 3], "sum", dist.group.WORLD)
        return y * 5 + z

    return wrap(call), nothing


# ---------------------------------------------------------------------- the exact tier


def table(x: torch.Tensor, turn: int) -> torch.Tensor:
    """What each turn of a loop makes anew."""
    times = torch.arange(4, device=x.device).float() * 0.5
    return (times.cos() * 2).exp() + (x.sin().cos() * 2 + 1).exp() + turn


@program(optimised=True)
def optimised(rank, wrap, device):
    def call(x):
        y = x * 2
        for turn in range(4):
            y = y * 0.1 + table(x, turn)
            dist.all_reduce(y)
            x.exp()
        return y

    return wrap(call, keep=True), nothing


@program(optimised=True)
def optimised_around_what_changes(rank, wrap, device):
    """What was calculated before a sum is not what it is behind it."""
    state = torch.zeros(4, device=device)

    def call(x):
        y, found = x * 0.2, 0
        for turn in range(4):
            found = found + y.sin() + table(x, turn)
            dist.all_reduce(y)
            found = found * 0.1 + y.sin() + state.sin()
            work = dist.all_reduce(y, async_op=True)
            found = found + table(x, turn).cos()
            work.wait()
            y.mul_(0.5)
            state.add_(y.sin().sum(0))
            dist.all_reduce(state)
            state.mul_(0.1)
        return found + state.sin() + y

    return wrap(call, keep=True), lambda: [state]


@program(optimised=True)
def optimised_with_functional_ones(rank, wrap, device):
    def call(x):
        y = x
        for turn in range(4):
            z = functional.all_reduce(table(x, turn) + y * 0.1, "sum", dist.group.WORLD)
            whole = torch.empty(dist.get_world_size() * 3, 4, device=x.device)
            dist.all_gather_into_tensor(whole, z.sin() + 0)
            y = z.sin() + table(x, turn) * whole.sum(0)
        return y

    return wrap(call, keep=True), nothing


# ---------------------------------------------------------------------- handles of work


@program("RT801")
def not_waited_for(rank, wrap, device):
    kept = []

    def call(x):
        y = x * 2
        kept[:] = [dist.all_reduce(y, async_op=True)]
        return x + 1

    g = wrap(call)

    def outside(x):
        z = g(x)
        kept[0].wait()
        return z

    return Outside(outside, g), nothing


@program("RT801")
def waited_for_in_the_next_call(rank, wrap, device):
    kept = []

    def call(x):
        if kept:
            kept.pop().wait()
        y = x * 2
        kept.append(dist.all_reduce(y, async_op=True))
        return x + 1

    return wrap(call), nothing


@program("RT801")
def asked_whether_it_has_completed(rank, wrap, device):
    def call(x):
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        while not work.is_completed():
            pass
        return y

    return wrap(call), nothing


class Outside:
    """A callable around a graphed one."""

    def __init__(self, call, g):
        self.call, self.g = call, g

    def __call__(self, x):
        return self.call(x)

    def report(self):
        return self.g.report()


# ---------------------------------------------------------------------- collectives of gradients


class Copied(torch.autograd.Function):
    """The same on all ranks; gradients of all ranks are added."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad


class Summed(torch.autograd.Function):
    """Added over all ranks; the gradient is the same on all."""

    @staticmethod
    def forward(ctx, x):
        y = x.clone()
        dist.all_reduce(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad


class Halves(nn.Module):
    """Two layers of which each rank has a half, as in tensor parallelism."""

    def __init__(self, rank):
        super().__init__()
        torch.manual_seed(rank)
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4, bias=False)

    def forward(self, x):
        return x + Summed.apply(self.down(torch.relu(self.up(Copied.apply(x)))))


@program()
def halves(rank, wrap, device):
    net = nn.Sequential(Halves(rank), Halves(rank + 10)).to(device)
    return wrap(net.requires_grad_(False)), nothing


@program()
def halves_trained(rank, wrap, device):
    net = nn.Sequential(Halves(rank), Halves(rank + 10)).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.0001, capturable=False, fused=False, foreach=False)

    def step(x):
        optimizer.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        return loss.detach()

    return trained(net, wrap(step))


@program()
def halves_trained_outside(rank, wrap, device):
    net = nn.Sequential(Halves(rank), Halves(rank + 10)).to(device)
    g = wrap(net)
    return trained(net, Step(net, g))


@program()
def differentiable_sum(rank, wrap, device):
    net = model(device)

    def step(x):
        net.zero_grad()
        loss = differentiable.all_reduce(net(x)).square().sum()
        loss.backward()
        return loss.detach()

    return trained(net, wrap(step))


@program()
def differentiable_gather(rank, wrap, device):
    net = model(device)

    def step(x):
        net.zero_grad()
        loss = torch.cat(differentiable.all_gather(net(x))).square().sum()
        loss.backward()
        return loss.detach()

    return trained(net, wrap(step))


# ---------------------------------------------------------------------- tensors spread over processes


def mesh_of(device):
    return dist.device_mesh.init_device_mesh(device.type, (dist.get_world_size(),))


def parallelized_layers(device):
    """Parameters and values of a class of tensors that knows how they are spread."""
    net = model(device)
    parallelize_module(net, mesh_of(device), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return net


def parallelized_program(wrap, net, change=lambda net, turn: None, mode=torch.no_grad):
    """The caller changes something before each call."""

    @mode()
    def call(x):
        return net(x) * 2  # which waits

    g, turns = wrap(call), iter(range(200))

    def outside(x):
        change(net, next(turns))
        return g(x)

    return Outside(outside, g), lambda: [p.to_local() for p in net.parameters()]


@program()
def parallelized(rank, wrap, device):
    return parallelized_program(wrap, parallelized_layers(device))


@program()
def parallelized_in_inference_mode(rank, wrap, device):
    return parallelized_program(wrap, parallelized_layers(device), mode=torch.inference_mode)


@program(optimised=True)
def parallelized_and_optimised(rank, wrap, device):
    net = parallelized_layers(device)

    @torch.no_grad()
    def call(x):
        for turn in range(3):
            x = net(x)[:, :1].sin() * 0.1 + table(x, turn) * 0.1
            x.exp()
        return x

    return wrap(call, keep=True), nothing


@program("RT501")
def parallelized_and_not_waited_for(rank, wrap, device):
    net = parallelized_layers(device)
    return wrap(torch.no_grad()(lambda x: net(x))), nothing


@program()
def parallelized_and_stepped(rank, wrap, device):
    """The values of parameters change in place."""

    @torch.no_grad()
    def change(net, turn):
        net[0].weight.to_local().mul_(1.1)

    return parallelized_program(wrap, parallelized_layers(device), change)


@program(least=2)
def parallelized_with_another_parameter(rank, wrap, device):
    def change(net, turn):
        if turn == 5:
            whole = torch.full((4, 4), 0.5, device=device)
            net[0].weight = nn.Parameter(distribute_tensor(whole, mesh_of(device), [Shard(0)]))

    return parallelized_program(wrap, parallelized_layers(device), change)


@program(least=2)
def parallelized_with_another_part(rank, wrap, device):
    def change(net, turn):
        if turn == 5:
            net[0].weight._local_tensor = torch.full_like(net[0].weight._local_tensor, 0.5)

    return parallelized_program(wrap, parallelized_layers(device), change)


@program(least=2)
def parallelized_and_spread_otherwise(rank, wrap, device):
    @torch.no_grad()
    def change(net, turn):
        if turn == 5:
            weight = net[0].weight
            other = weight.redistribute(weight.device_mesh, [Replicate()])
            weight._local_tensor, weight._spec = other._local_tensor, other._spec

    return parallelized_program(wrap, parallelized_layers(device), change)


@program()
def parallelized_along_the_sequence(rank, wrap, device):
    torch.manual_seed(0)
    norm, up, down = nn.LayerNorm(4), nn.Linear(4, 8), nn.Linear(8, 4)
    net = nn.Sequential(norm, up, nn.ReLU(), down).to(device)
    rows = Shard(0)
    parallelize_module(net, mesh_of(device), {
        "0": SequenceParallel(sequence_dim=0), "1": ColwiseParallel(input_layouts=rows),
        "3": RowwiseParallel(output_layouts=rows),
    })  # fmt: skip
    return parallelized_program(wrap, net)


@program()
def spread_inside(rank, wrap, device):
    mesh = mesh_of(device)

    def call(x):
        y = DTensor.from_local(x, mesh, [Replicate()], run_check=False) * 2
        z = y.redistribute(mesh, [Shard(1)])
        return z.to_local() + 1, z.full_tensor() * 2

    g = wrap(call)
    return Outside(lambda x: torch.cat(g(x), 1), g), nothing


@program(least=2)
def spread_and_others_beside(rank, wrap, device):
    """A setting of PyTorch's allows it, until it does not."""
    mesh, turns = mesh_of(device), iter(range(100))

    def call(x):
        y = DTensor.from_local(x, mesh, [Replicate()], run_check=False)
        return (y * torch.ones(3, 4, device=device)).to_local() + 1

    g = wrap(call)

    def outside(x):
        if next(turns) < 5:
            with implicit_replication():
                return g(x)
        try:
            return g(x)
        except RuntimeError:
            return torch.zeros(1)

    return Outside(outside, g), nothing


@program()
def spread_and_written(rank, wrap, device):
    state = distribute_tensor(torch.zeros(3, 4, device=device), mesh_of(device), [Replicate()])

    def call(x):
        state.add_(1)
        return x + state.to_local()

    return wrap(call), lambda: [state.to_local()]


@program("RT601")
def spread_arguments(rank, wrap, device):
    mesh = mesh_of(device)
    g = wrap(lambda y: y.to_local() * 2)
    return Outside(lambda x: g(DTensor.from_local(x, mesh, [Replicate()], run_check=False)), g), nothing


def parts_of(net):
    """This process's parts of parameters and gradients."""

    def left():
        tensors = [t for p in net.parameters() for t in (p, p.grad) if t is not None]
        return [(t.to_local() if isinstance(t, DTensor) else t).clone() for t in tensors]

    return left


@program()
def parallelized_and_trained(rank, wrap, device):
    """Gradients stay in their slots until the next call."""
    net = parallelized_layers(device)
    return wrap(Step(net, net).__call__), parts_of(net)


class Attention(nn.Module):
    """A block whose heads lie on several processes."""

    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(4), nn.Linear(4, 4)
        self.q, self.k, self.v = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        y = self.norm(x)
        q, k, v = [f(y).unflatten(-1, (-1, 1)).transpose(-2, -3) for f in (self.q, self.k, self.v)]
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(-2, -3).flatten(-2))


@program(least=30, steps=40)
def parallelized_transformer_trained(rank, wrap, device):
    """PyTorch takes parameters that are spread and others in an optimizer each."""
    torch.manual_seed(0)
    net = nn.Sequential(Attention(), nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)).to(device)
    columns = dict.fromkeys(("0.q", "0.k", "0.v", "1"), ColwiseParallel())
    rows = dict.fromkeys(("0.out", "3"), RowwiseParallel())
    parallelize_module(net, mesh_of(device), {**columns, **rows})
    spread = [p for p in net.parameters() if isinstance(p, DTensor)]
    others = [p for p in net.parameters() if not isinstance(p, DTensor)]
    optimizers = [torch.optim.AdamW(each, lr=0.001, fused=True) for each in (spread, others)]

    def step(x):
        loss = net(x[None]).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(spread, 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return wrap(step, keep=True), parts_of(net)


def cleared_behind(net):
    """A training step that leaves no gradients, and its optimizer."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step(x):
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, optimizer


@program(least=2)
def parallelized_and_frozen(rank, wrap, device):
    """A parameter requires no grad in some of the calls."""
    net, turns = parallelized_layers(device), iter(range(100))
    g = wrap(cleared_behind(net)[0])

    def outside(x):
        net[0].weight.requires_grad_(next(turns) < 6)
        return g(x)

    return Outside(outside, g), parts_of(net)


@program(least=2)
def parallelized_with_gradients_from_outside(rank, wrap, device):
    """A gradient from before the call is added to: such calls are not recorded."""
    net, turns = parallelized_layers(device), iter(range(100))
    g = wrap(cleared_behind(net)[0])

    def outside(x):
        if next(turns) == 5:
            net(x + 1).sum().backward()
        return g(x)

    return Outside(outside, g), parts_of(net)


@program("RT601")
def parallelized_and_stepped_inside(rank, wrap, device):
    """The optimizer alone: gradients are found in their slots."""
    net = parallelized_layers(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    g = wrap(lambda: optimizer.step())

    def outside(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        g()
        return loss.detach()

    return Outside(outside, g), parts_of(net)


@program("RT601")
def parallelized_and_trained_outside(rank, wrap, device):
    net = parallelized_layers(device)
    return Step(net, wrap(lambda x: net(x) * 2)), parts_of(net)


# ---------------------------------------------------------------------- training


@program()
def gradients(rank, wrap, device):
    net = model(device)

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


@program()
def gradients_in_hooks(rank, wrap, device):
    net = model(device)
    for p in net.parameters():
        p.register_post_accumulate_grad_hook(lambda p: dist.all_reduce(p.grad))

    def step(x):
        net.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        return loss.detach()

    return trained(net, wrap(step))


@program(walks=True)
def ddp_around(rank, wrap, device):
    net = model(device)
    g = wrap(net)
    step = Step(net, DistributedDataParallel(g))
    step.g = g
    return trained(net, step)


def data_parallel(wrap, net, way="step", **options):
    """A module in DDP, where the module, a function that calls it or the whole step is graphed."""
    parallel = DistributedDataParallel(net, **options)
    if way == "step":
        return trained(net, wrap(Step(net, parallel).__call__))
    return trained(net, Step(net, wrap(parallel if way == "module" else lambda x: parallel(x) * 2)))


@program("RT803", part=True, walks=True)
def ddp(rank, wrap, device):
    return data_parallel(wrap, model(device), "module")


@program("RT803", part=True, walks=True)
def ddp_called(rank, wrap, device):
    return data_parallel(wrap, model(device), "function")


@program(least=2)
def ddp_whole_step(rank, wrap, device):
    return data_parallel(wrap, model(device))


@program(least=2)
def ddp_in_several_buckets(rank, wrap, device):
    net = model(device)
    parallel = DistributedDataParallel(net, bucket_cap_mb=0.00001)
    return trained(net, wrap(Step(net, parallel).__call__))


def normalized(device, **options):
    net = nn.Sequential(model(device), nn.BatchNorm1d(2, device=device))
    parallel = DistributedDataParallel(net, **options)
    return net, Step(net, parallel).__call__


@program(least=2)
def ddp_with_buffers_of_rank_0(rank, wrap, device):
    net, step = normalized(device)
    step, left = trained(net, wrap(step))
    return step, lambda: [*left(), *net.buffers()]


@program(least=2, steps=16)
def ddp_with_buffers_that_are_replaced(rank, wrap, device):
    """One is another tensor from a call on, with its rank as numbers; in between it is evaluated."""
    net, step = normalized(device)
    turns, g = iter(range(100)), wrap(step)

    def outside(x):
        turn = next(turns)
        if turn == 7:
            net[1].running_mean = torch.full_like(net[1].running_mean, rank + 0.5)
        if turn % 3 == 2:
            net.eval()
            with torch.no_grad():
                net(x)
            net.train()
        return g(x)

    step, left = trained(net, Outside(outside, g))
    return step, lambda: [*left(), *net.buffers()]


@program(least=2)
def ddp_with_buffers_of_each_rank(rank, wrap, device):
    net, step = normalized(device, broadcast_buffers=False)
    step, left = trained(net, wrap(step))
    return step, lambda: [*left(), *net.buffers()]


@program(least=2)
def ddp_of_two_models(rank, wrap, device):
    """One round is over before the other one begins."""
    nets = nn.ModuleList([model(device), model(device)])
    steps = [Step(net, DistributedDataParallel(net)) for net in nets]
    return trained(nets, wrap(lambda x: steps[0](x) + steps[1](x + 1)))


@program(least=1)
def ddp_of_halves_of_a_step(rank, wrap, device):
    """Every other call is made within no_sync(), which its caller begins and ends."""
    net, turns = model(device), iter(range(100))
    parallel = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0001)

    def half(x):
        loss = parallel(x).square().mean()
        loss.backward()
        return loss.detach()

    g = wrap(half)

    def outside(x):
        if next(turns) % 2:
            loss = g(x)
            optimizer.step()
            optimizer.zero_grad()
            return loss
        with parallel.no_sync():
            return g(x)

    return trained(net, Outside(outside, g))


@program("RT803")
def ddp_of_two_models_at_once(rank, wrap, device):
    nets = nn.ModuleList([model(device), model(device)])
    one, two = map(DistributedDataParallel, nets)
    return trained(nets, wrap(Step(nets, lambda x: one(x) + two(x + 1)).__call__))


@program("RT803", part=True, walks=True)
def ddp_with_a_builtin_hook(rank, wrap, device):
    net = model(device)
    parallel = DistributedDataParallel(net)
    parallel._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    return trained(net, wrap(Step(net, parallel).__call__))


@program(least=2)
def ddp_with_a_hook_that_comes_late(rank, wrap, device):
    net, turns = model(device), iter(range(100))
    parallel = DistributedDataParallel(net)
    g = wrap(Step(net, parallel).__call__)

    def outside(x):
        if next(turns) == STEPS - 1:
            parallel._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
        return g(x)

    return trained(net, Outside(outside, g))


@program(least=2)
def ddp_with_rounds_outside(rank, wrap, device):
    """Between replays, plain rounds of the same wrapper, and a forward that is never walked back."""
    net, turns = model(device), iter(range(100))
    parallel = DistributedDataParallel(net)
    step = Step(net, parallel)
    g = wrap(step.__call__)

    def outside(x):
        if next(turns) % 3 == 2:
            step(x + 1)
            parallel(x)
        return g(x)

    return trained(net, Outside(outside, g))


@program(least=2)
def ddp_with_scaled_gradients(rank, wrap, device):
    """Autocast, a gradient scaler, clipping; a step that one rank overflows in is left out on both."""
    net, turns = model(device), iter(range(100))
    parallel = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.001, fused=True)
    scaler = torch.amp.GradScaler(device.type, init_scale=8.0)

    def step(x):
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            loss = parallel(x).float().square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach().nan_to_num()

    g = wrap(step)

    def outside(x):
        turn = next(turns)
        return g(x * math.inf if turn % 5 == 4 and rank == 1 else x)

    step, left = trained(net, Outside(outside, g))
    return step, lambda: [each.nan_to_num() for each in left()]


class Odd(nn.Module):
    """Buffers that each rank changes, and a layer that every other call leaves out."""

    def __init__(self, device):
        super().__init__()
        self.net, self.norm = model(device), nn.BatchNorm1d(2, device=device)
        self.more = nn.Linear(2, 2, device=device)

    def forward(self, x, more):
        y = self.norm(self.net(x))
        return self.more(y) if more else y


@program("RT803", part=True, walks=True)
def ddp_of_unused_parameters(rank, wrap, device):
    net = Odd(device)
    parallel, turns = DistributedDataParallel(net, find_unused_parameters=True), iter(range(100))
    step = Step(net, lambda x: parallel(x, next(turns) // 2 % 2 == 0))
    step, left = trained(net, wrap(step.__call__))
    return step, lambda: [*left(), *net.buffers()]


@program("RT803", part=True, walks=True)
def ddp_of_a_static_graph(rank, wrap, device):
    return data_parallel(wrap, model(device), static_graph=True)


@program("RT803", part=True, walks=True)
def ddp_with_gradients_in_buckets(rank, wrap, device):
    return data_parallel(wrap, model(device), "module", gradient_as_bucket_view=True)


@program("RT803", part=True, walks=True)
def ddp_with_a_hook_of_its_own(rank, wrap, device):
    net = model(device)
    parallel = DistributedDataParallel(net)
    parallel.register_comm_hook(None, halved)
    return trained(net, wrap(Step(net, parallel).__call__))


def halved(state, bucket):
    """A hook for the communication of DDP, which compresses what is sent."""
    sent = bucket.buffer().to(torch.bfloat16)
    work = dist.all_reduce(sent, async_op=True).get_future()
    return work.then(lambda done: bucket.buffer().copy_(done.value()[0]).div_(dist.get_world_size()))


class Tied(nn.Module):
    """A layer that is used twice."""

    def __init__(self, device):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4, device=device)

    def forward(self, x):
        return self.layer(torch.relu(self.layer(x)))


@program("RT803", part=True, walks=True)
def ddp_of_a_layer_used_twice(rank, wrap, device):
    return data_parallel(wrap, Tied(device), "module")


@program(least=2)
def ddp_whole_step_of_a_layer_used_twice(rank, wrap, device):
    """Its gradient is used outside as well, behind the module: eager adds that first."""
    net = Tied(device)
    parallel = DistributedDataParallel(net)
    return trained(net, wrap(Step(net, lambda x: parallel(x) * (net.layer.weight.sin() * 3).sum()).__call__))


class Several(nn.Module):
    """Random numbers, and results of which one is walked back, or both are."""

    def __init__(self, device):
        super().__init__()
        self.net, self.head = model(device), nn.Linear(2, 3, device=device)

    def forward(self, x):
        y = nn.functional.dropout(self.net(x), 0.5)
        return {"loss": y.square().mean(), "head": self.head(y)}


@program("RT803", part=True, walks=True)
def ddp_under_autocast(rank, wrap, device):
    """With a gradient scaler, and gradients of one result or of both."""
    net = Several(device)
    parallel, turns = DistributedDataParallel(net, find_unused_parameters=True), iter(range(100))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    scaler = torch.amp.GradScaler(device.type, init_scale=8.0)

    def step(x):
        turn = next(turns)
        torch.manual_seed(turn)
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            found = parallel(x)
            loss = found["loss"] + (found["head"].float().sum() * 0.01 if turn // 4 % 2 else 0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return trained(net, wrap(step))


def accumulating(device):
    """A transformer in DDP: gradients of two halves of a batch, clipped, and AdamW."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(device)
    return net, torch.optim.AdamW(net.parameters(), lr=0.0001, fused=True)


def accumulated(net, parallel, optimizer):
    def step(x):
        optimizer.zero_grad()
        with parallel.no_sync():
            parallel(x[None]).square().sum().backward()
        loss = parallel(x[None] + 1).square().sum()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


@program(walks=True)
def ddp_around_accumulated(rank, wrap, device):
    net, optimizer = accumulating(device)
    g = wrap(net)
    return trained(net, Outside(accumulated(net, DistributedDataParallel(g), optimizer), g))


@program(least=2)
def ddp_accumulated(rank, wrap, device):
    net, optimizer = accumulating(device)
    return trained(net, wrap(accumulated(net, DistributedDataParallel(net), optimizer)))


@program("RT405")
def sharded(rank, wrap, device):
    """The backward runs outside, and needs what FSDP has noted in the forward."""
    net = copy.deepcopy(model(device))
    mesh = dist.device_mesh.init_device_mesh(device.type, (dist.get_world_size(),))
    fully_shard(net, mesh=mesh)
    g = wrap(net)
    step = Step(net, g)

    return step, parts_of(net)


@program(least=3)
def sharded_without_gradients(rank, wrap, device):
    """Each forward is added to a list, which the next backward looks at."""
    net, _ = sharded_blocks(device)
    return wrap(torch.no_grad()(lambda x: net(x[None]) * 2)), left_by(net)


@program(least=3)
def sharded_whole_step(rank, wrap, device):
    net = copy.deepcopy(model(device))
    mesh = dist.device_mesh.init_device_mesh(device.type, (dist.get_world_size(),))
    for layer in (net[0], net[2], net):
        fully_shard(layer, mesh=mesh)
    return wrap(Step(net, net).__call__), parts_of(net)


def sharded_blocks(device, *, shape=None, attention=False, **options):
    """Blocks in the parts of which the processes have a share each, and a layer around; and AdamW."""
    torch.manual_seed(0)
    layers = [nn.Linear(4, 7), nn.Sequential(nn.GELU(), nn.Linear(7, 4))]
    if attention:
        layers = [Attention(), nn.Sequential(*layers), Attention()]
    net = nn.Sequential(*layers, nn.LayerNorm(4)).to(device)
    shape = shape or (dist.get_world_size(),)
    names = ("copies", "parts")[-len(shape) :]
    mesh = dist.device_mesh.init_device_mesh(device.type, shape, mesh_dim_names=names)
    for layer in (*layers, net):
        fully_shard(layer, mesh=mesh, **options)
    return net, torch.optim.AdamW(net.parameters(), lr=0.001, fused=True)


def left_by(net):
    """Parts of parameters and gradients, and which forwards wait for a backward."""
    states = [each._get_fsdp_state() for each in net.modules() if hasattr(each, "_get_fsdp_state")]

    def left():
        context = states[0]._comm_ctx
        groups = [group for state in states if (group := state._fsdp_param_group) is not None]
        waiting = [len(getattr(context, "post_forward_order", ()))]
        waiting += [place for group in groups for place in (-1, *group._post_forward_indices)]
        return [*parts_of(net)(), torch.tensor(waiting)]

    return left


def sharded_step(net, optimizer, rounds=1, forward=None):
    """A training step as users write it; gradients are summed up where they are, but for the last round."""

    def step(x):
        optimizer.zero_grad()
        for turn in range(rounds):
            if rounds > 1:
                net.set_requires_gradient_sync(turn == rounds - 1)
            loss = (forward or net)(x[None] / 10).float().square().mean() / rounds
            loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


@program(least=30, steps=40)
def sharded_transformer_trained(rank, wrap, device):
    net, optimizer = sharded_blocks(device, attention=True)
    return wrap(sharded_step(net, optimizer), keep=True), left_by(net)


@program(least=30, steps=40)
def sharded_transformer_in_bfloat16_and_rounds(rank, wrap, device):
    """Parameters stay gathered until the backward, in another type than that in which they are kept."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    net, optimizer = sharded_blocks(device, attention=True, reshard_after_forward=False, mp_policy=policy)
    return wrap(sharded_step(net, optimizer, rounds=3), keep=True), left_by(net)


@program(least=3)
def sharded_among_two_dimensions(rank, wrap, device):
    net, optimizer = sharded_blocks(device, shape=(1, dist.get_world_size()))
    return wrap(sharded_step(net, optimizer)), left_by(net)


@program(least=3)
def sharded_and_copied(rank, wrap, device):
    net, optimizer = sharded_blocks(device, shape=(2, dist.get_world_size() // 2))
    return wrap(sharded_step(net, optimizer)), left_by(net)


@program(least=3)
def sharded_and_parallelized(rank, wrap, device):
    """Each layer is spread over some ranks, and its parts over the others."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)) for _ in range(2)]
    net = nn.Sequential(*layers, nn.LayerNorm(4)).to(device)
    shape, names = (2, dist.get_world_size() // 2), ("data", "tensor")
    mesh = dist.device_mesh.init_device_mesh(device.type, shape, mesh_dim_names=names)
    for layer in layers:
        parallelize_module(layer, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        fully_shard(layer, mesh=mesh["data"])
    fully_shard(net, mesh=mesh["data"])
    optimizers = [
        torch.optim.AdamW(some, lr=0.001, fused=True)
        for some in (net[:2].parameters(), net[2].parameters())
    ]  # fmt: skip

    def step(x):
        net.zero_grad()
        loss = net(x[None] / 10).square().mean()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.detach()

    return wrap(step), left_by(net)


@program(least=3)
def sharded_and_checkpointed(rank, wrap, device):
    net, optimizer = sharded_blocks(device)

    def forward(x):
        for layer in net[:2]:
            x = checkpoint(layer, x, use_reentrant=False)
        return x

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return forward(x)

    whole = fully_shard(Whole(), mesh=mesh_of(device))
    return wrap(sharded_step(net, optimizer, forward=whole)), parts_of(net)


@program(least=3)
def sharded_and_fetched_ahead(rank, wrap, device):
    net, optimizer = sharded_blocks(device)
    net.set_modules_to_forward_prefetch([net[0], net[1]])
    net[1].set_modules_to_backward_prefetch([net[0]])
    return wrap(sharded_step(net, optimizer)), left_by(net)


class Between:
    """Something happens before some of the calls."""

    def __init__(self, g, before):
        self.g, self.before, self.turn = g, before, 0

    def __call__(self, x):
        self.turn += 1
        self.before(self.turn)
        return self.g(x)

    def report(self):
        return self.g.report()


def happening(device, wrap, before, **options):
    net, optimizer = sharded_blocks(device, **options)
    g = wrap(sharded_step(net, optimizer), keep=True)
    return Between(g, partial(before, net)), left_by(net)


@program(least=2, steps=14)
def sharded_and_frozen(rank, wrap, device):
    def before(net, turn):
        net[0].weight.requires_grad_(turn < 6)

    return happening(device, wrap, before)


@program(least=2, steps=14)
def sharded_and_evaluated_between(rank, wrap, device):
    """A forward leaves the last parameters gathered, and is in the list of those without a backward."""

    def before(net, turn):
        if turn in (5, 9, 10):
            with torch.no_grad():
                net(torch.ones(1, 3, 4, device=device))

    return happening(device, wrap, before)


@program(least=2, steps=14)
def sharded_without_sums_for_a_while(rank, wrap, device):
    """While gradients are summed up where they are, parameters stay gathered or have their own sums."""

    def before(net, turn):
        net.set_requires_gradient_sync(turn not in (5, 6))

    return happening(device, wrap, before)


@program(least=2, steps=14)
def sharded_and_scaled(rank, wrap, device):
    """The host reads whether gradients are finite when all memory was given back."""
    net, _ = sharded_blocks(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler(device.type, init_scale=4.0, growth_interval=3)

    def step(x):
        optimizer.zero_grad()
        loss = net(x[None] / 10).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return wrap(step, keep=True), left_by(net)


@program("RT205")
def sharded_and_read_in_between(rank, wrap, device):
    net, optimizer = sharded_blocks(device)

    def step(x):
        optimizer.zero_grad()
        loss = net(x[None] / 10).square().mean()
        if loss.item() < 1e6:
            loss.backward()
        optimizer.step()
        return loss.detach()

    return wrap(step), left_by(net)


@program("RT205")
def sharded_and_left_gathered(rank, wrap, device):
    net, optimizer = sharded_blocks(device)
    net.set_reshard_after_backward(False)
    return wrap(sharded_step(net, optimizer)), left_by(net)


@program(host=True)
def parallel_on_one_device(rank, wrap, device):
    net = model(device)
    g = wrap(DataParallel(net))
    return trained(net, Step(net, g))


class Step:
    """A training step around a forward."""

    def __init__(self, net, forward):
        self.net, self.forward, self.g = net, forward, forward
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.0001)

    def __call__(self, x):
        self.optimizer.zero_grad()
        loss = self.forward(x).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def report(self):
        return self.g.report()


# ---------------------------------------------------------------------- what only reads


@program()
def rank_read(rank, wrap, device):
    def call(x):
        if dist.is_available() and dist.is_initialized():
            return x * (dist.get_rank() + 1) / dist.get_world_size()
        return x

    return wrap(call), nothing


# ---------------------------------------------------------------------- running


def same(one: list[torch.Tensor], two: list[torch.Tensor]) -> bool:
    return len(one) == len(two) and all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def plain(function: Any, /, **options: Any) -> Any:
    return function


def play(name: str, rank: int, device: torch.device, wrap: Any) -> dict[str, Any]:
    """Run one program in both ways; in two of the last calls one rank runs plainly, and the other replays."""
    made, steps = PROGRAMS[name].make, PROGRAMS[name].calls
    (eager, kept), (graphed, left) = made(rank, plain, device), made(rank, wrap, device)
    equal: list[bool] = []
    for step in range(steps):
        inputs = [torch.full((3, 4), step + 0.5, device=device) * (rank + 1) for _ in range(2)]
        one, two = eager(inputs[0]), graphed(inputs[1])
        equal.append(same([one, inputs[0], *kept()], [two, inputs[1], *left()]))
    replayed = graphed.report().replayed
    for step in range(2):
        inputs = [torch.full((3, 4), step + 0.5, device=device) * (rank + 1) for _ in range(2)]
        one = eager(inputs[0])
        with rote.no_graphs() if step == rank else contextlib.nullcontext():
            two = graphed(inputs[1])
        equal.append(same([one, inputs[0], *kept()], [two, inputs[1], *left()]))
    report = graphed.report()
    codes = sorted({found.code for found in report.reasons})
    reports = [report, *(part.report for part in report.parts)]
    return {
        "name": name,
        "equal": equal,
        "replayed": replayed,
        "parts": sum([part.replayed for part in report.parts]),
        "walked": sum([each.backwards_replayed for each in reports]),
        "optimised": "exact tier:" in getattr(graphed, "explain", str)(),
        "codes": codes,
        "said": [f"{found.code} {found.message}" for found in report.reasons],
    }


def main(
    rank: int, file: str, kind: str = "cpu", only: str = "", captured: str = "", ranks: str = "2"
) -> None:
    torch.set_num_threads(1)
    part.LEAST_S, part.MARGIN = 0.0, math.inf  # no program depends on how long a module takes
    timeout = datetime.timedelta(seconds=120)

    def graphed(function: Any, /, **options: Any) -> Any:
        return rote.graph(function, capture_collectives=bool(captured), **options)

    store = dist.FileStore(file, int(ranks))
    device = torch.device(kind, rank) if kind == "cuda" else torch.device(kind)
    if kind == "cuda":
        torch.cuda.set_device(device)
    for number, (name, made) in enumerate(PROGRAMS.items()):
        if (made.host and kind != "cpu") or not any([each in name for each in only.split(",")]):
            continue
        dist.init_process_group(
            "nccl" if kind == "cuda" else "gloo", store=dist.PrefixStore(str(number), store), rank=rank,
            world_size=int(ranks), timeout=timeout,
        )  # fmt: skip
        try:
            found = play(name, rank, device, graphed)
        except Exception:
            found = {"name": name, "error": traceback.format_exc()}
        print(json.dumps(found), flush=True)
        if "error" in found:
            return  # the other rank waits for what this one did not do
        dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
