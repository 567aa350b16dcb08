"""The table of who counts and who is ordered, row by row."""

from __future__ import annotations

from penstock.control.events import Replace, Withdraw
from penstock.control.presence import RENEW_SILENCES, Absence, Presence

S = 1_000_000
SILENCE = 30 * S
BOTH = {0, 1}


def both() -> Presence:
    presence = Presence(2, SILENCE)
    for worker in BOTH:
        assert presence.on_register(worker, 0, 0) == (True, [])
    return presence


def work(presence: Presence, first_us: int, until_us: int) -> None:
    """The driver is at work, hears worker 0, and orders nothing."""
    for now_us in range(first_us, until_us, 10 * S):
        presence.on_word(0, now_us)
        assert presence.tick(BOTH, now_us) == []


def ordered() -> Presence:
    presence = both()
    presence.on_word(0, SILENCE)
    assert presence.tick(BOTH, SILENCE + 1) == [Replace(1, 1)]
    return presence


def test_a_worker_that_has_never_come_is_not_ordered() -> None:
    """Spark has its task, and starts it when there is a core."""
    presence = Presence(2, SILENCE)
    presence.on_register(0, 0, 0)
    assert presence.tick(BOTH, SILENCE + 1) == [Replace(0, 1)]


def test_spark_has_started_the_task_again() -> None:
    presence = both()
    assert presence.on_register(1, 0, 5) == (True, [])
    assert (presence.losses(0), presence.losses(1)) == (0, 1)


def test_whoever_comes_while_the_worker_is_there_does_not_count() -> None:
    presence = both()
    assert presence.on_register(1, 7, 5) == (False, [])
    assert presence.losses(1) == 0


def test_what_was_ordered_comes() -> None:
    presence = ordered()
    assert presence.on_register(1, 1, 40 * S) == (True, [])
    assert presence.on_register(1, 0, 41 * S) == (False, []), "the first one is back, too late"
    assert presence.on_register(1, 1, 42 * S) == (True, []), "Spark has started the second one again"
    assert presence.losses(1) == 2


def test_another_one_comes_first() -> None:
    presence = ordered()
    assert presence.on_register(1, 0, 40 * S) == (True, [Withdraw(1, 1)])
    assert presence.tick(BOTH, 40 * S) == []


def test_the_order_of_a_process_that_has_lost_its_place_is_withdrawn() -> None:
    presence = ordered()
    presence.on_register(1, 1, 40 * S)
    work(presence, 40 * S, 70 * S)
    presence.on_word(0, 70 * S)
    assert presence.tick(BOTH, 70 * S + 1) == [Replace(1, 2)]
    assert presence.on_register(1, 2, 71 * S) == (True, [Withdraw(1, 1)])


def test_nothing_is_ordered_twice_and_what_never_comes_is_renewed_after_long() -> None:
    presence = ordered()
    renewed_us = SILENCE + 1 + RENEW_SILENCES * SILENCE
    work(presence, SILENCE + 10 * S, renewed_us)
    presence.on_word(0, renewed_us)
    assert presence.tick(BOTH, renewed_us + 1) == [Withdraw(1, 1), Replace(1, 2)]


def test_an_order_that_spark_has_ended_is_repeated_after_another_silence() -> None:
    presence = ordered()
    assert not presence.on_order_ended(1, 1, 40 * S)
    work(presence, 40 * S, 70 * S)
    presence.on_word(0, 70 * S)
    assert presence.tick(BOTH, 70 * S) == []
    assert presence.tick(BOTH, 70 * S + 1) == [Replace(1, 2)]
    assert not presence.on_order_ended(1, 1, 71 * S), "of which it was told before"
    assert presence.tick(BOTH, 71 * S) == []


def test_who_is_waited_for() -> None:
    presence = ordered()
    assert presence.absences(BOTH, 5 * S, SILENCE + 3 * S + 1) == [Absence(1, SILENCE + 3 * S + 1, 3 * S)]
    assert presence.absences(BOTH, 5 * S, 2 * SILENCE)[0] == Absence(0, SILENCE, None)
    assert presence.absences(set(), 5 * S, 2 * SILENCE) == [], "their work is done"


def test_while_the_driver_stands_still_nobody_is_silent() -> None:
    presence = both()
    work(presence, 0, 20 * S)
    assert presence.tick(BOTH, 3600 * S) == [], "its machine was asleep, and so were they"
    assert presence.absences(BOTH, 20 * S, 3601 * S) == []
    work(presence, 3601 * S, 3618 * S)
    assert presence.tick(BOTH, 3621 * S) == [Replace(1, 1)], "silent for 10 s before, for 21 s after"
