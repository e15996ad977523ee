"""What the layout promises: import does nothing, files are small and documented."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from .source import ROOT, SOURCE, parse

OPTIONAL = frozenset(
    {
        "cuda",
        "jinja2",
        "matplotlib",
        "msgpack",
        "safetensors",
        "torchao",
        "transformers",
        "triton",
        "websockets",
    }
)


def sources() -> list[Path]:
    found = sorted(SOURCE.rglob("*.py"))
    assert found, f"no Python files under {SOURCE}"
    return found


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(SOURCE.parent), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


# --- Import does nothing ---------------------------------------------------------------------------------

IMPORT_PROBE = """
import atexit, gc, json, signal, sys, threading, warnings
import numpy, torch
import torch.utils._pytree as pytree

def state():
    return {
        "CUDA initialised": torch.cuda.is_initialized(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "grad mode": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "anomaly mode": torch.is_anomaly_enabled(),
        "autocast": [torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")],
        "determinism": (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark),
        "matmul precision": torch.get_float32_matmul_precision(),
        "random state": torch.get_rng_state().tolist(),
        "active modes": (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()),
        "operators": len(torch._C._dispatch_get_all_op_names()),
        "pytree nodes": len(pytree.SUPPORTED_NODES),
        "exit handlers": atexit._ncallbacks(),
        "threads running": threading.active_count(),
        "hooks": (sys.excepthook, sys.settrace, sys.gettrace(), sys.getprofile(), list(sys.meta_path)),
        "collector": (list(gc.callbacks), gc.get_threshold(), gc.isenabled()),
        "interrupt handler": signal.getsignal(signal.SIGINT),
        "warning filters": list(warnings.filters),
    }

def modules(*names):
    return [name for name in sys.modules if name.startswith(names)]

read = []
sys.addaudithook(lambda event, args: event == "open" and ".md" in str(args[0]) and read.append(args[0]))
before = state()
import rote
after = state()
told = {
    "changed": [f"{name}: {was} -> {after[name]}" for name, was in before.items() if after[name] != was],
    "quantization": modules("rote.quant"),
    "texts": list(read),
}
from rote.hazards.rules import HOST_READ
assert HOST_READ.remedy and HOST_READ.documentation
told["texts for one rule"] = list(read)
g = rote.graph(lambda x: torch.nn.functional.linear(x, x).relu())
for _ in range(4):
    g(torch.ones(4, 4))
told["replayed"] = g.report().replayed
told["compiler"] = modules("torch._dynamo", "torch._inductor", "sympy", "triton")
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def new_process():
    """What the import of rote does to a process, and then a recording."""
    done = run_python("-c", IMPORT_PROBE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_import_changes_nothing(new_process):
    assert not new_process["changed"]


def test_import_leaves_the_quantization_alone(new_process):
    assert not new_process["quantization"]


def test_import_reads_no_text_of_a_rule(new_process):
    assert not new_process["texts"]
    assert len(new_process["texts for one rule"]) == 1


def test_the_compiler_is_not_imported_for_a_recording(new_process):
    assert new_process["replayed"] and not new_process["compiler"]


def test_data_files_are_packaged():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"][
        "rote"
    ]
    there = {path for path in SOURCE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert {path for pattern in patterns for path in SOURCE.glob(pattern)} == there


# --- What a file may contain -----------------------------------------------------------------------------


def local_imports(tree: ast.AST) -> Iterator[str]:
    """Imports inside functions, except of the optional dependencies."""
    waiting = [(tree, False)]
    while waiting:
        node, inside = waiting.pop()
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if inside and isinstance(node, ast.Import | ast.ImportFrom):
            for name in imported(node):
                if name.split(".")[0] not in OPTIONAL:
                    yield f"{node.lineno}: {name}"
        if not isinstance(node, ast.expr):
            waiting += [(each, inside) for each in ast.iter_child_nodes(node)]


def imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Dotted names; of ``from a import b`` that is ``a.b``."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return ["." * node.level + f"{node.module or ''}.{alias.name}".lstrip(".") for alias in node.names]


def environment_reads(tree: ast.AST) -> Iterator[str]:
    names = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in names:
            yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from (f"{node.lineno}: os.{alias.name}" for alias in node.names if alias.name in names)


def private_torch(tree: ast.AST) -> Iterator[str]:
    """Uses of ``torch._C``, under whatever name torch was imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "_C":
            yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for name in imported(node):
                if name == "torch._C" or name.startswith("torch._C."):
                    yield f"{node.lineno}: {name}"


def id_calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "id":
            yield f"{node.lineno}: id"


def offences(rule) -> dict[str, list[str]]:
    found = {name_of(path): list(rule(parse(path))) for path in sources()}
    return {name: lines for name, lines in found.items() if lines}


def test_no_local_imports():
    assert offences(local_imports) == {}


def test_one_file_reads_the_environment():
    assert set(offences(environment_reads)) <= {"base/settings.py"}


def test_private_torch_stays_in_one_file_of_a_room():
    found = offences(private_torch)
    assert {name: lines for name, lines in found.items() if Path(name).name != "torch_private.py"} == {}


def test_notes_ask_for_identities_in_one_way():
    found = [name for name in offences(id_calls) if name.startswith("runtime/reads/")]
    assert found == [], "base.identity says why; what one has put into a table the other does not find there"


def test_files_are_documented():
    missing = [name_of(path) for path in sources() if not ast.get_docstring(parse(path))]
    assert missing == [], "without a module docstring"


# --- The rules above see what they should ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "text", "expected"),
    [
        (local_imports, "import os\nimport torch.nn", []),
        (local_imports, "def f():\n    import os", ["2: os"]),
        (local_imports, "class A:\n    async def f(self):\n        from ..base import x", ["3: ..base.x"]),
        (local_imports, "def f():\n    import triton\n    from cuda.bindings import driver", []),
        (environment_reads, "import os\nos.environ['A']", ["2: os.environ"]),
        (environment_reads, "from os import getenv", ["1: os.getenv"]),
        (environment_reads, "from os import fspath", []),
        (id_calls, "x = {id(y): y}", ["1: id"]),
        (id_calls, "z = map(id, x)", ["1: id"]),
        (id_calls, "x.id = identity(y)", []),
        (private_torch, "import torch\ntorch._C._foo()", ["2: torch._C"]),
        (private_torch, "from torch import _C", ["1: torch._C"]),
        (private_torch, "from torch._C import Graph", ["1: torch._C.Graph"]),
        (private_torch, "import torch._C", ["1: torch._C"]),
        (private_torch, "'torch._C'\nimport torch._inductor", []),
    ],
)
def test_rules_find_what_they_name(rule, text, expected):
    assert list(rule(ast.parse(text))) == expected
