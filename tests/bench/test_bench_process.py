"""The handle on a worker: whatever the process does, there is an answer or a reason."""

import sys

import pytest

from rote.bench.process import Process, WorkerFailure


@pytest.fixture
def process(tmp_path):
    made = []

    def start(code, limit_s=20.0, **environment):
        command = [sys.executable, "-S", "-c", f"import json, os, sys, time\n{code}"]
        made.append(Process(command, tmp_path / "log.txt", environment, limit_s))
        return made[-1]

    yield start
    for each in made:
        each.stop()


def test_an_answer_may_be_long(process):
    worker = process("sys.stdin.readline(); print(json.dumps({'values': list(range(100_000))}))")
    assert len(worker.ask({"do": "turn"})["values"]) == 100_000


def test_two_lines_at_once(process):
    worker = process(
        'print(\'{"at": "a"}\\n{"at": "b"}\\n{"ready": 1}\\n{"value": 2}\', flush=True); time.sleep(60)'
    )
    worker.wait_until_ready()
    assert worker.ask({"do": "warm"}) == {"value": 2}


def test_the_environment_reaches_it(process):
    worker = process("print(json.dumps({'found': os.environ['TRITON_CACHE_DIR']}))", TRITON_CACHE_DIR="here")
    assert worker.ask({"do": "warm"}) == {"found": "here"}


def test_an_exit_is_said_with_its_last_words(process):
    worker = process("print('noise', file=sys.stderr); sys.exit('no weights')")
    with pytest.raises(WorkerFailure, match=r"died: exit status 1, after 'no weights' \(starting\)"):
        worker.wait_until_ready()


def test_what_ends_its_output_is_stopped(process, monkeypatch):
    worker = process("os.close(1); time.sleep(60)")
    monkeypatch.setattr("rote.bench.process.PATIENCE_S", 0.2)
    with pytest.raises(WorkerFailure, match="it closed its output"):
        worker.ask({"do": "warm"})


def test_a_hang_is_stopped(process):
    worker = process("time.sleep(60)", limit_s=0.3)
    with pytest.raises(WorkerFailure, match=r"no answer in 0\.3 s \(warm\)"):
        worker.ask({"do": "warm"})
    with pytest.raises(WorkerFailure, match=r"the process was stopped \(turn\)"):
        worker.ask({"do": "turn"})


def test_an_error_is_an_answer(process):
    worker = process("sys.stdin.readline(); print(json.dumps({'error': 'ValueError: 3', 'memory': True}))")
    with pytest.raises(WorkerFailure, match="ValueError: 3") as raised:
        worker.ask({"do": "build"})
    assert raised.value.memory
