"""The longer run: ``python -m tests.fuzz.run --examples 5000 --seed 0 --device cpu --jobs 2``.

With ``--state`` the scenes are about Python state. ``--count`` goes on after a failure, so that a run says
how many scenes differ; ``--way dynamo`` plays them with ``torch.compile(backend="eager")``, ``aot`` and
``backend`` with its backends ``aot_eager`` and ``rote`` (ATen's kernels), up to rounding.

The examples are cut into chunks, each with a seed of its own, so that a failure ends its chunk only and the
same numbers make the same run whatever ``--jobs`` is. A failing chunk is shrunk to a small program, which is
printed and stands in the JSON. The run also fails if too few calls were replayed.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

CHUNK = 50
_COMPILED = ("dynamo", "aot", "backend")


def main(argv: list[str] | None = None) -> int:
    """Run, print, write; 0 if no example failed and enough was replayed."""
    options = _options(argv)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic algorithms ask for it
    started = time.perf_counter()
    sizes = [min(CHUNK, options.examples - first) for first in range(0, options.examples, CHUNK)]
    run = partial(_chunk, options)
    results: list[dict[str, Any]] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        waiting = [pool.submit(run, number, size) for number, size in enumerate(sizes)]
        for done in as_completed(waiting):
            results.append(done.result())
            _progress(results, len(sizes), started)
    return _finish(options, sorted(results, key=lambda each: each["chunk"]), time.perf_counter() - started)


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("--examples", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument(
        "--state", action="store_true", help="scenes about Python state (tests/fuzz/state.py)"
    )
    parser.add_argument("--piece", action="append", help="with --state: only these pieces of state")
    parser.add_argument(
        "--count", action="store_true", help="go on after a failure and count; nothing is shrunk"
    )
    parser.add_argument(
        "--way", choices=["rote", *_COMPILED], default="rote", help="what graphs the callables"
    )
    return parser.parse_args(argv)


def _chunk(options: argparse.Namespace, number: int, examples: int) -> dict[str, Any]:
    """Play one chunk, in a process of the pool: those are the ones that need torch."""
    import hypothesis
    import pytest
    import torch
    from tests.runtime.fusion import evaluated

    from rote.testing import poisoned

    from .pieces import PIECES
    from .play import Tally, check_text
    from .scene import scenes
    from .state import state_scenes

    logging.getLogger("rote").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    tally = Tally()
    failures: list[str] = []
    drawn = scenes(options.device)
    if options.state:
        wanted = [piece for piece in PIECES if not options.piece or piece.name in options.piece]
        drawn = state_scenes(options.device, pieces=wanted)

    @hypothesis.seed(options.seed * 1_000_003 + number)
    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(drawn)
    def play(scene: Any) -> None:
        try:
            check_text(scene, tally, graph=_compiled(options.way) if options.way in _COMPILED else None)
        except Exception as error:
            if not options.count:
                raise
            failures.append(f"{type(error).__name__}: {error}")
        finally:
            if options.way in _COMPILED:
                tally.examples += 1
                torch._dynamo.reset()

    try:
        with poisoned(), pytest.MonkeyPatch.context() as patch:
            evaluated.install(patch)
            play()
    except BaseExceptionGroup as group:
        failures = [f"{type(error).__name__}: {error}" for error in group.exceptions]
    except Exception as error:
        failures = [f"{type(error).__name__}: {error}"]
    return {"chunk": number, **vars(tally), "failures": failures}


def _compiled(way: str) -> Callable[[Any], Any]:
    """What puts a callable under ``torch.compile``."""
    import torch

    from rote.integrations.torch_compile import backend

    if way == "backend":
        return partial(torch.compile, backend=backend, options={"kernels": "aten"})
    return partial(torch.compile, backend={"dynamo": "eager", "aot": "aot_eager"}[way])


def _progress(results: list[dict[str, Any]], chunks: int, started: float) -> None:
    examples = sum(result["examples"] for result in results)
    failed = sum(bool(result["failures"]) for result in results)
    seconds = time.perf_counter() - started
    print(
        f"{len(results)}/{chunks} chunks, {examples} examples, {failed} failed chunks, {seconds:.0f} s",
        flush=True,
    )
    for failure in results[-1]["failures"]:
        print(f"\nchunk {results[-1]['chunk']}: {failure}\n", flush=True)


def _finish(options: argparse.Namespace, results: list[dict[str, Any]], seconds: float) -> int:
    import torch

    from .play import LEAST_REPLAYED, Tally

    total = Tally()
    for result in results:
        fields = {name: value for name, value in result.items() if name not in ("chunk", "failures")}
        total.add(Tally(**fields))
    failures = [failure for result in results for failure in result["failures"]]
    summary = {
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "wanted": options.examples,
        "seed": options.seed,
        **vars(total),
        "replayed share": round(total.share, 4),
        "seconds": round(seconds, 1),
        "failures": failures,
    }
    if options.json is not None:
        options.json.write_text(json.dumps(summary, indent=2) + "\n")
    print(
        f"{total.examples} examples, {total.calls} calls, {total.share:.0%} replayed, in "
        f"{total.replaying} examples something was; {len(failures)} failures, {seconds:.0f} s"
    )
    print("not replayed because of " + ", ".join(f"{code} {n}" for code, n in total.reasons.most_common(12)))
    too_little = options.way == "rote" and total.share < LEAST_REPLAYED
    if too_little:
        print(f"too little was replayed: {total.share:.0%}, wanted {LEAST_REPLAYED:.0%}")
    return 1 if failures or too_little else 0


if __name__ == "__main__":
    sys.exit(main())
