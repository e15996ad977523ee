"""What comes out of the compilers, where everything is there and where something is missing."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from tests.faults.injection import Injector
from tests.runtime.compiling.tools import COPIES, SLEEPS, Program, cpp, script, triton, until

from rote.base import read_compile_settings
from rote.base.errors import InternalError
from rote.runtime.compiling import Binary, KernelSource, process
from rote.runtime.compiling.compilers import Compilers
from rote.runtime.compiling.process import CompileProcess
from rote.runtime.compiling.source import CompileFailure
from rote.runtime.compiling.worker import COMPILERS as NAMES
from rote.runtime.compiling.worker import Records

HAS_COMPILER = any(map(shutil.which, NAMES))
NEEDS_COMPILER = pytest.mark.skipif(not HAS_COMPILER, reason="there is no C++ compiler")
TRITON = importlib.util.find_spec("triton")
NEEDS_TRITON = pytest.mark.skipif(TRITON is None, reason="there is no Triton")


@pytest.fixture
def compilers(tmp_path, monkeypatch):
    """Makes compilers, with variables of the environment, and ends them."""
    made: list[Compilers] = []
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # what a user has set for himself does no harm
    monkeypatch.setenv("PTXAS_OPTIONS", "--nonsense")
    monkeypatch.delenv("ROTE_COMPILE_WORKERS", raising=False)

    def make(**variables: str) -> Compilers:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        made.append(Compilers(read_compile_settings()))
        return made[-1]

    yield make
    for found in made:
        found.close()
    assert not list(temporary.iterdir())


def said(compilers: Compilers, *sources: KernelSource) -> list[str]:
    job = compilers.submit(sources)
    assert job.wait(120)
    return [each.why if isinstance(each, CompileFailure) else "compiled" for each in job.results().values()]


@NEEDS_COMPILER
def test_cpp(compilers, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    text = """
        #include <cstdint>
        extern "C" void kernel(void* const* tensors, const double* reals, const int64_t* integers) {
            static_cast<double*>(tensors[0])[0] = reals[0] * reals[1] - integers[0];
        }
    """
    source = replace(cpp(text), tensors=("fp64",), aligned=(True,), reals=2, integers=1)
    wrong = cpp("\n\n int x = y;")
    job = compilers().submit([source, wrong])
    assert job.wait(120)
    found = job.results()[source]
    assert isinstance(found, Binary) and found.source is source and found.symbol == "kernel"
    with tempfile.NamedTemporaryFile() as file:
        file.write(found.code)
        file.flush()
        function = ctypes.CDLL(file.name).kernel
    # One rounding for the product and one for the difference: with a single one the result is not zero.
    place, a = ctypes.c_double(), 1.0 + 2.0**-30
    integers, reals = (ctypes.c_int64 * 1)(1), (ctypes.c_double * 2)(a, 2.0 - a)
    function((ctypes.c_void_p * 1)(ctypes.addressof(place)), reals, integers)
    assert place.value == a * (2.0 - a) - 1 == 0.0
    failed = job.results()[wrong]
    assert isinstance(failed, CompileFailure)
    assert "kernel_1.cpp:3" in failed.why and "y" in failed.why and "\n" not in failed.why
    assert "/tmp/" not in failed.why


KERNEL = """
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def kernel(x, plus):
    i = tl.program_id(0) * 64 + tl.arange(0, 64)
    a = tl.load(x + i)
    tl.store(x + i, libdevice.tanh(a * a + plus.to(tl.float32)) * a + a)
"""


@NEEDS_TRITON
def test_triton(compilers, tmp_path):
    """Without a GPU, at home nowhere, and as it is always done."""
    home = tmp_path / "home"
    home.mkdir()
    good, wrong = triton(KERNEL), triton(KERNEL.replace("tl.load(x", "tl.load(y"))
    fewer = replace(good, integers=0)
    looks = triton(
        "import __main__, sys\n"
        "names = sorted({'rote', 'torch'} & sys.modules.keys())\n"
        "raise RuntimeError(f'{__main__.__file__} {names}')"
    )
    job = compilers(HOME=str(home)).submit([good, wrong, fewer, looks])
    assert job.wait(240)
    results = job.results()
    found = results[good]
    assert isinstance(found, Binary), found.why
    assert found.code[:4] == b"\x7fELF" and found.symbol == "kernel"
    assert "y is not defined" in results[wrong].why
    assert results[fewer].why == "the kernel has 2 parameters, and 1 were announced"
    assert results[looks].why.endswith("compiling/worker.py []")
    assert not list(home.iterdir())


@NEEDS_TRITON
def test_roundings_and_denormals_are_kept(compilers, tmp_path):
    tool = Path(TRITON.origin).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    if not tool.exists():
        pytest.skip("this Triton has no nvdisasm")
    job = compilers().submit([triton(KERNEL.replace("libdevice.tanh", "")), triton(KERNEL)])
    assert job.wait(240)
    texts: list[str] = []
    for found in job.results().values():
        (tmp_path / "kernel").write_bytes(found.code)
        command = [str(tool), "-c", str(tmp_path / "kernel")]
        texts.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert "FMUL" in texts[0] and "FADD" in texts[0] and "FFMA" not in texts[0]
    assert "FFMA" in texts[1] and ".FTZ" not in texts[1]  # the library has its own, where it means them


def test_each_source_is_compiled_once(compilers, tmp_path):
    count = tmp_path / "count"
    made = compilers(CXX=script(tmp_path, COPIES + f'echo "$*" >> {count}\n'))
    first, second = made.submit([cpp("a"), cpp("b"), cpp("a")]), made.submit([cpp("b"), cpp("c")])
    assert made.wait(60) and first.done and second.done
    assert list(first.results()) == [cpp("a"), cpp("b")] and list(second.results()) == [cpp("b"), cpp("c")]
    assert all(found.code == b"compiled" for found in first.results().values())
    assert made.submit([cpp("c")]).done
    assert len(count.read_text().splitlines()) == 3


def test_a_job_of_nothing_is_done(compilers):
    job = compilers().submit([])
    assert job.done and job.results() == {} and job.wait(0)


def test_results_are_not_there_before(compilers, tmp_path, monkeypatch):
    note = tmp_path / "note"
    made = compilers(CXX=script(tmp_path, SLEEPS), NOTE=str(note))
    job = made.submit([cpp("a")])
    with pytest.raises(InternalError, match="asked for before it was done"):
        job.results()
    assert not job.wait(0.01) and not made.wait(0)
    until(note.exists)
    made.close()
    assert job.done


def test_switched_off(compilers):
    made = compilers(ROTE_COMPILE_WORKERS="0")
    job = made.submit([cpp("a")])
    assert job.done
    assert said(made, cpp("a")) == ["compiling is switched off by ROTE_COMPILE_WORKERS=0"]


@pytest.mark.parametrize(("wanted", "most"), [("", 3), ("2", 2), ("100", 3), ("many", 3)])
def test_at_most_half_of_the_cores(compilers, tmp_path, monkeypatch, wanted, most):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(7)))
    folder = tmp_path / "running"
    folder.mkdir()
    counts = f"touch {folder}/$$; ls {folder} | wc -l >> {tmp_path}/counts; sleep 0.05; rm {folder}/$$\n"
    made = compilers(CXX=script(tmp_path, COPIES + counts), ROTE_COMPILE_WORKERS=wanted)
    assert said(made, *[cpp(str(n)) for n in range(8)]) == ["compiled"] * 8
    assert 1 <= max(map(int, (tmp_path / "counts").read_text().split())) <= most


# --- Something is missing --------------------------------------------------------------------------------


def test_no_compiler(compilers, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    text = "no C++ compiler: none of g++, c++, clang++ is on PATH; install one, or set CXX"
    assert said(compilers(PATH="/nowhere"), cpp("a")) == [text]


def test_a_compiler_that_is_not_there(compilers):
    text = "no C++ compiler: CXX is 'nowhere -v', and there is no such program"
    assert said(compilers(CXX="nowhere -v"), cpp("a")) == [text]


def test_a_compiler_that_does_not_know_the_machine(compilers, tmp_path):
    text = COPIES.replace("for", 'case "$*" in *native*) exit 1;; esac\nfor', 1)
    assert said(compilers(CXX=script(tmp_path, text)), cpp("a")) == ["compiled"]


def test_a_compiler_that_says_nothing(compilers, tmp_path):
    path = script(tmp_path, "#!/bin/sh\nexit 1")
    assert said(compilers(CXX=path), cpp("a")) == [f"{path}: it said nothing"]


def test_a_compiler_that_makes_nothing(compilers, tmp_path):
    (why,) = said(compilers(CXX=script(tmp_path, "#!/bin/sh\nexit 0")), cpp("a"))
    assert "No such file or directory: 'kernel_0.so'" in why


def test_no_space_left(compilers, tmp_path):
    """The device that is always full stands for a disk that is."""
    path = script(tmp_path, "#!/bin/sh\necho 'as: begins' >&2\ncp /etc/passwd /dev/full || exit 1")
    (why,) = said(compilers(CXX=path), cpp("a"))
    assert why.startswith(f"{path}: as: begins ...") and why.endswith("No space left on device"), why


def test_no_space_for_a_request(compilers, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        (why,) = said(compilers(), cpp("a"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert why.startswith("OSError: [Errno 27]")
    assert said(compilers(CXX=script(tmp_path, COPIES)), cpp("a")) == ["compiled"]


def test_no_temporary_directory(compilers, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")
    (why,) = said(compilers(), cpp("a"))
    assert why.startswith("no temporary directory can be made: ")

    def refuse():
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    (why,) = said(compilers(), cpp("a"))
    assert why == "FileNotFoundError: [Errno 2] No usable temporary directory found"


@pytest.mark.parametrize("path", ["", "/usr/bin/uwsgi"])
def test_a_program_that_is_no_interpreter(compilers, monkeypatch, path):
    monkeypatch.setattr(sys, "executable", path)
    (why,) = said(compilers(), cpp("a"))
    assert why.endswith(f"sys.executable is {path!r}, which is no Python interpreter to compile with")


def test_an_interpreter_that_does_not_start(compilers, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", script(tmp_path, "#!/bin/sh\nexit 5", "python"))
    assert said(compilers(), cpp("a")) == [
        "the compiling process ended (status 5) before the kernel was done"
    ]


def test_a_compiler_that_crashes_takes_one_kernel(compilers, tmp_path):
    text = COPIES.replace("for", 'case "$*" in *kernel_0*) kill -SEGV $PPID;; esac\nfor', 1)
    found = said(compilers(CXX=script(tmp_path, text)), cpp("a"), cpp("b"))
    assert found == ["the compiler was ended: signal 11 (Segmentation fault)", "compiled"]


def test_a_compiler_that_takes_too_long(compilers, tmp_path, monkeypatch):
    monkeypatch.setattr(process, "LONGEST_S", 0.2)
    note = tmp_path / "note"
    found = said(compilers(CXX=script(tmp_path, SLEEPS), NOTE=str(note)), cpp("a"))
    assert found == ["the compiler was ended: it took longer than 0.2 s"]


def test_no_triton(tmp_path):
    program = Program(tmp_path)
    done = program.run(
        'job = compilers.submit([KernelSource(Language.TRITON, "k", "", (), (), 0, 0, Programs(), 90)])\n'
        "assert job.wait(60)\nprint(*said(job))",
        "-I",
        "-S",
    )
    assert done.stdout == "Triton cannot be imported: ModuleNotFoundError: No module named 'triton'\n", (
        done.stderr
    )
    program.assert_nothing_left()


def test_a_program_that_is_held_up_loses_nothing(compilers, tmp_path, monkeypatch):
    """The process has looked for something to do, and might have ended, before the program goes on."""
    begin = CompileProcess._start

    def late(self: CompileProcess, *given):
        child = begin(self, *given)
        until(lambda: child.poll() is not None)
        return child

    monkeypatch.setattr(CompileProcess, "_start", late)
    assert said(compilers(CXX=script(tmp_path, COPIES)), cpp("a"), cpp("b")) == ["compiled", "compiled"]


# --- Interrupts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True])
def test_an_interrupt_loses_nothing(compilers, tmp_path, monkeypatch, after):
    points = [(CompileProcess, name) for name in ("__init__", "give", "take", "left", "has_left")]
    injector = Injector(monkeypatch, [*points, (Records, "take")])
    path = script(tmp_path, COPIES)
    for number in range(12):
        made, sources = compilers(CXX=path), [cpp("a"), cpp("b")]
        injector.arm(number, KeyboardInterrupt, after=after)
        job = None
        while job is None or not job.done:
            try:
                job = made.submit(sources)
                job.wait(60)
            except KeyboardInterrupt:
                assert injector.error is not None
        assert said(made, *sources) == ["compiled", "compiled"]
        injector.stop()
        made.close()
