"""PyTorch's global switches as words of memory: every change shows; what is not known is asked by name."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

import rote
from rote.runtime.arguments import switches
from rote.runtime.arguments.switches import Switches, read_switches
from rote.runtime.fingerprint import NOTHING
from rote.runtime.pytorch import ACCESSORS, place_of_switches
from rote.runtime.pytorch import torch_private as compat


def backend(name, values=(True, False)):
    """Sets an attribute below ``torch.backends``."""
    *path, last = name.split(".")

    def owner():
        found = torch.backends
        for part in path:
            found = getattr(found, part)
        return found

    return lambda: getattr(owner(), last), lambda value: setattr(owner(), last, value), values


PRECISIONS = ("tf32", "ieee")
SETTINGS = {
    "cudnn": backend("cudnn.enabled"),
    "cudnn benchmark": backend("cudnn.benchmark"),
    "cudnn deterministic": backend("cudnn.deterministic"),
    "cudnn tf32": backend("cudnn.allow_tf32"),
    "matmul tf32": backend("cuda.matmul.allow_tf32"),
    "matmul precision": backend("cuda.matmul.fp32_precision", PRECISIONS),
    "conv precision": backend("cudnn.conv.fp32_precision", PRECISIONS),
    "rnn precision": backend("cudnn.rnn.fp32_precision", PRECISIONS),
    "fp16 sums": backend("cuda.matmul.allow_fp16_reduced_precision_reduction"),
    "bf16 sums": backend("cuda.matmul.allow_bf16_reduced_precision_reduction"),
    "mkldnn": (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled, (True, False)),
    "flash": (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp, (True, False)),
    "efficient": (
        torch.backends.cuda.mem_efficient_sdp_enabled,
        torch.backends.cuda.enable_mem_efficient_sdp,
        (True, False),
    ),
    "math": (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp, (True, False)),
    "cudnn attention": (
        torch.backends.cuda.cudnn_sdp_enabled,
        torch.backends.cuda.enable_cudnn_sdp,
        (True, False),
    ),
    "deterministic": (
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
        (True, False),
    ),
}


def same(held):
    read, where, were = held.words
    return read(where).tobytes() == were


@pytest.fixture
def changed(request):
    """Changes one setting to each of its values, and back."""
    get, put, values = SETTINGS[request.param]
    before, was = read_switches(), get()

    def each():
        for value in values:
            put(value)
            yield read_switches() != before
            put(was)

    yield each
    put(was)


@pytest.mark.parametrize("changed", sorted(SETTINGS), indirect=True)
def test_a_change_by_name_shows_in_the_words(changed):
    """Words may differ where the names say the same: who asks them then asks by name."""
    assert Switches.readable(), "the switches are not where this PyTorch was thought to have them"
    held = Switches(read_switches())
    assert held.holds() and same(held)
    shown = []
    for differs in changed():
        shown.append(differs)
        assert not (differs and same(held)) and Switches(held._values).holds() != differs
    assert any(shown) and held.holds() and same(held)


@pytest.mark.parametrize("changed", sorted(SETTINGS), indirect=True)
@pytest.mark.parametrize("known", [True, False], ids=["words", "names"])
def test_a_replay_notices_every_switch(device, monkeypatch, changed, known):
    if not known:
        monkeypatch.setattr(switches, "_find", lambda: None)
    w = torch.rand(4, 4, device=device)
    g, x = rote.graph(lambda x: (x + w).sum()), torch.rand(4, 4, device=device)
    for _ in range(6):
        g(x)
    shown = []
    for differs in changed():
        shown.append(differs)
        replayed = g.report().replayed
        assert torch.equal(g(x), (x + w).sum())
        assert g.report().replayed == replayed + (not differs)
    assert any(shown)
    replayed = g.report().replayed
    assert torch.equal(g(x), (x + w).sum()) and g.report().replayed == replayed + 1


def test_every_switch_is_tried_here():
    """A new accessor needs a setting above, and its place in memory."""
    before, found = read_switches(), set()
    for get, put, values in SETTINGS.values():
        was = get()
        for value in values:
            put(value)
            pairs = zip(ACCESSORS, before, read_switches(), strict=True)
            found |= {name for name, one, other in pairs if one != other}
            put(was)
    assert found == set(ACCESSORS) and read_switches() == before


def test_another_version_is_asked_by_name(monkeypatch):
    monkeypatch.setattr(compat, "_KNOWN", ())
    switches._find.cache_clear()
    try:
        held = Switches(read_switches())
        assert not held.readable() and held.holds()
        assert held.words[1].size == NOTHING[1].size == 0
    finally:
        monkeypatch.undo()
        switches._find.cache_clear()


def test_places_that_say_something_else_are_not_taken(monkeypatch):
    """Were the object laid out in another way, flags that are on would seem off."""
    found = place_of_switches()
    assert found is not None
    monkeypatch.setattr(compat, "_FLAGS", {"_get_cudnn_enabled": found.first + 1})
    switches._find.cache_clear()
    try:
        assert not Switches.readable()
    finally:
        monkeypatch.undo()
        switches._find.cache_clear()


@pytest.mark.usefixtures("warm_python")
def test_nothing_is_read_where_memory_is_not():
    text = "from rote.runtime.arguments.switches import Switches; print(Switches.readable())"
    environment = {**os.environ, "ROTE_READ_WORDS": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", text]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False"]
