"""What really happens: ``python -m tests.corpus.truth --json out.json --workers 14`` on a GPU.

Every case is captured by hand, as the documentation of ``torch.cuda.graph`` says: three calls on a side
stream, one capture, then replays with new inputs copied in. Each has a process of its own, since a capture
that fails may leave the process broken. The results of replays are compared with those of the plain callable.

A capture stops at the first line that cannot be in it. The others are found by asking PyTorch to tell of
every synchronizing operation of a plain call (``torch.cuda.set_sync_debug_mode``), while the callable is told
that a stream is capturing: a line that waits and has no label contradicts. Operators of other packages do not
tell.
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .case import STOPS, WRONG, Case, in_package
from .suite import cases, seed

WARMUP, REPLAYS = 3, 12
WAITS = "called a synchronizing"
AHEAD = (
    "tests.corpus.suite", "torch._dynamo", "torchvision.models.detection", "timm",
    "transformers.generation.utils", "transformers.models.llama.modeling_llama",
)  # fmt: skip
"""Modules that the processes begin with; what is not there is left out."""
RIGHT, RAISES = "right", "raises without a capture"


class Truth(NamedTuple):
    """What a capture by hand came to.

    Attributes:
        outcome: ``"stops"``, ``"wrong"``, ``"right"`` or ``"raises without a capture"``.
        line: Where it stopped, in the case's own file; 0 if it did not or it was elsewhere.
        text: What was raised, or what differed.
        waits: Lines of a plain call that wait for the device: file, source, and the first line of the
            statement, which some versions of Python name instead.
    """

    outcome: str
    line: int = 0
    text: str = ""
    waits: tuple[tuple[str, str, str], ...] = ()


def main(argv: list[str] | None = None) -> int:
    """Capture all, print what contradicts a label, write; 0 if nothing does."""
    parser = argparse.ArgumentParser(prog="python -m tests.corpus.truth", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", default="", help="groups and names, separated by commas")
    options = parser.parse_args(argv)
    chosen = set(filter(None, options.only.split(",")))
    numbers = [n for n, case in enumerate(cases()) if not chosen or chosen & {case.group, case.name}]
    everything = [cases()[n] for n in numbers]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(AHEAD))
    truths: list[Truth] = []
    wrong = 0
    with ProcessPoolExecutor(options.workers, mp_context=context, max_tasks_per_child=1) as pool:
        for case, truth in zip(everything, pool.map(_captured, numbers), strict=True):
            truths.append(truth)
            said = contradiction(case, truth)
            if said is not None:
                wrong += 1
                print(f"{case.group}: {case.name}: {said} ({truth.text})", flush=True)
    if options.json is not None:
        rows = [
            {"group": c.group, "name": c.name, **t._asdict()} for c, t in zip(everything, truths, strict=True)
        ]
        about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
        options.json.write_text(json.dumps({**about, "cases": rows}, indent=1) + "\n")
    seen, stopping = (sum(part) for part in zip(*map(_confirmed, everything, truths), strict=True))
    counts = f"{seen} of {stopping} lines that stop were seen to wait"
    print(f"{len(everything)} cases, {wrong} labels contradicted; {counts}")
    return 1 if wrong else 0


def contradiction(case: Case, truth: Truth) -> str | None:
    """What is wrong with a case's labels, or None."""
    labels = {*case.labels().values(), *(label.label for label in case.labels_elsewhere())}
    wanted = STOPS if STOPS in labels else WRONG if WRONG in labels else RIGHT
    if truth.outcome != wanted:
        return f"labelled {wanted}, and is {truth.outcome} at line {truth.line}"
    if truth.outcome == STOPS and truth.line and case.labels().get(truth.line) != STOPS:
        return f"stops at line {truth.line}, which has no such label"
    stopping = _stopping(case)
    unlabelled = [wait for wait in truth.waits if stopping.isdisjoint(_places(wait))]
    if unlabelled:
        return f"waits in {unlabelled[0][0]} at {unlabelled[0][1]!r}, which has no label"
    return None


def _stopping(case: Case) -> set[tuple[str, str]]:
    lines = Path(case.file).read_text().splitlines()
    own = {
        (Path(case.file).name, lines[at - 1].strip()) for at, label in case.labels().items() if label == STOPS
    }
    return own | {(each.file, each.source) for each in case.labels_elsewhere() if each.label == STOPS}


def _confirmed(case: Case, truth: Truth) -> tuple[int, int]:
    stopping = _stopping(case)
    return len(stopping.intersection(chain(*map(_places, truth.waits)))), len(stopping)


def _places(wait: tuple[str, str, str]) -> set[tuple[str, str]]:
    file, line, statement = wait
    return {(file, line), (file, statement)}


def _captured(number: int) -> Truth:
    case = cases()[number]
    try:
        waiting = waits(case)  # first: a capture that fails may leave random numbers unusable
        return captured(case)._replace(waits=waiting)
    except Exception as error:  # a plain call, of which no label tells
        return Truth(RAISES, text=repr(error))


def waits(case: Case) -> tuple[tuple[str, str, str], ...]:
    """The lines of a plain call, outside of PyTorch, that wait for the device."""
    seed()
    fn, args = case.build("cuda")
    for _ in range(2):
        fn(*args)
    torch.cuda.synchronize()
    found: dict[tuple[str, str, str], None] = {}
    own = (f"{Path(torch.__file__).parent}{os.sep}", warnings.__file__, __file__)

    def met(message: Warning | str, *args: Any, **kwargs: Any) -> None:
        if WAITS not in str(message):
            return
        frames = traceback.extract_stack()[:-1]  # without this one
        outside = [f for f in frames if not f.filename.startswith(own)]
        if outside:
            at = outside[-1]
            statement = _statement(at.filename, at.lineno or 0)
            found[in_package(at.filename, case.needs), at.line or "", statement] = None

    with warnings.catch_warnings(), _capturing():
        warnings.simplefilter("always")
        warnings.showwarning = met
        torch.cuda.set_sync_debug_mode("warn")
        try:
            fn(*args)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return tuple(found)


def _statement(file: str, line: int) -> str:
    """The first line of the statement around a line."""
    text = Path(file).read_text()
    spans = [(node.end_lineno - node.lineno, node.lineno) for node in ast.walk(ast.parse(text))
             if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)]  # fmt: skip
    return text.splitlines()[min(spans)[1] - 1].strip() if spans else ""


@contextmanager
def _capturing() -> Iterator[None]:
    """Who asks is told that a stream is capturing."""
    asked = torch.cuda.is_current_stream_capturing
    torch.cuda.is_current_stream_capturing = lambda: True
    try:
        yield
    finally:
        torch.cuda.is_current_stream_capturing = asked


def captured(case: Case) -> Truth:
    """Capture one case, in this process."""
    wanted = _plain(case)
    seed()
    fn, args = case.build("cuda")
    static = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARMUP):
            fn(*static)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            out = fn(*static)
    except Exception as error:
        return _stopped(case, error)
    for number in range(REPLAYS):
        for place, value in zip(static, _moved(args, number), strict=True):
            if isinstance(place, torch.Tensor):
                place.copy_(value)
        graph.replay()
        torch.cuda.synchronize()
        found = _kept(out)
        if not _same(wanted[number], found):
            return Truth(WRONG, text=f"replay {number}: {found!r:.80} instead of {wanted[number]!r:.80}")
    return Truth(RIGHT)


def _plain(case: Case) -> list[Any]:
    seed()
    fn, args = case.build("cuda")
    for _ in range(WARMUP):
        fn(*args)
    return [_kept(fn(*_moved(args, number))) for number in range(REPLAYS)]


def _stopped(case: Case, error: Exception) -> Truth:
    """The innermost line in the case's file: of the first exception, the later ones are from the clean-up."""
    first: BaseException = error
    while first.__context__ is not None:
        first = first.__context__
    frames = traceback.extract_tb(first.__traceback__)
    lines = [frame.lineno or 0 for frame in frames if str(Path(frame.filename).resolve()) == case.file]
    where = f"{Path(frames[-1].filename).name}: {frames[-1].line}" if frames else ""
    own = [line for line in lines if line in case.span]
    return Truth(
        STOPS, own[-1] if own and not case.elsewhere else 0, f"{str(first).splitlines()[0]:.90} [{where}]"
    )


def _moved(args: tuple[Any, ...], number: int) -> list[Any]:
    """New values: every floating-point input scaled, so that signs stay."""
    return [
        arg * (1 + 0.1 * (number + 1)) if isinstance(arg, torch.Tensor) and arg.is_floating_point() else arg
        for arg in args
    ]


def _kept(value: Any) -> list[Any]:
    """The tensors and numbers of a result, as they are now."""
    leaves, _ = torch.utils._pytree.tree_flatten(value)
    return [leaf.detach().cpu().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


def _same(wanted: list[Any], found: list[Any]) -> bool:
    return len(wanted) == len(found) and all(
        torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-5, equal_nan=True)
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.shape == b.shape
        else not isinstance(a, torch.Tensor) and (not isinstance(a, (int, float, str, bool)) or a == b)
        for a, b in zip(wanted, found, strict=True)
    )


if __name__ == "__main__":
    sys.exit(main())
