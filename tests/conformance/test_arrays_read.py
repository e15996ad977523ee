"""Numbers of tensors that numpy reads in ways that are not followed: they are compared, as host reads are."""

from __future__ import annotations

import importlib
from itertools import cycle

import numpy as np
import pytest
import torch

import rote

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # PyTorch's
CALLS = 30
CHANGED = 14
"""The call before which something is changed."""


def lent(tensor):
    return tensor.cpu().numpy()


def copied(tensor):
    return np.array(tensor.cpu())


def asked(tensor):
    return np.asarray(tensor.detach().cpu())


def converted(tensor):
    return np.asarray(tensor.cpu(), dtype=np.float64)


WAYS, COPIES = [lent, copied, asked, converted], [copied, converted]


class State:
    """What a callable reads and keeps."""

    def __init__(self, device) -> None:
        self.table = torch.linspace(0.9, 0.1, 12, device=device)
        self.kept = None


def interpolated(state, array, x):
    """As a scheduler of diffusers sets its steps."""
    found = np.interp(np.linspace(0, 11, 5), np.arange(len(array)), array)
    scales = torch.from_numpy(np.concatenate([found, [0.0]]).astype(np.float32)).to(x.device)
    for scale in scales:
        x = x * scale + 1
    return x


def searched(state, array, x):
    return x * int(np.searchsorted(np.sort(array), 0.5))


def branched(state, array, x):
    return x * 2 if np.median(array) > 0.3 else x + 1


def kept(state, array, x):
    state.kept = torch.from_numpy(np.fft.fft(array).real.copy()).to(x.device)
    return x + state.kept[0].float()


def inverted(state, array, x):
    square = np.diag(array.astype(np.float64) + 1)
    return x @ torch.from_numpy(np.linalg.inv(square)[:4, :4].astype(np.float32)).to(x.device)


def handed_out(state, array, x):
    return x * float(np.median(array)), array


USES = [interpolated, searched, branched, kept, inverted, handed_out]


def replaced(state):
    state.table = state.table.flip(0) * 1.5


def written(state):
    state.table.mul_(0.25)


def same(left, right):
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.tobytes() == right.tobytes()
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right or (left != left and right != right)


def scaled_table(state, x):
    return state.table * 1.0


def play(
    device, use, way, change=None, *, source=scaled_table, restores=False, calls=CALLS, values=(0.0, 1.0, 2.0)
):
    """How many calls replay; each of them is compared with a plain one.

    Args:
        restores: Before each call the table holds what it did at first.
        values: What arguments hold in turns.
    """

    def sides():
        state = State(device)
        return state, lambda x: use(state, way(source(state, x)), x)

    (plain, function), (other, graphed) = sides(), sides()
    g = rote.graph(graphed, keep=True)
    for number in range(calls):
        if number == CHANGED and change is not None:
            change(plain)
            change(other)
        if restores:
            plain.table.copy_(State(device).table)
            other.table.copy_(plain.table)
        x = torch.full((2, 4), values[number % len(values)], device=device)
        given = x.clone()
        expected, found = function(x), g(given)
        assert same(expected, found), number
        assert torch.equal(x, given) and torch.equal(plain.table, other.table), number
        assert same(plain.kept, other.kept), number
    report = g.report()
    g.reset()
    return report


@pytest.mark.parametrize("change", [None, replaced, written], ids=["constant", "replaced", "written"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("use", USES)
def test_it_is_replayed(device, use, way, change):
    report = play(device, use, way, change)
    if use is handed_out and way in COPIES:
        return  # an array of the call's own is a result, which no replay makes
    assert report.replayed >= (CALLS - 8 if change is None else 4), report.reasons


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("use", USES)
def test_numbers_of_an_argument(device, use, way):
    """Three of them in turns are three ways."""
    report = play(device, use, way, source=lambda state, x: state.table * x[0, 0])
    if use is handed_out and way in COPIES:
        return
    assert report.replayed >= CALLS // 3, report.reasons


def explained(state, array, x):
    """How much of the variance of returns values explain, as PPO logs it."""
    variance = np.var(array)
    return np.nan if variance == 0 else 1 - np.var(array - state.table.cpu().numpy()) / variance


def led(state, array, x):
    return x * 2 if array.max() > 1.4 else x + 1


def led_and_back(state, array, x):
    if np.isnan(array).any():
        raise ValueError
    scaled = array / (1 + np.abs(array).mean())
    return torch.from_numpy(scaled.astype(np.float32)).to(x.device) * x[0, 0]


def clipped(state, array, x):
    found = np.clip(array, 0, 1)
    return found if np.isfinite(found).all() else None


def listed(state, array, x):
    return "abcdefghijkl"[-12:], ["even", "odd"][int(array.sum() * 10) % 2], x * 2


def led_to_views(state, array, x):
    """What is handed out and kept is the tensor's memory."""
    if array[2:5].sum() > 2.0:
        state.kept = torch.from_numpy(array[:3])
        return array[1:]
    return array


def led_twice(state, array, x):
    other = (x * 3).cpu().numpy()
    return x + (1 if other.max() > array.max() else 0) + (2 if (other + 1).sum() > 30 else 0)


FOLLOWED = [explained, led, led_and_back, clipped, listed, led_twice]
OTHERS = tuple([1.0, 1.5, 0.0, 2.0, 1.25, 1.75, 0.5, *[1 + number / 37 for number in range(60)]])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("use", [*FOLLOWED, led_to_views, *USES])
def test_numbers_that_are_others_in_each_call(device, use, way):
    """What they lead to is the way, where numpy's functions are known, and not they themselves."""

    def source(state, x):
        return state.table * x[0, 0]

    report = play(device, use, way, source=source, calls=len(OTHERS), values=OTHERS)
    if use in FOLLOWED and way is lent:
        assert report.replayed >= 25, report.reasons


def set_one(array, x, table):
    array[0] = 3.0


def sort(array, x, table):
    array.sort()


def fill(array, x, table):
    array.fill(2.0)


def add_in_place(array, x, table):
    array += 1


def by_out(array, x, table):
    np.multiply(array, 2.0, out=array)


def copy_to(array, x, table):
    np.copyto(array, 0.5)


def put(array, x, table):
    np.put(array, [1], 7.0)


def into_a_view(array, x, table):
    array[2:5][1] = 4.0


def into_another_shape(array, x, table):
    array.reshape(3, 4)[1, 2] = 6.0


def by_flat(array, x, table):
    array.flat[3] = 8.0


def by_memory(array, x, table):
    memoryview(array)[4] = 9.0


def add_at(array, x, table):
    np.add.at(array, [0, 0], 1.0)


def for_a_while(array, x, table):
    """Who looks at the memory afterwards finds what was there before."""
    before = array[0].item()
    array[0] = 11.0
    found = x * 1.0 + table[0]
    array[0] = before
    return found


def for_a_while_unseen(array, x, table):
    memory = memoryview(array)
    before, memory[1] = memory[1], 2.0
    found = x * 1.0 + table[1]
    memory[1] = before
    return found


WRITES = [
    set_one, sort, fill, add_in_place, by_out, copy_to, put, into_a_view, into_another_shape, by_flat,
    by_memory, add_at, for_a_while, for_a_while_unseen,
]  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("write", "read"), [*zip(WRITES, cycle([True, False]))])
@pytest.mark.parametrize("device", ["cpu"])
def test_arrays_that_are_written(device, write, read):
    """It is the tensor's memory: what reads that later, in the call or in the next one, finds it changed."""

    def use(state, array, x):
        factor = (2.0 if np.median(array) > 0.3 else 1.0) if read else 1.0
        found = write(array, x, state.table)
        return x * factor + state.table[:4] if found is None else found * factor

    # no call replays, since numpy writes memory of a tensor's
    play(device, use, lent, source=lambda state, x: state.table, restores=True, calls=CALLS // 2)
    play(device, use, lent, source=lambda state, x: state.table * x[0, 0], calls=CALLS, values=OTHERS)


@pytest.mark.parametrize("device", ["cpu"])
def test_a_tensor_that_is_written_while_numpy_looks_at_it(device):
    def use(state, array, x):
        first = float(np.median(array))
        state.table.mul_(-1.0)
        return x * first + float(np.median(array))

    play(device, use, lent, source=lambda state, x: state.table, restores=True)


@pytest.mark.parametrize("device", ["cpu"])
def test_a_tensor_that_is_written_for_a_while(device):
    """What numpy reads between depends on what was written, which is gone when the call ends."""
    table = State(device).table

    def function(x):
        array = table.numpy()
        memory, middle, before = memoryview(array), float(np.median(array)), float(array[0])
        table.narrow(0, 0, 1).copy_(x[0, :1])
        found = x + float(np.sort(array)[-1]) * middle
        memory[0] = before
        return found

    g = rote.graph(function, keep=True)
    for number in range(CALLS):
        x = torch.full((2, 4), 2.0 if number < CHANGED else 5.0, device=device)
        assert torch.equal(g(x), function(x)), number
    g.reset()


def test_large_ones_are_not_compared(device):
    large = torch.arange(1 << 16, dtype=torch.float32, device=device)
    g = rote.graph(lambda x: x * float(np.median(large.cpu().numpy())), keep=True)
    x = torch.ones(2, device=device)
    for _ in range(8):
        assert torch.equal(g(x), x * float(np.median(large.cpu().numpy())))
    report = g.report()
    assert not report.replayed and any(each.code == "RT103" for each in report.reasons)
    g.reset()


LOOKS = (
    "a.max()", "np.percentile(a, 50)", "a[1:3].sum()", "np.sort(a)[-2]", "float(a[0])", "a.mean().item()",
    "np.unique(a.round(1)).size", "np.array(a).sum()", "memoryview(a)[0]", "list(a)[1]", "a.tolist()[2]",
    "sum(a)", "max(a)", "int(np.argmax(a[::-1]))", "bytes(a)[3]", "np.asarray(a, dtype=np.float64).sum()",
    "np.frombuffer(a, np.float32)[1]", "np.broadcast_to(a, (2, 12)).sum()",
    "torch.from_numpy(a).sum().item()", "a.view(np.int32)[0]", "next(iter(a))", "a.flat[2]", "np.dot(a, a)",
    "len(str(a))", "pickle.dumps(a)[-9]", "copy.copy(a)[0]", "zlib.crc32(a.tobytes())",
    "array.array('f', a)[1]", "np.ndarray.max(a)", "[*map(float, a)][3]",
    "functools.reduce(operator.add, a)", "a.__getitem__(0)", "operator.itemgetter(0)(a)",
    "struct.unpack('f', a[:1])[0]", "struct.unpack_from('f', a, 8)[0]", "np.linalg.norm(a)",
    "bytearray(a)[5]", "np.add.reduce(a)", "np.add.accumulate(a)[-1]", "np.einsum('i->', a)",
    "np.ma.masked_array(a).sum()", "np.vectorize(float)(a)[2]", "np.frompyfunc(float, 1, 1)(a)[1]",
    "np.concatenate([[0.0], a])[1]", "np.where(a > 0.5)[0].size", "np.nonzero(a > 1)[0].sum()",
    "a.nonzero()[0].size", "np.stack([a, a]).sum()", "sorted(a)[0]", "dict(enumerate(a))[1]",
    "np.array([a, a])[1, 2]", "np.histogram(a, 3)[0][1]", "a.dot(a)",
    "np.savez(b := io.BytesIO(), a) or b.getvalue()[-70]", "a.astype(int).sum()", "(a > 0.5).sum()",
    "a @ a", "-a[2]", "io.BytesIO(a).read()[7]", "int.from_bytes(a[:1], 'little')", "a.copy().max()",
    "np.copy(a)[1]", "a.reshape(3, 4)[1].sum()",
    "np.put_along_axis(z := np.zeros(12), a.astype(int), a, 0) or z.sum()", "np.roll(a, 1)[0]",
    "np.isclose(a, 1).sum()",
)  # fmt: skip
"""Ways in which Python, numpy and other code in C come to the numbers of an array."""


def looking(look):
    names = ["array", "copy", "functools", "io", "operator", "pickle", "struct", "zlib"]
    scope = {"np": np, "torch": torch, **{name: importlib.import_module(name) for name in names}}
    return eval(f"lambda a: {look}", scope)


@pytest.mark.parametrize("look", [*LOOKS, "all(a > 0.3)", "any(a > 0.9)"])
def test_ways_to_look_at_an_argument(device, look):
    number, x = looking(look), torch.ones(2, device=device)

    def use(array):
        found = float(number(array))
        return x * 2 if found > 0.9 else x + found

    g = rote.graph(use, keep=True)
    for call in range(CALLS):
        array = np.random.default_rng(call).random(12).astype(np.float32)
        assert torch.equal(g(array), use(array)), call
    g.reset()


@pytest.mark.parametrize("look", LOOKS)
def test_ways_to_look_at_an_array_that_is_another_one(device, look):
    number = looking(look)

    def use(state, array, x):
        found = float(number(array))
        return (x * 2 if found > 0.9 else x + 1), int(found) % 2

    def kept(state, array, x):
        state.kept = float(number(array))
        return x

    for each in (use, kept):
        play(device, each, lent, source=lambda state, x: state.table * x[0, 0], calls=CALLS, values=OTHERS)
