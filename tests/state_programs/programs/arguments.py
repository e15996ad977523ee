"""Arguments are read like anything else: classes and methods of objects, types of keys, sides of tensors."""

from __future__ import annotations

import collections
import enum
import functools
import operator
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from tests.footguns.case import Wrap, attempt, full, ramp
from tests.state_programs.program import put, state, turns
from torch import nn

Items = Iterator[Any]


def each(g: Any, values: list[Any], device: torch.device, times: int = 4) -> Items:
    """Call with each value several times, then with all in turns."""
    for value in values:
        for number in range(times):
            yield attempt(g, full(number + 1, device), value)
    for number, value in enumerate(values * 2):
        yield attempt(g, full(number + 1, device), value)


@state("reads")
def dataclass_fields(wrap: Wrap, device: torch.device) -> Items:
    """A dataclass argument with other numbers."""

    @dataclass
    class Config:
        k: float
        names: list[str] = field(default_factory=list)

    g = wrap(lambda x, c: x * c.k + len(c.names))
    first = Config(1.5)
    yield from each(g, [first, replace(first, k=2.5), Config(1.5, ["a"])], device)


@state("reads")
def dataclass_class_attribute(wrap: Wrap, device: torch.device) -> Items:
    """A dataclass argument, whose class attribute changes."""

    @dataclass
    class Config:
        k: float

    Config.shift = 1.0  # type: ignore[attr-defined]
    g = wrap(lambda x, c: x * c.k + c.shift)
    change = put(Config, shift=2.0)
    yield from turns(g, device, change, args=lambda x: (x, Config(1.5)))


@state("reads")
def dataclass_method(wrap: Wrap, device: torch.device) -> Items:
    """A dataclass argument, whose method is replaced."""

    @dataclass
    class Batch:
        x: torch.Tensor

        def scaled(self) -> torch.Tensor:
            return self.x * 1.5

    g = wrap(lambda batch: batch.scaled())
    change = put(Batch, scaled=lambda self: self.x * 2.5)
    yield from turns(g, device, change, args=lambda x: (Batch(x),))


@state("reads")
def named_tuple_method(wrap: Wrap, device: torch.device) -> Items:
    """A named tuple argument, whose property is replaced."""

    class Pair(NamedTuple):
        x: torch.Tensor
        k: float

        @property
        def gain(self) -> float:
            return self.k * 2

    g = wrap(lambda pair: pair.x * pair.gain)
    change = put(Pair, gain=property(lambda self: 7.0))
    yield from turns(g, device, change, args=lambda x: (Pair(x, 1.5),))


@state("reads")
def named_tuple_of_another_class(wrap: Wrap, device: torch.device) -> Items:
    """Named tuples of two classes with the same fields, and a plain tuple."""
    one, two = collections.namedtuple("One", "k"), collections.namedtuple("Two", "k")
    g = wrap(lambda x, p: x * p[0] + len(type(p).__name__) + isinstance(p, one))
    yield from each(g, [one(1.5), two(1.5), (1.5,)], device)


@state("reads")
def enum_argument(wrap: Wrap, device: torch.device) -> Items:
    """Enum members as arguments; then a method of the enum is replaced."""

    class Mode(enum.Enum):
        A = 1
        B = 2

        def gain(self) -> float:
            return self.value * 1.5

    g = wrap(lambda x, mode: x * mode.gain())
    yield from each(g, [Mode.A, Mode.B], device)
    Mode.gain = lambda self: 9.0  # type: ignore[method-assign]
    yield from each(g, [Mode.A, Mode.B], device)


@state("reads")
def enum_payload_argument(wrap: Wrap, device: torch.device) -> Items:
    """An enum member as an argument, whose value is an object that changes."""
    payload = types.SimpleNamespace(k=1.5)

    class Mode(enum.Enum):
        A = payload

    g = wrap(lambda x, mode: x * mode.value.k)
    yield from turns(g, device, put(payload, k=2.5), args=lambda x: (x, Mode.A))


@state("reads")
def integer_enum_and_integer(wrap: Wrap, device: torch.device) -> Items:
    """An ``IntEnum`` member, the equal integer, and True."""

    class Mode(enum.IntEnum):
        A = 1

    g = wrap(lambda x, k: x * k + (5.0 if isinstance(k, enum.Enum) else 0.0) + isinstance(k, bool))
    yield from each(g, [Mode.A, 1, True, 1.0], device)


@state("reads")
def string_enum_and_string(wrap: Wrap, device: torch.device) -> Items:
    """A string's subclass with an own method, and the equal string."""

    class Name(str):
        def gain(self) -> float:
            return 7.0

    g = wrap(lambda x, name: x * (name.gain() if hasattr(name, "gain") else len(name)))
    yield from each(g, [Name("abc"), "abc"], device)


@state("reads")
def keys_with_types(wrap: Wrap, device: torch.device) -> Items:
    """Dict arguments with the keys 1, True and 1.0."""
    g = wrap(lambda x, d: x * 2 + torch.tensor([next(iter(d))], device=x.device).dtype.itemsize)
    yield from each(g, [{1: 0}, {True: 0}, {1.0: 0}], device)


@state("reads")
def order_of_keys(wrap: Wrap, device: torch.device) -> Items:
    """Dict arguments with the same items in another order."""

    def fn(x: torch.Tensor, d: dict[str, float]) -> torch.Tensor:
        for k in d.values():
            x = (x + 1) * k
        return x

    yield from each(wrap(fn), [{"a": 2.0, "b": 3.0}, {"b": 3.0, "a": 2.0}], device)


@state("reads")
def range_argument(wrap: Wrap, device: torch.device) -> Items:
    """Ranges of one length, and of none."""
    g = wrap(lambda x, r: x * (sum(r) + 1) + r.start + r.step)
    yield from each(g, [range(3), range(1, 4), range(0, 6, 2), range(2, 2), range(0)], device)


@state("reads")
def slice_argument(wrap: Wrap, device: torch.device) -> Items:
    """Slices as arguments."""
    g = wrap(lambda x, s: x[s] * 2)
    yield from each(g, [slice(0, 2), slice(2, 4), slice(None, None, 2), slice(None)], device)


@state("reads")
def set_argument(wrap: Wrap, device: torch.device) -> Items:
    """Sets as arguments, frozen and not."""
    g = wrap(lambda x, s: x * sum(s) + isinstance(s, frozenset))
    yield from each(g, [{1, 2}, {1, 3}, frozenset({1, 3}), set()], device)


@state("reads")
def bytes_and_arrays(wrap: Wrap, device: torch.device) -> Items:
    """Bytes, a byte array and a memory view as arguments."""
    g = wrap(lambda x, b: x * b[0] + len(b) + isinstance(b, bytes))
    yield from each(g, [b"ab", b"cb", bytearray(b"ab"), memoryview(b"cb")], device)


@state("reads")
def byte_array_changed_in_place(wrap: Wrap, device: torch.device) -> Items:
    """One byte array as an argument, changed in place."""
    data = bytearray(b"ab")
    g = wrap(lambda x, b: x * b[0])
    yield from turns(g, device, lambda: data.__setitem__(0, 7), args=lambda x: (x, data))


@state("reads")
def bound_method_argument(wrap: Wrap, device: torch.device) -> Items:
    """Bound methods of two objects as arguments; then the object changes."""

    class Scale:
        def __init__(self, k: float) -> None:
            self.k = k

        def act(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.k

    one, two = Scale(1.5), Scale(2.5)
    g = wrap(lambda x, act: act(x))
    yield from each(g, [one.act, two.act], device)
    one.k = 7.0
    yield from each(g, [one.act, two.act], device)


@state("reads")
def bound_c_method_argument(wrap: Wrap, device: torch.device) -> Items:
    """``dict.get`` of two dicts as arguments; then a dict changes."""
    one, two = {"k": 1.5}, {"k": 2.5}
    g = wrap(lambda x, get: x * get("k"))
    yield from each(g, [one.get, two.get], device)
    one["k"] = 7.0
    yield from each(g, [one.get, two.get], device)


@state("reads")
def partial_argument(wrap: Wrap, device: torch.device) -> Items:
    """Partial functions with other constants as arguments."""
    g = wrap(lambda x, act: act(x))
    acts = [functools.partial(operator.mul, k) for k in (1.5, 2.5)]
    yield from each(g, [*acts, functools.partial(torch.add, other=3, alpha=2)], device)


@state("reads")
def function_argument(wrap: Wrap, device: torch.device) -> Items:
    """Functions made by one ``def`` with other closures."""

    def made(k: float) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: x * k

    g = wrap(lambda x, act: act(x))
    yield from each(g, [made(1.5), made(2.5), made(1.5)], device)


@state("reads")
def class_argument(wrap: Wrap, device: torch.device) -> Items:
    """Classes as arguments, one of them changed."""

    class One:
        k = 1.5

    class Two(One):
        k = 2.5

    g = wrap(lambda x, kind: x * kind.k + issubclass(kind, Two))
    yield from each(g, [One, Two], device)
    One.k = 7.0
    yield from each(g, [One, Two], device)


@state("reads")
def namespace_argument(wrap: Wrap, device: torch.device) -> Items:
    """A namespace as an argument, changed in place and fresh."""
    o = types.SimpleNamespace(k=1.5)
    g = wrap(lambda x, o: x * o.k)
    yield from turns(g, device, put(o, k=2.5), args=lambda x: (x, o))
    yield from each(g, [types.SimpleNamespace(k=k) for k in (1.5, 3.5)], device)


@state("reads")
def own_object_argument(wrap: Wrap, device: torch.device) -> Items:
    """An own object as an argument, changed in place and fresh."""

    class Batch:
        def __init__(self, k: float) -> None:
            self.k = k

    one = Batch(1.5)
    g = wrap(lambda x, o: x * o.k)
    yield from turns(g, device, put(one, k=2.5), args=lambda x: (x, one))
    yield from each(g, [Batch(1.5), Batch(3.5)], device)


@state("reads")
def attribute_of_a_tensor(wrap: Wrap, device: torch.device) -> Items:
    """An attribute that the caller set on its tensor."""
    g = wrap(lambda x: x * getattr(x, "k", 1.5))
    for k in (None, None, None, 2.5, 2.5, None, 3.5):
        x = full(1, device)
        if k is not None:
            x.k = k  # type: ignore[attr-defined]
        yield g(x)


@state("reads")
def gradient_of_an_argument(wrap: Wrap, device: torch.device) -> Items:
    """``x.grad`` decides, and is used."""
    x = full(2, device).requires_grad_()
    g = wrap(lambda x: x.detach() * (1.5 if x.grad is None else x.grad))
    for grad in (None, None, None, full(3, device), full(4, device), None):
        x.grad = grad
        yield g(x)


@state("limits")
def base_of_an_argument(wrap: Wrap, device: torch.device) -> Items:
    """Whether an argument is a view of something."""
    g = wrap(lambda x: x * (1.5 if x._base is None else 2.5))
    big = ramp(0, device, 8)
    for x in (full(1, device), full(2, device), full(3, device), big[:4], big[4:], full(4, device)):
        yield g(x)


@state("limits")
def offset_of_an_argument(wrap: Wrap, device: torch.device) -> Items:
    """Where in its storage an argument begins."""
    big = ramp(0, device, 16)
    g = wrap(lambda x: x * (x.storage_offset() + 1))
    for start in (0, 0, 0, 4, 4, 8, 0):
        yield g(big[start : start + 4])


@state("limits")
def version_of_an_argument(wrap: Wrap, device: torch.device) -> Items:
    """How often an argument was written."""
    x = full(1, device)
    g = wrap(lambda x: x * (x._version + 1))
    for writes in (0, 0, 0, 1, 0, 1, 0):
        for _ in range(writes):
            x.add_(1)
        yield g(x)


@state("limits")
def address_of_an_argument(wrap: Wrap, device: torch.device) -> Items:
    """Whether two arguments begin at one address."""
    g = wrap(lambda x, y: x * (1.5 if x.data_ptr() == y.data_ptr() else 2.5) + y)
    x, y = full(1, device), full(2, device)
    for pair in ((x, y), (x, y), (x, y), (x, x), (y, y), (x, y)):
        yield g(*pair)


@state("limits")
def storage_of_an_argument(wrap: Wrap, device: torch.device) -> Items:
    """How large the storage behind an argument is."""
    g = wrap(lambda x: x * x.untyped_storage().nbytes())
    for x in (full(1, device), full(1, device), full(1, device), ramp(0, device, 8)[:4], full(1, device)):
        yield g(x)


@state("limits")
def hooks_of_an_argument(wrap: Wrap, device: torch.device) -> Items:
    """Whether an argument has hooks."""
    g = wrap(lambda x: x.detach() * (2.5 if x._backward_hooks else 1.5))
    x = full(1, device).requires_grad_()
    handle = None
    for hooked in (False, False, False, True, True, False):
        if hooked and handle is None:
            handle = x.register_hook(lambda grad: grad)
        if not hooked and handle is not None:
            handle.remove()
            handle = None
        yield g(x)


@state("reads")
def same_tensor_twice(wrap: Wrap, device: torch.device) -> Items:
    """Whether two arguments are one tensor."""
    x, y = full(1, device), full(2, device)
    g = wrap(lambda x, y: x * (1.5 if x is y else 2.5) + y)
    for pair in ((x, y), (x, y), (x, y), (x, x), (x, x), (x, y)):
        yield g(*pair)


@state("reads")
def parameter_argument(wrap: Wrap, device: torch.device) -> Items:
    """A parameter and an equal tensor as arguments."""
    p = nn.Parameter(full(1, device), requires_grad=False)
    g = wrap(lambda x, p: x * p * (1.5 if isinstance(p, nn.Parameter) else 2.5))
    yield from each(g, [p, full(1, device)], device)


@state("reads")
def number_of_another_type(wrap: Wrap, device: torch.device) -> Items:
    """1, True, 1.0, 0.0 and -0.0 as arguments."""
    g = wrap(lambda x, k: torch.full((2,), k, device=x.device) + 1 / (x[0] * k))
    yield from each(g, [1, True, 1.0, 0.0, -0.0], device, times=3)


@state("reads")
def huge_integer(wrap: Wrap, device: torch.device) -> Items:
    """Huge integers as arguments."""
    g = wrap(lambda x, k: x * (k % 7))
    yield from each(g, [10**30, 10**30 + 1], device)


@state("reads")
def iterator_argument(wrap: Wrap, device: torch.device) -> Items:
    """A fresh iterator in every call, of another length now and then."""
    g = wrap(lambda x, ks: x * sum(ks))
    for ks in ([1.0], [1.0], [1.0], [1.0, 2.0], [1.0, 2.0], [5.0]):
        yield g(full(1, device), iter(ks))


@state("reads")
def generator_argument(wrap: Wrap, device: torch.device) -> Items:
    """A generator as an argument: the call uses it up."""
    g = wrap(lambda x, ks: x * sum(ks))
    for ks in ([1.0], [1.0], [1.0], [1.0, 2.0], [1.0, 2.0], [5.0]):
        made = (k for k in ks)
        yield g(full(1, device), made), list(made)


@state("reads")
def keyword_order(wrap: Wrap, device: torch.device) -> Items:
    """Keyword arguments in another order."""

    def fn(x: torch.Tensor, **ks: float) -> torch.Tensor:
        for k in ks.values():
            x = (x + 1) * k
        return x

    g = wrap(fn)
    for ks in ({"a": 2.0, "b": 3.0},) * 4 + ({"b": 3.0, "a": 2.0},) * 3:
        yield g(full(1, device), **ks)


@state("reads")
def list_argument_shared(wrap: Wrap, device: torch.device) -> Items:
    """One list as two arguments, and two equal lists."""

    def fn(x: torch.Tensor, a: list[float], b: list[float]) -> torch.Tensor:
        return x * (1.5 if a is b else 2.5) * sum(a)

    g, same = wrap(fn), [1.0]
    for pair in ((same, same),) * 4 + ((same, [1.0]),) * 3:
        yield g(full(1, device), *pair)


@state("effects")
def containers_written_together(wrap: Wrap, device: torch.device) -> Items:
    """Several containers among the arguments are written, put into each other, and taken out."""

    def fn(batch: dict[str, Any], kept: list[Any], made: dict[str, Any]) -> Any:
        batch["y"] = batch.pop("x") * 2
        batch["n"].append(1)
        kept.append(batch["n"])
        kept[0] = batch["y"] + 1
        made["batch"] = batch
        del batch["gone"]
        return made, kept

    g = wrap(fn)
    for n in range(6):
        batch, kept, made = {"x": full(n, device), "gone": [2], "n": [5]}, [0], dict[str, Any]()
        out = g(batch, kept, made)
        same = (out[0] is made, out[1] is kept, made["batch"] is batch, kept[1] is batch["n"])
        yield same, kept, [*batch], batch["n"]


class Doubled(collections.namedtuple("Doubled", "a b")):
    """A named tuple that doubles what it is given."""

    def __new__(cls, a: Any, b: Any) -> Any:
        return super().__new__(cls, a * 2, b)


class Next(collections.namedtuple("Next", "a b")):
    """A named tuple that is made of one value."""

    def __new__(cls, a: Any) -> Any:
        return super().__new__(cls, a, a + 1)


@state("effects")
def named_tuples_that_make_themselves(wrap: Wrap, device: torch.device) -> Items:
    """Classes of named tuples whose ``__new__`` changes what it is given, and takes something else."""

    g = wrap(lambda pair, x: (Doubled(pair.a * 2, pair.b), Next(x), [pair]))
    for n in range(6):
        yield g(Doubled(full(n, device), 1), full(n, device))


@state("reads")
def names_of_arguments(wrap: Wrap, device: torch.device) -> Items:
    """Named arguments that are called as parts of a wrapper may be."""

    class Owner:
        def method(this, **given: torch.Tensor) -> Any:  # noqa: N805
            return [*given], sum(given.values())

    g = wrap(lambda **given: ([*given], sum(given.values())))
    h = wrap(Owner().method)
    for name in ("self", "args", "kwargs", "function", "cls", "call", "key"):
        for n in range(4):
            yield g(**{name: full(n, device)}), h(**{name: full(n, device)})


@state("reads")
def tuples_handed_back(wrap: Wrap, device: torch.device) -> Items:
    """A tuple of the arguments is returned, inside something or bound to state: it is that very tuple."""
    kept = types.SimpleNamespace(last=None)

    def keep(x: torch.Tensor, pair: tuple[Any, ...]) -> torch.Tensor:
        kept.last = pair
        return x * pair[1][0]

    calls: list[Any] = [
        lambda x, pair: (x, pair), lambda x, pair: {"pair": [pair[1], pair]}, lambda x, pair: pair[1], keep,
    ]  # fmt: skip
    for call in calls:
        pair: tuple[Any, ...] = ()
        g = wrap(call)
        for number in range(8):
            if number % 2 == 0:
                pair = torch.ones(4, device=device), (1.5, number // 4)
            out = g(full(number, device), pair)
            inner = out["pair"] if isinstance(out, dict) else out
            parts = inner if isinstance(inner, (list, tuple)) else (inner,)
            yield out, [each is pair or each is pair[1] for each in (inner, *parts)], kept.last is pair


@state("reads")
def one_tuple_for_two_arguments(wrap: Wrap, device: torch.device) -> Items:
    """A tuple is given twice, and then an equal one beside it: the second is returned."""
    one, other = (1, 2), tuple([1, 2])
    g = wrap(lambda x, first, second: (x * first[0], second))
    for pairs in ((one, one), (one, other), (other, one)):
        for number in range(4):
            out = g(full(number, device), *pairs)
            yield out, out[1] is pairs[1]


@state("reads")
def gradient_of_an_argument_that_needs_none(wrap: Wrap, device: torch.device) -> Items:
    """``x.grad`` of an argument that does not require grad comes, changes and goes."""
    g = wrap(lambda x: x * (1.5 if x.grad is None else x.grad))
    for number in range(16):
        x = full(number, device)
        if number // 4 % 2:
            x.grad = full(number + 1, device)
        yield g(x)


class Alike(type):
    """Its classes are equal to each other."""

    def __eq__(cls, other: object) -> bool:
        return isinstance(other, Alike)

    def __hash__(cls) -> int:
        return 7


@state("reads")
def classes_that_are_equal(wrap: Wrap, device: torch.device) -> Items:
    """A class whose metaclass calls it equal to another one, and instances of both."""
    kinds: list[Any] = [Alike("Made", (), {"k": k}) for k in (1.5, 2.5)]
    g = wrap(lambda x, c: x * (c if isinstance(c, type) else c[0]).k)
    yield from each(g, [*kinds, *[[kind()] for kind in kinds]], device)


@state("reads")
def slices_between_anything(wrap: Wrap, device: torch.device) -> Items:
    """The ends of a slice are a list, a tensor, a class."""
    ends: list[Any] = [[1.5], [2.5], full(2, device), full(3, device)]
    yield from each(wrap(lambda x, s: x * s.stop[0]), [slice(end) for end in ends], device)


@state("effects")
def dict_of_an_argument(wrap: Wrap, device: torch.device) -> Items:
    """The dict with an object's attributes is an argument, too, and is written."""

    def call(x: torch.Tensor, o: Any, table: dict[str, Any]) -> torch.Tensor:
        table["k"] = x * 2
        return o.k + 1

    g = wrap(call)
    for number in range(12):
        o = types.SimpleNamespace(k=full(number, device))
        table = vars(o) if number % 4 < 2 else dict(vars(o))
        yield g(full(number, device), o, table), o.k, table["k"]


@state("reads")
def one_tuple_in_two_places(wrap: Wrap, device: torch.device) -> Items:
    """A tuple that the call makes lies in its result twice."""

    def call(x: torch.Tensor) -> dict[str, Any]:
        pair = (x * 2, 1)
        return {"a": pair, "b": [pair, (x * 2, 1)]}

    g = wrap(call)
    for number in range(6):
        out = g(full(number, device))
        yield out, out["b"][0] is out["a"], out["b"][1] is out["a"]
