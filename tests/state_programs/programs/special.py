"""Classes of error of their own: backwards that read state, settings, operators past the dispatcher."""

from __future__ import annotations

import gc
import types
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from tests.footguns.case import Wrap, attempt, full
from tests.state_programs.program import item, put, state, turns
from torch import nn

Items = Iterator[Any]
BACKWARD = types.SimpleNamespace(k=1.5)


class ScaledBackward(torch.autograd.Function):
    """Its backward reads a module global."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0] * BACKWARD.k


class Configured(torch.autograd.Function):
    """Its backward reads an object that forward put into the context."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, cfg: Any) -> torch.Tensor:
        ctx.cfg = cfg
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return grads[0] * ctx.cfg.k, None


class Counting(torch.autograd.Function):
    """Its backward writes to the context."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.n = 0
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        ctx.n += 1
        return grads[0] * ctx.n


class Forgetting(torch.autograd.Function):
    """Its backward empties the context."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.k = 1.5
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        out = grads[0] * ctx.k
        ctx.k = None
        return out


def walked(g: Any, device: torch.device, *changes: Any) -> Items:
    """Forward and backward, several times, and after each change; yields the gradients."""
    for change in (None, *changes):
        if change is not None:
            change()
        for number in range(4):
            x = full(number + 1, device).requires_grad_()
            y = g(x)
            found = attempt(lambda y=y: y.sum().backward())
            yield y, x.grad, found


@state("classes")
def backward_reads_a_global(wrap: Wrap, device: torch.device) -> Items:
    """A backward reads an attribute of a module global."""
    BACKWARD.k = 1.5
    yield from walked(wrap(lambda x: ScaledBackward.apply(x)), device, put(BACKWARD, k=2.5))


@state("classes")
def backward_reads_its_context(wrap: Wrap, device: torch.device) -> Items:
    """A backward reads an attribute of an object in its context."""
    cfg = types.SimpleNamespace(k=1.5)
    yield from walked(wrap(lambda x: Configured.apply(x, cfg)), device, put(cfg, k=2.5))


@state("classes")
def backward_counts_in_its_context(wrap: Wrap, device: torch.device) -> Items:
    """``ctx.n += 1`` in a backward: each forward has a context of its own."""
    yield from walked(wrap(lambda x: Counting.apply(x)), device)


@state("classes")
def backward_empties_its_context(wrap: Wrap, device: torch.device) -> Items:
    """``ctx.k = None`` in a backward."""
    yield from walked(wrap(lambda x: Forgetting.apply(x)), device)


@state("classes")
def backward_twice(wrap: Wrap, device: torch.device) -> Items:
    """Two backwards through one forward, whose backward counts."""
    g = wrap(lambda x: Counting.apply(x))
    for number in range(5):
        x = full(number, device).requires_grad_()
        y = g(x).sum()
        y.backward(retain_graph=True)
        y.backward()
        yield y, x.grad


@state("classes")
def backward_hook_reads_state(wrap: Wrap, device: torch.device) -> Items:
    """A hook on a tensor inside reads state when the backward comes."""
    o = types.SimpleNamespace(k=1.5)

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.register_hook(lambda grad: grad * o.k)
        return y * 3

    yield from walked(wrap(fn), device, put(o, k=2.5))


@state("classes")
def backward_inside_reads_state(wrap: Wrap, device: torch.device) -> Items:
    """Forward and backward inside; the function's backward reads a global."""
    BACKWARD.k = 1.5

    def fn(x: torch.Tensor) -> torch.Tensor:
        leaf = x.detach().clone().requires_grad_()
        return torch.autograd.grad(ScaledBackward.apply(leaf).sum(), leaf)[0]

    yield from turns(wrap(fn), device, put(BACKWARD, k=2.5))


@state("classes")
def hook_on_a_parameter(wrap: Wrap, device: torch.device) -> Items:
    """A hook on a parameter is registered after some steps."""
    p, held = nn.Parameter(full(1, device)), []

    def fn(x: torch.Tensor) -> torch.Tensor:
        p.grad = None
        (x * p).sum().backward()
        return p.grad * 1

    add = lambda: held.append(p.register_hook(lambda grad: grad * 3))  # noqa: E731
    yield from turns(wrap(fn), device, add, lambda: held[0].remove())


@state("classes")
def ctc_loss_with_numbers(wrap: Wrap, device: torch.device) -> Items:
    """``F.ctc_loss`` with lengths as Python numbers."""
    torch.manual_seed(0)
    targets = torch.tensor([[1, 2], [2, 1]], device=device)
    base = torch.randn(5, 2, 4, device=device)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.ctc_loss((base * x[0]).log_softmax(-1), targets, (5, 5), (2, 2))

    yield from turns(wrap(fn), device, lambda: targets.fill_(3))


@state("classes")
def operator_without_tensors(wrap: Wrap, device: torch.device) -> Items:
    """``torch.can_cast`` and ``promote_types`` of types that are state."""
    o = types.SimpleNamespace(kind=torch.float32)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * (1.5 if torch.can_cast(o.kind, torch.int64) else 2.5)

    yield from turns(wrap(fn), device, put(o, kind=torch.int32))


@state("classes")
def conditional_operator(wrap: Wrap, device: torch.device) -> Items:
    """``torch.cond`` over a flag on the device."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 10, lambda v: v * 2.5, lambda v: v * 1.5, (x,))

    yield from turns(wrap(fn), device, before=7)


@state("classes")
def generator_made_inside(wrap: Wrap, device: torch.device) -> Items:
    """A generator is made and seeded from state in each call."""
    o = types.SimpleNamespace(seed=3)

    def fn(x: torch.Tensor) -> torch.Tensor:
        gen = torch.Generator(x.device).manual_seed(o.seed)
        return x + torch.randn(4, generator=gen, device=x.device)

    yield from turns(wrap(fn), device, put(o, seed=5), put(o, seed=3))


@state("classes")
def storage_byte_written(wrap: Wrap, device: torch.device) -> Items:
    """A byte of a storage is read inside."""
    t = torch.tensor([1, 2, 3], dtype=torch.uint8, device=device)
    yield from turns(wrap(lambda x: x * t.untyped_storage()[1]), device, lambda: t.fill_(7))


@state("classes")
def collector_switched_inside(wrap: Wrap, device: torch.device) -> Items:
    """``gc.disable()`` inside is there after the call."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        gc.disable()
        return x * 2

    try:
        yield from turns(wrap(fn), device, gc.enable, watch=gc.isenabled)
    finally:
        gc.enable()


@state("classes")
def detached_in_place(wrap: Wrap, device: torch.device) -> Items:
    """``x.detach_()`` on an argument."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        x.detach_()
        return x * 2

    g, w = wrap(fn), full(1, device).requires_grad_()
    for number in range(6):
        x = w * (number + 1)
        yield g(x), x.requires_grad


@state("classes")
def requires_gradient_inside(wrap: Wrap, device: torch.device) -> Items:
    """``x.requires_grad_()`` on an argument."""
    g = wrap(lambda x: (x.requires_grad_(), x.detach() * 2)[1])
    for number in range(6):
        x = full(number, device)
        yield g(x), x.requires_grad


@state("classes")
def inference_mode_left_inside(wrap: Wrap, device: torch.device) -> Items:
    """``inference_mode(False)`` inside inference mode."""
    o = types.SimpleNamespace(k=1.5)

    def fn(x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode(False):
            y = torch.full((4,), o.k, device=device)
        return x * y

    g = wrap(fn)
    with torch.inference_mode():
        yield from turns(g, device, put(o, k=2.5))


@state("classes")
def view_of_a_parameter(wrap: Wrap, device: torch.device) -> Items:
    """A view of a parameter is returned under ``no_grad``; which one is state."""
    p = nn.Parameter(torch.arange(8.0, device=device))
    o = types.SimpleNamespace(start=0)
    g = wrap(lambda x: p[o.start : o.start + 4])
    with torch.no_grad():
        yield from turns(g, device, put(o, start=4), lambda: p.mul_(2))


@state("classes")
def process_group(wrap: Wrap, device: torch.device) -> Items:
    """``dist.is_initialized()`` decides."""
    dist = torch.distributed
    before = dist.is_initialized
    try:
        g = wrap(lambda x: x * (2.5 if dist.is_available() and dist.is_initialized() else 1.5))
        yield from turns(g, device, put(dist, is_initialized=lambda: True))
    finally:
        dist.is_initialized = before


@state("classes")
def custom_operator_reads_settings(wrap: Wrap, device: torch.device) -> Items:
    """A custom operator whose Python reads settings."""
    cfg = {"k": 1.5}
    with torch.library._scoped_library("state_programs", "FRAGMENT") as library:
        library.define("scaled(Tensor x) -> Tensor")
        library.impl("scaled", lambda x: x * cfg["k"], "CompositeExplicitAutograd")
        yield from turns(wrap(lambda x: torch.ops.state_programs.scaled(x)), device, item(cfg, "k", 2.5))


@state("classes")
def saved_tensor_hooks_around(wrap: Wrap, device: torch.device) -> Items:
    """Hooks on saved tensors around the call, with a factor that changes."""
    o = types.SimpleNamespace(k=1.0)
    p = full(2, device).requires_grad_()
    g = wrap(lambda x: (x * p * p).sum())
    for k in (1.0, 1.0, 1.0, 2.0, 2.0):
        o.k, p.grad = k, None
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t * o.k):
            y = g(full(1, device))
            y.backward()
        yield y, p.grad


@state("classes")
def optimizer_settings(wrap: Wrap, device: torch.device) -> Items:
    """The learning rate and the momentum of an optimizer inside."""
    p = nn.Parameter(full(1, device))
    opt = torch.optim.SGD([p], lr=0.1)

    def fn(x: torch.Tensor) -> torch.Tensor:
        opt.zero_grad()
        loss = (x * p).sum()
        loss.backward()
        opt.step()
        return loss.detach()

    rate, momentum = item(opt.param_groups[0], "lr", 0.5), item(opt.param_groups[0], "momentum", 0.9)
    yield from turns(wrap(fn), device, rate, momentum, watch=lambda: p.detach().clone())


@state("classes")
def parameter_group_added(wrap: Wrap, device: torch.device) -> Items:
    """A parameter is added to an optimizer inside."""
    p, q = nn.Parameter(full(1, device)), nn.Parameter(full(2, device))
    opt = torch.optim.SGD([p], lr=0.1)

    def fn(x: torch.Tensor) -> torch.Tensor:
        opt.zero_grad()
        loss = (x * p + q).sum()
        loss.backward()
        opt.step()
        return loss.detach()

    add = lambda: opt.add_param_group({"params": [q]})  # noqa: E731
    yield from turns(wrap(fn), device, add, watch=lambda: (p.detach().clone(), q.detach().clone()))


@state("classes")
def scripted_function(wrap: Wrap, device: torch.device) -> Items:
    """An attribute of a scripted module is written."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.k = 1.5

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.k

    m = torch.jit.script(Net())
    yield from turns(wrap(lambda x: m(x)), device, put(m, k=2.5))


@state("classes")
def operator_with_an_integer_result(wrap: Wrap, device: torch.device) -> Items:
    """A custom operator that returns a tensor and an integer, and one that returns a flag."""
    cfg = {"k": 1}
    with torch.library._scoped_library("state_programs_b", "FRAGMENT") as library:
        library.define("counted(Tensor x) -> (Tensor, int)")
        library.define("asked(Tensor x) -> bool")
        library.impl("counted", lambda x: (x * 2, cfg["k"]), "CompositeExplicitAutograd")
        library.impl("asked", lambda x: cfg["k"] > 2, "CompositeExplicitAutograd")
        ops = torch.ops.state_programs_b

        def fn(x: torch.Tensor) -> torch.Tensor:
            y, k = ops.counted(x)
            return y * k if ops.asked(x) else y + k

        yield from turns(wrap(fn), device, item(cfg, "k", 2), item(cfg, "k", 5))


@state("classes")
def custom_operator_counts(wrap: Wrap, device: torch.device) -> Items:
    """A custom operator whose Python counts its calls."""
    seen: list[int] = []
    with torch.library._scoped_library("state_programs_c", "FRAGMENT") as library:
        library.define("noted(Tensor x) -> Tensor")
        library.impl("noted", lambda x: (seen.append(1), x * 2)[1], "CompositeExplicitAutograd")
        g = wrap(lambda x: torch.ops.state_programs_c.noted(x))
        yield from turns(g, device, seen.clear, watch=lambda: len(seen))


@state("classes")
def registered_backward_reads_a_closure(wrap: Wrap, device: torch.device) -> Items:
    """The backward that ``register_autograd`` was given reads a variable around it."""
    o = types.SimpleNamespace(k=1.5)
    with torch.library._scoped_library("state_programs_d", "FRAGMENT") as library:
        library.define("doubled(Tensor x) -> Tensor")
        library.impl("doubled", lambda x: x * 2, "CompositeExplicitAutograd")
        torch.library.register_autograd(
            "state_programs_d::doubled", lambda ctx, grad: grad * o.k, lib=library
        )
        yield from walked(wrap(lambda x: torch.ops.state_programs_d.doubled(x)), device, put(o, k=2.5))


@state("classes")
def number_kept_for_a_backward(wrap: Wrap, device: torch.device) -> Items:
    """``ctx.k = o.k`` in a forward, and another number in each call."""
    o = types.SimpleNamespace(k=0.0)

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.k = o.k * 2
            return x * o.k

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
            return grads[0] * ctx.k

    g = wrap(lambda x: Scaled.apply(x))
    for number in range(12):
        o.k = float(number)
        x = full(number, device).requires_grad_()
        g(x).sum().backward()
        yield x.grad


@state("classes")
def gradient_of_another_type(wrap: Wrap, device: torch.device) -> Items:
    """A parameter is made wider while it has a gradient."""
    weight = torch.nn.Parameter(full(2, device))
    g = wrap(lambda x: (weight * x.to(weight.dtype)).sum())
    for number in range(12):
        if number == 6:
            weight.data = weight.data.double()
        found = g(full(number, device))
        yield found, attempt(found.backward) is None, weight.grad
