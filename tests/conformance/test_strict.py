"""Strict mode: after the warm-up a call replays wholly from graphs or raises before it runs."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import rote
from rote import NotReplayedError

WARM = rote.Options().warmup + 2


def warm(g, *args, calls=WARM):
    for _ in range(calls):
        g(*args)


def refused(g, *args):
    """The text of the refusal; the call counted as one, and the report says why."""
    with pytest.raises(NotReplayedError) as caught:
        g(*args)
    text, found = str(caught.value), caught.value.findings
    assert found and found == g.findings(), (text, found)
    assert set(re.findall(r"\bRT\d{3}\b", text)) <= {each.code for each in found}, (text, found)
    return text


def test_the_warm_up_may_run_and_replays_pass(device):
    g, x = rote.graph(lambda x: x * 2, strict=True), torch.ones(2, device=device)
    for _ in range(WARM + 5):
        assert g(x).tolist() == [2.0, 2.0]


def test_an_unseen_key(device):
    ran = []

    def fn(x, n):
        ran.append(n) if n > 90 else None
        return x * n

    g, x = rote.graph(fn, strict=True), torch.ones(2, device=device)
    warm(g, x, 2)
    text = refused(g, x, 99)
    assert ran == []
    head, reason = text.split("\n")
    assert ".fn would not be replayed wholly from graphs (strict mode, call " in head and head.endswith("):")
    assert reason.strip().startswith("RT306 at tests/conformance/test_strict.py:")
    assert "args[1] was 2 and is 99. Call with it during the warm-up; a number that often changes" in reason
    assert g(x, 2).tolist() == [2.0, 2.0]
    assert refused(g, x, 99)  # still unseen


def test_an_unseen_shape_names_the_argument(device):
    g = rote.graph(lambda mask, x: x * 2, strict=True)
    for _ in range(WARM):
        g(mask=torch.ones(2, 8, device=device), x=torch.ones(1, device=device))
    with pytest.raises(
        NotReplayedError, match=r"kwargs\['mask'\] was float32\[2, 8\] .* and is float32\[2, 9\] "
    ):
        g(mask=torch.ones(2, 9, device=device), x=torch.ones(1, device=device))


def test_islands(device, where):
    def fn(x):
        return x * x.sum().item()

    g, x = rote.graph(fn, strict=True), torch.ones(2, device=device)
    warm(g, x)
    text = refused(g, x)
    assert f"RT101 at {where(fn, '.item()')}: aten::_local_scalar_dense runs between two segments. " in text
    assert (
        "Keep the value on the device (torch.where, masked arithmetic), or accept one graph segment" in text
    )


def test_shapes_that_depend_on_data(device, where):
    def fn(x):
        return x[x > 0]

    g, x = rote.graph(fn, strict=True), torch.ones(2, device=device)
    warm(g, x)
    assert f"RT111 at {where(fn, 'x[x > 0]')}: aten::index.Tensor runs between two segments. " in refused(
        g, x
    )


def test_the_unsteady(device):
    count = [0]

    def fn(x):
        count[0] += 1
        return x * 2

    g, x = rote.graph(fn, strict=True), torch.ones(2, device=device)
    warm(g, x)
    runs = count[0]
    for _ in range(20):
        text = refused(g, x)
    assert count[0] == runs, "a refused call has run"
    assert "RT201 at " in text and "count[0] was " in text


def test_after_a_replaced_parameter(device):
    layer = nn.Linear(2, 2).to(device).requires_grad_(False)
    g, x = rote.graph(layer, strict=True), torch.ones(1, 2, device=device)
    warm(g, x)
    kept = layer.weight.data
    layer.weight.data = torch.zeros(2, 2, device=device)
    text = refused(g, x)
    assert f"weight was at address {kept.data_ptr():#x} and is at {layer.weight.data_ptr():#x}" in text
    assert "RT301" in text and "Update the tensor in place (copy_)." in text
    layer.weight.data = kept
    assert torch.equal(g(x), layer(x))


def test_past_the_limit_on_paths(device):
    g = rote.graph(lambda x: x * int(x.sum().item()), strict=True, max_paths=1, warmup=1)
    for n in (1, 1, 2):
        g(torch.full((1,), float(n), device=device))
    text = refused(g, torch.ones(1, device=device))
    assert "RT304 at " in text or "RT101 at " in text


def test_past_the_limit_on_recordings(device):
    layers = [nn.Linear(2, 2).to(device).requires_grad_(False) for _ in range(3)]
    current = [layers[0]]
    g, x = rote.graph(lambda x: current[0](x), strict=True), torch.ones(1, 2, device=device)
    warm(g, x)
    current[0] = layers[1]
    assert "RT302" in refused(g, x) or "RT301" in refused(g, x)


def test_results_that_wait_for_their_backward(device):
    layer = nn.Linear(2, 2).to(device)
    g, x = rote.graph(lambda x: layer(x), strict=True), torch.ones(1, 2, device=device)
    warm(g, x)
    waiting = g(x)
    assert waiting.requires_grad
    assert "RT404" in refused(g, x)


def test_backward_that_would_not_replay(device):
    layer = nn.Linear(2, 2).to(device)
    g, x = rote.graph(lambda x: layer(x), strict=True), torch.ones(1, 2, device=device)
    for _ in range(6):
        g(x).sum().backward()
    layer.weight.grad, g.report().backwards_replayed
    replayed = g.report().backwards_replayed
    g(x).sum().backward()
    assert replayed == 3 and g.report().backwards_replayed == 4


def test_a_refused_call_has_no_effect(device):
    buffer = torch.zeros((), device=device)

    def fn(x):
        buffer.add_(1)
        return x * x.sum().item()

    g, x = rote.graph(fn, strict=True), torch.ones(2, device=device)
    warm(g, x)
    before, state = buffer.item(), torch.get_rng_state()
    for _ in range(5):
        refused(g, x)
    assert buffer.item() == before and torch.equal(torch.get_rng_state(), state)


def test_earlier_reasons_are_listed(device):
    seen = [0]

    def fn(x):
        if seen[0] < 1:
            seen[0] += 1
        return x * 2

    g, x = rote.graph(fn, strict=True), torch.ones(2, device=device)
    warm(g, x)
    g(x)
    text = refused(g, torch.ones(3, device=device))
    assert "RT306" in text
    assert "earlier: RT201 at " in text and text.rstrip().endswith("(1 calls)")


def test_strict_by_the_environment(device, monkeypatch):
    monkeypatch.setenv("ROTE_STRICT", "1")
    g, x = rote.graph(lambda x: x * x.sum().item()), torch.ones(2, device=device)
    warm(g, x)
    assert "RT101" in refused(g, x)


def test_a_strict_wrapper_still_passes_the_users_errors_on(device):
    def fn(x):
        raise KeyError("mine")

    g = rote.graph(fn, strict=True)
    with pytest.raises(KeyError, match="mine"):
        g(torch.ones(2, device=device))
