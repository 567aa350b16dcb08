"""Switches of form from wish to effect: preparing, switching, failures, recoveries, calls back; in made-up time."""

from __future__ import annotations

import penstock as ps
from penstock.control.changes import CHANGES_MAX
from penstock.control.switches import PREPARE_US_MAX, SwitchEnded, Switches
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.pipeline.ranges import Range
from penstock.protocol import messages as m

MS, S = 1_000, 1_000_000
T0 = 100 * S
INTERVAL_US = 50 * MS


def plan_of(parallelism: int = 2) -> Plan:
    columns = {"k": ps.fields.choice(["a", "b"]), "n": ps.fields.integers(0, 9)}
    source = ps.generator(columns, rate=1000, total=10, format="columns")
    stream = ps.stream("in", source).filter(ps.col("n") > 0).select("k", "n")
    pipeline = stream.to(ps.memory())
    return Plan.of(pipeline.graph(), Options.of(parallelism=parallelism))


class Play:
    """Switches of unit 0, which has two instances."""

    def __init__(self) -> None:
        self.plan = plan_of()
        self.switches = Switches(self.plan)
        self.now_us = T0

    def begin(self, first: int, last: int) -> None:
        at_s = (self.now_us - T0) / S
        self.switches.begin(self.plan.units[0], Range(first, last), "why", {"L": 7.0}, at_s, self.now_us)

    def tick(self, after_us: int = 0, *, slots: bool = True) -> tuple[list[m.Switch], list[SwitchEnded]]:
        self.now_us += after_us
        return self.switches.tick(slots, INTERVAL_US, self.now_us)

    def switched(self, instance: int, switch: int, pause_us: int = 0, carried: int = 0) -> list[SwitchEnded]:
        message = m.Changed(
            worker=instance,
            incarnation=1,
            number=switch,
            unit=0,
            instance=instance,
            pause_us=pause_us,
            carried_records=carried,
        )
        return self.switches.on_changed(message, self.now_us)

    def done(self, first: int, last: int) -> int:
        """A switch from wish to effect; return its number."""
        self.begin(first, last)
        (order,), _ = self.tick()
        for instance in (0, 1):
            self.switched(instance, order.number)
        return order.number


def test_a_switch_waits_for_slots_and_is_done_when_every_instance_is() -> None:
    play = Play()
    play.begin(-1, 1)
    assert play.switches.wants_slots
    assert not play.switches.is_away
    assert play.tick(200 * MS, slots=False) == ([], [])
    assert play.tick(100 * MS) == ([m.Switch(number=1, unit=0, range=Range(-1, 1), interval_us=INTERVAL_US)], [])
    assert play.switches.is_away
    assert play.tick() == ([], []), "it is sent once"
    play.now_us += 40 * MS
    assert play.switched(1, 1, 30 * MS, 500) == []
    assert play.switched(1, 1, 5 * MS, 500) == [], "said twice"
    assert play.switches.busy(0)
    assert play.switched(0, 1, 10 * MS, 300) == [SwitchEnded(0, Range(-1, 1), failed=False)]
    assert not play.switches.busy(0)
    (switch,) = play.switches.reports
    assert (switch.at_s, switch.operations, switch.to) == (0.0, ["in", "filter", "select"], "batch")
    assert (switch.pause_ms, switch.prepare_ms, switch.total_ms, switch.carried_records) == (30, 300, 340, 800)
    assert (switch.reason, switch.inputs) == ("why", {"L": 7.0})


def test_the_way_back_waits_for_nothing() -> None:
    play = Play()
    play.done(-1, 1)
    play.begin(0, -1)
    assert play.tick(slots=False) == ([m.Switch(number=2, unit=0, range=Range(0, -1), interval_us=INTERVAL_US)], [])
    assert not play.switches.wants_slots
    play.switched(0, 2)
    assert play.switched(1, 2) == [SwitchEnded(0, Range(0, -1), failed=False)]
    assert [(each.to, each.operations) for each in play.switches.reports][1] == (
        "record",
        ["in", "filter", "select"],
    )


def test_a_range_that_changes_names_what_changes() -> None:
    play = Play()
    play.done(0, 0)
    play.done(-1, 1)
    play.done(1, 1)
    assert [(each.to, each.operations) for each in play.switches.reports] == [
        ("batch", ["filter"]),
        ("batch", ["in", "select"]),
        ("record", ["in", "filter"]),
    ]
    assert play.switches.range(0) == Range(1, 1)


def test_preparing_ends_and_the_unit_stays_as_it_was() -> None:
    play = Play()
    play.begin(-1, 1)
    assert play.tick(PREPARE_US_MAX, slots=False) == ([], [])
    assert play.tick(1, slots=False) == ([], [SwitchEnded(0, Range(0, -1), failed=True)])
    assert not play.switches.wants_slots
    assert play.tick() == ([], [])
    assert play.switches.reports == []


def test_one_at_a_time_and_none_for_what_is() -> None:
    play = Play()
    play.begin(-1, 1)
    play.begin(0, 0)
    (order,), _ = play.tick()
    assert order.range == Range(-1, 1)
    for instance in (0, 1):
        play.switched(instance, 1)
    play.begin(-1, 1)
    assert play.tick() == ([], [])
    assert not play.switches.busy(0)


def test_words_of_another_switch_do_not_count() -> None:
    play = Play()
    play.done(-1, 1)
    play.begin(0, -1)
    play.tick()
    assert play.switched(0, 1) == []
    assert play.switched(1, 1) == []
    assert play.switches.busy(0)


def test_after_a_recovery_the_standing_order_goes_out_again_under_its_number() -> None:
    play = Play()
    assert play.switches.repeat() == []
    play.begin(-1, 1)
    assert play.switches.repeat() == [], "it has not been given yet"
    play.tick()
    play.switched(0, 1)
    # Instance 1 is lost before it has answered: its successor answers to the repeated order.
    assert play.switches.repeat() == [m.Switch(number=1, unit=0, range=Range(-1, 1), interval_us=INTERVAL_US)]
    assert play.switched(1, 1) == [SwitchEnded(0, Range(-1, 1), failed=False)]
    assert play.switches.repeat() == [m.Switch(number=1, unit=0, range=Range(-1, 1), interval_us=INTERVAL_US)]
    assert play.switched(0, 1) == [], "repeated answers to a switch that is done are no news"
    assert len(play.switches.reports) == 1


def test_after_a_recovery_the_way_back_is_repeated_too() -> None:
    play = Play()
    play.done(-1, 1)
    play.begin(0, -1)
    play.tick()
    assert play.switches.repeat() == [m.Switch(number=2, unit=0, range=Range(0, -1), interval_us=INTERVAL_US)]


def test_ranges_are_called_back_though_their_switch_is_not_over() -> None:
    play = Play()
    play.begin(-1, 1)
    play.tick()
    play.switched(0, 1)
    play.now_us += 5 * S
    play.switches.call_back("no slots", 5.0, play.now_us)
    assert play.tick(slots=False) == ([m.Switch(number=2, unit=0, range=Range(0, -1), interval_us=INTERVAL_US)], [])
    assert play.switched(1, 1) == [], "too late"
    play.switched(0, 2)
    assert play.switched(1, 2) == [SwitchEnded(0, Range(0, -1), failed=False)]
    assert [(each.to, each.reason) for each in play.switches.reports] == [("record", "no slots")]


def test_what_is_only_being_prepared_is_not_called_back() -> None:
    play = Play()
    play.begin(-1, 1)
    play.switches.call_back("no slots", 0.0, play.now_us)
    (order,), _ = play.tick()
    assert order.range == Range(-1, 1)


def test_the_interval_is_changed_between_switches_only() -> None:
    play = Play()
    assert play.switches.pace(0, 80 * MS) == [], "nothing is in batch form"
    play.begin(-1, 1)
    play.tick()
    assert play.switches.pace(0, 80 * MS) == []
    for instance in (0, 1):
        play.switched(instance, 1)
    assert play.switches.pace(0, INTERVAL_US) == []
    assert play.switches.pace(0, 80 * MS) == [m.Switch(number=1, unit=0, range=Range(-1, 1), interval_us=80 * MS)]
    assert play.switches.repeat() == [m.Switch(number=1, unit=0, range=Range(-1, 1), interval_us=80 * MS)]


def test_switches_are_bounded() -> None:
    play = Play()
    for _ in range(CHANGES_MAX // 2 + 5):
        play.done(-1, 1)
        last = play.done(0, -1)
    assert len(play.switches.reports) == CHANGES_MAX < last
