"""Options: one frozen object, whose errors name the option and what it may be."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import rote
from rote import MisuseError, OptionError, Options
from rote.api import OptionKeywords
from rote.api.options import REMOVED
from rote.testing import compare

ROOT = Path(__file__).parents[2]

NAMES = sorted(field.name for field in dataclasses.fields(Options))


def test_defaults():
    options = Options()
    assert (options.strict, options.enabled, options.backend) == (False, True, "auto")
    assert (options.verify, options.verify_tolerance) == (0, 0.0)
    assert Options.make() == options and options.warmup >= 1


def test_frozen_and_documented():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options().strict = True
    for name in NAMES:
        assert f"        {name}: " in Options.__doc__, name


def test_keywords_are_the_fields():
    """What an editor completes is what there is, with the same types."""
    assert get_type_hints(OptionKeywords) == get_type_hints(Options)


@pytest.mark.parametrize("function", [rote.graph, compare])
def test_signatures_show_names_and_defaults(function):
    shown = inspect.signature(function).parameters
    assert not [each for each in shown.values() if each.kind is each.VAR_KEYWORD]
    found = {name: (shown[name].kind, shown[name].default) for name in NAMES}
    keyword = inspect.Parameter.KEYWORD_ONLY
    assert found == {field.name: (keyword, field.default) for field in dataclasses.fields(Options)}


def test_type_checkers_know_the_options(tmp_path):
    """A wrong name and a wrong type are errors before the program runs, also in a decorator."""
    pytest.importorskip("pyright")
    program = tmp_path / "program.py"
    program.write_text(
        "import rote\n"
        "rote.graph(len, warmup=2, split_ops=('a::b',))\n"
        "rote.graph(len, stricct=True)\n"
        "rote.graph(len, warmup='2')\n"
        "@rote.graph(kept=True)\n"
        "def function(x: int) -> int: return x\n"
    )
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(program)]
    source = str(Path(rote.__file__).parents[1])
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": source})
    errors = [each for each in json.loads(ran.stdout)["generalDiagnostics"] if each["severity"] == "error"]
    assert {each["range"]["start"]["line"] for each in errors} == {2, 3, 4}


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("backend", "gpu", "backend='gpu' is not one of 'auto', 'cuda', 'host'"),
        ("backend", None, "backend=None is not one of 'auto', 'cuda', 'host'"),
        ("warmup", 0, "warmup=0 must be a whole number of at least 1"),
        ("warmup", True, "warmup=True must be a whole number of at least 1"),
        ("warmup", 1.5, "warmup=1.5 must be a whole number of at least 1"),
        ("max_recordings", 0, "max_recordings=0 must be a whole number of at least 1"),
        ("max_paths", -1, "max_paths=-1 must be a whole number of at least 1"),
        ("max_keys", "3", "max_keys='3' must be a whole number of at least 1"),
        ("min_segment_size", -1, "min_segment_size=-1 must be a whole number of at least 0"),
        ("verify", -1, "verify=-1 must be a whole number of at least 0"),
        ("verify", True, "verify=True must be a whole number of at least 0"),
        ("verify", 0.5, "verify=0.5 must be a whole number of at least 0"),
        ("verify_tolerance", -1e-6, "verify_tolerance=-1e-06 must be a finite number of at least 0"),
        ("verify_tolerance", float("nan"), "verify_tolerance=nan must be a finite number of at least 0"),
        ("verify_tolerance", float("inf"), "verify_tolerance=inf must be a finite number of at least 0"),
        ("verify_tolerance", True, "verify_tolerance=True must be a finite number of at least 0"),
        ("verify_tolerance", "0", "verify_tolerance='0' must be a finite number of at least 0"),
        ("keep", 1, "keep=1 must be True or False"),
        ("strict", 1, "strict=1 must be True or False"),
        ("enabled", None, "enabled=None must be True or False"),
        ("forward", 0, "forward=0 must be True or False"),
        ("backward", None, "backward=None must be True or False"),
    ],
)
def test_impossible_values(option, value, text):
    with pytest.raises(OptionError, match=f"^{re.escape(text)}$") as caught:
        rote.graph(len, **{option: value})
    assert isinstance(caught.value, MisuseError) and isinstance(caught.value, ValueError)


def test_unknown_options():
    with pytest.raises(OptionError) as caught:
        rote.graph(len, stricct=True)
    assert str(caught.value) == f"stricct is no option of rote.graph; the options are {', '.join(NAMES)}"


@pytest.mark.parametrize("name", REMOVED)
def test_removed_options(name):
    """They name what there is instead, whatever the value, and so do the guide and the changelog."""
    assert name not in NAMES
    text = f"{name} is no option of rote.graph any more: {REMOVED[name]}"
    for value in ("borrow", "safe", True, False):
        with pytest.raises(OptionError, match=f"^{re.escape(text)}$"):
            rote.graph(len, **{name: value})
        with pytest.raises(OptionError, match=f"^{re.escape(text)}$"):
            rote.graph(**{name: value})
        with pytest.raises(OptionError, match=f"^{re.escape(text)}$"):
            compare(len, [([],)], **{name: value})
    for page in ("docs/options.md", "CHANGELOG.md"):
        assert f"| {REMOVED[name]} |" in (ROOT / page).read_text(encoding="utf-8"), page


def test_options_are_checked_before_there_is_a_function():
    with pytest.raises(OptionError, match=r"^warmup=0 "):
        rote.graph(warmup=0)
