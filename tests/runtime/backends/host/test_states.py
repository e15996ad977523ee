"""Every step in every state is either in the table or an InternalError that changes nothing."""

from __future__ import annotations

import pytest
import torch

from rote.base.errors import InternalError
from rote.runtime.backends.host.backend import HostBackend
from rote.runtime.backends.host.segment import TRANSITIONS, SessionState, SessionStep, after
from rote.runtime.backends.host.session import HostSession


@pytest.mark.parametrize("state", SessionState)
@pytest.mark.parametrize("step", SessionStep)
def test_table(state: SessionState, step: SessionStep) -> None:
    if step in TRANSITIONS[state]:
        assert after(state, step) is TRANSITIONS[state][step]
    else:
        with pytest.raises(
            InternalError, match=rf"{step.value}\(\) was called with {state.value}; allowed here: "
        ):
            after(state, step)


def test_the_message_in_full(session: HostSession) -> None:
    with pytest.raises(InternalError) as caught:
        session.run(torch.ops.aten.neg.default, (torch.ones(2),), {})
    assert str(caught.value) == (
        "host session: run() was called with no segment open; allowed here: begin, abort, finish, release. "
        "This is a bug in rote; please report it."
    )
    assert session.state is SessionState.IDLE


def test_finish_with_a_segment_open(session: HostSession) -> None:
    session.begin()
    with pytest.raises(InternalError, match=r"finish\(\) was called with a segment open"):
        session.finish()
    assert session.state is SessionState.OPEN


def test_abort_and_release_are_allowed_everywhere_and_idempotent(
    session: HostSession, backend: HostBackend
) -> None:
    for _ in range(2):
        session.abort()
    session.begin()
    for _ in range(2):
        session.abort()
    session.finish()
    assert backend.bytes_held() == 0
    session.abort()
    assert session.state is SessionState.FROZEN
    for _ in range(2):
        session.release()
    session.abort()
    assert session.state is SessionState.RELEASED
