"""Modules that a call imports: loading one is no part of the call."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys

import pytest
import torch

import rote
from rote.testing import assert_same

MODULE = """
import time
import torch

LOADED = time.time()  # nothing that a recording could hold
TABLE = torch.arange(3.0).sin()
EVENTS.append(__name__)

def scale(x):
    return x * TABLE.to(x.device)
"""


@pytest.fixture
def events(tmp_path, monkeypatch):
    """Modules of a package that is not loaded yet, and what their loading notes."""
    found: list[str] = []
    package = tmp_path / "rote_imported"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for name in ("first", "second", "third"):
        (package / f"{name}.py").write_text("from builtins import ROTE_EVENTS as EVENTS\n" + MODULE)
    (package / "broken.py").write_text("raise ValueError('broken')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("builtins.ROTE_EVENTS", found, raising=False)
    yield found
    for name in [each for each in sys.modules if each.startswith("rote_imported")]:
        del sys.modules[name]


def by_statement(x):
    from rote_imported.first import scale

    return scale(x)


def as_a_part(x):
    from rote_imported import second

    return second.scale(x)


def by_function(x):
    return importlib.import_module("rote_imported.third").scale(x)


@pytest.mark.parametrize("call", [by_statement, as_a_part, by_function], ids=lambda call: call.__name__)
def test_a_module_is_loaded_once_and_apart(call, events, device):
    g, x = rote.graph(call), torch.ones(3, device=device)
    for _ in range(6):
        assert_same(g(x), torch.arange(3.0, device="cpu").sin().to(device))
    assert len(events) == 1
    assert g.report().replayed >= 3, g.explain()


def broken(x):
    try:
        import rote_imported.broken
    except ValueError:
        return x * 2
    return x * rote_imported.broken.k


def absent(x):
    try:
        import rote_imported.absent
    except ImportError:
        return x * 2
    return x * rote_imported.absent.k


@pytest.mark.parametrize("call", [broken, absent], ids=lambda call: call.__name__)
def test_a_module_that_cannot_be_loaded(call, events, device):
    g, x = rote.graph(call), torch.ones(3, device=device)
    for _ in range(6):
        assert_same(g(x), x * 2)


def test_another_module_under_the_name(events, device):
    g, x = rote.graph(by_function), torch.ones(3, device=device)
    for _ in range(4):
        g(x)
    sys.modules["rote_imported.third"].TABLE = torch.full((3,), 5.0)
    assert_same(g(x), x * 5)


@pytest.mark.parametrize("asks", [
    lambda: importlib.util.find_spec("rote_is_not_there"), lambda: importlib.util.find_spec("torch"),
    lambda: importlib.metadata.version("torch"),
], ids=["missing", "there", "version"])  # fmt: skip
def test_what_is_installed(asks, device):
    """Libraries ask for it in each call; another search path is noticed."""
    g = rote.graph(lambda x: x * 2 if asks() is None else x * 3, keep=True)
    for number in range(12):
        x = torch.full((2,), float(number), device=device)
        assert_same(g(x), x * 2 if asks() is None else x * 3)
    assert g.report().replayed >= 6, g.explain()


def test_another_search_path(tmp_path, monkeypatch, device):
    (tmp_path / "rote_found_later.py").touch()
    g = rote.graph(
        lambda x: x * 2 if importlib.util.find_spec("rote_found_later") is None else x * 3, keep=True
    )
    for number in range(12):
        if number == 7:
            monkeypatch.syspath_prepend(tmp_path)
        x = torch.full((2,), float(number), device=device)
        assert_same(g(x), x * (2 if number < 7 else 3))
    assert g.report().replayed >= 6, g.explain()
