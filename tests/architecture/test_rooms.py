"""Rooms have doors: what a folder offers to others stands in its facade, and nobody reaches past it."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

from .source import ROOT, SOURCE, nodes, parse

MOST_FILES = 15
MOST_IN_A_CIRCLE = 3

Graph = dict[str, set[str]]


def module_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, root: Path) -> list[tuple[str, str]]:
    """What a file imports from the package, as (module, name); imports for types are imports."""
    package = path.relative_to(root.parent).parts[:-1]
    found = list[tuple[str, str]]()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            found += [(module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
    return [(module, name) for module, name in found if module.split(".")[0] == root.name]


class House:
    """The files of a package, and who imports whom."""

    def __init__(self, root: Path) -> None:
        self.files = {module_of(path, root): path for path in sorted(root.rglob("*.py"))}
        self.rooms = {module for module, path in self.files.items() if path.name == "__init__.py"}
        self._root = root

    @functools.cached_property
    def imports(self) -> dict[str, set[str]]:
        """By module, the modules that it imports; whoever collects the tests need not know."""
        found: dict[str, set[str]] = {}
        for module, path in self.files.items():
            targets = set[str]()
            for base, name in imports_of(path, self._root):
                whole = f"{base}.{name}"
                inner = whole in self.files and not self._exports(base, name)
                targets.add(whole if inner else base)
            found[module] = (targets & self.files.keys()) - {module}
        return found

    def _exports(self, package: str, name: str) -> bool:
        """Whether a facade offers a module of its room by name."""
        if package not in self.rooms:
            return False
        body = parse(self.files[package]).body
        offers = [node for node in body if isinstance(node, ast.ImportFrom) and node.module is None]
        return any(alias.name == name for node in offers for alias in node.names)

    def room_of(self, module: str) -> str:
        return module if module in self.rooms else module.rpartition(".")[0]

    def reaching_inside(self) -> list[str]:
        """Imports that name a file of another room in place of the room."""
        return [
            f"{module} imports {target}"
            for module, targets in self.imports.items()
            for target in sorted(targets)
            if target not in self.rooms and self.room_of(target) != self.room_of(module)
        ]

    def between_rooms(self) -> Graph:
        graph: Graph = defaultdict(set)
        for module, targets in self.imports.items():
            for target in targets:
                if self.room_of(target) != self.room_of(module):
                    graph[self.room_of(module)].add(self.room_of(target))
        return graph

    def inside(self, room: str) -> Graph:
        own = {module for module in self.files if self.room_of(module) == room and module != room}
        return {module: self.imports[module] & own for module in own}


def circles(graph: Graph) -> list[set[str]]:
    """Groups of nodes that all lead to one another."""

    def reached(start: str) -> set[str]:
        found, waiting = set[str](), list(graph.get(start, ()))
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting += graph.get(node, ())
        return found

    leads = {node: reached(node) for node in graph}
    found = list[set[str]]()
    for node, others in leads.items():
        circle = {other for other in others if node in leads.get(other, ())}
        if node in others and circle not in found:
            found.append(circle)
    return found


HOUSE = House(SOURCE)


def test_nobody_reaches_inside_a_room():
    assert HOUSE.reaching_inside() == []


def test_no_room_has_too_many_files():
    sizes = {room: sum(HOUSE.room_of(module) == room for module in HOUSE.files) for room in HOUSE.rooms}
    assert {room: size for room, size in sizes.items() if size > MOST_FILES} == {}


def test_rooms_have_no_circle():
    graph = HOUSE.between_rooms()
    graph.pop("rote", None)  # the package itself offers what users call
    assert circles(graph) == []


@pytest.mark.parametrize("room", sorted(HOUSE.rooms - {"rote"}))
def test_files_of_a_room_have_small_circles(room):
    assert [circle for circle in circles(HOUSE.inside(room)) if len(circle) > MOST_IN_A_CIRCLE] == []


@pytest.mark.parametrize("room", sorted(HOUSE.rooms))
def test_a_facade_offers_only_what_is_there(room):
    tree = ast.parse(HOUSE.files[room].read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "a facade says what its room is for"


def table_of_rooms() -> list[str]:
    """The rooms of CONTRIBUTING's table."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `([\w/]+)` \|", text, re.MULTILINE)


def layers() -> list[str]:
    """The rooms of the contracts, as paths below the package."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    found = list[str]()
    for contract in contracts:
        if contract["type"] == "layers":
            prefix = contract["containers"][0].removeprefix("rote").lstrip(".")
            for layer in contract["layers"]:
                for room in layer.split("|"):
                    name = room.strip()
                    if name != "__main__" and not name.startswith("("):
                        found.append(f"{prefix}/{name}".lstrip("/"))
    return found


def test_contributing_and_the_contracts_name_the_same_rooms():
    assert sorted(table_of_rooms()) == sorted(layers())
    assert sorted(layers()) == sorted(
        room.relative_to(SOURCE).as_posix()
        for room in (*SOURCE.iterdir(), *(SOURCE / "runtime").iterdir())
        if (room / "__init__.py").exists()
    )


# --- The rules above see what they should ----------------------------------------------------------------


def build(tmp_path: Path, **files: str) -> House:
    root = tmp_path / "house"
    for name, text in files.items():
        path = root / (name.replace("__", "/").replace("/init/", "__init__") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        (folder / "__init__.py").touch()
    return House(root)


def test_a_reach_inside_is_seen(tmp_path):
    house = build(tmp_path, one__a="from ..two.b import c", two__b="c = 1", two__d="from .b import c")
    assert house.reaching_inside() == ["house.one.a imports house.two.b"]


def test_a_reach_for_a_module_is_seen_unless_the_facade_offers_it(tmp_path):
    house = build(tmp_path, one__a="from ..two import b", two__b="c = 1")
    assert house.reaching_inside() == ["house.one.a imports house.two.b"]
    (tmp_path / "house/two/__init__.py").write_text("from . import b\n")
    assert House(tmp_path / "house").reaching_inside() == []


def test_an_import_for_types_closes_a_circle(tmp_path):
    lazy = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..one import x"
    house = build(tmp_path, one__a="from ..two import y", two__b=lazy)
    assert circles(house.between_rooms()) == [{"house.one", "house.two"}]


def test_a_circle_of_files_is_seen(tmp_path):
    house = build(tmp_path, a="from . import b", b="from .c import x", c="from .a import y")
    assert circles(house.inside("house")) == [{"house.a", "house.b", "house.c"}]
