"""Groups as Spark jobs: submitted, up, standing by, ended, failed; in made-up time."""

from __future__ import annotations

import pytest

from penstock.control.groups import (
    FAILURES_MAX,
    FIGURES_MAX,
    FIRST_SIZE,
    RETRY_US_MIN,
    UP_US_MAX,
    GroupCommand,
    Groups,
    Submit,
    TellSlot,
)
from penstock.protocol import messages as m
from penstock.protocol import slots as s

MS, S = 1_000, 1_000_000
PEERS = [m.Peer(worker=0, incarnation=77, endpoint="tcp://w0"), m.Peer(worker=1, incarnation=78, endpoint="tcp://w1")]


class Play:
    """Groups, and the Spark that they are submitted to."""

    def __init__(self, slots: int = 2, size: int | None = None, calm_us: int = 0) -> None:
        self.groups = Groups(slots, size, calm_us)
        self.now_us = 10 * S
        self.told: list[TellSlot] = []
        self.submitted: list[Submit] = []
        self.groups.know(PEERS, 5 * S)

    def take(self, commands: list[GroupCommand]) -> list[GroupCommand]:
        for command in commands:
            if isinstance(command, Submit):
                self.submitted.append(command)
            else:
                self.told.append(command)
        return commands

    def tick(self, after_us: int = 0) -> list[int]:
        """Let time pass; return the groups that are submitted."""
        self.now_us += after_us
        return [each.group for each in self.take(self.groups.tick(self.now_us)) if isinstance(each, Submit)]

    def up(self, group: int, slot: int, incarnation: int | None = None) -> None:
        number = 100 * group + slot if incarnation is None else incarnation
        self.take(
            self.groups.on_up(
                s.SlotUp(group=group, slot=slot, incarnation=number, endpoint=f"tcp://{number}", pid=number),
                self.now_us,
            )
        )

    def down(self, group: int, slot: int, batches: int, worked_us: int = S) -> None:
        self.groups.on_down(
            s.SlotDown(
                group=group,
                slot=slot,
                incarnation=100 * group + slot,
                batches=batches,
                busy_us=worked_us,
                worked_us=worked_us,
            )
        )

    def ended(self, group: int, error: str | None = None) -> None:
        self.take(self.groups.on_ended(group, error, self.now_us))

    def run(self, group: int, batches: int, schedule_us: int, worked_us: int) -> None:
        """A group from its submission to its end."""
        self.now_us += schedule_us
        for slot in range(self.groups.slots):
            self.up(group, slot)
        for slot in range(self.groups.slots):
            self.down(group, slot, batches, worked_us)
        self.now_us += worked_us
        self.ended(group)

    def heard(self, kind: type[s.ToSlotFromDriver]) -> list[str]:
        """Who was told something since the last look."""
        found = [f"tcp://{each.slot}" for each in self.told if isinstance(each.message, kind)]
        self.told.clear()
        return found


def test_nothing_is_submitted_before_slots_are_wanted() -> None:
    play = Play()
    assert play.tick(S) == []
    play.groups.want(1, all_slots=True)
    assert play.tick() == [1]
    assert play.submitted == [Submit(1, 2, FIRST_SIZE)]
    assert play.tick(S) == [], "one is on its way"


def submitted(play: Play) -> list[tuple[int, int]]:
    """Groups with their slots, in the order of their submission."""
    return [(each.group, each.slots) for each in play.submitted]


def test_in_calm_weather_one_slot_stands_by_and_a_burst_has_all_of_them() -> None:
    play = Play(slots=3, calm_us=30 * S)
    play.groups.want(1)
    play.tick()
    play.up(1, 0)
    assert play.tick(3600 * S) == []
    assert (play.groups.up, play.groups.offered) == (1, 3), "decisions count with those that a burst would have"
    play.groups.want(2)
    assert play.tick() == [2]
    play.up(2, 0)
    play.up(2, 1)
    assert play.tick() == []
    play.told.clear()
    play.up(2, 2)
    assert play.tick() == [3], "the small group has done its duty, and the next one stands by"
    assert play.heard(s.End) == ["tcp://100"]
    assert submitted(play) == [(1, 1), (2, 3), (3, 3)]


def test_where_no_group_may_stand_by_a_burst_has_all_slots_too() -> None:
    play = Play(slots=3)
    play.groups.want(1)
    play.tick()
    play.up(1, 0)
    play.groups.want(1, is_work=True)
    assert play.tick() == [2]
    for slot in range(3):
        play.up(2, slot)
    assert play.tick() == []
    assert submitted(play) == [(1, 1), (2, 3)]


def test_after_a_long_calm_all_slots_but_one_end() -> None:
    play = Play(calm_us=30 * S)
    both_up(play)
    play.groups.want(1)
    assert play.tick(30 * S) == []
    assert play.heard(s.End) == [], "the next burst may come soon"
    assert play.tick(1) == [3]
    assert play.heard(s.End) == ["tcp://100", "tcp://101", "tcp://200", "tcp://201"]
    assert play.submitted[-1].slots == 1
    play.up(3, 0)
    for group in (1, 2):
        play.ended(group)
    assert play.tick(3600 * S) == []
    assert list(play.groups.pids) == [(3, 0)]


def test_a_slot_that_is_the_only_one_stays_in_calm_weather() -> None:
    play = Play(slots=1)
    play.groups.want(2)
    play.tick()
    play.up(1, 0)
    play.tick()
    play.up(2, 0)
    play.groups.want(1)
    play.told.clear()
    assert play.tick(3600 * S) == []
    assert play.heard(s.End) == []


def test_slots_that_a_full_cluster_has_no_core_for_do_not_keep_the_small_group() -> None:
    play = Play(slots=3)
    play.groups.want(1)
    play.tick()
    play.up(1, 0)
    play.groups.want(2)
    assert play.tick() == [2]
    play.told.clear()
    assert play.tick(UP_US_MAX + 1) == [3]
    assert play.heard(s.End) == ["tcp://100"], "its core is for one of them"
    assert play.groups.offered == 0


def test_the_next_group_waits_until_the_one_before_is_up() -> None:
    play = Play()
    play.groups.want(2)
    assert play.tick() == [1]
    play.up(1, 0)
    assert play.tick(S) == []
    assert play.groups.up == 0
    play.up(1, 1)
    assert play.groups.up == 2
    assert play.tick() == [2]
    play.up(2, 0)
    play.up(2, 1)
    assert play.tick(S) == [], "one works, one stands by"
    assert play.groups.pids == {(1, 0): 100, (1, 1): 101, (2, 0): 200, (2, 1): 201}


def test_slots_that_come_up_hear_who_the_workers_are_and_when_it_began() -> None:
    play = Play()
    play.groups.want(1)
    play.tick()
    play.up(1, 0)
    assert [(f"tcp://{each.slot}", each.message) for each in play.told] == [
        ("tcp://100", s.Workers(peers=PEERS, start_us=5 * S))
    ]
    assert play.take(play.groups.know(PEERS, 5 * S)) == [], "no news"
    newer = [PEERS[0], m.Peer(worker=1, incarnation=99, endpoint="tcp://w1b")]
    assert play.take(play.groups.know(newer, 5 * S)) == [TellSlot(100, s.Workers(peers=newer, start_us=5 * S))]


def test_a_slot_may_have_done_its_share_before_the_last_one_comes_up() -> None:
    play = Play()
    play.groups.want(2)
    play.tick()
    play.up(1, 0)
    play.down(1, 0, FIRST_SIZE)
    play.up(1, 1)
    assert play.tick() == [2], "the group is up, and the next one is due"


def test_tasks_that_spark_starts_again_count_once() -> None:
    play = Play()
    play.groups.want(2)
    play.tick()
    play.up(1, 0)
    play.up(1, 0, incarnation=555)
    assert play.tick() == []
    assert play.groups.pids == {(1, 0): 555}
    play.down(1, 0, 3)
    assert play.groups.pids == {(1, 0): 555}, "the word of the one before is late"


def test_a_cluster_without_free_places_is_not_asked_again_and_again() -> None:
    play = Play()
    play.groups.want(2)
    assert play.tick() == [1]
    assert play.tick(UP_US_MAX) == []
    assert play.tick(1) == [2], "the first may never come up"
    assert [play.tick(UP_US_MAX) for _ in range(5)] == [[]] * 5


def fail(play: Play, times: int) -> list[int]:
    """Have groups fail before a task of theirs begins; return how long each successor was waited for."""
    waits = []
    for _ in range(times):
        play.ended(play.submitted[-1].group, "no module 'gpu'")
        failed_us = play.now_us
        while play.groups.given_up is None and not play.tick(100 * MS):
            pass
        waits.append(play.now_us - failed_us)
    return waits


def test_a_job_that_fails_is_tried_later_and_later() -> None:
    play = Play()
    play.groups.want(1)
    play.tick()
    assert fail(play, FAILURES_MAX - 1) == [RETRY_US_MIN << n for n in range(FAILURES_MAX - 1)]
    assert play.groups.error == "no module 'gpu'"
    group = play.submitted[-1].group
    play.up(group, 0)
    play.ended(group, "again")
    assert play.tick(RETRY_US_MIN) == [group + 1], "a group of which a task began has made good"
    assert fail(play, FAILURES_MAX - 1)[0] == 2 * RETRY_US_MIN
    assert play.groups.given_up is None


def test_groups_that_cannot_begin_are_given_up_after_some_in_a_row() -> None:
    play = Play()
    play.groups.want(1)
    play.tick()
    fail(play, FAILURES_MAX)
    assert play.groups.given_up == "no module 'gpu'"
    assert len(play.submitted) == FAILURES_MAX
    assert play.tick(3600 * S) == []


def test_an_older_group_that_works_is_ended_when_its_successors_cannot_begin() -> None:
    play = Play()
    play.groups.want(2)
    play.tick()
    play.up(1, 0)
    play.up(1, 1)
    play.tick()
    fail(play, FAILURES_MAX)
    assert play.groups.given_up is not None
    play.told.clear()
    assert play.tick() == []
    assert play.heard(s.End) == ["tcp://100", "tcp://101"]


def test_an_error_is_forgotten_with_the_next_group_that_ends_well() -> None:
    play = Play()
    play.groups.want(1)
    play.tick()
    fail(play, 1)
    play.run(2, FIRST_SIZE, MS, S)
    assert play.groups.error is None


def test_tasks_that_end_before_they_begin_are_a_failure() -> None:
    play = Play()
    play.groups.want(1)
    play.tick()
    play.ended(1)
    assert play.tick() == []
    assert play.groups.error is not None
    assert play.tick(RETRY_US_MIN) == [2]


def test_sizes_follow_the_overhead_and_stay_where_they_are_fixed() -> None:
    tuned, fixed = Play(), Play(size=8)
    for play in (tuned, fixed):
        play.groups.want(1, all_slots=True)
        play.tick()
        play.run(1, 8, 900 * MS, 100 * MS)  # the first comes up with Spark itself: no measure
        assert play.groups.size == 8
        assert play.tick() == [2]
        play.run(2, 8, 500 * MS, 500 * MS)
    assert (tuned.groups.size, fixed.groups.size) == (16, 8)
    assert tuned.groups.overhead == pytest.approx(0.5)
    tuned.tick()
    assert tuned.submitted[-1].micro_batches == 16
    sizes = []
    for group in range(3, 9):
        tuned.run(group, tuned.groups.size, 1, 100 * S)
        tuned.tick()
        sizes.append(tuned.groups.size)
    assert sizes == [32, 32, 31, 30, 29, 28], "the average forgets the spike, then groups get smaller again"
    shown = tuned.groups.finished[1]
    assert (shown.group, shown.slots, shown.size, shown.micro_batches, shown.overhead) == (2, 2, 8, 16, 0.5)
    assert (shown.scheduling_ms, shown.execution_ms) == (500, 500)


def test_a_group_that_did_not_do_its_share_is_no_measure() -> None:
    play = Play()
    play.groups.want(1)
    for group in (1, 2):
        play.tick()
        play.run(group, 3, 500 * MS, 500 * MS)
    assert play.groups.finished == []
    assert play.groups.size == FIRST_SIZE


def test_figures_of_groups_are_bounded() -> None:
    play = Play(slots=1, size=1)
    play.groups.want(1)
    for group in range(1, FIGURES_MAX + 11):
        play.tick()
        play.run(group, 1, MS, MS)
    assert [each.group for each in play.groups.finished] == list(range(11, FIGURES_MAX + 11))


def both_up(play: Play) -> None:
    play.groups.want(2)
    for group in (1, 2):
        play.tick()
        play.up(group, 0)
        play.up(group, 1)
    play.told.clear()


def test_an_older_group_that_workers_have_given_up_does_not_stay() -> None:
    play = Play()
    both_up(play)
    for slot in (0, 1):
        play.down(2, slot, FIRST_SIZE)
    play.ended(2)
    assert play.heard(s.End) == ["tcp://100", "tcp://101"]
    assert play.tick() == [3], "it no longer counts"
    play.ended(1)
    assert [each.group for each in play.groups.finished] == [2]


def test_the_group_that_ends_first_leaves_the_one_that_stands_by() -> None:
    play = Play()
    both_up(play)
    for slot in (0, 1):
        play.down(1, slot, FIRST_SIZE)
    play.ended(1)
    assert play.heard(s.End) == []
    assert play.tick() == [3]


def test_slots_that_are_no_longer_wanted_end_and_so_do_late_ones() -> None:
    play = Play()
    play.groups.want(1)
    play.tick()
    play.up(1, 0)
    play.told.clear()
    play.groups.want(0)
    play.tick()
    assert play.told == [TellSlot(100, s.End(at_once=False))]
    play.told.clear()
    play.up(1, 1)
    assert play.told == [TellSlot(101, s.End(at_once=True))]
    play.told.clear()
    play.up(9, 0)
    assert play.told == [TellSlot(900, s.End(at_once=True))], "of a group that nobody knows"
    play.ended(1, "cancelled")
    assert play.groups.error is None, "it was to end"


def test_groups_make_way_for_a_worker_and_come_back() -> None:
    play = Play()
    both_up(play)
    play.take(play.groups.give_way(play.now_us))
    assert play.heard(s.End) == ["tcp://100", "tcp://101", "tcp://200", "tcp://201"]
    assert play.tick() == [], "the worker's task comes first"
    assert play.take(play.groups.give_way(play.now_us)) == []
    assert play.tick(RETRY_US_MIN) == [3]
