"""Output: a replay does not repeat it, and it keeps no call from being recorded."""

import io
import logging
import sys

import pytest
import torch

import rote

CALLS = 12
WARM = 4


@pytest.fixture
def logger():
    made = logging.getLogger("rote_test_output")
    handler = logging.StreamHandler(sys.stderr)
    made.addHandler(handler)
    made.propagate = False
    made.setLevel(logging.INFO)
    yield made
    made.removeHandler(handler)
    made.setLevel(logging.NOTSET)


def run(fn, device, calls=CALLS):
    g = rote.graph(fn)
    for n in range(calls):
        x = torch.full((4,), float(n), device=device)
        assert torch.equal(g(x), x * 2)
    return g


def test_what_is_printed(device, capsys):
    g = run(lambda x: (print("shape", x.shape), print(1, file=sys.stderr), x * 2)[-1], device)
    assert g.report().replayed >= CALLS - WARM, g.explain()
    assert 1 <= capsys.readouterr().out.count("shape") <= WARM


def test_what_is_written_to_a_standard_stream(device):
    def fn(x):
        sys.stderr.write("\rstep")
        sys.stderr.flush()
        return x * 2

    assert run(fn, device).report().replayed >= CALLS - WARM


def test_what_is_logged(device, logger):
    logger.handlers[1:] = []  # that of the test runner, which keeps what is logged

    def fn(x):
        logger.info("shape %s", x.shape)
        return x * 2

    g = run(fn, device)
    assert g.report().replayed >= CALLS - WARM, g.explain()


def test_the_level_is_a_condition(device, logger):
    def fn(x):
        return x * (2 if logger.isEnabledFor(logging.INFO) else 3)

    g, x = run(fn, device), torch.ones(4, device=device)
    logger.setLevel(logging.ERROR)
    assert torch.equal(g(x), x * 3)
    logger.setLevel(logging.INFO)
    assert torch.equal(g(x), x * 2)


def test_other_streams_are_no_output(device, reason):
    """Who holds the stream may read what was written."""
    stream = io.StringIO()

    def fn(x):
        stream.write("step")
        return x * 2

    g = run(fn, device)
    assert g.report().replayed == 0 and stream.getvalue() == "step" * CALLS
    assert reason(g, "RT218")


def test_a_file_is_no_output(device, tmp_path):
    with (tmp_path / "log").open("w") as file:
        g = run(lambda x: (print("step", file=file), x * 2)[-1], device)
    assert g.report().replayed == 0
    assert (tmp_path / "log").read_text() == "step\n" * CALLS


def test_a_clock_of_ones_own_is_none(device, reason):
    g = run(lambda x: x * 2 if logging.time.time() > 0 else x, device)
    assert g.report().replayed == 0 and "clock" in reason(g, "RT218").message
