"""Laws and switcher on any input: ranges that can be run, thresholds in order, sizes within bounds, the same twice."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.control.candidates import candidate, capacity_eps, wider
from penstock.control.forms import OpMeasure, Switcher, UnitMeasure, WantedSwitch
from penstock.control.laws.group_size import GroupBounds, GroupSize, IntervalBounds, interval_us, tune
from penstock.control.laws.switch_point import SwitchInputs, switch_point
from penstock.control.laws.switch_range import TOLERANCE, switch_range
from penstock.operators import Form

times_us = st.floats(0, 1e7)
rates_eps = st.floats(0, 1e9)
deltas = st.floats(0.01, 0.99)
selectivities = st.one_of(st.sampled_from([0.0, 0.1, 1 / 3, 1.0, 3.0]), st.floats(0, 20))


# --- laws -------------------------------------------------------------------------------------------------------------


@given(rates_eps, rates_eps, rates_eps, times_us, times_us, times_us, times_us, deltas)
def test_thresholds_are_in_order(
    arrival: float, record: float, batch: float, t: float, t_s: float, t_ot: float, t_dt: float, delta: float
) -> None:
    point = switch_point(SwitchInputs(arrival, record, batch, t, t_s, t_ot, t_dt), delta)
    assert 0 < point.down_records <= point.switch_records <= point.up_records
    assert point.c_us >= 0


@given(st.lists(selectivities, min_size=1, max_size=8), st.data())
def test_a_range_begins_at_its_point_and_is_minimal(chain: list[float], data: st.DataObject) -> None:
    point = data.draw(st.integers(0, len(chain) - 1))
    found = switch_range(chain, point)
    assert found.start == point
    assert point < found.stop <= len(chain)
    product = chain[point - 1] if point else 1.0
    for position in found[:-1]:
        product *= chain[position]
        assert product >= 1 - TOLERANCE
    if found.stop < len(chain):
        assert product * chain[found[-1]] <= 1 + TOLERANCE


@given(
    st.lists(st.tuples(times_us, times_us), max_size=60),
    st.integers(1, 50),
    st.integers(0, 200),
    st.integers(-5, 500),
    st.floats(0.05, 1),
)
def test_group_sizes_stay_within_bounds(
    groups: list[tuple[float, float]], size_min: int, spread: int, start: int, weight: float
) -> None:
    bounds = GroupBounds(size_min=size_min, size_max=size_min + spread, weight=weight)
    state = GroupSize(start)
    for schedule_us, execute_us in groups:
        before, state = state, tune(state, schedule_us, execute_us, bounds)
        assert bounds.size_min <= state.size <= bounds.size_max
        assert state.overhead is None or 0 <= state.overhead <= 1
        if bounds.size_min <= before.size <= bounds.size_max and state.overhead is not None:
            assert state.size <= before.size or state.overhead > bounds.overhead_max
            assert state.size >= before.size or state.overhead < bounds.overhead_min


@given(st.floats(0, 1e7), st.floats(0, 1e3), st.integers(1, 64), st.floats(0, 1e6))
def test_the_interval_is_enough_wherever_one_is(arrival: float, service: float, slots: int, overhead: float) -> None:
    bounds = IntervalBounds()
    found = interval_us(arrival, service, slots, overhead)
    assert bounds.interval_us_min <= found <= bounds.interval_us_max
    if found < bounds.interval_us_max:
        assert overhead <= bounds.overhead_max * found * (1 + 1e-6) + 1
        assert overhead + arrival * found / 1e6 * service / slots <= bounds.fill_max * found * (1 + 1e-6) + 1


# --- the switcher -----------------------------------------------------------------------------------------------------

op_rates = st.one_of(st.none(), st.sampled_from([0.0, 1e4, 1.1e4, 1e5, 1e6]), st.floats(1, 1e8))


@st.composite
def units(draw: st.DrawFn) -> UnitMeasure:
    number = draw(st.integers(0, 1))
    offset = draw(st.sampled_from([-1, 0]))
    pin = st.sampled_from([None, None, None, Form.RECORD, Form.BATCH])
    operations = tuple(
        OpMeasure(
            f"op{index}",
            number,
            index,
            Form.RECORD,
            draw(st.booleans()),
            draw(pin),
            0.0,
            draw(op_rates),
            draw(op_rates),
            draw(selectivities),
            draw(st.floats(0, 1e6)),
        )
        for index in range(offset, offset + draw(st.integers(1, 6)))
    )
    times = [draw(st.floats(0, 1e6)) for _ in range(4)]
    return UnitMeasure(number, operations, *times, draw(st.floats(0, 1e7)), draw(st.floats(0, 1e7)))


@given(units(), st.floats(0, 1e7), st.floats(1, 3))
def test_candidates_can_be_run_and_raise_what_the_unit_carries(unit: UnitMeasure, needed: float, gain: float) -> None:
    ops = unit.operations
    span = candidate(ops, needed, gain)
    if not span:
        return
    assert all(ops[position].batchable for position in span)
    record, batch = capacity_eps(ops), capacity_eps(ops, span)
    assert record is not None
    assert batch is not None
    assert batch >= gain * record * (1 - 1e-9)
    more = wider(ops, span, gain)
    if more:
        assert set(span) < set(more) <= set(range(len(ops)))
        assert all(ops[position].batchable for position in more)
        assert (capacity_eps(ops, more) or 0) > batch


def check(decision: WantedSwitch, unit: UnitMeasure, before: set[int]) -> set[int]:
    """What is in batch form after a decision that can be carried out."""
    ops = {op.index: op for op in unit.operations}
    after = set(decision.chosen)
    assert after <= set(ops)
    assert all(ops[index].batchable for index in after)
    assert after != before
    assert before <= after if decision.to is Form.BATCH else after <= before
    assert decision.operations == tuple(ops[index].name for index in sorted(after ^ before))
    assert decision.reason
    return after


steps = st.lists(
    st.tuples(st.integers(0, 3_000_000), units(), st.sampled_from(["done", "failed", "silent"])), max_size=30
)


@given(steps)
def test_whatever_is_measured_decisions_can_be_carried_out_and_are_the_same_twice(
    script: list[tuple[int, UnitMeasure, str]],
) -> None:
    logs: list[list[Any]] = []
    for _ in range(2):
        switcher, now_us, log = Switcher(), 0, []
        batch: dict[int, set[int]] = {0: set(), 1: set()}
        for wait_us, unit, outcome in script:
            now_us += wait_us
            present = {op.index for op in unit.operations}
            if not batch[unit.unit] <= present:
                # A plan does not change under a running unit.
                continue
            for decision in switcher.decide(now_us, [unit]):
                after = check(decision, unit, batch[unit.unit])
                log.append(decision)
                if outcome == "done":
                    switcher.switched(unit.unit, decision.chosen, now_us)
                    batch[unit.unit] = after
                elif outcome == "failed":
                    switcher.failed(unit.unit, now_us)
        logs.append([*log, *switcher.notes])
    assert logs[0] == logs[1]
