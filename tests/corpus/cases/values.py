"""Values read by the host, and data that comes from it."""

import numpy
import torch
from torch import nn

from ..case import Group

group = Group()


def rand(device, *shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device)


@group
def normalised_by_a_number_read_back(device):
    def fn(x):
        scale = x.abs().max().item()  # stops
        return x / scale

    return fn, (rand(device, 8, 4),)


@group
def branch_on_a_tensor(device):
    def fn(x):
        if x.sum() > 0:  # stops
            return x * 2
        return x * 3

    return fn, (rand(device, 8, 4),)


@group
def loop_until_converged(device):
    def fn(x):
        for _ in range(10):
            y = x / 2 + 1 / (2 * x)
            if torch.allclose(x, y):  # stops
                break
            x = y
        return x

    return fn, (rand(device, 8).abs() + 1,)


@group
def list_of_scores(device):
    def fn(x):
        scores = x.softmax(-1).tolist()  # stops
        return x * scores[0][0]

    return fn, (rand(device, 2, 4),)


@group
def float_of_a_loss(device):
    def fn(x, y):
        loss = (x - y).square().mean()
        return loss, float(loss)  # stops

    return fn, (rand(device, 4), rand(device, 4, seed=1))


@group
def numpy_postprocessing(device):
    def fn(x):
        y = x.relu()
        return torch.from_numpy(numpy.cumsum(y.cpu().numpy(), axis=0))  # stops

    return fn, (rand(device, 4, 4),)


@group
def moved_to_the_host(device):
    def fn(x):
        return (x * 2).to("cpu")  # stops

    return fn, (rand(device, 4, 4),)


@group
def length_read_from_a_tensor(device):
    def fn(x, length):
        n = int(length)  # stops
        return x[:n].sum(0)

    return fn, (rand(device, 8, 4), torch.tensor(5, device=device))


@group
def a_number_formatted(device):
    def fn(x):
        y = x.mean()
        name = f"mean {y:.3f}"  # stops
        return y, len(name)

    return fn, (rand(device, 8),)


@group
def numbers_stored_in_elements(device):
    def fn(x):
        y = x.clone()
        y[0] = 5.0
        y[:, 3] = 1
        y[1, 2] = 3.0  # stops
        y.diagonal()[3] = 2  # stops
        y[2, 2].fill_(7.0)
        y[2, 1] = y[0, 0]
        return y * 2

    return fn, (rand(device, 4, 4),)


@group
def numbers_stored_in_rows(device):
    def fn(x, rows):
        y = x.clone()
        y[rows] = 5.0  # stops
        y[y > 2] = 1.0
        y[:, rows] = 2  # stops
        y.index_fill_(0, rows, 3.0)
        y[y < 0] = torch.tensor(4.0)
        return torch.where(y > 3, y, 0.0)

    return fn, (rand(device, 4, 4), torch.tensor([0, 2], device=device))


@group
def number_of_the_host_chosen(device):
    def fn(x):
        return torch.where(x > 0, x, torch.tensor(0.0))  # stops

    return fn, (rand(device, 4, 4),)


@group
def equal_tensors(device):
    def fn(x, y):
        same = torch.equal(x, y)  # stops
        return x + y if same else x - y

    return fn, (rand(device, 8), rand(device, 8))


@group
def any_in_a_condition(device):
    def fn(x):
        if torch.isnan(x).any():  # stops
            x = torch.nan_to_num(x)
        return x * 2

    return fn, (rand(device, 8),)


@group
def index_by_a_tensor_element(device):
    def fn(x, table):
        return table[x.argmax().item()]  # stops

    return fn, (rand(device, 8), rand(device, 8, 2))


@group
def read_twice_in_one_call(device):
    def fn(x):
        low = x.min().item()  # stops
        high = x.max().item()  # stops
        return (x - low) / (high - low)

    return fn, (rand(device, 8),)


@group
def scalar_tensor_on_the_device(device):
    def fn(x):
        return x * torch.tensor(0.5, device=x.device)  # stops

    return fn, (rand(device, 8),)


@group
def list_tensor_on_the_device(device):
    def fn(x):
        mean = torch.tensor([0.485, 0.456, 0.406], device=x.device)  # stops
        return x - mean[:, None]

    return fn, (rand(device, 3, 8),)


@group
def constant_moved_in_forward(device):
    def fn(x):
        window = torch.hann_window(8).to(x.device)  # stops
        return x * window

    return fn, (rand(device, 2, 8),)


@group
def python_random_scale(device):
    import random

    def fn(x):
        return x * random.random()  # wrong

    return fn, (rand(device, 8),)


@group
def numpy_noise(device):
    def fn(x):
        noise = numpy.random.randn(8).astype("float32")  # wrong
        return x + torch.from_numpy(noise).to(x.device)  # stops

    return fn, (rand(device, 8),)


@group
def a_clock(device):
    import time

    def fn(x):
        return x * (time.perf_counter() % 1)  # wrong

    return fn, (rand(device, 8),)


@group
def scalar_made_on_the_device(device):
    def fn(x):
        return x * torch.full((), 0.5, device=x.device)

    return fn, (rand(device, 8),)


@group
def where_instead_of_a_branch(device):
    def fn(x):
        return torch.where(x.sum() > 0, x * 2, x * 3)

    return fn, (rand(device, 8, 4),)


@group
def scale_kept_on_the_device(device):
    def fn(x):
        return x / x.abs().amax(-1, keepdim=True).clamp(min=1e-6)

    return fn, (rand(device, 8, 4),)


@group
def shapes_read_by_python(device):
    def fn(x):
        rows, columns = x.shape
        if rows > 4 and x.numel() % 2 == 0:
            x = x.reshape(columns, rows)
        return x.float() / len(x)

    return fn, (rand(device, 8, 4),)


@group
def positions_made_on_the_device(device):
    def fn(x):
        positions = torch.arange(x.shape[1], device=x.device)
        mask = positions[None, :] <= positions[:, None]
        return torch.where(mask, x @ x.transpose(-1, -2), 0.0)

    return fn, (rand(device, 2, 4, 8).transpose(-1, -2).contiguous()[..., :8].reshape(2, 8, 4)[:, :4],)


@group
def constant_in_a_buffer(device):
    class Normalise(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]))

        def forward(self, x):
            return x - self.mean[:, None]

    return Normalise().to(device), (rand(device, 3, 8),)


@group
def numbers_as_arguments(device):
    def fn(x, scale, flip):
        y = x * scale
        return y.flip(0) if flip else y

    return fn, (rand(device, 8), 0.5, True)
