"""What really happens: ``python -m tests.corpus.truth --json out.json --workers 14`` on a GPU.

Every case is captured by hand, as the documentation of ``torch.cuda.graph`` says: three calls on a side
stream, one capture, then replays with new inputs copied in. Each has a process of its own, since a capture
that fails may leave the process broken. The results of replays are compared with those of the plain callable.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .case import STOPS, WRONG, Case
from .suite import cases, seed

WARMUP, REPLAYS = 3, 4
RIGHT = "right"


class Truth(NamedTuple):
    """What a capture by hand came to.

    Attributes:
        outcome: ``"stops"``, ``"wrong"`` or ``"right"``.
        line: Where it stopped, in the case's own file; 0 if it did not or it was elsewhere.
        text: What was raised, or what differed.
    """

    outcome: str
    line: int = 0
    text: str = ""


def main(argv: list[str] | None = None) -> int:
    """Capture all, print what contradicts a label, write; 0 if nothing does."""
    parser = argparse.ArgumentParser(prog="python -m tests.corpus.truth", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args(argv)
    everything = cases()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, mp_context=context, max_tasks_per_child=1) as pool:
        truths = list(pool.map(_captured, range(len(everything))))
    wrong = [
        (case, truth, said)
        for case, truth in zip(everything, truths, strict=True)
        if (said := contradiction(case, truth)) is not None
    ]
    for case, truth, said in wrong:
        print(f"{case.group}: {case.name}: {said} ({truth.text})")
    if options.json is not None:
        rows = [
            {"group": c.group, "name": c.name, **t._asdict()} for c, t in zip(everything, truths, strict=True)
        ]
        about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
        options.json.write_text(json.dumps({**about, "cases": rows}, indent=1) + "\n")
    print(f"{len(everything)} cases, {len(wrong)} labels contradicted")
    return 1 if wrong else 0


def contradiction(case: Case, truth: Truth) -> str | None:
    """What is wrong with a case's labels, or None."""
    labels = {*case.labels().values(), *(label.label for label in case.labels_elsewhere())}
    wanted = STOPS if STOPS in labels else WRONG if WRONG in labels else RIGHT
    if truth.outcome != wanted:
        return f"labelled {wanted}, and is {truth.outcome} at line {truth.line}"
    if truth.outcome == STOPS and truth.line and case.labels().get(truth.line) != STOPS:
        return f"stops at line {truth.line}, which has no such label"
    return None


def _captured(number: int) -> Truth:
    return captured(cases()[number])


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
