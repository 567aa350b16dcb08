"""Key groups that go from one instance to another: routes, the producers' turn, and states that are cut and joined."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.operators.keyed.state import KeyedState
from penstock.operators.keys import KEY_GROUPS, key_group, owner
from penstock.pipeline.routes import NEVER, Shift, next_flip, routed, settled

HALF = frozenset(range(0, KEY_GROUPS, 2))

shifts = st.lists(
    st.builds(
        Shift,
        unit=st.integers(0, 1),
        old=st.just(-1),
        new=st.integers(0, 2),
        groups=st.lists(st.integers(0, 7), max_size=4),
        epoch=st.integers(0, 6),
    ),
    max_size=6,
).map(lambda found: sorted(found, key=lambda each: each.epoch))


@given(shifts, st.integers(1, 7))
@settings(max_examples=50)
def test_a_settled_list_says_the_same_of_every_later_epoch(found: list[Shift], committed: int) -> None:
    shorter = settled(found, {0: 3, 1: 3}, committed)
    assert len([each for each in shorter if each.epoch < committed]) <= 2 * 3
    for unit in (0, 1):
        for epoch in range(committed, 9):
            assert routed(shorter, unit, 3, epoch) == routed(found, unit, 3, epoch)
            assert next_flip(shorter, unit, epoch) == next_flip(found, unit, epoch)


def test_a_flip_is_behind_the_marker_of_its_epoch() -> None:
    found = [Shift(unit=1, old=0, new=1, groups=[3], epoch=5)]
    assert [next_flip(found, 1, epoch) for epoch in (4, 5, 6)] == [5, 5, NEVER]
    assert [routed(found, 1, 2, epoch) for epoch in (5, 6)] == [{}, {3: 1}]
    assert next_flip(found, 2, 4) == NEVER


def test_who_owns_a_key_whose_group_was_shifted() -> None:
    keys = [f"k{i}" for i in range(50)]
    table = {key_group(each): 1 - owner(each, 2) for each in keys[:10]}
    assert [owner(each, 2, table) for each in keys] == [owner(e, 2) ^ (key_group(e) in table) for e in keys]


def state_of(entries: dict[str, list[int]]) -> KeyedState:
    state = KeyedState("op", several=False)
    space = state.open()
    for key, value in entries.items():
        space[key] = value
        space.changed[key] = None
    return state


@pytest.mark.parametrize("write", [KeyedState.flush, KeyedState.whole])
def test_both_logs_go_on_without_the_snapshots_before(write: Callable[[KeyedState], bytes]) -> None:
    random = Random(7)
    one = {f"a{i}": [random.randrange(9)] for i in range(40)}
    two = {f"b{i}": [random.randrange(9)] for i in range(40)}
    logs = [[state_of(one).flush()], [state_of(two).flush()]]
    old, new = (KeyedState("op", several=False) for _ in range(2))
    old.restore_without(HALF, logs[0])
    assert new.restore_with(HALF, logs[1], logs[0])
    left = {key: value for key, value in one.items() if key_group(key) in HALF}
    assert left
    assert dict(old.open()) == {key: value for key, value in one.items() if key not in left}
    assert dict(new.open()) == two | left
    # What is written next makes the logs whole, so that nobody has to know of the shift again.
    for each, log in ((old, logs[0]), (new, logs[1])):
        again = KeyedState("op", several=False)
        again.restore([*log, write(each)] if write is KeyedState.flush else [write(each)])
        assert dict(again.open()) == dict(each.open())


def test_entries_that_are_numbered_by_their_instance_get_other_numbers() -> None:
    kept = {0: ["x", 1], 1: ["y", 2]}
    lent = {0: [next(k for k in "abcdefgh" if key_group(k) in HALF), 3], 7: ["z" * 9, 4]}

    def made(entries: dict[int, list[object]]) -> KeyedState:
        state = KeyedState("op", several=False, key_of=lambda name, number, row: row[0], numbered=True)
        state.open().update(entries)
        return state

    here = made({})
    assert not here.restore_with(HALF, [made(kept).whole()], [made(lent).whole()])
    expected = [*kept.values(), *(row for row in lent.values() if key_group(row[0]) in HALF)]
    assert sorted(map(str, here.open().values())) == sorted(map(str, expected))
    assert sorted(here.open()) == list(range(len(expected)))
