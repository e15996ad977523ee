"""Write the generated files that are kept in the repository: ``python docs/write.py``."""

from __future__ import annotations

from rote_docs import launches, readme, rule_pages, states

if __name__ == "__main__":
    states.DRAWING.write_text(states.drawing(), encoding="utf-8")
    launches.DRAWING.write_text(launches.drawing(), encoding="utf-8")
    text = readme.README.read_text(encoding="utf-8")
    readme.README.write_text(readme.with_figures(text), encoding="utf-8")
    for name, text in rule_pages.pages().items():
        (rule_pages.FOLDER / name).write_text(text, encoding="utf-8")
