"""What the switcher is told: rates from pulses, costs from samples and heartbeats, queues further up."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.control.candidates import capacity_eps
from penstock.control.forms import Switcher
from penstock.control.measures import STEADY_LOOKS, Measures
from penstock.control.monitor import OperationFigures
from penstock.operators import Form
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.pipeline.ranges import Range
from penstock.protocol import messages as m
from penstock.protocol import slots as s
from penstock.protocol.pulses import UnitPulse

S = 1_000_000


@ps.op(schema="k string", pure=True)
def pure(record: Any) -> tuple[str]:
    return (record.k,)


@ps.op(schema="k string")
def unknown(record: Any) -> tuple[str]:
    return (record.k,)


@unknown.batch
def all_unknown(batch: Any) -> Any:
    return batch


def made(pins: dict[str, Form] | None = None) -> Measures:
    columns = {"k": ps.fields.choice(["a", "b"]), "n": ps.fields.integers(0, 9)}
    source = ps.generator(columns, rate=1000, total=10, format="columns", partitions=2)
    stream = ps.stream("in", source).filter(ps.col("n") > 0).select("k")
    plan = Plan.of(stream.to(ps.memory(), name="out").graph(), Options.of(parallelism=2))
    return Measures(plan, 2, pins or {})


def pulse(measures: Measures, at_us: int, *instances: tuple[int, ...], slots: int = 1) -> None:
    """Have every worker tell of its instance: records arrived, records waiting, and microseconds blocked if any."""
    for worker, (arrived, waiting, *blocked_us) in enumerate(instances):
        measures.on_pulse(
            m.Pulse(
                worker=worker,
                incarnation=7,
                at_us=at_us,
                units=[
                    UnitPulse(unit=0, instance=worker, arrived=arrived, waiting=waiting, blocked_us=sum(blocked_us))
                ],
                slots=slots,
            )
        )


def test_rates_are_those_of_the_last_moments_over_all_instances() -> None:
    measures = made()
    for tenth in range(10):
        pulse(measures, S + tenth * S // 10, (tenth * 100, 5), (tenth * 50, 7))
    (unit,) = measures.units(2, 50_000, 2 * S)
    assert (unit.arrival_eps, unit.queue_records) == (pytest.approx(1500), 12)
    for tenth in range(10, 20):
        pulse(measures, S + tenth * S // 10, (1000, 0), (500, 0))
    (unit,) = measures.units(2, 50_000, 3 * S)
    assert (unit.arrival_eps, unit.queue_records) == (0, 0)


def test_the_record_form_is_as_wide_as_there_are_workers_and_cores() -> None:
    """Instances of one worker take turns."""
    found = {}
    for workers, cores in (1, 8), (2, 8), (4, 8), (4, 2):
        columns = {"n": ps.fields.sequence()}
        source = ps.generator(columns, rate=1000, total=10, format="columns", partitions=4)
        chain = ps.stream("in", source).map(lambda r: r, schema="n bigint", name="same")
        plan = Plan.of(chain.to(ps.memory()).graph(), Options.of(parallelism=4, workers=workers)).placed()
        measures = Measures(plan, cores, {})
        for instance in range(4):
            cost = s.Calibrated(
                unit=0, instance=instance, records=100, records_in={0: 100}, record_ns={0: 100_000}, batch_ns={}
            )
            measures.on_calibrated(cost)
        (unit,) = measures.units(2, 50_000, S)
        found[workers, cores] = unit.operations[1].record_eps
    assert found == {(1, 8): 1e6, (2, 8): 2e6, (4, 8): 4e6, (4, 2): 2e6}


def test_an_instance_that_was_rolled_back_does_not_arrive_backwards() -> None:
    measures = made()
    pulse(measures, S, (1000, 0))
    pulse(measures, 2 * S, (200, 0))
    assert measures.units(2, 50_000, 2 * S)[0].arrival_eps == 0
    pulse(measures, 3 * S, (300, 0))
    assert measures.units(2, 50_000, 3 * S)[0].arrival_eps == pytest.approx(100)


def test_slots_must_be_everywhere() -> None:
    measures = made()
    assert not measures.slots_everywhere(2)
    pulse(measures, S, (0, 0), (0, 0))
    assert measures.slots_everywhere(2)
    measures.forget_worker(1)
    assert not measures.slots_everywhere(2)
    pulse(measures, S, (0, 0), (0, 0), slots=0)
    assert not measures.slots_everywhere(2)


def test_samples_tell_the_costs_of_both_forms_the_least_of_several() -> None:
    measures = made({"select": Form.RECORD})
    costs = {-1: 1_000_000, 0: 2_000_000, 1: 4_000_000}
    measures.on_calibrated(
        s.Calibrated(
            unit=0,
            instance=0,
            records=1000,
            record_ns=costs,
            batch_ns={i: ns // 10 for i, ns in costs.items()},
            records_in=dict.fromkeys(costs, 1000),
        )
    )
    measures.on_calibrated(
        s.Calibrated(
            unit=0,
            instance=0,
            records=1000,
            record_ns={0: 1_500_000},
            batch_ns={0: 900_000},
            records_in={0: 1000},
        )
    )
    assert measures.calibrated(Form.RECORD) == {"in": 1000.0, "filter": 1500.0, "select": 4000.0}
    assert measures.calibrated(Form.BATCH) == {"in": 100.0, "filter": 200.0, "select": 400.0}
    (unit,) = measures.units(2, 50_000, S)
    by_name = {each.name: each for each in unit.operations}
    assert by_name["filter"].record_eps == pytest.approx(2 * 1e9 / 1500)
    assert by_name["filter"].batch_eps == pytest.approx(2 * 1e9 / 200)
    assert by_name["out"].batch_eps is None, "not measured, and never reached"
    assert (by_name["select"].pinned, by_name["filter"].pinned) == (Form.RECORD, None)
    assert [measures.samples(measures._plan.units[0], instance) for instance in range(2)] == [2, 0]


def figures_of(name: str, form: Form, service_us: float, slowest_us: float, block_records: float) -> OperationFigures:
    return OperationFigures(
        name=name,
        kind="",
        form=form.value,
        instances=2,
        in_eps=1000.0,
        out_eps=1000.0,
        selectivity=1.0,
        queue_records=0,
        service_us=service_us,
        p50_ms=0.0,
        p99_ms=0.0,
        records_in=1000,
        records_out=1000,
        late=0,
        skipped=0,
        retried=0,
        dead_letters=0,
        total_p50_ms=0.0,
        total_p99_ms=0.0,
        total_max_ms=0.0,
        block_records=block_records,
        slowest_us=slowest_us,
    )


def hear(measures: Measures, *told: OperationFigures, times: int = STEADY_LOOKS + 1) -> None:
    for _ in range(times):
        measures.on_figures(list(told))


def test_costs_come_from_all_instances_and_the_slowest_one_is_known() -> None:
    measures = made()
    for instance, cost_ns in enumerate([1_000, 3_000]):
        measures.on_calibrated(
            s.Calibrated(
                unit=0,
                instance=instance,
                records=1,
                record_ns={-1: 0, 0: cost_ns, 1: cost_ns},
                batch_ns={0: cost_ns // 10},
                records_in={-1: 1, 0: 1, 1: 1},
            )
        )
    assert measures.calibrated(Form.RECORD)["filter"] == 2_000
    (unit,) = measures.units(2, 50_000, S)
    assert unit.spread == pytest.approx(1.5)
    # Heartbeats go on from there.
    hear(measures, figures_of("filter", Form.RECORD, 4.0, 4.4, 1000), times=100)
    hear(measures, figures_of("select", Form.RECORD, 1.0, 1.6, 1000), times=100)
    assert measures.calibrated(Form.RECORD)["filter"] == pytest.approx(4_000)
    assert measures.units(2, 50_000, S)[0].spread == pytest.approx(6.0 / 5.0)


def test_small_blocks_tell_the_record_form_roughly_and_the_batch_form_nothing() -> None:
    measures = made()
    hear(measures, figures_of("select", Form.RECORD, 9.0, 9.0, 2), times=STEADY_LOOKS + 1)
    hear(measures, figures_of("select", Form.RECORD, 5.0, 5.0, 2), figures_of("filter", Form.BATCH, 9.0, 9.0, 20))
    hear(measures, figures_of("select", Form.RECORD, 7.0, 7.0, 2))
    assert measures.calibrated(Form.RECORD) == {"select": 5_000.0}, "the least, for small blocks only add to it"
    assert measures.calibrated(Form.BATCH) == {}
    hear(measures, figures_of("select", Form.RECORD, 6.0, 6.0, 1000), times=1)
    assert measures.calibrated(Form.RECORD) == {"select": 6_000.0}
    hear(measures, figures_of("filter", Form.BATCH, 1_000.0, 1_000.0, 20))
    assert measures.calibrated(Form.BATCH) == {"filter": 1_000_000.0}, "few records, much work"


def of_functions(*functions: Any) -> Measures:
    stream = ps.stream("in", ps.generator({"k": ps.fields.choice(["a"])}, rate=1, format="columns", partitions=2))
    for function in functions:
        stream = stream.map(function)
    plan = Plan.of(stream.filter(ps.col("k") > "").to(ps.memory(), name="out").graph(), Options.of(parallelism=2))
    return Measures(plan, 2, {})


def test_what_samples_may_not_run_is_taken_to_gain_until_it_has_run() -> None:
    measures = of_functions(pure, unknown)
    names = ["in", "pure", "unknown", "filter", "out"]
    hear(measures, *(figures_of(name, Form.RECORD, 10.0, 10.0, 1000) for name in names))
    (unit,) = measures.units(2, 50_000, S)
    gains = {
        op.name: op.batch_eps / op.record_eps if op.batch_eps and op.record_eps else None for op in unit.operations
    }
    # A sample will tell of the first two; a sink costs what it costs.
    assert gains == {"in": None, "pure": 1.0, "unknown": 2.0, "filter": 2.0, "out": 1.0}
    hear(measures, *(figures_of(name, Form.BATCH, 40.0, 40.0, 1000) for name in names))
    (unit,) = measures.units(2, 50_000, S)
    assert {op.name: op.batch_eps for op in unit.operations} == dict.fromkeys(names, pytest.approx(50_000))


# --- back-pressure ----------------------------------------------------------------------------------------------------

CARRIED_EPS = 100_000
"""What the record form of both instances carries together in what follows; the batch form ten times that."""


def calibrated() -> Measures:
    measures = made()
    for instance in range(2):
        measures.on_calibrated(
            s.Calibrated(
                unit=0,
                instance=instance,
                records=1,
                record_ns={-1: 6_000, 0: 6_000, 1: 8_000},
                batch_ns={-1: 600, 0: 600, 1: 800},
                records_in={-1: 1, 0: 1, 1: 1},
            )
        )
    hear(measures, figures_of("out", Form.RECORD, 0.001, 0.001, 1000))
    return measures


def play(
    measures: Measures, switcher: Switcher, arrive_eps: float, taken_eps: float, blocked: float, seconds: int
) -> list[str]:
    """Let figures come in for some seconds as they were recorded; return the forms that were switched to."""
    found = []
    for tenth in range(1, 10 * seconds + 1):
        at_us = S + tenth * S // 10
        arrived = int(arrive_eps / 2 * tenth / 10)
        waiting = max(0, arrived - int(taken_eps / 2 * tenth / 10))
        pulse(measures, at_us, *[(arrived, waiting, int(blocked * tenth * S / 10))] * 2)
        for wanted in switcher.decide(at_us, measures.units(2, 50_000, at_us)):
            found.append(wanted.to.value)
            switcher.switched(wanted.unit, wanted.chosen, at_us)
    return found


def test_a_unit_at_a_fifth_of_its_capacity_that_is_held_up_stays_in_record_form() -> None:
    switcher = Switcher()
    assert play(calibrated(), switcher, 20_000, 15_000, 0.85, 600) == []
    assert [note.partition(": ")[2] for note in switcher.notes] == [
        "unit 0 is held up by what is behind it: a switch would gain nothing"
    ]


def test_the_same_backlog_without_back_pressure_is_a_reason() -> None:
    assert play(calibrated(), Switcher(), 20_000, 15_000, 0.0, 600)[:1] == ["batch"]


@pytest.mark.parametrize("arrive_eps", [20_000, 300_000])
def test_a_unit_in_batch_form_that_is_held_up_comes_back(arrive_eps: float) -> None:
    switcher = Switcher()
    switcher.switched(0, Range(-1, 1), S)
    assert play(calibrated(), switcher, arrive_eps, 15_000, 0.99, 60) == ["record"]


def test_a_unit_that_could_not_carry_in_record_form_what_gets_through_stays_in_batch_form() -> None:
    switcher = Switcher()
    switcher.switched(0, Range(-1, 1), S)
    assert play(calibrated(), switcher, 300_000, 200_000, 0.5, 60) == []


def test_when_room_comes_the_backlog_is_a_reason_again() -> None:
    measures, switcher = calibrated(), Switcher()
    assert play(measures, switcher, 20_000, 5_000, 0.95, 60) == []
    for tenth in range(1, 21):
        at_us = 61 * S + tenth * S // 10
        pulse(measures, at_us, *[(600_000 + tenth * 1_000, 450_000 - tenth * 4_000, 57 * S)] * 2)
        decided = switcher.decide(at_us, measures.units(2, 50_000, at_us))
        if decided:
            break
    assert [each.to for each in decided] == [Form.BATCH]
    assert tenth <= 11, "within a second"


def test_an_instance_that_is_held_up_says_nothing_about_what_it_can_carry() -> None:
    measures = calibrated()
    for tenth in range(30):
        at_us = S + tenth * S // 10
        pulse(measures, at_us, *[(50_000 + tenth * 100, 50_000, tenth * 90_000)] * 2)
        (unit,) = measures.units(2, 50_000, at_us)
    assert capacity_eps(unit.operations) == pytest.approx(CARRIED_EPS, rel=0.01)
    for tenth in range(30, 60):
        at_us = S + tenth * S // 10
        pulse(measures, at_us, *[(50_000 + tenth * 100, 50_000, 30 * 90_000)] * 2)
        (unit,) = measures.units(2, 50_000, at_us)
    assert capacity_eps(unit.operations) == pytest.approx(0.1 * CARRIED_EPS, rel=0.1), "a crowded machine"
