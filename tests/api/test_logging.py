"""The logger ``rote`` is a library's: no handler, no level, and every other one stands below it."""

import ast
import logging
from pathlib import Path

import rote


def test_no_handler_and_no_level():
    logger = logging.getLogger("rote")
    assert (logger.handlers, logger.level, logger.propagate) == ([], logging.NOTSET, True)


def test_every_logger_is_below_it():
    names = set()
    for path in Path(rote.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())) if "getLogger" in path.read_text() else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger":
                names.add(ast.literal_eval(node.args[0]))
    assert names == {"rote", "rote.serving"}
