"""Work in a process of its own, with a limit on time.

A check registers a device, replaces functions of PyTorch and puts fake tensors into the user's model; the
callable may change anything, print without end, hang, or crash the interpreter. So the check runs in a forked
copy of the process: the caller's objects stay as they are whatever happens, and only the answer comes back.

The copy must not use the device (a forked process has no CUDA context). A check only asks real tensors on it
for their metadata.
"""

from __future__ import annotations

import functools
import os
import pickle
import selectors
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

import torch

from ..base import EnvironmentError_, MisuseError

GRACE_S = 3.0
"""Seconds after the limit until the process is killed."""

AGAIN_S = 1.0
"""Seconds between two :class:`TimeUp`, as the callable may catch one; time for the check to conclude."""

OVER = b"the time is up"
"""The answer if the limit is reached outside of the work itself."""

HEAD = 2000
"""Characters of the output that are kept."""


class TimeUp(BaseException):
    """The limit is reached; raised in the middle of whatever runs."""


@dataclass(frozen=True)
class ChildAnswer:
    """The result of the work, or one of rote's errors that it raised.

    ``printed`` counts the bytes of its output and ``head`` is the beginning. ``ended`` says how the process
    ended without an answer: ``"time"`` or a text.
    """

    value: Any
    error: Exception | None
    printed: int
    head: str
    ended: str


def isolated(work: Callable[[], Any], limit_s: float) -> ChildAnswer:
    """Do work, whose result can be pickled, in a forked process.

    Raises:
        EnvironmentError_: This system cannot fork a process.
    """
    if not hasattr(os, "fork"):
        raise EnvironmentError_("a check needs os.fork, which this system does not have; use Linux or macOS")
    results, answers = os.pipe()
    prints, printed = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads
        child = os.fork()
    if child == 0:
        os.close(results)
        os.close(prints)
        _child(work, limit_s, answers, printed)
    os.close(answers)
    os.close(printed)
    try:
        return _parent(child, results, prints, limit_s)
    finally:
        os.close(results)
        os.close(prints)


# ---------------------------------------------------------------------- the child


def _child(work: Callable[[], Any], limit_s: float, answers: int, printed: int) -> NoReturn:
    status = 1
    try:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        sys.stdout = sys.__stdout__ = os.fdopen(1, "w", buffering=1, errors="replace", closefd=False)
        sys.stderr = sys.__stderr__ = os.fdopen(2, "w", buffering=1, errors="replace", closefd=False)
        warnings.resetwarnings()
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)  # the threads of the parent's pool are not there
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, functools.partial(_time_up, limit_s))
        signal.setitimer(signal.ITIMER_REAL, limit_s, AGAIN_S)
        message = _answer(work)
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.flush()
        with os.fdopen(answers, "wb", closefd=False) as pipe:
            pipe.write(message)
        status = 0
    except TimeUp:
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.write(answers, OVER)
    except BaseException:  # the child must never return into the caller's code
        traceback.print_exc()
    finally:
        os._exit(status)


def _answer(work: Callable[[], Any]) -> bytes:
    try:
        return pickle.dumps((work(), None))
    except (MisuseError, EnvironmentError_) as error:
        return pickle.dumps((None, type(error)(str(error))))


def _time_up(limit_s: float, number: int, frame: FrameType | None) -> None:
    raise TimeUp(f"the time limit of {limit_s:g} s was reached")


# ---------------------------------------------------------------------- the parent


def _parent(child: int, results: int, prints: int, limit_s: float) -> ChildAnswer:
    deadline = time.monotonic() + limit_s + GRACE_S
    message, head, count = bytearray(), bytearray(), 0
    killed = False
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(results, selectors.EVENT_READ)
            selector.register(prints, selectors.EVENT_READ)
            while selector.get_map() and not killed:
                left = deadline - time.monotonic()
                ready = selector.select(max(left, 0))
                killed = not ready or left <= 0
                for key, _ in ready:
                    data = os.read(key.fd, 1 << 16)
                    if not data:
                        selector.unregister(key.fd)
                    elif key.fd == results:
                        message += data
                    else:
                        count += len(data)
                        head += data[: max(0, HEAD - len(head))]
    finally:
        status = _end(child, killed)
    text = head.decode(errors="replace")
    if message and bytes(message) != OVER:
        value, error = pickle.loads(bytes(message))
        return ChildAnswer(value, error, count, text, "")
    return ChildAnswer(None, None, count, text, "time" if killed or message else _how(status))


def _end(child: int, kill: bool) -> int:
    if kill:
        os.kill(child, signal.SIGKILL)
    done, status = os.waitpid(child, 0 if kill else os.WNOHANG)
    for _ in range(100):
        if done:
            return status
        time.sleep(0.01)
        done, status = os.waitpid(child, os.WNOHANG)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"its process was ended by signal {signal.Signals(os.WTERMSIG(status)).name}"
    return f"its process ended with status {os.waitstatus_to_exitcode(status)}"
