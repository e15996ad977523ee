"""Every event in every state is in the table, or an InternalError that changes nothing."""

from __future__ import annotations

import pytest

from rote import InternalError
from rote.runtime.engine.states import FIRST_REST, LEAST_REST, PATIENCE, TABLE, Life, LifeEvent, State


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


def test_every_state_is_in_the_table_and_can_be_left():
    assert set(TABLE) == set(State)
    for state, events in TABLE.items():
        assert events and any(target is not state for target in events.values())


def test_the_way_to_replaying():
    life = Life()
    assert life.state is State.OBSERVING and not life.final
    life.happen(LifeEvent.AGREED)
    assert life.state is State.RECORDING
    life.happen(LifeEvent.RECORDED)
    assert life.state is State.REPLAYING


def rests(life):
    """How many calls the key rests until it looks again."""
    count = 0
    while life.rest():
        count += 1
    return count


def test_patience_ends_and_rests_grow():
    life = Life()
    for _ in range(PATIENCE - 1):
        life.unsteady()
        assert life.state is State.OBSERVING
    life.unsteady()
    assert life.state is State.EAGER
    assert rests(life) == FIRST_REST
    assert life.state is State.OBSERVING
    lengths = []
    for _ in range(3):
        while life.state is State.OBSERVING:
            life.unsteady()
        lengths.append(rests(life))
    assert lengths == [2 * FIRST_REST, 4 * FIRST_REST, 8 * FIRST_REST]


def test_replays_restore_patience_and_steady_calls_do_not():
    life = Life()
    for _ in range(3 * PATIENCE):
        life.unsteady()
        life.settle()
    assert life.state is State.OBSERVING
    for _ in range(PATIENCE):
        life.steady()
        life.unsteady()
    assert life.state is State.EAGER


def test_unseen_values_in_a_row():
    life = Life()
    for _ in range(PATIENCE - 1):
        assert not life.unseen()
    life.steady()
    assert not any(life.unseen() for _ in range(PATIENCE - 1))
    assert life.unseen() == PATIENCE and life.state is State.EAGER and not life.final
    assert rests(life) == LEAST_REST[LifeEvent.FRUITLESS]
    assert not any(life.unseen() for _ in range(PATIENCE - 1))  # all of its patience again


def test_patience_is_shorter_after_too_many_values():
    life = Life()
    life.happen(LifeEvent.CROWDED)
    rests(life)
    assert [life.unseen(20) for _ in range(3)] == [0, 0, 3]


def test_one_rest_after_another_whatever_the_reason():
    life, lengths = Life(), []
    for event in (
        LifeEvent.GAVE_UP,
        LifeEvent.FRUITLESS,
        LifeEvent.CROWDED,
        LifeEvent.GAVE_UP,
        LifeEvent.FRUITLESS,
    ):
        life.happen(event)
        lengths.append(rests(life))
    assert lengths == [16, 64, 512, 1024, 2048]


@pytest.mark.parametrize("state", [State.RECORDING, State.REPLAYING])
def test_an_unsteady_call_leads_back_to_observing(state):
    life = life_in(state)
    life.unsteady()
    assert life.state is State.OBSERVING


@pytest.mark.parametrize("event", [LifeEvent.LIMIT, LifeEvent.CAPTURE_FAILED])
def test_limits_are_final(event):
    life = life_in(State.RECORDING)
    life.happen(event)
    assert life.final and all(life.rest() for _ in range(10 * FIRST_REST))
    assert life.state is State.EAGER
