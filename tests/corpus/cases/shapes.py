"""Shapes that depend on data, and indexing."""

import torch
import torch.nn.functional as F
from torch import nn

from ..case import Group
from .values import rand

group = Group()


@group
def boolean_mask_read(device):
    def fn(x):
        return x[x > 0].sum()  # stops

    return fn, (rand(device, 8, 4),)


@group
def indices_of_a_mask(device):
    def fn(x):
        rows = torch.nonzero(x[:, 0] > 0)  # stops
        return x[rows[:, 0]].sum(0)

    return fn, (rand(device, 8, 4),)


@group
def where_with_one_argument(device):
    def fn(x):
        (rows,) = torch.where(x[:, 0] > 0)  # stops
        return x.index_select(0, rows).mean(0)

    return fn, (rand(device, 8, 4),)


@group
def unique_values(device):
    def fn(x):
        return torch.unique(x, return_counts=True)  # stops

    return fn, (torch.randint(0, 4, (16,), generator=torch.Generator().manual_seed(0)).to(device),)


@group
def masked_select_sum(device):
    def fn(x, mask):
        return torch.masked_select(x, mask).mean()  # stops

    return fn, (rand(device, 8, 4), rand(device, 8, 4, seed=1) > 0)


@group
def repeat_by_a_tensor(device):
    def fn(x, counts):
        return x.repeat_interleave(counts, dim=0)  # stops

    return fn, (rand(device, 3, 4), torch.tensor([1, 2, 3], device=device))


@group
def histogram_of_unknown_length(device):
    def fn(x):
        return torch.bincount(x)  # stops

    return fn, (torch.randint(0, 4, (16,), generator=torch.Generator().manual_seed(0)).to(device),)


@group
def one_hot_of_unknown_classes(device):
    def fn(x):
        return F.one_hot(x)  # stops

    return fn, (torch.randint(0, 4, (16,), generator=torch.Generator().manual_seed(0)).to(device),)


@group
def top_detections(device):
    def fn(boxes, scores):
        keep = scores > 0.5
        boxes, scores = boxes[keep], scores[keep]  # stops
        order = scores.argsort(descending=True)
        return boxes[order][:4]

    return fn, (rand(device, 16, 4), rand(device, 16, seed=1).sigmoid())


@group
def split_by_lengths(device):
    def fn(x, lengths):
        return [part.sum(0) for part in x.split(lengths.tolist())]  # stops

    return fn, (rand(device, 6, 4), torch.tensor([1, 2, 3], device=device))


@group
def embedding_scattered_by_mask(device):
    def fn(tokens, images, mask):
        tokens = tokens.clone()
        tokens[mask] = images  # stops
        return tokens.sum(0)

    mask = torch.tensor([True, False, True, False], device=device)
    return fn, (rand(device, 4, 8), rand(device, 2, 8, seed=1), mask)


@group
def routed_experts(device):
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(8, 4)
            self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

        def forward(self, x):
            chosen = self.gate(x).argmax(-1)
            out = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                rows = (chosen == number).nonzero(as_tuple=True)[0]  # stops
                out.index_add_(0, rows, expert(x[rows]))
            return out

    torch.manual_seed(0)
    return Experts().to(device), (rand(device, 16, 8),)


@group
def masked_mean(device):
    def fn(x, mask):
        weights = mask.to(x.dtype)
        return (x * weights).sum() / weights.sum().clamp(min=1)

    return fn, (rand(device, 8, 4), rand(device, 8, 4, seed=1) > 0)


@group
def masked_write_of_a_number(device):
    def fn(x):
        return x.masked_fill(x > 0, 0.0)

    return fn, (rand(device, 8, 4),)


@group
def mask_assigned_a_number(device):
    def fn(x):
        y = x.clone()
        y[y > 0] = 0.0
        return y

    return fn, (rand(device, 8, 4),)


@group
def topk_of_fixed_size(device):
    def fn(x):
        values, indices = x.topk(3, dim=-1)
        return torch.zeros_like(x).scatter(-1, indices, values)

    return fn, (rand(device, 8, 4),)


@group
def gather_by_index_tensor(device):
    def fn(x, index):
        return x[index] + x.index_select(0, index)

    return fn, (rand(device, 8, 4), torch.tensor([1, 3, 5], device=device))


@group
def one_hot_of_known_classes(device):
    def fn(x):
        return (x[:, None] == torch.arange(4, device=x.device)).float()

    return fn, (torch.randint(0, 4, (16,), generator=torch.Generator().manual_seed(0)).to(device),)


@group
def dense_experts(device):
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(8, 4)
            self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

        def forward(self, x):
            weights = self.gate(x).softmax(-1)
            outs = torch.stack([expert(x) for expert in self.experts], -1)
            return (outs * weights[:, None, :]).sum(-1)

    torch.manual_seed(0)
    return Experts().to(device), (rand(device, 16, 8),)


@group
def chunks_of_fixed_size(device):
    def fn(x):
        first, second = x.chunk(2, -1)
        return F.silu(first) * second

    return fn, (rand(device, 8, 4),)
