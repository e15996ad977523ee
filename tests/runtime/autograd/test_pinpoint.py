"""The line that changes a piece of state."""

from __future__ import annotations

import pytest

from rote.runtime.autograd.graph.pinpoint import line_that_changes

TABLE = {}


class Thing:
    def attribute(self):
        total = self.count
        self.count = total + 1

    def item(self):
        x = 1
        self.cache["k"] = x

    def grows(self):
        unrelated = []
        unrelated.append(1)
        self.layers.append(2)

    def scheduled(self):
        for group in self.groups:
            group["rate"] = self.table["step"] / 10
        self.table["step"] += 1

    def taken(self):
        self.queue.popleft()

    def elsewhere(self):
        return self.count


def adds_to_global():
    x = 2
    TABLE[x] = x


@pytest.mark.parametrize(
    ("name", "function", "offset"),
    [
        ("f.count", Thing.attribute, 2),
        ("model.inner.count", Thing.attribute, 2),
        ("f.cache['k']", Thing.item, 2),
        ("f.table['step']", Thing.scheduled, 3),
        ("f.groups[0]['rate']", Thing.scheduled, 2),
        ("f.queue (length)", Thing.taken, 1),
        ("f.cache (length)", Thing.item, 2),
        ("f.layers[3]", Thing.grows, 3),
        ("f.layers (length)", Thing.grows, 3),
        ("module.TABLE[2]", adds_to_global, 2),
    ],
)
def test_found(name, function, offset):
    site = line_that_changes(name, [Thing.elsewhere.__code__, function.__code__])
    assert (site.file, site.line) == (__file__, function.__code__.co_firstlineno + offset)
    assert site.function == function.__name__


def test_a_closure():
    count = 0

    def fn():
        nonlocal count
        count += 1

    assert line_that_changes("f.count", [fn.__code__]).line == fn.__code__.co_firstlineno + 2


@pytest.mark.parametrize("name", ["f.absent", "f.other['z']", ""])
def test_not_found(name):
    assert line_that_changes(name, [Thing.elsewhere.__code__]) is None
