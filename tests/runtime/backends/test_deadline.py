"""The time limit of replays with captured collectives, on a device and a clock of the test's own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rote.base import Site
from rote.runtime.backends.cuda.deadline import Deadline
from rote.runtime.backends.protocol import CapturedCollective

LIMIT_S, STREAM = 10.0, 5
COLLECTIVE = CapturedCollective("allreduce", Site("train.py", 7, "step"), LIMIT_S, 1)


class Device:
    """Work is a number, in the order in which it was queued; what is done is a number as well."""

    def __init__(self):
        self.queued = self.done = 0

    def event(self):
        return Event(self)


class Event:
    def __init__(self, device):
        self.device, self.at = device, 0

    def record(self, stream):
        assert stream == STREAM
        self.at = self.device.queued

    def query(self):
        return self.at <= self.device.done


class Recording:
    """Whatever holds the graphs."""


class Watched:
    def __init__(self):
        self.device, self.now, self.ended = Device(), 0.0, []
        self.deadline = Deadline(self.device.event, self.is_idle, lambda: self.now, self.ended.append)

    def is_idle(self, stream):
        assert stream == STREAM
        return self.device.done == self.device.queued

    def begin(self):
        self.deadline.began(STREAM)
        self.device.queued += 1

    def call(self):
        self.begin()
        self.deadline.passed(STREAM)

    def look(self, seconds=1.0):
        self.now += seconds
        self.deadline.look()


def watched():
    made, recording = Watched(), Recording()
    made.deadline.expect(recording, COLLECTIVE)
    return made, recording


def test_a_device_that_stops_ends_the_process():
    made, recording = watched()
    made.deadline.expect(recording, COLLECTIVE)
    made.call()
    for _ in range(10):
        made.look()
        assert not made.ended
    made.look()
    (text,) = made.ended
    assert text.startswith("rank 1: replays have waited for another rank for 10 s"), text
    assert "allreduce at train.py:7 (2 times)." in text, text


def test_nothing_is_asked_of_a_device_without_captured_collectives():
    made = Watched()
    assert not made.deadline.active
    made.call()
    for _ in range(40):
        made.look()
    assert not made.ended


def test_a_recording_that_is_released_is_not_named():
    made, recording = watched()
    made.deadline.forget(recording)
    assert not made.deadline.active
    made.call()
    for _ in range(40):
        made.look()
    assert not made.ended


def test_a_recording_that_is_gone_is_not_named():
    made, recording = watched()
    del recording
    assert not made.deadline.active


def test_a_call_that_waits_for_the_device_ends_the_process():
    """It reads a value that never comes, so that it does not end."""
    made, recording = watched()
    made.call()
    made.device.done = made.device.queued
    made.look()
    made.begin()
    for _ in range(10):
        made.look()
        assert not made.ended
    made.look()
    assert made.ended and recording


def test_a_call_that_is_busy_on_the_host_goes_on():
    made, recording = watched()
    made.call()
    made.begin()
    made.device.done = made.device.queued
    for _ in range(1000):
        made.look()
    assert not made.ended and recording


def test_a_device_that_rests_for_long_is_no_device_that_stops():
    made, recording = watched()
    made.call()
    made.device.done = made.device.queued
    made.look(1000.0)
    made.call()
    made.look(5.0)
    assert not made.ended and made.deadline.active and recording


def test_a_queue_that_never_ends_is_seen_to_move():
    """Each call is queued before the one in front of it is done, for an hour."""
    made, recording = watched()
    made.call()
    for _ in range(3600):
        made.call()
        made.device.done = made.device.queued - 1
        made.look()
    assert not made.ended and recording


@given(st.lists(st.sampled_from(["call", "do", "do all", "look"]), max_size=80))
def test_a_device_that_goes_on_within_the_limit_never_ends_the_process(steps):
    """Work takes under half of the limit each, whatever is queued."""
    made, recording = watched()
    for step in steps:
        if step == "call":
            made.call()
        elif step == "do all":
            made.device.done = made.device.queued
        else:
            made.device.done = min(made.device.done + 1, made.device.queued)
            made.look(2.0)
        if made.device.queued - made.device.done > 3:
            made.device.done = made.device.queued
    assert not made.ended and recording


@given(st.lists(st.sampled_from(["call", "do", "look"]), max_size=40), st.integers(1, 5))
def test_a_device_that_stops_always_does(steps, more):
    made, recording = watched()
    for step in steps:
        made.call() if step == "call" else made.look(0.1)
        made.device.done += step == "do" and made.device.done < made.device.queued
    made.device.done = made.device.queued
    made.look()
    for _ in range(more):
        made.call()
    for _ in range(13):
        made.look()
    assert len(made.ended) >= 1 and recording
