"""What makes two calls the same: structure, tensor metadata, plain values, ambient state."""

from __future__ import annotations

import enum
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import is_
from typing import Any, NamedTuple

import numpy
import torch

from ...base import Site, bits_of, complex_of, float_bits, float_of, is_instance
from ..numbers import SCALARS, NumberSource, TrackedNumbers
from ..objects import Itself, said_name, tells_itself, text_of
from ..pytorch import is_wrapped, plain_functions, stands_for_others
from .ambient import Ambient, explain_ambient, read_ambient
from .bound import Laid, StandingLeaves, target_at
from .leaves import (
    Spec,
    arrays_in,
    beside_leaves,
    branch_names,
    containers,
    filled,
    flatten,
    has_branches,
    paths,
    rebuilt,
    repeated,
    replaceable_in,
    slots_of_leaves,
    unflatten,
)
from .opened import Opening, Openings, address_of, is_default
from .places import StatePlace, table_of
from .values import ends_of, value_token

TENSOR, PARAMETER, PLAIN, OPAQUE, FOREIGN = "tensor", "parameter", "plain", "opaque", "foreign"
_FILLED = "leaf with a gradient"

_SCALARS = (int, bool, str, bytes, type(None))
_VALUES = (
    torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format, range, type(Ellipsis),
)  # fmt: skip
_THEMSELVES = (enum.Enum, type, types.FunctionType, types.BuiltinFunctionType)


class Key(NamedTuple):
    """What two calls have in common that may share recordings.

    Attributes:
        spec: Structure of ``(args, kwargs)``; behind them of what is carried, by name, if anything is.
        tokens: Comparable form of each leaf.
        common: How tensors share memory, containers that are one object with an earlier one, and
            :class:`OfState`.
        ambient: The state around the call.
        added: Names of the attributes that users added to each tensor; none for those of compiled code.
        gradients: The leaves with something in their ``.grad``, or hooks, once calls have asked for that.
        borrowed: The leaves in memory that others have as well (:func:`is_borrowed`).
        overlapping: The leaves that share such memory with one of another storage.
    """

    spec: Spec
    tokens: tuple[Any, ...]
    common: tuple[Any, ...]
    ambient: Ambient
    added: tuple[tuple[str, ...], ...] = ()
    gradients: tuple[int, ...] = ()
    borrowed: tuple[int, ...] = ()
    overlapping: tuple[int, ...] = ()


GivenParts = tuple[Any, ...]
"""Positional arguments, keyword arguments, and by name what is carried, if anything is."""

STATE = "state"
"""In names, what is carried: ``state['policy.hidden']``."""

CHANGES = "changes"
"""In the place of a number in a key: calls are told apart by what they do with it, and not here."""

_NONE: Mapping[type, Opening] = {}
_NOWHERE: frozenset[int] = frozenset()


class CompiledInput(NamedTuple):
    """What an input of compiled code is in the program that was compiled.

    Attributes:
        name: How the program calls it: ``self.layers.0.weight``, ``x``.
        site: The first line that uses it, if it is known.
        stays: It is a parameter, a buffer or marked by ``mark_static_address``; it hardly ever moves.
    """

    name: str
    site: Site | None = None
    stays: bool = False


class Call(NamedTuple):
    """One call, taken apart.

    Attributes:
        kinds: For each leaf one of TENSOR, PARAMETER, PLAIN, OPAQUE, FOREIGN.
        key: Two calls with equal keys may share recordings.
        given: The arguments as the caller gave them, and what lay in the slots that are carried, by name.
        foreign: Name of a tensor that cannot be placed (a subclass, sparse, nested), or None.
        again: Containers that are one object with an earlier one.
        openings: Which classes of arguments are taken apart.
        opened: The classes that were in this call.
        state: Random generators outside that the key looks at, as it does at those among the arguments.
        inputs: What the leaves are in the program, if compiled code is called.
        apart: Tensors that may share memory with each other, which makes no difference.
        met: The branches, once they were asked for: the callable may change the arguments afterwards.
    """

    spec: Spec
    leaves: tuple[Any, ...]
    kinds: tuple[str, ...]
    key: Key
    given: GivenParts
    foreign: str | None = None
    again: tuple[tuple[int, int], ...] = ()
    openings: Openings | None = None
    opened: Mapping[type, Opening] = _NONE
    state: tuple[tuple[StatePlace, torch.Generator], ...] = ()
    inputs: tuple[CompiledInput, ...] = ()
    carried: tuple[StatePlace, ...] = ()
    apart: frozenset[int] = frozenset()
    met: list[Any] | None = None

    @property
    def changing(self) -> frozenset[int]:
        """The leaves that are numbers which the key does not have."""
        tokens = self.key.tokens
        return frozenset([place for place, token in enumerate(tokens) if token[-1] is CHANGES])

    @property
    def arrays(self) -> tuple[int, ...]:
        """The leaves that are tensors over the memory of arrays."""
        return arrays_in(self.spec) if numpy.ndarray in self.opened else ()

    @property
    def added(self) -> tuple[tuple[str, ...], ...]:
        """Names of the attributes that users added to each tensor."""
        return self.key.added

    def names(self) -> list[str]:
        """Name of every leaf: ``args[0]``, ``kwargs['mask']``, or what the compiled program calls it."""
        if self.inputs:
            return [each.name for each in self.inputs]
        return _names(self.spec)

    def line_of(self, leaf: int) -> Site | None:
        """The line that uses a parameter or buffer of compiled code; None for all other arguments."""
        return self.inputs[leaf].site if self.inputs and self.inputs[leaf].stays else None

    def addresses(self) -> tuple[int, ...]:
        """Where the inputs of compiled code lie, 0 for what is no plain parameter; empty for other calls."""
        if not self.inputs:
            return ()
        return tuple([leaf.data_ptr() if type(leaf) is torch.nn.Parameter else 0 for leaf in self.leaves])

    def met_by_value(self) -> Iterator[tuple[str, Any]]:
        """Objects that the callable gets at besides the leaves and branches, with names.

        The key says which these are, and nothing of what they hold.
        """
        beside = [each for spec, prefix in _parts(self.spec) for each in beside_leaves(spec, prefix)]
        sets = [(name, leaf) for name, leaf in zip(self.names(), self.leaves, strict=True)
                if type(leaf) in (frozenset, slice)]  # fmt: skip
        for name, value in (*beside, *sets):
            yield from [(name, each) for each in _parts_by_identity(value)]

    def foreign_name(self) -> str:
        """Name of the first leaf that cannot be placed, where there is one."""
        return self.names()[self.kinds.index(FOREIGN)]

    def following(self, numbers: TrackedNumbers, leaves: tuple[Any, ...]) -> tuple[Any, ...]:
        """The leaves, with those objects for numbers that are followed."""
        if not numbers.leaves or not numbers.follows:
            return leaves
        names, found = self.names(), list(leaves)
        for place in sorted(numbers.leaves):
            found[place] = numbers.take(NumberSource("", None, place, names[place]), leaves[place])
        return tuple(found)

    @property
    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the callable is called with."""
        return self.given[0], self.given[1]

    def given_with(self, leaves: tuple[Any, ...]) -> GivenParts:
        """What was given, with these leaves in the place of those that can be replaced."""
        if all(map(is_, leaves, self.leaves)):
            return self.given
        args, *named = self.given
        replaceable = iter(replaceable_in(self.spec))

        def placed(value: Any) -> Any:
            spec, places = next(replaceable)
            if all([leaves[place] is self.leaves[place] for place in places]):
                return value
            return unflatten(spec, iter([leaves[place] for place in places]))

        held = tuple([placed(each) for each in args])
        return held, *[{name: placed(each) for name, each in table.items()} for table in named]

    def lay(self, given: GivenParts, leaves: tuple[Any, ...] | None = None) -> Laid:
        """Lay what is carried into its slots, as it was given or what stands for it.

        What stands for numbers among the leaves, if they are told, is laid into the caller's containers.
        """
        laid = Laid()
        for place in self.carried:
            if (target := target_at(place)) is not None:  # else nobody can read it any more
                laid.lay(target, given[2][place.name], self.given[2][place.name])
        if leaves is None or all(map(is_, leaves, self.leaves)):
            return laid
        for spec, places, target in slots_of_leaves(self.spec, self.given):
            if not all([leaves[place] is self.leaves[place] for place in places]):
                stands = unflatten(spec, iter([leaves[place] for place in places]))
                laid.lay(target, stands, target.read())
        return laid

    def filled_with(self, leaves: Sequence[Any]) -> tuple[GivenParts, StandingLeaves]:
        """What was given, with other leaves in the caller's own containers and objects.

        What cannot be changed, as a tuple, is made anew. The caller's gets its leaves back from what is
        returned besides.
        """
        stands = StandingLeaves(self.branches(), zip(leaves, self.leaves, strict=True))
        args, *named = self.given
        given = filled(self.spec, (args, *map(dict, named)), iter(leaves), self.again)
        stands.add(zip(containers(self.spec, given), self.branches(), strict=True))
        return given, stands

    def rebuild(self, leaves: list[Any]) -> GivenParts:
        """Put arguments of the same structure together from other leaves."""
        if self.opened:
            return rebuilt(self.spec, self.given, iter(leaves), self.again)
        return unflatten(self.spec, iter(leaves), self.again)

    def branches(self) -> list[Any]:
        """The containers and objects of the caller that were taken apart, as they were at first."""
        met = self.met if self.met is not None else []
        if not met:
            met.extend(containers(self.spec, self.given))
        return met

    def generators(self) -> dict[int, torch.Generator]:
        """The random generators that were taken apart: by branch, those outside by numbers below 0.

        Each is there once. A default one is left out: it is drawn from in other ways, too, and the key tells
        which one it is.
        """
        if torch.Generator not in self.opened:
            return {}
        found = [*enumerate(self.branches()), *[(~n, each) for n, (_, each) in enumerate(self.state)]]
        numbers: dict[int, int] = {}
        for number, each in found:
            if type(each) is torch.Generator and not is_default(each):
                numbers.setdefault(address_of(each), number)
        of = dict(found)
        return {number: of[number] for number in numbers.values()}

    def branch_names(self) -> list[str]:
        """Name of every branch."""
        return ["", *[name for spec, prefix in _parts(self.spec) for name in branch_names(spec, prefix)]]

    def groups(self) -> list[list[int]]:
        """The tensor leaves (no parameters), those that overlap together."""
        leaves, kinds = self.leaves, self.kinds
        found = [i for i, kind in enumerate(kinds) if kind == TENSOR and leaves[i].layout is torch.strided]
        groups = grouped([leaves[i] for i in found], _among(found, self.apart))
        return [[found[position] for position in group] for group in groups]

    def is_changed(self) -> bool:
        """Whether something else lies in the arguments by now; an equal plain value is nothing else."""
        leaves: list[Any] = []
        spec = flatten(self.given, leaves, self.opened if self.openings is not None else None, cuts=True)
        if spec != self.spec:
            return True
        for place in self.arrays:  # each look makes tensors anew
            if _place(leaves[place]) == _place(self.leaves[place]):
                leaves[place] = self.leaves[place]
        return not all(map(_is_as_it_was, leaves, self.leaves, self.kinds))


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), describe_tensor(tensor)


def _is_as_it_was(now: Any, was: Any, kind: str) -> bool:
    return now is was or (kind is PLAIN and describe(now) == describe(was))


def bind(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    openings: Openings | None = None,
    inputs: tuple[CompiledInput, ...] = (),
) -> Call:
    """Take a call's arguments apart and compute its key.

    Args:
        openings: Which classes are taken apart.
        inputs: What the leaves are in the program, if compiled code is called.
    """
    leaves: list[Any] = []
    opened = openings.open if openings is not None else None
    given: GivenParts = args, kwargs
    places: tuple[StatePlace, ...] = ()
    if openings is not None and openings.carried.open:
        places, held = openings.carried.look()
        given = (args, kwargs, held) if places else given
    spec = flatten(given, leaves, opened)
    told = openings is not None and openings.gradients
    described = [
        (PARAMETER, (_FILLED, id(leaf))) if told and _is_filled(leaf) else describe(leaf) for leaf in leaves
    ]
    kinds = tuple([kind for kind, _ in described])
    tensors = [place for place, kind in enumerate(kinds) if kind is TENSOR]
    shared = [leaves[place] for place in tensors]
    foreign = _foreign(leaves[kinds.index(FOREIGN)]) if FOREIGN in kinds else None
    borrowed = tuple([place for place in tensors if is_borrowed(leaves[place])])
    overlapping = overlapping_of(leaves, borrowed)
    arrays = arrays_in(spec) if overlapping and opened and numpy.ndarray in opened else ()
    if foreign is None and (over := [place for place in arrays if place in overlapping]):
        foreign = "an array over memory of another argument"
        kinds = tuple([FOREIGN if place == over[0] else kind for place, kind in enumerate(kinds)])
    again = repeated(spec, given) if has_branches(spec) else ()
    state = openings.look() if openings is not None else ()
    apart = openings.apart.get(spec, _NOWHERE) if openings is not None else _NOWHERE
    common = (sharing(shared, _among(tensors, apart)) if len(shared) > 1 else ()) + again
    if state:
        common = (*common, _of_state(state, containers(spec, given)))
    changing = openings.numbers.get(spec) if openings is not None and openings.numbers else None
    if changing:
        described = [
            (kind, (token[0], CHANGES)) if place in changing and token[0] in SCALARS else (kind, token)
            for place, (kind, token) in enumerate(described)
        ]
    added = tuple([tuple(leaf.__dict__) for leaf in shared]) if not inputs else ()  # compilers mark theirs
    gradients = tuple([place for place in tensors if has_gradient(leaves[place])]) if told else ()
    tokens = tuple([token for _, token in described])
    key = Key(spec, tokens, common, read_ambient(), added, gradients, borrowed, overlapping)
    return Call(
        spec, tuple(leaves), kinds, key, given, foreign, again, openings, opened or _NONE,
        state=tuple([(place, each) for place, each, _ in state]),
        inputs=inputs if len(inputs) == len(leaves) else (),
        carried=places, apart=apart, met=[],
    )  # fmt: skip


def _among(places: list[int], some: frozenset[int]) -> frozenset[int]:
    """Which of some places are among others, by their number there."""
    return frozenset([number for number, place in enumerate(places) if place in some]) if some else _NOWHERE


class OfState(NamedTuple):
    """The part of a key about random generators outside.

    Attributes:
        told: What each says of itself, by the name of its slot.
        first: For each, after those among the arguments, the first that is the same one.
    """

    told: tuple[tuple[str, tuple[Any, ...]], ...]
    first: tuple[int, ...]


def _of_state(
    state: tuple[tuple[StatePlace, torch.Generator, tuple[Any, ...]], ...], branches: Iterable[Any]
) -> OfState:
    given = [each for each in branches if type(each) is torch.Generator]
    numbers: dict[int, int] = {}
    all_of_them = [*given, *[each for _, each, _ in state]]
    first = [numbers.setdefault(address_of(each), number) for number, each in enumerate(all_of_them)]
    return OfState(tuple([(place.name, told) for place, _, told in state]), tuple(first))


def describe(leaf: Any) -> tuple[str, Any]:
    """Kind and comparable form of an argument leaf."""
    if type(leaf) is torch.Tensor and is_plain(leaf):  # by far the most frequent
        return TENSOR, describe_tensor(leaf)
    if is_instance(leaf, torch.Tensor):
        if isinstance(leaf, torch.nn.Parameter) and not stands_for_others(leaf):
            return PARAMETER, ("parameter", id(leaf))
        plain = type(leaf) is torch.nn.Buffer and is_plain(leaf)
        return (TENSOR, describe_tensor(leaf)) if plain else (FOREIGN, (type(leaf), id(leaf)))
    kind = type(leaf)
    if type(kind) is not type and type(kind).__hash__ is None:  # nothing can be kept by the class
        return FOREIGN, (object, id(leaf))
    if kind is float:
        return PLAIN, (float, float_bits(leaf))
    if kind in _SCALARS:
        return PLAIN, (kind, leaf)
    if issubclass(kind, numpy.generic) and not table_of(leaf):
        return PLAIN, (kind, leaf.tobytes())
    if kind is complex:
        return PLAIN, (complex, bits_of(leaf))
    if kind is range:  # two that give the same numbers are equal, and may differ in their ends
        return PLAIN, (range, leaf.start, leaf.stop, leaf.step)
    if is_instance(leaf, _VALUES):
        return PLAIN, (kind, leaf)
    if is_instance(leaf, _THEMSELVES):
        return PLAIN, (kind, leaf if tells_itself(kind) else Itself(leaf))
    if (token := value_token(leaf, _plain_token)) is not None:
        return PLAIN, token
    return OPAQUE, (kind if tells_itself(type(kind)) else object, id(leaf))


def _is_filled(leaf: Any) -> bool:
    """Whether a tensor is a leaf of autograd's with a gradient, which may stay one as a parameter does."""
    return (
        type(leaf) is torch.Tensor
        and is_plain(leaf)
        and leaf.requires_grad
        and leaf.is_leaf
        and leaf.grad is not None
    )


def is_known_by_identity(leaf: Any) -> bool:
    """Whether the key has a plain leaf itself, whose contents may change, and no copy of it."""
    return isinstance(leaf, _THEMSELVES)


def _parts_by_identity(value: Any) -> Iterator[Any]:
    """The objects in a value of which a key has no copy."""
    if type(value) in (tuple, frozenset, slice):
        for each in ends_of(value) if type(value) is slice else value:
            yield from _parts_by_identity(each)
    elif is_known_by_identity(value) or describe(value)[0] is not PLAIN:
        yield value


def _plain_token(leaf: Any) -> tuple[Any, ...] | None:
    kind, token = describe(leaf)
    return token if kind is PLAIN else None


def _foreign(leaf: Any) -> str:
    """What it is that cannot be placed, or told from others."""
    if not is_instance(leaf, torch.Tensor):
        return f"of a class without a hash ({said_name(type(leaf))})"
    kind = "tensor" if type(leaf) is torch.Tensor else type(leaf).__name__
    with plain_functions():  # to look at a tensor of the user's class is not to use it
        if is_wrapped(leaf):
            return f"a {kind} left over from a torch.func transform"
        if leaf.is_quantized:
            return f"a quantized {kind} ({leaf.dtype})"
        if leaf.is_nested:
            return f"a nested {kind}"
        return f"a {kind} with layout {leaf.layout}" if leaf.layout is not torch.strided else f"a {kind}"


def is_plain(leaf: torch.Tensor) -> bool:
    """Whether a tensor is memory with strides and nothing else."""
    return (
        leaf.layout is torch.strided and not leaf.is_quantized and not leaf.is_nested and not is_wrapped(leaf)
    )


_TENSOR_FIELDS = (
    "shape", "stride()", "dtype", "device", "requires_grad", "is_leaf", "__class__",
    "is_inference()", "is_conj()", "is_neg()",
)  # fmt: skip


def describe_tensor(leaf: torch.Tensor) -> tuple[Any, ...]:
    """Comparable form of a tensor argument: all metadata that decides what an operation does with it."""
    return (
        leaf.shape, leaf.stride(), leaf.dtype, leaf.device, leaf.requires_grad, leaf.is_leaf,
        type(leaf), leaf.is_inference(), leaf.is_conj(), leaf.is_neg(),
    )  # fmt: skip


def has_gradient(tensor: torch.Tensor) -> bool:
    """Whether there is something in the ``.grad`` of a leaf, or a hook waits for what comes there."""
    if not tensor.is_leaf or (tensor.grad is None and not tensor._backward_hooks):
        return tensor.is_leaf and bool(getattr(tensor, "_post_accumulate_grad_hooks", None))
    return True


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte and end of the part of its storage that a strided tensor covers."""
    start: int = tensor.storage_offset()  # pyright: ignore[reportAssignmentType]
    end = start
    if tensor.numel():
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        end += 1 + sum((size - 1) * stride for size, stride in steps)
    return start * tensor.itemsize, end * tensor.itemsize


def overlaps(tensors: list[torch.Tensor]) -> list[list[int]]:
    """Group tensors that cover common memory, by position; tensors apart in one storage are apart."""
    if len(tensors) < 2:
        return [[position] for position in range(len(tensors))]
    ranges: list[tuple[int, int, int, int]] = []
    for position, tensor in enumerate(tensors):
        handle = tensor.untyped_storage()._cdata if tensor.numel() else -position - 1
        ranges.append((handle, *extent(tensor), position))
    ranges.sort()
    groups: list[list[int]] = []
    last_handle, last_end = 0, -1
    for handle, start, end, position in ranges:
        if groups and handle == last_handle and start < last_end:
            groups[-1].append(position)
            last_end = max(last_end, end)
        else:
            groups.append([position])
            last_handle, last_end = handle, end
    return sorted(sorted(group) for group in groups)


def grouped(tensors: list[torch.Tensor], apart: frozenset[int]) -> list[list[int]]:
    """The same, but different objects that may share memory are apart."""
    found = overlaps(tensors)
    for group in found if apart else ():
        if len(group) > 1 and apart.issuperset(group) and len({id(tensors[each]) for each in group}) > 1:
            found = [each for each in found if each is not group] + [[each] for each in group]
    return sorted(found)


def sharing(tensors: list[torch.Tensor], apart: frozenset[int] = _NOWHERE) -> tuple[Any, ...]:
    """Which tensor arguments share memory, how they lie relative to each other, and which are one object.

    A program sees the last by ``q is k``, where attention takes another way. Where no call writes them, how
    those ``apart`` lie among each other makes no difference.
    """
    pointers = [tensor.untyped_storage()._cdata for tensor in tensors]
    if len(set(pointers)) == len(pointers):
        return ()
    first_of: dict[int, int] = {}
    ones = [first_of.setdefault(id(tensor), position) for position, tensor in enumerate(tensors)]
    found: list[Any] = [tuple(ones)] if len(first_of) < len(ones) else []
    for group in grouped(tensors, apart):
        if len(group) > 1:
            first = min(extent(tensors[position])[0] for position in group)
            found.append(tuple((position, extent(tensors[position])[0] - first) for position in group))
    return tuple(found)


def is_borrowed(tensor: torch.Tensor) -> bool:
    """Whether a tensor lies in memory of the host that numpy or somebody else has as well.

    Several storages may lie there. Of all other memory the storage tells who shares it.
    """
    return tensor.is_cpu and not tensor.untyped_storage().resizable()


def overlapping_of(leaves: Sequence[Any], borrowed: Collection[int]) -> tuple[int, ...]:
    """The leaves that share memory with one of another storage; one of two such is borrowed."""
    if len(borrowed) == 0 or len(leaves) < 2:
        return ()
    ranges: list[tuple[int, int, int, int]] = []
    for place, leaf in enumerate(leaves):
        if is_instance(leaf, torch.Tensor) and leaf.is_cpu and is_plain(leaf) and leaf.numel():
            start, end = extent(leaf)
            storage = leaf.untyped_storage()
            first = storage.data_ptr()
            ranges.append((first + start, first + end, storage._cdata, place))
    ranges.sort()
    found: set[int] = set()
    for number, (_, end, storage, place) in enumerate(ranges):
        for start, _, other, beside in ranges[number + 1 :]:
            if start >= end:
                break
            if other != storage:
                found.update((place, beside))
    return tuple(sorted(found))


def _names(spec: Spec) -> list[str]:
    return [name for part, prefix in _parts(spec) for name in paths(part, prefix)]


def _parts(spec: Spec) -> list[tuple[Spec, str]]:
    """What is given, with the words before names in it."""
    return [*zip(spec.children, ("args", "kwargs", STATE), strict=False)]


def explain_key(was: Key, call: Call, places: tuple[int, ...] = ()) -> str:
    """Say which argument makes a call's key differ from another key.

    Args:
        places: Where the arguments of the other key lay (:meth:`Call.addresses`).
    """
    now = call.key
    if was.spec != now.spec:
        return _explain_structure(_names(was.spec), _names(now.spec))
    at = differing_leaf(was, call)
    if at is not None:
        name, before, after = call.names()[at], was.tokens[at], now.tokens[at]
        lay, lies = (found[at] if found else 0 for found in (places, call.addresses()))
        if lay and lies:
            return f"{name} was a parameter at {lay:#x} and is another one at {lies:#x}"
        return name + _explain_token(before, after)
    if was.common != now.common:
        state = _explain_state(was.common, now.common)
        return state or "other arguments share memory, or are one object, than before"
    if was.added != now.added:
        return "tensors among the arguments have other attributes of one's own"
    if was.gradients != now.gradients:
        at = min({*was.gradients} ^ {*now.gradients})
        return call.names()[at] + (".grad was None" if at in now.gradients else ".grad is None now")
    if was.borrowed != now.borrowed:
        at = min({*was.borrowed} ^ {*now.borrowed})
        return f"{call.names()[at]} lies in memory of an array {'now' if at in now.borrowed else 'no more'}"
    if was.overlapping != now.overlapping:
        return "other arguments share memory than before"
    return explain_ambient(was.ambient, now.ambient) or "nothing differs"


def differing_leaf(was: Key, call: Call) -> int | None:
    """The first leaf that makes a call's key differ from another key of the same structure, if one does."""
    if was.spec != call.key.spec:
        return None
    pairs = enumerate(zip(was.tokens, call.key.tokens, strict=False))
    return next((number for number, (before, after) in pairs if before != after), None)


def changed_numbers(was: Key, call: Call) -> frozenset[int]:
    """The arguments in which a call differs from a key, if these are numbers of the same types."""
    now = call.key
    if (was.spec, *was[2:]) != (now.spec, *now[2:]):
        return frozenset()
    replaceable = {place for _, places in replaceable_in(now.spec) for place in places}
    replaceable.update([leaf for each in slots_of_leaves(call.spec, call.given) for leaf in each.leaves])
    found = {
        place for place, (one, other) in enumerate(zip(was.tokens, now.tokens, strict=True)) if one != other
    }
    kinds = [(was.tokens[place][0], now.tokens[place][0], call.kinds[place]) for place in found]
    plain = all([one is other and one in SCALARS and kind is PLAIN for one, other, kind in kinds])
    return frozenset(found) if found <= replaceable and plain else frozenset()


def family(key: Key) -> Key | None:
    """What calls have in common that differ in their parameters alone; None where there is none."""
    if not any(token[0] == PARAMETER for token in key.tokens):
        return None
    return key._replace(tokens=tuple([token[:1] if token[0] == PARAMETER else token for token in key.tokens]))


def _lengths_of(key: Key) -> Key | None:
    """What calls have in common that differ in the sizes of tensors inside containers and objects alone.

    Such are the steps of a loop over states that grow. Whole numbers beside those tensors are positions, so
    they may differ as well. None where there is no such tensor.
    """
    names = [*_names(key.spec)]
    if len(names) != len(key.tokens):
        return None
    holders = [name[: max(name.rfind("."), name.rfind("["))] for name in names]
    states = {
        holder
        for name, holder, token in zip(names, holders, key.tokens, strict=True)
        if name.count("[") + name.count(".") > 1 and isinstance(token[0], torch.Size)
    }
    tokens = [
        _without_length(token) if holder in states else token
        for holder, token in zip(holders, key.tokens, strict=True)
    ]
    return key._replace(tokens=tuple(tokens)) if tuple(tokens) != key.tokens else None


def at_any_length(key: Key) -> Key:
    """What calls have in common that differ in whole numbers and in the sizes of tensors alone."""
    return key._replace(tokens=tuple(map(_without_length, key.tokens)))


def _without_length(token: tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(token[0], torch.Size):
        return len(token[0]), *token[2:]
    return token[:1] if token[0] is int and token[-1] is not CHANGES else token


def may_follow(was: Key, call: Call) -> bool:
    """Whether a call differs from a key in a number of which it is not known that calls depend on it."""
    openings = call.openings
    pairs = enumerate(zip(was.tokens, call.key.tokens, strict=True))
    numbers = [place for place, (one, other) in pairs if one != other and other[0] is int]
    return bool(numbers) and (openings is None or not openings.are_fixed(call.spec, numbers))


def _explain_state(was: tuple[Any, ...], now: tuple[Any, ...]) -> str | None:
    """What differs in the random generators outside, unless it is which of them are one."""
    before, after = (
        dict([each for part in parts if type(part) is OfState for each in part.told]) for parts in (was, now)
    )
    for name in {**before, **after}:
        if name not in before or name not in after:
            return f"{name} is looked at from now on" if name in after else f"{name} is no generator any more"
        for (label, one), (_, other) in zip(before[name][1:], after[name][1:], strict=False):
            if one != other:
                return f"{name}.{label} was {one} and is {other}"
    return None


def _explain_structure(was: list[str], now: list[str]) -> str:
    """Which leaves came and which went; of many the first ones."""
    before, after = set(was), set(now)
    parts = [f"{name} is new" for name in now if name not in before]
    parts += [f"{name} is not given" for name in was if name not in after]
    if not parts:
        return "the structure of the arguments differs"
    more = f" and {len(parts) - 3} more" if len(parts) > 3 else ""
    return ", ".join(parts[:3]) + more


def remedy_of_key(was: Key, call: Call) -> str:
    """What to do about the difference that :func:`explain_key` tells; nothing if the rule says it."""
    at = differing_leaf(was, call)
    if at is None:
        return ""
    before, after = was.tokens[at], call.key.tokens[at]
    if isinstance(before[0], torch.Size):
        return _GROWS if _grown_axis(before[0], after[0]) is not None and _lengths_of(call.key) else ""
    if before[0] in (int, float, complex) and after[0] is before[0]:
        return "Call with it during the warm-up; a number that often changes is better passed as a tensor."
    if call.inputs and before[0] == after[0] == PARAMETER:
        return MOVED_PARAMETER
    return ONE_OBJECT if _show(before) == _show(after) else ""


def _grown_axis(before: torch.Size, after: Any) -> int | None:
    """The axis along which one shape differs from another; None if it is not one axis."""
    if not isinstance(after, torch.Size) or len(before) != len(after):
        return None
    found = [axis for axis, (one, other) in enumerate(zip(before, after, strict=True)) if one != other]
    return found[0] if len(found) == 1 else None


def told_lengths(known: Iterable[Key], call: Call) -> str:
    """How many sizes of a state that grows have keys of their own, and what one size for all would bring."""
    common, sizes = _lengths_of(call.key), dict[int, set[int]]()
    alike = [key for key in known if _lengths_of(key) == common] if common is not None else []
    for key in alike:
        at = differing_leaf(key, call)
        axis = _grown_axis(key.tokens[at][0], call.key.tokens[at][0]) if at is not None else None
        if at is not None and axis is not None:
            sizes.setdefault(at, {call.key.tokens[at][0][axis]}).add(key.tokens[at][0][axis])
    if not sizes:
        return ""
    at, met = max(sizes.items(), key=lambda item: len(item[1]))
    lengths = f"{len(met)} lengths of it from {min(met)} to {max(met)}"
    return f"; {lengths} have keys of their own, and padded to one they would share one recording"


_GROWS = (
    "Each length is recorded once it has come again. In memory of the largest size, with a mask and a "
    "position (StaticCache in transformers), all lengths share one recording."
)
"""What to do about a state that grows."""

MOVED_PARAMETER = "Update it in place (copy_). Modules that share compiled code have a recording each."
"""What to do about a parameter of compiled code that is another one."""

ONE_OBJECT = "Pass one and the same object, or the tensors in it (in tuples, lists, dicts or dataclasses)."
"""What to do about an argument that is known by its identity."""


def _explain_token(was: Any, now: Any) -> str:
    """The text behind the name of an argument."""
    before, after = _show(was), _show(now)
    if now[-1] is CHANGES:
        kind = now[0].__name__
        return f" was {before} and is another {kind}; from now on calls are told apart by what they do"
    if before != after:
        return f" was {before} and is {after}"
    if isinstance(was[0], torch.Size):
        pairs = zip(_TENSOR_FIELDS, was, now, strict=True)
        return next(f".{name} was {one} and is {other}" for name, one, other in pairs if one != other)
    hint = "; pass arrays as tensors: torch.from_numpy(array)" if was[0] is numpy.ndarray else ""
    return f" was {before} and is another one (such arguments are known by their identity{hint})"


def _show(token: Any) -> str:
    kind = token[0]
    if token[-1] is CHANGES:
        return f"any {kind.__name__}"
    if isinstance(kind, torch.Size):
        shape, stride, dtype, device = token[:4]
        return f"{str(dtype).removeprefix('torch.')}{list(shape)} strides {list(stride)} on {device}"
    if isinstance(kind, str):
        return f"a {kind}"
    if kind is float:
        return repr(float_of(token[1]))
    if kind is complex:
        return repr(complex_of(token[1]))
    if issubclass(kind, (numpy.number, numpy.bool_)) and isinstance(token[1], bytes):
        return f"{kind.__name__}({numpy.frombuffer(token[1], kind)[0].item()!r})"
    if kind in _SCALARS or is_instance(token[1], (*_VALUES, *_THEMSELVES, Itself)):
        return text_of(token[1])
    if kind in (frozenset, slice) and isinstance(token[1], tuple):
        members = ", ".join(map(_show, token[1]))
        return f"slice({members})" if kind is slice else f"frozenset({{{members}}})"
    if isinstance(token[1], str):
        return token[1]
    return f"a {kind.__name__}"


def describe_key(call: Call) -> str:
    """A short, readable form of a call's key for reports."""
    parts: list[str] = []
    for name, kind, leaf in zip(call.names(), call.kinds, call.leaves, strict=True):
        if kind in (TENSOR, PARAMETER):
            parts.append(f"{name}: {str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}")
        elif kind == PLAIN and call.key.tokens[len(parts)][-1] is CHANGES:
            parts.append(f"{name}: {type(leaf).__name__}")
        elif kind == PLAIN:
            text = text_of(leaf)
            parts.append(f"{name}: {text if len(text) <= 40 else text[:37] + '...'}")
        else:
            parts.append(f"{name}: {type(leaf).__name__}")
    return "(" + ", ".join(parts) + ")"
