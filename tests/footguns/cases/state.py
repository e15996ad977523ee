"""State: what a callable keeps between calls, and what is changed behind it from outside."""

from __future__ import annotations

import functools
import os
import sys
import types
import weakref
from array import array
from collections import ChainMap, defaultdict, deque
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from tests.footguns.case import Kind, Wrap, case, full, ramp
from torch import nn

Items = Iterator[Any]
SCALE = 1.0
TEMPERATURE: ContextVar[float] = ContextVar("temperature", default=1.0)


def frozen(device: torch.device, *sizes: int) -> nn.Linear:
    """A layer without gradients; 3 to 3 features unless told."""
    return nn.Linear(*(sizes or (3, 3))).to(device).requires_grad_(False)


def change_at(call: int, g: Any, change: Any, arguments: Any, calls: int = 14) -> Items:
    """Call ``g`` repeatedly; before one of the calls something changes."""
    for i in range(calls):
        if i == call:
            change()
        yield g(arguments(i))


@case(Kind.RIGHT)
def attribute_made_in_the_first_call(wrap: Wrap, device: torch.device) -> Items:
    """A layer that makes its scale from the first input it sees."""

    class Lazy(nn.Module):
        scale: torch.Tensor | None = None

        def forward(self, x):
            if self.scale is None:
                self.scale = x.abs().max() + 1  # RT201
            return x / self.scale

    m = Lazy()
    g = wrap(m)
    for i in range(10):
        yield g(full(i, device)), m.scale


@case(Kind.WRONG)
def attribute_rebound_for_some_batches(wrap: Wrap, device: torch.device) -> Items:
    """Calibration: the range is rebound for four batches, then stays."""

    class Calibrated(nn.Module):
        seen, top = 0, None

        def forward(self, x):
            if self.seen < 4:
                self.seen += 1  # RT201
                self.top = x.max() if self.top is None else torch.maximum(self.top, x.max())
            return x / self.top

    m = Calibrated()
    g = wrap(m)
    for i in range(14):
        yield g(full(i + 1, device)), m.seen, m.top


@case(Kind.WRONG)
def moving_average_rebound_at_every_call(wrap: Wrap, device: torch.device) -> Items:
    """A moving average is a new tensor after every call, and read after every call."""

    class Average(nn.Module):
        value = torch.zeros(4, device=device)

        def forward(self, x):
            self.value = 0.9 * self.value + 0.1 * x  # RT201 wrong
            return x - self.value

    m, held = Average(), []
    g = wrap(m)
    for i in range(12):
        yield g(full(i, device)), m.value
        held.append(m.value)
    yield held


@case(Kind.WRONG)
def buffer_updated_in_place(wrap: Wrap, device: torch.device) -> Items:
    """A buffer is updated in place; between two calls it is replaced by a fresh one."""
    m = nn.Module()
    m.register_buffer("total", torch.zeros(4, device=device))

    def fn(x):
        m.total.add_(x)  # RT301
        return m.total / 2

    g = wrap(fn)
    for i in range(14):
        if i == 7:
            m.total = torch.zeros(4, device=device)
        yield g(full(i, device)), m.total


@case(Kind.WRONG)
def batch_norm_statistics(wrap: Wrap, device: torch.device) -> Items:
    """Running statistics of a batch norm: updated in training, used in evaluation."""
    m = nn.BatchNorm1d(3).to(device).requires_grad_(False)
    g = wrap(m)
    for i in range(24):
        m.train(i % 6 < 3)
        yield g(torch.randn(8, 3, device=device)), m.running_mean, m.num_batches_tracked


@case(Kind.WRONG)
def python_counter_in_a_number(wrap: Wrap, device: torch.device) -> Items:
    """A counter in Python scales the result."""
    o = types.SimpleNamespace(step=0)

    def fn(x):
        o.step += 1  # RT201 wrong
        return x * o.step  # wrong

    g = wrap(fn)
    for i in range(12):
        yield g(full(i, device)), o.step


@case(Kind.WRONG)
def python_counter_beside(wrap: Wrap, device: torch.device) -> Items:
    """A counter that no tensor depends on has to count all the same."""
    o = types.SimpleNamespace(calls=0)

    def fn(x):
        o.calls += 1  # RT201
        return x * 2

    g = wrap(fn)
    for i in range(12):
        yield g(full(i, device)), o.calls


@case(Kind.WRONG, replays=False)
def growing_cache(wrap: Wrap, device: torch.device) -> Items:
    """Keys of all steps so far are concatenated at every call."""
    o = types.SimpleNamespace(keys=torch.zeros(0, 4, device=device))

    def fn(x):
        o.keys = torch.cat([o.keys, x[None]])  # RT201 wrong
        return o.keys.mean(0)

    g = wrap(fn)
    for i in range(12):
        yield g(full(i, device)), o.keys


@case(Kind.WRONG)
def results_appended_to_a_list(wrap: Wrap, device: torch.device) -> Items:
    """The callable appends what it computed to a list outside."""
    history: list[torch.Tensor] = []

    def fn(x):
        history.append(x * 2)
        return x + 1

    g = wrap(fn)
    for i in range(10):
        yield g(full(i, device)), len(history)
    yield history


@case(Kind.RIGHT)
def static_cache_with_a_tensor_position(wrap: Wrap, device: torch.device) -> Items:
    """A cache of fixed size, written at a position that is a tensor."""
    cache, position = torch.zeros(24, 4, device=device), torch.zeros(1, dtype=torch.int64, device=device)

    def fn(x):
        cache.index_copy_(0, position, x[None])
        position.add_(1)
        return cache.sum(0)

    g = wrap(fn)
    for i in range(12):
        yield g(full(i, device)), cache, position


@case(Kind.WRONG)
def static_cache_with_a_python_position(wrap: Wrap, device: torch.device) -> Items:
    """A cache of fixed size, written at a position that Python counts."""
    o = types.SimpleNamespace(cache=torch.zeros(24, 4, device=device), position=0)

    def fn(x):
        o.cache[o.position] = x  # wrong
        o.position += 1  # RT201 wrong
        return o.cache.sum(0)

    g = wrap(fn)
    for i in range(12):
        yield g(full(i, device)), o.cache


@case(Kind.WRONG)
def static_cache_with_the_position_as_argument(wrap: Wrap, device: torch.device) -> Items:
    """Several sequences are decoded with the position passed as a Python number."""
    cache = torch.zeros(4, 4, device=device)

    def fn(x, position):
        cache[position] = x
        return cache[: position + 1].sum(0)

    g = wrap(fn)
    for i in range(24):
        yield g(full(i, device), i % 4), cache


@case(Kind.WRONG)
def attribute_changed_from_outside(wrap: Wrap, device: torch.device) -> Items:
    """A temperature is set on the module between two calls, and set back later."""
    m = frozen(device)
    m.temperature = 1.0
    g = wrap(lambda x: m(x) / m.temperature)  # RT302
    for i in range(20):
        m.temperature = 0.5 if 6 <= i < 12 else 1.0
        yield g(ramp(i, device))


@case(Kind.WRONG)
def closure_cell_changed(wrap: Wrap, device: torch.device) -> Items:
    """A variable of the function around is rebound."""
    scale = 1.0

    def change():
        nonlocal scale
        scale = 5.0

    g = wrap(lambda x: x * scale)  # RT302
    yield from change_at(6, g, change, lambda i: full(i, device))


@case(Kind.WRONG)
def closure_tensor_replaced(wrap: Wrap, device: torch.device) -> Items:
    """A tensor that the function reaches is replaced by another one."""
    mask = torch.ones(4, device=device)

    def change():
        nonlocal mask
        mask = torch.zeros(4, device=device)

    yield from change_at(6, wrap(lambda x: x * mask), change, lambda i: full(i, device))


@case(Kind.WRONG)
def global_changed(wrap: Wrap, device: torch.device) -> Items:
    """A global of the module is rebound."""

    def change(value=5.0):
        global SCALE
        SCALE = value

    change(1.0)
    yield from change_at(6, wrap(lambda x: x * SCALE), change, lambda i: full(i, device))


@case(Kind.WRONG)
def list_element_changed(wrap: Wrap, device: torch.device) -> Items:
    """An element of a list of coefficients is replaced."""
    coefficients = [1.0, 2.0, 3.0]
    g = wrap(lambda x: sum(c * x**n for n, c in enumerate(coefficients)))
    yield from change_at(6, g, lambda: coefficients.__setitem__(1, -2.0), lambda i: full(i, device))


@case(Kind.WRONG)
def configuration_changed(wrap: Wrap, device: torch.device) -> Items:
    """A key is added to a nested configuration, which the code asks for with a default."""
    config: dict[str, Any] = {"attention": {}}
    g = wrap(lambda x: x * config["attention"].get("scale", 1.0))
    change = lambda: config["attention"].update(scale=4.0)  # noqa: E731
    yield from change_at(6, g, change, lambda i: full(i, device))


@case(Kind.WRONG)
def train_and_eval(wrap: Wrap, device: torch.device) -> Items:
    """Dropout is on in training and off in evaluation."""
    m = nn.Sequential(frozen(device), nn.Dropout(0.5), frozen(device))
    g = wrap(m)
    for i in range(20):
        m.train(i % 10 < 5)
        yield g(ramp(i, device))


@case(Kind.WRONG)
def module_swapped(wrap: Wrap, device: torch.device) -> Items:
    """A layer is exchanged for another one."""
    m = nn.Sequential(frozen(device), nn.ReLU(), frozen(device))
    yield from change_at(6, wrap(m), lambda: m.__setitem__(2, nn.Softmax(1)), lambda i: ramp(i, device))


@case(Kind.WRONG)
def layer_appended(wrap: Wrap, device: torch.device) -> Items:
    """A layer is added at the end of a list of layers."""
    layers = nn.ModuleList([frozen(device)])

    def fn(x):
        for layer in layers:
            x = layer(x).relu()
        return x

    yield from change_at(6, wrap(fn), lambda: layers.append(frozen(device)), lambda i: ramp(i, device))


@case(Kind.WRONG)
def parameter_replaced(wrap: Wrap, device: torch.device) -> Items:
    """A parameter is replaced by a new one, the old one lives on."""
    m, old = frozen(device), []

    def change():
        old.append(m.weight)
        m.weight = nn.Parameter(m.weight * 3, requires_grad=False)

    yield from change_at(6, wrap(m), change, lambda i: ramp(i, device))


@case(Kind.WRONG)
def parameter_data_rebound(wrap: Wrap, device: torch.device) -> Items:
    """``weight.data = ...`` leaves the object and moves its memory."""
    m = frozen(device)
    change = lambda: setattr(m.weight, "data", m.weight.data * 3)  # noqa: E731
    yield from change_at(6, wrap(m), change, lambda i: ramp(i, device))


@case(Kind.WRONG)
def parameter_freed_and_its_memory_reused(wrap: Wrap, device: torch.device) -> Items:
    """The old weights are freed, and other tensors of the same size take their place in memory."""
    m, others = frozen(device, 64, 64), []

    def change():
        m.weight = None
        others.extend(torch.full((64, 64), 9.0, device=device) for _ in range(4))
        m.weight = nn.Parameter(torch.eye(64, device=device), requires_grad=False)

    yield from change_at(6, wrap(m), change, lambda i: ramp(i, device, 2, 64))


@case(Kind.WRONG)
def state_dict_assigned(wrap: Wrap, device: torch.device) -> Items:
    """``load_state_dict(assign=True)`` puts the loaded tensors in the parameters' place."""
    m, other = frozen(device), frozen(device)
    change = lambda: m.load_state_dict(other.state_dict(), assign=True)  # noqa: E731
    yield from change_at(6, wrap(m), change, lambda i: ramp(i, device))


@case(Kind.RIGHT)
def state_dict_copied(wrap: Wrap, device: torch.device) -> Items:
    """``load_state_dict`` copies into the parameters that are there."""
    m, other = frozen(device), frozen(device)
    yield from change_at(6, wrap(m), lambda: m.load_state_dict(other.state_dict()), lambda i: ramp(i, device))


@case(Kind.WRONG)
def adapter_added_and_removed(wrap: Wrap, device: torch.device) -> Items:
    """A low-rank adapter is attached to a layer for a while."""

    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.base, self.adapters = frozen(device), nn.ModuleDict()

        def forward(self, x):
            return self.base(x) + sum(up(x) for up in self.adapters.values())

    m = Adapted()
    g = wrap(m)
    for i in range(18):
        if i == 6:
            m.adapters["lora"] = nn.Sequential(frozen(device, 3, 1), frozen(device, 1, 3))
        if i == 12:
            del m.adapters["lora"]
        yield g(ramp(i, device))


@case(Kind.RIGHT)
def optimizer_steps_between(wrap: Wrap, device: torch.device) -> Items:
    """Between two graphed evaluations the model is trained by plain code, in place."""
    m = nn.Linear(3, 1).to(device)
    o = torch.optim.SGD(m.parameters(), lr=0.01)
    g = wrap(torch.no_grad()(lambda x: m(x)))
    for i in range(10):
        o.zero_grad()
        m(ramp(i, device)).mean().backward()
        o.step()
        yield g(ramp(1, device))


@case(Kind.WRONG)
def hook_added_later(wrap: Wrap, device: torch.device) -> Items:
    """A forward hook is registered on a layer, and removed again."""
    m = nn.Sequential(frozen(device), nn.ReLU())
    g = wrap(m)
    hook = None
    for i in range(18):
        if i == 6:
            hook = m[0].register_forward_hook(lambda module, args, out: out * 3)
        if i == 12:
            hook.remove()
        yield g(ramp(i, device))


@case(Kind.WRONG)
def activations_taken_by_a_hook(wrap: Wrap, device: torch.device) -> Items:
    """A hook keeps a layer's activations; they are read after each call, and held."""
    m, taken, held = nn.Sequential(frozen(device), nn.ReLU()), {}, []
    m[0].register_forward_hook(lambda module, args, out: taken.update(last=out))
    g = wrap(m)
    for i in range(10):
        yield g(ramp(i, device)), taken["last"]
        held.append(taken["last"])
    yield held


@case(Kind.WRONG)
def parameter_data_seen_as_another_type(wrap: Wrap, device: torch.device) -> Items:
    """``weight.data = ...`` leaves object, address and shape, and reads the bytes as another type."""
    m = frozen(device, 2, 3)
    g = wrap(lambda x: x * m.bias.sum())
    change = lambda: setattr(m.bias, "data", m.bias.data.abs().view(torch.int32))  # noqa: E731
    yield from change_at(6, g, change, lambda i: full(i, device))


@case(Kind.WRONG)
def module_converted(wrap: Wrap, device: torch.device) -> Items:
    """The module is converted to another precision, in place."""
    m = frozen(device)
    g = wrap(lambda x: m(x.to(m.weight.dtype)))
    yield from change_at(6, g, m.double, lambda i: ramp(i, device))


@case(Kind.WRONG)
def parameters_swapped_for_averaged_ones(wrap: Wrap, device: torch.device) -> Items:
    """Evaluation swaps averaged weights in and out again, as EMA helpers do."""
    m = frozen(device)
    usual, average = m.weight.data, m.weight.data.clone() * 0.5
    g = wrap(m)
    for i in range(16):
        m.weight.data = average if i % 8 >= 4 else usual
        yield g(ramp(i, device))


@case(Kind.WRONG)
def method_replaced_on_the_instance(wrap: Wrap, device: torch.device) -> Items:
    """The activation function of a block is exchanged."""
    block = types.SimpleNamespace(layer=frozen(device), activation=F.relu)
    g = wrap(lambda x: block.activation(block.layer(x)))
    yield from change_at(6, g, lambda: setattr(block, "activation", torch.tanh), lambda i: ramp(i, device))


@case(Kind.WRONG)
def context_variable_set(wrap: Wrap, device: torch.device) -> Items:
    """A setting is kept in a context variable, set around some calls."""
    g = wrap(lambda x: x * TEMPERATURE.get())
    for i in range(20):
        before = TEMPERATURE.set(1.0 + i // 7)
        yield g(full(i, device))
        TEMPERATURE.reset(before)


@case(Kind.WRONG)
def environment_variable_set(wrap: Wrap, device: torch.device) -> Items:
    """The code asks for an environment variable, which is set later and removed again."""
    g = wrap(lambda x: x * float(os.environ.get("ROTE_FOOTGUN_SCALE", "1")))
    try:
        for i in range(18):
            if i == 6:
                os.environ["ROTE_FOOTGUN_SCALE"] = "3"
            if i == 12:
                del os.environ["ROTE_FOOTGUN_SCALE"]
            yield g(full(i, device))
    finally:
        os.environ.pop("ROTE_FOOTGUN_SCALE", None)


@case(Kind.REFUSED)
def table_by_length(wrap: Wrap, device: torch.device) -> Items:
    """Positional encodings are cached in a dict by length, and the cache is cleared once."""
    tables: dict[int, torch.Tensor] = {}

    def fn(x):
        n = len(x)
        if n not in tables:
            tables[n] = torch.arange(n, device=device).float().cos()
        return x * tables[n]

    g = wrap(fn)
    for i in range(45):
        if i == 15:
            tables.clear()
        yield g(full(i, device, size=3 + i % 3)), sorted(tables)


@case(Kind.REFUSED, replays=None)
def table_in_an_lru_cache(wrap: Wrap, device: torch.device) -> Items:
    """Positional encodings are kept by ``functools.lru_cache``, which is cleared once."""

    @functools.lru_cache
    def table(n: int) -> torch.Tensor:
        return torch.arange(n, device=device).float().cos()

    g = wrap(lambda x: x * table(len(x)))  # RT201
    for i in range(18):
        if i == 12:
            table.cache_clear()
        yield g(full(i, device, size=3 + i % 3)), table.cache_info().currsize


@case(Kind.WRONG)
def weights_tied_and_untied(wrap: Wrap, device: torch.device) -> Items:
    """Two layers share a weight that the callable updates; then one of them gets its own."""
    a, b = frozen(device), frozen(device)
    b.weight = a.weight

    def fn(x):
        a.weight.mul_(0.5)
        return b(x)

    g = wrap(fn)
    for i in range(14):
        if i == 7:
            b.weight = nn.Parameter(torch.ones(3, 3, device=device), requires_grad=False)
        yield g(ramp(i, device)), a.weight, b.weight


@case(Kind.WRONG)
def buffers_swapped_inside(wrap: Wrap, device: torch.device) -> Items:
    """Two buffers change places at every call."""
    o = types.SimpleNamespace(a=torch.zeros(4, device=device), b=torch.ones(4, device=device))

    def fn(x):
        o.a, o.b = o.b, o.a  # RT201 wrong
        o.a.add_(x)
        return o.a * 2

    g = wrap(fn)
    for i in range(14):
        yield g(full(i, device)), o.a, o.b


@case(Kind.WRONG)
def buffers_swapped_outside(wrap: Wrap, device: torch.device) -> Items:
    """Two buffers change places between the calls."""
    o = types.SimpleNamespace(a=torch.zeros(4, device=device), b=torch.ones(4, device=device))

    def fn(x):
        o.a.add_(x)
        return o.a * 2

    g = wrap(fn)
    for i in range(14):
        o.a, o.b = o.b, o.a
        yield g(full(i, device)), o.a, o.b


@case(Kind.WRONG)
def window_of_the_last_inputs(wrap: Wrap, device: torch.device) -> Items:
    """The callable keeps the last three inputs in a deque."""
    window: deque[torch.Tensor] = deque(maxlen=3)

    def fn(x):
        window.append(x * 1)  # RT201 wrong
        return torch.stack(list(window)).mean(0)

    g = wrap(fn)
    for i in range(12):
        yield g(full(i, device)), len(window)


@case(Kind.WRONG)
def recurrent_states(wrap: Wrap, device: torch.device) -> Items:
    """An LSTM's state goes from call to call; a weight is replaced, which it keeps in a list as well."""
    m, state, held = nn.LSTM(3, 4).to(device).requires_grad_(False), None, []
    g = wrap(m)
    for i in range(16):
        if i == 8:
            m.weight_hh_l0 = nn.Parameter(m.weight_hh_l0 * 2, requires_grad=False)
        y, state = g(ramp(i, device) / 10) if state is None else g(ramp(i, device) / 10, state)
        held.append((y, state))
        yield held[-1]
    yield held


@case(Kind.WRONG)
def parametrization_registered(wrap: Wrap, device: torch.device) -> Items:
    """A weight becomes a function of another tensor, as with weight or spectral norm."""
    m = frozen(device)

    class Double(nn.Module):
        def forward(self, weight):
            return weight * 2

    def change():
        nn.utils.parametrize.register_parametrization(m, "weight", Double())

    yield from change_at(6, wrap(m), change, lambda i: ramp(i, device))


@case(Kind.WRONG)
def parameters_passed_as_a_dict(wrap: Wrap, device: torch.device) -> Items:
    """``functional_call`` with sets of parameters that are exchanged as a whole."""
    m = frozen(device)
    o = types.SimpleNamespace(parameters={name: p.clone() for name, p in m.named_parameters()})
    g = wrap(lambda x: torch.func.functional_call(m, o.parameters, (x,)))
    for i in range(16):
        if i == 8:
            o.parameters = {name: p * 3 for name, p in o.parameters.items()}
        yield g(ramp(i, device))


class Settings:
    """A configuration that answers to every name, with a KeyError for those it does not have."""

    def __init__(self, table: dict[str, Any]) -> None:
        self.__dict__["table"] = table

    def __getattr__(self, name: str) -> Any:
        return self.table[name]


@case(Kind.WRONG)
def configuration_that_answers_to_every_name(wrap: Wrap, device: torch.device) -> Items:
    """A configuration object looks attributes up in a dict, and raises KeyError for others."""
    settings = Settings({"scale": 1.0})
    change = lambda: settings.table.update(scale=4.0)  # noqa: E731
    yield from change_at(6, wrap(lambda x: x * settings.scale), change, lambda i: full(i, device))


@case(Kind.WRONG)
def static_method_reads_a_closure(wrap: Wrap, device: torch.device) -> Items:
    """Static methods, class methods and properties look at variables of the function around."""
    scales = [1.0, 2.0, 3.0]

    class Scales:
        @staticmethod
        def first():
            return scales[0]

        @classmethod
        def second(cls):
            return scales[1]

        @property
        def third(self):
            return scales[2]

    o = Scales()
    g = wrap(lambda x: (x * o.first(), x * o.second(), x * o.third))
    for i in range(24):
        if i % 6 == 5:
            scales[i // 6 % 3] += 10
        yield g(full(i, device))


@case(Kind.WRONG)
def default_of_a_defaultdict(wrap: Wrap, device: torch.device) -> Items:
    """The factory of a defaultdict reads a variable that changes."""
    scale = [1.0]
    scales: dict[str, float] = defaultdict(lambda: scale[0])

    def fn(x):
        y = x * scales["layer"]
        scales.clear()
        return y

    yield from change_at(8, wrap(fn), lambda: scale.__setitem__(0, 4.0), lambda i: full(i, device), calls=18)


@case(Kind.WRONG)
def module_imported_inside(wrap: Wrap, device: torch.device) -> Items:
    """The callable imports a configuration module when it runs, and a constant there changes."""
    config = types.ModuleType("rote_footgun_config")
    config.scale = 1.0

    def fn(x):
        import rote_footgun_config

        return x * rote_footgun_config.scale

    sys.modules[config.__name__] = config
    try:
        yield from change_at(6, wrap(fn), lambda: setattr(config, "scale", 4.0), lambda i: full(i, device))
    finally:
        del sys.modules[config.__name__]


@case(Kind.WRONG)
def objects_in_sets_and_weak_tables(wrap: Wrap, device: torch.device) -> Items:
    """What is looked at lies in objects in a set, a WeakKeyDictionary and a ChainMap."""
    defaults = {"scale": 1.0}
    group = frozenset([Settings({"scale": 1.0})])
    owner = Settings({})
    table = weakref.WeakKeyDictionary({owner: types.SimpleNamespace(scale=1.0)})
    chain = ChainMap({}, defaults)

    def fn(x):
        return [x * each.scale for each in (*group, *table.values())] + [x * chain["scale"]]

    g = wrap(fn)
    for i in range(28):
        if i in (7, 14, 21):
            (next(iter(group)).table, vars(table[owner]), defaults)[i // 7 - 1]["scale"] = 3.0
        yield g(full(i, device))


@case(Kind.WRONG)
def attribute_of_a_parameter(wrap: Wrap, device: torch.device) -> Items:
    """A scale is kept as an attribute of the parameter it belongs to, as quantizers do."""
    m = frozen(device)
    m.weight.scale = 1.0
    g = wrap(lambda x: m(x) * m.weight.scale)
    yield from change_at(6, g, lambda: setattr(m.weight, "scale", 4.0), lambda i: ramp(i, device))


@case(Kind.WRONG)
def class_changed(wrap: Wrap, device: torch.device) -> Items:
    """A class gets an attribute, then a method that overrides another; a class inside it changes."""

    class Base:
        def scaled(self, x):
            return x * getattr(self, "scale", 1.0)

    class Block(Base):
        class Config:
            shift = 0.0

    block = Block()
    g = wrap(lambda x: block.scaled(x) + block.Config.shift)
    for i in range(28):
        if i == 7:
            Block.scale = 3.0
        if i == 14:
            Block.Config.shift = 5.0
        if i == 21:
            Block.scaled = lambda self, x: x * 7
        yield g(full(i, device))


@case(Kind.WRONG)
def numbers_in_an_array(wrap: Wrap, device: torch.device) -> Items:
    """A coefficient lies in an ``array.array``, then in a small numpy array."""
    first, second = array("d", [1.0]), numpy.ones(2)
    g = wrap(lambda x: x * first[0] + float(second[1]))
    for i in range(21):
        if i == 7:
            first[0] = 3.0
        if i == 14:
            second[1] = 5.0
        yield g(full(i, device))


@case(Kind.WRONG)
def mask_replaced_at_every_call(wrap: Wrap, device: torch.device) -> Items:
    """The caller puts a new tensor into an attribute before every call."""
    o = types.SimpleNamespace(mask=torch.ones(4, device=device))
    g = wrap(lambda x: x * o.mask)  # RT301
    for i in range(14):
        o.mask = full(i % 2, device)
        yield g(full(i, device))


@case(Kind.WRONG)
def schedule_set_at_every_call(wrap: Wrap, device: torch.device) -> Items:
    """The caller counts steps in an attribute, and the callable computes a factor from it."""
    o = types.SimpleNamespace(step=0)
    g = wrap(lambda x: x * min(1.0, o.step / 10))  # RT302
    for i in range(18):
        o.step = i
        yield g(full(i, device))
