"""Every code block of the pages and of the README is run or at least parsed."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from .blocks import Block, Runner, blocks

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [page for page in PAGES if blocks(page)]
NEEDS = {
    "quantization.md": ["safetensors"],
    "README.md": ["safetensors"],
    "serving.md": ["msgpack"],
    "openpi.md": ["safetensors", "transformers"],
    "lerobot.md": ["lerobot"],
    "transformers.md": ["transformers"],
    "diffusers.md": ["diffusers"],
}
"""Optional packages of a page's code."""


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_on_a_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in NEEDS.get(page.name, ()):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    runner = Runner(tmp_path, (ROOT / "Makefile").read_text())
    for block in blocks(page):
        if (
            page.parent == ROOT / "docs" / "rules"
        ):  # bad and good examples, which run in the tests of the rules
            body = textwrap.indent(block.code, "    ")
            block = block._replace(note="not run: an excerpt", code=f"def example(self):\n{body}")
        try:
            runner.run(block)
        except Exception as error:
            place = f"{page.relative_to(ROOT)}:{block.line}"
            raise AssertionError(f"{place}: {type(error).__name__}: {error}") from error
    runner.namespace.clear()


def test_no_fence_is_overlooked() -> None:
    for page in PAGES:
        lines = page.read_text().splitlines()
        fences = sum(line.lstrip().startswith("```") for line in lines)
        assert fences == 2 * len(blocks(page)), (
            f"{page.relative_to(ROOT)} has a fence that is not at the margin"
        )


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (Block(1, "python", "1 +", ""), "invalid syntax"),
        (Block(1, "python", "1 +", "not run: needs a GPU"), "invalid syntax"),
        (Block(1, "python", "x = 1", "not run"), "say why"),
        (Block(1, "python", "import rote\nrote.testing", ""), r"rote\.testing has to be imported"),
        (Block(1, "text", "2\n", "output"), "no block before"),
        (Block(1, "sh", "if", ""), "syntax error"),
        (Block(1, "sh", "make everything-up", ""), "no target everything-up"),
        (Block(1, "sh", "rote everything", ""), "no command rote everything"),
        (Block(1, "sh", "rote quantize x.py:f --sideways", ""), "no --sideways"),
        (Block(1, "sh", "python -m nowhere", ""), "no module nowhere"),
        (Block(1, "rust", "fn main() {}", ""), "checked by nothing"),
    ],
)
def test_a_wrong_block_fails(block: Block, message: str, tmp_path: Path) -> None:
    runner = Runner(tmp_path, (ROOT / "Makefile").read_text())
    with pytest.raises((AssertionError, SyntaxError), match=message):
        runner.run(block)


def test_output_is_compared(tmp_path: Path) -> None:
    runner = Runner(tmp_path, "")
    runner.run(Block(1, "python", "print('took 3 s')", ""))
    runner.run(Block(3, "text", "took ... s\n", "output"))
    with pytest.raises(AssertionError, match="took 3 s"):
        runner.run(Block(5, "text", "took ... minutes\n", "output"))
