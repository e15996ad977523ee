"""Work in processes that are forked from this one, which has imported everything, some at a time.

What a piece of work leaves broken, a hang or a crash cost that piece and nothing else. Nothing here may touch
the device before all is done: a forked process has no CUDA context.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from . import common

Key = TypeVar("Key")
Answer = dict[str, Any]


@dataclass
class Fork:
    """A piece of work in a process of its own."""

    process: int
    pipe: int
    end: float
    answer: bytes = b""

    @classmethod
    def start(cls, work: Callable[[], Answer], timeout_s: float) -> Fork:
        """Fork a process that writes its answer to a pipe."""
        reading, writing = os.pipe()
        process = os.fork()
        if not process:
            os.close(reading)
            _child(work, writing)
        os.close(writing)
        return cls(process, reading, time.monotonic() + timeout_s)

    def read(self) -> bool:
        """Read what has come; whether that was the end."""
        found = os.read(self.pipe, 1 << 16)
        self.answer += found
        return not found

    def finish(self) -> Answer:
        """End the process and what it started."""
        late = time.monotonic() >= self.end
        os.close(self.pipe)
        if late:
            os.killpg(self.process, signal.SIGKILL)
        _, status = os.waitpid(self.process, 0)
        if self.answer:
            return json.loads(self.answer)
        fate = "no answer in time" if late else f"the process died ({os.waitstatus_to_exitcode(status)})"
        return {"outcome": "refused", "detail": fate}


def run_all(
    works: Mapping[Key, Callable[[], Answer]], jobs: int, timeout_s: float, limit_s: float = math.inf
) -> dict[Key, Answer]:
    """The answers of all pieces of work; of one that fails, hangs or dies an outcome ``refused``.

    Args:
        works: What to do, by name.
        jobs: Processes at a time.
        timeout_s: Seconds for one piece.
        limit_s: Seconds after which none is begun; those that are left have no answer.
    """
    end = time.monotonic() + limit_s
    waiting = list(works.items())
    answers: dict[Key, Answer] = {}
    running: list[tuple[Key, Fork]] = []
    while waiting or running:
        if time.monotonic() >= end:
            waiting.clear()
        while waiting and len(running) < jobs:
            key, work = waiting.pop(0)
            running.append((key, Fork.start(work, timeout_s)))
        ready, _, _ = select.select([fork.pipe for _, fork in running], [], [], 0.2)
        for key, fork in list(running):
            if (fork.pipe in ready and fork.read()) or time.monotonic() >= fork.end:
                running.remove((key, fork))
                answers[key] = fork.finish()
    return answers


def default_device() -> str:
    """``cuda`` where there is a GPU. Another process asks: one that has asked the driver may not fork."""
    asked = "import torch; print(torch.cuda.is_available())"
    found = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True)
    return "cuda" if found.stdout.strip() == "True" else "cpu"


def _child(work: Callable[[], Answer], pipe: int) -> None:
    """Run, answer, and leave without what a process does at its end."""
    os.setsid()
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silence, stream)
    warnings.simplefilter("ignore")
    try:
        answer = work()
    except BaseException as error:  # the plain program failed, or the way could not be closed
        where = "".join(traceback.format_exception(error)[-3:])
        answer = {"outcome": "refused", "detail": common.first_line(error)[:300], "where": where}
    os.write(pipe, json.dumps(answer).encode())
    os._exit(0)
