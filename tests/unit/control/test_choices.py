"""Which alternative is chosen: the laws, the breaker, and the chooser that remembers."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

import penstock as ps
from penstock.control.adaptation import ControlLoop
from penstock.control.candidates import OpMeasure, UnitMeasure
from penstock.control.changes import ChangeReport
from penstock.control.choices import HOLD_US, Chooser, WantedExchange
from penstock.control.events import Send, WantedAlternative
from penstock.control.exchanges import Exchanges, Standing
from penstock.control.laws.alternatives import Candidate, Judgement, Load, above, below, expected_us, judge
from penstock.control.laws.breaker import PAUSE_US_MAX, PAUSE_US_MIN, PROVEN_US, Breaker, State
from penstock.control.monitor import OperationFigures
from penstock.operators import Form
from penstock.pipeline.graph import Graph
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.protocol.pulses import AlternativePulse, UnitPulse

S = 1_000_000
CALM = Load(arrival_eps=1_000, queue_records=0)


def test_the_expected_latency_is_that_of_the_better_form() -> None:
    assert expected_us(Candidate("a", 2_000, None, 500), CALM) == pytest.approx(1_000)
    assert expected_us(Candidate("a", 1_000, None, 500), CALM) == float("inf")
    assert expected_us(Candidate("a", 500, 10_000, 500), CALM) == pytest.approx(25_000 + 5_000 + 5_000)
    assert expected_us(Candidate("a", None, None), CALM) is None
    assert expected_us(Candidate("a", 2_000, None, 500), replace(CALM, queue_records=100)) == pytest.approx(51_000)


def test_an_exact_one_in_batch_form_is_preferred_to_a_fast_one_in_record_form() -> None:
    exact, fast = Candidate("exact", 500, 10_000, 2_000), Candidate("fast", 50_000, None, 20)
    assert below([exact, fast], "fast", CALM, 50_000, 0.2) == "exact"
    assert above([exact, fast], "fast", CALM, 50_000, 0.2) == "exact"
    assert above([exact, fast], "fast", CALM, 20_000, 0.2) is None  # a micro-batch waits longer than that


def test_without_one_that_holds_the_target_the_fastest_is_taken() -> None:
    slow, slower = Candidate("slow", 900, None, 1_000), Candidate("slower", 100, None, 10_000)
    hard = replace(CALM, arrival_eps=800)
    assert below([slower, slow], "slower", hard, 100, 0.2) == "slow"
    assert below([slower, slow], "slow", hard, 100, 0.2) is None
    assert below([Candidate("x", None, None)], "y", hard, 100, 0.2) is None


def test_one_that_is_not_known_is_tried_only_where_it_is_better() -> None:
    unknown, fast = Candidate("exact", None, None), Candidate("fast", 50_000, None, 20)
    assert judge(unknown, CALM, 50_000, 0.1) is Judgement.UNKNOWN
    assert above([unknown, fast], "fast", CALM, 50_000, 0.2) == "exact"
    assert below([unknown, fast], "exact", CALM, 50_000, 0.2) == "fast"


def test_a_breaker_opens_after_failures_in_a_row_and_tries_again_ever_later() -> None:
    breaker = Breaker()
    assert not breaker.look(1, True, 0)
    assert not breaker.look(1, True, S)
    assert breaker.state is State.CLOSED  # one failure alone is none
    assert breaker.look(5, True, 2 * S)
    assert breaker.is_out
    breaker.look(5, False, 2 * S + PAUSE_US_MIN - 1)
    assert breaker.is_out
    breaker.look(5, False, 2 * S + PAUSE_US_MIN)
    assert breaker.state.value == State.TRIED.value
    assert breaker.look(6, True, 4 * S)  # the first failure is enough
    assert breaker.pause_us == 2 * PAUSE_US_MIN
    now_us = 4 * S
    for failures in range(7, 40):
        now_us += breaker.pause_us
        breaker.look(failures - 1, False, now_us)
        breaker.look(failures, True, now_us)
    assert breaker.pause_us == PAUSE_US_MAX


def test_a_breaker_that_has_proven_itself_forgets() -> None:
    breaker = Breaker(State.TRIED, 8 * PAUSE_US_MIN)
    breaker.look(0, True, 0)
    breaker.look(0, True, PROVEN_US)
    assert (breaker.state, breaker.pause_us) == (State.CLOSED, PAUSE_US_MIN)


def test_a_worker_that_counts_anew_is_no_failure() -> None:
    breaker = Breaker()
    breaker.look(10, True, 0)
    breaker = Breaker()
    breaker._seen = 10
    assert not breaker.look(2, True, S)


class Play:
    """One operation with alternatives, and a chooser that looks at it ten times a second."""

    def __init__(self, latency: str | None = "50ms") -> None:
        stream = ps.stream("in", ps.records([], schema="id bigint")).alternatives(
            "score",
            exact=lambda s: s.map(lambda r: r, schema="id bigint"),
            fast=lambda s: s.map(lambda r: r, schema="id bigint"),
            prefer=["exact", "fast"],
            latency=latency,
        )
        plan = Plan.of(stream.to(ps.memory()).graph(), Options.of(parallelism=1))
        self.reports: list[ChangeReport] = []
        self.exchanges = Exchanges(plan, count(1), self.reports)
        self.chooser = Chooser(cores=2)
        self.now_us = 0

    @property
    def standing(self) -> Standing:
        return self.exchanges.operations["score"]

    def pulse(self, costs_us: dict[str, float], failures: dict[str, int] | None = None, *, given_up: str = "") -> None:
        told = AlternativePulse(
            index=self.standing.index,
            active=self.standing.active,
            costs_ns={name: 1000 * cost for name, cost in costs_us.items()},
            failures=failures or {},
            error="ConnectionError: refused" if failures else "",
            given_up=given_up,
        )
        unit = UnitPulse(unit=0, instance=0, arrived=0, waiting=0, alternatives=[told])
        self.exchanges.on_pulse(m.Pulse(worker=0, incarnation=1, at_us=0, units=[unit], slots=0))

    def look(self, arrival_eps: float, p99_ms: float, queue: float = 0, times: int = 1) -> list[WantedExchange]:
        op = OpMeasure("score", 0, 0, Form.RECORD, False, Form.RECORD, arrival_eps, 1e6, None, 1.0, queue)
        unit = UnitMeasure(
            unit=0, operations=(op,), interval_us=50_000, schedule_us=5_000, batch_transmit_us=0,
            record_transmit_us=0, queue_records=queue, arrival_eps=arrival_eps, spread=1.0, relieved=None,
        )  # fmt: skip
        figures = OperationFigures(
            "score", "alternatives", "record", 1, arrival_eps, arrival_eps, 1.0, int(queue), 1.0, p99_ms, p99_ms,
            1, 1, 0, 0, 0, 0, 0.0, 0.0, 0.0,
        )  # fmt: skip
        for _ in range(times):
            self.now_us += 100_000
            found = self.chooser.decide([self.standing], [unit], {"score": figures}, 0, self.now_us)
            if found:
                for each in found:
                    self.exchanges.begin(each.operation, each.alternative, each.reason, each.inputs, 0.0, self.now_us)
                self.exchanges.tick(lambda unit: True)
                number = self.standing.number
                switched = m.Changed(
                    worker=0, incarnation=1, number=number, unit=0, instance=0, pause_us=0, carried_records=0
                )
                self.exchanges.on_changed(switched, self.now_us)
                return found
        return []


def test_the_best_is_used_as_long_as_the_target_holds() -> None:
    play = Play()
    play.pulse({"exact": 500.0, "fast": 10.0})
    assert play.look(1_000, 5.0, times=100) == []
    (down,) = play.look(5_000, 80.0, queue=500, times=10)
    assert (down.alternative, play.standing.active) == ("fast", "fast")
    assert "p99 80.0 ms > 50ms with exact" in down.reason
    assert down.inputs["exact_eps"] == pytest.approx(2_000)
    assert play.look(5_000, 1.0, times=100) == []  # it would not hold: 5,000 arrive, it carries 2,000
    (up,) = play.look(1_000, 1.0, times=100)
    assert up.alternative == "exact"


def test_a_short_peak_is_no_reason() -> None:
    play = Play()
    play.pulse({"exact": 500.0, "fast": 10.0})
    for _ in range(20):
        assert play.look(1_000, 80.0, times=2) == []
        assert play.look(1_000, 5.0) == []


def test_going_up_and_down_takes_ever_longer() -> None:
    play = Play()
    play.pulse({"exact": 100.0, "fast": 10.0})
    waits = []
    for _ in range(4):
        play.look(1_000, 80.0, times=10)
        began_us = play.now_us
        play.look(1_000, 1.0, times=1_000)
        waits.append(play.now_us - began_us)
    assert waits == sorted(waits)
    assert waits[-1] >= 4 * HOLD_US


def test_what_the_user_has_settled_is_left_alone() -> None:
    play = Play()
    play.pulse({"exact": 500.0, "fast": 10.0})
    play.standing.pin = "exact"
    assert play.look(5_000, 80.0, queue=500, times=50) == []


def test_an_alternative_that_fails_gives_way_and_is_tried_again() -> None:
    play = Play(latency=None)
    play.pulse({}, {"exact": 5})
    (away,) = play.look(1_000, 1.0)
    assert away.alternative == "fast"
    assert "exact has failed (ConnectionError: refused); it is tried again in 1s" in away.reason
    assert play.chooser.out(play.standing) == {"exact": "ConnectionError: refused"}
    (back,) = play.look(1_000, 1.0, times=30)
    assert back.alternative == "exact"
    play.pulse({}, {"exact": 6})
    (again,) = play.look(1_000, 1.0)
    assert "it is tried again in 2s" in again.reason


def test_one_that_instances_do_not_ask_any_more_gives_way_however_its_failures_came() -> None:
    play = Play(latency=None)
    play.pulse({}, {"exact": 1})
    assert play.look(1_000, 1.0) == []
    play.pulse({}, {"exact": 3}, given_up="exact")  # it will not fail again: nobody asks it
    (away,) = play.look(1_000, 1.0)
    assert away.alternative == "fast"
    play.pulse({}, {"exact": 3})
    (back,) = play.look(1_000, 1.0, times=30)
    assert back.alternative == "exact"


def test_a_settled_one_that_fails_gives_way_too_and_comes_back() -> None:
    play = Play()
    play.standing.pin = "exact"
    play.pulse({}, {"exact": 5})
    assert [each.alternative for each in play.look(1_000, 1.0)] == ["fast"]
    assert [each.alternative for each in play.look(1_000, 1.0, times=30)] == ["exact"]
    assert play.exchanges.wanted()["score"].pin == "exact"


def test_where_all_fail_nothing_is_changed() -> None:
    play = Play(latency=None)
    play.pulse({}, {"exact": 5, "fast": 5})
    assert play.look(1_000, 1.0, times=5) == []


def test_an_order_to_call_waits_until_the_unit_is_in_record_form() -> None:
    async def ask(record: object) -> object:
        return record

    events = ps.stream("in", ps.records([], schema="i bigint"))
    stream = events.alternatives(
        "score",
        local=lambda s: s.map(lambda r: r, schema="i bigint"),
        remote=lambda s: s.map_async(ask, schema="i bigint"),
    )
    plan = Plan.of(Graph.check(stream.to(ps.memory()).nodes()), Options.of())
    exchanges = Exchanges(plan, count(1), [])
    exchanges.begin("score", "remote", "wanted", {}, 0.0, 0)
    assert exchanges.tick(lambda unit: False) == []
    (order,) = exchanges.tick(lambda unit: True)
    assert order.alternative == "remote"
    exchanges.begin("score", "local", "wanted", {}, 0.0, 0)
    assert len(exchanges.tick(lambda unit: False)) == 1


def test_a_resumed_job_repeats_its_orders_before_the_first_look() -> None:
    events = ps.stream("in", ps.records([], schema="i bigint"))
    stream = events.alternatives("score", one=lambda s: s.filter("i > 0"), two=lambda s: s.filter("i >= 1"))
    plan = Plan.of(Graph.check(stream.to(ps.memory()).nodes()), Options.of())
    loop = ControlLoop(plan, 2, {"score": WantedAlternative("two", None)})
    (command,) = loop.on_resumed([m.Peer(worker=0, incarnation=1, endpoint="w0")])
    assert isinstance(command, Send)
    assert isinstance(command.message, m.Exchange)
    assert (command.worker, command.message.alternative) == (0, "two")
