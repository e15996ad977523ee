"""Operations calculated in other ways: only on request, only where they come as near, and said so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.conformance.test_exact_tier import tier
from tests.conformance.test_fused import COMPILE_S, hurry
from torch import Tensor
from torch.nn import functional as F

import rote
from rote import Graphed
from rote.runtime.compiling import KernelSource, Language
from rote.runtime.optimize import ALTERNATIVES
from rote.testing import assert_same

aten = torch.ops.aten
CALLS = 40


def attention(x: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
    query = x.view(1, 5, 4, 64).transpose(1, 2)
    return F.scaled_dot_product_attention(query, keys, keys * 0.5, attn_mask=mask)


def given(device: torch.device, heads: int) -> tuple[Tensor, ...]:
    keys = torch.randn(1, heads, 200, 64, device=device).to(torch.bfloat16).expand(1, 4, 200, 64)
    mask = torch.zeros(1, 1, 5, 200, device=device, dtype=torch.bfloat16)
    mask[..., 150:] = float("-inf")
    return torch.randn(5, 256, device=device).to(torch.bfloat16), keys, mask


def play(function, args, **options) -> Graphed:
    """Calls, from the fourth on with time for what is to be done; each is near eager."""
    g = rote.graph(function, keep=True, **options)
    for number in range(CALLS):
        if number >= 3:
            hurry(g)
        torch.testing.assert_close(g(*args), function(*args), rtol=2e-2, atol=2e-2)
    return g


@pytest.mark.parametrize("heads", [1, 4])
def test_attention_of_few_queries(device, heads):
    args = given(device, heads)
    g = play(attention, args, numerics="near")
    found = tier(g)
    assert found is not None and len(found.near) == 1, g.explain()
    (near,) = found.near
    assert near.operations == 1 and "attention" in near.operator
    assert near.error <= near.own * 1.02
    way = "by parts of the keys" if device.type == "cuda" else "of few queries as products"
    assert f"as attention {way}" in g.explain()
    exact = args[0].double(), args[1].double(), args[2].double()
    expected = attention(*exact)
    own = (attention(*args).double() - expected).square().mean().sqrt()
    assert (g(*args).double() - expected).square().mean().sqrt() <= own * 1.02
    assert g.wait_until_optimized(timeout_s=60)


@pytest.mark.parametrize("heads", [1, 4])
def test_attention_of_a_row_that_no_key_is_left_in(device, heads):
    """Only a later call has one."""
    args = given(device, heads)
    g = play(attention, args, numerics="near")
    found = tier(g)
    assert found is not None and len(found.near) == 1, g.explain()
    masked = args[2].clone()
    masked[:, :, 2] = float("-inf")
    for mask in (masked, args[2]):
        expected = attention(*args[:2], mask)
        assert bool(expected.isfinite().all()) and bool(expected[:, :, 2].any()) is (mask is args[2])
        torch.testing.assert_close(g(*args[:2], mask), expected, rtol=2e-2, atol=2e-2)
    assert g.report().eager <= 4, g.explain()


@pytest.mark.cuda
@pytest.mark.parametrize("rows", [1, 8, 51])
@pytest.mark.parametrize("biased", [False, True])
def test_products_of_few_rows(device, rows, biased):
    """Projections of the same rows, one of the result, and one of another layout, which is left alone."""
    if device.type != "cuda":
        pytest.skip("the kernels are for GPUs")
    sizes = (512, 1024), (512, 512), (512, 264), (1024, 512)
    layers = [torch.nn.Linear(*size, biased, device=device, dtype=torch.bfloat16) for size in sizes]
    other = (torch.randn(512, 512, device=device) / 23).to(torch.bfloat16)
    keys = torch.randn(1, 8, 256, 64, device=device).to(torch.bfloat16)

    def projected(x: Tensor) -> Tensor:
        a, b, c = [layer(x) for layer in layers[:3]]
        looked = F.scaled_dot_product_attention(b.view(1, -1, 8, 64).transpose(1, 2), keys, keys)
        b = b + looked.transpose(1, 2).reshape(b.shape)
        return layers[3](torch.cat([F.silu(a[:, :512]) * b, a[:, 512:]], 1)) @ other + c.mean()

    with torch.no_grad():
        g = play(projected, (torch.randn(rows, 512, device=device).to(torch.bfloat16),), numerics="near")
        found = tier(g)
        assert found is not None and sum([each.operations for each in found.near]) == 5, g.explain()
        assert [each.operations for each in found.near if "few rows" in each.alternative] == [4]
        for _ in range(4):  # they follow what they are given, and the parameters
            layers[0].weight.mul_(1.1)
            x = torch.randn(rows, 512, device=device).to(torch.bfloat16)
            torch.testing.assert_close(g(x), projected(x), rtol=2e-2, atol=2e-2)


def test_without_the_word_bits_stay(device):
    args = given(device, 1)
    g = rote.graph(attention, keep=True)
    for number in range(CALLS):
        if number >= 3:
            hurry(g)
        assert_same(g(*args), attention(*args), f"call {number}")
    found = tier(g)
    assert found is None or all(each.how == "proved" for each in found.near)


# ---------------------------------------------------------------------- alternatives of others


@pytest.fixture
def _offer() -> Iterator[list[rote.Alternative]]:
    offered: list[rote.Alternative] = []
    yield offered
    for each in offered:
        ALTERNATIVES.withdraw(each)


def offer(offered, calculate, fits=lambda x, y: x.shape[0] == 4, name="in 64 bits") -> None:
    alternative = rote.Alternative("aten::mm", name, fits, calculate)
    rote.register_alternative(alternative)
    offered.append(alternative)


def widely(run, x: Tensor, y: Tensor) -> Tensor:
    """The same product in 64 bits, rounded once."""
    wide = [run(aten._to_copy.default, (each,), {"dtype": torch.float64}) for each in (x, y)]
    return run(aten._to_copy.default, (run(aten.mm.default, tuple(wide), {}),), {"dtype": torch.float32})


def product(x: Tensor) -> Tensor:
    return (x @ x).exp() + (x[:2] @ x).sum()


def test_one_that_a_library_offers(device, _offer):
    offer(_offer, widely)
    x = torch.randn(4, 4, device=device)
    found = tier(play(product, (x,), numerics="near"))
    assert found is not None
    assert [(each.operator, each.alternative, each.operations) for each in found.near] == [
        ("mm", "in 64 bits", 1)
    ]


@pytest.mark.parametrize("compiles", [True, False])
def test_several_are_calculated_at_once(device, _offer, compiles):
    """Those of one operand that stand beside one another; each by itself where their kernel is not there."""
    together, alone = list[int](), list[int]()
    x = torch.randn(4, 256, device=device)

    def one(run: Any, x: Tensor, y: Tensor) -> Tensor:
        alone.append(1)
        return widely(run, x, y)

    def several(run: Any, given: Any) -> list[Tensor]:
        together.append(len(given))
        return [widely(run, *args, **kwargs) for args, kwargs in given]

    def kernels(known: Any) -> Any:
        return () if compiles or len(known) == 1 else kernels_of(x, x, "this is no program")

    joint = rote.JointAlternative(
        0, lambda x, y: y.shape[0], lambda known: set(known) == {256}, kernels, several
    )
    alternative = rote.Alternative("aten::mm", "at once", lambda x, y: True, one, together=joint)
    rote.register_alternative(alternative)
    _offer.append(alternative)
    weights = [torch.randn(256, columns, device=device) for columns in (64, 128, 192)]
    last = torch.randn(192, 96, device=device)

    def projected(x: Tensor) -> Tensor:
        a, b, c = [x @ weight for weight in weights]
        return (c * 2) @ last + a.sum() + b.sum()

    g = play(projected, (x,), numerics="near")
    found = tier(g)
    assert found is not None and sum([each.operations for each in found.near]) == 4, g.explain()
    assert set(together) == ({3} if compiles else set()) and len(alone) > len(together)
    for _ in range(4):
        x = torch.randn(4, 256, device=device)
        torch.testing.assert_close(g(x), projected(x), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_one_in_plain_code_of_pytorch(device, _offer, mode):
    """Views, operations in place and composite ones: all of it is captured, and follows the operands."""

    def calculate(run: Any, x: Tensor, y: Tensor) -> Tensor:
        total = torch.zeros(x.shape[0], y.shape[1], dtype=torch.float64, device=x.device)
        for column in range(x.shape[1]):
            total += x[:, column : column + 1].double() * y.double()[column]
        total = torch.nn.functional.pad(total, (0, 1))[:, :-1]
        total = torch.nn.functional.linear(total, torch.eye(total.shape[1], device=x.device).double())
        total = run(aten.matmul.default, (torch.eye(total.shape[0], device=x.device).double(), total), {})
        return torch.einsum("ij->ij", total).to(x.dtype)

    offer(_offer, calculate)
    g = rote.graph(product, keep=True, numerics="near")
    with mode():
        for number in range(CALLS):
            if number >= 3:
                hurry(g)
            x = torch.randn(4, 4, device=device)
            torch.testing.assert_close(g(x), product(x))
    found = tier(g)
    assert found is not None and [each.alternative for each in found.near] == ["in 64 bits"], g.explain()


def test_one_that_reads_a_value_is_not_captured(device, _offer):
    offer(_offer, lambda run, x, y: widely(run, x, y) if bool(x.any()) else x * 0)
    g = play(product, (torch.randn(4, 4, device=device),), numerics="near")
    found = tier(g)
    assert found is not None and not found.near
    assert any(["CaptureError" in each.reason for each in found.left]), g.explain()


@pytest.mark.parametrize(
    ("calculate", "why"),
    [
        (lambda run, x, y: run(aten.mul.Tensor, (widely(run, x, y), 1.001), {}), "its error is larger"),
        (lambda run, x, y: widely(run, x, y)[:2], "its result has another type or shape"),
        (lambda run, x, y: widely(run, x, y).double(), "its result has another type or shape"),
        (
            lambda run, x, y: widely(run, x, y) * float("nan"),
            "it is infinite or no number at other places",
        ),
        (lambda run, x, y: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
def test_one_that_is_not_as_near(device, _offer, calculate, why):
    offer(_offer, calculate)
    x = torch.randn(4, 4, device=device)
    g = play(product, (x,), numerics="near")
    found = tier(g)
    assert found is not None and not found.near
    assert any([why in each.reason for each in found.left]), g.explain()
    assert_same(g(x), product(x), "result")


def test_after_operations_were_left_out_and_others_fused(device, _offer):
    """The operator is asked for in 64 bits; before that, the stretch gets its exact tier in two steps."""
    offer(_offer, widely)

    def layers(x: Tensor, product: Callable[..., Tensor] = torch.mm) -> Tensor:
        for number in range(3):
            scale = torch.arange(4, device=x.device).float() * 0.5
            x = product((x * scale + number).clamp(max=4), x * 1.5).tanh() * scale.cos()
        return x

    def now(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return func(*args, **kwargs)

    x = torch.randn(4, 4, device=device) / 2
    g = play(layers, (x,), numerics="near")
    found = tier(g)
    assert found is not None and any(found.removed.values()) and not found.compiling
    assert [each.operations for each in found.near] == [3], g.explain()
    for _ in range(3):
        assert_same(g(x), layers(x, lambda *operands: widely(now, *operands)), "result")


def test_the_next_one_is_tried(device, _offer):
    offer(_offer, lambda run, x, y: widely(run, x, y) * 2, name="twice")
    offer(_offer, widely)
    x = torch.randn(4, 4, device=device)
    found = tier(play(product, (x,), numerics="near"))
    assert found is not None and [each.alternative for each in found.near] == ["in 64 bits"]
    assert found.kept == {"twice: its error is larger": 1}


_CPP = """
#include <cstdint>
extern "C" void product(void* const* tensors, const double*, const int64_t*) {
    const float* x = static_cast<const float*>(tensors[0]);
    const float* y = static_cast<const float*>(tensors[1]);
    float* made = static_cast<float*>(tensors[2]);
    for (int at = 0; at < 16; at++) {
        double sum = 0;
        for (int k = 0; k < 4; k++) sum += double(x[at / 4 * 4 + k]) * y[4 * k + at % 4];
        made[at] = float(sum);
    }
}
"""
_TRITON = """
import triton
import triton.language as tl


@triton.jit
def product(x, y, made):
    i = tl.arange(0, 4)
    a = tl.load(x + 4 * i[:, None] + i[None, :]).to(tl.float64)
    b = tl.load(y + 4 * i[:, None] + i[None, :]).to(tl.float64)
    sums = tl.sum(a[:, :, None] * b[None, :, :], 1)
    tl.store(made + 4 * i[:, None] + i[None, :], sums.to(tl.float32))
"""


def kernels_of(x: Tensor, y: Tensor, text: str | None = None) -> list[KernelSource]:
    """The product of 4 rows with 4 columns, in 64 bits."""
    major, minor = torch.cuda.get_device_capability(x.device) if x.is_cuda else (0, 0)
    language, own = (Language.TRITON, _TRITON) if x.is_cuda else (Language.CPP, _CPP)
    types, aligned = ("fp32",) * 3, (False,) * 3
    return [KernelSource(language, "product", text or own, types, aligned, capability=10 * major + minor)]


def launched(run, x: Tensor, y: Tensor) -> Tensor:
    made = run(aten.empty_strided.default, ((4, 4), (4, 1)), {"dtype": x.dtype, "device": x.device})
    run.launch(kernels_of(x, y)[0], [x, y], [made])
    return made


def offer_kernels(offered, kernels) -> None:
    fits = lambda x, y: x.shape == y.shape == (4, 4)  # noqa: E731
    alternative = rote.Alternative("aten::mm", "in a kernel", fits, launched, kernels=kernels)
    rote.register_alternative(alternative)
    offered.append(alternative)


def test_one_with_a_kernel_of_its_own(device, _offer):
    """It is compiled beside the program; nothing is decided meanwhile."""
    offer_kernels(_offer, kernels_of)
    x = torch.randn(4, 4, device=device)
    g = rote.graph(product, keep=True, numerics="near")
    for _ in range(2000):
        torch.testing.assert_close(g(x), product(x))
        if g.wait_until_optimized(timeout_s=COMPILE_S):
            break
    found = tier(g)
    assert found is not None and [each.alternative for each in found.near] == ["in a kernel"], g.explain()
    expected = widely(lambda func, args, kwargs: func(*args, **kwargs), x, x).exp() + (x[:2] @ x).sum()
    assert_same(g(x), expected, "result")


def test_one_whose_kernel_cannot_be_compiled(device, _offer):
    offer_kernels(_offer, lambda x, y: kernels_of(x, y, "this is no program"))
    offer(_offer, widely)
    x = torch.randn(4, 4, device=device)
    found = tier(play(product, (x,), numerics="near"))
    assert found is not None and [each.alternative for each in found.near] == ["in 64 bits"]
    assert any([reason.startswith("in a kernel: NoKernelError") for reason in found.kept])


def test_one_that_is_not_as_near_where_calls_rarely_are(device, _offer):
    """Zeros are such operands here, and the alternative gives no number for them."""

    def far(run, x: Tensor, y: Tensor) -> Tensor:
        return run(aten.mul.Tensor, (widely(run, x, y), 1 if x.any() else float("nan")), {})

    edges = lambda x, y: [([x * 0, y], {})]  # noqa: E731
    offered = rote.Alternative("aten::mm", "far", lambda x, y: x.shape[0] == 4, far, edges=edges)
    rote.register_alternative(offered)
    _offer.append(offered)
    x = torch.randn(4, 4, device=device)
    found = tier(play(product, (x,), numerics="near"))
    assert found is not None and not found.near
    why = "far: it is infinite or no number at other places, for operands that calls rarely have"
    assert any([why in each.reason for each in found.left]), found.left


def test_a_name_is_used_once(_offer):
    offer(_offer, widely)
    with pytest.raises(rote.MisuseError, match="aten::mm has an alternative named 'in 64 bits'"):
        rote.register_alternative(_offer[0])


def test_what_needs_the_other_results_keeps_its_operator(device, _offer):
    """The alternative gives the first result alone."""
    offered = rote.Alternative(
        "aten::aminmax", "minimum", lambda x, **_: True, lambda run, x, **_: run(aten.amin.default, (x,), {})
    )
    rote.register_alternative(offered)
    _offer.append(offered)
    x = torch.randn(4, 4, device=device)

    def spread(x: Tensor) -> Tensor:
        low, high = torch.aminmax(x * 2)
        return high - low

    found = tier(play(spread, (x,), numerics="near"))
    assert found is None or not found.near
