"""What two processes do when one fails: ``python -m tests.differential.rank_failures RANK FILE``."""

from __future__ import annotations

import datetime
import json
import os
import sys
from typing import Any

import torch
import torch.distributed as dist

import rote

from .ranks import RANKS

LIMIT = datetime.timedelta(seconds=60)


def call(x, index):
    y = x[index] * 2
    dist.all_reduce(y)
    z = y + 1
    dist.all_reduce(z)
    return z


def say(name: str, **told: Any) -> None:
    print(json.dumps({"name": name, **told}), flush=True)


def begin(store: Any, name: str, rank: int, size: int = RANKS) -> None:
    dist.init_process_group(
        "gloo", store=dist.PrefixStore(name, store), rank=rank, world_size=size, timeout=LIMIT
    )


def several(g: Any, size: int = RANKS) -> tuple[bool, int]:
    """Calls that go well: whether all were right, and how many were replayed."""
    before, right = g.report().replayed, True
    for n in range(6):
        x = torch.full((3,), n + 1.0)
        right &= torch.equal(g(x, torch.tensor([1])), torch.full((1,), (2 * (n + 1.0) * size + 1) * size))
    return right, g.report().replayed - before


def failing(rank: int, g: Any) -> str:
    """One rank has an index out of range; what each is told."""
    try:
        g(torch.ones(3), torch.tensor([1 if rank == 0 else 7]))
    except Exception as error:
        return type(error).__name__
    return "nothing"


def main(rank: int, file: str) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(file, RANKS)
    g = rote.graph(call)
    begin(store, "raises", rank)
    right, replayed = several(g)
    say("before", right=right, replayed=replayed)
    say("raises", error=failing(rank, g))
    dist.destroy_process_group()
    g.reset()  # the last that keeps connections open, for which the other rank waits
    begin(store, "anew", rank)
    right, replayed = several(g)
    say("anew", right=right, replayed=replayed)
    if rank == 1:
        os._exit(0)
    say("dies", error=failing(rank, g))
    dist.destroy_process_group()
    begin(store, "alone", rank, 1)
    right, replayed = several(g, 1)
    say("alone", right=right, replayed=replayed)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
