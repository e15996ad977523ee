"""A small transformer on several processes, plainly and through rote: every rank has to have equal bits.

    torchrun --nproc-per-node 2 examples/torchrun_transformer.py --device cpu

Seven ways in which processes share work:

- ``ddp``: the model is graphed, and ``DistributedDataParallel`` around it averages the gradients. Two halves
  of a batch are accumulated, gradients are clipped by their global norm, and AdamW makes the step.
- ``wrapped``: the same, but it is the wrapper that is graphed.
- ``whole``: the same, but it is the step that is graphed, with the wrapper and the optimizer in it.
- ``fsdp``: the whole training step is graphed, with a model of which each rank keeps a share of every
  parameter (``fully_shard``), and gathers those of a layer while it needs them.
- ``step``: the whole training step is graphed. It averages its gradients itself, in one collective.
- ``decode``: each rank has a part of the heads and of the hidden units (tensor parallelism), and one token
  follows another. Two collectives a layer are part of the graphed step.
- ``sharded``: the feed-forward halves of the layers, parallelized by ``parallelize_module`` (``DTensor``).

With ``--device cuda`` each rank has a GPU, and the processes meet over NCCL; otherwise over gloo. The exit
status is 1 if a rank differs, or if nothing was replayed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import rote

VOCABULARY, SEED = 64, 0


class Attention(nn.Module):
    """Attention over all tokens so far. With ``parts``, this process has some of the heads."""

    def __init__(self, width: int, heads: int, parts: int) -> None:
        super().__init__()
        self.heads, self.parts = heads // parts, parts
        inner = width // parts
        self.into, self.out = nn.Linear(width, 3 * inner), nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, cache: tuple[Tensor, Tensor, Tensor] | None = None) -> Tensor:
        batch, length, _ = x.shape
        parts = self.into(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        queries, keys, values = parts[0], parts[1], parts[2]
        if cache is None:
            mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        else:
            place, known_keys, known_values = cache
            known_keys.index_copy_(2, place, keys)
            known_values.index_copy_(2, place, values)
            seen = torch.arange(known_keys.shape[2], device=x.device)[None] <= place
            mixed = F.scaled_dot_product_attention(queries, known_keys, known_values, attn_mask=seen)
        return joined(self.out(mixed.transpose(1, 2).reshape(batch, length, -1)), self.parts)


class Layer(nn.Module):
    """One layer of the transformer."""

    def __init__(self, width: int, heads: int, parts: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.parts = Attention(width, heads, parts), parts
        hidden = 4 * width // parts
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, cache: tuple[Tensor, Tensor, Tensor] | None = None) -> Tensor:
        x = x + self.attention(self.first(x), cache)
        return x + joined(self.down(F.gelu(self.up(self.second(x)))), self.parts)


def joined(x: Tensor, parts: int) -> Tensor:
    """The sum over all processes, where each has a part."""
    if parts > 1:
        dist.all_reduce(x)
    return x


class Transformer(nn.Module):
    """A decoder. ``parts`` is the number of processes that share each layer."""

    def __init__(self, width: int, layers: int, heads: int, parts: int = 1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList([Layer(width, heads, parts) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Decoder:
    """One decoding step: a token in, the next token out; keys and values stay where they are."""

    def __init__(self, model: Transformer, length: int, device: torch.device) -> None:
        attention = model.layers[0].attention
        shape = (1, attention.heads, length, attention.out.in_features // attention.heads)
        self.model = model
        self.caches = [[torch.zeros(shape, device=device) for _ in range(2)] for _ in model.layers]

    @torch.inference_mode()
    def step(self, token: Tensor, place: Tensor) -> Tensor:
        x = self.model.embedding(token)
        for layer, (keys, values) in zip(self.model.layers, self.caches, strict=True):
            x = layer(x, (place, keys, values))
        return self.model.head(self.model.norm(x)).argmax(-1)


# ---------------------------------------------------------------------------- the seven ways


Step = Callable[[int], list[Tensor]]
"""Makes one step, and returns what has to be equal."""


def batch(options: argparse.Namespace, number: int, device: torch.device) -> Tensor:
    """The tokens of this rank at a step."""
    generator = torch.Generator().manual_seed(1000 * number + dist.get_rank())
    return torch.randint(VOCABULARY, (options.batch, options.length), generator=generator).to(device)


def loss_of(logits: Tensor, tokens: Tensor) -> Tensor:
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def made(options: argparse.Namespace, device: torch.device, parts: int = 1) -> Transformer:
    torch.manual_seed(SEED + (dist.get_rank() if parts > 1 else 0))
    return Transformer(options.width, options.layers, options.heads, parts).to(device)


def ddp(options: argparse.Namespace, device: torch.device, wrap: Any) -> tuple[Step, Any]:
    graphed = wrap(made(options, device))
    parallel = data_parallel(graphed, device)
    return trained(accumulating(parallel, parallel), parallel, options, device), graphed


def wrapped(options: argparse.Namespace, device: torch.device, wrap: Any) -> tuple[Step, Any]:
    parallel = data_parallel(made(options, device), device)
    graphed = wrap(parallel)
    return trained(accumulating(graphed, parallel), parallel, options, device), graphed


def whole(options: argparse.Namespace, device: torch.device, wrap: Any) -> tuple[Step, Any]:
    parallel = data_parallel(made(options, device), device)
    graphed = wrap(accumulating(parallel, parallel))
    return trained(graphed, parallel, options, device), graphed


def data_parallel(model: Any, device: torch.device) -> DistributedDataParallel:
    return DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)


def trained(
    call: Any, parallel: DistributedDataParallel, options: argparse.Namespace, device: torch.device
) -> Step:
    return lambda number: [call(batch(options, number, device)), *parallel.parameters()]


def accumulating(call: Any, parallel: DistributedDataParallel) -> Callable[[Tensor], Tensor]:
    parameters = list(parallel.parameters())
    on_gpu = parameters[0].is_cuda
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, capturable=on_gpu, fused=not on_gpu)

    def step(both: Tensor) -> Tensor:
        tokens, others = both.chunk(2)
        optimizer.zero_grad()
        with parallel.no_sync():
            (loss_of(call(tokens), tokens) / 2).backward()
        loss = loss_of(call(others), others) / 2
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss.detach()

    return step


def fsdp(options: argparse.Namespace, device: torch.device, wrap: Any) -> tuple[Step, Any]:
    model: Any = made(options, device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for each in (*model.layers, model):
        fully_shard(each, mesh=mesh)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)

    def train(tokens: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model(tokens), tokens)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss.detach()

    graphed = wrap(train)

    def following(number: int) -> list[Tensor]:
        loss = graphed(batch(options, number, device))
        return [loss, *[each.to_local() for each in model.parameters()]]

    return following, graphed


def step(options: argparse.Namespace, device: torch.device, wrap: Any) -> tuple[Step, Any]:
    model = made(options, device)
    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.SGD(parameters, lr=1e-2, momentum=0.9)

    def train(tokens: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss = loss_of(model(tokens), tokens)
        loss.backward()
        flat = torch.cat([parameter.grad.flatten() for parameter in parameters])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for parameter, mean in zip(
            parameters, flat.split([each.numel() for each in parameters]), strict=True
        ):
            parameter.grad.copy_(mean.view_as(parameter))
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss.detach()

    graphed = wrap(train)
    return lambda number: [graphed(batch(options, number, device)), *parameters], graphed


def decode(options: argparse.Namespace, device: torch.device, wrap: Any) -> tuple[Step, Any]:
    model = made(options, device, dist.get_world_size())
    for parameter in (*model.embedding.parameters(), *model.norm.parameters(), *model.head.parameters()):
        dist.broadcast(parameter.data, 0)  # what no process has a part of
    decoder = Decoder(model.requires_grad_(False), options.length, device)
    graphed, token = wrap(decoder.step), torch.zeros(1, 1, dtype=torch.int64, device=device)

    def following(number: int) -> list[Tensor]:
        place = torch.tensor([number % options.length], device=device)
        token.copy_(graphed(token, place))
        return [token, *decoder.caches[-1]]

    return following, graphed


class FeedForward(nn.Module):
    """Half of a layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def sharded(options: argparse.Namespace, device: torch.device, wrap: Any) -> tuple[Step, Any]:
    torch.manual_seed(SEED)
    model = nn.Sequential(*[FeedForward(options.width) for _ in range(options.layers)]).to(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for half in model:
        parallelize_module(half, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    graphed = wrap(torch.inference_mode()(lambda x: model(x)))

    def following(number: int) -> list[Tensor]:
        x = torch.full((options.batch, options.width), number + 0.5).to(device)
        return [graphed(x.sin())]

    return following, graphed


WAYS = {
    "ddp": ddp, "wrapped": wrapped, "whole": whole, "fsdp": fsdp, "step": step, "decode": decode,
    "sharded": sharded,
}  # fmt: skip


# ---------------------------------------------------------------------------- running


def plain(function: Any) -> Any:
    return function


def played(way: str, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Both ways in turns, so that all ranks meet in one order."""
    (eager, _), (replayed, graphed) = (
        WAYS[way](options, device, wrap) for wrap in (plain, rote.graph)
    )  # fmt: skip
    equal = 0
    for number in range(options.steps):
        pairs = zip(eager(number), replayed(number), strict=True)
        equal += all([torch.equal(one, other) for one, other in pairs])
    report = graphed.report()
    return {
        "way": way,
        "rank": dist.get_rank(),
        "steps": options.steps,
        "equal": equal,
        "calls": report.calls,
        "replayed": report.replayed + sum([part.replayed for part in report.parts]),
        "reasons": [str(each) for each in report.reasons],
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--way", choices=tuple(WAYS), action="append", help="all if none is named")
    for name, default in (
        ("steps", 12),
        ("width", 32),
        ("layers", 2),
        ("heads", 4),
        ("batch", 4),
        ("length", 16),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--out", type=Path, help="JSON")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    device = torch.device(options.device)
    if options.device == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if options.device == "cuda" else "gloo")
    mine = [played(way, options, device) for way in options.way or WAYS]
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    found = [row for rows in everyone for row in rows]
    if dist.get_rank() == 0:
        for row in found:
            same = "yes" if row["equal"] == row["steps"] else "no"
            print(
                f"{row['way']:>7} rank {row['rank']}: {row['replayed']} of {row['calls']} calls replayed, "
                f"bitwise equal: {same}"
            )
        if options.out is not None:
            options.out.write_text(json.dumps(found, indent=1))
    dist.destroy_process_group()
    return int(not all([row["equal"] == row["steps"] and row["replayed"] for row in found]))


if __name__ == "__main__":
    sys.exit(main())
