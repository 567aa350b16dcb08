"""Keyed state written a little at a time: whatever happens, the log gives the state at each marker."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.state import Copier, StateSnapshot, restore_state
from penstock.engine.state import copier as copier_module
from penstock.operators import StatefulOperator
from penstock.operators.keyed.loading import Loading
from penstock.operators.keyed.state import KeyedState
from penstock.operators.keys import key_group

KEYS: list[Any] = [("a", 1), ("a", None), ("b", 1), ("c", Decimal("2.50")), ("d", 3), ("e", 4), ("", Decimal("0.00"))]
SPACES = [0, 1, "named"]


class Kept(StatefulOperator):
    """An operation that does nothing but keep state."""

    def __init__(self, notes_fresh: bool = False) -> None:
        self.state = KeyedState("kept", several=True, notes_fresh=notes_fresh)
        self.events = 0

    def advance(self, watermark_us: int) -> list[Any]:
        raise NotImplementedError

    def finish(self) -> list[Any]:
        raise NotImplementedError

    def header(self) -> Any:
        return [self.events]

    def restored(self, headers: Sequence[Any]) -> None:
        ((self.events,),) = headers

    @property
    def contents(self) -> Any:
        return {name: dict(space) for name, space in self.state.spaces.items() if space}

    def put(self, name: int | str, key: Any) -> None:
        """Add an entry, or change one in place."""
        self.events += 1
        space = self.state.open(name)
        value = space.get(key)
        if value is None:
            space[key] = value = [0]
            if space.fresh is not None:
                space.fresh.append(key)
        value[0] += 1
        space.changed[key] = value if self.events % 2 else None

    def fill(self) -> None:
        for key in KEYS:
            self.put(0, key)

    def remove(self, name: int | str, key: Any) -> None:
        space = self.state.open(name)
        if space.pop(key, None) is not None:
            space.changed[key] = None

    def drop(self, name: int | str) -> None:
        if name in self.state.spaces:
            self.state.drop(name)


class Log:
    """What a checkpoint directory holds of one instance."""

    def __init__(self, kept: Kept, slice_entries: int) -> None:
        self.kept = kept
        self.copier = Copier(kept, slice_entries)
        self.chain: list[bytes] = []
        self.loaded = b""
        self.ahead = Kept()

    def marker(self) -> None:
        depth, snapshot = self.copier.capture()
        assert depth <= len(self.chain), "nothing is needed that was not needed before"
        self.chain = [*self.chain[len(self.chain) - depth :], msgspec.msgpack.encode(snapshot)]
        assert self.again().contents == self.kept.contents
        assert self.again().events == self.kept.events
        self.load_on()

    def load_on(self) -> None:
        """Load beside the work what a column's new owner would: what is new, or all of it if that does not follow."""
        if self.loaded not in self.chain[:-1]:
            self.ahead = Kept(self.kept.state.open().fresh is not None)
        at = self.chain.index(self.loaded) + 1 if self.loaded in self.chain[:-1] else 0
        for each in self.chain[at:]:
            for piece in msgspec.msgpack.decode(each, type=StateSnapshot).pieces:
                Loading(self.ahead).apply(piece)
        self.loaded = self.chain[-1]
        assert self.ahead.contents == self.kept.contents
        for space in self.ahead.state.spaces.values():
            groups = {group: [each for each in held if each in space] for group, held in (space.groups or {}).items()}
            assert sorted(repr((key_group(each), each)) for each in space) == sorted(
                repr((group, each)) for group, held in groups.items() for each in held
            )

    def again(self) -> Kept:
        again = Kept(self.kept.state.open().fresh is not None)
        restore_state(again, [msgspec.msgpack.decode(each, type=StateSnapshot) for each in self.chain])
        return again

    def restart(self) -> None:
        if self.chain:
            self.kept = self.again()
            self.copier = Copier(self.kept, self.copier._slice)
            self.copier.restored(len(self.chain))


MOVES = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(SPACES), st.sampled_from(KEYS)),
    st.tuples(st.just("fill")),
    st.tuples(st.just("remove"), st.sampled_from(SPACES), st.sampled_from(KEYS)),
    st.tuples(st.just("drop"), st.sampled_from(SPACES)),
    st.tuples(st.just("turn")),
    st.tuples(st.just("turn")),
    st.tuples(st.just("marker")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("rest")),
)


@pytest.mark.parametrize("notes_fresh", [False, True])
@settings(max_examples=150)
@given(moves=st.lists(MOVES, min_size=15, max_size=60), slice_entries=st.sampled_from([1, 2, 4]))
def test_the_log_gives_the_state_at_each_marker(notes_fresh: bool, moves: list[Any], slice_entries: int) -> None:
    log = Log(Kept(notes_fresh), slice_entries)
    for now_us, (move, *rest) in enumerate(moves):
        if move == "turn":
            log.copier.turn(now_us)
        elif move == "rest":
            log.copier.rests_until_us = now_us + 5
        elif move in ("marker", "restart"):
            getattr(log, move)()
        else:
            getattr(log.kept, move)(*rest)
    log.marker()


@pytest.mark.parametrize(("turns", "epochs"), [(20, 2 * copier_module.WALK_EPOCHS + 2), (0, 40)])
@pytest.mark.parametrize("notes_fresh", [False, True])
def test_the_log_stays_bounded(notes_fresh: bool, turns: int, epochs: int) -> None:
    log = Log(Kept(notes_fresh), 5)
    depths = []
    for epoch in range(6 * epochs):
        for turn in range(turns):
            log.kept.put(0, (f"k{(epoch * 7 + turn) % 200}", 0))
            log.copier.turn(epoch)
        if not turns and epoch < 200:
            log.kept.put(0, (f"k{epoch}", 0))
        log.marker()
        depths.append(len(log.chain))
    assert max(depths) <= epochs, "however many epochs there are"
    assert max(depths) > 2, "and it was written in slices"


def test_before_a_move_only_changes_are_written() -> None:
    kept = Kept()
    copier = Copier(kept, 100)
    for i in range(1_000):
        kept.put(0, (f"k{i}", i))
    copier.capture()

    def weight(now_us: int) -> int:
        kept.put(0, ("k1", 1))
        copier.turn(now_us)
        return sum(map(len, copier.capture()[1].pieces))

    walking = weight(0)
    copier.rests_until_us = 2
    assert weight(1) < walking / 10
    assert weight(2) == pytest.approx(walking, rel=0.1), "and the walk goes on afterwards"


def test_a_turn_writes_a_slice_and_a_marker_what_is_left() -> None:
    kept = Kept()
    copier = Copier(kept, 100)
    for i in range(1_000):
        kept.put(0, (f"k{i}", i))
    copier.turn(0)
    assert kept.state.changes == 1_000 - 1_000 // 4, "much has come at once: more than a slice"
    depth, snapshot = copier.capture()
    assert depth == 0, "there was nothing before"
    assert kept.state.changes == 0
    for i in range(150):
        kept.put(0, (f"k{i}", i))
    copier.turn(0)
    assert kept.state.changes == 50
    kept.put(0, ("k0", 0))
    depth, snapshot = copier.capture()
    assert depth == 1
    assert [len(piece) < 4_000 for piece in snapshot.pieces] == [True] * len(snapshot.pieces)


def test_a_small_state_is_written_whole_and_needs_nothing_before_it() -> None:
    kept = Kept()
    copier = Copier(kept, 10)
    for _ in range(3):
        kept.put(0, ("a", 1))
        copier.turn(0)
        depth, snapshot = copier.capture()
        assert (depth, len(snapshot.pieces)) == (0, 1)


@given(groups=st.integers(0, 4_096))
@settings(max_examples=20)
def test_of_several_logs_the_key_groups_that_are_owned_are_taken(groups: int) -> None:
    kept = Kept()
    for key in KEYS:
        kept.put(0, key)
    pieces = [kept.state.whole()]
    low, high = KeyedState("low", several=True), KeyedState("high", several=True)
    low.restore(pieces, owned=range(groups))
    high.restore(pieces, owned=range(groups, 4_096))
    assert {*low.open(), *high.open()} == set(KEYS)
    assert all(key_group(key) < groups for key in low.open())
    assert len(low) + len(high) == len(KEYS)
