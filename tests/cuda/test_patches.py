"""Numbers that change as parameters of kernels in a graph: where they are, and that replays have them."""

from __future__ import annotations

import struct
import threading

import pytest
import torch

import rote
from rote.base.errors import CaptureError
from rote.runtime.backends import PROCESS
from rote.runtime.backends.protocol import NumberCell

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False"),
]
aten = torch.ops.aten
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
WHOLE = (torch.int64, torch.int32)
LAYOUTS = {
    "dense": lambda dtype: made((6, 37), dtype),
    "large": lambda dtype: made((70, 1001), dtype),
    "strided": lambda dtype: made((12, 37), dtype)[::2],
    "transposed": lambda dtype: made((37, 6), dtype).t(),
    "no dimensions": lambda dtype: made((1,), dtype)[0],
    "shifted by one": lambda dtype: made((1 + 6 * 37,), dtype)[1:].view(6, 37),
}


@pytest.fixture
def backend():
    found = PROCESS.of(torch.device("cuda", torch.cuda.current_device()))
    with found.lock:
        found.enter_call()
        yield found


def made(shape, dtype):
    values = torch.linspace(-3, 3, torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)
    return (values * 11 if dtype in WHOLE else values).to(device="cuda", dtype=dtype)


def values_for(kind):
    """Numbers at which code that computes with them takes another way, and such that differ in every bit."""
    if kind is int:
        return [3, 0, 1, -1, 2, 7, -12345, 2**31 - 1, -(2**31) + 1, 2**24 + 1, 5]
    specials = [0.3, 0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 1e-7, -3e4, 5e-324, 1e-40, 1 + 2**-12, 1 / 3, 0.1]
    return [
        *specials,
        *[
            struct.unpack("<d", struct.pack("<Q", 0x3FE0000000000000 + n * 0x9E3779B97F4A))[0]
            for n in range(1, 60)
        ],
    ]


class Case:
    """An operation with numbers."""

    def __init__(self, name, call, kinds=(float,), dtypes=FLOATS, in_place=False):
        self.name, self.call, self.kinds, self.dtypes, self.in_place = name, call, kinds, dtypes, in_place

    def __repr__(self):
        return self.name


def op(name, *kinds, count=1, dtypes=FLOATS, between=0, keyword=None):
    """An operation on tensors of one type, with a number as its last operand, or as one with a name."""
    packet, _, overload = name.partition(".")
    func = getattr(getattr(aten, packet), overload)

    def call(make, number):
        tensors = [make() for _ in range(count)]
        return (
            func,
            (*tensors, *([number] if keyword is None else [])),
            {} if keyword is None else {keyword: number},
        )

    return Case(
        name + (f" {keyword}" if keyword else ""), call, kinds or (float,), dtypes, packet.endswith("_")
    )


def many(name, *, count=1, keyword=None, numbers=False, kinds=(float,)):
    """An operation on lists of tensors."""
    packet, _, overload = name.partition(".")
    func = getattr(getattr(aten, packet), overload)

    def call(make, number):
        lists = [[make(), made((5,), make().dtype), make()] for _ in range(count)]
        value = [number, 0.25, number] if numbers else number
        return (
            func,
            (*lists, *([value] if keyword is None else [])),
            {} if keyword is None else {keyword: value},
        )

    return Case(name + (f" {keyword}" if keyword else ""), call, kinds, FLOATS, packet.endswith("_"))


CASES = [
    op("add.Tensor", float, int),
    op("add_.Tensor", float),
    op("add.Tensor", float, count=2, keyword="alpha"),
    op("add_.Tensor", float, count=2, keyword="alpha"),
    op("add.Scalar", float),
    op("sub.Tensor", float, int),
    op("sub.Tensor", float, count=2, keyword="alpha"),
    op("rsub.Scalar", float),
    op("mul.Tensor", float, int),
    op("mul_.Tensor", float),
    op("div.Tensor", float, int),
    op("div_.Tensor", float),
    op("add.Tensor", int, dtypes=WHOLE),
    op("mul.Tensor", int, dtypes=WHOLE),
    op("sub.Tensor", int, dtypes=WHOLE),
    op("addcmul.default", float, count=3, keyword="value"),
    op("addcdiv.default", float, count=3, keyword="value"),
    op("addcmul_.default", float, count=3, keyword="value"),
    op("addcdiv_.default", float, count=3, keyword="value"),
    op("lerp.Scalar", float, count=2),
    op("lerp_.Scalar", float, count=2),
    op("fill_.Scalar", float, int),
    op("fill_.Scalar", int, dtypes=WHOLE),
    op("clamp_min.default", float),
    op("clamp_max.default", float),
    *[op(f"{name}.Scalar", float, int) for name in ("eq", "ne", "lt", "le", "gt", "ge")],
    *[op(f"{name}.Scalar", int, dtypes=WHOLE) for name in ("eq", "ne", "lt", "le", "gt", "ge")],
    *[many(f"_foreach_{name}{way}.Scalar") for name in ("add", "sub", "mul", "div") for way in ("", "_")],
    *[many(f"_foreach_{name}_.ScalarList", numbers=True) for name in ("add", "sub", "mul", "div")],
    many("_foreach_add_.List", count=2, keyword="alpha"),
    many("_foreach_sub_.List", count=2, keyword="alpha"),
    many("_foreach_addcmul_.Scalar", count=3),
    many("_foreach_addcdiv_.Scalar", count=3),
    many("_foreach_addcmul_.ScalarList", count=3, numbers=True),
    many("_foreach_addcdiv_.ScalarList", count=3, numbers=True),
    many("_foreach_lerp_.Scalar", count=2),
]
CALLS = [(case, kind, dtype) for case in CASES for kind in case.kinds for dtype in case.dtypes]


def name_of(value):
    return getattr(value, "__name__", None) or str(value).removeprefix("torch.")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("case", "kind", "dtype"), CALLS, ids=name_of)
def test_every_operator(backend, case, kind, dtype, layout):
    check(backend, case, kind, lambda: LAYOUTS[layout](dtype))


def check(backend, case, kind, make):
    cell = NumberCell(values_for(kind)[0])
    func, args, kwargs = case.call(make, cell)
    session = backend.open(exclusive=False)
    try:
        with session.stream():
            assert session.takes(func, args, kwargs)
            session.begin(1, numbers=True)
            try:
                out = session.run(func, args, kwargs)
                segment = session.end()
            finally:
                session.abort()
        replayed = 0
        for value in values_for(kind):
            try:
                cell.fill(value)
            except OverflowError:
                continue
            func, plain, others = case.call(make, value)
            wanted = func(*plain, **others)
            if case.in_place:
                for mine, start in pairs(args[0], case.call(make, value)[1][0]):
                    mine.copy_(start)
                out, wanted = args[0], plain[0]
            segment.replay()
            replayed += 1
            assert all([raw(a) == raw(b) for a, b in pairs(out, wanted)]), (value, out, wanted)
        assert replayed > 5
    finally:
        session.release()


@pytest.mark.parametrize("name", ["_foreach_mul_", "_foreach_div_", "_foreach_addcdiv_", "_foreach_addcmul_"])
def test_lists_of_many_tensors(backend, name):
    """They are more than one kernel takes, and the largest is in several."""
    func, count = getattr(aten, name).ScalarList, 150
    tensors = 3 if "addc" in name else 1

    def lists():
        sizes = [1 + 37 * n % 501 for n in range(count - 1)] + [3 << 20]
        return [[made((size,), torch.float32) for size in sizes] for _ in range(tensors)]

    cells = [NumberCell(0.5 + n / 7) for n in range(count)]
    mine = lists()
    session = backend.open(exclusive=False)
    try:
        with session.stream():
            assert session.takes(func, (*mine, cells), {})
            session.begin(1, numbers=True)
            session.run(func, (*mine, cells), {})
            segment = session.end()
        for turn in range(5):
            values = [(-1) ** n * (0.1 * turn + n / 3 + 1e-3) for n in range(count)]
            for cell, value in zip(cells, values, strict=True):
                cell.fill(value)
            for tensor, start in zip(mine[0], lists()[0], strict=True):
                tensor.copy_(start)
            wanted = lists()
            func(*wanted, values)
            segment.replay()
            assert all([raw(a) == raw(b) for a, b in pairs(mine[0], wanted[0])])
    finally:
        session.release()


def scaled_by(session, x, cell):
    """What one product gives, and its segment."""
    with session.stream():
        session.begin(1, numbers=True)
        out = session.run(aten.mul.Tensor, (x, cell), {})
        return out, session.end()


@pytest.mark.parametrize("value", [1e39, float("nan"), float("inf")])
def test_numbers_without_a_word(backend, value):
    """They are refused before a replay begins, and what lay there stays."""
    x, cell = made((6, 37), torch.float32), NumberCell(0.5)
    session = backend.open(exclusive=False)
    try:
        out, segment = scaled_by(session, x, cell)
        with pytest.raises(OverflowError, match="is out of range: replays have numbers of Magnitudes"):
            cell.fill(value)
        segment.replay()
        assert raw(out) == raw(x * 0.5)
    finally:
        session.release()


def test_operations_of_which_nothing_is_known(backend):
    """Of an exponent the table says nothing: it chooses the kernel."""
    x, cell = made((6, 37), torch.float32), NumberCell(0.5)
    session = backend.open(exclusive=False)
    try:
        with session.stream():
            assert not session.takes(aten.pow.Tensor_Scalar, (x, cell), {})
            session.begin(1, numbers=True)
            with pytest.raises(CaptureError, match="cannot be captured with numbers: where they are"):
                session.run(aten.pow.Tensor_Scalar, (x, cell), {})
            session.abort()
    finally:
        session.release()


def test_a_number_is_set_in_each_instance(backend):
    """A graph with copies is instantiated for each place of its result, and each has numbers of its own."""
    x, cell = made((6, 37), torch.float32), NumberCell(0.5)
    session = backend.open(exclusive=False)
    try:
        out, segment = scaled_by(session, x, cell)
        copying = segment.with_copies([], [out])
        kept = []
        for turn in range(30):
            value = 0.25 * (turn // 3)
            cell.fill(value)
            results = [make() for make in copying.outputs]
            kept = [*kept[-turn % 5 :], results]
            addresses = tuple([each.data_ptr() for each in results])
            launch = copying.known.get(addresses) or copying.aim(addresses)
            assert launch(torch.cuda.current_stream().cuda_stream) == 0
            if turn % 4 == 0:
                segment.replay()
            assert raw(results[0]) == raw(x * value)
    finally:
        session.release()


@pytest.mark.parametrize("inputs", [0, 1])
def test_threads_that_have_no_context(inputs):
    """To set a kernel's parameters there would end the process."""
    state, plain = {"scale": 1.0}, {"scale": 1.0}

    def scaled(state, *given):
        state["scale"] += 0.25
        return made((6, 37), torch.float32) * state["scale"] + sum(given)

    g = rote.graph(lambda *given: scaled(state, *given), keep=True)
    given = [made((6, 37), torch.float32) for _ in range(inputs)]
    pairs_of = list[bool]()

    def play():
        pairs_of.extend([raw(g(*given)) == raw(scaled(plain, *given)) for _ in range(4)])

    for _ in range(4):
        play()
    for _ in range(3):
        thread = threading.Thread(target=play)
        thread.start()
        thread.join()
    assert pairs_of == [True] * 28 and g.report().replayed >= 20, g.explain()
    g.reset()


def raw(tensor):
    return tensor.reshape(-1).contiguous().view(torch.uint8).cpu().numpy().tobytes()


def pairs(one, other):
    return zip(*[each if isinstance(each, (list, tuple)) else [each] for each in (one, other)], strict=True)
