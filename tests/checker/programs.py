"""Callables with planted hazards.

``# RT101`` on a line states a finding of that code with that line; lines without a code have none.
"""

from __future__ import annotations

import inspect
import random
import re
import threading
import time
import types
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

CODE = re.compile(r"#((?: RT\d{3})+)")


class Program(NamedTuple):
    """A function that makes a callable and its arguments."""

    build: Callable[[], tuple[Any, ...]]

    @property
    def name(self) -> str:
        return self.build.__name__

    def expected(self) -> set[tuple[str, int]]:
        """Codes and lines in its comments."""
        lines, start = inspect.getsourcelines(self.build)
        return {
            (code, number)
            for number, line in enumerate(lines, start)
            for found in CODE.finditer(line)
            for code in found.group(1).split()
        }


PROGRAMS: list[Program] = []


def program(build: Callable[[], tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
    PROGRAMS.append(Program(build))
    return build


# ---------------------------------------------------------------------- reads


@program
def reads():
    def fn(x):
        total = x.sum().item()  # RT101
        if x.mean() > 0:  # RT101
            x = x + 1
        first = float(x[0, 0])  # RT101
        rows = x[0].tolist()  # RT102
        return x * total * first * rows[0]

    return fn, torch.randn(3, 4)


@program
def a_loop_that_waits():
    def fn(x):
        while x.abs().max() > 1:  # RT101
            x = x / 2
        return x

    return fn, torch.randn(4)


@program
def a_loop_that_waits_for_a_truth_that_is_not_hoped_for():
    def fn(x):
        done = False
        while not done:
            x = x / 2
            done = bool((x < 1).any())  # RT101
        return x

    return fn, torch.randn(4)


@program
def a_check_that_raises():
    def fn(x):
        if x.isnan().any():  # RT101
            raise ValueError("the input has a NaN")
        if not torch.isfinite(x).all():  # RT101
            raise ValueError("the input is infinite")
        assert not (x > 1e30).any()  # RT101
        return x * 2

    return fn, torch.randn(4)


@program
def both_branches():
    def fn(x):
        if x.sum() > 0:  # RT101
            return x.nonzero()  # RT111
        scale = x[0].item()  # RT101
        if x.max() > scale:  # RT101
            print(x)
            raise ValueError("what is met on the way to an error does not count")
        return x * scale

    return fn, torch.randn(4)


@program
def a_fused_optimizer_without_a_fake_implementation():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1), fused=True)

    def fn(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return fn, torch.randn(2, 4)


@program
def a_check_that_wants_the_other_answer():
    def fn(x):
        if not (x > 0).any():  # RT101
            raise ValueError("nothing is positive")
        return x * 2

    return fn, torch.randn(4)


@program
def printed():
    def fn(x):
        print(x)  # RT104
        return x * 2

    return fn, torch.randn(4)


@program
def a_value_in_a_text():
    def fn(x):
        return x * 2, f"the sum is {x.sum():.2f}", f"{x[0]:.1f}"  # RT101

    return fn, torch.randn(4)


@program
def through_numpy():
    def fn(x):
        array = numpy.sort((x * 2).cpu().numpy())  # RT121
        return torch.from_numpy(array.copy()).to(x.device) + x  # RT121

    return fn, torch.randn(4)


@program
def shapes():
    def fn(x):
        positive = x[x > 0]  # RT111
        where = (x > 0).nonzero()  # RT111
        kinds = x.unique()  # RT111
        y = x.clone()
        y[y > 2] = 0.0
        y = y.masked_fill(y > 1, 3.0)
        return positive.sum() + where.sum() + kinds.sum() + y

    return fn, torch.randn(3, 4)


@program
def stored_through_a_mask():
    def fn(x):
        y = x.clone()
        y[x > 2] = x[x > 2] * 10  # RT111
        return y

    return fn, torch.randn(3, 4)


@program
def a_loop_bound():
    def fn(x, steps):
        for _ in range(int(steps.item())):  # RT101
            x = x - 0.1 * x.tanh()
        return x

    return fn, torch.randn(4), torch.tensor(3)


@program
def linear_algebra():
    def fn(x):
        return torch.linalg.inv(x @ x.T) + torch.linalg.cholesky(x @ x.T)  # RT131

    return fn, torch.randn(4, 4)


# ---------------------------------------------------------------------- host data


@program
def data_built_on_the_host():
    def fn(x):
        weights = torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device)  # RT124
        half = torch.full((), 0.5, device=x.device)
        return x * weights * half * torch.tensor(2.0)

    return fn, torch.randn(4)


@program
def copies_of_host_tensors():
    def fn(x):
        table = torch.arange(4.0)
        y = x + table.to(x.device)  # RT121
        y = y + table.to(x.device, non_blocking=True)  # RT125
        return y + torch.zeros(4).pin_memory().to(x.device, non_blocking=True)  # RT182

    return fn, torch.randn(4)


@program
def a_table_that_does_not_move():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.table = torch.arange(4.0)
            self.half = torch.tensor(0.5)

        def forward(self, x):
            return self.linear(x) * self.half + self.table  # RT143

    return Layer(), torch.randn(2, 4)


@program
def a_host_tensor_among_device_tensors():
    def fn(x, factor):
        return x * factor  # RT141

    return fn, torch.randn(4, device="cuda"), torch.tensor(2.0)


# ---------------------------------------------------------------------- state


@program
def scale_stored_on_the_module():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            self._act_scale = x.abs().amax() / 127  # RT212
            return self.linear((x / self._act_scale).round()) * self._act_scale

    return Layer(), torch.randn(2, 4)


@program
def scale_in_a_buffer():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("scale", torch.ones(()))

        def forward(self, x):
            self.scale.copy_(x.abs().amax() / 127)
            return self.linear((x / self.scale).round()) * self.scale

    return Layer(), torch.randn(2, 4)


@program
def made_at_the_first_call():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = None

        def forward(self, x):
            if self.scale is None:
                self.scale = float(x.abs().amax())
            return x / self.scale

    return Layer(), torch.randn(2, 4)


@program
def tensors_of_the_first_call():
    class Calibrator:
        def __init__(self):
            self.largest = None

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.calibrator, self.scale, self.tables, self.seen = Calibrator(), None, {}, None
            self.history = []
            self.register_buffer("mask", None)
            self.register_buffer("mean", torch.zeros(4))
            self.ready = False

        def forward(self, x):
            if self.scale is None:
                self.scale = torch.quantile(x.abs(), 0.99) / 127  # RT213
            if len(x) not in self.tables:
                self.tables[len(x)] = torch.arange(4, device=x.device)  # RT213
            if self.mask is None:
                self.mask = torch.ones_like(x).tril()  # RT213
            if self.calibrator.largest is None:
                self.calibrator.largest = x.amax()  # RT213
            self.history.append(x * 2)  # RT205
            if not self.ready:
                self.mean.copy_(x.mean(0))
                self.seen, self.transposed, self.ready = x, self.linear.weight.T, True
            return self.linear(x * self.mask / self.scale) + self.tables[len(x)] + self.mean

    return Layer(), torch.randn(2, 4)


@program
def a_method_of_an_object_that_keeps_a_tensor():
    class Policy:
        def __init__(self):
            self.table = None

        def act(self, x):
            if self.table is None:
                self.table = torch.arange(4.0, device=x.device)  # RT213
            return x + self.table

    return Policy().act, torch.randn(4)


@program
def state_that_a_training_step_makes_once():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return step, torch.randn(2, 4)


@program
def counters():
    seen = types.SimpleNamespace(calls=0, names=[])

    def fn(x):
        seen.calls += 1  # RT201
        seen.names.append("call")  # RT201
        return x * 2

    return fn, torch.randn(4)


@program
def a_counter_that_scales():
    o = types.SimpleNamespace(step=0)

    def fn(x):
        o.step += 1  # RT201
        return x * o.step  # RT202

    return fn, torch.randn(4)


@program
def results_kept_in_a_list():
    kept = []

    def fn(x):
        y = x * 2
        kept.append(y)  # RT205
        return y

    return fn, torch.randn(4)


@program
def results_put_into_an_argument():
    def fn(x, table):  # RT207
        table["y"] = x * 2
        return x

    return fn, torch.randn(4), {}


@program
def argument_written():
    def fn(x, cache):
        cache[0].copy_(x)  # RT333
        return cache.sum()

    return fn, torch.randn(4), torch.zeros(2, 4)


@program
def argument_turned():
    def fn(x):  # RT504
        return x.t_() * 2  # RT333

    return fn, torch.randn(4, 4)


@program
def argument_resized():
    def fn(x, out):  # RT504
        return torch.add(x, 1, out=out)  # RT333

    return fn, torch.randn(4), torch.empty(0)


# ---------------------------------------------------------------------- host random numbers, time, seeds


@program
def host_random_numbers():
    def fn(x):
        return x * random.random()  # RT202 RT204

    return fn, torch.randn(4)


@program
def numpy_random_numbers():
    def fn(x):
        start = numpy.random.randint(0, 1000)  # RT204
        return x + int(start)  # RT202

    return fn, torch.randn(6)


@program
def a_clock():
    def fn(x):
        return x + time.perf_counter()  # RT202

    return fn, torch.randn(4)


@program
def seeded():
    def fn(x):
        torch.manual_seed(3)  # RT208
        return x + torch.randn(4, device=x.device)

    return fn, torch.randn(4)


@program
def dropout():
    def fn(x):
        return F.dropout(x, 0.5) + torch.rand_like(x) + torch.randn(4, device=x.device)

    return fn, torch.randn(4)


@program
def a_generator_of_the_device():
    generator = torch.Generator("cuda").manual_seed(3)
    assert isinstance(generator, torch.Generator)
    return lambda x: x + torch.randn(4, device="cuda", generator=generator), torch.randn(4, device="cuda")


# ---------------------------------------------------------------------- the device


@program
def streams():
    def fn(x):
        stream = torch.cuda.Stream()  # RT134
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            y = x * 2
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()  # RT133
        torch.cuda.empty_cache()  # RT181
        return y

    return fn, torch.randn(4)


@program
def an_address():
    def fn(x):
        return x + x.data_ptr() % 2  # RT149

    return fn, torch.randn(4)


@program
def devices_asked_for():
    def fn(x):
        assert x.device.type == "cuda" and x.is_cuda and not x.is_cpu and x.get_device() == 0
        assert torch.cuda.is_available() and torch.cuda.current_device() == 0
        y = torch.zeros(4, device="cuda") + torch.ones(4, device=x.device)
        y = y + torch.arange(4).cuda().float()  # RT121
        with torch.device("cuda"):
            y = y + torch.ones(4)
        return y.to("cuda:0") + x.new_zeros(4)

    return fn, torch.randn(4)


# ---------------------------------------------------------------------- training


@program
def a_training_step():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-3), capturable=True)

    def step(x, target):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return step, torch.randn(8, 4), torch.randint(0, 2, (8,))


@program
def an_optimizer_that_counts():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()  # RT411
        return loss

    return step, torch.randn(8, 4)


@program
def a_read_in_a_backward():
    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient / gradient.norm().item()  # RT101

    weight = torch.randn(4, requires_grad=True)

    def step(x):
        weight.grad = None
        Clip.apply(x * weight).sum().backward()
        return weight.grad

    return step, torch.randn(4)


@program
def a_scheduler_inside():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()  # RT202
        scheduler.step()  # RT413
        return loss

    return step, torch.randn(8, 4)


# ---------------------------------------------------------------------- nothing wrong


@program
def a_transformer_layer():
    return nn.TransformerEncoderLayer(16, 2, batch_first=True).eval(), torch.randn(2, 5, 16)


@program
def a_recurrent_layer():
    return nn.LSTM(4, 8, batch_first=True), torch.randn(2, 3, 4)


@program
def a_gated_recurrent_layer():
    layer = nn.GRU(4, 8)

    def step(x):
        layer.zero_grad()
        layer(x)[0].sum().backward()
        return layer.weight_hh_l0.grad

    return step, torch.randn(2, 3, 4)


@program
def list_as_an_index():
    def fn(x, table):
        return x[[0, 2]] + x[:, [1]].sum() + table[0]  # RT126

    return fn, torch.randn(3, 4), [1.0]


@program
def a_numpy_array_becomes_a_tensor():
    def fn(x, array):
        return x + torch.as_tensor(array, device=x.device)  # RT123

    return fn, torch.randn(4), numpy.ones(4, dtype=numpy.float32)


@program
def convolutions():
    layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    return layers, torch.randn(2, 3, 8, 8)


@program
def autocast_and_inference_mode():
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 4))

    def fn(x):
        with torch.inference_mode(), torch.autocast("cuda", dtype=torch.bfloat16):
            y = model(x)
        assert y.dtype is torch.bfloat16
        return y.float().softmax(-1)

    return fn, torch.randn(2, 4)


@program
def a_table_that_makes_what_is_read():
    class Maker(dict):
        def __getitem__(self, key):
            return super().__getitem__(key)()

    table = Maker(relu=nn.ReLU)
    return lambda x: table["relu"](x), torch.randn(4)


@program
def compiled():
    return torch.compile(lambda x: x.sin() + 1), torch.randn(4)


# ---------------------------------------------------------------------- host tensors of Python data


@program
def constants_moved_to_the_device():
    def fn(x):
        one = torch.tensor(1.0).to(x)  # RT121
        weights = torch.as_tensor([1.0, 2.0]).to(x.device)  # RT121
        return (x + one) * weights * torch.tensor(0.5)

    return fn, torch.randn(2)


@program
def a_tensor_built_of_tensors():
    def fn(x):
        both = torch.tensor([x.sum(), x.max()], device=x.device)  # RT101 RT124
        return x * both

    return fn, torch.randn(2)


@program
def tensors_in_a_list_of_a_module():
    class Anchors(nn.Module):
        def __init__(self):
            super().__init__()
            self.sizes = [torch.ones(2), torch.ones(2)]  # .to() leaves them on the host

        def forward(self, x):
            return x + torch.stack(self.sizes).to(x.device).sum(0)  # RT121

    return Anchors(), torch.randn(2)


@program
def a_list_made_anew():
    class Cells(nn.Module):
        def __init__(self):
            super().__init__()
            self.sizes, self.pyramid = [torch.ones(2)], None

        def forward(self, x):
            self.sizes = [size.to(x.device) for size in self.sizes]  # RT201, of no importance to the result
            self.pyramid = [x * 2]  # RT201
            return x + self.sizes[0] + self.pyramid[0]

    return Cells(), torch.randn(2)


# ---------------------------------------------------------------------- values that are known


@program
def lengths_of_images():
    def fn(x, grid):
        lengths = torch.repeat_interleave(grid[:, 1] * grid[:, 2], grid[:, 0])  # RT111
        parts = torch.split(x, lengths.tolist())  # RT102
        return torch.cat([part - part.mean(0) for part in parts])

    return fn, torch.randn(10, 3), torch.tensor([[1, 2, 3], [1, 2, 2]])


@program
def a_position_that_is_searched():
    timesteps = torch.linspace(999, 0, 8)

    def fn(x, timestep):
        position = (timesteps == timestep).nonzero().item()  # RT101 RT111
        assert position == 0
        return x * timesteps[position]

    return fn, torch.randn(3), torch.tensor(999.0)


@program
def memory_that_was_pinned_is_given_to_another_tensor():
    def fn(x):
        many = [torch.ones(3).pin_memory() for _ in range(64)]  # RT182
        del many
        return x + torch.ones(3).to("cuda", non_blocking=True)  # RT125

    return fn, torch.randn(3)


@program
def memory_of_a_number_is_given_to_another_tensor():
    def fn(x):
        y = x.clone()
        positive = y > 0
        for _ in range(8):
            y[positive] = 3.0
        y[positive] = y.sum().reshape(1)  # RT111
        return y

    return fn, torch.randn(3)


@program
def an_operation_that_raises_and_is_caught():
    def fn(x):
        try:
            return x.view(5) * 2  # RT209
        except RuntimeError:
            return x.sum() * 3

    return fn, torch.randn(4)


@program
def a_list_of_the_arguments_is_returned():
    def fn(x, states, pair):
        return x + 1, states, pair

    return fn, torch.randn(4), [torch.randn(4)], (torch.randn(4),)


@program
def a_list_that_is_kept_is_returned():
    states = [torch.zeros(4)]

    def fn(x):
        states[0].add_(x)
        return states

    return fn, torch.randn(4)


@program
def a_new_list_of_what_is_kept_is_returned():
    states = [torch.zeros(4)]

    def fn(x, given):
        states[0].add_(x)
        return list(states), list(given)

    return fn, torch.randn(4), [torch.randn(4)]


@program
def an_argument_that_is_emptied():
    def fn(given):  # RT207
        return given.pop("x") + 1

    return fn, {"x": torch.randn(4), "y": torch.randn(4)}


@program
def defaults_that_are_changed():
    def fn(x, seen={}, *, more=[]):  # noqa: B006
        seen[len(seen)] = 1  # RT215
        more.append(2)  # RT215
        return x * 2

    return fn, torch.randn(4)


@program
def a_default_that_keeps_a_tensor():
    def fn(x, keep=[]):  # noqa: B006
        keep.append(x * 2)  # RT215
        return x + 1

    return fn, torch.randn(4)


@program
def a_default_that_is_only_read():
    def fn(x, weights=[1.0, 2.0]):  # noqa: B006
        return x * weights[0] + weights[1]

    return fn, torch.randn(4)


@program
def an_iterator_in_an_attribute():
    class Scheduled(nn.Module):
        def __init__(self):
            super().__init__()
            self.factors = iter([1.0] * 100)
            self.tables = {"a": (n for n in range(100))}

        def forward(self, x):
            factor = next(self.factors)  # RT201
            for _ in self.tables["a"]:  # RT201
                break
            return x * factor

    return Scheduled(), torch.randn(4)


@program
def an_iterator_whose_position_cannot_be_told():
    class Holder:
        named, other = iter(int, 1), iter(int, 1)

    def fn(x):
        return x * (1 + next(Holder.named))  # RT201

    return fn, torch.randn(4)


@program
def tensors_in_globals_and_classes():
    class Tables:
        of_class = torch.ones(4)
        in_a_list = (torch.ones(4),)

    def fn(x):
        return x + Tables.of_class + TABLE + Tables.in_a_list[0]

    return fn, torch.randn(4)


TABLE = torch.ones(4)


@program
def a_change_that_is_taken_back():
    seen, sizes = [], {"a": 1}

    def fn(x):
        seen.append(1)
        sizes["a"] = 2
        seen.pop()
        sizes["a"] = 1
        return x * 2

    return fn, torch.randn(4)


@program
def state_of_a_library():
    def fn(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return x * 2

    return fn, torch.randn(4)


@program
def iterators_of_the_call_itself():
    values = [1.0, 2.0]
    unused = iter(values)

    def fn(x):
        for number, (a, b) in enumerate(zip(values, reversed(values), strict=True)):
            x = x * a + b + number
        return x if unused is not None else x + next(iter(values))

    return fn, torch.randn(4)


@program
def an_iterator_among_the_arguments():
    def fn(x, batches):
        for _ in batches:  # RT201
            return x * 2

    return fn, torch.randn(4), iter([1] * 50)


# ---------------------------------------------------------------------- drawn, built and started on the host


@program
def drawn_by_torch_on_the_host():
    def fn(x):
        if torch.rand(1).item() < 0.5:  # RT204
            return x * 2
        return x * 2

    return fn, torch.randn(4)


@program
def drawn_by_torch_on_the_device():
    def fn(x):
        rows = torch.randint(0, 4, (2,), device=x.device)
        return x[rows] + torch.rand(x.shape, device=x.device)[rows] + torch.randn_like(x)[:2]

    return fn, torch.randn(4, 2)


@program
def rows_chosen_on_the_host():
    def fn(x):
        rows = torch.randint(0, 4, (2,))  # RT204
        return x[rows]  # RT121

    return fn, torch.randn(4, 2)


@program
def indexed_with_an_array():
    rows, columns = numpy.array([0, 2]), numpy.array([True, False])

    def fn(x):
        return x[rows] + x[:, columns][:2]  # RT111 RT126

    return fn, torch.randn(4, 2)


@program
def made_by_new():
    def fn(x):
        y = x.new(2, 3).zero_() + x.new(torch.Size([2, 3])).zero_() + x.new().sum()
        return y + x.new([1.0, 2.0, 3.0])  # RT124

    return fn, torch.randn(2)


@program
def made_by_old_constructors():
    def fn(x):
        y = torch.FloatTensor([1.0, 2.0]).to(x.device)  # RT121
        return x + y + torch.Tensor([1.0, 2.0]).type_as(x)  # RT121

    return fn, torch.randn(2)


@program
def threads_that_a_call_starts():
    def fn(x):
        found = []
        thread = threading.Thread(target=lambda: found.append(x.sum().item()))  # RT101
        thread.start()  # RT137
        thread.join()
        with ThreadPoolExecutor(1) as pool:
            halves = list(pool.map(torch.exp, x.chunk(2)))  # RT137
        return torch.cat(halves) * found[0]

    return fn, torch.randn(4)


@program
def a_checkpoint_that_keeps_the_random_state():
    layer = nn.Linear(4, 4)

    def fn(x):
        y = checkpoint(layer, x, use_reentrant=False)  # RT208
        y = y + checkpoint(layer, x, use_reentrant=False, preserve_rng_state=False)
        return y.sum()

    return fn, torch.randn(2, 4)


@program
def lengths_of_a_ctc_loss():
    def fn(scores, targets, ends, lengths):
        loss = F.ctc_loss(scores, targets, ends, lengths)  # RT111
        loss.backward()
        return loss.detach()

    scores = torch.randn(8, 2, 5).log_softmax(-1).requires_grad_()
    return fn, scores, torch.ones(2, 3, dtype=torch.long), torch.tensor([8, 8]), torch.tensor([3, 3])


@program
def a_window_that_is_checked():
    def fn(x, window):
        spectrum = torch.stft(x, 16, window=window, return_complex=True)
        return torch.istft(spectrum, 16, window=window)  # RT101

    return fn, torch.randn(64), torch.hann_window(16)


@program
def padding_checked_by_an_encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1).eval()

    def fn(x, padding):
        with torch.no_grad():
            return encoder(x, src_key_padding_mask=padding)  # RT101

    return fn, torch.randn(2, 4, 8), torch.tensor([[False] * 4, [False, False, True, True]])


@program
def a_rate_made_of_a_count():
    layer, state = nn.Linear(3, 1), {"step": 0}
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def fn(x):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * (state["step"] + 1) / 100  # RT201
        state["step"] += 1  # RT201
        optimizer.zero_grad()
        layer(x).sum().backward()
        optimizer.step()  # RT202

    return fn, torch.randn(3)


@program
def indexed_in_inference_mode():
    layer = nn.Linear(4, 4)

    @torch.inference_mode()
    def fn(x):
        y = layer(x)[..., 0]
        return y[1:].clone(), y[y > 0]  # RT111

    return fn, torch.randn(4, 4)


@program
def host_data_in_transforms():
    def energy(a):
        table = torch.tensor([1.0, 2.0, 3.0], device=a.device)  # RT124
        return (a**3 * table).sum()

    def fn(x):
        curvature = torch.func.hessian(energy)(x[0])
        slopes = torch.func.vmap(torch.func.grad(energy))(x)
        pushed = torch.func.jvp(energy, (x[0],), (x[1],))[1]
        return curvature, slopes, pushed, torch.func.jacfwd(torch.sin)(x[0])

    return fn, torch.randn(2, 3)
