"""The archives that people install: an sdist, the wheel made of it, and an empty environment with that."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "rote"

setuptools = pytest.importorskip("setuptools", minversion="77")

BUILD = "import sys, setuptools.build_meta as backend; getattr(backend, sys.argv[1])(sys.argv[2])"

PROGRAM = """
import sys, torch, rote
from importlib.metadata import entry_points
from rote.hazards.rules import HOST_READ
assert rote.__file__.startswith(sys.prefix), rote.__file__
g = rote.graph(lambda x: x * 2)
for _ in range(4):
    assert torch.equal(g(torch.ones(3)), torch.full((3,), 2.0))
assert g.report().replayed == 2 and HOST_READ.documentation.what
g.save_report(sys.argv[1], (torch.ones(3),))
assert "rote" in entry_points(group="torch_dynamo_backends").names
(script,) = entry_points(group="console_scripts", name="rote")
sys.argv = ["rote", "--version"]
script.load()()
"""


def run(*command: object, folder: Path) -> str:
    """Run without what a caller lays in front of what is installed: metadata of rote may lie there, too."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env=env, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is built from the sdist."""
    folder = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(SOURCE, folder / "src" / "rote", ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, "-c", BUILD, "build_sdist", "dist", folder=folder)
    (archive,) = (folder / "dist").iterdir()
    with tarfile.open(archive) as packed:
        packed.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    run(sys.executable, "-c", BUILD, "build_wheel", folder, folder=unpacked)
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_has_every_file_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = {name for name in packed.namelist() if ".dist-info/" not in name}
        metadata = Parser().parsestr(
            packed.read(f"{wheel.name.split('-py3')[0]}.dist-info/METADATA").decode()
        )
    there = {path for path in SOURCE.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert names == {path.relative_to(SOURCE.parent).as_posix() for path in there}
    assert "rote/py.typed" in names
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert metadata["Version"] == project["version"]
    assert set(metadata.get_all("Provides-Extra")) == set(project["optional-dependencies"])
    assert metadata["License-Expression"] == "Apache-2.0"


def test_an_empty_environment_with_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """Nothing but the wheel is installed; what it requires is found where these tests find it."""
    pytest.importorskip("pip")
    venv.create(tmp_path / "empty", with_pip=False, symlinks=True)
    python = tmp_path / "empty" / "bin" / "python"
    command = (
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    )
    run(*command, wheel, folder=tmp_path)
    (packages,) = (tmp_path / "empty" / "lib").glob("python*/site-packages")
    others = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "required.pth").write_text("\n".join(sorted(others)))
    version = run(python, "-I", "-c", PROGRAM, "report.html", folder=tmp_path).strip()
    assert version in wheel.name and "<!doctype html>" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "empty" / "bin" / "rote").is_file()
