"""What is said of a capture that fails: the call and its line, not the status of the device alone."""

from __future__ import annotations

import torch

from rote.base.location import NOWHERE, Site
from rote.runtime.capture.blame import first_line, of_error, of_segment
from rote.runtime.program import Operation
from rote.runtime.program.operations import CAPTURED

STATUS = "CUDA error: operation not permitted when stream is capturing\nCUDA kernel errors might be ..."


def blamed(fn, *args):
    """What is said of a call that raises, and the source line that is blamed."""
    try:
        fn(*args)
    except Exception as error:
        text, site = of_error(error, None)
        return text, site.text
    raise AssertionError("it did not raise")


def test_a_function_of_pytorch():
    def fn(x):
        return torch.nn.functional.interpolate(x, size=3, scale_factor=2)

    text, line = blamed(fn, torch.ones(1, 1, 4))
    assert text.startswith("torch.nn.functional.interpolate() raised ValueError: only one of size or scale")
    assert line == "return torch.nn.functional.interpolate(x, size=3, scale_factor=2)"


def test_the_outermost_function_of_pytorch_below_the_innermost_line():
    class Inner(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.interpolate(x, size=3, scale_factor=2)

    text, line = blamed(torch.nn.Sequential(Inner()), torch.ones(1, 1, 4))
    assert text.startswith("torch.nn.functional.interpolate() raised") and line.startswith("return torch.nn")


def test_what_is_no_python_function_is_quoted():
    def fn(x):
        return x + x.view(7) * 2

    text, line = blamed(fn, torch.ones(4))
    assert text == "x.view(7) raised RuntimeError: shape '[7]' is invalid for input of size 4"
    assert line == "return x + x.view(7) * 2"


def test_a_long_expression_is_cut():
    def fn(x):
        return x.view(1000000000, 1000000000, 1000000000, 1000000000, 1000000000, 1000000000)

    assert blamed(fn, torch.ones(4))[0].startswith(
        "x.view(1000000000, 1000000000, 1000000000, 1000000000, 10... raised RuntimeError: "
    )


def test_several_lines_are_not_quoted():
    def fn(x):
        return x.view(
            7,
        )

    assert blamed(fn, torch.ones(4))[0].startswith("RuntimeError: shape")


def test_the_last_operation_is_named():
    site = Site("policy.py", 12, "act")
    last = Operation.called(CAPTURED, "aten::mul.Tensor", (), (), site)
    status = f"{STATUS.splitlines()[0]}; the last operation captured was aten::mul.Tensor"
    assert of_error(RuntimeError(STATUS), last)[0] == f"RuntimeError: {status}"
    assert of_segment(STATUS, last) == (status, site)
    assert of_segment("", None) == ("the device gave no reason", NOWHERE)


def test_a_text_without_lines():
    assert first_line("  \n ") == "the device gave no reason" and first_line("a\nb") == "a"
