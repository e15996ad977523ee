"""Plays Triton kernels without a GPU: a program of its own, since Triton asks for that when it is imported.

Takes a file with kernels, each with what it is given, and writes what they have made to another file.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch


def play(text: str, folder: Path, number: int, tensors: list[Any], numbers: list[Any], programs: int) -> None:
    """Run one kernel; what it writes is among its tensors."""
    path = folder / f"kernel_{number}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.fused[(programs,)](*tensors, *numbers)


if __name__ == "__main__":
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    kernels = torch.load(source, weights_only=True)
    for number, each in enumerate(kernels):
        play(each["text"], source.parent, number, each["tensors"], each["numbers"], each["programs"])
    torch.save([each["tensors"] for each in kernels], target)
