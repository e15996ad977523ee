"""Every event in every state is in the table, or an InternalError that changes nothing."""

from __future__ import annotations

import pytest

from rote import InternalError
from rote.runtime.engine.states import TABLE, Life, LifeEvent, State


def life_in(state):
    life = Life()
    life.state = state
    return life


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", LifeEvent)
def test_the_table(state, event):
    life = life_in(state)
    if event in TABLE[state]:
        life.happen(event)
        assert life.state is TABLE[state][event]
        return
    before = dict(vars(life))
    with pytest.raises(InternalError) as caught:
        life.happen(event)
    assert str(caught.value) == f"a key that is {state.value} cannot have '{event.value}' happen"
    assert vars(life) == before


def test_every_state_is_in_the_table_and_all_but_one_can_be_left():
    assert set(TABLE) == set(State)
    ends = [state for state, events in TABLE.items() if all(target is state for target in events.values())]
    assert ends == [State.EAGER]


def test_the_way_to_replaying():
    life = Life()
    assert life.state is State.OBSERVING
    life.happen(LifeEvent.AGREED)
    assert life.state is State.RECORDING
    life.happen(LifeEvent.RECORDED)
    assert life.state is State.REPLAYING
