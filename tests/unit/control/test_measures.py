"""What the switcher is told: rates from pulses, costs from samples and heartbeats, queues further up."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.control.measures import Measures
from penstock.operators import Form
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.protocol import slots as s

S = 1_000_000


def made(pins: dict[str, Form] | None = None) -> Measures:
    columns = {"k": ps.fields.choice(["a", "b"]), "n": ps.fields.integers(0, 9)}
    source = ps.generator(columns, rate=1000, total=10, format="columns", partitions=2)
    stream = ps.stream("in", source).filter(ps.col("n") > 0).select("k")
    plan = Plan.of(stream.to(ps.memory(), name="out").graph(), Options.of(parallelism=2))
    return Measures(plan, 2, pins or {})


def pulse(measures: Measures, at_us: int, *instances: tuple[int, int], slots: int = 1) -> None:
    for worker, (arrived, waiting) in enumerate(instances):
        measures.on_pulse(
            m.Pulse(
                worker=worker,
                incarnation=7,
                at_us=at_us,
                units=[m.UnitPulse(unit=0, instance=worker, arrived=arrived, waiting=waiting)],
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
            records=1000,
            record_ns=costs,
            batch_ns={i: ns // 10 for i, ns in costs.items()},
            records_in=dict.fromkeys(costs, 1000),
        )
    )
    measures.on_calibrated(
        s.Calibrated(unit=0, records=1000, record_ns={0: 1_500_000}, batch_ns={0: 900_000}, records_in={0: 1000})
    )
    assert measures.calibrated(Form.RECORD) == {"in": 1000.0, "filter": 1500.0, "select": 4000.0}
    assert measures.calibrated(Form.BATCH) == {"in": 100.0, "filter": 200.0, "select": 400.0}
    (unit,) = measures.units(2, 50_000, S)
    by_name = {each.name: each for each in unit.operations}
    assert by_name["filter"].record_eps == pytest.approx(2 * 1e9 / 1500)
    assert by_name["filter"].batch_eps == pytest.approx(2 * 1e9 / 200)
    assert by_name["out"].batch_eps is None, "not measured, and never reached"
    assert (by_name["select"].pinned, by_name["filter"].pinned) == (Form.RECORD, None)
    assert measures.samples(measures._plan.units[0]) == 2
