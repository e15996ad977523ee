"""Arrays of numpy's as arguments and results: inputs and outputs as tensors are."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from operator import itemgetter, methodcaller

import numpy
import pytest
import torch

import rote
from rote.testing import assert_same

pytestmark = pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")


def late(device):
    """By how many calls the first replay may come later on a GPU, where memory of the host is a result."""
    return int(device.type == "cuda")


def numbers(n, *shape, kind="float32"):
    made = numpy.random.RandomState(n).randn(*(shape or (4,))) * 10
    return made.astype(kind)


def checked(make, given, calls=14):
    """Play a callable plainly and graphed, keep what they return, and compare all after every call."""
    plain, graphed = make(), make()
    g = rote.graph(graphed, keep=True)
    kept = []
    for n in range(calls):
        one, other = given(n), given(n)
        kept.append((plain(*one), g(*other)))
        assert_alike(one, other)
        for each in kept:
            assert_alike(*each)
        if n % 3 == 0:  # a result is the caller's own
            for part in kept.pop(0):
                changed(part)
    return g.report()


def assert_alike(one, other):
    assert type(one) is type(other)
    if isinstance(one, numpy.ndarray):
        assert (one.dtype, one.dtype.char, one.shape, one.strides) == (
            other.dtype, other.dtype.char, other.shape, other.strides
        )  # fmt: skip
        assert one.tobytes() == other.tobytes()
        assert one.flags.writeable == other.flags.writeable
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for parts in zip(one, other, strict=True):
            assert_alike(*parts)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_alike(one[key], other[key])
    elif hasattr(one, "__dict__") and not isinstance(one, torch.Tensor):
        assert_alike(vars(one), vars(other))
    else:
        assert_same(one, other)


def changed(part):
    if isinstance(part, numpy.ndarray):
        part[...] = 1
    elif isinstance(part, dict):
        for each in part.values():
            changed(each)


@dataclass
class Output:
    images: numpy.ndarray
    steps: int


@dataclass
class Observation:
    image: numpy.ndarray
    state: numpy.ndarray


TAKEN = {
    "from_numpy": lambda a: torch.from_numpy(a),
    "as_tensor": lambda a: torch.as_tensor(a),
    "as another type": lambda a: torch.as_tensor(a, dtype=torch.float64),
    "asarray": lambda a: torch.asarray(a, dtype=torch.float16),
    "tensor": lambda a: torch.tensor(a),
    "tensor of a type": lambda a: torch.tensor(a, dtype=torch.int32),
    "tensor on a device": lambda a: torch.tensor(a, device="cpu"),
    "by the class": lambda a: torch.Tensor(a),
    "with a dimension more": lambda a: torch.from_numpy(a[None]),
    "a part": lambda a: torch.tensor(a[1:3]),
    "expanded": lambda a: torch.from_numpy(numpy.expand_dims(a, 0)),
    "turned": lambda a: torch.from_numpy(a.reshape(2, 2).T),
    "transposed": lambda a: torch.from_numpy(numpy.transpose(a[:, None], (1, 0))),
    "squeezed": lambda a: torch.from_numpy(a[None, ..., None].squeeze()),
    "a part is written": lambda a: torch.from_numpy(a[1:]).add_(1) + torch.from_numpy(a)[1:],
    "by its shape": lambda a: (
        torch.from_numpy(a).reshape(len(a), *a.shape[1:]) * a.ndim * a.size * a.itemsize
    ),
    "twice": lambda a: torch.from_numpy(a) + torch.tensor(a),
    "written": lambda a: torch.from_numpy(a).add_(1),
    "a copy is written": lambda a: torch.tensor(a).add_(1),
    "written, then read again": lambda a: torch.from_numpy(a).mul_(2) + torch.from_numpy(a),
    "a view is written": lambda a: torch.from_numpy(a)[1:].zero_(),
}


@pytest.mark.parametrize("take", TAKEN.values(), ids=TAKEN)
@pytest.mark.parametrize("inference", [False, True], ids=["", "inference"])
def test_an_argument(device, take, inference):
    def make():
        @torch.inference_mode(inference)
        def act(a):
            return (take(a).to(device) * 2).cpu()

        return act

    report = checked(make, lambda n: (numbers(n),))
    assert report.replayed >= 10, report


SHAPES = {
    "whole": lambda n: numbers(n, 3, 4),
    "transposed": lambda n: numbers(n, 3, 4).T,
    "rows": lambda n: numbers(n, 6, 4)[::2],
    "columns": lambda n: numbers(n, 3, 8)[:, 1::3],
    "no dimension": lambda n: numbers(n, 1).reshape(()),
    "spread": lambda n: numpy.broadcast_to(numbers(n, 4), (3, 4)),
    "for reading": lambda n: fixed(numbers(n, 3, 4)),
    "bytes": lambda n: numbers(n, 3, 4, kind="uint8"),
    "truths": lambda n: numbers(n, 3, 4) > 0,
    "complex": lambda n: numbers(n, 3, 4) * 1j,
    "half": lambda n: numbers(n, 3, 4, kind="float16"),
    "unsigned": lambda n: numbers(n, 3, 4, kind="uint16"),
}


def fixed(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("given", SHAPES.values(), ids=SHAPES)
def test_shapes(device, given):
    def make():
        def act(a):
            t = torch.from_numpy(a).to(device)
            return (t.float() if not t.is_complex() else t).mul(2).cpu().numpy(), t.cpu().numpy()

        return act

    report = checked(make, lambda n: (given(n),))
    assert report.replayed == 10, report


OTHERS = {
    "backwards": lambda n: numbers(n)[::-1],
    "of another byte order": lambda n: numbers(n).astype(">f4"),
    "objects": lambda n: numpy.array([n, 2], dtype=object),
    "texts": lambda n: numpy.array([str(n), "b"]),
    "long long": lambda n: numbers(n).astype(numpy.longlong),
    "a matrix": lambda n: numbers(n, 2, 2).view(numpy.matrix),
    "masked": lambda n: numpy.ma.masked_array(numbers(n), numbers(n) > 0),
    "records": lambda n: numpy.zeros(2, "f4,f4"),
    "its strides do not fit": lambda n: numpy.zeros(3, "f4,i1")["f0"],
}


@pytest.mark.parametrize("given", OTHERS.values(), ids=OTHERS)
def test_what_no_tensor_tells_runs_plainly(device, given):
    def make():
        return lambda a, x: (x * 2, float(len(a)), a.dtype.char)

    report = checked(make, lambda n: (given(n), torch.ones(2, device=device) * n))
    assert report.replayed == 0


# The text of a list stands for a look at its numbers. Replays write that of a float of Python's, which
# differs in each call here; that of a number of numpy's they do not.
READ = {
    "item": lambda a: a[0],
    "method": lambda a: a.sum(),
    "ufunc": lambda a: numpy.add(a, 1)[0],
    "function": lambda a: numpy.clip(a, -1, 1),
    "operator": lambda a: (a * 2)[0],
    "other side": lambda a: (2 - a)[0],
    "sign": lambda a: (-a)[0],
    "in place": lambda a: a.__imul__(2)[0],
    "added": lambda a: added(a)[0],
    "transposed": lambda a: a.T[0],
    "flat": lambda a: a.flat[0],
    "real": lambda a: a.real[0],
    "iterated": lambda a: next(iter(a)),
    "unpacked": lambda a: (*a, 1)[0],
    "looped": lambda a: [each + 1 for each in a],
    "compared": lambda a: (a > 0) * a,
    "member": lambda a: 3.0 in a,
    "truth": lambda a: bool(a[:1]),
    "memory": lambda a: memoryview(a)[0],
    "bytes": lambda a: a.tobytes()[0],
    "listed": lambda a: a.tolist()[0],
    "text": lambda a: f"{a}",
    "sorted": lambda a: sorted(a)[0],
    "summed": lambda a: sum(a),
    "mapped": lambda a: max(map(float, a)),
    "itemgetter": lambda a: itemgetter(0)(a),
    "methodcaller": lambda a: methodcaller("sum")(a),
    "copied": lambda a: a.copy()[0],
    "viewed": lambda a: a.view(numpy.uint32)[0],
    "in a list": lambda a: numpy.stack([a, a])[0, 0],
    "in an array": lambda a: numpy.array([a])[0, 0],
    "stored": lambda a: stored(a),
    "shaped": lambda a: shaped(a),
    "as a tensor's index": lambda a: torch.arange(40.0)[a.astype("int64") % 7].sum().item(),
    "owner": lambda a: a.base is None,
    "flags": lambda a: a.flags.owndata,
    "address": lambda a: a.ctypes.data % 4,
    "a part": lambda a: a[1:][0],
    "a part in place": lambda a: added(a[1:])[0],
    "a part is stored": lambda a: stored(a[1:]),
    "a turned part": lambda a: float(a[None].T.sum()),
    "indices": lambda a: a[[0, 1]][0],
    "a mask": lambda a: len(a[a > 0]),
    "reshaped by numpy": lambda a: numpy.reshape(a, (2, 2))[0, 0],
    "as strided": lambda a: numpy.lib.stride_tricks.as_strided(a, (2,), (4,))[0],
    "the class": lambda a: torch.Tensor(a).sum().item() + float(a[0]),
    "a tensor of a list": lambda a: torch.tensor([a, a]).sum().item(),
}


FOLLOWED = [READ[each] for each in ("truth", "listed", "as a tensor's index", "the class")]


def added(a):
    a += 1
    return a


def stored(a):
    a[0] = 5
    return a.shape[0]


def shaped(a):
    a.shape = (2, 2)
    return a.ndim


@pytest.mark.sampled(3)
@pytest.mark.parametrize("look", READ.values(), ids=READ)
@pytest.mark.filterwarnings("ignore:Creating a tensor from a list of numpy")
@pytest.mark.filterwarnings("ignore:Setting the shape")
def test_an_argument_that_is_read_past_pytorch(device, look):
    def make():
        def act(a):
            found = look(a)
            return torch.from_numpy(a).to(device) * 2, str([found])

        return act

    report = checked(make, lambda n: (numbers(n),))
    assert bool(report.replayed) is (look in FOLLOWED), report


@pytest.mark.sampled(3)
@pytest.mark.parametrize("before", [False, True], ids=["", "after one of its own"])
@pytest.mark.parametrize("look", READ.values(), ids=READ)
@pytest.mark.filterwarnings("ignore:Creating a tensor from a list of numpy")
@pytest.mark.filterwarnings("ignore:Setting the shape")
def test_an_array_of_a_tensor_that_is_read_past_pytorch(device, look, before):
    def make():
        def act(x):
            if before:
                look(numpy.ones(4, numpy.float32))
            a = (x * 2).cpu().numpy()
            found = look(a)
            return a, str([found])

        return act

    report = checked(make, lambda n: (torch.from_numpy(numbers(n)).to(device),))
    assert bool(report.replayed) is (look in FOLLOWED), report


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list of numpy")
def test_where_the_arrays_of_a_list_lie_means_nothing(device):
    def make():
        return lambda x: torch.tensor([numpy.ones(4, "float32"), numpy.arange(4.0)]).to(x) * x

    held = []  # so that numpy puts the next ones elsewhere

    def batch(n):
        held.extend([numpy.ones(4, "float32"), numpy.arange(4.0)])
        return (torch.from_numpy(numbers(n)).to(device),)

    report = checked(make, batch)
    assert report.replayed, report


RETURNED = {
    "alone": lambda t, a: t.numpy(),
    "in a dict": lambda t, a: {"action": t.numpy(), "steps": 3},
    "in a tuple": lambda t, a: (t.numpy(), t),
    "in an object": lambda t, a: Output(t.numpy(), 2),
    "twice": lambda t, a: twice(t.numpy()),
    "two of one memory": lambda t, a: (t.numpy(), t[1:].numpy()),
    "and written afterwards": lambda t, a: (t.numpy(), t.add_(1)),
    "in a dict by names": lambda t, a: dict(action=t.numpy(), observation=a),
    "a part": lambda t, a: (t.numpy()[1:], t.numpy()[None], a[1:], t),
    "turned by numpy": lambda t, a: numpy.expand_dims(t.numpy(), 1).T,
    "by force": lambda t, a: t.numpy(force=True),
    "the argument": lambda t, a: (a, t.numpy()),
    "memory of the argument": lambda t, a: torch.from_numpy(a)[1:].numpy(),
    "and back": lambda t, a: torch.from_numpy(t.numpy()).mul_(3).numpy(),
    "and back as a copy": lambda t, a: (torch.tensor(t.numpy()) * 3, t),
    "spread": lambda t, a: t.expand(3, 4).numpy(),
    "turned": lambda t, a: t.reshape(2, 2).T.numpy(),
    "a constant": lambda t, a: torch.zeros(3).numpy(),
}


@pytest.mark.parametrize("back", RETURNED.values(), ids=RETURNED)
def test_a_result(device, back):
    def make():
        def act(a):
            with torch.no_grad():
                return back((torch.from_numpy(a).to(device) * 2).cpu(), a)

        return act

    report = checked(make, lambda n: (numbers(n),))
    assert report.replayed >= 10 - late(device), report


def twice(a):
    return [a, a]


def test_results_share_memory_as_they_do(device):
    def act(a):
        t = (torch.from_numpy(a).to(device) * 2).cpu()
        return t.numpy(), t, t[1:].numpy(), torch.from_numpy(a).numpy(), a

    g = rote.graph(act, keep=True)
    for n in range(8):
        a = numbers(n)
        whole, tensor, part, view, same = g(a)
        assert same is a
        assert numpy.shares_memory(whole, part) and numpy.shares_memory(view, a)
        assert not numpy.shares_memory(whole, a)
        tensor[1] = 7
        assert whole[1] == part[0] == 7
        view[0] = 3
        assert a[0] == 3
    assert g.report().replayed >= 4 - late(device)


class Policy:
    def __init__(self, device):
        self.weight = torch.arange(16.0).reshape(4, 4).to(device)
        self.last = self.seen = None
        self.log = []

    def __call__(self, observation):
        self.last = (
            (torch.from_numpy(observation["state"]).to(self.weight.device) @ self.weight).cpu().numpy()
        )
        self.seen = observation["state"]
        self.log.append(self.last)
        return {"action": self.last, "gain": observation["gain"]}


def test_arrays_that_are_left_behind(device):
    plain, graphed = Policy(device), Policy(device)
    g = rote.graph(graphed, keep=True)
    for n in range(14):
        given = {"state": numbers(n), "gain": 2.0}
        assert_alike(plain(dict(given)), g(given))
        assert_alike([plain.last, plain.seen], [graphed.last, graphed.seen])
        assert_alike(plain.log, graphed.log)
        assert graphed.seen is given["state"] and graphed.log[-1] is graphed.last
    assert g.report().replayed >= 8, g.report()


def test_a_dataclass_of_arrays(device):
    def make():
        def act(observation):
            image = torch.as_tensor(observation.image, device=device).permute(2, 0, 1).float() / 255
            return (image.mean((1, 2)).sum() + torch.as_tensor(observation.state).to(device)).cpu().numpy()

        return act

    report = checked(make, lambda n: (Observation(numbers(n, 5, 4, 3, kind="uint8"), numbers(n)),))
    assert report.replayed >= 10, report


MEMORY = {
    "one array twice": lambda a: (a, a),
    "two parts": lambda a: (a[:3], a[1:]),
    "apart in one": lambda a: (a[:2], a[2:]),
    "a tensor over it": lambda a: (a, torch.from_numpy(a)),
    "a tensor over a part": lambda a: (a, torch.from_numpy(a)[2:]),
    "two tensors over it": lambda a: (torch.from_numpy(a), torch.from_numpy(a)),
    "tensors over two parts": lambda a: (torch.from_numpy(a[:3]), torch.from_numpy(a)[2:]),
    "a tensor and one over its array": lambda a: (
        b := torch.from_numpy(a).clone(),
        torch.from_numpy(b.numpy()),
    ),
    "two of their own": lambda a: (a, a.copy()),
}


@pytest.mark.parametrize("share", MEMORY.values(), ids=MEMORY)
@pytest.mark.parametrize("order", ["apart first", "shared first", "in turns"])
def test_arguments_that_share_memory(device, share, order):
    def make():
        def act(a, b):
            first, second = torch.as_tensor(a), torch.as_tensor(b)
            first.mul_(2)
            return first.sum().to(device) + second.sum().to(device), second.add_(1).clone()

        return act

    def given(n):
        shared = {"apart first": n > 7, "shared first": n < 7, "in turns": n % 2}[order]
        a = numbers(n)
        other, like = share(a.copy()), share(a)
        return (
            like if shared else (other[0], other[1].copy() if hasattr(other[1], "copy") else other[1].clone())
        )

    checked(make, given)


GIVEN = {
    "the array": lambda kept, shares, a: kept.memory if shares else a,
    "a tensor": lambda kept, shares, a: torch.from_numpy(kept.memory if shares else a),
    "a tensor over a part": lambda kept, shares, a: torch.from_numpy((kept.memory if shares else a)[1:]),
    "PyTorch's tensor": lambda kept, shares, a: kept.whole if shares else torch.tensor(a),
}


@pytest.mark.parametrize("writes", ["the state", "the argument", "nothing"])
@pytest.mark.parametrize("late", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("give", GIVEN.values(), ids=GIVEN)
def test_an_argument_that_is_memory_of_the_state(device, writes, late, give):
    class Keeps:
        def __init__(self):
            self.whole = torch.from_numpy(numbers(0)).clone()
            self.memory = self.whole.numpy() if give is GIVEN["PyTorch's tensor"] else numbers(0)
            self.state = torch.from_numpy(self.memory)

        def __call__(self, a):
            t = torch.as_tensor(a)
            if writes == "the state":
                self.state.add_(1)
            if writes == "the argument":
                t.add_(1)
            return t.to(device) * 2 + self.state[-len(t) :].to(device), self.state.clone()

    plain, graphed = Keeps(), Keeps()
    g = rote.graph(graphed, keep=True)
    for n in range(16):
        shares = n >= 8 if late else n % 2
        one, other = (give(each, shares, numbers(n)) for each in (plain, graphed))
        assert_alike(plain(one), g(other))
        assert_alike((one, plain.memory), (other, graphed.memory))


def test_which_types_and_flags_are_in_the_key(device):
    def make():
        def act(a):
            scale = 2.0 if a.dtype == numpy.float32 else 3.0
            return (torch.from_numpy(a).to(device) * scale * len(a.shape)).cpu().numpy()

        return act

    kinds = [numbers(1), numbers(1, kind="float64"), numbers(1, 2, 2), fixed(numbers(1)), numbers(1, 8)[::2]]
    report = checked(make, lambda n: (kinds[n % 5],), calls=40)
    assert report.replayed >= 20, report


def test_plain_arrays_are_not_warned_of(device):
    g = rote.graph(lambda a, x: x * a.size)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(8):
            g(fixed(numbers(n)), torch.ones(2, device=device))
    assert g.report().replayed >= 4


def test_verified(device):
    def act(a):
        t = (torch.from_numpy(a).to(device) * 2).cpu()
        return {"action": t.numpy(), "all": [t, a]}

    g = rote.graph(act, keep=True, verify=1)
    for n in range(10):
        g(numbers(n))
    assert g.report().replayed == 6
