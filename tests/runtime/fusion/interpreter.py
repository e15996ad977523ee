"""Plays Triton kernels without a GPU: a program of its own, since Triton asks for that when it is imported.

Takes a file with kernels, each with what it is given, and writes what they have made to another file.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch


def play(each: dict[str, Any], folder: Path, number: int) -> None:
    """Run one kernel; what it writes is among its tensors."""
    path = folder / f"kernel_{number}.py"
    path.write_text(each["text"])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel = getattr(module, each["name"])
    kernel[(each["programs"],)](*each["tensors"], *each["numbers"])


def played(kernels: list[dict[str, Any]], folder: Path) -> list[list[torch.Tensor]]:
    """Play kernels one after the other in a program of their own; the tensors of each after all of them."""
    given, made = folder / "given", folder / "made"
    torch.save(kernels, given)
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": paths}
    subprocess.run(
        [sys.executable, __file__, str(given), str(made)], env=environment, check=True, capture_output=True
    )
    return torch.load(made, weights_only=True)


if __name__ == "__main__":
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    kernels = torch.load(source, weights_only=True)
    for number, each in enumerate(kernels):
        play(each, source.parent, number)
    torch.save([each["tensors"] for each in kernels], target)
