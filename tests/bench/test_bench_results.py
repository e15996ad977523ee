"""Results of two processes compared: what counts as a difference, and how large it is."""

from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch

from rote.bench.worker.results import Equality, Results, differences, plain

Pair = namedtuple("Pair", "a b")


@dataclass
class Out:
    logits: torch.Tensor
    loss: float


def found(ours, theirs, written=({}, {})):
    return list(differences(plain(ours, written[0]), plain(theirs, written[1])))


def test_equal_results_of_every_form():
    x = torch.tensor([1.0, torch.nan, -0.0])
    for value in (x, [x, (x, None)], {"a": x, "n": 3}, Pair(x, "text"), Out(x, float("nan")), object(), None):
        assert found(value, value) == []


def test_what_is_compared_by_its_type_alone_is_named():
    assert plain({"a": [object()], "n": 3}, {})["unseen"] == "result['a'][0] (object)"
    assert plain({"a": [torch.zeros(1), None], "n": 3}, {})["unseen"] == ""


def test_strides_and_autograd_do_not_count():
    x = torch.randn(3, 4)
    assert found(x.t().contiguous().t().requires_grad_(), x) == []


def test_the_largest_difference_is_given():
    x = torch.zeros(4)
    y = torch.tensor([0.0, 0.25, 0.0, -0.5])
    ((text, largest),) = found({"a": y}, {"a": x})
    assert largest == 0.5 and "result['a'] differs in 2 of 4 elements, by at most 0.5" in text


@pytest.mark.parametrize(
    "ours, theirs, message",
    [
        ([1], (1,), "the result has another structure"),
        (torch.zeros(2), torch.zeros(3), r"result.shape is torch.Size([2]) and torch.Size([3]) in eager"),
        (torch.zeros(2), torch.zeros(2).half(), "result.dtype is torch.float32 and torch.float16 in eager"),
        (True, 1, "result is True and 1 in eager"),
        ({"a": "x"}, {"a": "y"}, "result['a'] is 'x' and 'y' in eager"),
        (None, torch.zeros(1), "result is None and tensor([0.]) in eager"),
    ],
)
def test_what_is_no_matter_of_numbers(ours, theirs, message):
    assert found(ours, theirs) == [(message, None)]


def test_numbers():
    assert found(2.5, 2.0) == [("result is 2.5 and 2.0 in eager", 0.5)]


def test_written_arguments():
    x, y = torch.zeros(2), torch.ones(2)
    assert found(1, 1, ({"args[0]": x}, {"args[0]": x})) == []
    assert found(1, 1, ({}, {"args[0]": x})) == [("args[0] is written by eager only", None)]
    assert found(1, 1, ({"args[0]": x}, {})) == [("args[0] is not written by eager", None)]
    assert found(1, 1, ({"args[0]": y}, {"args[0]": x}))[0][1] == 1.0


def test_results_are_kept_in_files(tmp_path, device):
    results, equality = Results(tmp_path), Equality()
    for number in range(3):
        results.keep(number, {"y": torch.full((2,), float(number), device=device)}, {})
    for number in range(3):
        value = {"y": torch.full((2,), 1.0, device=device)}
        Results(tmp_path).compare(number, value, {}, equality)
    assert (equality.calls, equality.bitwise, equality.largest) == (3, False, 1.0)
    assert equality.what.startswith("call 0: result['y'] differs in 2 of 2 elements")


def test_large_results_are_kept_of_the_last_calls(tmp_path):
    results, equality = Results(tmp_path, most_bytes=14_000), Equality()
    for number in range(4):
        results.keep(number, torch.zeros(1000), {})
    for number in range(4):
        results.compare(number, torch.zeros(1000), {}, equality)
    assert equality.calls == 2 and equality.bitwise
