"""Code that a function runs before its own: whoever is set for the thread may answer the call.

``nn.Module.__call__`` is where Python code calls a module. A callable that cannot be replayed as a whole
has the calls of its modules answered there (:mod:`rote.api.parts`). A prologue is a branch in front of the
function's own code, which follows as it was: same file, same lines, same names, and the function object is
the same. For a thread for which nobody is set it takes some 0.1 us.

The code is made from the function's source. It is used only if the source without the prologue compiles to
exactly the code that the function has; else there is none, and calls are what they were.

What does not work: to replace the name in the class. Changing ``nn.Module`` drops the interpreter's caches of
attributes for all classes of modules, Dynamo tells by the identity of the function that modules are called as
usual, and guards would see another function. A hook for all modules cannot answer a call. An attribute of the
module (``forward``, ``_compiled_call_impl``) is seen by everybody who looks at the module. And Dynamo, which
reads the code of what it inlines, has no word for the constants in here: so the branch is one that it prunes.
"""

from __future__ import annotations
import __future__

import ast
import functools
import inspect
import operator
import threading
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import torch

MODULE_CALL: Any = torch.nn.Module.__call__
"""The one function that may have a prologue. What calls it is not asked for its code, which may be either."""

_FUTURES = functools.reduce(
    operator.or_, [getattr(__future__, name).compiler_flag for name in __future__.all_feature_names]
)
_CALLS, _NOTHING = "<who answers>", "<nobody>"

_PROLOGUE = f"""
if not torch.compiler.is_dynamo_compiling():
    found = {_CALLS!r}
    found = found.of_thread
    if found is not None:
        nothing = {_NOTHING!r}
        found = found(self, args, kwargs)
        if found is not nothing:
            return found
"""


class Answering(threading.local):
    """Who answers calls of modules on this thread.

    Attributes:
        of_thread: A function of the module, the positional and the keyword arguments; None for nobody.
    """

    of_thread: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any] | None = None


def with_prologue(function: Any, own: CodeType, answering: Answering, nothing: Any) -> CodeType | None:
    """The code of a method ``(self, *args, **kwargs)`` with a prologue; None where it cannot be made.

    Args:
        answering: Who is asked.
        nothing: What it gives for a call that the method is to make.
    """
    if type(function) is not FunctionType or "torch" not in function.__globals__:
        return None
    try:
        tree = ast.parse("if True:\n" + inspect.getsource(own))  # the columns stay what they are
    except (OSError, SyntaxError):
        return None
    ast.increment_lineno(tree, own.co_firstlineno - 2)
    if not _is_same(_compiled(tree, own), own):
        return None
    branch: Any = tree.body[0]
    body = branch.body[0].body
    prologue = ast.parse(_PROLOGUE).body
    for node in [each for statement in prologue for each in ast.walk(statement)]:
        if isinstance(node, (ast.stmt, ast.expr)):
            node.lineno = node.end_lineno = own.co_firstlineno
            node.col_offset = node.end_col_offset = 0
    body[:0] = prologue
    code = _compiled(tree, own)
    if code is None:
        return None
    given = {_CALLS: answering, _NOTHING: nothing}
    return code.replace(
        co_consts=tuple([given.get(each, each) if type(each) is str else each for each in code.co_consts])
    )


def _compiled(tree: ast.Module, own: CodeType) -> CodeType | None:
    """The code of the only function in a tree."""
    made = compile(tree, own.co_filename, "exec", flags=own.co_flags & _FUTURES, dont_inherit=True)
    found = [each for each in made.co_consts if isinstance(each, CodeType)]
    return found[0].replace(co_qualname=own.co_qualname) if len(found) == 1 else None


def _is_same(code: CodeType | None, own: CodeType) -> bool:
    """Whether two codes do the same; where their lines come from does not matter."""
    return code is not None and all(
        getattr(code, name) == getattr(own, name)
        for name in (
            "co_code",
            "co_consts",
            "co_names",
            "co_varnames",
            "co_freevars",
            "co_cellvars",
            "co_flags",
        )
    )
