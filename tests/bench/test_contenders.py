"""What stands beside eager, and the worker that runs it, in this process."""

import queue
import re

import pytest
import torch
from torch import nn

from rote.bench.worker.contenders import EAGER, PEERS, Contender
from rote.bench.worker.graphs import WARMUP_CALLS, HandWritten, MadeGraphed, Taking
from rote.bench.worker.worker import Worker, Workload, first_line, lacks_memory

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda.is_available() is False")
BY_NAME = {peer.name: peer for peer in PEERS}


class Step:
    """Takes nested arguments, writes one of them, and returns a structure."""

    def __init__(self, device):
        torch.manual_seed(0)
        self.model = nn.Linear(4, 4, device=device).requires_grad_(False)

    def __call__(self, x, *, cache, scale):
        cache["total"].add_(x.sum())
        return {"y": self.model(x) * scale, "total": cache["total"].clone()}


def arguments(device):
    return (torch.randn(2, 4, device=device),), {
        "cache": {"total": torch.zeros(1, device=device)},
        "scale": 2.0,
    }


def worker(contender, function, args, kwargs, folder, said=None):
    said = [] if said is None else said
    return Worker(contender, lambda: Workload(function, args, kwargs), folder, said.append)


def test_tensors_are_taken_and_put_back():
    (x,), kwargs = arguments("cpu")
    taking = Taking((x,), kwargs)
    assert not taking.only_positional and [each is x for each in taking((x,), kwargs)] == [True, False]
    args, named = taking.put([x + 1, x])
    assert torch.equal(args[0], x + 1) and named == {"cache": {"total": x}, "scale": 2.0}
    assert Taking((x, x), {}).only_positional and not Taking((x, 3), {}).only_positional


def test_eager_answers(device, tmp_path):
    said = []
    asked = worker(EAGER, Step(device), *arguments(device), tmp_path, said)
    built = asked.answer({"do": "build"})
    assert built["device"] == device.type
    warm = asked.answer({"do": "warm", "calls": 3, "keep": True})
    assert len(warm["seconds"]) == 3 and all(value > 0 for value in warm["seconds"]) and not warm["draws"]
    assert warm["equality"] == {"calls": 3, "bitwise": True, "largest": None, "what": "", "unseen": ""}
    assert said == ["call 1 of 3", "call 2 of 3", "call 3 of 3"]
    turn = asked.answer({"do": "turn", "seconds": 0.01})
    assert turn["latency_us"] and bool(turn["host_us"]) == (device.type == "cuda")
    assert asked.answer({"do": "notes"}) == {"notes": []}


@pytest.mark.parametrize(
    "made, bitwise, largest",
    [
        (lambda function: function, True, None),
        (lambda function: lambda x: function(x) + 0.5, False, 0.5),
        (lambda function: lambda x: function(x).sum(), False, None),
    ],
)
def test_results_are_compared_with_eagers(tmp_path, made, bitwise, largest):
    def function(x):
        return torch.round(x * 1000)

    x = torch.randn(4)
    for contender in (EAGER, Contender("other", "other", made)):
        asked = worker(contender, function, (x,), {}, tmp_path)
        asked.answer({"do": "build"})
        equality = asked.answer({"do": "warm", "calls": 4, "keep": contender is EAGER})["equality"]
    assert (equality["calls"], equality["bitwise"]) == (4, bitwise)
    assert equality["largest"] == (largest and pytest.approx(largest))


def test_random_numbers_are_those_of_the_same_call(tmp_path):
    dropout, x = nn.Dropout(0.5), torch.randn(64)
    for contender in (EAGER, Contender("other", "other", lambda function: lambda x: function(x))):
        asked = worker(contender, dropout, (x,), {}, tmp_path)
        asked.answer({"do": "build"})
        warm = asked.answer({"do": "warm", "calls": 4, "keep": contender is EAGER})
        torch.rand(3)  # what one process draws besides is no matter
    assert warm["equality"]["bitwise"] and warm["draws"]


def test_failures_are_answers(tmp_path, where):
    def fails(x):
        raise ValueError("\n\n  no such head\nmore")

    asked = worker(EAGER, fails, (torch.zeros(1),), {}, tmp_path)
    asked.answer({"do": "build"})
    answer = asked.answer({"do": "warm", "calls": 1, "keep": True})
    assert answer == {"error": f"ValueError: no such head ({where(fails, 'raise')})", "memory": False}
    memory = worker(EAGER, lambda x: [][0], (torch.zeros(1),), {}, tmp_path)
    assert memory.answer({"do": "nonsense"})["error"] == "ValueError: no such question: nonsense"
    assert lacks_memory(RuntimeError("CUDA error: out of memory")) and not lacks_memory(ValueError("no"))
    with pytest.raises(RuntimeError) as raised:
        torch.empty(1 << 50)
    assert lacks_memory(raised.value)


def test_an_error_without_words_has_the_line_that_raised_it(tmp_path):
    def fails(x):
        return queue.Queue().get_nowait()

    asked = worker(EAGER, fails, (torch.zeros(1),), {}, tmp_path)
    asked.answer({"do": "build"})
    answer = asked.answer({"do": "warm", "calls": 1, "keep": True})
    assert re.fullmatch(r"Empty \(\S*queue\.py:\d+\)", answer["error"])


def test_errors_in_one_line():
    assert first_line(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert first_line(RuntimeError("raised:\nTypeError: no\nmore")) == "RuntimeError: raised: TypeError: no"
    with pytest.raises(RuntimeError) as raised:
        try:
            raise ValueError("not permitted when stream is capturing")
        finally:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
    assert first_line(raised.value).startswith("ValueError: not permitted when stream is capturing (")


@CUDA
@pytest.mark.cuda
@pytest.mark.filterwarnings("ignore")  # the compiler's
@pytest.mark.parametrize("name", ["by-hand", "make_graphed_callables", "compile", "reduce-overhead"])
def test_peers_on_a_gpu(name, tmp_path):
    device = torch.device("cuda")
    model, x = Step(device).model, torch.randn(2, 4, device=device)
    for contender in (EAGER, BY_NAME[name]):
        asked = worker(contender, model, (x,), {}, tmp_path)
        assert asked.answer({"do": "build"})["device"] == "cuda"
        warm = asked.answer({"do": "warm", "calls": 8, "keep": contender is EAGER})
        assert "error" not in warm, warm
        assert warm["equality"]["calls"] == 8 and (warm["equality"]["largest"] or 0.0) < 1e-3
        assert asked.answer({"do": "turn", "seconds": 0.05})["host_us"]
        launches = asked.answer({"do": "count"})["launches"]
        assert launches["total"] > 0
    assert launches["graphs"] == (0 if name == "compile" else 1)
    torch._dynamo.reset()


@CUDA
@pytest.mark.cuda
def test_a_target_that_hides_its_gpu(tmp_path):
    asked = worker(EAGER, lambda x: x.cuda() + 1, (torch.zeros(2),), {}, tmp_path)
    assert asked.answer({"do": "build"})["device"] == "cpu"
    answer = asked.answer({"do": "warm", "calls": 1, "keep": True})
    assert "has nothing there when it is built" in answer["error"]


@CUDA
@pytest.mark.cuda
@pytest.mark.parametrize("kind", [HandWritten, MadeGraphed])
def test_graphs_take_nested_arguments(kind):
    device = torch.device("cuda")
    plain, graphed = Step(device), kind(Step(device))
    for _ in range(WARMUP_CALLS + 3):
        args, kwargs = arguments(device)
        expected = plain(*args, cache={"total": kwargs["cache"]["total"].clone()}, scale=2.0)
        found = graphed(*args, **kwargs)
        assert torch.equal(found["y"], expected["y"])
        if kind is HandWritten:
            assert torch.equal(kwargs["cache"]["total"], expected["total"])
            assert torch.equal(found["total"], expected["total"])


@CUDA
@pytest.mark.cuda
def test_a_training_step_by_hand_loses_no_step(tmp_path):
    device = torch.device("cuda")

    def job():
        torch.manual_seed(0)
        model = nn.Linear(4, 4, device=device)
        optimizer = torch.optim.Adam(model.parameters(), capturable=True)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    x = torch.randn(2, 4, device=device)
    for contender in (EAGER, BY_NAME["by-hand"]):
        asked = worker(contender, job(), (x,), {}, tmp_path)
        asked.answer({"do": "build"})
        equality = asked.answer({"do": "warm", "calls": 8, "keep": contender is EAGER})["equality"]
    assert equality["calls"] == 8 and equality["bitwise"], equality
