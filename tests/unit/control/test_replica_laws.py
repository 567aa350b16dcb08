"""PS-1 on the paper's own examples, on splits and merges; DS2 and the threshold scaler beside it; the forecast."""

from __future__ import annotations

from math import inf, nan, pi, sin
from random import Random

import pytest

from penstock.control.laws.ds2 import STEPS_MAX, ds2
from penstock.control.laws.forecast import CELLS, Forecast, season
from penstock.control.laws.replicas import (
    INPUT,
    Operator,
    Policy,
    Shares,
    graph_order,
    needs,
    replicas_for,
    theta,
)
from penstock.control.laws.threshold import Threshold

TD_US = 1_000_000

TABLE_II = [
    Operator(name="1", received={INPUT: 100}, processed=140, queue=0, execution_us=16_600),
    Operator(name="2", received={"1": 117}, processed=120, queue=7, execution_us=25_000),
    Operator(name="3", received={"2": 90}, processed=90, queue=20, execution_us=100_000),
]
FIGURE_5 = {"1": {INPUT: 1.0}, "2": {"1": 0.7}, "3": {"1": 0.3}, "4": {"2": 0.4, "3": 1.0}}


def test_table_ii_comes_out() -> None:
    found = needs(TABLE_II, TD_US, incoming=100)
    assert [each.replicas for each in found.values()] == [2, 3, 9]
    # The paper rounds θ_2^1 = 117/140 to 0.833.
    assert [each.share for each in found.values()] == pytest.approx([1.0, 0.833, 0.625], abs=0.003)
    assert [each.queued for each in found.values()] == [0, 7, 20]


def test_table_ii_comes_out_with_the_shares_that_the_paper_prints() -> None:
    shares = {"1": 1.0, "2": 0.833, "3": 0.625}
    work = [(100 * shares[each.name] + each.queue) * each.execution_us / TD_US for each in TABLE_II]
    assert [replicas_for(each, present=1, least=1, most=99) for each in work] == [2, 3, 9]


def test_figure_5_comes_out() -> None:
    assert theta(FIGURE_5) == pytest.approx({"1": 1.0, "2": 0.7, "3": 0.3, "4": 0.58})


def test_shares_need_no_order_of_their_operations() -> None:
    assert theta(dict(reversed(FIGURE_5.items()))) == theta(FIGURE_5)


def test_a_circle_is_refused() -> None:
    with pytest.raises(ValueError, match="gets records from itself"):
        graph_order({"a": ["b"], "b": ["a"]})


def test_two_sources_share_what_comes_from_outside() -> None:
    both = [
        Operator(name="left", received={INPUT: 30}, processed=30, queue=0, execution_us=1_000),
        Operator(name="right", received={INPUT: 70}, processed=70, queue=0, execution_us=1_000),
        Operator(name="merged", received={"left": 30, "right": 70}, processed=100, queue=0, execution_us=50_000),
    ]
    found = needs(both, TD_US, incoming=100)
    assert [each.share for each in found.values()] == pytest.approx([0.3, 0.7, 1.0])
    assert found["merged"].replicas == 5


def test_an_operation_that_multiplies_has_a_share_above_one() -> None:
    words = [
        Operator(name="split", received={INPUT: 10}, processed=10, queue=0, execution_us=1_000),
        Operator(name="each", received={"split": 80}, processed=80, queue=0, execution_us=50_000),
    ]
    assert needs(words, TD_US, incoming=10)["each"].replicas == 4


def test_what_no_record_has_shown_lately_is_remembered() -> None:
    """A calm interval must not make an operation look as if nothing got there."""
    shares = Shares()
    needs(TABLE_II, TD_US, incoming=100, shares=shares)
    calm = [
        Operator(name=each.name, received=dict.fromkeys(each.received, 0), processed=0, queue=0, execution_us=25_000)
        for each in TABLE_II
    ]
    found = needs(calm, TD_US, incoming=0, expected=100, shares=shares)
    assert [round(each.share, 3) for each in found.values()] == [1.0, 0.836, 0.627]


def test_what_waits_upstream_counts_for_those_behind_it() -> None:
    jammed = [
        Operator(name="1", received={INPUT: 100}, processed=50, queue=300, execution_us=10_000),
        Operator(name="2", received={"1": 50}, processed=50, queue=0, execution_us=10_000),
    ]
    assert needs(jammed, TD_US, incoming=100)["2"].replicas == 1
    assert needs(jammed, TD_US, incoming=100, policy=Policy(through=True))["2"].replicas == 4


def test_a_short_interval_makes_no_panic_of_a_short_queue() -> None:
    """Ten records that take 100 ms each need not be worked off within 100 ms."""
    waiting = [Operator(name="1", received={INPUT: 1}, processed=1, queue=10, execution_us=100_000)]
    assert needs(waiting, 100_000, incoming=1)["1"].replicas == 11
    assert needs(waiting, 100_000, incoming=1, policy=Policy(drain=5.0))["1"].replicas == 3


def test_nothing_to_do_needs_the_least() -> None:
    idle = Operator(name="1", received={INPUT: 0}, processed=0, queue=0, execution_us=0, replicas=5, least=1, most=8)
    assert needs([idle], TD_US, incoming=0)["1"].replicas == 1
    assert needs([idle], 0, incoming=0)["1"].replicas == 1


@pytest.mark.parametrize(("work", "expected"), [(nan, 3), (inf, 8), (-1.0, 1), (3.0 + 1e-12, 3), (3.1, 4), (99.0, 8)])
def test_odd_figures_give_a_number_within_bounds(work: float, expected: int) -> None:
    assert replicas_for(work, present=3, least=1, most=8) == expected


def test_replicas_are_given_back_when_the_need_is_clearly_lower() -> None:
    policy = Policy(delta=0.1)
    assert replicas_for(3.9, present=5, least=1, most=8, policy=policy) == 5
    assert replicas_for(3.6, present=5, least=1, most=8, policy=policy) == 4
    assert replicas_for(4.01, present=4, least=1, most=8, policy=policy) == 5


# --- baselines --------------------------------------------------------------------------------------------------------


def test_ds2_counts_no_queue() -> None:
    assert ds2(TABLE_II, TD_US, incoming=100) == {"1": 2, "2": 3, "3": 7}


def test_ds2_arrives_within_its_steps() -> None:
    """Each operation shows what it sends on only when those before it keep up; three steps are enough."""
    times_us, replicas = [20_000.0, 40_000.0, 60_000.0], [1, 1, 1]
    seen = []
    for _ in range(STEPS_MAX):
        operators, coming, origin = [], 200.0, INPUT
        for place, execution_us in enumerate(times_us):
            done = min(coming, replicas[place] * TD_US / execution_us)
            name = str(place)
            operators.append(
                Operator(
                    name=name,
                    received={origin: coming},
                    processed=done,
                    queue=coming - done,
                    execution_us=execution_us,
                    replicas=replicas[place],
                )
            )
            coming, origin = done, name
        replicas = list(ds2(operators, TD_US, incoming=200.0).values())
        seen.append(replicas)
    assert seen[-1] == [4, 8, 12]


def test_the_threshold_scaler_goes_one_step_at_a_time() -> None:
    scaler = Threshold()

    def look(used: float, replicas: int) -> int:
        processed = used * replicas * TD_US / 10_000
        own = Operator(
            name="1", received={INPUT: processed}, processed=processed, queue=0, execution_us=10_000, replicas=replicas
        )
        return scaler.decide([own], TD_US)["1"]

    assert look(0.95, 2) == 3
    assert look(0.95, 3) == 3, "it cools down"
    assert look(0.95, 3) == 4
    look(0.4, 4)
    assert look(0.4, 4) == 3
    look(0.0, 1)
    assert look(0.0, 1) == 1


# --- forecast ---------------------------------------------------------------------------------------------------------


def test_a_season_is_found_in_a_history_of_any_length() -> None:
    assert season([]) == 0
    assert season([5.0] * 50) == 0
    assert season([float(each) for each in range(50)]) == 0
    forecast = Forecast()
    for look in range(10 * CELLS):
        forecast.add(100 + 50 * sin(2 * pi * look / 300))
    assert abs(forecast.season - 300) <= 20


def test_a_season_that_was_seen_is_expected() -> None:
    """A spike that comes every 40 looks is announced before it comes, which no trend can do."""
    forecast = Forecast(horizon=2)
    for look in range(400):
        forecast.add(1_000.0 if look % 40 in (20, 21, 22) else 100.0)
    for _ in range(400, 417):
        forecast.add(100.0)
    assert forecast.season == 40
    assert forecast.method == "season"
    assert forecast.ahead() < 200
    forecast.add(100.0)
    forecast.add(100.0)
    assert forecast.ahead() > 500


def test_noise_is_taken_as_it_is() -> None:
    chance, forecast, wrong, simply = Random(3), Forecast(), 0.0, 0.0
    value = 0.0
    for _ in range(500):
        before, value = value, chance.uniform(0, 1_000)
        wrong, simply = wrong + abs(forecast.ahead() - value), simply + abs(before - value)
        forecast.add(value)
    assert wrong <= 1.02 * simply
    for odd in (nan, inf, -5.0):
        before = forecast.ahead()
        forecast.add(odd)
        assert forecast.ahead() == before


def test_nothing_seen_is_nothing_expected() -> None:
    assert Forecast().ahead() == 0.0
