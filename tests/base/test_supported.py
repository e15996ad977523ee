"""Versions outside of those that were tried are refused with a sentence; the package says the same to pip."""

import sys
import tomllib
from pathlib import Path

import pytest

import rote
from rote.base.supported import PYTHON, TORCH, check_versions

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("torch", ["2.11.0+cu130", "2.12.1", "2.13.0a0+git1234"])
def test_versions_that_were_tried(torch):
    check_versions(torch, (3, 11))
    check_versions(torch, (3, 13))


@pytest.mark.parametrize(
    ("torch", "python", "message"),
    [
        (
            "2.10.2",
            (3, 11),
            "rote works with PyTorch 2.11 to 2.13, and this is 2.10.2: install one",
        ),
        ("3.0.0", (3, 11), "this is 3.0.0"),
        ("2.14.0", (3, 11), "ROTE_UNTRIED_VERSIONS=1 to go on at your own risk"),
        ("unknown", (3, 11), "this is unknown"),
        ("2.13.0", (3, 10), "rote works with Python 3.11 to 3.13, and this is 3.10"),
        ("2.13.0", (3, 14), "this is 3.14"),
    ],
)
def test_others_are_refused(torch, python, message, monkeypatch):
    with pytest.raises(rote.EnvironmentError_) as refused:
        check_versions(torch, python)
    assert message in str(refused.value)
    monkeypatch.setenv("ROTE_UNTRIED_VERSIONS", "1")
    check_versions(torch, python)


def test_without_pytorch(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    with pytest.raises(rote.EnvironmentError_, match="none is installed: pip install torch"):
        check_versions()


def test_the_package_says_the_same():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    told = [f">={least[0]}.{least[1]},<{end[0]}.{end[1]}" for least, end in (PYTHON, TORCH)]
    assert project["requires-python"] == told[0] and f"torch{told[1]}" in project["dependencies"]
