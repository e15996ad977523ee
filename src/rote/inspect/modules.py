"""Which module an operation belongs to.

A recording notes no modules: that would cost every traced call. What it notes tells most of them afterwards.
An operation that reads a parameter belongs to the module that has it. Any other belongs to a module whose
class has the line: of several of that class, to the one in which the parameters read last (or next) lie.
Where that tells none, it is none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch.nn import Module

from ..base import Site, is_internal


class ModuleNames:
    """The modules that a callable can reach, by the name of their root.

    Args:
        name: Its name, which that of a module begins with.
        named: Tensors that recordings read, with their names.
    """

    def __init__(
        self, function: Callable[..., Any], name: str, named: Sequence[tuple[str, torch.Tensor]]
    ) -> None:
        self._owners = {handle_of(tensor): path.rpartition(".")[0] for path, tensor in named}
        self._modules: dict[str, Module] = {}
        for root, module in _roots(function, name):
            for path, each in module.named_modules(prefix=root):
                self._modules[path] = each
                own = [*each.parameters(recurse=False), *each.buffers(recurse=False)]
                self._owners.update({handle_of(tensor): path for tensor in own if _has_memory(tensor)})
        self._lines: dict[tuple[str, int], tuple[str, ...]] = {}
        self._codes = {
            kind: list(_codes_of(kind)) for kind in {type(each) for each in self._modules.values()}
        }

    def owner(self, handles: Sequence[int]) -> str:
        """The module of the first parameter among some storages, by their handles; empty if there is none."""
        return next((self._owners[each] for each in handles if each in self._owners), "")

    def of_line(self, site: Site, last: str, following: str) -> str:
        """The module in whose class a line stands, between two operations whose modules are known."""
        found = self._lines.get(key := (site.file, site.line))
        if found is None:
            found = self._lines[key] = tuple(
                [path for path, each in self._modules.items() if self._has(type(each), site)]
            )
        for beside in (last, following):
            around = [path for path in found if f"{beside}.".startswith(f"{path}.")]
            if around:
                return max(around, key=len)
        return found[0] if len(found) == 1 else ""

    def _has(self, kind: type[Module], site: Site) -> bool:
        codes = self._codes[kind]
        return any([file == site.file and first <= site.line <= last for file, first, last in codes])


def _has_memory(tensor: torch.Tensor) -> bool:
    """Whether a parameter has a storage: a lazy one, and those of some subclasses, have none."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def handle_of(tensor: torch.Tensor) -> int:
    """The identity of a tensor's storage."""
    return tensor.untyped_storage()._cdata


def _roots(function: Any, name: str) -> Iterator[tuple[str, Module]]:
    """Modules that a callable is, belongs to, or names, in its closure, globals or what it is bound to."""
    if isinstance(function, Module):
        yield name, function
    elif isinstance(function, functools.partial):
        for each in (function.func, *function.args):
            yield from _roots(each, name)
    elif isinstance(function, MethodType):
        owner: Any = function.__self__
        if isinstance(owner, Module):
            yield type(owner).__name__, owner
        else:
            yield from _modules_in(getattr(owner, "__dict__", {}))
        yield from _roots(function.__func__, name)
    elif isinstance(function, FunctionType):
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        yield from _modules_in({key: cell.cell_contents for key, cell in cells if _is_set(cell)})
        known = function.__globals__
        yield from _modules_in({key: known[key] for key in function.__code__.co_names if key in known})


def _modules_in(names: Mapping[str, Any]) -> Iterator[tuple[str, Module]]:
    yield from [(name, each) for name, each in names.items() if isinstance(each, Module)]


def _is_set(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _codes_of(kind: type[Module]) -> Iterator[tuple[str, int, int]]:
    """File, first and last line of each method that a class has from the user."""
    for each in kind.__mro__:
        for value in list(vars(each).values()):
            code = getattr(value, "__code__", None)
            if isinstance(code, CodeType) and not is_internal(code.co_filename):
                lines = [line for _, _, line in code.co_lines() if line]
                yield code.co_filename, code.co_firstlineno, max(lines, default=code.co_firstlineno)
