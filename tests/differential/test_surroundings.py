"""What is around a call: modes, transforms, tracers, profilers, seeds, caught errors."""

from __future__ import annotations

import contextlib
import sys
import warnings

import torch
from tests.differential.harness import attempt, check, drive, full
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode


class Count(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_seed_inside():
    def scenario(wrap):
        def fn(x):
            torch.manual_seed(3)
            return x + torch.randn(4)

        yield from drive(wrap(fn))

    check(scenario)


def test_default_device():
    def scenario(wrap):
        g = wrap(lambda: torch.ones(3) * 2)
        for _ in range(5):
            yield g()
        with torch.device("meta"):
            yield g()

    check(scenario)


def test_forward_mode_gradients():
    def scenario(wrap):
        g = wrap(lambda x: x * x)
        for i in range(5):
            yield g(full(i))
        with forward_ad.dual_level():
            yield forward_ad.unpack_dual(g(forward_ad.make_dual(full(3), full(1)))).tangent

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".torch.jit.script. is deprecated")
        check(scenario)


def test_dispatch_mode():
    def scenario(wrap):
        g = wrap(lambda x: x * 2)
        for i in range(5):
            yield g(full(i))
        with Count() as count:
            yield g(full(3))
        yield count.names

    check(scenario)


def test_make_fx():
    def scenario(wrap):
        g = wrap(lambda x: x * 2)
        for i in range(5):
            yield g(full(i))
        yield make_fx(g)(full(0))(full(5))

    check(scenario)


def test_jit_trace():
    """A traced module has the operations, and no result of a replay as a constant."""

    def scenario(wrap):
        w = full(3)
        g, h = wrap(lambda x: x * 2), wrap(lambda: w * 2)
        for i in range(5):
            yield g(full(i)), h()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(lambda x: g(x) + h(), (full(0),))
        w.add_(1)
        yield traced(full(5)), traced(full(6))
        yield g(full(7)), h()

    check(scenario)


def test_transforms_around_arguments_that_they_do_not_wrap():
    """Such an argument looks as it does without the transform."""

    def scenario(wrap):
        x, seen = full(3), []
        g, h = wrap(lambda x: x * 2), wrap(lambda: x + 1)
        for _ in range(5):
            yield g(x), h()

        def inner(y):
            with Count() as count:
                seen.extend([g(x), h()])
            seen.append(count.names)
            seen.extend([g(x), h()])
            return (y * seen[-1].sum()).sum()

        yield torch.vmap(inner)(torch.ones(3, 4))
        yield torch.func.grad(inner)(full(2))
        yield torch.func.jvp(inner, (full(2),), (full(1),))
        yield torch.func.functionalize(inner)(full(2))
        yield seen
        yield g(x), h()

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".torch.jit.script. is deprecated")
        check(scenario)


def test_precision_by_its_newer_names():
    """With these set, the older ones raise."""

    def scenario(wrap):
        w = torch.rand(4, 4, generator=torch.Generator().manual_seed(0))
        g = wrap(lambda x: x @ w)
        names = [torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn]
        for i in range(5):
            yield g(full(i))
        for owner in names:
            was = owner.fp32_precision
            for value in ("tf32", "ieee"):
                owner.fp32_precision = value
                try:
                    yield [g(full(i)) for i in range(5)]
                finally:
                    owner.fp32_precision = was
            yield g(full(7))

    check(scenario)


def test_compile():
    def scenario(wrap):
        torch._dynamo.reset()
        g = wrap(lambda x: x * 2)
        for i in range(5):
            yield g(full(i))
        yield attempt(torch.compile(lambda x: g(x) + 1, backend="eager"), full(5))

    check(scenario)
    torch._dynamo.reset()


def test_vmap_and_grad():
    def scenario(wrap):
        yield attempt(torch.vmap(wrap(lambda x: x * x.sum())), torch.ones(3, 4))
        yield attempt(torch.func.grad(wrap(lambda x: (x * x).sum())), full(2))

    check(scenario)


def test_grad_mode_left_changed():
    def scenario(wrap):
        def fn(x):
            torch.set_grad_enabled(False)
            return x * 2

        g = wrap(fn)
        try:
            for i in range(6):
                yield g(full(i))
                yield torch.is_grad_enabled()
                torch.set_grad_enabled(True)
        finally:
            torch.set_grad_enabled(True)

    check(scenario)


def test_global_changed_under_a_profiler():
    def scenario(wrap):
        names = {"K": 1.0}
        exec("def helper(x): return x * K\ndef fn(x): return helper(x)", names)
        g, before = wrap(names["fn"]), sys.getprofile()
        for i in range(10):
            if i == 6:
                names["K"] = 5.0
            sys.setprofile(lambda *event: None)
            try:
                found = g(full(i))
            finally:
                sys.setprofile(before)
            yield found

    check(scenario)


def test_error_caught_before_a_branch():
    def scenario(wrap):
        def fn(x):
            with contextlib.suppress(RuntimeError):
                x = x.view(3, 7)
            return x * 2 if x.sum() > 10 else x * 3

        g = wrap(fn)
        for value in [0, 0, 0, 0, 5, 5]:
            yield attempt(g, full(value))

    check(scenario)


def _autocast_type(on: bool) -> None:
    torch.set_autocast_dtype("cpu", torch.float16 if on else torch.bfloat16)


def test_settings_that_are_read_inside():
    def scenario(wrap):
        def fn(x):
            with torch.autocast("cpu"):
                return x @ x

        try:
            yield from drive(
                wrap(fn), args=lambda i: (torch.randn(4, 4),), change=lambda: _autocast_type(True)
            )
        finally:
            _autocast_type(False)

    check(scenario)
