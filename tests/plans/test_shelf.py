"""Compiled code and certificates: from a folder of the user's own, or made anew."""

from __future__ import annotations

import os
import shutil

import pytest

from rote.plans.directory import PlanDirectory
from rote.plans.folder import CODE, seal, unseal
from rote.runtime.compiling import SHELVES, Binary, KernelSource, Language

SOURCE = KernelSource(Language.CPP, "kernel", "text", ("fp32",), (True,))
OTHER = KernelSource(Language.CPP, "kernel", "another text", ("fp32",), (True,))
BINARY = Binary(SOURCE, b"\x7fELF\ncode", "kernel", 0)


@pytest.fixture
def directory(tmp_path):
    found = PlanDirectory(str(tmp_path / "plans"))
    assert found.shelf is not None and found.failures == []
    found.shelf.keep(BINARY)
    found.shelf.certify(SOURCE, "aten::abs")
    return found


def again(directory):
    """The same directory in another process."""
    return PlanDirectory(directory.path)


def test_a_kernel_and_a_certificate_come_back(directory):
    shelf = again(directory).shelf
    assert shelf.find(SOURCE) == BINARY and shelf.find(OTHER) is None
    assert shelf.certifies(SOURCE, "aten::abs")
    assert not shelf.certifies(OTHER, "aten::abs") and not shelf.certifies(SOURCE, "aten::neg")


@pytest.mark.parametrize("name", ["", "code"])
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_may_write(directory, name, mode):
    os.chmod(os.path.join(directory.path, name), mode)
    found = again(directory)
    assert found.shelf is None and found.folder is not None
    assert any(f"may be written by others (mode {mode:o}); chmod go-w it" in each for each in found.failures)


def test_a_folder_of_another_user(directory, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(directory.path).st_uid + 1)
    found = again(directory)
    assert found.shelf is None and any("belongs to user" in each for each in found.failures)


def test_a_link_in_the_place_of_the_folder(directory, tmp_path):
    code = tmp_path / "plans" / "code"
    code.rename(tmp_path / "elsewhere")
    code.symlink_to(tmp_path / "elsewhere")
    found = again(directory)
    assert found.shelf is None and any("symbolic link" in each for each in found.failures)


def test_a_file_that_others_may_write(directory, tmp_path):
    for each in (tmp_path / "plans" / "code").iterdir():
        each.chmod(0o666)
    found = again(directory)
    assert found.shelf.find(SOURCE) is None and not found.shelf.certifies(SOURCE, "aten::abs")
    assert "may be written by others" in found.failures[0]


def test_a_copy_brings_no_code(directory, tmp_path):
    shutil.copytree(directory.path, tmp_path / "copy")
    found = PlanDirectory(str(tmp_path / "copy"))
    assert found.shelf.find(SOURCE) is None and not found.shelf.certifies(SOURCE, "aten::abs")
    assert "a copy brings facts only" in found.failures[0]


def test_one_kernel_under_the_name_of_another(directory, tmp_path):
    (file,) = (tmp_path / "plans" / "code").glob("*.code")
    shelf = again(directory).shelf
    shelf.keep(Binary(OTHER, b"other", "kernel"))
    (other,) = [each for each in file.parent.glob("*.code") if each != file]
    other.replace(file)
    assert shelf.find(SOURCE) is None


@pytest.mark.parametrize("damage", [lambda code: code[:-1], lambda code: code[:-1] + b"!", lambda code: b""])
def test_a_damaged_kernel_is_compiled_anew(directory, tmp_path, damage):
    (file,) = (tmp_path / "plans" / "code").glob("*.code")
    file.write_bytes(damage(file.read_bytes()))
    found = again(directory)
    assert found.shelf.find(SOURCE) is None and "is not used" in found.failures[0]
    found.shelf.keep(BINARY)
    assert again(directory).shelf.find(SOURCE) == BINARY


@pytest.mark.parametrize(
    "head", [b"[]", b"{", b"[" * 100_000, b'{"symbol": 1}', b'{"about": {}, "folder": []}']
)
def test_a_head_that_is_none(directory, tmp_path, head):
    (file,) = (tmp_path / "plans" / "code").glob("*.code")
    assert unseal(CODE, file.read_bytes())
    file.write_bytes(seal(CODE, head + b"\ncode"))
    assert again(directory).shelf.find(SOURCE) is None


def test_shelves_are_used_as_long_as_somebody_has_them(directory):
    SHELVES.add(directory.shelf)
    SHELVES.add(directory.shelf)
    assert SHELVES.find(SOURCE) == BINARY and SHELVES.certifies(SOURCE, "aten::abs")
    directory.shelf = None
    assert SHELVES.find(SOURCE) is None
