"""The scan reads programs with their findings written beside the lines, and says nothing else."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from pathlib import Path

import pytest
from tests.hazards.scanning import scan
from torch import nn

from rote.base.errors import MisuseError
from rote.hazards.rules import RULES
from rote.hazards.scan import scan_text

PROGRAMS = Path(__file__).with_name("programs.py")
CODES = re.compile(r"\bRT\d{3}\b")


def codes(text):
    return [finding.code for finding in scan_text(textwrap.dedent(text), "program.py")]


def test_the_programs():
    lines = PROGRAMS.read_text().splitlines()
    expected = Counter(
        (number, code)
        for number, line in enumerate(lines, 1)
        if "#" in line and not line.startswith('"""')
        for code in CODES.findall(line.partition("#")[2])
    )
    expected[next(n for n, line in enumerate(lines, 1) if line == "@functools.lru_cache"), "RT216"] += 1
    found = Counter((finding.where.line, finding.code) for finding in scan([PROGRAMS]))
    text = [f"{sign}{line}: {code}: {lines[line - 1].strip()}"
            for sign, counter in (("-", expected - found), ("+", found - expected))
            for line, code in counter]  # fmt: skip
    assert not text, "\n".join(sorted(text))


def test_a_finding_has_place_source_and_remedy():
    for finding in scan([PROGRAMS]):
        line = PROGRAMS.read_text().splitlines()[finding.where.line - 1]
        assert finding.source == line.strip() and 1 <= finding.column <= len(line)
        assert not line[: finding.column - 1] or not line[finding.column - 1].isspace()
        assert finding.remedy.endswith(".") and not finding.message.endswith(".")
        assert finding.code in RULES and str(finding).startswith(str(finding.where))


def test_the_column_is_that_of_the_expression():
    text = "import torch\ndef f(x: torch.Tensor):\n    return 1, x.sum().item(), float(x)\n"
    found = scan_text(text, "program.py")
    assert [(each.where.line, each.column, each.where.function) for each in found] == [
        (3, 15, "f"), (3, 31, "f"),
    ]  # fmt: skip
    assert str(found[0]) == "program.py:3:15: RT101 x.sum().item() reads a tensor (stops capture)"


def test_the_way_from_the_entry():
    (found,) = scan_text(
        textwrap.dedent(
            """
            from torch import nn

            class Net(nn.Module):
                def forward(self, x):
                    return self.inner(x)

                def inner(self, y):
                    return helper(y)

            def helper(z):
                return z.item()
            """
        ),
        "net.py",
    )
    assert [(site.line, site.function) for site in found.path] == [(6, "forward"), (9, "inner")]
    assert found.where.function == "helper"


@pytest.mark.parametrize(
    "text",
    [
        "import torch as t\ndef f(x: t.Tensor):\n    t.cuda.synchronize()\n",
        "from torch.cuda import synchronize as wait\ndef f(x: Tensor):\n    wait()\n",
        "import torch.cuda\ndef f(x: 'torch.Tensor'):\n    torch.cuda.synchronize()\n",
        "from torch import cuda\nasync def f(x: Tensor):\n    cuda.synchronize()\n",
    ],
)
def test_names_are_followed_to_their_imports(text):
    assert codes(text) == ["RT133"]


def test_names_that_only_look_alike():
    text = """
        import other as torch
        from mine import synchronize, random

        def f(x: Tensor):
            torch.cuda.synchronize()
            synchronize()
            return x * random.random()
        """
    assert codes(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    return x.items(), x.get('a')\n",
        "def f(text):\n    return text.split(','), f'{text}', text.strip()\n",
        "def f(values):\n    values.sort()\n    return values[0] if values else None\n",
        "def f(n, m=3):\n    return range(n), int(m), float(n), [0] * n\n",
        "import numpy as np\ndef f(a: np.ndarray):\n    return a.item(), a.tolist(), bool(a.any())\n",
        "import random\ndef shuffle(names):\n    random.shuffle(names)\n",
        "def f(model, data):\n    print(model, data)\n    return model(data)\n",
    ],
)
def test_code_without_tensors(text):
    assert codes(text) == []


def test_one_file_of_torch_itself_is_quiet():
    """Layers that everybody captures: no errors."""
    for module in (nn.modules.linear, nn.modules.conv, nn.modules.activation, nn.modules.normalization):
        assert [str(each) for each in scan([Path(module.__file__)]) if each.severity.is_error] == []


# ---------------------------------------------------------------------- files


def test_folders_are_searched(tmp_path):
    bad = "def f(x):\n    return x.sum().item()\n"
    for name in ("b.py", "a.py", "sub/c.py", ".hidden/d.py", "__pycache__/e.py", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(bad)
    assert [Path(each.where.file).name for each in scan([tmp_path])] == ["a.py", "b.py", "c.py"]


def test_nothing_of_a_file_is_run(tmp_path):
    file = tmp_path / "loud.py"
    file.write_text("raise SystemExit(3)\nimport nowhere\n\n\ndef f(x):\n    return x.sum().item()\n")
    assert [each.code for each in scan([file])] == ["RT101"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"def f(:\n", r"bad\.py:1: this is not Python"),
        (b"x = '\xff'\n", r"bad\.py: this is not Python in UTF-8"),
        (b"x = 1\n\0", r"bad\.py:\d+: this is not Python"),
    ],
)
def test_what_is_no_python(tmp_path, content, message):
    (tmp_path / "bad.py").write_bytes(content)
    with pytest.raises(MisuseError, match=message):
        scan([tmp_path / "bad.py"])


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(MisuseError, match="there is no such file or folder"):
        scan([tmp_path / "nothing.py"])


def test_code_that_calls_itself_ends():
    assert codes("def f(x):\n    return f(x.sum().item())\n\ndef g(x):\n    return g(f(x))\n") == ["RT101"]


@pytest.mark.transformers
def test_models_of_transformers():
    """Known places: the router of a mixture of experts, and the mask that is asked for on the host."""
    transformers = pytest.importorskip("transformers")
    models = Path(transformers.__file__).parent / "models"
    llama = scan([models / "llama" / "modeling_llama.py"])
    assert [each.code for each in llama if each.severity.is_error] == []
    assert {each.code for each in llama} == {"RT703"}
    policy = scan([models / "pi0" / "modeling_pi0.py"])
    expected = set() if transformers.__version__ >= "5.23" else {"RT111", "RT124"}
    assert {each.code for each in policy if each.severity.is_error} == expected
    mixtral = {each.code for each in scan([models / "mixtral" / "modeling_mixtral.py"])}
    assert "RT111" in mixtral


@pytest.mark.parametrize("keyword", ["past_key_values", "cache"])
def test_a_growing_cache_by_either_name(keyword):
    text = f"""
    import torch
    from transformers import DynamicCache
    import rote

    def program(model):
        kept = DynamicCache()

        def step(ids):
            return model(ids, {keyword}=kept).logits

        return rote.graph(step)
    """
    assert codes(text) == ["RT702"]
