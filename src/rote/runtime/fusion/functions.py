"""Functions of numbers, and how each device writes them down so that PyTorch's bits come out.

There are two kinds. An *exact* one is defined to the bit, by IEEE 754 or by what bits are: it gives PyTorch's
result if each device uses the right instruction and rounds where PyTorch rounds, and no compiler may put two
of them together. Any other one is whatever a library calculates, so it is equal only as far as it was tried:
:mod:`.proofs` tries all operands there are.

They are written in ``functions.toml``, and each has its name here, such as ``fn.ADD``.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any


@dataclass(frozen=True)
class Function:
    """A function, and how it is written; ``functions.toml`` says what the fields are."""

    name: str
    cpp: str
    triton: str
    exact: bool
    of_64_bits: str = ""


_TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("functions.toml").read_text(encoding="utf-8"))
globals().update({
    name: Function(name.lower().replace("_", " "), **{"triton": row["cpp"], **row}, exact=kind == "exact")
    for kind, rows in _TABLE.items()
    for name, row in rows.items()
})  # fmt: skip

if TYPE_CHECKING:

    def __getattr__(name: str) -> Function: ...
