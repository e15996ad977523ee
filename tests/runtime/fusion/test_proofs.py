"""What proves that a kernel may calculate an operation, and what refuses it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.runtime.fusion.evaluated import EvaluatedKernel
from tests.runtime.program.observed import observe
from torch import Tensor
from torch.nn import functional

from rote.runtime.backends import PROCESS
from rote.runtime.compiling import COMPILERS
from rote.runtime.fusion import DeviceKernels, Fusible, KernelRequest, NoKernelError, is_equal
from rote.runtime.fusion import functions as fn
from rote.runtime.fusion.proofs import proof_of
from rote.runtime.program import operations as ops

B, H, S = torch.bfloat16, torch.float16, torch.float32
NAN = float("nan")


def last(function: Callable[..., Tensor], *args: Tensor) -> Fusible:
    """The last operation of a call."""
    found = observe(function, *args).operations
    index, operation = [(n, each) for n, each in enumerate(found) if each.kind != ops.VIEWED][-1]
    return Fusible.of(index, operation)


def kernels() -> DeviceKernels:
    return DeviceKernels(PROCESS.of(torch.device("cpu")))


def evaluates(each: Fusible) -> list[bool]:
    """Whether its rule, calculated by PyTorch's operators, gives what the operator gives; each trial."""
    proof = proof_of(each)
    assert proof is not None
    device = kernels()
    kernel = EvaluatedKernel(device.source(proof.written.body, [True] * 8), proof.written.body)
    return [bool(device.holds(proof, kernel, trial)) for trial in range(proof.trials)]


def filled(dtype: torch.dtype) -> Tensor:
    return torch.ones(6).to(dtype)


@pytest.mark.parametrize("dtype", [S, B, H, torch.int64, torch.int32])
@pytest.mark.parametrize(
    "function",
    [
        lambda a: a + a, lambda a: a - a, lambda a: a * a, lambda a: a + 3, lambda a: 3 - a, lambda a: -a,
        lambda a: a.abs(), lambda a: a > a, lambda a: a == 2, lambda a: torch.where(a > 0, a, -a),
        lambda a: a.to(S if a.dtype is B else B), lambda a: a.clamp(min=-1, max=3), lambda a: a.relu(),
        lambda a: a.masked_fill(a > 0, -2),
    ],
)  # fmt: skip
def test_rules_say_what_operators_do(function, dtype):
    each = last(function, filled(dtype))
    if proof_of(each) is not None:
        assert all(evaluates(each))


@pytest.mark.parametrize(
    "function",
    [lambda a: a + 0.1, lambda a: a * 0.3, lambda a: a / 3.3, lambda a: a < 0.1, lambda a: 0.7 - a],
)
@pytest.mark.parametrize("dtype", [S, B, H])
def test_numbers_are_rounded_where_operators_round_them(function, dtype):
    assert all(evaluates(last(function, filled(dtype))))


def test_another_function_is_refuted():
    product, other = proof_of(last(lambda a: a * a, filled(S))), proof_of(last(lambda a: a + a, filled(S)))
    assert product is not None and other is not None
    device = kernels()
    wrong = EvaluatedKernel(device.source(other.written.body, [True] * 8), other.written.body)
    assert not any([bool(device.holds(product, wrong, trial)) for trial in range(product.trials)])


def test_a_missing_rounding_is_refuted():
    """The sum of a product of 16 bits, as one that was never rounded."""
    exact = last(lambda a: (a * 3.7).float(), filled(B))
    proof = proof_of(exact)
    assert proof is not None and all(evaluates(exact))
    bits = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(B)
    assert not bool(is_equal((bits * 3.7).float(), bits.float() * 3.7))


@pytest.mark.parametrize(
    ("function", "dtype", "why"),
    [
        (lambda a: a.to(torch.int64), S, "it makes whole numbers of real ones"),
        (lambda a: a**3, S, "it raises to another power than 2"),
        (lambda a: a.sum(0, keepdim=True), S, "there is no rule for it"),
        (lambda a: a.bool() * a.bool(), S, "it calculates with truth values"),
    ],
)
def test_refusals(function, dtype, why):
    with pytest.raises(NoKernelError, match=why):
        proof_of(last(function, filled(dtype)))


def test_what_cannot_be_tried_whole_is_probed():
    proof, device, each = proof_of(last(torch.exp, filled(S))), kernels(), last(torch.exp, filled(S))
    assert proof is not None and proof.signature.probed and device.probe(each) is not None
    why = "its function is not defined to the bit, and not all operands can be tried"
    assert device.refusal(each) == why and device.refusal(each, probed=True) is None
    short = last(torch.exp, filled(B))
    proved = proof_of(short)
    assert proved is not None and not proved.signature.probed and device.probe(short) is None


def test_nothing_is_to_be_proved_of_what_moves_elements():
    assert proof_of(last(lambda a: torch.cat((a, a)), filled(S))) is None
    assert proof_of(last(lambda a: a.clone(), filled(S))) is None


def test_a_tensor_without_dimensions_counts_less():
    each = last(lambda a: a * torch.tensor(2.0), filled(B))
    with pytest.raises(NoKernelError, match="a tensor without dimensions has another type"):
        proof_of(each)
    assert proof_of(last(lambda a: torch.where(a > 0, a, a.sum()), filled(B))) is not None


def test_no_number_is_like_another():
    assert bool(is_equal(torch.tensor([NAN, 1.0]), torch.tensor([-NAN, 1.0])))
    assert not bool(is_equal(torch.tensor([0.0]), torch.tensor([-0.0])))
    assert not bool(is_equal(torch.tensor([NAN]), torch.tensor([1.0])))
    assert not bool(is_equal(torch.ones(2), torch.ones(2, dtype=B)))


def verdicts(device: DeviceKernels, found: dict[str, Fusible]) -> dict[str, Any]:
    request = KernelRequest(device, [], found.values())
    assert COMPILERS.get().wait(120)
    while not request.prove():
        pass
    return {name: device.refusal(each) for name, each in found.items()}


@pytest.mark.skipif(shutil.which("c++") is None and shutil.which("g++") is None, reason="no C++ compiler")
def test_compiled_kernels():
    found = {
        "silu": last(functional.silu, filled(B)),
        "erf": last(torch.erf, filled(B)),
        "sum": last(lambda a: a + a, filled(S)),
        "maximum": last(torch.maximum, filled(S), filled(S)),
    }
    other = "a kernel of it gives other bits"
    told = verdicts(kernels(), found)
    assert told["sum"] is None and told["silu"] is None
    assert told["erf"] == other  # another library's
    assert told["maximum"] == other  # of -0 and 0: PyTorch's vectors and its single elements differ


def test_what_cannot_be_compiled_is_refused(monkeypatch):
    monkeypatch.setattr(fn, "ADD", fn.Function("add", "no C++ at all", "+", exact=True))
    each = last(lambda a: a + a, filled(S))
    monkeypatch.setattr(
        "rote.runtime.fusion.rules.RULES",
        {"add.Tensor": lambda calculation: calculation.calculated(fn.ADD, (calculation.operand(
            calculation.operation.operands[0], S),) * 2, S)},
    )  # fmt: skip
    told = verdicts(kernels(), {"sum": each})
    assert told["sum"] is not None and told["sum"] != "a kernel of it gives other bits"
