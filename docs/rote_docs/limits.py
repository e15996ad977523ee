"""What is known to differ, from the tests that keep it executable.

Each reason stands in a test that fails strictly as soon as it no longer holds, so the lists cannot grow old.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[2] / "tests"
LIMITS = TESTS / "differential" / "test_known_limits.py"
GAPS = TESTS / "differential" / "test_known_gaps.py"
FOUND = TESTS / "fuzz" / "test_found.py"

_NAME = re.compile(r"\b\w+\(\)|\b_\w+|\b[a-z]+_\w+")


def reasons(path: Path) -> list[str]:
    """The reasons of all tests in a file that are expected to fail, in order."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            texts = [word.value for word in node.keywords if word.arg == "reason"]
            given = texts if name.endswith("xfail") else node.args[:1] if name in ("limit", "gap") else []
            found += [
                (node.lineno, text.value)
                for text in given
                if isinstance(text, ast.Constant) and isinstance(text.value, str)
            ]
    return [text for _, text in sorted(found)]


def limits() -> str:
    """What rote cannot see."""
    return _listed(LIMITS)


def gaps() -> str:
    """What rote could see and does not."""
    return _listed(GAPS)


def differences() -> str:
    """What came out of fuzzing and is left."""
    return _listed(FOUND)


def _listed(path: Path) -> str:
    return "\n".join(f"- {_quoted(text)}" for text in reasons(path))


def _quoted(text: str) -> str:
    """Names and calls as code, or their underscores would make words bold."""
    parts = text.split("`")
    parts[::2] = [_NAME.sub(r"`\g<0>`", part) for part in parts[::2]]
    return "`".join(parts)
