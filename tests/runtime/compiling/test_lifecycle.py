"""Processes that compile end with their program, however it ends, and leave nothing."""

from __future__ import annotations

import os
import signal

import pytest
from tests.runtime.compiling.tools import COPIES, SLEEPS, Program, script

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="processes are looked for in /proc")

AT_WORK = """
job = compilers.submit([cpp("one"), cpp("two")])
until(lambda: os.path.exists(os.environ["NOTE"]))
assert not job.done
"""

ENDS = {
    "the end": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "an exception": ("raise ValueError", 1),
    "os._exit": ("os._exit(0)", 0),
    "sys.exit in a thread": ("thread = threading.Thread(target=sys.exit); thread.start(); thread.join()", 0),
    "a termination": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -signal.SIGTERM),
    "a kill": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
}


@pytest.mark.parametrize("end", ENDS)
def test_whatever_is_at_work_ends_with_the_program(tmp_path, end):
    text, status = ENDS[end]
    program = Program(tmp_path, CXX=script(tmp_path, SLEEPS))
    done = program.run(AT_WORK + text, "-X", "dev", "-W", "error")
    assert done.returncode == status, done.stderr
    assert not done.stderr or end == "an exception", done.stderr  # no warning about a process that is at work
    program.assert_nothing_left()


def test_it_ends_although_a_fork_of_the_program_lives(tmp_path):
    program = Program(tmp_path, CXX=script(tmp_path, SLEEPS))
    fork = tmp_path / "fork"
    done = program.run(
        AT_WORK
        + f"""
child = os.fork()
if not child:
    for descriptor in (0, 1, 2):  # the test waits for these to be closed
        os.close(descriptor)
    time.sleep(600)
    os._exit(0)
open({str(fork)!r}, "w").write(str(child))
"""
    )
    assert done.returncode == 0, done.stderr
    child = int(fork.read_text())
    try:
        os.kill(child, 0)  # it lives, and has the pipe
        from_outside = [process for process in program.processes() if process != child]
        while from_outside:
            from_outside = [process for process in program.processes() if process != child]
        assert not list(program.temporary.iterdir())
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_process_lives_only_while_there_is_work(tmp_path):
    program = Program(tmp_path, CXX=script(tmp_path, COPIES))
    done = program.run("""
first = compilers.submit([cpp("one")])
assert first.wait(60) and said(first) == ["compiled"]
until(lambda: compilers._advance() or (not compilers._leaving and compilers._process is None))
again = compilers.submit([cpp("one"), cpp("two")])
assert again.wait(60) and said(again) == ["compiled", "compiled"]
""")
    assert done.returncode == 0, done.stderr
    program.assert_nothing_left()


def test_it_ends_where_nobody_asks(tmp_path):
    program = Program(tmp_path, CXX=script(tmp_path, COPIES))
    done = program.run("""
compilers.submit([cpp("one")])
child = compilers._process._child.pid
until(lambda: open(f"/proc/{child}/stat").read().rsplit(")")[1].split()[0] == "Z")
""")
    assert done.returncode == 0, done.stderr
    program.assert_nothing_left()


@pytest.mark.parametrize("begins", ["0", "0, 1, 2", "1"])
def test_programs_without_standard_streams(tmp_path, begins):
    program = Program(tmp_path, CXX=script(tmp_path, COPIES))
    result = tmp_path / "result"
    done = program.run(f"""
for descriptor in ({begins},):
    os.close(descriptor)
job = compilers.submit([cpp("one"), cpp("two")])
job.wait(60)
open({str(result)!r}, "w").write(str(said(job)))
""")
    assert done.returncode == 0
    assert result.read_text() == "['compiled', 'compiled']"
    program.assert_nothing_left()


HANGS = SLEEPS.replace(
    "sleep",
    """for last; do case $last in *.cpp) source=$last;; esac; done
grep -q hangs $source || { printf compiled > $last; exit; }
sleep""",
    1,
)


def test_a_killed_process_takes_its_kernels_and_no_others(tmp_path):
    program = Program(tmp_path, CXX=script(tmp_path, HANGS))
    done = program.run("""
job = compilers.submit([cpp("hangs"), cpp("two"), cpp("three")])
until(lambda: os.path.exists(os.environ["NOTE"]))
compilers.outcomes([cpp("hangs")])
os.kill(compilers._process._child.pid, signal.SIGKILL)
assert job.wait(60)
print(said(job)[0])
assert said(job)[1:] == ["compiled"] * 2
sleeper = int(open(os.environ["NOTE"]).read())
until(lambda: not os.path.exists(f"/proc/{sleeper}"))
until(lambda: not os.listdir(os.environ["TMPDIR"]))
""")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the compiling process ended (signal 9) before the kernel was done\n"
    program.assert_nothing_left()


def test_closing_ends_it_at_once(tmp_path):
    program = Program(tmp_path, CXX=script(tmp_path, SLEEPS))
    done = program.run(
        AT_WORK
        + """
compilers.close()
assert said(job) == ["compiling was ended"] * 2
sleeper = int(open(os.environ["NOTE"]).read())
until(lambda: not os.path.exists(f"/proc/{sleeper}"))
assert not os.listdir(os.environ["TMPDIR"])
"""
    )
    assert done.returncode == 0, done.stderr
    program.assert_nothing_left()


def test_the_main_program_is_not_run_again(tmp_path):
    program = Program(tmp_path, CXX=script(tmp_path, COPIES))
    done = program.run("""
print("begins", flush=True)
job = compilers.submit([cpp("one")])
assert job.wait(60)
""")
    assert done.stdout == "begins\n"


def test_forks_have_compilers_of_their_own(tmp_path):
    """Also where another thread of the parent has its lock at that moment."""
    program = Program(tmp_path, CXX=script(tmp_path, COPIES))
    done = program.run("""
import warnings
warnings.simplefilter("ignore")  # that there are threads
job = compilers.submit([cpp("one")])
held, go = threading.Event(), threading.Event()

def hold():
    with compilers._lock:
        held.set()
        go.wait()

thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if not child:
    assert job.done and said(job) == ["the process was forked after the kernel had been submitted"]
    assert compilers.wait(0)
    compilers.close()
    late = compilers.submit([cpp("late")])
    assert late.done and "was forked" in said(late)[0]
    own = COMPILERS.get()
    assert own is not compilers
    mine = own.submit([cpp("one")])
    assert mine.wait(60) and said(mine) == ["compiled"]
    os._exit(7)
_, status = os.waitpid(child, 0)
go.set()
thread.join()
assert job.wait(60) and said(job) == ["compiled"], said(job)
assert os.waitstatus_to_exitcode(status) == 7
""")
    assert done.returncode == 0, done.stderr
    program.assert_nothing_left()
