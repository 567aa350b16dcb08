"""The control loop as a whole: what it commands when slots come, go and stay away; in made-up time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import penstock as ps
from penstock.control.adaptation import (
    CALIBRATE_US_MAX,
    CALIBRATE_US_MIN,
    CONTROL_US,
    SAMPLE_RECORDS,
    SAMPLES,
    SLOTLESS_US,
    Command,
    ControlLoop,
    JobView,
)
from penstock.control.events import Send
from penstock.control.groups import FAILURES_MAX, Submit, TellSlot
from penstock.control.pins import checked_operations, first_pins
from penstock.errors import InvalidOption, WorkerFailed
from penstock.operators import Form
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.protocol import slots as s
from penstock.protocol.pulses import UnitPulse

S = 1_000_000
START_US = 100 * S
PEERS = [m.Peer(worker=worker, incarnation=70 + worker, endpoint=f"tcp://w{worker}") for worker in range(2)]


def plan_of(**options: Any) -> Plan:
    columns = {"k": ps.fields.choice(["a", "b"]), "n": ps.fields.integers(0, 9), "t": ps.fields.event_time()}
    source = ps.generator(columns, rate=1000, total=10, format="columns", partitions=2)
    stream = ps.stream("in", source).filter(ps.col("n") > 0).select("k", "t")
    pipeline = stream.key_by("k").window(ps.tumbling("1s", on="t")).count().to(ps.memory(), name="out")
    return Plan.of(pipeline.graph(), Options.of(parallelism=2, **options))


FRONT = ["in", "filter", "select", "count.combine"]


class Play:
    """A loop, its two workers, and what they are told."""

    def __init__(self, **options: Any) -> None:
        self.plan = plan_of(**options)
        self.loop = ControlLoop(self.plan, cores=2)
        self.now_us = START_US
        self.slots = 0
        self.sent: list[m.ToWorker] = []
        """What worker 0 heard."""
        self.submitted: list[Submit] = []
        self.told: list[TellSlot] = []
        self.running = True

    def take(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Submit):
                self.submitted.append(command)
            elif isinstance(command, TellSlot):
                self.told.append(command)
            elif isinstance(command, Send) and command.worker == 0:
                self.sent.append(command.message)  # type: ignore[arg-type]

    def run(self, us: int) -> None:
        """Let time pass, with pulses from both workers at every control interval."""
        until_us = self.now_us + us
        while self.now_us < until_us:
            self.now_us += CONTROL_US
            for worker in range(2):
                pulses = [UnitPulse(unit=unit.id, instance=worker, arrived=0, waiting=0) for unit in self.plan.units]
                self.loop.on_worker(
                    m.Pulse(worker=worker, incarnation=70 + worker, at_us=self.now_us, units=pulses, slots=self.slots),
                    self.now_us,
                )
            self.tick()

    def tick(self, *, peers: bool = True, ending: bool = False) -> None:
        view = JobView(self.running, ending, PEERS if peers else [], START_US, START_US)
        self.take(self.loop.tick(view, None, self.now_us))

    def up(self, group: int) -> None:
        """A group's tasks come up, and workers hear of them."""
        for slot in range(2):
            number = 100 * group + slot
            self.take(
                self.loop.on_slot(
                    s.SlotUp(group=group, slot=slot, incarnation=number, endpoint=f"tcp://{number}", pid=number),
                    self.now_us,
                )
            )
        self.slots = 2

    def switched(self, order: m.Switch) -> None:
        for worker in range(2):
            message = m.Changed(
                worker=worker,
                incarnation=70 + worker,
                number=order.number,
                unit=order.unit,
                instance=worker,
                pause_us=0,
                carried_records=0,
            )
            self.loop.on_worker(message, self.now_us)

    def orders(self) -> list[tuple[int, int, int]]:
        """Unit and range of the orders since the last look; workers follow them at once."""
        found = [each for each in self.sent if isinstance(each, m.Switch)]
        self.sent = [each for each in self.sent if not isinstance(each, m.Switch)]
        for each in found:
            self.switched(each)
        return [(each.unit, each.range.first, each.range.last) for each in found]


def test_what_is_pinned_to_batch_form_goes_there_when_slots_are_up() -> None:
    play = Play(forms="batch")
    play.run(S)
    assert [each.group for each in play.submitted] == [1]
    assert play.orders() == []
    play.up(1)
    play.run(S)
    assert set(play.orders()) == {(0, -1, 2), (1, 1, 1)}
    assert [each.to for each in play.loop.switches] == ["batch"] * 2
    assert [each.group for each in play.submitted] == [1, 2], "one works, one stands by"


def test_no_group_stands_by_where_it_would_take_the_last_core() -> None:
    play = Play(forms="batch")
    play.loop.places = 2 + 2 * 2
    play.run(S)
    play.up(1)
    play.run(S)
    play.orders()
    play.run(S)
    assert [each.group for each in play.submitted] == [1], "the session's other jobs need one"
    play.loop.places += 1
    play.run(S)
    assert [each.group for each in play.submitted] == [1, 2]


def test_a_job_in_batch_form_without_a_core_for_slots_says_so() -> None:
    play = Play(forms="batch")
    play.run(SLOTLESS_US)
    assert play.loop.waits(play.now_us) == []
    play.run(CONTROL_US)
    (waits,) = play.loop.waits(play.now_us)
    assert "slots for the batch form" in waits
    assert "no free core" in waits
    play.up(1)
    play.run(CONTROL_US)
    assert play.loop.waits(play.now_us) == []
    calm = Play()
    calm.run(2 * SLOTLESS_US)
    assert calm.loop.waits(calm.now_us) == [], "nothing is to be in batch form"


def test_a_job_in_record_form_asks_spark_for_nothing() -> None:
    play = Play(forms="record")
    play.run(5 * S)
    assert (play.submitted, play.sent) == ([], [])


def test_workers_come_before_slots() -> None:
    play = Play(forms="batch")
    play.running = False
    play.tick(peers=False)
    assert play.submitted == []
    play.tick()
    assert [each.group for each in play.submitted] == [1], "as soon as the first worker is there"


def test_nothing_more_is_begun_when_the_job_ends() -> None:
    play = Play(forms="batch")
    play.tick(ending=True)
    assert play.submitted == []


def test_advice_is_given_and_not_followed() -> None:
    play = Play(forms="batch", advise=True)
    play.run(S)
    play.up(1)
    play.run(S)
    assert play.orders() == []
    advice = play.loop.report().advice
    assert {(tuple(each.operations), each.to) for each in advice} == {(tuple(FRONT), "batch"), (("out",), "batch")}


def test_ranges_come_back_when_all_slots_stay_away_and_go_again_with_new_ones() -> None:
    play = Play(forms="batch")
    play.run(S)
    play.up(1)
    play.run(S)
    assert len(play.orders()) == 2
    play.slots = 0
    play.take(play.loop.on_group_ended(1, "executor lost", play.now_us))
    assert m.GroupEnded(group=1) in play.sent
    play.run(SLOTLESS_US - S)
    assert play.orders() == []
    play.run(2 * S)
    assert set(play.orders()) == {(0, 0, -1), (1, 0, -1)}
    back = play.loop.switches[-1]
    assert (back.to, back.reason) == ("record", "no slots: executor lost")
    play.up(2)
    play.run(20 * S)
    assert set(play.orders()) == {(0, -1, 2), (1, 1, 1)}


def test_one_worker_without_slots_is_enough_to_come_back() -> None:
    play = Play(forms="batch")
    play.run(S)
    play.up(1)
    play.run(S)
    play.orders()
    play.loop.on_worker(m.Register(worker=1, incarnation=99, endpoint="tcp://w1b", pid=0), play.now_us)
    for _ in range((SLOTLESS_US + S) // CONTROL_US):
        play.now_us += CONTROL_US
        play.tick()
    assert set(play.orders()) == {(0, 0, -1), (1, 0, -1)}


def test_a_switch_that_finds_no_slots_is_tried_later() -> None:
    play = Play(forms="batch")
    play.run(15 * S)
    assert play.orders() == []
    assert any("failed" in note for note in play.loop.report().notes)


def cannot_begin(play: Play) -> None:
    """Every group's tasks say why they cannot begin, until no more are asked for."""
    ended = len(play.submitted) - 1
    while ended < len(play.submitted):
        for each in play.submitted[ended:]:
            play.take(play.loop.on_group_ended(each.group, "a slot cannot open the pipeline: no gpu", play.now_us))
        ended = len(play.submitted)
        play.run(20 * S)


def test_a_job_whose_slots_cannot_begin_goes_on_in_record_form_and_says_why() -> None:
    play = Play()
    play.run(S)
    play.loop.pin(FRONT, Form.BATCH)
    cannot_begin(play)
    assert len(play.submitted) == FAILURES_MAX
    told = play.loop.report()
    assert told.given_up == "a slot cannot open the pipeline: no gpu"
    assert [note.partition(": ")[2] for note in told.notes][-1] == f"batch form is given up: {told.given_up}"
    play.loop.pin(FRONT, Form.BATCH)
    play.run(100 * S)
    assert (play.orders(), len(play.submitted)) == ([], FAILURES_MAX)
    assert sum("given up" in note for note in play.loop.report().notes) == 1


def test_ranges_that_are_away_come_back_when_the_batch_form_is_given_up() -> None:
    play = Play()
    play.run(S)
    play.loop.pin(FRONT, Form.BATCH)
    play.up(1)
    play.run(S)
    assert play.orders() == [(0, -1, 2)]
    cannot_begin(play)
    assert play.orders() == [(0, 0, -1)]
    assert "no gpu" in play.loop.switches[-1].reason


@pytest.mark.parametrize("options", [{"forms": "batch"}, {"pin": {"filter": "batch"}}])
def test_a_job_that_was_to_be_in_batch_form_fails_and_names_the_cause(options: dict[str, Any]) -> None:
    play = Play(**options)
    play.run(S)
    with pytest.raises(WorkerFailed, match=r"no gpu\. Every machine .* forms="):
        cannot_begin(play)


def test_after_a_recovery_orders_are_repeated() -> None:
    play = Play(forms="batch")
    play.run(S)
    play.up(1)
    play.run(S)
    assert len(play.orders()) == 2
    play.take(play.loop.on_resumed(PEERS))
    assert set(play.orders()) == {(0, -1, 2), (1, 1, 1)}
    assert len(play.loop.switches) == 2, "the same switches"


def test_pins_can_be_changed_while_it_runs() -> None:
    play = Play(forms="record")
    play.loop.pin(checked_operations(play.plan, ["filter", "select"], Form.BATCH), Form.BATCH)
    play.run(S)
    play.up(1)
    play.run(S)
    assert play.orders() == [(0, 0, 1)]
    play.loop.pin(["filter", "select"], Form.RECORD)
    play.run(S)
    assert play.orders() == [(0, 0, -1)]


def test_samples_are_asked_for_less_and_less_often_until_there_are_enough() -> None:
    play = Play()
    play.run(S)
    play.up(1)
    at_us = []
    for _ in range(400 * S // CONTROL_US):
        before = len(play.sent)
        play.run(CONTROL_US)
        if m.Calibrate(unit=0, instance=0, records=SAMPLE_RECORDS) in play.sent[before:]:
            at_us.append(play.now_us)
    waits = [later - earlier for earlier, later in pairwise(at_us)]
    assert waits[:3] == [CALIBRATE_US_MIN, 2 * CALIBRATE_US_MIN, 4 * CALIBRATE_US_MIN]
    assert waits[-1] == CALIBRATE_US_MAX
    for _ in range(SAMPLES):
        play.take(
            play.loop.on_slot(
                s.Calibrated(
                    unit=0, instance=0, records=10, record_ns={0: 1000}, batch_ns={0: 100}, records_in={0: 10}
                ),
                play.now_us,
            )
        )
    play.sent.clear()
    play.run(2 * CALIBRATE_US_MAX)
    assert not any(isinstance(each, m.Calibrate) and each.unit == 0 for each in play.sent), "of instance 0"
    report = play.loop.report()
    assert (report.record_ns["filter"], report.batch_ns["filter"]) == (100.0, 10.0)


def test_samples_are_asked_of_every_instance_until_each_has_given_enough() -> None:
    play = Play()
    play.run(S)
    play.up(1)

    def look() -> set[tuple[int, int, int]]:
        play.now_us += CALIBRATE_US_MAX
        view = JobView(True, False, PEERS, START_US, START_US)
        return {
            (each.worker, each.message.unit, each.message.instance)
            for each in play.loop.tick(view, None, play.now_us)
            if isinstance(each, Send) and isinstance(each.message, m.Calibrate)
        }

    assert look() == {(0, 0, 0), (1, 0, 1)}, "each from its own worker; none where state comes first"
    told = s.Calibrated(unit=0, instance=1, records=10, record_ns={0: 1000}, batch_ns={0: 100}, records_in={0: 10})
    for _ in range(SAMPLES):
        play.loop.on_slot(told, play.now_us)
    assert look() == {(0, 0, 0)}


def test_groups_make_way_for_a_replaced_worker() -> None:
    play = Play(forms="batch")
    play.run(S)
    play.up(1)
    play.told.clear()
    play.take(play.loop.on_replaced(play.now_us))
    assert {each.slot for each in play.told if each.message == s.End(at_once=False)} == {100, 101}


# --- names ------------------------------------------------------------------------------------------------------------


def test_pins_are_by_the_names_that_users_know() -> None:
    plan = plan_of(forms="batch", pin={"count": "record", "filter": "batch"})
    pins = first_pins(plan)
    assert pins == {
        "in": Form.BATCH,
        "filter": Form.BATCH,
        "select": Form.BATCH,
        "count.combine": Form.RECORD,
        "out": Form.BATCH,
    }
    assert first_pins(plan_of()) == {}


def test_names_that_cannot_be_meant_are_refused() -> None:
    plan = plan_of()
    assert checked_operations(plan, ["count", "select"], Form.BATCH) == ("count.combine", "select")
    assert checked_operations(plan, ["in", "out"], Form.BATCH) == ("in", "out"), "of different units"
    with pytest.raises(InvalidOption, match="'filtr'"):
        checked_operations(plan, ["filtr"], None)
    with pytest.raises(InvalidOption, match="'select' lies between them"):
        checked_operations(plan, ["filter", "count"], Form.BATCH)
