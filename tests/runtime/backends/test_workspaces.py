"""When the workspaces of matrix products are given back, told by what the allocator would say."""

from __future__ import annotations

import pytest

from rote.runtime.backends.cuda import workspaces
from rote.runtime.backends.cuda.workspaces import Workspaces


class Pool:
    def __init__(self, number):
        self.handle = (0, number)


@pytest.fixture
def allocator(monkeypatch):
    """The allocator's segments, and how often workspaces were cleared."""

    class Allocator:
        segments, cleared = [], 0

        def hold(self, number, active):
            self.segments = [*self.segments, {"segment_pool_id": (0, number), "active_size": active}]

        def clear(self):
            self.cleared += 1

    found = Allocator()
    monkeypatch.setattr(workspaces, "allocator_segments", lambda: found.segments)
    monkeypatch.setattr(workspaces, "clear_workspaces", found.clear)
    return found


def test_they_go_with_the_last_recording(allocator):
    held = Workspaces()
    held.leave([Pool(1), Pool(2)])
    for number in (0, 1, 2):
        allocator.hold(number, 1)
    held.clear()
    assert allocator.cleared == 1


def test_nothing_is_cleared_where_nothing_was_captured(allocator):
    Workspaces().clear()
    assert allocator.cleared == 0


def test_pools_of_other_graphs_keep_theirs(allocator):
    held = Workspaces()
    held.leave([Pool(1)])
    allocator.hold(1, 1)
    allocator.hold(7, 1)
    held.clear()
    assert allocator.cleared == 0
    allocator.segments = []
    held.clear()
    assert allocator.cleared == 1


def test_a_pool_that_others_have_left_keeps_none(allocator):
    held = Workspaces()
    held.leave([Pool(1)])
    allocator.hold(7, 0)
    held.clear()
    assert allocator.cleared == 1
