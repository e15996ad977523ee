"""Files as an enemy would write them: the results are those of the plain callable, and nothing is raised."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from contextlib import suppress

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rote
from rote.plans.folder import FACTS, UNFINISHED, PlanError, PlanFolder, seal, unseal
from rote.plans.form import read, written
from rote.plans.store import PlanFile
from rote.runtime.engine import KeyFacts

SCALE = {"by": 2.0, "name": "a scale"}


def scaled(x, n):
    return x * SCALE["by"] * n + len(SCALE["name"]) if x.sum() > 0 else x - n


def in_a_new_process(path, calls=7):
    """What a wrapper that knows nothing gives, and its report."""
    graphed = rote.graph(scaled, plans=path)
    for number in range(calls):
        x = torch.arange(-1.0, 5.0) + number
        assert torch.equal(graphed(x, 2.0 + number), scaled(x, 2.0 + number))
    return graphed.report()


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A directory with all that such a callable leaves."""
    path = tmp_path_factory.mktemp("learned")
    for _ in range(2):
        in_a_new_process(path, calls=9)
    return {each.name: each.read_bytes() for each in path.glob("*") if each.is_file()}


@pytest.fixture
def directory(tmp_path, learned):
    for name, content in learned.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def facts_in(directory):
    return sorted(directory.glob("*.facts"))


def notes(report):
    assert report.plan is not None
    return "\n".join(report.plan.notes)


damages = st.lists(st.tuples(st.integers(0, 1 << 16), st.binary(max_size=6)), min_size=1, max_size=3)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=25, suppress_health_check=[*HealthCheck])
@given(damages=damages, cut=st.integers(0, 4096))
def test_bytes_changed_anywhere(learned, tmp_path_factory, damages, cut):
    path = tmp_path_factory.mktemp("damaged")
    for name, content in learned.items():
        changed = bytearray(content)
        for at, put in damages:
            at %= len(changed) + 1
            changed[at : at + len(put)] = put
        (path / name).write_bytes(bytes(changed[: len(changed) - cut] if cut < len(changed) else b""))
    in_a_new_process(path)
    shutil.rmtree(path)


def places(value, so_far=()):
    """All places in a value of JSON."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [so_far, *[place for key, each in inner for place in places(each, (*so_far, key))]]


def put(value, place, new):
    if not place:
        return new
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[place[0]] = put(copied[place[0]], place[1:], new)
    return copied


@settings(max_examples=40, suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_facts_that_are_false_with_hashes_that_are_right(learned, tmp_path_factory, data):
    path = tmp_path_factory.mktemp("false")
    for name, content in learned.items():
        if name.endswith(".facts"):
            told = json.loads(unseal(FACTS, content))
            for _ in range(data.draw(st.integers(1, 2))):
                place = data.draw(st.sampled_from(places(told)))
                told = put(told, place, data.draw(anything))
            content = seal(FACTS, json.dumps(told).encode())
        (path / name).write_bytes(content)
    in_a_new_process(path)
    shutil.rmtree(path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is no file of a plan"),
        (b"rote-plan 1 facts", "it is no file of a plan"),
        (b"\x7fELF" + bytes(200), "it is no file of a plan"),
        (b"rote-plan 9 facts 2 00\n{}", "it has format '9', and this version of rote reads 1"),
        (b"rote-plan 1 facts 3 00\n{}", "it is cut off, or too long"),
        (b"rote-plan 1 facts 2 00\n{}", "it was changed"),
        (seal("code", b"{}"), "it holds something else than its name says"),
        (seal(FACTS, b"[" * 100_000), "it is no JSON that rote writes: RecursionError"),
        (seal(FACTS, b'{"made": NaN}'), "it holds NaN, which is no number"),
        (seal(FACTS, b"{}"), "it does not have the fields of PlanFile"),
        (b"x" * ((4 << 20) + 1), "bytes, and may have"),
    ],
)
def test_what_is_said_of_a_file(directory, caplog, content, why):
    for each in facts_in(directory):
        each.write_bytes(content)
    assert why in notes(in_a_new_process(directory))
    assert len([record for record in caplog.records if "plans in" in record.getMessage()]) == 1


def test_links_pipes_and_folders_in_the_place_of_files(directory):
    for number, each in enumerate(facts_in(directory)):
        each.unlink()
        [os.mkfifo, os.mkdir, lambda path: os.symlink("/etc/passwd", path)][number % 3](each)
    assert "is not used" in notes(in_a_new_process(directory))


def test_a_link_in_the_place_of_the_directory(directory, tmp_path):
    (tmp_path / "link").symlink_to(directory)
    said = notes(in_a_new_process(tmp_path / "link"))
    assert "it is a symbolic link; name the folder that it leads to" in said


def test_a_key_that_is_cut_off(directory):
    (directory / "key").write_bytes(b"short")
    assert "has 5 bytes, not 32; remove the directory" in notes(in_a_new_process(directory))


def test_a_file_in_the_place_of_the_directory(tmp_path):
    (tmp_path / "file").write_text("")
    assert "no plan is used" in notes(in_a_new_process(tmp_path / "file"))


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    in_a_new_process(tmp_path, calls=1)  # the key is made
    monkeypatch.setattr(os, "replace", full)
    said = notes(in_a_new_process(tmp_path))
    assert f"cannot be written to {tmp_path}: No space left on device" in said
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["key"]


def test_a_directory_that_is_read_only(tmp_path, monkeypatch):
    opened = os.open

    def read_only(path, flags, *rest, **at):
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, "Read-only file system")
        return opened(path, flags, *rest, **at)

    in_a_new_process(tmp_path, calls=9)
    monkeypatch.setattr(os, "open", read_only)
    said = notes(in_a_new_process(tmp_path))  # what is there is read
    assert "the call is as it was" in said and "Read-only file system" in said


def test_files_are_the_users_alone_and_whole(tmp_path):
    in_a_new_process(tmp_path)
    assert {oct(each.stat().st_mode & 0o777) for each in tmp_path.rglob("*") if each.is_file()} == {"0o600"}
    assert [each for each in tmp_path.rglob(f"*{UNFINISHED}")] == []


def test_two_that_write_at_once(tmp_path):
    """Whoever comes last has written; nobody reads half of a file."""
    contents = [seal(FACTS, bytes([number]) * 50_000) for number in range(2)]

    def write(number):
        folder = PlanFolder(str(tmp_path))
        for _ in range(100):
            folder.write("a.facts", contents[number])

    writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for each in writers:
        each.start()
    folder, seen = PlanFolder(str(tmp_path)), 0
    while any(each.is_alive() for each in writers):
        found = folder.read("a.facts", 1 << 20)
        assert found is None or unseal(FACTS, found)
        seen += found is not None
    for each in writers:
        each.join()
    assert seen and [each.name for each in tmp_path.iterdir()] == ["a.facts"]
    last = folder.read("a.facts", 1 << 20)
    folder.write("a.facts", seal(FACTS, b""), replace=False)
    assert folder.read("a.facts", 1 << 20) == last


@given(facts=st.from_type(KeyFacts), name=st.text(max_size=8))
def test_facts_come_back_as_they_were(facts, name):
    content = written(PlanFile(name, 1.0, {"a": name}, {}, facts))
    with suppress(PlanError):  # a number that JSON has not
        assert written(read(PlanFile, content)) == content
