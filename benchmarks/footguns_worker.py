"""A process that runs footgun cases in one way, and the handle its parent has on it.

The parent writes a case's name, the worker answers with one line of JSON. Whatever libraries print goes to
the standard error stream, which nobody reads.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import torch
import torch._inductor.config
from tests.footguns.outcome import run
from tests.footguns.suite import CASES, label
from tests.footguns.ways import WAYS, Rote

from .common import first_line

START_S = 180.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}  # there are many workers
ROOT = Path(__file__).resolve().parents[1]


class Worker:
    """The parent's handle.

    Args:
        way: The way of graphing.
        device: ``"cuda"`` or ``"cpu"``.
        command: What to run instead of a worker; for tests.
    """

    def __init__(self, way: str, device: str, command: Sequence[str] = ()) -> None:
        command = command or (sys.executable, "-m", "benchmarks.footguns_worker", way, device)
        self._process = subprocess.Popen(
            list(command),
            cwd=ROOT,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": _paths()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # so that what it starts can be stopped with it
        )
        self._started = False

    def ask(self, case: str, timeout_s: float) -> dict[str, Any]:
        """Have a case run; no answer in time, or none at all, is a refusal."""
        if not self._started:
            self._started = True
            if self._line(START_S) is None:
                return _refused("the process did not start")
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(case + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return _refused(f"the process died ({self._fate()})")
        line = self._line(timeout_s)
        if line is None:
            return _refused(f"no answer in {timeout_s:.0f} s")
        return json.loads(line) if line else _refused(f"the process died ({self._fate()})")

    def _line(self, timeout_s: float) -> str | None:
        """The next line; empty at the end of the stream, None if none came in time."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        return self._process.stdout.readline() if ready else None

    def _fate(self) -> str:
        code = self._process.wait()
        return f"exit status {code}" if code >= 0 else signal.Signals(-code).name

    def stop(self) -> None:
        """End the process and what it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):  # a question that nobody read
                stream.close()
        self._process.wait()


def _refused(detail: str) -> dict[str, Any]:
    return {"outcome": "refused", "detail": detail, "healthy": False}


def _paths() -> str:
    """Where the worker finds rote: where this process does."""
    return os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])


# ------------------------------------------------------------------ in the worker


def serve(way: str, device: torch.device, questions: IO[str], answers: IO[str]) -> None:
    """Answer until there are no more questions."""
    cases = {label(case): case for case in CASES}
    before = _ambient()
    print("ready", file=answers, flush=True)
    for line in questions:
        made = WAYS[way](device)
        try:
            outcome = run(cases[line.strip()], made, device)
            answer: dict[str, Any] = {"outcome": outcome.kind.value, "detail": outcome.detail[:300]}
        except Exception as error:  # the plain program failed, or the way could not be closed
            answer = {"outcome": "refused", "detail": first_line(error)[:300]}
        if isinstance(made, Rote):
            answer |= of_rote(made)
        del made
        answer["healthy"] = _ambient() == before and _works(device)
        print(json.dumps(answer), file=answers, flush=True)


def of_rote(way: Rote) -> dict[str, Any]:
    """What the reports say: whether the late calls replayed, how many did, and why others did not."""
    late, reports = way.late(), way.reports()
    return {
        "replays": bool(late) and all(replayed for _, replayed in late),
        "calls": sum(report.calls for report in reports),
        "replayed": sum(report.replayed for report in reports),
        "codes": sorted({code for code, _ in way.told()}),
    }


def _ambient() -> tuple[object, ...]:
    return (
        *(torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()),
        torch.are_deterministic_algorithms_enabled(),
    )


def _works(device: torch.device) -> bool:
    """Whether the next case can be run in this process: a failed capture may leave CUDA unusable."""
    gc.collect()
    if device.type != "cuda":
        return True
    try:
        torch.cuda.synchronize()
        plain = not torch.cuda.is_current_stream_capturing()
        plain &= torch.cuda.current_stream() == torch.cuda.default_stream()
        torch.manual_seed(0)
        return plain and bool(torch.rand(4, device=device).sum().isfinite().item())
    except RuntimeError:
        return False


def main() -> None:
    """Serve on the standard streams."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch._inductor.config.fallback_random = True  # the compiler's own random numbers differ from eager's
    serve(sys.argv[1], torch.device(sys.argv[2]), sys.stdin, answers)


if __name__ == "__main__":
    main()
