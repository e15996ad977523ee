"""The callable is called with room on the interpreter's stack."""

from __future__ import annotations

import sys

import pytest
import torch

import rote
from rote.base.stack import SLOTS
from rote.base.stack import on_a_fresh_stack as with_room

CHUNK = 16 * 1024 // 8
"""Words in the chunks that CPython keeps frames in."""


def test_its_frame_fits_into_no_chunk_that_others_are_in():
    assert with_room.__code__.co_stacksize == SLOTS > CHUNK
    assert with_room(divmod, (7, 2), {}) == (3, 1) and with_room(dict, (), {"a": 1}) == {"a": 1}


def test_errors_pass_through():
    with pytest.raises(ZeroDivisionError):
        with_room(divmod, (1, 0), {})


def test_a_traced_callable_is_called_by_it(device):
    seen = set()

    def call(x):
        frame, depth = sys._getframe(1), 0
        while frame.f_code is not with_room.__code__:
            frame, depth = frame.f_back, depth + 1
        seen.add(depth)
        return x + 1

    x = torch.ones(2, device=device)
    g = rote.graph(call)
    assert torch.equal(g(x), x + 1) and seen == {0}
