"""Writes the check that a call has a known key: the arguments one after the other, then the surroundings.

The text does for one key what :func:`.key.bind` and a comparison of keys would do, with all that is known
about the key written out: no tree is taken apart, no key is made. One call of C++ compares all tensors, by
the dispatch keys that an operation on them would have. So it tells as well that there is no transform of
functions, no trace, no autocast and no inference mode; a plain tensor of the host's is among them, for what
the arguments do not tell. It does not see dispatch modes (it looks past those that compilers use), nor modes
of functions, which have no keys. How arguments share memory is only looked at where they do, or did. A call
that is admitted has the key. One that is not may have it all the same; the general code looks at it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from types import CodeType
from typing import Any

import torch

from ...base import float_bits
from ..objects import form_of, tensor_over
from ..pytorch import (
    current_device,
    is_capturing,
    key_readers,
    metadata_check,
    mode_readers,
    mode_values,
    plain_tensor,
    shows_autocast,
    stream_handle,
    tells_modes,
)
from .key import (
    CHANGES,
    OPAQUE,
    PARAMETER,
    PLAIN,
    TENSOR,
    Call,
    OfState,
    describe,
    describe_tensor,
    has_gradient,
    is_plain,
    overlapping_of,
    sharing,
)
from .leaves import ARRAY, Spec, fields_of, is_mutable, keys_of
from .opened import table_of
from .switches import SWITCHES

NOT_MINE: Any = object()
"""What a generated function returns for a call that is not the one it was made for."""


class Source:
    """Collects lines and constants, and compiles them once; the name shows in tracebacks and profiles."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lines: list[str] = []
        self._depth = 1
        self._names: dict[int, str] = {}
        self._namespace: dict[str, Any] = {"NOT_MINE": NOT_MINE}

    def constant(self, value: Any) -> str:
        """The name under which the function finds an object."""
        known = self._names.get(id(value))
        if known is None:
            known = self._names[id(value)] = f"c{len(self._names)}"
            self._namespace[known] = value  # keeps it alive, so that its identity stays its own
        return known

    def call(self, function: Callable[[], Any]) -> str:
        """The text of a call; of a prepared one its inner call, which is quicker."""
        if isinstance(function, partial) and not function.keywords:
            arguments = [self.constant(each) for each in function.args]
            return f"{self.constant(function.func)}({', '.join(arguments)})"
        return f"{self.constant(function)}()"

    def line(self, text: str) -> None:
        """Add a line."""
        self._lines.append("    " * self._depth + text)

    def refuse(self, condition: str) -> None:
        """The call is not the function's if a condition holds."""
        self.line(f"if {condition}: return NOT_MINE")

    def indent(self, by: int = 1) -> None:
        """Begin a block, or end one with -1."""
        self._depth += by

    @property
    def text(self) -> str:
        """The source so far."""
        return "\n".join([f"def {self._name}(args, kwargs):", *self._lines]) + "\n"

    def compile(self) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
        """The function, of positional and keyword arguments."""
        exec(_code(self.text, self._name), self._namespace)
        return self._namespace.pop(self._name)


@lru_cache(maxsize=256)
def _code(text: str, name: str) -> CodeType:
    """Recordings that are alike in everything but their objects share the code."""
    place = Path(__file__).with_name(f"<{name}>")  # a frame of it is one of ours
    return compile(text, str(place), "exec")


_KINDS = ("cpu", "cuda")
_TEXT = frozenset({str})
_INDEXED = ("tuple", "list", "deque", "namedtuple", "structseq")


class Admission:
    """Writes the check for one key, taken from a call with it; ``sorts`` if the order of keywords is free.

    Attributes:
        stream: The device whose current stream is in the variable ``stream``; -1 if there is none.
        leaves: Names of the variables that hold the leaves, in order.
        generators: Names of the variables that hold the random generators among the arguments, in order.
        state: Names of the variables that hold the generators outside.
        given: The expression of what is given, once the arguments are written.
    """

    def __init__(self, source: Source, call: Call, *, sorts: bool) -> None:
        self.leaves: list[str] = []
        self._source = source
        self._call = call
        self._sorts = sorts
        self._containers = 0
        self._mutable: list[str] = []
        self._objects: list[str] = []
        self.generators: list[str] = []
        self.given = "(args, kwargs)"
        self.state = [f"state{number}" for number in range(len(call.state))]
        self._handles: set[str] = set()
        self._compared: list[torch.Tensor] = []
        self._check: Callable[..., bool] | None = None
        self.stream = call.key.ambient.device

    @staticmethod
    def possible(call: Call) -> bool:
        """Whether a check can be written: known containers only."""
        if call.foreign is not None or call.again or call.key.ambient.default_device is not None:
            return False
        states = [part.first for part in call.key.common if type(part) is OfState]
        return _is_known(call.spec) and all([len({*first}) == len(first) for first in states])

    def write(self) -> None:
        """Write the arguments, and whether work may be given to the device now.

        It leaves out the switches (:meth:`write_switches`), how the arguments share memory
        (:meth:`write_sharing`), and the comparison with tensors outside.
        """
        self._compared = [plain_tensor(), *[self._call.leaves[position] for position in self.apart()]]
        self._check = metadata_check(self._compared) if tells_modes() else None
        self._modes()
        args, kwargs, *carried = self._call.spec.children
        self._unpack(args, "args", given=True)
        self._keywords(kwargs)
        for spec in carried:
            self._carried(spec)
        self._boxes()
        self._outside()
        self._values()
        self._tensors()
        self._place(self.stream)

    def tensors(self) -> list[int]:
        """Positions of the tensors that are no parameters."""
        return [position for position, kind in enumerate(self._call.kinds) if kind is TENSOR]

    def handle(self, position: int) -> str:
        """The variable with the handle of a tensor's storage, written when it is first asked for."""
        name = self.leaves[position]
        if name not in self._handles:
            self._handles.add(name)
            self._source.line(f"on{name} = {name}.untyped_storage()._cdata")
        return f"on{name}"

    def _modes(self) -> None:
        """Nobody else interprets operations; asked first, or they would see how arguments are looked at.

        Modes that see no more than operations show in the dispatch keys of every tensor that is compared.
        """
        source = self._source
        for read, value in (*mode_readers(), *(key_readers() if self._check is None else ())):
            source.refuse(_differs(f"{source.constant(read)}()", value))
        for module, name, value in mode_values():
            source.refuse(_differs(f"{source.constant(module)}.{name}", value))

    # ------------------------------------------------------------------ structure

    def _unpack(self, spec: Spec, name: str, *, given: bool = False) -> None:
        """Take a container apart into variables and go on with its members."""
        kind, cls, names, children = spec
        source = self._source
        if not given:
            made = deque if kind == "deque" else cls
            source.refuse(f"type({name}) is not {source.constant(made)}")
            if made is deque:
                source.refuse(f"{name}.maxlen != {cls}")
            if is_mutable(made):
                self._mutable.append(name)
        if kind == ARRAY:
            form = source.constant(form_of)
            source.refuse(f"{form}({name}) != {source.constant(names[0])}")
            source.line(f"members = ({source.constant(tensor_over)}({name}),)")
            members = "members"
        elif kind == "object":
            source.line(f"names, members = {source.constant(self._call.opened[cls].look)}({name})")
            source.refuse(f"names != {source.constant(names)}")
            members = "members"
            (self.generators if cls is torch.Generator else self._objects).append(name)
        elif kind == "dataclass":
            source.line(f"fields = {source.constant(fields_of)}({name}, {source.constant(cls)})")
            source.refuse(f"fields is None or tuple(fields) != {source.constant(names)}")
            members = "fields.values()"
            if cls.__dictoffset__:
                self._objects.append(name)
        elif kind == "namedtuple":  # its class may have got ways of its own to count and to iterate
            source.refuse(f"{source.constant(tuple.__len__)}({name}) != {len(children)}")
            if cls.__dictoffset__:
                source.refuse(f"{source.constant(table_of)}({name})")
            members = f"{source.constant(tuple.__iter__)}({name})"
        elif kind in _INDEXED:
            source.refuse(f"len({name}) != {len(children)}")
            members = name
        else:
            of_text = type(names) is tuple  # and an equal key of a class derived from text is another one
            keys = f"tuple({name})" if of_text else f"{source.constant(keys_of)}({name})"
            source.refuse(f"{keys} != {source.constant(names)}")
            if of_text and not given:
                source.refuse(
                    f"not {source.constant(_TEXT.issuperset)}(map({source.constant(type)}, {name}))"
                )
            members = f"{name}.values()"
        variables = [self._variable(child) for child in children]
        if variables:
            source.line(f"{', '.join(variables)}, = {members}")
        self._descend(children, variables)

    def _keywords(self, spec: Spec) -> None:
        _, _, names, children = spec
        source = self._source
        if not names:
            source.refuse("kwargs")
            return
        if len(names) == 1 or not self._sorts:
            self._unpack(spec, "kwargs", given=True)
            return
        source.refuse(f"len(kwargs) != {len(names)}")
        variables = [self._variable(child) for child in children]
        for name, variable in zip(names, variables, strict=True):
            source.line(f"{variable} = kwargs.get({name!r}, NOT_MINE)")
        self._descend(children, variables)

    def _carried(self, spec: Spec) -> None:
        """What lies in the slots that are carried."""
        source, call = self._source, self._call
        variables = [self._variable(child) for child in spec.children]
        slots = [*zip(variables, call.carried, strict=True)]
        for variable, place in slots:
            source.line(f"{variable} = {source.constant(place.now)}()")
        named = ", ".join([f"{place.name!r}: {variable}" for variable, place in slots])
        self.given = f"(args, kwargs, {{{named}}})"
        self._descend(spec.children, variables)

    def _descend(self, children: tuple[Spec, ...], variables: list[str]) -> None:
        for child, variable in zip(children, variables, strict=True):
            if child is None:
                self.leaves.append(variable)
            else:
                self._unpack(child, variable)

    def _boxes(self) -> None:
        """No container is given twice: a call may ask whether two are one."""
        names = self._mutable
        if len(self._objects) > 1:  # nor the dict of an object's attributes
            names = [*names, *[f"{self._source.constant(table_of)}({name})" for name in self._objects]]
        if len(names) > 1:
            identity = self._source.constant(id)
            distinct = ", ".join([f"{identity}({name})" for name in names])
            self._source.refuse(f"len({{{distinct}}}) != {len(names)}")

    def _outside(self) -> None:
        """Random generators outside: what each says of itself, and that none of all is given twice."""
        source, constant, call = self._source, self._source.constant, self._call
        if call.openings is None or not call.state:
            return
        look, told = constant(call.openings.look), call.key.common[-1].told
        source.line(f"outside = {look}()")
        source.refuse(f"len(outside) != {len(told)}")
        for number, (name, (_, known)) in enumerate(zip(self.state, told, strict=True)):
            place = constant(call.state[number][0])
            source.line(f"place, {name}, told = outside[{number}]")
            source.refuse(f"place is not {place} or told != {constant(known)}")
        generators = [*self.generators, *self.state]
        addresses = ", ".join([f"{name}._cdata" for name in generators])
        source.refuse(f"len({{{addresses}}}) != {len(generators)}")

    def _variable(self, spec: Spec) -> str:
        """A fresh name; leaves and containers are told apart by the letter only for who reads the text."""
        self._containers += 1
        return f"{'x' if spec is None else 'box'}{self._containers}"

    # ------------------------------------------------------------------ leaves

    def _values(self) -> None:
        """Everything that is not a tensor."""
        source, call = self._source, self._call
        for name, leaf, kind, token in zip(
            self.leaves, call.leaves, call.kinds, call.key.tokens, strict=True
        ):
            if kind in (OPAQUE, PARAMETER):
                source.refuse(f"id({name}) != {token[1]}")
            elif kind == PLAIN and token[-1] is CHANGES:
                source.refuse(f"type({name}) is not {source.constant(token[0])}")
            elif kind == PLAIN:
                source.refuse(self._differs(name, leaf, token))

    def _differs(self, name: str, leaf: Any, token: tuple[Any, ...]) -> str:
        source, kind = self._source, type(leaf)
        if leaf is None or kind is bool:
            return f"{name} is not {leaf}"
        same = source.constant(leaf)
        if kind in (int, str, bytes):
            return f"{name} is not {same} and (type({name}) is not {kind.__name__} or {name} != {same})"
        if kind is float:
            other = f"{source.constant(float_bits)}({name}) != {token[1]!r}"
            return f"{name} is not {same} and (type({name}) is not float or {other})"
        expected = source.constant((PLAIN, token))
        return f"{source.constant(describe)}({name}) != {expected}"

    def _tensors(self) -> None:
        """Class and metadata of all tensors."""
        source, call, check = self._source, self._call, self._check
        positions = self.apart()
        for position in self.tensors():
            first = next(one for one in positions if call.leaves[one] is call.leaves[position])
            if first != position:
                source.refuse(f"{self.leaves[position]} is not {self.leaves[first]}")
        names = [self.leaves[position] for position in positions]
        if check is not None:
            plain = source.constant(torch.Tensor)
            for name in names:  # it has no sizes, and the error ends the process
                source.refuse(f"type({name}) is {plain} and {name}.is_nested")
            compared = ", ".join([source.constant(self._compared[0]), *names])
            source.refuse(f"not {source.constant(check)}({compared})")
        for position, name in zip(positions, names, strict=True):
            token = call.key.tokens[position]
            if check is None:
                found = f"{source.constant(_token_of)}({name})"
                source.refuse(f"{found} != {source.constant(token)}")
            elif call.leaves[position].requires_grad:  # otherwise it is a leaf
                source.refuse(f"{name}.is_leaf is not {token[5]}")
        for position, added in zip(self.tensors(), call.added, strict=bool(call.added)):
            table = f"{self.leaves[position]}.__dict__"  # a tensor's, by what is asked before
            source.refuse(f"tuple({table}) != {source.constant(added)}" if added else table)
        for position in [each for each in positions if call.leaves[each].is_cpu]:
            of_its_own = f"{self.leaves[position]}.untyped_storage().resizable()"
            source.refuse(of_its_own if position in call.key.borrowed else f"not {of_its_own}")
        if call.openings is not None and call.openings.gradients:
            for position in [each for each in positions if call.leaves[each].is_leaf]:
                has = position in call.key.gradients
                asked = f"{source.constant(has_gradient)}({self.leaves[position]})"
                source.refuse(f"not {asked}" if has else asked)

    def apart(self) -> list[int]:
        """Positions of the tensors, each tensor once: the check in C++ takes none twice."""
        first: dict[int, int] = {}
        for position in self.tensors():
            first.setdefault(id(self._call.leaves[position]), position)
        return list(first.values())

    def shares(self) -> bool:
        """Whether several tensors share memory in the calls of the key, or lie in arrays, which may."""
        return bool(self._call.key.common) or bool(self._call.key.borrowed)

    def write_sharing(self) -> None:
        """Write which tensors share memory; none does where each has a storage of its own."""
        positions, borrowed = self.apart(), self._call.key.borrowed
        if len(positions) < 2:
            return
        if borrowed:
            among = f"({''.join([f'{name}, ' for name in self.leaves])})"
            found = f"{self._source.constant(overlapping_of)}({among}, {self._source.constant(borrowed)})"
            self._source.refuse(f"{found} != {self._source.constant(self._call.key.overlapping)}")
        differs = self.shares_otherwise()
        if not self.shares():
            handles = [self.handle(position) for position in positions]
            differs = f"len({{{', '.join(handles)}}}) != {len(positions)} and {differs}"
        self._source.refuse(differs)

    def shares_otherwise(self) -> str:
        """The expression that tensors share memory in another way than in the calls of the key."""
        constant, positions = self._source.constant, self.apart()
        apart = frozenset([n for n, position in enumerate(positions) if position in self._call.apart])
        known = sharing([self._call.leaves[position] for position in positions], apart)
        names = ", ".join([self.leaves[position] for position in positions])
        among = f", {constant(apart)}" if apart else ""
        return f"{constant(sharing)}([{names}]{among}) != {constant(known)}"

    # ------------------------------------------------------------------ surroundings

    def _place(self, device: int) -> None:
        """Of what :func:`.ambient.read_ambient` reads: the device."""
        source, constant = self._source, self._source.constant
        if device >= 0:
            if torch.cuda.device_count() > 1:  # otherwise none but this can be the current one
                source.refuse(_differs(f"{constant(current_device)}()", device))
            # A launch would spoil a capture. The default stream is never captured, and to ask takes 0.4 us.
            source.line(f"stream = {constant(stream_handle)}({device})")
            source.refuse(f"stream and {constant(is_capturing)}()")
        else:
            source.refuse(f"{constant(torch.cuda.is_initialized)}()")

    def write_switches(self, *, named: bool = True) -> None:
        """Of what :func:`.ambient.read_ambient` reads: the rest.

        Args:
            named: The global switches are among it; otherwise somebody else looks at them.
        """
        source, constant, ambient = self._source, self._source.constant, self._call.key.ambient
        if ambient.inference or self._check is None:  # which fails in inference mode
            source.refuse(_differs(f"{constant(torch.is_inference_mode_enabled)}()", ambient.inference))
        source.refuse(_differs(f"{constant(torch.is_anomaly_enabled)}()", ambient.anomaly))
        source.refuse(_differs(f"{constant(torch.is_grad_enabled)}()", ambient.grad))
        source.refuse(f"{constant(torch.get_default_dtype)}() is not {constant(ambient.dtype)}")
        self._autocast(ambient.autocast)
        for read, value in zip(SWITCHES, ambient.switches, strict=True) if named else ():
            asked = f"{constant(read)}()"
            simple = isinstance(value, bool)
            source.refuse(_differs(asked, value) if simple else f"{asked} != {constant(value)}")

    def _autocast(self, states: tuple[tuple[Any, ...], ...]) -> None:
        """Per device whether it is on, and then its type; not where the check of metadata fails if it is."""
        source = self._source
        enabled, dtype = source.constant(torch.is_autocast_enabled), source.constant(torch.get_autocast_dtype)
        compared = self._compared if self._check is not None else []
        for kind, (on, *types) in zip(_KINDS, states, strict=False):
            if on or not any(shows_autocast(tensor, kind) for tensor in compared):
                source.refuse(_differs(f"{enabled}({kind!r})", on))
            if on:
                source.refuse(f"{dtype}({kind!r}) is not {source.constant(types[0])}")


def _differs(asked: str, value: bool | int | None) -> str:
    """The expression that an answer is another value; of two that are possible the truth is enough."""
    if value is True:
        return f"not {asked}"
    if value is False or value == 0:
        return asked
    return f"{asked} is not None" if value is None else f"{asked} != {value}"


def _token_of(leaf: Any) -> Any:
    """The comparable form of a plain tensor; None for anything else."""
    return describe_tensor(leaf) if isinstance(leaf, torch.Tensor) and is_plain(leaf) else None


def _is_known(spec: Spec) -> bool:
    if spec is None:
        return True
    kind, cls, _, children = spec
    known = kind in (*_INDEXED, "object", ARRAY) or (kind == "dict" and cls in (dict, OrderedDict))
    known = known or (kind == "dataclass" and not issubclass(cls, dict))
    return known and all(_is_known(child) for child in children)
