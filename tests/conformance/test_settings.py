"""Settings of PyTorch that a call asks for are conditions, and what tells of the process is refused."""

from __future__ import annotations

import ctypes
import os
from functools import partial
from itertools import cycle

import pytest
import torch

import rote
from rote.testing import assert_same

SETTINGS = {
    "threads": (torch.get_num_threads, torch.set_num_threads, 2),
    "warn always": (torch.is_warn_always_enabled, torch.set_warn_always, True),
    "autocast dtype": (
        lambda: torch.get_autocast_dtype("cpu") is torch.float16,
        lambda on: torch.set_autocast_dtype("cpu", torch.float16 if on else torch.bfloat16),
        True,
    ),
    "autocast cache": (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, False),
    "nnpack": (torch._C._get_nnpack_enabled, torch._C._set_nnpack_enabled, False),
    "grad": (torch.is_grad_enabled, torch.set_grad_enabled, False),
}


@pytest.mark.parametrize(("ask", "put", "other"), SETTINGS.values(), ids=SETTINGS)
def test_a_setting_is_a_condition(device, ask, put, other):
    was = ask()
    g = rote.graph(lambda x: x * (1 + int(ask())), keep=True)
    x = torch.ones(3, device=device)
    try:
        for n in range(12):
            put(other if 4 <= n < 8 else was)
            assert_same(g(x), x * (1 + int(ask())))
    finally:
        put(was)
    assert g.report().replayed == 8


REFUSED = {
    "a setting is changed": (lambda: torch.set_warn_always(False), "changes a setting of the process"),
    "keys of dispatch": (
        lambda: torch._C._dispatch_tls_local_include_set(),
        "tells of modes and keys by which PyTorch dispatches",
    ),
    "unknown": (lambda: torch._C._tensor_impl_raw_handle(torch.ones(1)), "of which nothing is known"),
}


@pytest.mark.parametrize(("use", "text"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_known_is_refused(device, use, text):
    g = rote.graph(lambda x: (use(), x + 1)[1])
    for _ in range(6):
        g(torch.ones(3, device=device))
    report = g.report()
    assert report.replayed == 0
    assert any(reason.code == "RT218" and text in reason.message for reason in report.reasons)


def test_a_property_of_an_object_of_pybind(device):
    """What gives it has no name; what it gives is compared."""
    config = torch._C.BenchmarkConfig()
    config.num_iters = 1
    g = rote.graph(lambda x: x * config.num_iters)
    for n in range(10):
        config.num_iters = 1 if n < 5 else 3
        x = torch.ones(3, device=device)
        assert_same(g(x), x * config.num_iters)
    assert g.report().replayed >= 4, g.explain()


SET = {
    "autocast dtype": (
        partial(torch.set_autocast_dtype, "cpu"), partial(torch.get_autocast_dtype, "cpu"),
        torch.bfloat16, torch.float16,
    ),
    "autocast cache": (torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled, True, False),
    "deterministic": (
        lambda only: torch._C._set_deterministic_algorithms(False, warn_only=only),
        torch._C._get_deterministic_algorithms_warn_only, False, True,
    ),
    "order of kernels": (
        torch._C._set_sdp_priority_order, torch._C._get_sdp_priority_order, [1, 2, 0, 3, 4], [2, 1, 0, 3, 4],
    ),
    "precision": (
        partial(torch._C._set_fp32_precision_setter, "mkldnn", "matmul"),
        partial(torch._C._get_fp32_precision_getter, "mkldnn", "matmul"), "none", "ieee",
    ),
    "forward mode": (torch._C._set_fwd_grad_enabled, torch._C._is_fwd_grad_enabled, True, False),
    "views": (torch._C._set_view_replay_enabled, torch._C._is_view_replay_enabled, False, True),
}  # fmt: skip


@pytest.mark.parametrize("back", [True, False])
@pytest.mark.parametrize("name", SET)
def test_a_setting_that_a_call_leaves_changed_is_changed(device, name, back):
    put, ask, was, other = SET[name]

    def fn(x):
        put(other)
        y = x * 2
        if back:
            put(was)
        return y

    g = rote.graph(fn, keep=True)
    x = torch.ones(3, device=device)
    try:
        for _ in range(8):
            put(was)
            assert_same(g(x), x * 2)
            assert ask() == (was if back else other)
    finally:
        put(was)
    assert (g.report().replayed > 0) is back


@pytest.mark.parametrize("values", ["a", "ab", "aab"])
@pytest.mark.parametrize("way", ["item", "update", "pop", "default"])
def test_a_variable_of_the_process_is_what_os_environ_has(device, values, way, monkeypatch):
    """A replay sets none; what ``os.environ`` has is what other programs and C get."""
    name = "ROTE_TEST_OF_SETTINGS"
    monkeypatch.setenv(name, "before")
    get = ctypes.CDLL(None).getenv
    get.restype = ctypes.c_char_p
    given = cycle(values)

    def fn(x, value):
        if way == "item":
            os.environ[name] = value
        elif way == "update":
            os.environ.update({name: value})
        elif way == "pop":
            os.environ.pop(name, None)
        else:
            os.environ.setdefault(name, value)
        return x * 2

    g = rote.graph(fn, keep=True)
    for n in range(12):
        if n == 9:
            os.environ[name] = "outside"
        g(torch.ones(3, device=device), next(given))
        assert get(name.encode()) == (os.environ[name].encode() if name in os.environ else None)
    if way in ("pop", "default") or "b" not in values:
        assert g.report().replayed > 0
