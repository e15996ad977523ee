"""The four classes of tensor arguments: which are copied, which are used where they lie."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

import rote
from rote import NotReplayedError
from rote.testing import assert_same, count_recordings

WARM = rote.Options().warmup + 1
SIZE = 1 << 12


def placements(g):
    """Class and placement of the arguments of the newest recording."""
    newest = g.report().recordings[0]
    return [(given.kind, given.placement) for given in newest.inputs]


def append(cache, x, position):
    """One decoding step: writes a row of the cache and reads all of it."""
    cache.index_copy_(0, position, x.unsqueeze(0))
    return cache.sum(0) * 2


def decode(fn, cache, device, steps, start=0):
    out = []
    for n in range(start, start + steps):
        x = torch.full((4,), float(n + 1), device=device)
        position = torch.tensor([n % cache.shape[0]], device=device)
        out.append(fn(cache, x, position).clone())
    return torch.stack(out)


def check(g, fn, cache, device, steps, start=0):
    """Decode with the graphed and the plain callable; the values and the caches agree."""
    other = cache.clone()
    expected = decode(fn, other, device, steps, start)
    assert torch.equal(decode(g, cache, device, steps, start), expected)
    assert torch.equal(cache, other)


# ---------------------------------------------------------------------- mutated, persistent


def test_a_persistent_cache_is_written_in_place(device, where):
    g = rote.graph(append)
    cache = torch.zeros(SIZE, 4, device=device)
    check(g, append, cache, device, 12)
    assert g.report().replayed == 12 - WARM
    (recording,) = g.report().recordings
    first, second, third = recording.inputs
    assert (first.name, first.kind, first.placement) == ("args[0]", "another tensor", "in place")
    assert first.mutated == where(append, "index_copy_")
    assert [(given.kind, given.placement, given.mutated) for given in (second, third)] == [
        ("not mutated", "copied", "")
    ] * 2
    line = f"  args[0]: another tensor, in place, mutated at {where(append, 'index_copy_')}"
    assert line in g.explain().splitlines()
    assert recording.bytes_held < cache.nbytes or device.type == "cuda"  # there a pool is counted in full


def test_the_cache_is_not_copied(device):
    """Its values from before the call must not matter to anybody but the call itself."""
    g = rote.graph(append)
    cache = torch.zeros(8, 4, device=device)
    check(g, append, cache, device, 4)
    cache.fill_(3.0)
    check(g, append, cache, device, 4)
    assert g.report().replayed == 8 - WARM and count_recordings(g) == 1


def test_a_view_of_the_cache_sees_what_was_written(device):
    g = rote.graph(append)
    cache = torch.zeros(8, 4, device=device)
    view = cache[3:]
    check(g, append, cache, device, 8)
    assert view[:, 0].tolist() == [4.0, 5.0, 6.0, 7.0, 8.0]


def test_the_version_counter_moves(device):
    g = rote.graph(append)
    cache = torch.zeros(8, 4, device=device)
    for n in range(6):
        before = cache._version
        decode(g, cache, device, 1, n)
        assert cache._version > before
    weight = torch.ones(8, 4, device=device, requires_grad=True)
    product = weight * cache  # saves the cache
    with torch.no_grad():
        decode(g, cache, device, 1)
        decode(g, cache, device, 1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_a_reallocated_cache(device, reason):
    g = rote.graph(append)
    first = torch.zeros(8, 4, device=device)
    check(g, append, first, device, 6)
    second = torch.ones(8, 4, device=device)
    check(g, append, second, device, 2, start=6)
    check(g, append, first, device, 2)
    found = reason(g, "RT331")
    assert found.count == 1
    assert found.message == f"args[0] was at {first.data_ptr():#x} and is at {second.data_ptr():#x}"
    assert found.remedy.startswith("Pass the same tensor at every call")
    assert g.report().replayed == 10 - WARM - 1  # one call was recorded again
    assert count_recordings(g) == 2


def test_a_grown_cache(device):
    g = rote.graph(append)
    cache = torch.zeros(4, 4, device=device)
    for _ in range(3):
        check(g, append, cache, device, WARM + 3)
        cache = torch.cat([cache, torch.zeros_like(cache)])
    assert g.report().replayed == 11
    assert all(recording.inputs[0].placement == "in place" for recording in g.report().recordings)


def test_a_cache_resized_in_place(device):
    g = rote.graph(append)
    cache = torch.zeros(4, 4, device=device)
    check(g, append, cache, device, WARM + 2)
    cache.resize_(1 << 10, 4).zero_()
    check(g, append, cache, device, WARM + 2)
    cache.set_(torch.ones(4, 4, device=device))
    check(g, append, cache, device, WARM + 2)


def test_two_caches_in_turn(device):
    g = rote.graph(append)
    caches = [torch.zeros(SIZE, 4, device=device) for _ in range(2)]
    for n in range(20):
        check(g, append, caches[n % 2], device, 1, n)
    report = g.report()
    # Neither was the same at the first two calls; both have proved to come back, one after the other.
    assert [recording.inputs[0].placement for recording in report.recordings].count("in place") == 2
    before = report.replayed
    for n in range(6):
        check(g, append, caches[n % 2], device, 1, n)
    assert g.report().replayed == before + 6


def test_a_new_cache_every_few_calls_costs_a_bounded_number_of_recordings(device):
    g = rote.graph(append)
    kept = []
    for _ in range(12):
        kept.append(torch.zeros(8, 4, device=device))
        check(g, append, kept[-1], device, 6)
    before = g.report().recorded
    assert before <= 1 + 1 + 4  # the first guess, the copying one, and PLACES
    for _ in range(4):
        kept.append(torch.zeros(8, 4, device=device))
        check(g, append, kept[-1], device, 6)
    assert g.report().recorded == before


def test_a_fresh_tensor_at_every_call_is_copied_back(device):
    def fn(x):
        x.mul_(2)
        return x + 1

    g, kept = rote.graph(fn), []
    for n in range(8):
        x = torch.full((3,), float(n), device=device)
        kept.append(x)
        assert g(x).tolist() == [2.0 * n + 1] * 3 and x.tolist() == [2.0 * n] * 3
    assert placements(g) == [("another tensor", "copied")]
    assert g.report().replayed == 8 - WARM and count_recordings(g) == 1


def test_the_caller_keeps_the_only_reference(device):
    g = rote.graph(append)
    cache = torch.zeros(SIZE, 4, device=device)
    check(g, append, cache, device, 6)
    memory = weakref.ref(cache.untyped_storage())
    assert placements(g)[0] == ("another tensor", "in place")
    del cache
    gc.collect()
    assert memory() is None
    check(g, append, torch.zeros(SIZE, 4, device=device), device, 6)


def test_islands_do_not_keep_it_alive_either(device):
    def fn(cache, x):
        cache.add_(x)
        rows = cache[cache > 2]  # a mask: an island that reads the cache
        return rows.sum() + float(cache[0])

    g = rote.graph(fn)
    cache = torch.zeros(64, device=device)
    for n in range(5):
        cache.zero_()
        assert g(cache, torch.full((64,), 3.0, device=device)).item() == 64 * 3.0 + 3.0, n
    assert g.report().replayed > 0
    memory = weakref.ref(cache.untyped_storage())
    del cache
    gc.collect()
    assert memory() is None


def test_memory_that_comes_back_at_the_address(device):
    """Whoever lies there is read: the recording knows an address, not a tensor."""
    g = rote.graph(append)
    for n in range(6):
        cache = torch.full((SIZE, 4), float(n), device=device)
        check(g, append, cache, device, 4)
        del cache


def test_an_argument_never_seen_twice_keeps_no_reference(device):
    g = rote.graph(append)
    cache = torch.zeros(8, 4, device=device)
    decode(g, cache, device, 1)
    memory = weakref.ref(cache)
    del cache
    gc.collect()
    assert memory() is None


# ---------------------------------------------------------------------- groups


def both(x, y):
    x.add_(1)
    y.mul_(2)
    return x.sum() + y.sum()


def run_both(g, x, y, times):
    for _ in range(times):
        expected_x, expected_y = x.clone(), y.clone()
        base = torch.empty(0)
        if x.untyped_storage()._cdata == y.untyped_storage()._cdata:
            storage = x.untyped_storage().clone()
            base = torch.empty(0, dtype=x.dtype, device=x.device)
            expected_x = base.set_(storage, x.storage_offset(), x.shape, x.stride())
            expected_y = torch.empty(0, dtype=y.dtype, device=y.device).set_(
                storage, y.storage_offset(), y.shape, y.stride()
            )
        expected = both(expected_x, expected_y)
        assert torch.equal(g(x, y), expected)
        assert torch.equal(x, expected_x) and torch.equal(y, expected_y)


def test_overlapping_arguments_are_in_place_together(device):
    g = rote.graph(both)
    base = torch.arange(8.0, device=device)
    run_both(g, base[:5], base[2:], 6)
    assert placements(g) == [("another tensor", "in place")] * 2
    moved = torch.arange(8.0, device=device)
    run_both(g, moved[:5], moved[2:], 3)
    run_both(g, base[:5], base[2:], 3)
    assert g.report().replayed == 12 - WARM - 1


def test_another_part_of_the_same_storage(device):
    g = rote.graph(both)
    base = torch.arange(32.0, device=device)
    run_both(g, base[:4], base[8:12], 6)
    run_both(g, base[16:20], base[24:28], 2)
    run_both(g, base[:4], base[8:12], 2)
    assert g.report().replayed == 10 - WARM - 1
    for start in range(0, 12, 2):  # never twice the same
        run_both(g, base[start : start + 4], base[start + 16 : start + 20], 1)
    assert g.report().replayed == 16 - WARM - 1


def test_one_of_two_moves(device):
    g = rote.graph(both)
    x, y = torch.ones(4, device=device), torch.ones(4, device=device)
    run_both(g, x, y, 6)
    z = torch.ones(4, device=device)
    run_both(g, x, z, 1)
    assert placements(g) == [("another tensor", "in place"), ("another tensor", "copied")]
    run_both(g, z, y, 3)
    run_both(g, x, y, 3)


def test_several_dtypes_in_one_memory(device, reason):
    def fn(x, y):
        x.add_(1)
        return y * 2

    g = rote.graph(fn)
    x = torch.zeros(4, device=device)
    y = x.view(torch.int32)
    for n in range(5):
        expected = torch.full((4,), n + 1.0, device=device).view(torch.int32) * 2
        assert torch.equal(g(x, y), expected)
    assert reason(g, "RT503").message == "arguments of several dtypes share memory"


def test_whether_arguments_are_one_object_decides(device):
    """As in attention, which takes another way where ``query is key``."""
    g = rote.graph(lambda a, b: a * 2 if a is b else a * 3)
    x, empty = torch.ones(3, device=device), torch.ones(0, device=device)
    for _ in range(3):
        assert [g(x, x)[0] for _ in range(4)] == [2] * 4 and g(empty, empty).shape == (0,)
        assert [g(x, x[:])[0] for _ in range(4)] == [3] * 4
    assert g.report().replayed > 12


def test_attention_to_itself(device):
    attend = torch.nn.MultiheadAttention(16, 2, batch_first=True, device=device).eval()
    for plain in (attend.requires_grad_(True), attend.requires_grad_(False)):
        g = rote.graph(plain)
        for _ in range(8):
            x = torch.randn(2, 4, 16, device=device)
            with torch.no_grad():
                assert torch.equal(g(x, x, x)[0], plain(x, x, x)[0])
        assert g.report().replayed >= 5


def test_the_gradient_of_what_is_passed_twice(device):
    def fn(a, b, c):
        return (a * b + c.exp()).sum()

    g = rote.graph(fn)
    for _ in range(8):
        given = torch.randn(4, device=device)
        ours, theirs = (given.clone().requires_grad_() for _ in range(2))
        g(ours, ours, ours).backward()
        fn(theirs, theirs, theirs).backward()
        assert torch.equal(ours.grad, theirs.grad)
    assert g.report().replayed == 6


def test_views_that_require_grad_are_not_recorded_together(device, reason):
    g = rote.graph(lambda a, b: (a * b).sum())
    for _ in range(5):
        x = torch.ones(4, device=device, requires_grad=True)
        g(x[:], x[1:2]).backward()
        assert x.grad.tolist() == [1, 5, 1, 1]
    assert reason(g, "RT503").message == "arguments that require grad share memory"


LAZY = {
    "conjugate": lambda z: z.conj(),
    "negative": lambda z: z.conj().imag,
    "both": lambda z: torch._neg_view(z.conj()),
}


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("kind", LAZY)
@pytest.mark.parametrize(
    "fn",
    [
        lambda z: (z * 2, z.is_conj(), z.is_neg()),
        lambda z: z.resolve_conj() + 1 if z.is_conj() else z.abs(),
        lambda z: z.conj() if z.is_conj() and not z.is_neg() else z * 1,
        lambda z: (z.mul_(3)[1:].resolve_conj().resolve_neg() * 1, z.sum()),
    ],
    ids=["flags", "way", "view", "written"],
)
def test_lazy_arguments_are_lazy_in_a_recording(device, fn, kind, twice):
    def call(z):
        given = LAZY[kind](z)
        return play(given, given) if twice else fn(given)

    def play(a, b):
        return fn(a), b * 1

    graphed = rote.graph(play if twice else fn)
    for _ in range(6):
        ours = torch.randn(4, dtype=torch.complex64, device=device)
        theirs, given = ours.clone(), LAZY[kind](ours)
        assert_same(graphed(given, given) if twice else graphed(given), call(theirs))
        assert torch.equal(ours, theirs)
    assert graphed.report().replayed >= 3


def test_several_lazy_arguments(device):
    def fn(a, b, c):
        return a * 2 + 1, b * 3, c + 1, a.is_conj(), b.is_neg()

    g = rote.graph(fn)
    for _ in range(6):
        z, w = (torch.randn(4, dtype=torch.complex64, device=device) for _ in range(2))
        given = z.conj(), w.conj().imag, torch.ones(2, device=device)
        assert_same(g(*given), fn(*given))
    assert g.report().replayed == 6 - WARM


def test_an_argument_and_its_conjugate_are_not_recorded_together(device, reason):
    g = rote.graph(lambda a, b: a * b)
    for _ in range(5):
        z = torch.randn(4, dtype=torch.complex64, device=device)
        assert torch.equal(g(z, z.conj()), z * z.conj())
    assert reason(g, "RT503").message == "an argument and its conjugate or negative share memory"


def test_gaps_between_elements_are_not_written(device):
    """The real parts lie between the imaginary ones."""

    def fn(a, b):
        a.mul_(2)
        return b + 1

    g = rote.graph(fn)
    for _ in range(6):
        z = torch.randn(4, dtype=torch.complex64, device=device)
        expected, given = torch.complex(z.real, z.imag * 2), z.imag
        assert torch.equal(g(given, given), expected.imag + 1) and torch.equal(z, expected)


def test_an_expanded_argument_raises_as_in_eager(device):
    base = torch.zeros(1, 3, device=device)
    g = rote.graph(lambda x: x.add_(1))
    for _ in range(5):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            g(base.expand(2, 3))
    assert base.eq(0).all()


def test_a_leaf_that_requires_grad_raises_as_in_eager(device):
    x = torch.zeros(3, device=device)
    g = rote.graph(lambda x: x.add_(1))
    for _ in range(5):
        g(x)
    x.requires_grad_()
    for _ in range(4):
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            g(x)
    with torch.no_grad():
        for _ in range(5):
            g(x)
    assert x.tolist() == [10.0] * 3


def test_inference_tensors(device):
    """Outside inference mode the write raises, after it has happened; inside it is like any other."""

    def fn(x):
        return x.add_(1)

    with torch.inference_mode():
        x, plain = torch.zeros(3, device=device), torch.zeros(3, device=device)
    g = rote.graph(fn)
    for inside in (True, False, True):
        with torch.inference_mode(inside):
            for _ in range(5):
                for step, tensor in ((g, x), (fn, plain)):
                    if inside:
                        step(tensor)
                        continue
                    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
                        step(tensor)
    assert torch.equal(x, plain)
    assert g.report().replayed == 5 - WARM + 5


def test_a_normal_tensor_in_inference_mode(device):
    g, x = rote.graph(lambda x: x.add_(1) * 2), torch.zeros(3, device=device)
    with torch.inference_mode():
        for n in range(6):
            assert g(x).tolist() == [2.0 * (n + 1)] * 3
    assert not x.is_inference() and x.tolist() == [6.0] * 3


def test_conjugates_are_copied(device):
    g, x = rote.graph(lambda x: x.mul_(2)), torch.tensor([1 + 2j], device=device)
    for n in range(6):
        g(x.conj())
        assert x.tolist() == [(1 + 2j) * 2.0 ** (n + 1)]
    assert placements(g) == [("another tensor", "copied")]


# ---------------------------------------------------------------------- paths, errors


def test_a_path_seen_later_that_writes(device):
    def fn(x, cache):
        if x.sum() > 0:
            cache.add_(x)
        return cache * 2

    g = rote.graph(fn)
    cache, other = torch.zeros(3, device=device), torch.zeros(3, device=device)
    for n, value in enumerate([-1.0, -1.0, -1.0, 2.0, 2.0, 2.0, -1.0, 2.0, -1.0, 2.0, 2.0, 2.0]):
        x = torch.full((3,), value, device=device)
        assert torch.equal(g(x, cache), fn(x, other)), n
        assert torch.equal(cache, other)
    for value in (2.0, -1.0, 2.0):
        x, fresh, plain = (torch.full((3,), number, device=device) for number in (value, 5.0, 5.0))
        assert torch.equal(g(x, fresh), fn(x, plain)) and torch.equal(fresh, plain)


@torch.no_grad()
def test_a_path_that_is_new_while_the_cache_is_in_place(device):
    def fn(x, cache):
        cache.add_(x)
        if cache.sum() > 20:
            cache.zero_()
        return cache + 1

    g = rote.graph(fn)
    cache, other = torch.zeros(3, device=device), torch.zeros(3, device=device)
    for n in range(30):
        x = torch.ones(3, device=device)
        assert torch.equal(g(x, cache), fn(x, other)), n
        assert torch.equal(cache, other)
    assert placements(g)[1] == ("another tensor", "in place")
    assert g.report().replayed > 20


def test_an_exception_in_the_middle(device):
    class OopsError(Exception):
        pass

    def fn(x, cache):
        cache.add_(x)
        if cache[0] > 6:
            raise OopsError
        return cache * 2

    g, cache = rote.graph(fn), torch.zeros(3, device=device)
    x = torch.ones(3, device=device)
    for n in range(6):
        assert g(x, cache).tolist() == [2.0 * (n + 1)] * 3
    for n in range(3):
        with pytest.raises(OopsError):
            g(x, cache)
        assert cache.tolist() == [7.0 + n] * 3
    cache.zero_()
    assert g(x, cache).tolist() == [2.0] * 3


@torch.no_grad()
def test_a_list_read_from_a_cache_in_place(device):
    def fn(cache, x):
        cache.add_(x)
        first = cache.tolist()[0]
        return x * first

    g = rote.graph(fn)
    cache = torch.zeros(3, device=device)
    for n in range(12):
        if n % 3 == 0:
            cache.zero_()
        assert g(cache, torch.ones(3, device=device)).tolist() == [n % 3 + 1.0] * 3
    assert placements(g)[0] == ("another tensor", "in place")
    assert g.report().replayed >= 5
    memory = weakref.ref(cache.untyped_storage())
    del cache
    gc.collect()
    assert memory() is None


# ---------------------------------------------------------------------- autograd


def test_nothing_is_in_place_where_a_result_requires_grad(device):
    """The graph of the result needs the argument as it was, until its backward."""
    weight = nn.Parameter(torch.ones(3, device=device))

    def fn(cache, x):
        cache.add_(x)
        return (weight * cache.clone()).sum()

    g = rote.graph(fn)
    cache, plain = torch.zeros(3, device=device), torch.zeros(3, device=device)
    for n in range(6):
        x = torch.ones(3, device=device)
        weight.grad = None
        loss = g(cache, x)
        cache.mul_(2.0)
        loss.backward()
        found, weight.grad = weight.grad, None
        loss = fn(plain, x)
        plain.mul_(2.0)
        loss.backward()
        assert torch.equal(found, weight.grad), n
    assert placements(g)[0] == ("another tensor", "copied")


def test_a_way_seen_later_that_requires_grad(device):
    weight = nn.Parameter(torch.ones(3, device=device))

    def fn(x, cache):
        cache.add_(1)
        if x.sum() > 0:
            return (weight * cache).sum()
        return cache.sum()

    g, cache = rote.graph(fn), torch.zeros(3, device=device)
    for value in (-1.0, -1.0, -1.0, 1.0, 1.0, 1.0, -1.0, 1.0, 1.0):
        x = torch.full((3,), value, device=device)
        weight.grad = None
        loss = g(x, cache)
        assert loss.item() == cache.sum().item()
        if value > 0:
            loss.backward()
            assert torch.equal(weight.grad, cache)
    assert placements(g)[1] == ("another tensor", "copied")


# ---------------------------------------------------------------------- parameters and buffers


def test_parameters_and_buffers_as_arguments(device):
    weight = nn.Parameter(torch.ones(3, device=device), requires_grad=False)
    buffer = nn.Buffer(torch.ones(3, device=device))
    g = rote.graph(lambda x, w, b: x * w + b)
    for n in range(6):
        weight.fill_(float(n))
        buffer.fill_(2.0 * n)
        assert g(torch.ones(3, device=device), weight, buffer).tolist() == [3.0 * n] * 3
    assert placements(g) == [
        ("not mutated", "copied"),
        ("parameter or buffer", "in place"),
        ("parameter or buffer", "in place"),
    ]
    assert g.report().replayed == 6 - WARM


def test_a_mutated_parameter_is_reported_with_its_line(device, where):
    weight = nn.Parameter(torch.ones(3, device=device), requires_grad=False)

    def fn(w):
        w.add_(1)
        return w * 2

    g = rote.graph(fn)
    for n in range(6):
        assert g(weight).tolist() == [2.0 * (n + 2)] * 3
    (given,) = g.report().recordings[0].inputs
    assert (given.kind, given.placement, given.mutated) == (
        "parameter or buffer", "in place", where(fn, "w.add_(1)"),
    )  # fmt: skip


class Statistics(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3, device=device))


def test_a_buffer_of_another_module(device):
    module, other = Statistics(device), Statistics(device)
    g = rote.graph(lambda x, mean: mean.lerp_(x, 0.5) * 2)
    for n in range(8):
        x = torch.full((3,), float(n), device=device)
        assert torch.equal(g(x, module.mean), other.mean.lerp_(x, 0.5) * 2)
        assert torch.equal(module.mean, other.mean)
    assert placements(g)[1][1] == "in place"
    module.mean, other.mean = torch.ones(3, device=device), torch.ones(3, device=device)
    for n in range(4):
        x = torch.full((3,), float(n), device=device)
        assert torch.equal(g(x, module.mean), other.mean.lerp_(x, 0.5) * 2)
        assert torch.equal(module.mean, other.mean)


def test_an_argument_that_is_state_and_written(device):
    """The two are one memory: what is written through one is read through the other, at every call."""
    holder = {"buffer": torch.zeros(3, device=device)}

    def fn(x):
        x.add_(1)
        return holder["buffer"] * 2

    g = rote.graph(fn)
    for n in range(6):
        assert g(holder["buffer"]).tolist() == [2.0 * (n + 1)] * 3, n
    assert placements(g) == [("parameter or buffer", "in place")]
    assert g.report().replayed == 6 - WARM
    for n in range(5):  # apart: another situation, other recordings
        x = torch.zeros(3, device=device)
        assert g(x).tolist() == [12.0] * 3 and x.tolist() == [1.0] * 3, n
    for n in range(5):
        assert g(holder["buffer"]).tolist() == [2.0 * (n + 7)] * 3, n


def test_state_written_and_read_through_an_argument(device, reason):
    buffer = torch.zeros(4, device=device)

    def fn(x):
        buffer.add_(1)
        return x * 2

    g = rote.graph(fn)
    for _ in range(5):
        assert g(torch.ones(4, device=device)).tolist() == [2.0] * 4
    for n in range(5):
        assert g(buffer).tolist() == [2.0 * (n + 6)] * 4, n
    found = reason(g, "RT332")
    assert found.count == 1 and found.message == "args[0] shares memory with a tensor made outside the call"
    assert g.report().replayed == 10 - 2 * WARM
    assert g(torch.ones(4, device=device)).tolist() == [2.0] * 4 and buffer.tolist() == [11.0] * 4


def test_a_part_of_state_as_argument(device):
    buffer, plain = torch.zeros(8, device=device), torch.zeros(8, device=device)

    def make(state):
        def fn(x):
            x.add_(1)
            state.mul_(2)
            return state.sum()

        return fn

    g, f = rote.graph(make(buffer)), make(plain)
    for _ in range(3):
        for part in (slice(0, 4), slice(2, 6), slice(4, 8)):
            for _ in range(3):
                assert torch.equal(g(buffer[part]), f(plain[part])) and torch.equal(buffer, plain)


def test_state_that_is_replaced_while_its_memory_is_passed(device):
    holder = {"buffer": torch.zeros(3, device=device)}

    def fn(x):
        x.add_(1)
        return holder["buffer"] * 2

    g, old = rote.graph(fn), holder["buffer"]
    for _ in range(4):
        g(old)
    holder["buffer"] = torch.full((3,), 50.0, device=device)
    for _ in range(4):
        assert g(old).tolist() == [100.0] * 3
    assert old.tolist() == [8.0] * 3
    holder["buffer"] = old
    old.data = torch.zeros(3, device=device)
    for n in range(4):
        assert g(old).tolist() == [2.0 * (n + 1)] * 3


def test_state_whose_data_moves_away(device):
    holder = {"buffer": torch.zeros(3, device=device)}

    def fn(x):
        x.add_(1)
        return holder["buffer"] * 2

    g = rote.graph(fn)
    alias = holder["buffer"].detach()
    for n in range(4):
        assert g(alias).tolist() == [2.0 * (n + 1)] * 3
    holder["buffer"].data = torch.full((3,), 50.0, device=device)
    for _ in range(4):
        assert g(alias).tolist() == [100.0] * 3
    assert alias.tolist() == [8.0] * 3


def test_a_new_path_that_reads_state_behind_an_argument(device):
    buffer, plain = torch.full((3,), -1.0, device=device), torch.full((3,), -1.0, device=device)

    def make(state):
        def fn(x):
            if x.sum() > 0:
                x.add_(1)
                return state * 2
            return x * 3

        return fn

    g, f = rote.graph(make(buffer)), make(plain)
    for _ in range(4):
        x = torch.full((3,), -2.0, device=device)
        assert torch.equal(g(x), f(x))
    for n in range(4):
        assert torch.equal(g(buffer), f(plain)), n
    buffer.fill_(2.0), plain.fill_(2.0)
    for n in range(5):
        assert torch.equal(g(buffer), f(plain)) and torch.equal(buffer, plain), n


def test_state_rebound_to_the_memory_of_an_argument(device):
    """No recording has read the buffer yet, so nobody watches its address; the new way reads it."""

    def make(state):
        def fn(x):
            x.mul_(2)
            if x[0] > 10:
                state.add_(1)
                return x + state
            return x * 3

        return fn

    for low in (1.0, 20.0):  # the way is new at a replay, or at the call that is recorded
        buffer, plain = torch.zeros(3, device=device), torch.zeros(3, device=device)
        g, f = rote.graph(make(buffer)), make(plain)
        for _ in range(4 if low == 1.0 else 1):
            x = torch.ones(3, device=device)
            assert torch.equal(g(x), f(torch.ones(3, device=device)))
        x, y = torch.full((3,), 20.0, device=device), torch.full((3,), 20.0, device=device)
        buffer.data, plain.data = x, y
        for n in range(5):
            assert torch.equal(g(x), f(y)) and torch.equal(x, y), (low, n)


def test_a_gradient_as_argument(device):
    """A gradient is no attribute that a walk finds; it is known all the same."""
    layer = nn.Linear(3, 3, bias=False).to(device)
    layer.weight.grad = torch.ones(3, 3, device=device)

    def fn(gradient):
        gradient.mul_(0.5)
        return layer.weight.grad * 2

    g = rote.graph(fn)
    with torch.no_grad():
        for n in range(6):
            assert torch.equal(g(layer.weight.grad), torch.full((3, 3), 0.5**n, device=device)), n


def test_memory_of_a_gradient_that_died_is_anybodys(device):
    """A fresh argument may get the storage of the last step's gradient: that is no sharing."""
    layer = nn.Linear(4, 4, bias=False).to(device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = (layer(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    g = rote.graph(step)
    for _ in range(60):
        g(*(torch.randn(4, 4, device=device) for _ in range(2)))
    assert not [found for found in g.report().reasons if found.code == "RT332"]
    assert g.report().replayed >= 60 - WARM - 2


def test_a_parameter_and_its_memory(device):
    weight = nn.Parameter(torch.ones(3, device=device), requires_grad=False)

    def fn(w, x):
        x.add_(1)
        return w * 2

    g = rote.graph(fn)
    for n in range(5):
        assert g(weight, weight.detach()).tolist() == [2.0 * (n + 2)] * 3, n
    for _ in range(4):
        assert g(weight, torch.zeros(3, device=device)).tolist() == [12.0] * 3
    alias = weight.detach()
    weight.data = torch.zeros(3, device=device)
    for n in range(4):
        assert g(weight, alias).tolist() == [0.0] * 3 and alias.tolist() == [7.0 + n] * 3


def test_shared_memory_where_autograd_looks(device):
    """Such an argument cannot be used in place; the call runs as it is."""
    base = torch.zeros(4, device=device)
    holder = [base]

    def fn(x):
        holder[0].add_(1)
        return (x * 2).detach()

    g = rote.graph(fn)
    for _ in range(4):
        g(torch.ones(4, device=device).requires_grad_())
    x = base.detach().requires_grad_()
    with torch.no_grad():
        for n in range(4):
            assert g(x).tolist() == [2.0 * (n + 5)] * 4


# ---------------------------------------------------------------------- strict mode


def test_strict_mode_guesses_nothing(device):
    g = rote.graph(append, strict=True)
    caches = [torch.zeros(8, 4, device=device) for _ in range(3)]
    for n in range(12):
        check(g, append, caches[min(n // 4, 2)], device, 1, n)
    assert g.report().replayed == 12 - WARM and count_recordings(g) == 1


def test_strict_mode_says_that_an_argument_is_state(device):
    buffer = torch.zeros(3, device=device)

    def fn(x):
        buffer.add_(1)
        return x * 2

    g = rote.graph(fn, strict=True)
    for _ in range(5):
        g(torch.ones(3, device=device))
    with pytest.raises(NotReplayedError, match=r"RT332: args\[0\] shares memory with a tensor made outside"):
        g(buffer)
    assert buffer.tolist() == [5.0] * 3


def test_few_recordings_allowed(device):
    g = rote.graph(append, max_recordings=1)
    caches = [torch.zeros(8, 4, device=device) for _ in range(3)]
    for n in range(24):
        check(g, append, caches[(n // 3) % 3], device, 1, n)
    assert count_recordings(g) == 1 and g.report().replayed >= 20
