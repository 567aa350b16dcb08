"""The switcher, rule by rule, and against a fluid model of a unit in both forms: bursts, steady loads, sweeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.control.candidates import capacity_eps
from penstock.control.forms import OpMeasure, Switcher, UnitMeasure, WantedSwitch
from penstock.errors import InvalidOption
from penstock.operators import Form
from penstock.pipeline.ranges import Range

S = 1_000_000
TICK_US = 100_000


def op(
    name: str,
    index: int,
    record_eps: float | None = 100_000.0,
    batch_eps: float | None = 1_000_000.0,
    selectivity: float = 1.0,
    *,
    switchable: bool = True,
    pinned: Form | None = None,
    queue_records: float = 0.0,
) -> OpMeasure:
    return OpMeasure(
        name, 0, index, Form.RECORD, switchable, pinned, 0.0, record_eps, batch_eps, selectivity, queue_records
    )


def unit(
    *operations: OpMeasure, arrival_eps: float = 300_000.0, queue_records: float = 1e6, number: int = 0
) -> UnitMeasure:
    return UnitMeasure(number, operations, 50_000, 5_000, 7_000, 2_000, queue_records, arrival_eps)


def names(decisions: list[WantedSwitch]) -> list[tuple[str, ...]]:
    return [decision.operations for decision in decisions]


def do(switcher: Switcher, decision: WantedSwitch, now_us: int) -> None:
    switcher.switched(decision.unit, decision.chosen, now_us)


# --- what a chain carries ---------------------------------------------------------------------------------------------


def test_operations_of_a_unit_share_its_cores() -> None:
    chain = (op("a", 0, 100_000, 1_000_000, 0.5), op("b", 1, 50_000, 500_000, 1.0))
    assert capacity_eps(chain) == pytest.approx(50_000)
    assert capacity_eps(chain, range(1)) == pytest.approx(1 / (1e-6 + 1e-5))
    assert capacity_eps(chain, range(2)) == pytest.approx(500_000)


def test_what_no_record_reaches_costs_nothing_and_need_not_be_known() -> None:
    assert capacity_eps((op("a", 0, selectivity=0.0), op("b", 1, None, None))) == pytest.approx(100_000)
    assert capacity_eps((op("a", 0), op("b", 1, None, None))) is None


# --- the way up -------------------------------------------------------------------------------------------------------


def test_a_queue_above_L_up_switches_and_the_decision_tells_all() -> None:
    (found,) = Switcher().decide(7 * S, [unit(op("parse", 0, 74_000, 900_000), queue_records=5_000)])
    assert (found.unit, found.operations, found.chosen.first, found.chosen.last) == (0, ("parse",), 0, 0)
    assert (found.to, found.at_us) == (Form.BATCH, 7 * S)
    assert found.inputs == {
        "V": 300_000.0,
        "PD": 74_000.0,
        "PO": 900_000.0,
        "K": 0.0822,
        "T_ms": 50.0,
        "t_s_ms": 5.0,
        "t_ot_ms": 7.0,
        "t_dt_ms": 2.0,
        "C_ms": 35.0,
        "L": 5_000.0,
        "backlog": 0.0,
        "L_switch": 3_823.3,
        "L_up": 4_588.0,
        "L_down": 3_058.7,
        "gain": 12.16,
        "spread": 1.0,
    }
    assert "5,000 > L_up 4,588" in found.reason
    assert "\n" not in found.reason


def test_a_queue_below_L_up_does_not() -> None:
    assert Switcher().decide(0, [unit(op("parse", 0, 74_000, 900_000), queue_records=4_500)]) == []


def test_a_queue_that_is_gone_before_a_switch_has_its_effect_does_not() -> None:
    stalled = unit(op("parse", 0, 74_000, 900_000), arrival_eps=40_000, queue_records=12_000)
    assert Switcher().decide(0, [stalled]) == []
    assert len(Switcher().decide(0, [replace(stalled, arrival_eps=72_000)])) == 1


def test_the_range_is_that_of_figure_7() -> None:
    chain = [
        op("one", 0, selectivity=8, switchable=False),
        op("two", 1, selectivity=0.625),
        op("three", 2, selectivity=1),
        op("four", 3, selectivity=0.1),
        op("five", 4, 1e9, 1e10),
    ]
    (found,) = Switcher().decide(0, [unit(*chain, arrival_eps=12_000)])
    assert found.operations == ("two", "three", "four")
    assert (found.chosen.first, found.chosen.last) == (1, 3)
    # The law's terms are those at the switch point: eight records for each that enters the unit.
    assert found.inputs["V"] == 96_000
    assert found.inputs["L"] == 8e6


def test_a_source_that_can_change_begins_the_range() -> None:
    chain = [op("events", -1, 2e6, 2e6), op("parse", 0), op("keep", 1, selectivity=0.3), op("write", 2, 1e8, 1e8)]
    (found,) = Switcher().decide(0, [unit(*chain)])
    assert (found.operations, found.chosen.first, found.chosen.last) == (("events", "parse", "keep"), -1, 1)
    fixed = replace(chain[0], switchable=False)
    (found,) = Switcher().decide(0, [unit(fixed, *chain[1:])])
    assert (found.operations, found.chosen.first, found.chosen.last) == (("parse", "keep"), 0, 1)


def test_the_range_ends_before_what_cannot_change() -> None:
    for hindrance in ({"switchable": False}, {"pinned": Form.RECORD}, {"batch_eps": None}):
        chain = [op("a", 0), op("b", 1), replace(op("c", 2, 1e7), **hindrance), op("d", 3)]
        (found,) = Switcher().decide(0, [unit(*chain, arrival_eps=75_000)])
        assert found.operations == ("a", "b")


def test_what_gains_nothing_is_neither_switch_point_nor_end_of_a_range() -> None:
    chain = [op("a", 0, 1e6, 1.1e6), op("b", 1), op("c", 2, 1e6, 9e5), op("d", 3, 1e6, 1.1e6)]
    (found,) = Switcher().decide(0, [unit(*chain)])
    assert found.operations == ("b",)


def test_a_range_that_raises_nothing_is_not_switched_and_that_is_said_once() -> None:
    switcher = Switcher()
    chain = [op("light", 0, 1e7, 1e8), op("heavy", 1, 50_000, 51_000)]
    for tick in range(5):
        assert switcher.decide(tick * TICK_US, [unit(*chain)]) == []
    assert switcher.notes == ["0.000 s: unit 0 stays in record form under load: batches would gain nothing"]


def test_behind_a_range_that_raises_nothing_the_next_one_is_found() -> None:
    chain = [op("events", -1, 2e6, 2e6), op("fixed", 0, 1e6, None, switchable=False), op("model", 1, 5_000, 100_000)]
    (found,) = Switcher().decide(0, [unit(*chain)])
    assert (found.operations, found.chosen.first, found.chosen.last) == (("model",), 1, 1)


def test_unknown_rates_switch_nothing() -> None:
    switcher = Switcher()
    assert switcher.decide(0, [unit(op("a", 0, None, None))]) == []
    assert switcher.decide(0, [unit(op("a", 0), op("b", 1, None, None, switchable=False))]) == []
    assert switcher.notes == ["0.000 s: unit 0 stays in record form under load: rates are not known yet"]


def test_a_range_that_could_not_carry_the_load_is_wider_from_the_start() -> None:
    chain = [op("keep", 0, selectivity=0.3), op("lookup", 1), op("write", 2, switchable=False, record_eps=1e7)]
    (found,) = Switcher().decide(0, [unit(*chain, arrival_eps=200_000)])
    assert found.operations == ("keep",)
    (found,) = Switcher().decide(0, [unit(*chain, arrival_eps=300_000)])
    assert found.operations == ("keep", "lookup")


def test_units_are_decided_each_for_itself() -> None:
    units = [unit(op("a", 0), number=0), unit(op("b", 0), number=1, queue_records=0), unit(op("c", 0), number=2)]
    switcher = Switcher()
    found = switcher.decide(0, units)
    assert [(decision.unit, decision.operations) for decision in found] == [(0, ("a",)), (2, ("c",))]
    do(switcher, found[0], TICK_US)
    assert names(switcher.decide(TICK_US, [units[0], unit(op("b", 0), number=1), units[2]])) == [("b",)]


# --- in batch form ----------------------------------------------------------------------------------------------------


def in_batch_form(first: int = 0, last: int = 0, **options: int) -> Switcher:
    switcher = Switcher(**options)  # type: ignore[arg-type]
    switcher.switched(0, Range(first, last), 0)
    return switcher


def test_a_backlog_that_grows_twice_widens_the_range_forwards_then_backwards() -> None:
    chain = [op("a", 0), op("b", 1), op("c", 2), op("d", 3, 1e6, 1e6)]
    switcher = in_batch_form(1, 1)
    looks = [switcher.decide(t * TICK_US, [unit(*chain, queue_records=q)]) for t, q in enumerate([50e3, 60e3, 60e3])]
    assert looks == [[], [], []]
    (found,) = switcher.decide(3 * TICK_US, [unit(*chain, queue_records=70e3)])
    assert (found.operations, found.chosen.first, found.chosen.last, found.to) == (("c",), 1, 2, Form.BATCH)
    do(switcher, found, 4 * TICK_US)
    looks = [switcher.decide((5 + t) * TICK_US, [unit(*chain, queue_records=q)]) for t, q in enumerate([80e3, 90e3])]
    assert looks == [[], []]
    (found,) = switcher.decide(7 * TICK_US, [unit(*chain, queue_records=100e3)])
    assert (found.operations, found.chosen.first, found.chosen.last) == (("a",), 0, 2)


def test_a_micro_batch_that_is_being_collected_is_no_backlog() -> None:
    # 300,000 records arrive in a second, 15,000 in an interval: that many wait when all is well, and the paper's
    # L_up is 4,600.
    switcher = in_batch_form()
    for tick, queue_records in enumerate([14_000, 15_000, 16_000, 17_000]):
        assert switcher.decide(tick * TICK_US, [unit(op("a", 0), op("b", 1), queue_records=queue_records)]) == []


def calm(**changes: float) -> UnitMeasure:
    return unit(op("parse", 0, 74_000, 900_000), **({"arrival_eps": 20_000, "queue_records": 1_000} | changes))  # type: ignore[arg-type]


def test_the_way_back_needs_a_while_of_calm() -> None:
    switcher = in_batch_form()
    assert switcher.decide(10 * S, [calm()]) == []
    assert switcher.decide(10 * S + 400_000, [calm()]) == []
    (found,) = switcher.decide(10 * S + 500_000, [calm()])
    assert (found.operations, found.chosen.first, found.chosen.last, found.to) == (("parse",), 0, -1, Form.RECORD)
    assert "20,000/s arrive" in found.reason


def test_calm_that_is_interrupted_begins_anew() -> None:
    switcher = in_batch_form()
    switcher.decide(10 * S, [calm()])
    switcher.decide(10 * S + 300_000, [calm(arrival_eps=300_000, queue_records=15_000)])
    assert switcher.decide(10 * S + 600_000, [calm()]) == []
    assert len(switcher.decide(10 * S + 1_100_000, [calm()])) == 1


@pytest.mark.parametrize(
    "loaded",
    [
        {"arrival_eps": 70_000, "queue_records": 0},  # above 0.9 of what the record form carries
        {"arrival_eps": 20_000, "queue_records": 40_000},  # a backlog of the burst is left
    ],
)
def test_there_is_no_way_back_under_load(loaded: dict[str, float]) -> None:
    switcher = in_batch_form()
    assert all(switcher.decide(t * TICK_US, [calm(**loaded)]) == [] for t in range(100))


def test_the_slowest_instance_must_carry_its_share_too() -> None:
    switcher, uneven = in_batch_form(), replace(calm(arrival_eps=40_000, queue_records=2_000), spread=1.8)
    assert all(switcher.decide(t * TICK_US, [uneven]) == [] for t in range(100))
    assert any(switcher.decide((100 + t) * TICK_US, [replace(uneven, spread=1.4)]) for t in range(10))


def test_a_batch_form_that_disappoints_is_left_again_under_load() -> None:
    switcher, loaded = in_batch_form(), unit(op("model", 0, 5_000, 6_000), arrival_eps=9_000)
    assert all(switcher.decide(t * TICK_US, [loaded]) == [] for t in range(100))
    worse = unit(op("model", 0, 5_000, 4_000), arrival_eps=9_000)
    (found,) = switcher.decide(100 * TICK_US, [worse])
    assert (found.operations, found.to) == (("model",), Form.RECORD)
    assert found.reason == "batch form carries 4,000/s, less than record form with 5,000/s"
    do(switcher, found, 101 * TICK_US)
    assert all(switcher.decide((102 + t) * TICK_US, [worse]) == [] for t in range(100))


def test_there_is_no_way_back_with_a_queue_that_would_lead_up_again() -> None:
    # A micro-batch of 200 ms at 0.88 of PD: nothing is behind, but the record form would need 1.5 s to get through it.
    switcher, long = in_batch_form(), replace(calm(arrival_eps=65_000, queue_records=13_000), interval_us=200_000)
    assert all(switcher.decide(t * TICK_US, [long]) == [] for t in range(100))
    assert any(switcher.decide((100 + t) * TICK_US, [replace(long, queue_records=6_000)]) for t in range(10))


def test_no_way_back_before_the_hold_is_over() -> None:
    switcher = in_batch_form()
    found = [t for t in range(40) if switcher.decide(t * TICK_US, [calm()])]
    assert found == [20]


def test_the_way_up_waits_for_nothing() -> None:
    switcher = in_batch_form()
    (found,) = [d for t in range(40) for d in switcher.decide(t * TICK_US, [calm()])]
    do(switcher, found, 21 * TICK_US)
    assert len(switcher.decide(22 * TICK_US, [calm(arrival_eps=300_000, queue_records=9_000)])) == 1


def test_a_failed_switch_is_tried_again_later_and_later() -> None:
    switcher, now, tries = Switcher(), 0, []
    for now in range(0, 20 * S, TICK_US):
        if switcher.decide(now, [unit(op("a", 0))]):
            tries.append(now / S)
            switcher.failed(0, now)
    assert tries == [0, 1, 3, 7, 15]
    assert "next try is in 16 s" in switcher.notes[-1]
    switcher.switched(0, Range(0, 0), now)
    switcher.switched(0, Range(0, -1), now)
    assert len(switcher.decide(now, [unit(op("a", 0))])) == 1


def test_what_has_been_decided_is_not_decided_again_until_it_is_done() -> None:
    switcher = Switcher()
    assert len(switcher.decide(0, [unit(op("a", 0))])) == 1
    assert not any(switcher.decide(t * TICK_US, [unit(op("a", 0))]) for t in range(100))
    assert len(switcher.decide(10 * S, [unit(op("a", 0))])) == 1


def stay_s(switcher: Switcher, up_s: float) -> float:
    """Go up, and count how long the way back takes although it is calm."""
    up_us = int(up_s * S)
    switcher.switched(0, Range(0, 0), up_us)
    back_us = next(t for t in range(up_us, up_us + 100 * S, TICK_US) if switcher.decide(t, [calm()]))
    switcher.switched(0, Range(0, -1), back_us)
    return (back_us - up_us) / S


def test_going_up_and_back_often_lengthens_the_hold_and_calm_shortens_it() -> None:
    switcher = Switcher()
    assert [stay_s(switcher, at_s) for at_s in (0, 5, 10, 15, 22, 35)] == [2, 2, 2, 2, 4, 8]
    assert any("batch form is kept 16 s" in note for note in switcher.notes)
    assert stay_s(switcher, 104) == 8
    assert stay_s(switcher, 300) == 2


def test_three_times_a_minute_is_not_often() -> None:
    switcher = Switcher()
    assert [stay_s(switcher, at_s) for at_s in range(0, 400, 20)] == [2] * 20


def test_going_up_right_after_going_back_lengthens_the_hold_at_once() -> None:
    switcher = Switcher()
    assert [stay_s(switcher, at_s) for at_s in (0, 3, 8, 18)] == [2, 4, 8, 16]


def test_the_hold_has_an_end() -> None:
    switcher, at_s, stays = Switcher(), 0.0, []
    for _ in range(9):
        stays.append(stay_s(switcher, at_s))
        at_s += stays[-1] + 0.5
    assert stays == [2, 4, 8, 16, 60, 60, 60, 60, 60]


# --- pins -------------------------------------------------------------------------------------------------------------


def test_pinned_to_batch_form_goes_there_at_once_and_stays() -> None:
    switcher = Switcher()
    chain = [op("a", 0), op("b", 1, None, None, pinned=Form.BATCH), op("c", 2)]
    (found,) = switcher.decide(0, [unit(*chain, queue_records=0, arrival_eps=0)])
    assert (found.operations, found.chosen.first, found.chosen.last, found.to) == (("b",), 1, 1, Form.BATCH)
    do(switcher, found, 1)
    quiet = unit(op("a", 0), op("b", 1, pinned=Form.BATCH), op("c", 2), queue_records=0, arrival_eps=10)
    assert not any(switcher.decide(t * TICK_US, [quiet]) for t in range(100))


def test_what_joined_a_pinned_range_goes_back_without_it() -> None:
    switcher = in_batch_form(0, 2)
    chain = [op("a", 0), op("b", 1, pinned=Form.BATCH), op("c", 2)]
    found = [
        d for t in range(40) for d in switcher.decide(t * TICK_US, [unit(*chain, queue_records=0, arrival_eps=10)])
    ]
    assert [(d.operations, d.chosen.first, d.chosen.last, d.to) for d in found] == [(("a", "c"), 1, 1, Form.RECORD)]


def test_pinned_to_record_form_is_never_switched_and_leaves_a_range_at_once() -> None:
    chain = [op("a", 0, pinned=Form.RECORD), op("b", 1)]
    (found,) = Switcher().decide(0, [unit(*chain)])
    assert found.operations == ("b",)
    (found,) = in_batch_form(0, 1).decide(0, [unit(*chain)])
    assert (found.operations, found.to, found.reason) == (("a", "b"), Form.RECORD, "must be in record form")


@pytest.mark.parametrize(
    "options", [{"delta": 0}, {"delta": 1}, {"gain_min": 0.5}, {"hold_us": -1}, {"calm_us": -1}, {"lead_us": -1}]
)
def test_options_that_make_no_sense_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(options))):
        Switcher(**options)  # type: ignore[arg-type]
