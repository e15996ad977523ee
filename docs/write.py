"""Write the generated files that are kept in the repository: ``python docs/write.py``."""

from __future__ import annotations

from pathlib import Path

from rote_docs import readme, states

ROOT = Path(__file__).parents[1]

if __name__ == "__main__":
    states.DRAWING.write_text(states.drawing(), encoding="utf-8")
    path = ROOT / "README.md"
    path.write_text(readme.with_figures(path.read_text(encoding="utf-8")), encoding="utf-8")
