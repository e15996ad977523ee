"""What is found out about code that reads attributes without naming them."""

from __future__ import annotations

import dataclasses
import operator

import pytest
import torch
from torch import nn

from rote.signature.bytecode import CodeFacts, fixed_parameters
from rote.signature.reflection import facts_of

FIELD = "hidden"


def of(function) -> CodeFacts:
    return facts_of(function.__code__)


def test_names_and_strings():
    def read(x):
        return x.first.second(x.third, ["fourth", ("fifth",)], "a.sixth", "{0.seventh} {1[2].eighth}")

    facts = of(read)
    assert {"first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"} <= facts.names
    assert not facts.whole and not facts.named and not facts.open


def test_code_that_is_defined_inside_is_another():
    def outer(x):
        return lambda: x.inner

    assert "inner" not in of(outer).names


def by_parameter(x, name):
    return getattr(x, name)


def by_keyword(x, *, name):
    return hasattr(x, name) and x.__getattribute__(name)


def by_default(x, name):
    return getattr(x, name, None)


def by_method(x, name):
    return object.__getattribute__(x, name)


def by_namespace(x, name):
    return x.__dict__[name] if name in x.__dict__ else x.__dict__.get(name)


class Super:
    def __getattribute__(self, name):
        return super().__getattribute__(name)


@pytest.mark.parametrize(
    "function", [by_parameter, by_keyword, by_default, by_method, by_namespace, Super.__getattribute__]
)
def test_a_name_that_is_a_parameter(function):
    facts = of(function)
    assert facts.named == ("name",) and not facts.whole and not facts.open


def by_computed(x, name):
    return getattr(x, name + "_")


def by_loop(x):
    return [getattr(x, name) for name in FIELD]


def by_vars(x):
    return vars(x)


def by_dict(x):
    return dict(x.__dict__)


def by_dir(x):
    return dir(x)


def by_star(x):
    return (lambda **values: values)(**x.__dict__)


def by_string(x):
    return getattr(x, "__dict__")  # noqa: B009


@pytest.mark.parametrize("function", [by_computed, by_vars, by_dict, by_dir, by_star, by_string])
def test_an_object_that_is_a_parameter(function):
    facts = of(function)
    assert facts.whole == (("x",),) and not facts.open


def test_an_object_in_an_attribute_of_a_parameter():
    facts = of(lambda x, k: getattr(x.config.inner, k + "_"))
    assert facts.whole == (("x", "config", "inner"),) and not facts.open


def test_a_name_in_a_global():
    facts = of(lambda x: getattr(x, FIELD))
    assert facts.named_globals == ("FIELD",) and not facts.open


def passed_on(x, name):
    return list(map(getattr, [x], [name]))


def stored(x, name):
    get = getattr
    return get(x, name)


def starred(x, name):
    return getattr(*(x, name))


def conditional(x, name, flag):
    return getattr(x, "a" if flag else name)


def either(x, y, name, flag):
    return getattr(x if flag else y, name + "_")


def chosen(x, name, flag):
    read = getattr if flag else by_parameter
    for _ in range(2):  # compilers may repeat a short end on both ways, where all is known
        read(x, name)


def assigned(x, name):
    x = [x][0]
    return getattr(x, name + "_")


def nested(x, name):
    def change():
        nonlocal x
        x = None

    return getattr(x, name + "_"), change


def computed(x):
    return operator.attrgetter("".join(["a", "b"]))(x)


def namespace_by_getter(x):
    return operator.attrgetter("__dict__")(x)


def called_by_caller(x, name):
    return operator.methodcaller("__getattribute__", name)(x)


def imported(x, name):
    from operator import attrgetter as get

    return get(name)(x)


def reduced(x):
    return x.__reduce_ex__(4)


def of_result(x):
    return vars(operator.itemgetter(0)(x))


def quoted(x):
    return __builtins__["getattr"](x, FIELD)


def positions(x):
    match x:
        case CodeFacts(names):
            return names


def formatted(x, text):
    return "".join([text]).format(x)


@pytest.mark.parametrize(
    "function",
    [
        *(passed_on, stored, starred, either, assigned, nested, computed, namespace_by_getter),
        *(called_by_caller, imported, reduced, of_result, quoted, positions, formatted),
    ],
)
def test_what_is_not_understood_is_open(function):
    assert of(function).open


@pytest.mark.parametrize("function", [conditional, chosen])
def test_two_ways(function):
    """Python 3.12 compiles the call behind each way of its own, where it is understood."""
    facts = of(function)
    assert facts.open or facts.whole or facts.named


def test_parameters_that_stay():
    assert fixed_parameters(by_parameter.__code__) == {"x", "name"}
    assert fixed_parameters(assigned.__code__) == {"name"}
    assert fixed_parameters(nested.__code__) == {"name"}


def test_comprehensions_read_from_the_function_around():
    def read(x):
        return {name: getattr(x, name + "_") for name in FIELD}

    inner = [each for each in read.__code__.co_consts if hasattr(each, "co_code")]
    facts = facts_of(inner[0]) if inner else of(read)
    assert facts.whole == (("x",),) and not facts.open
    assert facts.free == (("x",) if inner else ())


def test_what_is_stored():
    def store(x, name, value):
        x.first = value
        del x.second
        setattr(x, name, value)

    assert {"first", "second"} <= of(store).stored and of(store).stores_by_name
    assert "first" not in of(lambda x: x.first.third).stored
    assert of(lambda x, name: setattr(x, name + "_", 1)).changed == {("x",)}


@pytest.mark.parametrize(
    "function",
    [
        *(nn.Module.__getattr__, nn.Module._call_impl, nn.Module._wrapped_call_impl, nn.Linear.forward),
        *(nn.Module.register_buffer, nn.Module.named_parameters, nn.Module.train, nn.functional.dropout),
        *(torch.optim.SGD.step, dataclasses.fields, nn.LayerNorm.forward, nn.Sequential.forward),
    ],
)
def test_what_models_run_is_understood(function):
    facts = of(getattr(function, "__wrapped__", function))
    assert not facts.open and not facts.whole


def test_a_module_is_written_by_name():
    assert of(nn.Module.__setattr__).named == ("name",)
    assert of(nn.Module.__delattr__).named == ("name",)
