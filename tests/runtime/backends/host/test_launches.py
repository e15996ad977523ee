"""Launches of compiled kernels on the host's tape."""

from __future__ import annotations

import ctypes
import gc
import os

import pytest
import torch
from tests.conformance.kernels import SIZE, binary_of, eager, source_for

from rote.base.errors import InternalError
from rote.runtime.backends.host import HostBackend
from rote.runtime.backends.protocol import KernelLaunch


@pytest.fixture
def backend():
    return HostBackend()


@pytest.fixture
def kernel(backend):
    return backend.load(binary_of(source_for(backend)))


def test_it_may_write_memory_of_others(backend, kernel):
    x, y = torch.ones(SIZE), torch.ones(SIZE)
    others = torch.empty(SIZE), torch.empty(SIZE, dtype=torch.int64)
    session = backend.open(exclusive=False)
    session.begin()
    session.launch(KernelLaunch(kernel, [x, y], others, [2.0], [3]))
    segment = session.end()
    session.finish()
    for other in others:
        other.fill_(7)
    segment.replay()
    for mine, expected in zip(others, eager(x, y, 2.0, 3), strict=True):
        assert torch.equal(mine, expected)
    session.release()


def test_it_may_not_write_what_it_reads(backend, kernel):
    session = backend.open(exclusive=False)
    session.begin()
    x = torch.ones(SIZE)
    with pytest.raises(InternalError, match="it is to write memory that it reads"):
        session.launch(
            KernelLaunch(kernel, [x, torch.ones(SIZE)], [x, torch.empty(SIZE, dtype=torch.int64)], [1.0], [1])
        )
    session.release()


def test_memory_of_others_may_move(backend, kernel):
    """As with operations, a replay reads where the storage is then."""
    x, y = torch.ones(SIZE), torch.ones(SIZE)
    session = backend.open(exclusive=False)
    session.begin()
    results = [
        session.run(torch.ops.aten.empty.memory_format, ([SIZE],), {"dtype": dtype})
        for dtype in (torch.float32, torch.int64)
    ]
    session.launch(KernelLaunch(kernel, [x, y], results, [2.0], [3]))
    segment = session.end()
    session.finish()
    x.untyped_storage().resize_(4096 * SIZE)
    x.fill_(5.0)
    segment.replay()
    assert torch.equal(results[0], eager(x, y, 2.0, 3)[0])
    session.release()


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="there is no /proc/self/maps")
def test_a_shared_object_is_unloaded_and_leaves_no_file(backend):
    binary = binary_of(source_for(backend))
    kernel = backend.load(binary)
    place = ctypes.cast(kernel._function, ctypes.c_void_p).value or 0

    def lines():
        with open("/proc/self/maps") as file:
            return [line for line in file if "rote-" in line]

    def covers(line):
        begin, end = line.split()[0].split("-")
        return int(begin, 16) <= place < int(end, 16)

    def mapped():
        return any(map(covers, lines()))

    assert mapped() and all(["(deleted)" in line for line in lines()])
    del kernel
    gc.collect()
    assert not mapped()
