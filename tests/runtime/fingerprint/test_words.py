"""What a tensor is, read word by word: every change shows, nothing else does, no wrong layout is taken."""

from __future__ import annotations

import abc
import collections
import dataclasses
import gc
import pickle
import re
import sys
import threading
import time
import types
import weakref

import numpy
import pytest
import torch
from torch import nn

from rote.runtime.fingerprint import layout as layouts
from rote.runtime.fingerprint.held import Held
from rote.runtime.fingerprint.layout import (
    CHANGES,
    DICT_CHANGES,
    find_attributes,
    find_cell,
    find_items,
    find_layout,
    find_lengths,
    find_owners,
    find_registrations,
    find_sets,
    find_version,
    place_of_slot,
    place_of_table,
    shows_changes,
)
from rote.runtime.fingerprint.words import (
    EVERYTHING,
    NEVER,
    PORTION,
    Layout,
    NotedWords,
    Words,
    expecting,
    is_readable,
    joined,
    places,
    portions,
    word,
    words_at,
)
from rote.runtime.pytorch import torch_private as compat
from rote.runtime.pytorch.torch_private import sizes_of_objects


@pytest.fixture
def layout() -> Layout:
    found = find_layout()
    assert found is not None, "the words of a tensor are not where this PyTorch was thought to have them"
    return found


def roomy(shape, device):
    """A tensor in memory that has room behind it; complex, so that every change is possible."""
    storage = torch.zeros(4096, dtype=torch.complex64, device=device).untyped_storage()
    strides = torch.empty(shape, device="meta").stride()
    return torch.empty(0, dtype=torch.complex64, device=device).set_(storage, 0, shape, strides)


def make(kind, device):
    """Tensors of all sorts that guards meet."""
    shared = torch.zeros(64, 64, dtype=torch.complex64)
    return {
        "plain": lambda: roomy((4, 6), device),
        "vector": lambda: roomy((7,), device),
        "five dimensions": lambda: roomy((2, 3, 2, 3, 2), device),
        "view": lambda: roomy((64, 60), device)[3:9, 5:40:2],
        "detached view": lambda: roomy((64, 60), device).t()[2:5].detach(),
        "parameter": lambda: nn.Parameter(roomy((4, 6), device), requires_grad=False),
        "flag turned off": lambda: nn.Parameter(roomy((4, 6), device)).requires_grad_(False),
        "buffer": lambda: nn.Buffer(roomy((4, 6), device)),
        "of numpy": lambda: torch.from_numpy(shared.numpy()).to(device)[2:4],
    }[kind]()


KINDS = ("plain", "vector", "five dimensions", "view", "detached view", "parameter", "flag turned off",
         "buffer", "of numpy")  # fmt: skip


@pytest.mark.parametrize("name", sorted(CHANGES))
@pytest.mark.parametrize("kind", KINDS)
def test_every_change_shows(device, layout, kind, name):
    tensors = [torch.zeros(3, device=device), make(kind, device), torch.zeros(2, 2, device=device)]
    assert all(is_readable(layout, tensor) for tensor in tensors)
    seen = Words(layout, tensors)
    assert seen.same() and seen.same()
    if "memory" in name and not tensors[1].untyped_storage().resizable():
        pytest.skip("numpy's memory cannot be resized")
    if name == "result of an operation":
        tensors[1].add_(torch.ones((), device=device, requires_grad=True))
    else:
        CHANGES[name](tensors[1])
    assert not seen.same() and not seen.same()


@pytest.mark.parametrize(
    "name", ["set to other memory", "set to its own memory", "resized", "turned", "emptied"]
)
def test_changes_in_place_show(device, layout, name):
    tensor = torch.zeros(4, 6, device=device)
    seen = Words(layout, [tensor])
    keep = tensor.data
    {
        "set to other memory": lambda: tensor.set_(torch.zeros(4, 6, device=device)),
        "set to its own memory": lambda: tensor.set_(tensor.untyped_storage(), 0, (6, 4), (4, 1)),
        "resized": lambda: tensor.resize_(3, 2),
        "turned": lambda: tensor.t_(),
        "emptied": lambda: tensor.set_(),
    }[name]()
    assert not seen.same() and keep.shape == (4, 6)


def test_two_tensors_whose_implementations_are_exchanged(device, layout):
    one, other = nn.Parameter(torch.zeros(3, device=device)), nn.Parameter(torch.zeros(3, device=device))
    seen = Words(layout, [one, other])
    torch.utils.swap_tensors(one, other)
    assert not seen.same()
    torch.utils.swap_tensors(one, other)
    assert seen.same()


def test_what_leaves_a_tensor_what_it_is_does_not_show(device, layout):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    tensors = list(model.state_dict(keep_vars=True).values())
    model(
        torch.randn(3, 4, device=device)
    ).sum().backward()  # autograd begins to keep things of the parameters
    optimizer.step()
    seen = Words(layout, tensors)
    for to_none in (True, False):
        optimizer.zero_grad(set_to_none=to_none)
        model(torch.randn(3, 4, device=device)).sum().backward()
        optimizer.step()
        assert seen.same()
    with torch.no_grad():
        for tensor in tensors:
            tensor.mul_(2)
    held = (
        [tensor.view(-1) for tensor in tensors],
        [tensor.detach() for tensor in tensors],
        pickle.dumps(tensors),
    )
    references = [weakref.ref(tensor) for tensor in tensors]
    assert seen.same() and held and references
    del held, references
    gc.collect()
    assert seen.same()


def test_a_gradient_does_not_show_even_where_none_is_required(device, layout):
    tensor = torch.zeros(3, device=device).requires_grad_().requires_grad_(False)
    seen = Words(layout, [tensor])
    tensor.grad = torch.ones(3, device=device)
    assert seen.same()


def test_no_tensor_is_kept_alive(device, layout):
    tensor = torch.zeros(3, device=device)
    storage, gone = weakref.ref(tensor.untyped_storage()), weakref.ref(tensor)
    seen = Words(layout, [tensor])
    del tensor
    assert gone() is None and storage() is None and seen


@pytest.mark.parametrize("field", Layout._fields[1:])
@pytest.mark.parametrize("step", [-1, 1])
def test_a_wrong_layout_is_refused(layout, field, step):
    right = getattr(layout, field)
    shift = lambda place: min(place + step, layout.size - 1)  # noqa: E731
    wrong = tuple(map(shift, right)) if isinstance(right, tuple) else shift(right)
    changed = layout._replace(**{field: wrong})
    assert not shows_changes(changed)


@pytest.mark.parametrize("field", ["kinds", "flags"])
def test_a_layout_that_misses_a_word_is_refused(layout, field):
    places = getattr(layout, field)
    for kept in (places[:1], places[-1:]):  # several words may tell of one change
        assert not shows_changes(layout._replace(**{field: kept}))


def test_what_cannot_be_read(device, layout):
    assert not is_readable(layout, torch.zeros(1, 1, 1, 1, 1, 1, device=device))
    assert not is_readable(layout, torch.eye(3, device=device).to_sparse())


def test_the_search_is_the_same_in_any_mode(device, layout):
    with torch.inference_mode(), torch.device(device), torch.autocast(device.type):
        find_layout.cache_clear()
        assert find_layout() == layout


FINDERS = (
    find_layout,
    find_lengths,
    find_owners,
    find_version,
    find_cell,
    find_items,
    find_attributes,
)


@pytest.fixture
def fresh():
    for find in FINDERS:
        find.cache_clear()
    yield
    for find in FINDERS:
        find.cache_clear()


def nothing_is_read():
    return not any(find() for find in FINDERS)


def test_without_the_interpreters_lock_nothing_is_read(fresh, monkeypatch):
    monkeypatch.setattr(compat.sys, "_is_gil_enabled", lambda: False, raising=False)
    assert nothing_is_read()


@pytest.mark.parametrize("version", ["2.10.1", "2.12.0+cu130", "2.14.0a0+git123", "3.0"])
def test_other_versions_of_pytorch_are_not_read(fresh, monkeypatch, version):
    monkeypatch.setattr(torch, "__version__", version)
    assert nothing_is_read()


def test_reading_can_be_switched_off(fresh, monkeypatch):
    monkeypatch.setenv("ROTE_READ_WORDS", "0")
    assert nothing_is_read()


@pytest.mark.parametrize("fewer", ["body", "autograd", "storage"])
def test_objects_that_are_smaller_than_thought(fresh, monkeypatch, fewer):
    sizes = sizes_of_objects()
    assert sizes is not None
    small = sizes._replace(**{fewer: {"body": sizes.body - 1, "autograd": 6, "storage": 2}[fewer]})
    monkeypatch.setattr(layouts, "sizes_of_objects", lambda: small)
    assert find_layout() is None


def test_members_of_lists():
    at = find_items()
    assert at is not None
    for length in (1, 2, 50):
        members = [object() for _ in range(length)]
        start = word(id(members), at)
        assert words_at(places(start, range(length))) == [*map(id, members)]
        members[-1] = None
        assert words_at(places(start, range(length))) == [*map(id, members)]


def test_attributes():
    places_of = find_attributes()
    of_functions = {"__code__", "__defaults__", "__kwdefaults__", "__doc__", "__globals__", "__annotations__"}
    of_partials = {"func", "args", "keywords"}
    names = {"__mro__", "__name__", "__qualname__", "default_factory"}
    assert {name for _, name in places_of} == of_functions | of_partials | names

    def function(first=1):
        return first

    at = places_of[types.FunctionType, "__defaults__"]
    assert word(id(function), at) == id(function.__defaults__)
    function.__defaults__ = None
    assert word(id(function), at) == 0
    at = places_of[types.FunctionType, "__code__"]
    assert word(id(function), at) == id(function.__code__)
    function.__code__ = (lambda first=1: first).__code__
    assert word(id(function), at) == id(function.__code__)
    table = collections.defaultdict(list)
    assert word(id(table), places_of[collections.defaultdict, "default_factory"]) == id(list)


def test_classes_and_their_names():
    places_of = find_attributes()
    kind = abc.ABCMeta("Part", (Plain,), {})
    changes = {"__bases__": (Other,), "__name__": "Another", "__qualname__": "One more"}
    for name, changed in (("__mro__", "__bases__"), ("__name__", "__name__"), ("__qualname__",) * 2):
        before = word(id(kind), places_of[type, name])
        assert before == id(getattr(kind, name))
        setattr(kind, changed, changes[changed])
        assert before != word(id(kind), places_of[type, name]) == id(getattr(kind, name))


class Base(abc.ABC):
    @abc.abstractmethod
    def part(self): ...


class Concrete(Base):
    def part(self):
        return 1


class Plain:
    pass


class Other:
    pass


class Slotted:
    __slots__ = ("__dict__", "part")


class Watching:
    __slots__ = ("value",)

    def __getattribute__(self, name):
        return 1


class Dying:
    __slots__ = ("value",)

    def __del__(self):
        pytest.fail("an instance was made and has died")


@dataclasses.dataclass
class Sized:
    size: int = 3


class Numbers(list):
    pass


@pytest.mark.parametrize("kind", [Plain, Concrete, Slotted, Numbers, nn.Linear, torch.utils.data.Dataset])
def test_where_attributes_lie(kind):
    value = kind(2, 2) if kind is nn.Linear else kind()
    table, place = vars(value), place_of_table(kind)
    assert place is not None and words_at(places(id(value), [place])) == [id(table)]
    other = dict(table)
    object.__setattr__(value, "__dict__", other)
    assert words_at(places(id(value), [place])) == [id(other)]


def test_objects_without_attributes():
    assert place_of_table(int) is None and place_of_table(list) is None


def test_where_attributes_with_a_slot_lie():
    field = dataclasses.fields(Sized)[0]
    for name in ("name", "type", "default", "kw_only"):
        place = place_of_slot(type(field), name)
        assert place is not None and word(id(field), place) == id(getattr(field, name))
        setattr(field, name, now := object())
        assert word(id(field), place) == id(now)


@pytest.mark.parametrize("kind", [Plain, Watching, Dying, tuple, int, torch.Tensor, re.Pattern])
def test_attributes_whose_place_is_not_known(kind):
    assert place_of_slot(kind, "value") is None
    assert place_of_slot(kind, "pattern") is None


def test_tables_of_sets():
    layout = find_sets()
    assert layout is not None
    for length in (0, 1, 3, 8, 60):
        members = [object() for _ in range(length)]
        found = set(members)
        mask, table = words_at(places(id(found), layout))
        keys = words_at(places(table, range(0, 2 * mask + 2, 2)))
        assert [key for key in keys if key] == list(map(id, found))


def test_registrations_show():
    at = find_registrations()
    if at is None:
        pytest.skip("the state of the module of abstract classes is not found")
    before = words_at([at])
    Base.register(Plain)
    assert words_at([at]) != before


def test_of_which_class_an_object_is():
    value, held = Plain(), Held()
    assert held.take_kind(value) and held.take_table(value, vars(value))
    noted = held.stages()[0]
    assert is_same(noted)
    value.__class__ = Other
    assert not is_same(noted)
    value.__class__ = Plain
    assert is_same(noted)
    value.__dict__ = {}
    assert not is_same(noted)


def is_same(stage):
    read, where, were = stage
    return read(where).tobytes() == were


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, collections.defaultdict, list])
def test_whether_containers_are_empty(kind):
    found = [kind() for _ in range(5)]
    lengths = NotedWords([place for each in found for place in places(id(each), [find_lengths()[kind]])])
    for container in found:
        assert lengths.same()
        full = [(1, 2)]
        (container.extend if kind is list else container.update)(full)
        assert not lengths.same()
        container.clear()
        (container.append if kind is list else container.setdefault)(3)
        assert not lengths.same()
        container.pop(-1) if kind is list else container.pop(3)
    assert lengths.same()


def test_no_words_are_always_the_same():
    assert NotedWords([]).same() and NotedWords().same()


def test_what_a_cell_holds():
    place, held = find_cell(), [object(), object()]
    cell = types.CellType(held[0])
    read, where, were = expecting(places(id(cell), [place]), [id(held[0])])
    assert read(where).tobytes() == were
    for each, same in ((held[1], False), (held[0], True), (held[1], False)):
        cell.cell_contents = each
        assert (read(where).tobytes() == were) is same
    del cell.cell_contents
    assert read(where).tobytes() != were


@pytest.fixture
def version():
    if sys.version_info >= (3, 13):
        pytest.skip("this Python does not number the states of a dict")
    found = find_version()
    assert found is not None, "the number of a dict's state is not where it was thought to be"
    return found


@pytest.mark.parametrize("name", sorted(DICT_CHANGES))
@pytest.mark.parametrize("kind", [dict, lambda given: collections.defaultdict(int, given)])
def test_every_change_to_a_dict_shows(version, kind, name):
    found = kind({"a": 1, "b": 2})
    number = NotedWords(places(id(found), [version]))
    assert found["a"] == 1 and list(found.items()) and "c" not in found and found.copy() == found
    found["a"] = found["a"]
    assert number.same() and number.same()
    DICT_CHANGES[name](found)
    assert not number.same() and not number.same()


def test_no_two_states_of_a_dict_have_one_number(version):
    found, seen = {"a": 0, "b": 0}, set()
    for n in range(500):
        found["a"] = n % 2
        seen.add(word(id(found), version))
    assert len(seen) == 500


@pytest.mark.parametrize("write", ["setattr", "assignment", "through the dict", "deleted"])
def test_attributes_of_an_instance_show(version, write):
    """After some rounds the interpreter has specialised the instruction that stores."""

    class Plain:
        pass

    def assign(each, value):
        each.value = value

    def delete(each, value):
        del each.value
        each.value = value

    writes = {
        "setattr": lambda each, value: setattr(each, "value", value),
        "assignment": assign,
        "through the dict": lambda each, value: each.__dict__.update(value=value),
        "deleted": delete,
    }
    one = Plain()
    assign(one, -1)
    number = NotedWords(places(id(one.__dict__), [version]))
    for n in range(200):
        writes[write](one, n)
        assert not number.same()
        number = NotedWords(places(id(one.__dict__), [version]))
        assert number.same()


def test_globals_and_attributes_of_classes_show(version):
    class Plain:
        value = 0

    space = {"value": 0, "Plain": Plain}
    exec("def write(n):\n    global value\n    value = n\n    Plain.value = n", space)
    (of_class,) = gc.get_referents(vars(Plain))
    for of in (space, of_class):
        for n in range(200):
            number = NotedWords(places(id(of), [version]))
            assert number.same()
            space["write"](n + 1000)
            assert not number.same()


def test_stages_that_are_joined():
    one, other = {"a": 1}, {"b": 1}
    at = find_lengths()[dict]
    first, second = NotedWords(places(id(one), [at])).stages[0], NotedWords(places(id(other), [at])).stages[0]
    for changed in (one, other):
        read, where, were = joined(first, second)
        assert read(where).tobytes() == were
        changed["more"] = 1
        assert read(where).tobytes() != were
        del changed["more"]
    read, where, were = NEVER
    assert read(where).tobytes() != were
    assert portions(joined(NEVER, NEVER)) == [NEVER]


@pytest.mark.parametrize("count", [1, PORTION, PORTION + 1, 3 * PORTION + 7])
def test_what_is_read_in_portions(count):
    numbers = numpy.arange(count, dtype=numpy.uint64)
    noted = NotedWords(places(numbers.ctypes.data, range(count)))
    parts = portions(noted.stages[0])
    assert [len(where) for _, where, _ in parts[:-1]] == [PORTION] * (len(parts) - 1)
    assert sum([len(where) for _, where, _ in parts]) == count
    assert words_at(places(numbers.ctypes.data, range(count))) == numbers.tolist()
    for changed in {0, count // 2, count - 1}:
        assert noted.same()
        numbers[changed] += 1
        assert not noted.same()
        numbers[changed] -= 1


def test_a_portion_is_read_without_giving_the_lock_away():
    """Another thread, which runs whenever it can, does not run while a portion is read."""
    numbers = numpy.zeros(PORTION, dtype=numpy.uint64)
    where = numpy.array(places(numbers.ctypes.data, range(PORTION)), dtype=numpy.intp)
    moved, over = [0], threading.Event()

    def run():
        while not over.is_set():
            moved[0] += 1
            time.sleep(0)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    other = threading.Thread(target=run)
    other.start()
    try:
        for _ in range(200):
            at = moved[0]
            read = EVERYTHING[where]
            assert moved[0] == at
            assert not read.any()
    finally:
        over.set()
        sys.setswitchinterval(before)
        other.join()
