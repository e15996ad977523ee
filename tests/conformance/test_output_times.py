"""What says when something was written: nothing while it is only written, a use where it is read."""

from __future__ import annotations

import io
import logging
import sys

import pytest
import torch

import rote
from rote.testing import assert_same

LATE = 1e18
KEPT = {"late": False}


class OwnHandler(logging.Handler):
    def emit(self, record):
        KEPT["late"] = record.created > LATE


class OwnFilter(logging.Filter):
    def filter(self, record):
        KEPT["late"] = record.relativeCreated > LATE
        return True


class OwnFormatter(logging.Formatter):
    def format(self, record):
        KEPT["late"] = float(super().format(record)) > LATE
        return ""


class OwnStream(io.StringIO):
    def write(self, text):
        KEPT["late"] = bool(text.strip()) and float(text) > LATE
        return 0


class Quiet(logging.Handler):
    """It looks at nothing that says when."""

    def emit(self, record):
        record.getMessage()


def logger(name, handler=None, formatter=None, of_filter=None):
    found = logging.getLogger(f"rote-test.{name}")
    found.handlers.clear()
    found.filters.clear()
    found.propagate = False
    found.setLevel(logging.INFO)
    handler = handler if handler is not None else logging.StreamHandler(sys.stderr)
    if formatter is not None:
        handler.setFormatter(formatter)
    if of_filter is not None:
        handler.addFilter(of_filter)
    found.addHandler(handler)
    return found


def logs(**given):
    def make():
        log = logger("one", **{name: each() for name, each in given.items()})
        return lambda: (log.info("a"), KEPT["late"])[1]

    return make


USES = {
    "handler": logs(handler=OwnHandler),
    "filter": logs(of_filter=OwnFilter),
    "formatter": logs(formatter=lambda: OwnFormatter("%(created)f")),
    "stream": logs(
        handler=lambda: logging.StreamHandler(OwnStream()), formatter=lambda: logging.Formatter("%(created)f")
    ),
    "a record": lambda: lambda: logging.makeLogRecord({}).created > LATE,
    "a record of a class": lambda: lambda: logging.LogRecord("a", 10, "p", 1, "m", (), None).created > LATE,
    "a time": lambda: lambda: logging.Formatter().formatTime(logging.makeLogRecord({}), "%Y") > "9",
}


@pytest.mark.parametrize("make", USES.values(), ids=USES)
def test_a_time_that_is_computed_with(device, make):
    use = make()
    g = rote.graph(lambda x: x * (2 if use() else 1))
    x = torch.ones(3, device=device)
    for _ in range(6):
        assert_same(g(x), x * 1)
    report = g.report()
    assert report.replayed == 0
    assert any(reason.code == "RT218" for reason in report.reasons)


ALIKE = {"the library's own": logs(), "a handler that asks for no time": logs(handler=Quiet)}


@pytest.mark.parametrize("make", ALIKE.values(), ids=ALIKE)
def test_a_time_that_is_only_written(device, make):
    use = make()
    g = rote.graph(lambda x: x * (2 if use() else 1), keep=True)
    x = torch.ones(3, device=device)
    for _ in range(8):
        assert_same(g(x), x * 1)
    assert g.report().replayed >= 4


def test_a_progress_bar_that_is_asked(device):
    tqdm = pytest.importorskip("tqdm").tqdm
    bar = tqdm(total=10, file=sys.stderr)
    g = rote.graph(lambda x: x * (2 if bar.format_dict["elapsed"] > LATE else 1))
    x = torch.ones(3, device=device)
    for _ in range(6):
        assert_same(g(x), x * 1)
    assert g.report().replayed == 0
