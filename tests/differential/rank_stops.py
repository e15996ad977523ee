"""One of two ranks stops and the other replays: ``python -m tests.differential.rank_stops RANK FILE HOW``."""

from __future__ import annotations

import datetime
import json
import os
import sys

import torch
import torch.distributed as dist

import rote

from .ranks import RANKS

LIMIT = datetime.timedelta(seconds=8)
STEPS = 12


def call(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1


def read(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1 if y.sum().item() > 0 else y


def main(rank: int, file: str, how: str) -> None:
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    store = dist.FileStore(file, RANKS)
    dist.init_process_group("nccl", store=store, rank=rank, world_size=RANKS, timeout=LIMIT)
    g, right = rote.graph(read if how == "reads" else call, keep=True, capture_collectives=True), True
    for n in range(STEPS):
        x = torch.full((4,), n % 2 + 1.0, device=device)
        right &= g(x).tolist() == [2 * (n % 2 + 1.0) * RANKS + 1] * 4
    told = {"right": right, "replayed": g.report().replayed, "islands": str(g.explain()).count("c10d::")}
    print(json.dumps({"name": "before", **told}), flush=True)
    if rank == 1:
        os._exit(0)
    g(torch.ones(4, device=device))
    torch.cuda.synchronize()
    print(json.dumps({"name": "went on"}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
