"""What numpy reads from files and clocks, and writes to files, is in no recording."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy
import pytest
import torch

import rote

READS = {
    "load": (numpy.save, lambda path: numpy.load(path)[0]),
    "fromfile": (lambda path, values: values.tofile(path), lambda path: numpy.fromfile(path)[0]),
    "loadtxt": (numpy.savetxt, lambda path: numpy.loadtxt(path)[0]),
}
WRITES = {
    "save": lambda path: numpy.save(path, numpy.ones(2)),
    "savez": lambda path: numpy.savez(path, a=numpy.ones(2)),
    "savetxt": lambda path: numpy.savetxt(path, numpy.ones(2)),
    "tofile": lambda path: numpy.ones(2).tofile(path),
    "dump": lambda path: numpy.ones(2).dump(path),
}


@pytest.mark.parametrize("read", READS)
def test_a_file_is_read(device, tmp_path, read):
    write, scale = READS[read]
    path = tmp_path / "values.npy"
    g = rote.graph(lambda x: x * scale(path))
    for number in range(6):
        write(path, numpy.full(2, float(number // 4 + 1)))
        assert g(torch.ones(2, device=device)).tolist() == [number // 4 + 1] * 2
    assert "RT218" in {reason.code for reason in g.report().reasons}


@pytest.mark.parametrize("write", WRITES)
def test_a_file_is_written(device, tmp_path, write):
    def doubled(x):
        WRITES[write](tmp_path / "values")
        return x * 2

    g = rote.graph(doubled)
    for _ in range(4):
        g(torch.ones(2, device=device))
        (path,) = tmp_path.iterdir()
        path.unlink()
    assert "RT218" in {reason.code for reason in g.report().reasons}


def test_a_date_is_now(device):
    g = rote.graph(lambda x: x * int(numpy.datetime64("now").astype(int)))
    for _ in range(4):
        earliest = int(datetime.now(UTC).timestamp())
        assert g(torch.ones(2, device=device, dtype=torch.int64))[0] >= earliest
    assert g.report().replayed == 0
