"""What nothing proves is used on request only, and only if its bits are the operator's wherever tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.conformance.test_exact_tier import tier
from tests.conformance.test_fused import PROGRAMS, both, hurry
from torch import Tensor

import rote
from rote import Graphed
from rote.inspect import TierReport
from rote.runtime.compiling import SHELVES, Binary, KernelSource
from rote.runtime.fusion import OperationProof, rules
from rote.runtime.fusion import functions as fn
from rote.runtime.fusion.proofs import PROBES
from rote.runtime.optimize import ALTERNATIVES
from rote.testing import assert_same

aten = torch.ops.aten
CALLS = 40
UNPROVED = "rsqrt: its function is not defined to the bit, and not all operands can be tried"

compiled = pytest.mark.usefixtures("_compiler", "_fresh")


@pytest.fixture
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of kernels, and all that is to be tried is tried in one call."""
    monkeypatch.setattr("rote.runtime.fusion.device._DEVICES", {})
    monkeypatch.setattr("rote.runtime.fusion.device.PROBES_AT_ONCE", 1 << 20)
    for name in ("HOST_SLICE", "GPU_SLICE"):
        monkeypatch.setattr(f"rote.runtime.fusion.device.{name}", 1 << 40)


def play(function: Callable[..., Tensor], args: tuple[Any, ...], **options: Any) -> Graphed:
    """Calls, from the fourth on with time for what is to be done; each has eager's bits."""
    g = rote.graph(function, keep=True, **options)
    for number in range(CALLS):
        if number >= 3:
            hurry(g)
        assert_same(g(*args), function(*args), f"call {number}")
    return g


def found(g: Graphed) -> TierReport:
    report = tier(g)
    assert report is not None and not report.compiling, g.explain()
    return report


# ---------------------------------------------------------------------- functions

SPECIAL = 0.734375
"""A number that hostile elements do not have; three of it and two are one of 32 bits."""


def roots(x: Tensor) -> Tensor:
    """Of 64 bits, of which no device tries all operands."""
    y = torch.rsqrt(x * 2 + 1) * x - 3
    return y @ y.t() + torch.rsqrt(x[:, :1] * 3 + 2) * 2


def numbers(device: torch.device) -> Tensor:
    return torch.rand(8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(device)


@compiled
def test_a_function_with_the_same_bits_is_taken(device):
    g = play(roots, (numbers(device),), numerics="probed")
    report = found(g)
    assert report.fused is not None and report.fused.probed == 2 and not report.fused.refused, g.explain()
    assert [each.tier for each in report.trials] == ["fused", "probed"]
    assert "of 2 kernels; 2 of them probed" in g.explain()
    assert sum([each.tiers.get("probed", 0) for each in report.lines]) == report.fused.launches


@compiled
@pytest.mark.parametrize("numerics", ["exact", "near"])
def test_exact_does_not_take_it(device, numerics):
    """Not even where it is known to pass; what is near may."""
    play(roots, (numbers(device),), numerics="probed")
    g = play(roots, (numbers(device),), numerics=numerics)
    fused = found(g).fused
    assert fused is not None
    if numerics == "exact":
        assert fused.probed == 0 and fused.refused == {UNPROVED: 2}
        assert f"not fused: 2 {UNPROVED}" in g.explain()
    else:
        assert fused.probed == 2


def mutate(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """Have kernels give another root of one operand."""
    infinite = {"cpp": "INFINITY", "triton": 'float("inf")'}
    texts = {
        kind: f"({condition} ? 1.25 : {root})" if kind == "cpp" else f"tl.where({condition}, 1.25, {root})"
        for kind, root in (("cpp", fn.INVERSE_ROOT.cpp), ("triton", fn.INVERSE_ROOT.triton))
        for condition in [when.replace("INFINITY", infinite[kind])]
    }
    monkeypatch.setitem(rules.RULES, "rsqrt", rules._of_one(replace(fn.INVERSE_ROOT, **texts)))


@compiled
@pytest.mark.parametrize(
    "when",
    [
        "{0} == INFINITY", "{0} == 0", "{0} < -1.0e307", "{0} == 2.2250738585072014e-308",
        "({0} > 0) & ({0} < 1e-308)", "({0} > 1e290) & ({0} < 1e300)",
    ],
)  # fmt: skip
def test_one_that_differs_for_a_hostile_operand_is_refused(device, monkeypatch, when):
    mutate(monkeypatch, when)
    g = play(roots, (numbers(device),), numerics="probed")
    report = found(g)
    assert report.fused is not None and report.fused.probed == 0, g.explain()
    assert [each.tier for each in report.trials] == ["fused"]
    why = "nothing more is equal as far as is probed: rsqrt: a kernel of it gives other bits"
    assert why in [each.reason for each in report.left], g.explain()


@compiled
def test_one_that_differs_in_its_place_is_refused(device, monkeypatch):
    """Nothing hostile shows it, but an operand of the recording in the second place."""
    mutate(monkeypatch, f"{{0}} == {2 + 3 * SPECIAL!r}")
    x = numbers(device)
    x[5, 0] = SPECIAL
    report = found(play(roots, (x,), numerics="probed"))
    assert report.fused is not None and report.fused.probed == 0
    why = "rsqrt: a kernel of it gives other bits for operands of a call"
    assert any([why in each.reason for each in report.left])


@compiled
def test_the_operand_of_another_call_is_not_seen(device, monkeypatch):
    """What probes are: the contract says so."""
    mutate(monkeypatch, f"{{0}} == {2 + 3 * SPECIAL!r}")
    x = numbers(device)
    g = play(roots, (x,), numerics="probed")
    assert found(g).fused.probed == 2
    x[5, 0] = SPECIAL
    assert not torch.equal(g(x), roots(x))
    with pytest.raises(rote.VerificationError):
        play(roots, (numbers(device),), numerics="probed", verify=1)(x)


@compiled
@pytest.mark.parametrize("fn", PROGRAMS)
def test_programs(device, fn):
    g = both(fn, device, numerics="probed")
    tiers = [each.tier for each in g.report().recordings if each.tier is not None]
    assert not [each for one in tiers for each in one.left if "equal to the bit" in each.reason], g.explain()


class Notes:
    """A shelf that has nothing and notes what is kept on it."""

    def __init__(self) -> None:
        self.proved: list[str] = []

    def find(self, source: KernelSource) -> Binary | None:
        del source

    def keep(self, binary: Binary) -> None:
        """Nothing is kept."""

    def certifies(self, source: KernelSource, proved: str) -> bool:
        del source
        return "rsqrt" in proved and "probed=False" in proved  # of which nobody may make use

    def certify(self, source: KernelSource, proved: str) -> None:
        self.proved.append(proved)


@compiled
def test_certificates_name_the_way(device):
    notes = Notes()
    SHELVES.add(notes)
    play(roots, (numbers(device),), numerics="exact")
    assert notes.proved and not [each for each in notes.proved if "rsqrt" in each]
    play(roots, (numbers(device),), numerics="probed")
    assert {"probed=True" in each for each in notes.proved if "rsqrt" in each} == {True}
    assert {"probed=False" in each for each in notes.proved if "rsqrt" not in each} == {True}


@compiled
def test_a_plan_keeps_both_apart(device, monkeypatch, tmp_path):
    """What was probed need not be tried again, but in its place; and exact makes no use of it."""
    x, tried, called = numbers(device), list[str](), OperationProof.called

    def noted(proof: OperationProof, *how: Any) -> Tensor:
        tried.append(proof.signature.name)
        return called(proof, *how)

    monkeypatch.setattr(OperationProof, "called", noted)
    for count, numerics, probed in ((PROBES, "probed", 2), (0, "probed", 2), (0, "exact", 0)):
        monkeypatch.setattr("rote.runtime.fusion.device._DEVICES", {})
        fused = found(play(roots, (x,), numerics=numerics, plans=tmp_path)).fused
        assert fused is not None and fused.probed == probed
        assert tried.count("aten::rsqrt") == count
        tried.clear()


# ---------------------------------------------------------------------- alternatives


@pytest.fixture
def _offer() -> Iterator[list[rote.Alternative]]:
    offered: list[rote.Alternative] = []
    yield offered
    for each in offered:
        ALTERNATIVES.withdraw(each)


def offer(offered: list[rote.Alternative], calculate: Callable[..., Tensor], name: str = "other") -> None:
    offered.append(rote.Alternative("aten::mm", name, lambda x, y: x.shape[0] == 4, calculate))
    rote.register_alternative(offered[-1])


def product(x: Tensor) -> Tensor:
    return (x @ x).exp() + (x[:2] @ x).sum()


def equal(run: Any, x: Tensor, y: Tensor) -> Tensor:
    """The same product, of copies."""
    return run(aten.mm.default, (run(aten.clone.default, (x,), {}), y), {})


def then(func: Any, *operands: Any) -> Callable[..., Tensor]:
    """What an alternative does with its result, or one of its operands, beside what is right."""
    return lambda run, x, y: run(func, (equal(run, x, y), *operands), {})


def before(func: Any, *operands: Any) -> Callable[..., Tensor]:
    return lambda run, x, y: equal(run, run(func, (x, *operands), {}), y)


def flushed(run: Any, x: Tensor, y: Tensor) -> Tensor:
    small = run(aten.lt.Scalar, (run(aten.abs.default, (x,), {}), torch.finfo(x.dtype).tiny), {})
    return equal(run, run(aten.masked_fill.Scalar, (x, small, 0.0), {}), y)


def backwards(run: Any, x: Tensor, y: Tensor) -> Tensor:
    """Sums in another order."""
    return equal(run, run(aten.flip.default, (x, [1]), {}), run(aten.flip.default, (y, [0]), {}))


@pytest.mark.parametrize("numerics", ["probed", "exact"])
def test_an_alternative_with_the_same_bits(device, _offer, numerics):
    offer(_offer, equal)
    g = play(product, (torch.randn(4, 4, device=device),), numerics=numerics)
    report = tier(g)
    used = [] if report is None else [(e.operator, e.alternative, e.operations, e.error) for e in report.near]
    assert used == ([("mm", "other", 1, None)] if numerics == "probed" else []), g.explain()
    assert ("probed: 1 mm as other; the same bits" in g.explain()) is (numerics == "probed")


@pytest.mark.parametrize(
    "calculate",
    [
        then(aten.nan_to_num.default),
        then(aten.clamp.default, None, torch.finfo(torch.float32).max),
        then(aten.clamp.default, torch.finfo(torch.float32).min),
        before(aten.clamp.default, -1e30, 1e30),
        flushed,
        backwards,
    ],
)
def test_one_that_differs_for_hostile_operands(device, _offer, calculate):
    offer(_offer, calculate)
    g = play(product, (torch.eye(4, device=device) * 0.5,), numerics="probed")
    report = tier(g)
    assert report is not None and not report.near, g.explain()
    why = "other: it gives other bits, for operands that calls rarely have"
    assert any([why in each.reason for each in report.left]), g.explain()


def test_one_that_differs_for_those_of_the_call(device, _offer):
    offer(_offer, then(aten.mul.Tensor, 1.0000001))
    report = tier(play(product, (torch.randn(4, 4, device=device),), numerics="probed"))
    assert report is not None and not report.near
    assert any(["other: it gives other bits" in each.reason for each in report.left])


def test_one_that_fails_in_one_of_its_places(device, _offer):
    """It stands for the operator in the other one."""

    def layers(x: Tensor) -> Tensor:
        for scale in (1.625, 0.5):
            x = (x @ x) * scale
        return x

    def calculate(run: Any, x: Tensor, y: Tensor) -> Tensor:
        right = equal(run, x, y)
        return torch.where(x[0, 0] == 0.40625, right + 1, right)

    offer(_offer, calculate)
    report = tier(play(layers, (torch.eye(4, device=device) * 0.5,), numerics="probed"))
    assert report is not None and [each.operations for each in report.near] == [1]
    assert report.kept == {"other: it gives other bits": 1}


# ---------------------------------------------------------------------- proofs

WRONG = 0.28125
"""A number that no call has and that hostile elements do not have either."""


def proved(x: Tensor, y: Tensor) -> Iterator[tuple[list[Tensor], dict[str, Any]]]:
    yield [torch.full_like(x, WRONG), torch.ones_like(y)], {}


def wrong_where_asked(run: Any, x: Tensor, y: Tensor) -> Tensor:
    result = equal(run, x, y)
    return run(aten.masked_fill.Scalar, (result, run(aten.eq.Scalar, (result, 4 * WRONG), {}), 0.0), {})


@pytest.mark.parametrize("numerics", ["plain", "exact", "probed", "near"])
def test_an_alternative_that_is_proved(device, _offer, numerics):
    _offer.append(rote.Alternative("aten::mm", "proved", lambda x, y: x.shape[0] == 4, equal, proof=proved))
    rote.register_alternative(_offer[-1])
    g = play(product, (torch.randn(4, 4, device=device),), numerics=numerics)
    report = tier(g)
    used = [] if report is None else [(e.operator, e.alternative, e.how) for e in report.near]
    how = {"exact": "proved", "probed": "probed"}.get(numerics)
    assert used == ([("mm", "proved", how)] if how else []), g.explain()
    assert ("proved: 1 mm as proved; the same bits" in g.explain()) is (numerics == "exact")


@pytest.mark.parametrize(("numerics", "used"), [("exact", False), ("probed", True)])
def test_the_proof_is_asked_where_bits_are_kept_for_certain(device, _offer, numerics, used):
    """Its operands alone tell the two apart; nothing but a proof has seen them."""
    _offer.append(
        rote.Alternative("aten::mm", "proved", lambda x, y: x.shape[0] == 4, wrong_where_asked, proof=proved)
    )
    rote.register_alternative(_offer[-1])
    g = play(product, (torch.randn(4, 4, device=device),), numerics=numerics)
    report = tier(g)
    assert bool(report is not None and report.near) is used, g.explain()
    if not used:
        assert "proved: it gives other bits, for operands that calls rarely have" in g.explain()


def test_that_none_is_proved_is_not_worth_a_word(device, _offer):
    """Nobody has asked for one."""
    _offer.append(rote.Alternative("aten::mm", "proved", lambda x, y: False, equal, proof=proved))
    rote.register_alternative(_offer[-1])
    g = play(product, (torch.randn(4, 4, device=device),), numerics="exact")
    report = tier(g)
    assert report is None or not (report.near or report.left), g.explain()
    assert g.wait_until_optimized(timeout_s=60)
