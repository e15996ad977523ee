"""Programs to be read, not run. ``# RT101`` on a line states a finding there; other lines have none."""

# fmt: off
# ruff: noqa

import functools
import itertools
import logging
import math
import random
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint as ckpt

import rote

log = logging.getLogger(__name__)
TABLE = {}
COUNT = 0


class Attention(nn.Module):
    """A branch that no call takes is read as well."""

    cache: dict[str, Tensor]
    seen: Tensor

    def __init__(self, width: int, debug: bool = False):
        super().__init__()
        self.q, self.scale = nn.Linear(width, width), width**-0.5
        self.debug = debug
        self.calls = 0
        self.history, self.tables, self.once = [], {}, None
        self.ready = self.full = False
        self.register_buffer("limit", torch.ones(()))

    def forward(self, x, mask=None, positions: Tensor | None = None, steps: int = 3):
        if self.debug:
            print("norm", x.norm())  # RT104
            log.info("norm %s", x.norm())  # RT104
            log.info("shape %s", x.shape)
        if mask is not None and mask.any():  # RT101
            x = x.masked_fill(mask, 0.0)
        if x.shape[0] > 4 or len(x) == 2 or x.dim() > 3 or x.requires_grad or x.is_cuda:
            x = x.reshape(-1, x.shape[-1])
        q = self.q(x) * self.scale
        q = self.helper(q) + self.table(x, x.shape[0])
        for _ in range(steps):
            q = q / 2
        self.history.append(q)  # RT201
        self.calls += 1  # RT201
        self.last = q.mean()  # RT212
        if "a" in self.cache:
            q = q + self.cache["a"]
        if q.max() > self.limit:  # RT101
            raise ValueError(f"too large: {q.max()}")
        assert (q > 0).all(), "negative"  # RT101
        return q if positions is None else q[:, positions]

    def table(self, x, size):
        if size not in self.tables:
            self.tables[size] = x.exp()  # RT213
        if self.once is None:
            self.once = x.exp()  # RT213
        if not self.ready:
            self.scale_of_first = x.amax()  # RT213
            self.ready = True  # RT213
        if not self.full:
            self.scale_of_some = x.amax()  # RT212
            if self.calls > 4:
                self.full = True  # RT213
        return self.tables[size]

    def helper(self, y):
        n = int(y.sum())  # RT101
        keep = y[:, 0] > 0
        low = min(y.min(), 3)  # RT101
        return y[keep][:n] + low  # RT111

    def set_limit(self, value):
        self.limit = value  # not part of a call


class Optional(Attention):
    """Inherited attributes are known."""

    def forward(self, x):
        if self.limit > 0:  # RT101
            return self.q(x)
        self.limit.copy_(x.sum())
        return x


def sizes(x: Tensor, lengths: Tensor):
    n = lengths.max().item()  # RT101
    rows = torch.arange(n, device=x.device)
    parts = x.split(lengths.tolist())  # RT102
    y = x[:, : lengths[0]]  # RT101
    z = torch.zeros(lengths.sum(), device=x.device)  # RT101
    for i in range(lengths[1]):  # RT101
        z = z + i
    table = [1.0, 2.0]
    w = table[lengths[0]]  # RT101
    u = math.sqrt(lengths.sum())  # RT101
    return rows, parts, y, z, w, u, x.size(0) ** 0.5, float(x.shape[1])


def shapes(x: Tensor, mask: torch.BoolTensor):
    known = x.sum().is_nonzero()  # RT101
    a = torch.nonzero(x)  # RT111
    b = x.masked_select(mask)  # RT111
    c = torch.where(x > 0)  # RT111
    d = torch.where(x > 0, x, 0.0)
    e = F.one_hot(x.long())  # RT111
    f = F.one_hot(x.long(), 4)
    g = x.repeat_interleave(2, dim=0)
    h = torch.repeat_interleave(x, x.long())  # RT111
    i = torch.repeat_interleave(x, x.long(), output_size=8)
    j = x.unique(), x.bincount()  # RT111 RT111
    d[mask] = 0.0
    d[mask] = torch.tensor(5.0)
    low = torch.tensor(-1)
    d[mask, :] = low
    d[mask] = x  # RT111
    d[mask] = torch.tensor([5.0, 6.0])  # RT111
    d[mask] = low.expand(4)  # RT111
    d[mask, 0] += 1  # RT111
    packed = pack_padded_sequence(x, [3, 2])  # RT112
    return a, b, c, d, e, f, g, h, i, j, packed, x[..., None], x[[0, 1]]  # RT126


def data(x: Tensor, device, values):
    a = torch.tensor([1.0, 2.0], device=device)  # RT124
    b = torch.tensor(3).to(x)  # RT124
    c = torch.zeros(3).to(device=x.device)  # RT121
    d = torch.zeros(3, device=x.device).to(torch.float16)
    e = torch.from_numpy(np.ones(3))  # RT123
    f = x.cpu()  # RT121
    g = x.detach().cpu().numpy()  # RT103
    h = np.mean(x)  # RT103
    i = x.to("cpu", torch.float32)  # RT121
    j = torch.full((3,), 2.0, device=device)
    k = x.new_tensor([1, 2])  # RT124
    n = x.new_zeros(3)
    o = torch.as_tensor(values, device=device)
    p = x.to(device, non_blocking=True)  # RT125
    q = x.to(torch.bfloat16).type_as(x).to(dtype=x.dtype)
    return a, b, c, d, e, f, g, h, i, j, k, n, o, p, q


def drawn(x: Tensor, dice: random.Random):
    if random.random() < 0.5:  # RT204
        return x * np.random.rand()  # RT204
    if torch.rand(1).item() < 0.5:  # RT204
        return x + torch.rand_like(x)
    if torch.rand([]) < 0.5:  # RT204
        return F.dropout(x)
    torch.manual_seed(0)  # RT208
    start = time.perf_counter()  # RT127
    return x + start


def kept(x: Tensor, cache: dict, out: list):
    global COUNT
    COUNT += 1  # RT201
    TABLE["x"] = x  # RT201
    names = {}
    names["x"] = x
    found = []
    found.append(x)
    cache["x"] = x
    x.mul_(2)  # RT333
    y = x.clone()
    y.mul_(2)
    y += 1
    x.t_()  # RT504
    x.grad = None
    x.data = y  # RT301
    return names, found


@functools.lru_cache
def table(n: int):  # the finding is at the decorator
    return torch.arange(n).cos()


def hosted(x: Tensor, layer: nn.Module):
    torch.cuda.synchronize()  # RT133
    with torch.cuda.stream(torch.cuda.Stream()):  # RT134 RT134
        y = ckpt(layer, x)  # RT406
    dist.all_reduce(y)  # RT801
    dist.barrier()  # RT802
    layer.register_forward_hook(print)  # RT217
    y.register_hook(print)  # RT405
    torch.backends.cudnn.benchmark = True  # RT210
    torch.set_grad_enabled(False)  # RT210
    with torch.set_grad_enabled(True), torch.no_grad():
        return torch.compile(layer)(y)  # RT741


def of_ranks(x: Tensor, rank, pair):
    if rank == 0:
        dist.all_reduce(x)  # RT801 RT804
    if rank < 2:
        dist.all_reduce(x, group=pair)  # RT801
    if dist.get_rank() == 0:
        dist.gather(x, [x, x])  # RT801
        dist.send(x, 1)  # RT801
    else:
        dist.gather(x)  # RT801
        dist.recv(x, 0)  # RT801
        dist.barrier()  # RT802 RT804
    if x.dim() == 2:
        dist.all_reduce(x)  # RT801
    return x


def narrowed(x: Tensor, t):
    if not torch.is_tensor(t):
        t = torch.tensor([t], device=x.device)  # RT124
    scale = float(t) if not isinstance(t, Tensor) else 1.0
    return x * t * scale


def in_step(x: Tensor, lengths: Tensor, masks, names: list):
    y = torch.zeros_like(x)
    for row, length in enumerate(lengths):
        y[row, length:] = 0  # RT101
    for name, mask in zip(names, masks):
        y = y + x[mask].sum()  # RT111
    for size, part in zip(x.shape, x):
        y = y + part[:size]
    return y


def nested(x: Tensor):
    found = []

    def collect(y):
        nonlocal x
        found.append(y.exp())
        x = x + y

    collect(x)
    return found


def main(x: Tensor):
    print(x.sum().item())


def train(model, batches, optimizer):
    for x in batches:
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        print(loss.item())


def capture(x):
    graph = torch.cuda.CUDAGraph()
    x.sum().item()
    with torch.cuda.graph(graph):
        y = x.sum().item()  # RT101
    graph.replay()
    return y


def step(x, y):
    return (x + y).item()  # RT101


class Runner:
    """No module: its methods are read where they are graphed."""

    def act(self, x):
        return self.inner(x)

    def inner(self, x):
        self.x = x  # RT201
        return 1 if x else 0

    def other(self, x):
        self.x = x

    def graphed(self):
        return rote.graph(self.act), rote.graph(lambda x: x.abs().item())  # RT101


class Batches(nn.Module):
    def __init__(self, items):
        super().__init__()
        self.items = items
        self.batches = iter(items)
        self.turns = itertools.count()
        self.squares = (n * n for n in items)

    def forward(self, x):
        x = x * next(self.batches)  # RT201
        x = x + next(self.turns)  # RT201
        for n in self.squares:  # RT201
            x = x + n
        for n in self.items:
            x = x + n
        own = iter(self.items)
        for n in own:
            x = x + n
        return x * next(own) * next(iter(self.items)) * sum(n for n in self.items)


g = rote.graph(step)
# fmt: on


def first_of_a_name():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("position", torch.zeros(1))

        def forward(self, x):
            self.position += 1
            return x + self.position

    return Cache


def second_of_a_name():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.position = 0

        def forward(self, x):
            self.position += 1  # RT201
            return x + self.position

    return Cache
