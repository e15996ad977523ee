"""Fixes: the program computes what it did, its text is otherwise as it was, and what is uncertain stays."""

from __future__ import annotations

import builtins
import importlib
import sys
import textwrap

import pytest
import torch
from tests.hazards.scanning import scan

from rote.base.errors import EnvironmentError_, MisuseError
from rote.hazards import fix as fixes
from rote.hazards.fix import fix, fix_text, write
from rote.hazards.scan import scan_text

pytest.importorskip("libcst")

HEAD = "import torch\nfrom torch import nn\n\n\n"


def source(text):
    return HEAD + textwrap.dedent(text).lstrip("\n")


def fixed(text):
    return fix_text(source(text), "program.py")


def run(text, make, inputs):
    """Results of a program for several inputs, with the gradients of the inputs."""
    space = {"__name__": "program"}
    exec(compile(text, "program.py", "exec"), space)
    torch.manual_seed(0)
    found = []
    fn = eval(make, space)
    for value in inputs:
        x = value.clone().requires_grad_(value.is_floating_point())
        y = fn(x)
        found.append(y.detach())
        if y.requires_grad:
            y.sum().backward()
            found.append(x.grad)
    return found


INPUTS = [torch.linspace(-3, 5, 12).view(3, 4), torch.arange(12.0).view(3, 4) - 6, torch.zeros(3, 4)]

CERTAIN = {
    "number": (
        """
        def fn(x):
            return x * torch.tensor(0.5, device=x.device)  # half
        """,
        "x * torch.full((), 0.5, device=x.device)  # half",
    ),
    "negative number with a type": (
        """
        def fn(x):
            return x.exp() + torch.tensor(-3, dtype=torch.float64, device=x.device)
        """,
        "torch.full((), -3, dtype=torch.float64, device=x.device)",
    ),
    "infinity": (
        """
        def fn(x):
            return torch.where(x > 0, x, torch.tensor(float("-inf"), device=x.device)).softmax(-1)
        """,
        'torch.full((), float("-inf"), device=x.device)',
    ),
    "truth": (
        """
        def fn(x):
            return x.exp() * torch.tensor(True, device=x.device)
        """,
        "torch.full((), True, device=x.device)",
    ),
    "equal numbers": (
        """
        def fn(x):
            return x.abs() + torch.tensor([2, 2, 2, 2], device=x.device)
        """,
        "torch.full((4,), 2, device=x.device)",
    ),
    "counted": (
        """
        def fn(x):
            return x[:, torch.tensor([0, 1, 2], device=x.device)]
        """,
        "torch.arange(3, device=x.device)",
    ),
    "different numbers": (
        """
        def fn(x):
            mean = torch.tensor([0.485, 0.456, 0.406], device=x.device)
            return x.abs() - mean[:, None]
        """,
        "torch.stack([torch.full((), 0.485, device=x.device), ",
    ),
    "inside of parentheses": (
        """
        def fn(x):
            return x.abs() * (
                torch.tensor(0.25, device=x.device)
            )
        """,
        "(\n        torch.full((), 0.25, device=x.device)\n    )",
    ),
    "behind letters of two bytes": (
        """
        def fn(x):
            ä = x.abs(); return ä * torch.tensor(0.5, device=x.device)  # größe
        """,
        "ä * torch.full((), 0.5, device=x.device)  # größe",
    ),
    "zeros moved": (
        """
        def fn(x):
            return x.abs() + torch.zeros(4).to(x.device)
        """,
        "torch.zeros(4, device=x.device)",
    ),
    "range moved": (
        """
        def fn(x):
            return x.abs() + torch.arange(0, 8, 2).to(device=x.device)
        """,
        "torch.arange(0, 8, 2, device=x.device)",
    ),
    "sum over a mask": (
        """
        def fn(x):
            return x[x > 2].sum()
        """,
        "return torch.where(x > 2, x, 0).sum()",
    ),
    "sum of what is a number": (
        """
        def fn(x):
            return x[~x.isnan()].sum()  # all that is known
        """,
        "return torch.where(~x.isnan(), x, 0).sum()  # all that is known",
    ),
}


@pytest.mark.parametrize("name", CERTAIN)
def test_certain(name):
    text, expected = CERTAIN[name]
    done = fixed(text)
    assert expected in done.after, done.after
    before, after = (run(each, "fn", INPUTS) for each in (done.before, done.after))
    assert len(before) == len(after)
    for one, other in zip(before, after, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6, equal_nan=True)
    codes = {finding.code for finding in done.findings}
    assert codes and not codes & {finding.code for finding in scan_text(done.after, "program.py")}
    assert fix_text(done.after, "program.py").after == done.after


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_sum_of_whole_numbers_is_exact(dtype):
    done = fixed(CERTAIN["sum over a mask"][0])
    inputs = [torch.tensor([0, 1, 2, 3, 200, 7], dtype=dtype)]
    (before,), (after,) = (run(each, "fn", inputs) for each in (done.before, done.after))
    assert before.dtype == after.dtype and torch.equal(before, after)


SCALE = """
class Layer(nn.Module):
    '''Quantizes its input.'''

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self._act_scale = None  # set by forward

    def forward(self, x):
        # the largest value
        self._act_scale = x.abs().amax() / 127 + 1e-6  # a new tensor
        x = (x / self._act_scale).round() * self._act_scale
        return self.linear(x) * self._act_scale
"""


@pytest.mark.parametrize("made", ["        self._act_scale = None  # set by forward\n", ""])
def test_a_scale_becomes_a_buffer(made):
    text = SCALE.replace("        self._act_scale = None  # set by forward\n", made)
    done = fixed(text)
    for part in (
        'self.register_buffer("_act_scale", torch.ones(()), persistent=False)',
        "        # the largest value\n        act_scale = x.abs().amax() / 127 + 1e-6  # a new tensor\n"
        "        self._act_scale.copy_(act_scale.detach())\n"
        "        x = (x / act_scale).round() * act_scale\n"
        "        return self.linear(x) * act_scale\n",
        "'''Quantizes its input.'''",
    ):
        assert part in done.after, done.after
    before, after = (run(each, "Layer()", INPUTS) for each in (done.before, done.after))
    assert len(before) == len(after) == 6
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert [finding.code for finding in done.findings] == ["RT212"]
    assert not scan_text(done.after, "program.py")


def test_a_scale_in_an_f_string_and_at_the_end_of_a_file():
    text = SCALE.replace("return self.linear(x) * self._act_scale", 'return f"{self._act_scale} of {x}"')
    assert 'return f"{act_scale} of {x}"' in fixed(text).after
    text = source(SCALE[: SCALE.index("  # a new tensor")]).replace("\n", "\r\n")
    done = fix_text(text, "program.py")
    assert done.after.endswith("+ 1e-6\r\n        self._act_scale.copy_(act_scale.detach())")
    assert "\n" not in done.after.replace("\r\n", "")


def test_a_class_of_the_same_name_stays_as_it_is():
    other = "\n\nclass Layer(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    text = SCALE.replace("        self._act_scale = None  # set by forward\n", "") + other
    done = fixed(text)
    assert done.after.count("register_buffer") == 1 and done.after.endswith(other)


def test_a_scale_as_a_buffer_shows_the_last_call():
    done = fixed(SCALE)
    space = {}
    exec(compile(done.after, "program.py", "exec"), space)
    layer = space["Layer"]()
    assert "_act_scale" not in layer.state_dict()
    kept = layer._act_scale
    for x in INPUTS:
        layer(x)
        assert layer._act_scale is kept and torch.equal(kept, x.abs().amax() / 127 + 1e-6)


UNCERTAIN = {
    "a name in the list": "def fn(x, n):\n    return x.abs() * torch.tensor([n, 1.0], device=x.device)\n",
    "a name alone": "def fn(x, n):\n    return x.abs() * torch.tensor(n, device=x.device)\n",
    "mixed types": "def fn(x):\n    return x.abs() * torch.tensor([1, 0.5, 1, 1], device=x.device)\n",
    "nested": "def fn(x):\n    return x.abs() @ torch.tensor([[1.0], [2.0]], device=x.device)\n",
    "gradients": (
        "def fn(x):\n    return x.abs() * torch.tensor(1.0, device=x.device, requires_grad=True)\n"
    ),
    "too many": f"def fn(x):\n    return x.abs() * torch.tensor({[*range(3, 30)]}, device=x.device)\n",
    "comment inside": (
        "def fn(x):\n    return x.abs() * torch.tensor(\n        0.5,  # half\n        device=x.device)\n"
    ),
    "random numbers moved": "def fn(x):\n    return x.abs() + torch.rand(4).to(x.device)\n",
    "window moved": "def fn(x):\n    return x.abs() * torch.hann_window(4).to(x.device)\n",
    "moved to a name": "def fn(x, device):\n    return x.abs() * torch.zeros(4).to(device)\n",
    "mask of another tensor": "def fn(x, mask):\n    return x[mask].sum() + x.abs().sum()\n",
    "mean over a mask": "def fn(x):\n    return x[x > 2].mean()\n",
    "sum along an axis": "def fn(x):\n    return x[x > 2].sum(0)\n",
    "mask of a part": "def fn(x):\n    return x[x[:, 0] > 2].sum()\n",
    "scale with dimensions": SCALE.replace("amax()", "amax(-1, keepdim=True)"),
    "scale from the last one": SCALE.replace("+ 1e-6", "+ self._act_scale"),
    "scale in a branch": SCALE.replace(
        "        self._act_scale = x.abs()", "        if x.ndim > 1:\n            self._act_scale = x.abs()"
    ),
    "scale read elsewhere": SCALE + "\n\ndef report(layer):\n    return layer._act_scale\n",
    "scale asked for by name": SCALE + '\n\ndef report(layer):\n    return getattr(layer, "_act_scale")\n',
    "public scale": SCALE.replace("_act_scale", "act_scale"),
    "layer without state": SCALE.replace("self.linear = nn.Linear(4, 4)", "pass").replace(
        "self.linear(x)", "x"
    ),
    "no constructor": SCALE[: SCALE.index("    def __init__")] + SCALE[SCALE.index("    def forward") :],
    "scale beside another statement": SCALE.replace("1e-6  #", "1e-6; y = x  #"),
    "scale behind another statement": SCALE.replace(
        "        self._act_scale = x", "        y = x; self._act_scale = x"
    ),
    "scale set beside another statement": SCALE.replace("None  #", "None; self.a = 1  #"),
    "scale from the last one on another line": SCALE.replace(
        "x.abs().amax()", "(\n            x / self._act_scale).amax()"
    ),
    "local name is taken": SCALE.replace("# the largest value", "act_scale = 3").replace(
        "return self", "return act_scale * self"
    ),
}


@pytest.mark.parametrize("name", UNCERTAIN)
def test_uncertain_is_left_alone(name):
    text = source(UNCERTAIN[name])
    done = fix_text(text, "program.py")
    assert done.after == text and done.findings == () and done.diff == ""
    assert scan_text(text, "program.py")  # it is a hazard all the same


def test_several_in_one_file_and_the_rest_as_it_was():
    text = source(
        SCALE
        + """

def first(x):
    a = torch.tensor(1.0, device=x.device);  b = 2   # odd   spacing
    return x * a * b + torch.tensor(2.0, device=x.device)
"""
    )
    done = fix_text(text, "program.py")
    assert sorted(finding.code for finding in done.findings) == ["RT124", "RT124", "RT212"]
    assert "a = torch.full((), 1.0, device=x.device);  b = 2   # odd   spacing\n" in done.after
    removed = [line for line in done.diff.splitlines() if line.startswith("-") and not line.startswith("---")]
    assert len(removed) == 6


def test_diff():
    done = fixed(CERTAIN["number"][0])
    assert done.diff.splitlines()[:2] == ["--- a/program.py", "+++ b/program.py"]
    assert "-    return x * torch.tensor(0.5, device=x.device)  # half\n" in done.diff
    assert "+    return x * torch.full((), 0.5, device=x.device)  # half\n" in done.diff


def test_files(tmp_path):
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(source("def fn(x):\n    return x.abs()\n"))
    bad.write_text(source(CERTAIN["number"][0]))
    (one,) = fix([tmp_path])
    assert one.file == str(bad) and bad.read_text() == one.before
    assert write([one]) == 1 and bad.read_text() == one.after
    assert fix([tmp_path]) == []


def test_a_file_that_changed_meanwhile_is_not_written(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text(source(CERTAIN["number"][0]))
    found = fix([bad])
    bad.write_text("x = 1\n")
    assert write(found) == 0 and bad.read_text() == "x = 1\n"


@pytest.mark.parametrize(("mark", "end"), [("\ufeff", "\n"), ("", "\r\n"), ("\ufeff", "\r\n")])
def test_line_ends_and_byte_order_marks_stay(tmp_path, mark, end):
    before = mark + source(CERTAIN["number"][0]).replace("\n", end)
    file = tmp_path / "bad.py"
    file.write_bytes(before.encode())
    assert write(fix([file])) == 1
    assert file.read_bytes() == before.replace("torch.tensor(", "torch.full((), ").encode()
    assert not scan([file])


def test_what_is_no_python(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text("def f(:\n")
    with pytest.raises(MisuseError, match=r"bad\.py:1: this is not Python"):
        fix([file])


def test_without_libcst(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.partition(".")[0] == "libcst":
            raise ModuleNotFoundError("No module named 'libcst'", name="libcst")
        return real(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.partition(".")[0] == "libcst"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "rote.hazards.fix.rewrite", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    importlib.reload(fixes)
    with pytest.raises(EnvironmentError_, match=r"fixing needs libcst: pip install 'rote\[fix\]'"):
        fixes.fix_text("x = 1\n", "program.py")
