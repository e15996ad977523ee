"""The programs of ``benchmarks/zoo``, found without an import of the libraries that they need."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from tests import packages

Wrap = Callable[[Callable[..., Any]], Any]
FOLDER = Path(__file__).parent / "zoo"
VISION = ("open_clip_torch", "segmentation_models_pytorch", "timm", "torchvision")
"""What stands on torchvision, which is not on the path of other programs."""


@dataclass(frozen=True)
class Program:
    """One program.

    Attributes:
        library: The distribution whose users write such programs; the file that it is in.
        name: The function.
        title: What it does, in a sentence.
    """

    library: str
    name: str
    title: str

    @property
    def key(self) -> str:
        """Its name in files of results and on the command line."""
        return f"{self.library}:{self.name}"

    def function(self) -> Callable[[Wrap, torch.device], Iterator[Any]]:
        """Import what it needs, and find it.

        Raises:
            ImportError: A library is not there, or does not fit.
        """
        if self.library in VISION and packages.missing():
            raise ImportError(f"there is no {packages.missing()}")
        return getattr(import_module(f".zoo.{self.library}", __package__), self.name)

    def start(self, wrap: Wrap, device: torch.device) -> Iterator[Any]:
        """The calls of a new run."""
        return self.function()(wrap, device)


def programs() -> list[Program]:
    """All of them, by library: the functions of the files that take ``wrap`` and a device."""
    found: list[Program] = []
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and [each.arg for each in node.args.args] == [
                "wrap",
                "device",
            ]:
                title = (ast.get_docstring(node) or node.name).partition("\n")[0]
                found.append(Program(path.stem, node.name, title))
    return found


def chosen(only: list[str] | None) -> list[Program]:
    """Those of the named libraries, or named themselves (``library:function``); all of them for None."""
    return [each for each in programs() if only is None or not {each.key, each.library}.isdisjoint(only)]
