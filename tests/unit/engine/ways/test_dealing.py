"""Which replica gets the next item: algorithm 1 of predictive replication, and its baseline."""

from __future__ import annotations

from penstock.engine.ways.dealing import Dealing
from penstock.pipeline.options import Grouping

ALL = (0, 1, 2)
INTERVAL_US = 1_000_000


def by_load() -> Dealing:
    return Dealing(Grouping.LOAD, INTERVAL_US)


def dealt(dealing: Dealing, count: int, cost_us: float, free: tuple[int, ...] = ALL, now_us: int = 0) -> list[int]:
    found = [dealing.choose(ALL, free, cost_us, now_us) for _ in range(count)]
    return [each for each in found if each is not None]


def test_equals_take_turns() -> None:
    assert dealt(by_load(), 6, 1_000) == [0, 1, 2, 0, 1, 2]


def test_the_least_utilised_is_first() -> None:
    dealing = by_load()
    dealing.choose(ALL, ALL, 0, INTERVAL_US)
    for number, busy_us in ((0, 500_000), (1, 125_000), (2, 375_000)):
        dealing.done(number, busy_us)
    # Each item adds an eighth.
    assert dealt(dealing, 6, 125_000, now_us=2 * INTERVAL_US) == [1, 1, 2, 1, 2, 0]
    assert dealing.utilisation(ALL, 2 * INTERVAL_US) == {0: 0.5, 1: 0.125, 2: 0.375}, "without what was dealt out since"
    assert dealing.utilisation(ALL, 3 * INTERVAL_US) == {0: 0, 1: 0, 2: 0}, "nobody has worked since"


def test_when_all_are_full_they_take_turns() -> None:
    dealing = by_load()
    assert dealt(dealing, 3, INTERVAL_US) == [0, 1, 2]
    assert dealt(dealing, 4, 7.0) == [0, 1, 2, 0]


def test_who_has_no_room_is_not_asked() -> None:
    dealing = by_load()
    assert dealt(dealing, 4, 1_000, free=(2, 0)) == [0, 2, 0, 2]
    assert dealing.choose(ALL, (), 1_000, 0) is None
    assert dealing.choose((), (), 1_000, 0) is None


def test_what_was_dealt_long_ago_no_longer_counts() -> None:
    dealing = by_load()
    dealt(dealing, 2, INTERVAL_US)
    assert dealt(dealing, 3, 1.0, now_us=5 * INTERVAL_US) == [2, 0, 1]


def test_shuffling_waits_for_whose_turn_it_is() -> None:
    dealing = Dealing(Grouping.SHUFFLE, INTERVAL_US)
    assert dealt(dealing, 4, 1_000) == [0, 1, 2, 0]
    assert dealing.choose(ALL, (0, 2), 1_000, 0) is None, "it is the turn of one that has no room"
    assert dealt(dealing, 2, 1_000) == [1, 2]
