"""The memory of sessions: given back, shared, or exclusive; and calls out of order."""

from __future__ import annotations

import pytest
import torch

from rote.base.errors import InternalError


def test_release_gives_memory_back(bench, backend):
    b = bench()
    x = b.tensor(4096)
    out = b.capture(lambda: (x * 2).exp().sum())
    b.finish()
    assert backend.bytes_held() > 0
    del out
    b.session.release()
    b.session.release()
    assert backend.bytes_held() == 0


def test_release_of_a_session_that_was_never_finished(bench, backend):
    b = bench()
    x = b.tensor(16)
    b.capture(lambda: x + 1)
    b.session.release()
    assert backend.bytes_held() == 0


def test_release_with_a_segment_open(bench, backend):
    b = bench()
    x = b.tensor(4)
    with b.session.stream():
        b.session.begin()
        b.session.abort()
    b.session.release()
    assert backend.bytes_held() == 0
    c = bench()
    out = c.capture(lambda: x + 1)
    c.finish()
    c.replay()
    assert out.tolist() == [2.0] * 4


def test_a_released_segment_says_so(bench):
    b = bench()
    x = b.tensor(4)
    b.capture(lambda: x + 1)
    b.finish()
    b.session.release()
    with pytest.raises(
        InternalError, match=r"segment was replayed after its (session was|recording had been) released"
    ):
        b.segments[0].replay()


def test_replay_before_finish_where_memory_is_planned(bench, backend):
    b = bench()
    x = b.tensor(4)
    b.capture(lambda: x + 1)
    if backend.capabilities.executes_while_capturing:
        with pytest.raises(
            InternalError, match=r"replayed before its session was finished; call Session.finish\(\)"
        ):
            b.segments[0].replay()
    b.finish()
    b.replay()


def test_other_recordings_leave_exclusive_memory_alone(bench):
    mine = bench(exclusive=True)
    x = mine.tensor(1024, fill=2.0)
    out = mine.capture(lambda: x * 2)
    mine.finish()
    mine.replay()
    other = bench()
    results = [other.capture(lambda: (x * 3).exp().neg() + 1) for _ in range(3)]
    other.finish()
    alone = bench(exclusive=True)
    third = alone.capture(lambda: x * 5)
    alone.finish()
    other.replay()
    alone.replay()
    assert out.tolist() == [4.0] * 1024
    assert third.tolist() == [10.0] * 1024
    assert len({out.data_ptr(), third.data_ptr(), *(r.data_ptr() for r in results)}) == 5


def test_recordings_share_a_pool_and_stay_right(bench):
    benches = [bench() for _ in range(3)]
    x = benches[0].tensor(256, fill=0.5)
    outputs = []
    for number, b in enumerate(benches):
        outputs.append(b.capture(lambda n=number: (x * 2).sin().exp() + n))
        b.finish()
    for order in ((0, 1, 2), (2, 0, 1)):
        for number in order:
            x.fill_(0.25 * (number + 1))
            benches[number].replay()
            assert torch.equal(outputs[number], (x * 2).sin().exp() + number)


def test_begin_twice_and_end_without_begin(bench):
    b = bench()
    with b.session.stream():
        with pytest.raises(InternalError, match=r"no segment (is )?open"):
            b.session.end()
        b.session.begin()
        with pytest.raises(InternalError, match=r"a segment (is already )?open"):
            b.session.begin()
        b.session.abort()


def test_run_without_a_segment(bench):
    b = bench()
    x = b.tensor(2)
    with pytest.raises(InternalError, match=r"no segment open"):
        b.session.run(torch.ops.aten.neg.default, (x,), {})
