"""Streams, events, copies between host and device, and what code asks a GPU."""

from __future__ import annotations

from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.utils.dlpack import from_dlpack, to_dlpack

from .program import Made, batches, frozen, mlp, normal, program


def host_rows() -> tuple[Tensor]:
    """Eight rows in the host's memory."""
    return (torch.randn(8, 64),)


@program(gpu_alone=True)
def ranges_for_a_profiler(device: torch.device) -> Made:
    """Ranges of NVTX around parts of a forward."""
    model = mlp(device)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        torch.cuda.nvtx.range_push("forward")
        y = model(x)
        torch.cuda.nvtx.range_pop()
        with torch.cuda.nvtx.range("after"):
            return y.relu()

    return Made(forward, batches(device))


@program()
def function_recorded_for_a_profiler(device: torch.device) -> Made:
    """A forward that has a name in profiles."""
    model = mlp(device)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        with torch.profiler.record_function("forward"):
            return model(x)

    return Made(forward, batches(device))


@program(gpu_alone=True)
def events_around_a_forward(device: torch.device) -> Made:
    """Events with times, recorded before and after a forward."""
    model = mlp(device)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        y = model(x)
        after.record()
        return y

    return Made(forward, batches(device))


@program(gpu_alone=True)
def two_streams(device: torch.device) -> Made:
    """One of two models runs on a stream of its own, and its result is used on the other."""
    first, second, side = mlp(device), mlp(device), torch.cuda.Stream()

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            aside = first(x)
        here = second(x)
        torch.cuda.current_stream().wait_stream(side)
        aside.record_stream(torch.cuda.current_stream())
        return aside + here

    return Made(forward, batches(device))


@program(gpu_alone=True)
def new_stream_for_each_call(device: torch.device) -> Made:
    """Each call makes the stream that it runs on."""
    model = mlp(device)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = model(x)
        torch.cuda.current_stream().wait_stream(side)
        return y * 2

    return Made(forward, batches(device))


@program(gpu_alone=True)
def device_waited_for(device: torch.device) -> Made:
    """A forward that waits for the device in its middle."""
    model = mlp(device)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        y = model(x)
        torch.cuda.synchronize()
        return y + 1

    return Made(forward, batches(device))


@program()
def there_and_back(device: torch.device) -> Made:
    """An input of the host goes to the device, and the result comes back."""
    model = mlp(device)
    return Made(frozen(lambda x: model(x.to(device, non_blocking=True)).cpu()), host_rows)


@program(gpu_alone=True)
def pinned_inside(device: torch.device) -> Made:
    """The call pins its input before it copies it."""
    model = mlp(device)
    return Made(frozen(lambda x: model(x.pin_memory().to(device, non_blocking=True))), host_rows)


@program()
def policy_for_numpy(device: torch.device) -> Made:
    """A policy that takes an observation of numpy and gives actions of numpy."""
    model = mlp(device)

    @torch.no_grad()
    def act(observation: Any) -> Any:
        x = torch.as_tensor(observation, device=device, dtype=torch.float32)
        return model(x).argmax(-1).cpu().numpy()

    return Made(act, lambda: (numpy.random.randn(8, 64),))


@program(gpu_alone=True)
def next_batch_fetched_ahead(device: torch.device) -> Made:
    """Each call computes with the batch before, and copies its own on another stream."""
    model, side, kept = mlp(device), torch.cuda.Stream(), dict[str, Any](next=None)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        current = kept["next"]
        with torch.cuda.stream(side):
            kept["next"] = x.to(device, non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        return model(current if current is not None else kept["next"])

    return Made(forward, lambda: (torch.randn(8, 64).pin_memory(),))


@program()
def layer_on_the_host(device: torch.device) -> Made:
    """Between two models a layer runs on the host."""
    first, second, between = mlp(device), mlp(device), nn.Linear(64, 64)
    return Made(frozen(lambda x: second(between(first(x).cpu()).to(device))), batches(device))


@program(replays=False, code="RT218", gpu_alone=True)
def most_memory_asked(device: torch.device) -> Made:
    """The call asks how much memory was in use at most."""
    model = mlp(device)
    return Made(frozen(lambda x: model(x) * (torch.cuda.max_memory_allocated() >= 0)), batches(device))


@program(gpu_alone=True)
def capabilities_asked(device: torch.device) -> Made:
    """A branch on what the device can do."""
    model = mlp(device)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        recent = torch.cuda.is_available() and torch.cuda.get_device_capability(x.device)[0] >= 8
        if recent and torch.cuda.current_device() == x.device.index and torch.cuda.is_bf16_supported():
            x = x.bfloat16().float()
        return model(x)

    return Made(forward, batches(device))


@program(gpu_alone=True)
def device_of_the_input(device: torch.device) -> Made:
    """The call makes the device of its input the current one."""
    model = mlp(device)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        with torch.cuda.device(x.device):
            return model(x)

    return Made(forward, batches(device))


@program(gpu_alone=True)
def cache_emptied(device: torch.device) -> Made:
    """The call frees the memory that is not in use."""
    model = mlp(device)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        y = model(x)
        torch.cuda.empty_cache()
        return y + 1

    return Made(forward, batches(device))


@program(replays=False, code="RT206")
def through_dlpack(device: torch.device) -> Made:
    """A result goes through DLPack and comes back."""
    model = mlp(device)
    return Made(frozen(lambda x: from_dlpack(to_dlpack(model(x))) * 2), batches(device))


@program()
def address_asserted(device: torch.device) -> Made:
    """The address of a result is asserted to be aligned."""
    model = mlp(device)

    @torch.no_grad()
    def forward(x: Tensor) -> Tensor:
        y = model(x)
        assert y.data_ptr() % 16 == 0
        return y * 2

    return Made(forward, batches(device))


@program(replays=False, code="RT803", gpu_alone=True)
def one_device_in_parallel(device: torch.device) -> Made:
    """A model in DataParallel with one device."""
    return Made(frozen(nn.DataParallel(mlp(device), device_ids=[0])), batches(device))


@program(replays=False, code="RT218", gpu_alone=True)
def graphed_callable_inside(device: torch.device) -> Made:
    """A model that make_graphed_callables has made runs inside."""
    sample = normal(device).requires_grad_()
    model = torch.cuda.make_graphed_callables(mlp(device), (sample,))
    return Made(frozen(lambda x: model(x) * 2), batches(device))


class OwnGraph:
    """A graph of the program's own, captured at once or in the first call."""

    def __init__(self, device: torch.device) -> None:
        self.model, self.graph = mlp(device), torch.cuda.CUDAGraph()
        self.given = self.result = normal(device)
        self.captured = False

    @torch.no_grad()
    def capture(self) -> None:
        """Warm up on another stream, and capture."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.model(self.given)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(self.graph):
            self.result = self.model(self.given)
        self.captured = True

    def __call__(self, x: Tensor) -> Tensor:
        """Fill the input, replay, and hand out a copy."""
        if not self.captured:
            self.capture()
        self.given.copy_(x)
        self.graph.replay()
        return self.result.clone()


@program(replays=False, code="RT218", gpu_alone=True)
def graph_of_its_own(device: torch.device) -> Made:
    """The call replays a graph that was captured by hand."""
    own = OwnGraph(device)
    own.capture()
    return Made(lambda x: own(x), batches(device))


@program(replays=False, code="RT218", gpu_alone=True)
def graph_of_its_own_in_the_first_call(device: torch.device) -> Made:
    """The first call captures a graph by hand, and all replay it."""
    own = OwnGraph(device)
    return Made(lambda x: own(x), batches(device))
