"""What one process has learned, another one uses; the results are those without a plan."""

from __future__ import annotations

import shutil

import pytest


def first_replay(told):
    return told["happened"].index("replayed") if "replayed" in told["happened"] else None


@pytest.mark.parametrize(("name", "calls", "without", "then"), [("training", 7, 5, 4), ("numbers", 8, 6, 3)])
def test_fewer_calls_until_the_first_replay(process, tmp_path, name, calls, without, then):
    first, second = (process(name, tmp_path / "plans", calls) for _ in range(2))
    assert first_replay(first) == without and first["notes"] == []
    assert first_replay(second) == then
    assert first["result"] == second["result"]
    assert any("the call is as it was" in note for note in second["notes"])


def test_a_long_warm_up_is_that_of_the_first_process(process, tmp_path):
    first, second = (process("mlp", tmp_path, 6, "warmup=3") for _ in range(2))
    assert first["happened"] == ["plain", "plain", "plain", "recorded", "replayed", "replayed"]
    assert second["happened"] == ["plain", "recorded", "replayed", "replayed", "replayed", "replayed"]


def test_what_came_to_nothing_is_not_traced_again_and_strict_mode_says_why(process, tmp_path):
    first, second = (process("giving_up", tmp_path, 24) for _ in range(2))
    assert "RT309, " in first["text"]  # how often depends on what calls take
    assert "RT309, 24 calls" in second["text"] and "as an earlier process has found" in second["text"]
    assert first["result"] == second["result"]
    assert any("RT201" in why and "programs.py" in why for why in second["reasons"])
    told = process("giving_up", tmp_path, 8, "strict")
    assert "an earlier process: RT201 at tests/plans/programs.py" in told["raised"]


def test_kernels_need_no_compiler_the_second_time(process, tmp_path):
    if shutil.which("g++") is None and shutil.which("c++") is None:
        pytest.skip("there is no C++ compiler")
    first = process("fused", tmp_path, 300, "keep", "wait")
    if not first["fused"]:
        pytest.skip("no operation is proved on this machine")
    second = process("fused", tmp_path, 16, "keep", ROTE_COMPILE_WORKERS="0")
    assert second["fused"] and len(set(second["result"])) == 1 and second["result"][0] == first["result"][0]


def test_secrets_stay_in_the_process(process, tmp_path):
    told = process("secrets", tmp_path, 4, SECRET="hunter2 and more")
    assert told["happened"][-1] == "replayed"
    written = b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file())
    assert b"secrets" in written
    for secret in (b"hunter2", b"nobody is to find", b"7654", b"30617"):
        assert secret not in written


def test_the_environment_names_a_directory(process, tmp_path):
    process("mlp", "", 3, ROTE_PLANS=str(tmp_path))
    assert [*tmp_path.glob("*.facts")]
