"""Locks that a call takes: those that it gives back say nothing, others keep it eager."""

from __future__ import annotations

import multiprocessing
import queue
import threading

import pytest
import torch

import rote
from rote.testing import compare

LOCK, AGAIN, CONDITION = threading.Lock(), threading.RLock(), threading.Condition()
SEMAPHORE, QUEUE, OF_PROCESSES = threading.Semaphore(), queue.Queue(), multiprocessing.Lock()


def rows(device):
    return [(torch.full((3,), float(number), device=device),) for number in range(8)]


def within(x):
    with LOCK:
        return x * 2


def within_again(x):
    with AGAIN, AGAIN, CONDITION, SEMAPHORE, OF_PROCESSES:
        y = x * 2
    return y


def by_hand(x):
    LOCK.acquire()
    y = x * 2
    LOCK.release()
    return y


def given_back_within(x):
    with LOCK:
        LOCK.release()
        y = x * 2
        LOCK.acquire()
    return y


def if_it_is_free(x):
    if LOCK.acquire(blocking=False):
        try:
            return x * 2
        finally:
            LOCK.release()
    return x


def asks_a_queue(x):
    return x * (QUEUE.qsize() + 1)


@pytest.mark.parametrize(
    "fn", [within, within_again, by_hand, given_back_within, if_it_is_free, asks_a_queue]
)
def test_a_lock_that_is_given_back(device, fn):
    assert compare(fn, rows(device)).report().replayed >= 5


def taken(x):
    LOCK.acquire()
    return x * 2


def given_back(x):
    LOCK.release()
    return x * 2


@pytest.mark.parametrize(("fn", "text"), [
    (taken, "the call acquires LOCK and does not release it"),
    (given_back, "the call releases LOCK, which it has not acquired"),
])  # fmt: skip
def test_a_lock_that_is_not(device, fn, text, reason):
    g = rote.graph(fn)
    for (x,) in rows(device):
        if fn is given_back:
            LOCK.acquire()
        assert g(x).equal(x * 2)
        if fn is taken:
            LOCK.release()
    assert not g.report().replayed and reason(g, "RT218").message == text
