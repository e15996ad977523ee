"""One source file."""

from __future__ import annotations

import ast

from ...base.errors import MisuseError
from ...base.location import Site
from ..finding import Finding
from ..rules import HOST_READ


def scan_text(text: str, file: str) -> list[Finding]:
    """Scan the text of a file.

    Raises:
        MisuseError: It is not Python; the message names file and line.
    """
    try:
        tree = ast.parse(text, file)
    except SyntaxError as error:
        raise MisuseError(f"{file}:{error.lineno}: this is not Python: {error.msg}") from error
    lines = text.splitlines()
    found: list[Finding] = []
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        if function.name != "forward":
            continue
        for node in ast.walk(function):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "item"
            ):
                where = Site(file, node.lineno, function.name)
                found.append(
                    Finding(
                        HOST_READ.code, HOST_READ.severity, where, f"{ast.unparse(node)} reads a tensor",
                        HOST_READ.remedy, node.col_offset + 1, lines[node.lineno - 1].strip(),
                    )
                )  # fmt: skip
    return found
