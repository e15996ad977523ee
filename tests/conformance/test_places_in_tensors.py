"""Places that C reads from tensors: ends of slices, indices in keys; and several parts of one array."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import rote

CALLS = 24


class World:
    """What a program reads and writes."""

    def __init__(self) -> None:
        self.table = torch.arange(400.0).view(200, 2)
        self.ring = torch.zeros(64, 2)
        self.data = (np.arange(300) * 7 % 65).astype(np.uint16)
        self.other = self.data[3:]
        self.pointer = torch.zeros((), dtype=torch.long)
        self.calls = 0


Program = Callable[[World, Tensor], Any]


def parts(world: World, at: Tensor) -> Tensor:
    found = [torch.from_numpy(world.data[i : i + 8].astype(np.int64)) for i in at]
    return torch.stack([*found, *[torch.from_numpy(world.data[i + 1 : i + 9].astype(np.int64)) for i in at]])


def parts_of_list(world: World, at: Tensor) -> Tensor:
    return torch.stack([torch.from_numpy(world.data[i : i + 8].astype(np.int64)) for i in at.tolist()])


def ring(world: World, at: Tensor) -> Tensor:
    first = world.pointer
    world.ring[first : first + 4] = world.table[at]
    world.pointer = (first + 4) % 64
    return world.ring.sum(0)


def stored_at(world: World, at: Tensor) -> Tensor:
    world.ring[at[0] % 64] = world.table[at[1]]
    return world.ring.sum(0)


def written_meanwhile(world: World, at: Tensor) -> Tensor:
    first = torch.from_numpy(world.data[at[0] : at[0] + 8].astype(np.int64))
    world.data[at[0]] = int(at[1])
    return first + torch.from_numpy(world.data[at[0] : at[0] + 8].astype(np.int64))


def written_through_a_part(world: World, at: Tensor) -> Tensor:
    i = int(at[0])
    part = world.data[i : i + 8]
    part[0] = 9
    return torch.from_numpy(world.data[i : i + 8].astype(np.int64)) + int(part[1])


def written_beside(world: World, at: Tensor) -> Tensor:
    i = int(at[0])
    first = world.data[i : i + 8].sum()
    world.other[i] += 1
    return torch.tensor([float(first), float(world.data[i : i + 8].sum())])


def over_the_end(world: World, at: Tensor) -> Tensor:
    i = at[0] + 110
    return torch.from_numpy(world.data[i : i + 8].astype(np.int64)).sum() + world.table[i - 104 :].sum()


def from_the_end(world: World, at: Tensor) -> Tensor:
    return (
        world.table[-at[0] - 9 : -at[0] - 1]
        + torch.from_numpy(world.data[-at[0] - 9 : -at[0] - 1] * 1.0)[:, None]
    )


REPLAYED: dict[str, Program] = {
    "slices": lambda world, at: torch.stack([world.table[i : i + 8] for i in at]),
    "one end": lambda world, at: world.table[at[0] : int(at[0]) + 8] * 2,
    "slices of arrays": parts,
    "slices of arrays by a list": parts_of_list,
    "a ring": ring,
    "an index": stored_at,
}
OTHERS: dict[str, Program] = {
    "two indices": lambda world, at: world.table[at[0], at[1] % 2],
    "an index beside a slice": lambda world, at: world.table[at[0] : at[0] + 8, at[1] % 2],
    "beside a list": lambda world, at: world.table[at, at[1] % 2],
    "bytes": lambda world, at: world.table[at[0].to(torch.uint8) : 199],
    "a truth value": lambda world, at: world.table[at[0] > 60 :],
    "one element": lambda world, at: world.table[at[:1] : at[:1] + 8],
    "a number with a fraction": lambda world, at: world.table[at[0] / 2 :],
    "several": lambda world, at: world.table[at:],
    "a step": lambda world, at: world.table[0 : at[0] + 1 : at[1] % 3 + 1],
    "over the end": over_the_end,
    "from the end": from_the_end,
    "written meanwhile": written_meanwhile,
    "written through a part": written_through_a_part,
    "written beside": written_beside,
}


def seen(program: Program, wrap: Callable[..., Any]) -> Iterator[Any]:
    torch.manual_seed(0)
    world = World()

    def step() -> Any:
        world.calls += 1
        return program(world, torch.randint(180, (4,)))

    graphed, kept = wrap(step), []
    for number in range(CALLS):
        if number == CALLS // 2:
            world.data[50:90] = 3  # by the caller
        if number == CALLS - 5:
            world.data = world.data + 1
        try:
            kept.append(graphed())
        except (TypeError, IndexError) as error:
            yield type(error), str(error)
        yield [each.tolist() for each in kept], world.ring.tolist(), world.data.tolist(), world.pointer.item()
    yield torch.get_rng_state().tolist()


@pytest.mark.parametrize("name", [*REPLAYED, *OTHERS])
def test_places_in_tensors(name):
    graphs: list[Any] = []

    def wrap(function: Any) -> Any:
        graphs.append(rote.graph(function, keep=True))
        return graphs[0]

    program = {**REPLAYED, **OTHERS}[name]
    assert list(seen(program, wrap)) == list(seen(program, lambda function: function))
    if name in REPLAYED:
        assert graphs[0].report().replayed >= CALLS // 4, graphs[0].explain()
