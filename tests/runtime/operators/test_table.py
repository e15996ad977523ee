"""The table of operators: its names exist, its facts are true, and each of them is used."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.runtime.operators.programs import PROGRAMS
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import rote
from rote.base.errors import CaptureError
from rote.checker.trial.known import KnownValues
from rote.checker.trial.operands import TrialCall
from rote.runtime.autograd.graph.graph import seeds_on_host
from rote.runtime.backends.host.backend import HostBackend
from rote.runtime.backends.host.operations import writer_of
from rote.runtime.capture import composites
from rote.runtime.capture.overloads import Overload
from rote.runtime.capture.stores import without_copies
from rote.runtime.capture.zeros import on_zeros
from rote.runtime.operators import facts as module
from rote.runtime.operators.boundaries import Placement, place
from rote.runtime.operators.facts import facts_of, rows_with, table
from rote.runtime.operators.operands import read_operands, written_operands
from rote.runtime.operators.torch_private import schema_of
from rote.runtime.operators.transfers import wait_operator
from rote.testing import compare

aten = torch.ops.aten
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
ROWS = table()["aten"]
X = torch.tensor([[3.0, -1.0], [0.5, 2.0]])
INDEX = torch.tensor([1, 0])
MASK = torch.tensor([[True, False], [True, True]])


def overload(name: str, namespace: str = "aten") -> Any:
    packet, _, which = name.partition(".")
    found = getattr(getattr(torch.ops, namespace), packet)
    return getattr(found, which or found.overloads()[0])


def matrices(device: torch.device | str = "cpu") -> list[tuple[Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(4, 4, generator=generator).to(device),) for _ in range(5)]


class Calls(TorchDispatchMode):
    """Hands every operation to a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.function(func, args, kwargs or {})


def calls_of(program: Callable[[], Any], name: str) -> list[tuple[Any, Any, Any]]:
    """The calls of an operator that a program makes."""
    found = list[tuple[Any, Any, Any]]()

    def call(func: Any, args: Any, kwargs: Any) -> Any:
        if func.name().removeprefix("aten::").partition(".")[0] == name.partition(".")[0]:
            found.append((func, args, kwargs))
        return func(*args, **kwargs)

    with Calls(call):
        program()
    return found


# ---------------------------------------------------------------------------------- rows


def words() -> set[str]:
    text = Path(module.__file__).with_name("table.toml").read_text()
    return set(re.findall(r"^#   (\w+) ", text.partition("[aten]")[0], re.MULTILINE))


def test_every_word_is_explained_and_every_explained_word_is_said():
    said = {fact for rows in table().values() for row in rows.values() for fact in row}
    assert said - {"since"} == words()
    assert all(
        isinstance(why, str) for rows in table().values() for row in rows.values() for why in row.values()
    )


def test_an_operator_stands_in_one_line():
    lines = tomllib.loads(Path(module.__file__).with_name("table.toml").read_text())
    for rows in lines.values():
        names = [name for several in rows for name in several.split()]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ROWS)
def test_the_operator_exists(name):
    since = ROWS[name].get("since")
    if since is None or tuple(map(int, since.split("."))) <= VERSION:
        assert overload(name)._schema.name.startswith("aten::")


@pytest.mark.parametrize("namespace", sorted(table().keys() - {"aten"}))
def test_the_namespace_exists(namespace):
    import torch.distributed._functional_collectives  # which defines some
    import torch.distributed.fsdp

    wait_operator()  # and this one
    names = [schema.name for schema in torch._C._jit_get_all_schemas()]
    assert any(name.startswith(f"{namespace}::") for name in names)
    assert set(table()[namespace]) == {"*"} or all(
        [f"{namespace}::{name}" in names for name in table()[namespace]]
    )


FOLLOWS: dict[str, Callable[[Any], bool]] = {
    "waits": lambda func: facts_of(func).dynamic or facts_of(func).reads,
    "writes": lambda func: func._schema.is_mutable,
    "overwrites": lambda func: not func._schema.is_mutable,
    "moves": lambda func: func.is_view,
    "made": lambda func: any("Tensor" in str(each.type) for each in func._schema.arguments),
}


@pytest.mark.parametrize(("name", "fact"), [(name, fact) for fact in FOLLOWS for name, _ in rows_with(fact)])
def test_a_row_says_nothing_that_follows_or_contradicts(name, fact):
    assert not FOLLOWS[fact](overload(name))


# ---------------------------------------------------------------------------------- what cannot be captured

REFUSED = ("waits", "may_wait", "checks", "indexed", "splits", "packed", "values", "product")
NEVER_RECORDED = {"_to_sparse": "RT601", "_nested_tensor_from_mask": "RT601"}


def test_whatever_cannot_be_captured_has_a_program():
    assert PROGRAMS.keys() == {name for name, row in ROWS.items() if not row.keys().isdisjoint(REFUSED)}


@pytest.mark.filterwarnings(
    "ignore:at..nuclear_norm is deprecated", "ignore:The PyTorch API of nested tensors"
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_replay_between_segments_or_say_why_not(device, name):
    report = compare(PROGRAMS[name], matrices(device)).report()
    row = ROWS[name]
    reason = "RT112" if "packed" in row else NEVER_RECORDED.get(name)
    assert bool(report.replayed) == (reason is None)
    if reason is not None:
        assert reason in {each.code for each in report.reasons}
    elif not row.keys().isdisjoint(("waits", "checks", "indexed")):
        between = {
            island.operation.removeprefix("aten::") for each in report.recordings for island in each.islands
        }
        assert name in between


def refusal(program: Callable[[Tensor], Tensor]) -> str:
    """What a host session says of a program."""
    session, x = HostBackend().open(exclusive=False), matrices()[0][0]
    session.begin()
    try:
        with Calls(session.run):
            program(x)
    except CaptureError as error:
        return str(error)
    finally:
        session.abort()
        session.release()
    return ""


def checked(program: Callable[[Tensor], Tensor]) -> list[str]:
    return [finding.message for finding in rote.check(program, matrices()[0][0])]


# ---------------------------------------------------------------------------------- each fact is used

WRITERS: dict[str, Callable[[Tensor], Any]] = {
    "copy_": lambda t: t.copy_(X),
    "fill_": lambda t: t.fill_(7.0),
    "zero_": lambda t: t.zero_(),
    "normal_": lambda t: t.normal_(),
    "uniform_": lambda t: t.uniform_(),
    "random_": lambda t: t.random_(),
    "bernoulli_": lambda t: t.bernoulli_(0.5),
    "exponential_": lambda t: t.exponential_(),
    "geometric_": lambda t: t.geometric_(0.5),
    "cauchy_": lambda t: t.cauchy_(),
    "log_normal_": lambda t: t.log_normal_(),
    "_foreach_copy_": lambda t: torch._foreach_copy_([t], [X]),
    "_foreach_zero_": lambda t: torch._foreach_zero_([t]),
    "scatter_": lambda t: t.scatter_(0, INDEX[None], X),
    "index_put_": lambda t: t.index_put_((INDEX, INDEX), torch.tensor(7.0)),
    "_index_put_impl_": lambda t: aten._index_put_impl_(t, [INDEX, INDEX], torch.tensor(7.0)),
    "index_copy_": lambda t: t.index_copy_(0, INDEX[:1], X[:1]),
    "index_fill_": lambda t: t.index_fill_(0, INDEX[:1], 7.0),
    "masked_fill_": lambda t: t.masked_fill_(MASK, 7.0),
    "masked_scatter_": lambda t: t.masked_scatter_(MASK, X),
    "put_": lambda t: t.put_(INDEX, X[0]),
    "rrelu_with_noise": lambda t: aten.rrelu_with_noise(X, t, 0.1, 0.3, True),
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_it_overwrites_it_does_not_read(name):
    ends = list[Tensor]()
    starts = torch.full((2, 2), 100.0), torch.full((2, 2), 200.0)
    for start in starts:
        torch.manual_seed(0)
        ends.append(start.clone())
        WRITERS[name](ends[-1])
    left = (ends[0] == starts[0]) & (ends[1] == starts[1])
    assert ((ends[0] == ends[1]) | left).all() and not left.all()


MOVERS: dict[str, Callable[[Tensor], Any]] = {
    **{name: lambda x, name=name: getattr(x, name)(x.t()) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "isin": lambda x: torch.isin(x, x[0]),
    "argmax": lambda x: x.argmax(),
    "argmin": lambda x: x.argmin(),
    "sort": lambda x: x.sort(),
    "topk": lambda x: x.topk(1),
    "where": lambda x: torch.where(MASK, x, x.t()),
    "gather": lambda x: x.gather(0, INDEX[None]),
    "index.Tensor": lambda x: x[INDEX],
    "masked_select": lambda x: x.masked_select(MASK),
    "nonzero": lambda x: x.nonzero(),
    "index_select": lambda x: x.index_select(0, INDEX),
    "flip": lambda x: x.flip(0),
    "repeat": lambda x: x.repeat(2, 2),
    "stack": lambda x: torch.stack([x, x]),
    "cat.default": lambda x: torch.cat([x, x]),
    "clone": lambda x: x.clone(),
    "_to_copy": lambda x: x.to(torch.float64),
    "_unsafe_view": lambda x: aten._unsafe_view(x, (4,)),
}


@pytest.mark.parametrize("name", MOVERS)
def test_what_moves_numbers_computes_none(name):
    out = MOVERS[name](X)
    for part in out if isinstance(out, tuple) else (out,):
        assert not part.is_floating_point() or torch.isin(part.float(), X).all()


def known(name: str) -> bool:
    ((func, args, kwargs), *_) = calls_of(lambda: MOVERS[name](X), name)
    found: Any = KnownValues(SimpleNamespace(like=lambda tensor: tensor))  # type: ignore[arg-type]
    return found.true(TrialCall(facts_of(func), args, kwargs)) is not None


def is_read(name: str) -> bool:
    """Whether an operator is taken to read a tensor that it writes."""
    start = torch.zeros(2, 2)
    ((func, args, kwargs), *_) = calls_of(lambda: WRITERS[name](start), name)
    return any(each is start for each in read_operands(facts_of(func), args, kwargs))


MAKERS: dict[str, Callable[[Tensor], Tensor]] = {
    "empty": lambda x: torch.empty(4, 4),
    "empty_like": torch.empty_like,
    "empty_strided": lambda x: torch.empty_strided((4, 4), (4, 1)),
    "empty_permuted": lambda x: torch.empty_permuted((4, 4), (1, 0)),
    "new_empty": lambda x: x.new_empty(4, 4),
    "new_empty_strided": lambda x: x.new_empty_strided((4, 4), (4, 1)),
}


def reasons(name: str) -> list[str]:
    """Why the use of memory that an operator makes is not recorded."""
    graphed = rote.graph(lambda x: (MAKERS[name](x) * 0 + x).sum())
    for (x,) in matrices():
        graphed(x)
    return [each.message for each in graphed.report().reasons]


def stored(name: str) -> Any:
    """What takes the place of an operation that stores a number of the host."""
    there, number = X.to("meta"), torch.tensor(2.0)
    places = [INDEX.to("meta")]
    args = {"copy_": (there, number), "where.self": (MASK.to("meta"), there, number)}
    given = args.get(name, (there, places, number))
    func, operands = without_copies(facts_of(overload(name)), given, X.device, lambda *_: "made there")
    return func, [each if isinstance(each, (str, float)) else None for each in operands]


def gives_a_zero(name: str) -> bool:
    zero: Any = torch._efficientzerotensor([2])
    return bool(on_zeros(overload(name))(zero, X[0])._is_zerotensor())


def seeds(name: str) -> list[Any]:
    seed: Any = SimpleNamespace(cpu=lambda: "moved")
    return [*seeds_on_host(overload(name), (seed,) * 17, {})[0]]


def batch_norm(name: str) -> int:
    args = (X, None, None, torch.zeros(2), torch.ones(2), True, 0.1, 0.1)
    return len(written_operands(facts_of(overload(name)), args, {}))


OBSERVED: dict[str, Callable[[str], Any]] = {
    "waits": lambda name: (refusal(PROGRAMS[name]), checked(PROGRAMS[name])),
    "may_wait": lambda name: checked(PROGRAMS[name]),
    "checks": lambda name: (refusal(PROGRAMS[name]), checked(PROGRAMS[name])),
    "indexed": lambda name: (refusal(PROGRAMS[name]), checked(PROGRAMS[name])),
    "stores": lambda name: (
        place(facts_of(overload(name)), [X, MASK, X], {}, True, sized=True) is Placement.ISLAND
    ),
    "splits": lambda name: [*composites._with("splits")],
    "lengths": lambda name: [*composites._with("lengths")],
    "packed": lambda name: [*composites._with("packed")],
    "values": lambda name: [*composites._with("values")],
    "product": lambda name: [*composites._with("product")],
    "divides": lambda name: [*composites._with("divides")],
    "refuses": lambda name: [*composites._with("refuses")],
    "hidden": lambda name: place(facts_of(overload(name)), [X], {}, True, sized=True),
    "writes": batch_norm,
    "overwrites": is_read,
    "fills": stored,
    "unread": lambda name: read_operands(facts_of(overload(name)), (X, 0.5), {}),
    "aliases": lambda name: read_operands(facts_of(overload(name)), (X, [4]), {}),
    "blank": reasons,
    "into": lambda name: writer_of(overload(name)) is not None,
    "vectors": lambda name: Overload.of(overload(name)).vectors,
    "seeds": seeds,
    "zero": gives_a_zero,
    "moves": known,
    "fixed": lambda name: facts_of(overload(name)).fixed,
    "raises": lambda name: facts_of(overload(name)).total,
    "total": lambda name: facts_of(overload(name)).total,
    "parameters": lambda name: facts_of(overload(name)).parameters,
    "made": lambda name: KnownValues(None).may_be(facts_of(overload(name)), []),  # type: ignore[arg-type]
}
"""For each fact, what is different without it."""


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Takes a fact out of the table."""

    def take(name: str, fact: str) -> None:
        row = {key: why for key, why in ROWS[name].items() if key != fact}
        monkeypatch.setattr(module, "table", lambda: {**table(), "aten": {**ROWS, name: row}})
        facts_of.cache_clear()

    yield take
    facts_of.cache_clear()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "fact"), [(name, fact) for name, row in ROWS.items() for fact in row if fact != "since"]
)
def test_each_fact_makes_a_difference(forget, name, fact):
    observe = OBSERVED[fact]
    before = observe(name)
    forget(name, fact)
    assert observe(name) != before


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if "parameters" in row])
def test_numbers_among_parameters_are_operands(name):
    packet, _, which = name.partition(".")
    overloads = [which] if which else getattr(aten, packet).overloads()
    schemas = [schema_of(overload(f"{packet}.{each}")) for each in overloads]
    operands = {each.name for schema in schemas for each in schema.arguments}
    parameters = facts_of(overload(name)).parameters
    assert len(parameters) == len(ROWS[name]["parameters"].split())
    assert operands.issuperset([each for each, _ in parameters])


def test_what_an_operator_of_fsdp_fills_it_does_not_read():
    import torch.distributed.fsdp  # which defines it

    func = torch.ops.fsdp.all_gather_copy_in.default
    parts, whole = [X[0].clone(), X[1].clone()], torch.full((8,), 7.0)
    given = parts, whole, [2, 2], 4, 1
    assert written_operands(facts_of(func), given, {}) == [whole]
    assert list(map(id, read_operands(facts_of(func), given, {}))) == list(map(id, parts))
    func(*given)
    assert torch.equal(whole, torch.cat([torch.full((4,), 7.0), X.reshape(-1)]))


WHOLE = {namespace for namespace, rows in table().items() if "*" in rows}


@pytest.mark.parametrize("namespace", sorted(WHOLE - {"prim"}))
def test_namespaces(namespace):
    import torch.distributed._functional_collectives  # which defines some

    wait_operator()  # and this one
    schemas = [each for each in torch._C._jit_get_all_schemas() if each.name.startswith(f"{namespace}::")]
    facts = facts_of(overload(schemas[0].name.partition("::")[2], namespace))
    assert facts.collective != facts.hidden and not facts.simple
