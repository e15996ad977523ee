"""Copies as nodes of a graph: that they are used, that they are right, and what happens when CUDA says no."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import pytest
import torch

import rote
from rote.runtime.backends.cuda.graphs import nodes
from rote.runtime.backends.cuda.graphs.copy_kernel import CAPACITIES, CAPACITY
from rote.runtime.backends.cuda.graphs.cuda_driver import DriverError, driver
from rote.runtime.engine.specialization import Specialization

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False"),
]
WARM = rote.Options().warmup + 1
CALLS = WARM + 4


def on(*shape, fill=1.0):
    return torch.full(shape, float(fill), device="cuda")


def copying(g):
    """The graphs with copies that a graphed callable has made."""
    variants = [variant for entry in g._keys.entries.values() for variant in entry.recordings]
    steps = [step for variant in variants for node in variant.root.walk() for step in node.steps or ()]
    made = [getattr(step, "_launcher", None) for step in steps]
    return [graph for graph in made if isinstance(graph, nodes.CopyingGraph)]


def warmed(fn, *args, **options):
    g = rote.graph(fn, **options)
    for _ in range(CALLS):
        g(*args)
    return g


def test_they_are_used():
    assert driver() is not None
    g = warmed(lambda x, y: (x + y, x * y), on(3), on(3))
    (graph,) = copying(g)
    assert (graph.inputs, len(graph.outputs)) == (2, 2)
    x, y = on(3, fill=2), on(3, fill=3)
    total, product = g(x, y)
    assert total.tolist() == [5.0] * 3 and product.tolist() == [6.0] * 3
    assert tuple([tensor.data_ptr() for tensor in (x, y, total, product)]) in graph.known


@pytest.mark.parametrize("count", [0, 1, 4, *CAPACITIES, CAPACITY + 1])
def test_the_hot_path_answers(monkeypatch, count):
    w = on(8)
    g = warmed(lambda *xs: sum(xs, w) * 2, *[on(8) for _ in range(count)])
    monkeypatch.setattr(Specialization, "run", lambda *_: pytest.fail("the general path was taken"))
    for n in range(5):
        xs = [on(8, fill=n + k) for k in range(count)]
        assert g(*xs).equal(sum(xs, w) * 2)


def test_many_copies_are_one_node():
    def fn(*xs):
        return [x + 1 for x in xs]

    g = warmed(fn, *[on(3) for _ in range(20)])
    (graph,) = copying(g)
    assert (graph.inputs, len(graph.outputs)) == (20, 20)
    assert driver().count(graph._template) == 20 + 2
    for n in range(6):
        xs = [on(3, fill=n + k) for k in range(20)]
        assert [y.tolist() for y in g(*xs)] == [[n + k + 1.0] * 3 for k in range(20)]


def test_more_copies_than_one_node_takes():
    def fn(*xs):
        return [x * 2 for x in xs]

    count = 2 * CAPACITY + 5
    g = warmed(fn, *[on(3) for _ in range(count)])
    (graph,) = copying(g)
    assert driver().count(graph._template) == count + 6
    for n in range(6):
        xs = [on(3, fill=n + k) for k in range(count)]
        assert [y[0].item() for y in g(*xs)] == [2.0 * (n + k) for k in range(count)]


def ragged(shift):
    """Tensors of many sizes, shifted against the allocator's blocks by some elements."""
    kinds = (torch.uint8, torch.bfloat16, torch.float32, torch.complex128)
    sizes = [(kind, size) for kind in kinds for size in (1, 5, 256, 7001)]
    sizes.append((torch.float32, 1_500_003))
    made = [torch.randint(0, 250, (size + shift,), device="cuda").to(kind) for kind, size in sizes]
    return [tensor[shift:] for tensor in made]


def test_sizes_and_alignments():
    def fn(*xs):
        return [x.clone() for x in xs]

    g = warmed(fn, *ragged(0))
    (graph,) = copying(g)
    for shift in (0, 1, 2, 3, 4, 7):
        xs = ragged(shift)
        assert all(mine.equal(x) for mine, x in zip(g(*xs), xs, strict=True))
        assert next(reversed(graph.known))[: len(xs)] == tuple([x.data_ptr() for x in xs])


def test_graphs_that_have_none():
    many = warmed(lambda x: [x := x + 1 for _ in range(nodes.MOST_OPERATIONS + 1)][-1], on(3))
    draws = warmed(torch.rand_like, on(3))
    assert not copying(many) and not copying(draws)
    (step,) = next(iter(many._keys.entries.values())).recordings[0].root.steps
    assert isinstance(step._launcher, nodes.PlainGraph)
    assert many(on(3)).tolist() == [nodes.MOST_OPERATIONS + 2.0] * 3


def test_the_first_segment_takes_and_the_last_one_gives():
    def fn(x, y):
        z = x * y
        z[x > 0.5] = y.max()
        return z * 3

    g = warmed(fn, on(8), on(8))
    assert sorted((graph.inputs, len(graph.outputs)) for graph in copying(g)) == [(0, 1), (2, 0)]
    for _ in range(20):
        x, y = torch.rand(8, device="cuda"), torch.rand(8, device="cuda")
        assert g(x, y).equal(fn(x, y))


def test_arguments_that_come_to_share_memory():
    """Also at addresses that are known."""
    base = torch.rand(8, device="cuda")
    apart, halves = (on(4), on(4, fill=2)), (base[:4], base[4:])
    forms = [apart, halves, (base[:4], base[2:6]), (base[:4], base[:4]), (apart[0], apart[0])]

    def fn(x, y):
        return x * 2 + y

    g = warmed(fn, *apart)
    assert copying(g)[0].inputs == 2
    for x, y in (*forms, *forms, *reversed(forms)):
        assert g(x, y).equal(x * 2 + y)
    g.reset()


def test_a_thread_that_has_not_used_the_device():
    """It has no context. Arguments at new addresses are several copies, and so a kernel's parameters."""
    g, found = warmed(lambda x, y: x * 2 + y, on(4), on(4)), []
    arguments = [(on(4, fill=n), on(4, fill=-n)) for n in range(6)]
    torch.cuda.synchronize()
    for x, y in arguments:
        thread = threading.Thread(target=lambda x=x, y=y: found.append(g(x, y)))
        thread.start()
        thread.join()
    assert [each.tolist() for each in found] == [[float(n)] * 4 for n in range(6)]


def test_branches_and_several_roots():
    """Every root waits for the inputs, every result for all ends."""

    def fn(x, y):
        side, here = torch.cuda.Stream(), torch.cuda.current_stream()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            a = y.cumsum(0)
        b = x.cumsum(0)
        here.wait_stream(side)
        return a, b, x + y

    g = rote.graph(fn)
    for n in range(40):
        x, y = on(1 << 16, fill=n), on(1 << 16, fill=-n)
        for mine, right in zip(g(x, y), fn(x, y), strict=True):
            assert mine.equal(right)


def test_a_thousand_calls_in_flight():
    g = warmed(lambda x: x.flip(0).cumsum(0), on(64))
    inputs = [torch.randn(64, device="cuda") for _ in range(37)]
    right = [x.flip(0).cumsum(0) for x in inputs]
    streams, held = [torch.cuda.current_stream(), torch.cuda.Stream()], []
    torch.cuda.synchronize()
    for n in range(1000):
        with torch.cuda.stream(streams[n % 3 == 0]):
            held.append(g(inputs[n % 37]))
    torch.cuda.synchronize()
    assert all(y.equal(right[n % 37]) for n, y in enumerate(held))
    del held


REMAPPED = """
import torch, rote
g = rote.graph(lambda x: x + 1)
size, places, hits = 64 << 20, {}, 0
for n in range(40):
    x = torch.full((size,), n, dtype=torch.uint8, device="cuda")
    y = g(x)
    hits += places.get("x") == x.data_ptr()
    places["x"] = x.data_ptr()
    assert bool((y == n + 1).all()), n
    del x, y
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    other = torch.empty((n % 5 + 1) << 20, device="cuda")
    del other
assert hits > 5, hits
steps = next(iter(g._keys.entries.values())).recordings[0].root.steps
assert steps[0]._launcher.outputs and g.report().replayed > 30
print("right", hits)
"""


@pytest.mark.parametrize("expandable", [False, True])
def test_memory_that_was_given_back_and_mapped_again(expandable):
    env = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": f"expandable_segments:{expandable}"}
    env["PYTORCH_ALLOC_CONF"] = env["PYTORCH_CUDA_ALLOC_CONF"]
    done = subprocess.run(
        [sys.executable, "-c", REMAPPED], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0 and done.stdout.startswith("right"), done.stderr[-2000:]


def test_static_memory_as_an_argument():
    g = warmed(lambda x: x * 2, on(3))
    static = next(iter(g._keys.entries.values())).recordings[0].memory.inputs.groups[0].static[0]
    static.fill_(7)
    (graph,) = copying(g)
    assert graph.aim((static.data_ptr(), on(3).data_ptr())) is None
    assert g(static).tolist() == [14.0] * 3


def test_addresses_that_come_in_turn_are_not_set_anew(monkeypatch):
    total = on(3, fill=0)
    g = warmed(lambda x: total.add_(x).sum(), on(3))
    places = [on(3) for _ in range(nodes.MOST_INSTANCES)]
    for x in places:
        g(x)
    (graph,) = copying(g)
    assert len(graph.known) == nodes.MOST_INSTANCES
    monkeypatch.setattr(graph, "aim", lambda _: pytest.fail("an address was set"))
    total.zero_()
    for n in range(20):
        places[n % 3].fill_(n)
        assert g(places[n % 3]).item() == total.sum().item()
    assert total.tolist() == [190.0] * 3


def test_more_places_than_instances():
    g = warmed(lambda x: x.flip(0) * 2, on(3))
    places = [on(3, fill=n) for n in range(3 * nodes.MOST_INSTANCES)]
    held = [(g(places[n % len(places)]), n % len(places)) for n in range(4 * len(places))]
    (graph,) = copying(g)
    assert len(graph._instances) == len(graph.known) == nodes.MOST_INSTANCES
    assert all(y.tolist() == [2.0 * n] * 3 for y, n in held)


@pytest.mark.parametrize(("length", "instances"), [(100, 4), (250, 2), (400, 1)])
def test_the_more_nodes_the_fewer_instances(length, instances):
    g = warmed(lambda x: [x := x + 1 for _ in range(length)][-1], on(3))
    (graph,) = copying(g)
    places = [on(3, fill=n) for n in range(6)]
    for _ in range(3):
        for n, x in enumerate(places):
            assert g(x).tolist() == [n + length] * 3
    assert len(graph.known) == len(graph._instances) == instances


def test_no_memory_for_another_instance(monkeypatch):
    warmed(lambda x: x + 1, on(3))
    api, made = driver(), []

    def instantiate(graph, real=api.instantiate):
        made.append(graph)
        if len(made) > 1:
            raise DriverError("2")
        return real(graph)

    monkeypatch.setattr(api, "instantiate", instantiate)
    g = warmed(lambda x: x * 2, on(3))
    for n in range(9):
        x = on(3, fill=n)
        assert g(x).tolist() == [2.0 * n] * 3
    (graph,) = copying(g)
    assert len(graph._instances) == 1 and len(made) == 2


@pytest.mark.parametrize("name", ["move_copy", "set_kernel", "launch"])
def test_the_driver_says_no(monkeypatch, name):
    warmed(lambda x, y: x + y, on(3), on(3))  # whether copies work at all has been tried
    api = driver()
    monkeypatch.setattr(api, name, lambda *_: 1)
    g = rote.graph(lambda x, y: x * y)
    for n in range(CALLS + 4):
        assert g(on(3, fill=n), on(3, fill=2)).tolist() == [2.0 * n] * 3
    assert len(copying(g)) == 1 and g.report().replayed == CALLS + 4 - WARM


def test_no_kernel(monkeypatch):
    def refuses(*_):
        raise DriverError("218")

    monkeypatch.setattr(nodes, "_copy_kernel", refuses)
    g, h = rote.graph(lambda x, y: x * y), rote.graph(lambda x: x * 2)
    for n in range(CALLS):
        assert g(on(3, fill=n), on(3, fill=2)).tolist() == h(on(3, fill=n)).tolist() == [2.0 * n] * 3
    assert g.report().replayed == CALLS - WARM
    assert copying(h) and not copying(g)


def test_no_driver(monkeypatch):
    monkeypatch.setattr(nodes, "driver", lambda: None)
    g = rote.graph(lambda x: x * 2)
    for n in range(CALLS):
        assert g(on(3, fill=n)).tolist() == [2.0 * n] * 3
    assert not copying(g) and g.report().replayed == CALLS - WARM


def test_a_result_that_finds_no_memory():
    size = 1 << 28
    x = on(size)
    g = rote.graph(lambda x: x * 2)
    for _ in range(CALLS):
        y = g(x)
    del y
    assert len(copying(g)) == 1
    before = g.report()
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            g(x)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    x.fill_(3)
    assert g(x)[:2].tolist() == [6.0, 6.0]
    assert g.report().recorded == before.recorded == 1
    gc.collect()


def test_another_current_device_than_the_recordings():
    """A launch goes to a stream of the current device."""
    if torch.cuda.device_count() < 2:
        pytest.skip("one device")
    x = torch.ones(3, device="cuda:1")
    g = rote.graph(lambda x: x * 2)
    for n in range(CALLS):
        assert g(x + n).tolist() == [2.0 + 2 * n] * 3
    assert not copying(g)
    with torch.cuda.device(1):
        for n in range(CALLS):
            assert g(x + n).tolist() == [2.0 + 2 * n] * 3
        assert len(copying(g)) == 1
    for n in range(CALLS):
        assert g(x + n).tolist() == [2.0 + 2 * n] * 3


def test_threads():
    g = warmed(lambda x: x.flip(0) * 2, on(64))
    wrong = []

    def work(seed):
        with torch.cuda.stream(torch.cuda.Stream()):
            for n in range(200):
                x = torch.arange(64, device="cuda") + float(seed * 1000 + n)
                if not g(x).equal(x.flip(0) * 2):
                    wrong.append((seed, n))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_graph_with_copies_is_not_launched_into_somebody_elses_capture():
    g, x = warmed(lambda x: x * 2, on(3)), on(3)
    assert copying(g)
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        graph.capture_begin()
        made = g(x)
        graph.capture_end()
        x.fill_(3)
        graph.replay()
    torch.cuda.current_stream().wait_stream(side)
    assert made.tolist() == [6.0] * 3
    assert g(on(3, fill=4)).tolist() == [8.0] * 3


@pytest.mark.parametrize("mode", ["thread_local", "global"])
def test_another_instance_is_made_beside_a_capture_on_another_thread(mode):
    g = warmed(lambda x: x * 2, on(3))
    places = [on(3, fill=n) for n in range(3)]
    y, found = on(3, fill=5), []
    torch.cuda.synchronize()  # the allocator asks no events of other tests from here on
    kept = [on(3) for _ in range(8)]
    del kept  # results find memory without asking the device for it

    def work():
        with torch.cuda.stream(torch.cuda.default_stream()):
            found.extend([g(x) for x in places])

    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    (copies,) = copying(g)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        graph.capture_begin(capture_error_mode=mode)
        z = y + 1
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        graph.capture_end()
        graph.replay()
    torch.cuda.synchronize()
    assert z.tolist() == [6.0] * 3
    assert [mine.tolist() for mine in found] == [[2.0 * n] * 3 for n in range(3)]
    assert len(copies._instances) > 1


def test_released_graphs_are_gone():
    g = warmed(lambda x: x * 2, on(3))
    (graph,) = copying(g)
    g.reset()
    assert not graph._instances and not graph.known
    with pytest.raises(rote.InternalError):
        graph.aim((16, 32))
