"""What runs in a process that compiles kernels. It is run by path, and imports nothing of the package.

    python -I -S -B worker.py REQUESTS REPLIES PARENT

REQUESTS and REPLIES are descriptors of two files without a name. Each is a row of records (:func:`record`).
The first of REQUESTS says how to compile (:class:`CompileOrder`), each other one is a kernel. REPLIES gets a
record when a kernel is begun, and one with what came out. Standard input is a pipe that nobody writes to: it
ends when the program ends. PARENT is the number of the program's process.

``docs/design.md`` says how it lives and ends. It has no threads, so it may fork for each kernel, and Triton
is imported once. A fork and the compilers that it runs are a process group of this session; when the program
is gone, the groups are ended and the directory removed. Only if both are killed at once something is left.

What is passed to the C++ compiler:

- ``-O3`` vectorizes.
- ``-ffp-contract=off``: no product and sum become one instruction with one rounding; ATen rounds twice.
- ``-fwrapv``: whole numbers that become too large wrap, as they do in ATen's vectors.
- ``-fno-math-errno``: ``sqrt`` and its kin are instructions. Without it they are calls where the argument may
  be negative, which keeps loops from being vectorized; the values are the same.
- ``-march=native``: this machine's vectors; the binary never leaves it. Not every compiler knows it, so a
  kernel that fails with it is compiled without.
- ``-std=c++17 -shared -fPIC``: the language, and what can be loaded.

Nothing that changes values (``-ffast-math`` or parts of it) is ever passed.

What is passed to Triton (seen in 3.6 and 3.7):

- ``enable_fp_fusion=False``: LLVM and ``ptxas`` (``--fmad=false``) contract nothing, as above.
- ``enable_reflect_ftz=False``: functions of libdevice keep denormals, as those of CUDA's compiler do without
  ``-ftz=true``. Triton's default flushes them to zero. It concerns libdevice alone: Triton's own operations
  on numbers carry no ``.ftz``, but ``tl.exp`` is ``ex2.approx``, ``/`` is ``div.full`` and ``tl.sqrt`` is
  ``sqrt.approx``. No option makes these exact. A kernel has to call libdevice, ``div_rn`` and ``sqrt_rn``.
- ``launch_cooperative_grid``, ``launch_pdl``: off, so that the launch needs no attributes.

Triton adds two pointers behind the kernel's own parameters: scratch memory for all programs, and for its
profiler. Both are null if their sizes are 0, and a kernel for which they are not is refused. So is one whose
PTX has another number of parameters.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import re
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-ffp-contract=off", "-fwrapv", "-fno-math-errno")
NATIVE = "-march=native"
COMPILERS = ("g++", "c++", "clang++")
PAUSE_S = 0.1
"""Seconds after which this process looks whether there are more requests, and whether it has its parent."""

_LENGTH = struct.Struct("<Q")
_NICE = 10  # where cores are short the program comes first
_WIDTH = 240  # of a message
_ERROR = re.compile(r"(?<![A-Za-z])error:")

Request = dict[str, Any]
Reply = dict[str, Any]


def record(value: Any) -> bytes:
    """A value of JSON as bytes that say where they end."""
    text = json.dumps(value).encode()
    return _LENGTH.pack(len(text)) + text


class Records:
    """The records of a file that somebody else writes, as far as they have been written."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._offset = 0

    def rewind(self) -> None:
        """Begin anew."""
        self._offset = 0

    def take(self) -> list[Any]:
        """Those that have become whole since the last time."""
        found: list[Any] = []
        while (value := self._next()) is not None:
            found.append(value)
        return found

    def _next(self) -> Any:
        head = os.pread(self._descriptor, _LENGTH.size, self._offset)
        if len(head) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack(head)
        text = b""
        while len(text) < length:
            more = os.pread(self._descriptor, length - len(text), self._offset + _LENGTH.size + len(text))
            if not more:
                return None
            text += more
        self._offset += _LENGTH.size + length
        return json.loads(text)


def write_whole(descriptor: int, content: bytes) -> None:
    """Write all of it, in as many turns as that takes."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def one_line(text: str) -> str:
    """The line of a compiler's output that says what is wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it said nothing"]
    ends = lines[0] if len(lines) == 1 else f"{lines[0]} ... {lines[-1]}"
    found = next((line for line in lines if _ERROR.search(line)), ends)
    return found if len(found) <= _WIDTH else found[: _WIDTH - 3] + "..."


class RefusedError(Exception):
    """A kernel that is not compiled; its text is the reason."""


class CompileOrder(NamedTuple):
    """How to compile.

    Attributes:
        workers: How many kernels at once.
        directory: Where to write; it is made here.
        paths: Where Triton and what it needs are found.
        compiler: The command of the C++ compiler; empty to look for one.
        longest_s: Seconds after which the compiling of a kernel is ended.
    """

    workers: int
    directory: str
    paths: list[str]
    compiler: str
    longest_s: float


class Fork(NamedTuple):
    """A fork of this process that compiles one kernel."""

    number: int
    process: int
    pipe: int
    begun: float
    reply: bytearray


class CompileServer:
    """Takes requests, compiles them in forks, and writes replies."""

    def __init__(self, requests: int, replies: int, parent: int) -> None:
        self._requests = Records(requests)
        self._replies = replies
        self._parent = parent
        self._forks: dict[int, Fork] = {}  # by pipe
        self._waiting: deque[Request] = deque()
        self._late: set[int] = set()
        self._ended = False
        order, *rest = self._requests.take()
        self._order = CompileOrder(**order)
        self._waiting.extend(rest)
        self._directory_failure = ""
        self._triton_failure: str | None = None
        self._poll = select.poll()

    def serve(self) -> None:
        """Until every request has its reply, or the program has ended."""
        signal.signal(signal.SIGTERM, self._end)
        with suppress(OSError):
            os.nice(_NICE)
        sys.path += [path for path in self._order.paths if path not in sys.path]
        self._poll.register(0, 0)  # that the pipe has ended is always told
        try:
            os.mkdir(self._order.directory, 0o700)
        except OSError as error:
            self._directory_failure = f"no temporary directory can be made: {error}"
        while (self._waiting or self._forks) and not self._ended:
            while self._waiting and len(self._forks) < self._order.workers:
                self._start(self._waiting.popleft())
            self._watch()
            self._waiting.extend(self._requests.take())
        self._leave()

    def _end(self, *_: Any) -> None:
        self._ended = True

    def _start(self, request: Request) -> None:
        number = request["number"]
        if failure := self._directory_failure or self._failure_of_triton(request):
            self._say(number=number, why=failure)
            return
        theirs, ours = os.pipe()
        process = os.fork()
        if not process:
            os.setpgid(0, 0)
            _compile_in_fork(request, self._order, ours)
        os.close(ours)
        with suppress(OSError):  # it has done so itself
            os.setpgid(process, process)
        self._say(number=number, process=process)
        self._forks[theirs] = Fork(number, process, theirs, time.monotonic(), bytearray())
        self._poll.register(theirs, select.POLLIN)

    def _failure_of_triton(self, request: Request) -> str:
        """Why Triton can't be used for a request, if it is one for Triton; it is imported here, once."""
        if request["language"] != "triton":
            return ""
        if self._triton_failure is None:
            self._triton_failure = _import_triton()
        return self._triton_failure

    def _say(self, **reply: Any) -> None:
        write_whole(self._replies, record(reply))

    def _watch(self) -> None:
        """Wait for a fork, for the end of the program, or for a while."""
        for descriptor, event in self._poll.poll(PAUSE_S * 1000):
            if descriptor == 0:
                self._ended = self._ended or bool(event & (select.POLLHUP | select.POLLERR))
            elif descriptor in self._forks:
                self._read(self._forks[descriptor])
        self._ended = self._ended or os.getppid() != self._parent
        for fork in self._forks.values():
            if time.monotonic() - fork.begun > self._order.longest_s:
                self._late.add(fork.number)
                _end_group(fork.process)

    def _read(self, fork: Fork) -> None:
        content = os.read(fork.pipe, 1 << 16)
        if content:
            fork.reply.extend(content)
            return
        self._poll.unregister(fork.pipe)
        os.close(fork.pipe)
        del self._forks[fork.pipe]
        _, status = os.waitpid(fork.process, 0)
        try:
            reply: Reply = json.loads(fork.reply)
        except ValueError:
            late = fork.number in self._late
            cause = f"it took longer than {self._order.longest_s:g} s" if late else _cause(status)
            reply = {"why": f"the compiler was ended: {cause}"}
        self._say(number=fork.number, **reply)

    def _leave(self) -> NoReturn:
        """End whatever is still at work, and remove what it has written."""
        for fork in self._forks.values():
            _end_group(fork.process)
            os.waitpid(fork.process, 0)
        if not self._directory_failure:
            remove(self._order.directory)
        os._exit(0)


def _end_group(process: int) -> None:
    with suppress(OSError):
        os.killpg(process, signal.SIGKILL)


def remove(directory: str, tries: int = 100) -> None:
    """Remove it, although a compiler that is about to end may write there once more."""
    for _ in range(tries):
        shutil.rmtree(directory, ignore_errors=True)
        if not os.path.lexists(directory):
            return
        time.sleep(0.01)


def _cause(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"status {code}"
    return f"signal {-code} ({signal.strsignal(-code)})"


def _compile_in_fork(request: Request, order: CompileOrder, pipe: int) -> NoReturn:
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        write_whole(pipe, json.dumps(_compile(request, order)).encode())
    finally:
        os._exit(0)


def _compile(request: Request, order: CompileOrder) -> Reply:
    language: Callable[[Request, CompileOrder], Reply] = _cpp if request["language"] == "c++" else _triton
    try:
        return language(request, order)
    except RefusedError as error:
        return {"why": str(error)}
    except BaseException as error:
        return {"why": one_line(_said(error).replace(f"{order.directory}/", ""))}


def _said(error: BaseException) -> str:
    """An exception's text, and that of what caused it: Triton's own says no more than the line."""
    cause = f"\n{type(error.__cause__).__name__}: {error.__cause__}" if error.__cause__ else ""
    return f"{type(error).__name__}: {error}{cause}"


def _file(request: Request, order: CompileOrder, ending: str) -> str:
    return os.path.join(order.directory, f"kernel_{request['number']}{ending}")


def _written(request: Request, order: CompileOrder, ending: str) -> str:
    path = _file(request, order, ending)
    with open(path, "w", encoding="utf-8") as file:
        file.write(request["text"])
    return path


def _reply(code: bytes, symbol: str, shared_bytes: int = 0) -> Reply:
    return {"code": base64.b64encode(code).decode(), "symbol": symbol, "shared_bytes": shared_bytes}


# ------------------------------------------------------------------ C++


def _cpp(request: Request, order: CompileOrder) -> Reply:
    command = compiler_command(order.compiler)
    source, target = _written(request, order, ".cpp"), _file(request, order, ".so")
    for more in ([NATIVE], []):
        done = subprocess.run(
            [*command, *FLAGS, *more, source, "-o", target],
            cwd=order.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if not done.returncode:
            with open(target, "rb") as file:
                return _reply(file.read(), request["name"])
    said = (done.stderr or done.stdout).replace(f"{order.directory}/", "")
    raise RefusedError(f"{command[0]}: {one_line(said)}")


def compiler_command(wanted: str) -> list[str]:
    """The command of the C++ compiler.

    Args:
        wanted: The one that the user wants; empty to look for one.

    Raises:
        RefusedError: There is none.
    """
    if wanted:
        words = shlex.split(wanted)
        if not words or shutil.which(words[0]) is None:
            raise RefusedError(f"no C++ compiler: CXX is {wanted!r}, and there is no such program")
        return words
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if found is None:
        raise RefusedError(
            f"no C++ compiler: none of {', '.join(COMPILERS)} is on PATH; install one, or set CXX"
        )
    return [found]


# ------------------------------------------------------------------ Triton


def _import_triton() -> str:
    """Import it; why it can't be, or nothing."""
    try:
        importlib.import_module("triton.compiler")
        importlib.import_module("triton.backends.compiler")
    except BaseException as error:
        return one_line(f"Triton cannot be imported: {type(error).__name__}: {error}")
    return ""


def _triton(request: Request, order: CompileOrder) -> Reply:
    compiler: Any = importlib.import_module("triton.compiler")
    targets: Any = importlib.import_module("triton.backends.compiler")
    function = _function(request, order)
    names: list[str] = list(function.arg_names)
    kinds = [f"*{kind}" for kind in request["tensors"]]
    kinds += ["fp64"] * request["reals"] + ["i64"] * request["integers"]
    if len(names) != len(kinds):
        raise RefusedError(f"the kernel has {len(names)} parameters, and {len(kinds)} were announced")
    divisible = [["tt.divisibility", 16]]
    aligned = {(n,): divisible for n, is_aligned in enumerate(request["aligned"]) if is_aligned}
    options = {
        "num_warps": request["grid"]["warps"],
        "num_ctas": 1,
        "enable_fp_fusion": False,
        "enable_reflect_ftz": False,
        "launch_cooperative_grid": False,
        "launch_pdl": False,
        "debug": False,
    }
    source = compiler.ASTSource(function, dict(zip(names, kinds, strict=True)), {}, aligned)
    made = compiler.compile(source, targets.GPUTarget("cuda", request["capability"], 32), options)
    _check_launch(made, request["grid"]["warps"], len(names))
    return _reply(made.asm["cubin"], made.metadata.name, made.metadata.shared)


def _function(request: Request, order: CompileOrder) -> Any:
    path = _written(request, order, ".py")
    spec = importlib.util.spec_from_file_location(f"kernel_{request['number']}", path)
    if spec is None or spec.loader is None:
        raise RefusedError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, request["name"])


def _check_launch(made: Any, warps: int, own: int) -> None:
    """Refuse what needs more than a launch of so many warps with its own parameters and two null pointers."""
    told = made.metadata
    for name in ("global_scratch_size", "profile_scratch_size"):
        if getattr(told, name, 0):
            raise RefusedError(
                f"the kernel needs memory beside its tensors ({name} is {getattr(told, name)})"
            )
    if told.num_warps != warps:
        raise RefusedError(f"the kernel takes {told.num_warps} warps, and {warps} were announced")
    entry = re.search(r"\.entry[^(]*\((.*?)\)", made.asm["ptx"], re.DOTALL)
    count = entry[1].count(".param") if entry else 0
    if count != own + 2:
        raise RefusedError(f"the kernel has {count} parameters in PTX, and {own} with two more were expected")


if __name__ == "__main__":
    CompileServer(*map(int, sys.argv[1:4])).serve()
