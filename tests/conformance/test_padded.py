"""``rote.padded``: calls of many sizes share recordings where padding makes no difference, and only there."""

from __future__ import annotations

import copy
import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import rote
from rote.base.errors import MisuseError, OptionError
from rote.padding.wrapping import MAX_LEARNT, OFTEN, AxisSizes

AXES = {"x": {0: [2, 4, 8]}}
SIZES = [1, 3, 5, 3, 7, 1, 6, 3, 5, 8, 4, 2, 7, 1, 3, 6]


def rows(n, device, width=5):
    return torch.randn(n, width, device=device)


def check(fn, device, sizes=SIZES, plain=None, **options):
    """Every call has the results of the plain callable."""
    g = rote.padded(fn, **{"axes": AXES, **options})
    for n in sizes:
        x = rows(n, device)
        same(g(x), (plain or fn)(x))
    return g


def count_recordings(padded):
    return len(padded.report().graphed.recordings)


def same(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert torch.equal(found, expected)
        assert (found.stride(), found.storage_offset()) == (expected.stride(), expected.storage_offset())
    elif isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for one, two in zip(found, expected, strict=True):
            same(one, two)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        same(list(found.values()), list(expected.values()))
    else:
        assert found == expected


def test_sizes_share_the_recordings_of_a_few(device):
    g = check(lambda x: (x * 2).relu() + x.sum(1, keepdim=True), device)
    report = g.report()
    assert report.padded >= 4 and count_recordings(g) == 3
    found = {reason.code: reason.message for reason in report.reasons}
    assert set(found) <= {"RT306", "RT315"} and "axis 0 of x is padded from" in found["RT315"]


def test_after_the_checks_every_call_is_replayed(device):
    g = check(lambda x: x.exp(), device, sizes=[3, 3])
    before = g.report()
    for n in (3, 4, 3, 3):
        x = rows(n, device)
        same(g(x), x.exp())
    after = g.report()
    assert after.graphed.replayed - before.graphed.replayed == 4 and after.padded == 3


def test_every_kind_of_result(device):
    constant = torch.ones(2, device=device)

    def fn(x):
        return {
            "rows": (x + 1, x.argmax(1)),
            "columns": x.t().clone(memory_format=torch.contiguous_format),
            "both": (x.unsqueeze(1) * x.unsqueeze(0)).sum(2),
            "plain": (3, None, constant),
        }

    g = check(fn, device)
    assert g.report().padded >= 4


def test_results_have_memory_of_their_own(device):
    g = check(lambda x: x * 2, device, sizes=[3, 3, 3])
    out = g(rows(3, device))
    assert g.report().padded == 2
    assert out.untyped_storage().nbytes() == 3 * 5 * 4
    kept = out.clone()
    g(rows(3, device))
    assert torch.equal(out, kept)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x - x.mean(0),
        lambda x: x / x.sum(),
        lambda x: x + x.amax(),
        lambda x: x + x.amin(0, keepdim=True),
        lambda x: x.sort(0).values,
        lambda x: x.cumsum(0).flip(0),
        lambda x: x.softmax(0),
        lambda x: x + x.median(),
        lambda x: torch.stack([x.sum(), x.mean()]),
        lambda x: x.norm(),
    ],
)
def test_rows_that_meet_are_not_padded(device, fn):
    g = check(fn, device)
    assert g.report().padded == 0
    text = g.explain()
    assert ("RT317" in text and "result differs by up to" in text) or (
        "RT318" in text and "joins rows" in text
    )


def test_a_maximum_that_copies_do_not_change(device, reason):
    """Copies of rows leave a maximum alone, always; it is refused all the same."""
    g = check(lambda x: x + x.abs().amax(), device)
    assert g.report().padded == 0 and "aten::amax" in reason(g, "RT318").message


def test_rows_that_meet_along_the_axis(device, reason):
    g = check(lambda x: x.softmax(0), device)
    why = reason(g, "RT317")
    assert g.report().padded == 0 and "result differs by up to" in why.message
    assert "when axis 0 of x is padded from" in why.message and "tolerance" in why.remedy


def test_sums_from_the_first_row_on(device):
    """Rows meet, but padding comes after them all."""
    assert check(lambda x: x.cumsum(0), device).report().padded >= 4


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (lambda x: x.shape[0], r"result is 1, and 2 with padding"),
        (lambda x: (x * 2, x.shape[0]), r"result\[1\] is 1, and 2 with padding"),
        (lambda x: torch.cat([x, x]), "dimension 0 of result is 2, and 4 with padding"),
        (lambda x: (x * 2).t(), "result is not contiguous"),
        (lambda x: [row * 2 for row in x], "aten::unbind.int at .* has other results with padding"),
        (lambda x: x, "a result is an argument or a view of one"),
        (lambda x: (x * 2, x[:1]), "a result is an argument or a view of one"),
        (lambda x: x.mul_(2), "the call writes an argument"),
        (lambda x: x + torch.rand_like(x), "the call draws random numbers"),
        (lambda x: x * 2 if x.sum().item() > 0 else x * 3, "the host reads a value of the call"),
        (lambda x: x[x[:, 0] > 0], "the host reads a value of the call"),
        (lambda x: (lambda y: (y, y[0]))(x * 2), "two results share memory"),
        (lambda x: x * 2 if x.shape[0] in (1, 3, 5, 7, 6) else 1 / 0, "division by zero"),
    ],
)  # fmt: skip
def test_what_cannot_be_padded(device, reason, fn, text):
    torch.manual_seed(3)
    g = rote.padded(fn, axes=AXES)
    for number, n in enumerate((1, 3, 5, 1, 3, 7, 6, 1)):
        x = rows(n, device)
        given, expected = x.clone(), x.clone()
        torch.manual_seed(number)
        out = g(given)
        torch.manual_seed(number)
        same(out, fn(expected))
        assert torch.equal(given, expected)
    assert g.report().padded == 0
    assert re.search(text, reason(g, "RT318").message)


def test_state_that_calls_change(device, reason):
    buffer, reference = torch.zeros((), device=device), torch.zeros((), device=device)

    def work(total):
        def run(x):
            total.add_(1)
            return x + total

        return run

    check(work(buffer), device, plain=work(reference))
    assert buffer.item() == reference.item() == len(SIZES)


def test_python_state_that_calls_change(device, reason):
    counts = [0, 0]

    def work(which):
        def run(x):
            counts[which] += 1
            return x * 2

        return run

    g = check(work(0), device, plain=work(1), sizes=[3] * 12)
    assert counts == [12, 12] and g.report().padded == 0
    assert "its calls are not steady" in reason(g, "RT318").message


def test_what_calls_keep_outside_is_not_padded(device, reason):
    """A slot that is bound to a result, a list that grows: each has the rows of the caller."""
    kept = [{}, {}], [[], []]

    def work(which):
        def run(x):
            kept[0][which]["last"] = y = x * 2
            kept[1][which].append([y])
            return y + 1

        return run

    g = check(work(0), device, plain=work(1))
    same(kept[0][0], kept[0][1])
    same(kept[1][0], kept[1][1])
    assert g.report().padded == 0
    assert "the call keeps something outside" in reason(g, "RT318").message


def test_batch_norm_while_training_and_after(device):
    norms = [nn.BatchNorm1d(5).to(device), nn.BatchNorm1d(5).to(device)]
    g = rote.padded(norms[0], axes={"input": {0: [2, 4, 8]}})
    with torch.no_grad():
        for n in (3, 5, 3, 7, 3):
            x = rows(n, device)
            assert torch.equal(g(x), norms[1](x))
            assert torch.equal(norms[0].running_mean, norms[1].running_mean)
            assert norms[0].num_batches_tracked == norms[1].num_batches_tracked
        for norm in norms:
            norm.eval()
        g.reset()
        for n in (3, 5, 3, 7, 3, 5, 7):
            x = rows(n, device)
            assert torch.equal(g(x), norms[1](x))
        for norm in norms:
            norm.train()
        for n in (3, 5, 3, 7, 3):
            x = rows(n, device)
            assert torch.equal(g(x), norms[1](x))
            assert torch.equal(norms[0].running_mean, norms[1].running_mean)


def test_a_recording_made_later_is_checked_again(device):
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.meets = False

        def forward(self, x):
            return x - x.mean(0) if self.meets else x * 2

    model = Scale()
    g = rote.padded(model, axes=AXES)
    for meets in (False, True, False, True):
        model.meets = meets
        for n in (3, 3, 3, 4, 3, 3):
            x = rows(n, device)
            same(g(x), model.forward(x))
    assert g.report().padded > 0


def test_rounding_is_allowed_only_when_asked_for(device):
    """A stand-in for kernels that round in another way for another number of rows."""

    def fn(x):
        ones = torch.ones(x.shape[0], x.shape[0], device=device)
        return (x + (ones @ torch.ones_like(x)) * 1e-7).exp()

    exact = check(fn, device)
    assert exact.report().padded == 0
    g = rote.padded(fn, axes=AXES, tolerance=1e-4)
    for n in SIZES:
        x = rows(n, device)
        torch.testing.assert_close(g(x), fn(x))
    assert g.report().padded > 0


def test_a_dependence_that_shows_late(device, caplog, reason):
    """Values from 1000 on meet; the checked calls have none."""

    def fn(x):
        return torch.where(x > 1000, x.softmax(0), x)

    g = rote.padded(fn, axes={"x": {0: [4]}})
    for _ in range(15 + 2):
        x = rows(3, device)
        same(g(x), fn(x))
    assert g.report().padded == 15
    for _ in range(3):
        x = rows(3, device) + 2000
        same(g(x), fn(x))
    assert g.report().padded == 15 and reason(g, "RT317").count == 3
    assert "16 calls were padded before, and may differ" in caplog.text


def test_a_band_that_extreme_padding_misses(device, reason):
    """What is added up is zero for very large and very small values, and for most last rows."""

    def fn(x):
        y = x.relu()
        return y.masked_fill(y > 1, 0).sum()

    g = rote.padded(fn, axes={"x": {0: [8]}})
    for n in SIZES:
        x = rows(n, device) * 3
        assert torch.equal(g(x), fn(x))
    assert g.report().padded == 0 and "aten::sum" in reason(g, "RT318").message


def test_code_that_branches_on_one_size(device):
    def fn(x):
        return x * 3 if x.shape[0] == 3 else x * 2

    g = rote.padded(fn, axes={"x": {0: [4]}})
    for n in (1, 1, 1, 1, 2, 2, 3, 3, 1):
        x = rows(n, device)
        same(g(x), fn(x))
    assert g.report().padded == 3
    assert "takes another number or tensor with padding" in g.explain()


def test_a_number_of_rows_that_a_saturated_kernel_hides(device, reason):
    g = rote.padded(lambda x: (x * x.shape[0]).sign(), axes=AXES)
    for n in SIZES:
        x = rows(n, device)
        same(g(x), (x * n).sign())
    assert g.report().padded == 0 and "takes another number or tensor" in reason(g, "RT318").message


def test_sizes_that_operations_take(device):
    def fn(x):
        y = x.view(x.shape[0], 5, 1).expand(x.shape[0], 5, 2).contiguous().view(x.shape[0] * 5, 2)
        return y.view(x.shape[0], 10) + torch.zeros(x.shape[0], 10, device=x.device)

    assert check(fn, device).report().padded >= 4


def test_one_size_that_writes_its_argument(device):
    def fn(x):
        y = x * 2
        if x.shape[0] == 3:
            x.add_(1)
        return y

    g = rote.padded(fn, axes={"x": {0: [4]}})
    for n in (1, 1, 1, 1, 2, 2, 3, 3, 1):
        x = rows(n, device)
        given, expected = x.clone(), x.clone()
        same(g(given), fn(expected))
        assert torch.equal(given, expected)
    assert g.report().padded == 3 and "the call writes an argument" in g.explain()


def test_one_object_as_two_arguments(device):
    def fn(x, y):
        return x * 2 if x is y else x * 3

    g = rote.padded(fn, axes={"x": {0: [4]}, "y": {0: [4]}})
    for _ in range(4):
        x, y = rows(3, device), rows(3, device)
        same(g(x, y), fn(x, y))
    assert g.report().padded == 2
    x = rows(3, device)
    same(g(x, x), x * 2)


def test_several_arguments(device):
    def fn(x, y, *, scale):
        return x * scale + y.sum(1, keepdim=True), y * 2

    g = rote.padded(fn, axes={"x": {0: [4, 8]}, "y": {0: [4, 8], 1: "powers"}})
    for n, m in [(3, 3), (3, 3), (3, 3), (2, 3), (5, 5), (3, 3)]:
        x, y = rows(n, device), torch.randn(n, m, device=device)
        same(g(x, y=y, scale=2.0), fn(x, y, scale=2.0))
    assert g.report().padded == 0  # the sum runs along a padded axis
    g = rote.padded(fn, axes={"x": {0: [4, 8]}, "y": {0: [4, 8]}})
    for n in [3, 3, 3, 2, 5, 5, 7, 3]:
        x, y = rows(n, device), torch.randn(n, 3, device=device)
        same(g(x, y=y, scale=2.0), fn(x, y, scale=2.0))
    assert g.report().padded == 2


def test_sizes_that_stop_going_together(device):
    """Which axis a result follows was ambiguous while both had one size; when they differ, nothing is cut."""

    def fn(x, y):
        return x * 2, y * 3

    g = rote.padded(fn, axes={"x": {0: [4]}, "y": {0: [4]}})
    for n, m in [(3, 3)] * 4 + [(2, 3), (3, 2), (1, 2), (3, 3), (2, 1), (2, 3)] * 2:
        x, y = rows(n, device), rows(m, device)
        same(g(x, y), fn(x, y))
    assert g.report().padded >= 3


def test_axes_that_are_padded_by_turns(device):
    """One recording answers calls of which now one, now the other argument is padded."""

    def fn(x, y):
        return x * 2, y * 3

    g = rote.padded(fn, axes={"x": {0: [4]}, "y": {0: [4]}})
    for n, m in [(3, 4)] * 4 + [(4, 3), (3, 4), (4, 3), (4, 3), (4, 3), (2, 4), (2, 4), (4, 4)]:
        x, y = rows(n, device), rows(m, device)
        same(g(x, y), fn(x, y))
    assert g.report().padded == 7 - 1 and count_recordings(g) == 1


def test_an_argument_given_in_several_ways(device):
    g = check(lambda x: x * 2, device, sizes=[3, 3])
    for call in (lambda x: g(x), lambda x: g(x=x)):
        for _ in range(3):
            x = rows(3, device)
            same(call(x), x * 2)
    assert g.report().padded >= 2
    assert g(torch.tensor(2.0, device=device)).item() == 4.0
    assert "so there is no axis 0" in g.explain()


def test_results_that_require_grad(device):
    weight, plain = (torch.full((5,), 2.0, device=device, requires_grad=True) for _ in range(2))
    g = rote.padded(lambda x: x * weight, axes=AXES)
    for n in SIZES:
        x = rows(n, device)
        out, expected = g(x), x * plain
        same(out.detach(), expected.detach())
        out.sum().backward()
        expected.sum().backward()
        assert torch.equal(weight.grad, plain.grad)
    assert g.report().padded == 0 and "a result requires grad" in g.explain()


def test_methods_and_modules(device):
    class Policy:
        @rote.padded(axes=AXES)
        def act(self, x):
            return x * 2

    policy = Policy()
    for n in SIZES:
        x = rows(n, device)
        same(policy.act(x), x * 2)
    assert policy.act.report().padded >= 4


def test_larger_than_the_largest_size(device, reason):
    g = check(lambda x: x * 2, device, sizes=[9, 9, 9, 12])
    assert "axis 0 of x is 9, the largest size is 8" in reason(g, "RT316").message or "12" in g.explain()
    assert g.report().graphed.replayed == 1 and g.report().padded == 0


def test_empty_and_strided_arguments(device):
    g = rote.padded(lambda x: x * 2, axes=AXES)
    for _ in range(4):
        for x in (rows(0, device), rows(5, device).t()[:3], rows(3, device).requires_grad_()):
            assert torch.equal(g(x), x * 2)
    assert g.report().padded == 0 and "x requires grad or is no plain tensor" in g.explain()


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float64, torch.complex64])
def test_types(device, dtype):
    table = torch.randn(4, 3, device=device)

    def fn(x):
        if dtype is torch.int64:
            return table[x]
        return x.logical_not() if dtype is torch.bool else x * 2

    g = rote.padded(fn, axes=AXES)
    for n in SIZES:
        x = torch.randint(0, 4, (n,), device=device).to(dtype)
        same(g(x), fn(x))
    assert g.report().padded >= 4


def test_an_exception_in_a_checked_call(device):
    fail = [True]

    def fn(x):
        if fail[0]:
            raise KeyError("mine")
        return x * 2

    g = rote.padded(fn, axes=AXES)
    with pytest.raises(KeyError, match="mine"):
        g(rows(3, device))
    fail[0] = False
    for n in SIZES:
        x = rows(n, device)
        same(g(x), x * 2)
    assert g.report().padded >= 3


def test_strict(device):
    g = rote.padded(lambda x: x * 2, axes=AXES, strict=True)
    for _ in range(4):
        g(rows(3, device))
    assert g.report().padded == 2
    with pytest.raises(rote.NotReplayedError, match="RT306"):
        g(rows(7, device))
    same(g(rows(1, device).expand(3, 5).contiguous()).shape, torch.Size([3, 5]))


def test_under_a_budget(device):
    g = rote.padded(lambda x: x * 2, axes={"x": {0: "powers"}}, budget="256 MiB", keep=True)
    for n in [*range(1, 40), *range(1, 40)]:
        x = rows(n, device)
        same(g(x), x * 2)
    assert g.report().padded == 39 - 6 - 1 and count_recordings(g) <= 7  # 3 alone needs two checks for 4


def test_sizes_given_and_powers():
    given, powers = AxisSizes([2, 4, 8]), AxisSizes("powers")
    assert [given.size_for(n) for n in (1, 2, 3, 8, 9)] == [2, 2, 4, 8, None] and given.largest == 8
    assert [powers.size_for(n) for n in (1, 2, 3, 5, 1000)] == [1, 2, 4, 8, 1024] and powers.largest is None


def test_learnt_sizes_stay_few():
    sizes = AxisSizes("learn")
    assert [sizes.size_for(100) for _ in range(OFTEN)] == [128] * (OFTEN - 1) + [100]
    assert [sizes.size_for(n) for n in (99, 65, 64, 101)] == [100, 100, 64, 128]
    found = {sizes.size_for(n) for _ in range(5) for n in range(1, 3000)}
    assert len(found) <= MAX_LEARNT + 13


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"axes": {}}, r"axes={} must be a dict of argument names"),
        ({"axes": [4]}, r"axes=\[4\] must be a dict of argument names"),
        ({"axes": {"x": [4]}}, r"axes\['x'\]=\[4\] must be a dict of axes"),
        ({"axes": {"x": {-1: [4]}}}, r"axes\['x'\]\[-1\]: an axis must be a whole number"),
        ({"axes": {"x": {0: [4, 2]}}}, r"axes\['x'\]\[0\]=\[4, 2\] must ascend"),
        ({"axes": {"x": {0: [0]}}}, r"must be a list of whole numbers"),
        ({"axes": {"x": {0: []}}}, r"must be a list of whole numbers"),
        ({"axes": {"x": {0: "auto"}}}, r"'auto' must be a list of sizes, 'powers' or 'learn'"),
        ({"axes": {"z": {0: [4]}}}, r"axes names 'z', which is no parameter; those are \['x'\]"),
        ({"axes": AXES, "tolerance": -1.0}, r"tolerance=-1.0 must be at least 0"),
        ({"axes": AXES, "warmup": 0}, r"warmup=0 must be a whole number of at least 1"),
        ({"axes": AXES, "buckets": AXES}, r"use rote.padded\(function, axes={...}\)"),
    ],
)
def test_options_that_cannot_be(options, text):
    with pytest.raises(OptionError, match=text):
        rote.padded(lambda x: x, **options)
    if "z" not in options["axes"]:
        with pytest.raises(OptionError, match=text):
            rote.padded(**options)


def test_what_cannot_be_wrapped():
    g = rote.graph(lambda x: x)
    with pytest.raises(OptionError, match=r"graphed already; give keep to rote\.graph"):
        rote.padded(g, axes=AXES, keep=True)
    with pytest.raises(MisuseError, match="this callable is padded already"):
        rote.padded(rote.padded(g, axes=AXES), axes=AXES)
    with pytest.raises(MisuseError, match=r"rote\.graph needs a callable, not a int"):
        rote.padded(3, axes=AXES)


# --- Around a graphed callable ----------------------------------------------------------------------------


def test_a_graphed_callable_is_padded_and_still_its_own(device):
    """Both answer from the same recordings, and calls that go past the wrapper are padded by nobody."""
    g = rote.graph(lambda x: x * 2)
    p = rote.padded(g, axes={"x": {0: [4]}})
    for n in (3, 3, 3, 3, 4):
        x = rows(n, device)
        same(p(x), x * 2)
    assert p.report().padded == 2 and count_recordings(p) == 1
    assert p.report().graphed == g.report() and g.report().calls == 3
    x = rows(4, device)
    same(g(x), x * 2)
    assert g.report().replayed == 4 and p.report().calls == 5


def test_a_recording_that_goes_away_is_not_relied_on(device):
    g = rote.graph(lambda x: x * 2)
    p = rote.padded(g, axes={"x": {0: [4]}})
    for reset in (False, True, False):
        for _ in range(4):
            x = rows(3, device)
            same(p(x), x * 2)
        if reset:
            g.reset()
    assert p.report().padded == 2 + 4 + 2 and p.report().checked == 4


def test_the_report_counts_every_call_once(device):
    p = check(lambda x: x * 2, device, sizes=[3, 3, 3, 4, 9, 3, 1])
    report = p.report()
    assert (report.calls, report.padded, report.checked, report.exact) == (7, 2, 3, 2)
    assert {each.code: each.count for each in report.reasons} == {"RT315": 3, "RT316": 1}
    assert json.loads(report.to_json())["graphed"]["calls"] == report.graphed.calls == 4
    assert "7 calls, 2 padded, 3 checked, 2 as they are" in p.explain() and "recording 1" in p.explain()
    assert {"RT315", "RT316"} <= {each.code for each in p.findings()}
    p.reset()
    assert p.report().calls == p.report().graphed.calls == 0 and not p.report().reasons


def test_where_a_graphed_callable_stands_aside(device):
    p = rote.padded(lambda x: x * 2, axes=AXES, enabled=False)
    for n in SIZES:
        x = rows(n, device)
        same(p(x), x * 2)
    assert p.report().calls == p.report().graphed.calls == 0
    inner = rote.padded(lambda x: x * 2, axes=AXES)
    outer = rote.graph(lambda x: inner(x) + 1)
    for _ in range(5):
        x = rows(3, device)
        same(outer(x), x * 2 + 1)
    assert outer.report().replayed == 3 and inner.report().calls == 0


def test_instances_have_checks_of_their_own(device):
    class Policy:
        def __init__(self, meets):
            self.meets = meets

        @rote.padded(axes=AXES)
        def act(self, x, y=None):
            return x - x.mean(0) if self.meets else x * 2

    one, two = Policy(False), Policy(True)
    for n in SIZES:
        x = rows(n, device)
        same(one.act(x), x * 2)
        same(two.act(x, None), x - x.mean(0))
    assert one.act.report().padded >= 4 and two.act.report().padded == 0
    bound = rote.padded(rote.graph(one.act.__wrapped__), axes=AXES)
    for _ in range(4):
        x = rows(3, device)
        same(bound(x), x * 2)
    assert bound.report().padded == 2


def test_copies_are_padded_in_the_same_way(device):
    p = rote.padded(torch.nn.ReLU(), axes={"input": {0: [4]}})
    copied = copy.deepcopy(p)
    for _ in range(4):
        x = rows(3, device)
        same(copied(x), x.relu())
    assert copied.report().padded == 2 and p.report().calls == 0


def test_threads_share_the_sizes_that_are_learnt(device):
    p = rote.padded(lambda x: x * 2, axes={"x": {0: "learn"}})

    def work(seed):
        for n in range(1, 30):
            x = torch.full((1 + (n * seed) % 9, 3), float(n), device=device)
            same(p(x), x * 2)

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work, seed) for seed in (1, 2, 4)]:
            done.result()
    report = p.report()
    assert report.calls == 3 * 29 == report.padded + report.checked + report.exact


def test_what_a_check_stores_in_an_argument_is_the_callers(device, reason):
    """The padded run of a check has containers of its own."""

    def fn(x, into):
        into["rows"] = x * 2
        return x + 1

    p = rote.padded(fn, axes={"x": {0: [4]}})
    for _ in range(6):
        x, given, expected = rows(3, device), {}, {}
        same(p(x, given), fn(x, expected))
        same(given, expected)
    assert p.report().padded == 0 and "keeps something outside" in reason(p, "RT318").message
    seen = []

    def branches(x, into):
        if x.shape[0] == 4:
            into["rows"] = x * 2
        return x + 1

    p = rote.padded(branches, axes={"x": {0: [4]}})
    for _ in range(6):
        given = {}
        p(rows(3, device), given)
        seen.append(given)
    assert seen == [{}] * 6 and p.report().padded == 0
