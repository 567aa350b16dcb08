"""The switcher over a fluid model of a unit: bursts, steady and swinging rates; it chooses the better form."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from test_forms import TICK_US, S

from penstock.control.forms import OpMeasure, Switcher, UnitMeasure
from penstock.operators import Form
from penstock.pipeline.ranges import NONE, Range

STEP_US = 5_000
PREPARE_US = 100_000
PAUSE_US = 30_000


@dataclass
class Fluid:
    """One unit through which records flow in steps of 5 ms: single ones at ``record_eps``, or micro-batches.

    A micro-batch takes what is due at the end of its interval, up to what an interval can process, waits for its
    schedule time, and is done at ``batch_eps``. A switch prepares while the old form goes on, then pauses.
    """

    rate: Callable[[float], float]
    record_eps: float = 74_000
    batch_eps: float = 900_000
    interval_us: int = 50_000
    switcher: Switcher | None = None
    form: Form = Form.RECORD
    switches: list[tuple[float, Form]] = field(default_factory=list)
    latencies: list[tuple[float, float, float]] = field(default_factory=list)
    """Time of arrival, seconds to the output, records."""

    def run(self, seconds: float) -> Fluid:
        waiting: deque[list[float]] = deque()
        busy_us = cut_us = 0
        done_at_us = resume_us = 0
        target: Form | None = None
        arrived = 0.0
        for now_us in range(0, int(seconds * S), STEP_US):
            records = self.rate(now_us / S) * STEP_US / S
            waiting.append([now_us / S, records])
            arrived += records
            if target is not None and now_us >= resume_us:
                self.form, target = target, None
                cut_us = now_us + self.interval_us
                self.switches.append((now_us / S, self.form))
                assert self.switcher is not None
                self.switcher.switched(0, Range(0, 0) if self.form is Form.BATCH else NONE, now_us)
            if now_us and now_us % TICK_US == 0 and self.switcher is not None:
                decisions = self.switcher.decide(now_us, [self.measure(waiting, arrived * S / TICK_US)])
                arrived = 0.0
                if decisions:
                    target = decisions[0].to
                    done_at_us, resume_us = now_us + PREPARE_US, now_us + PREPARE_US + PAUSE_US
            if target is not None and now_us >= done_at_us:
                continue
            if self.form is Form.RECORD:
                self.take(waiting, self.record_eps * STEP_US / S, (now_us + STEP_US) / S + 0.002)
            elif now_us >= max(cut_us, busy_us):
                batch = min(sum(count for _, count in waiting), self.batch_eps * self.interval_us / S)
                busy_us = now_us + int(batch / self.batch_eps * S)
                cut_us = now_us + self.interval_us
                self.take(waiting, batch, busy_us / S + 0.005 + 0.007)
        end_s = float(seconds)
        self.latencies += [(at_s, end_s - at_s, count) for at_s, count in waiting]
        return self

    def take(self, waiting: deque[list[float]], room: float, out_s: float) -> None:
        while waiting and room > 1e-9:
            at_s, count = waiting[0]
            taken = min(count, room)
            self.latencies.append((at_s, out_s - at_s, taken))
            room -= taken
            waiting[0][1] -= taken
            if waiting[0][1] <= 1e-9:
                waiting.popleft()

    def measure(self, waiting: deque[list[float]], arrival_eps: float) -> UnitMeasure:
        queue_records = sum(count for _, count in waiting)
        parse = OpMeasure(
            "parse", 0, 0, self.form, True, None, arrival_eps, self.record_eps, self.batch_eps, 1.0, queue_records
        )
        return UnitMeasure(0, (parse,), self.interval_us, 5_000, 7_000, 2_000, queue_records, arrival_eps)

    def mean_s(self, since_s: float = 0.0) -> float:
        """Mean latency of the records that arrived since then."""
        chosen = [(latency, count) for at_s, latency, count in self.latencies if at_s >= since_s]
        return sum(latency * count for latency, count in chosen) / sum(count for _, count in chosen)

    def worst_s(self, since_s: float, until_s: float) -> float:
        return max(latency for at_s, latency, _ in self.latencies if since_s <= at_s < until_s)


def bursts(
    period_s: float, *, first_s: float = 5.0, base: float = 20_000, peak: float = 300_000
) -> Callable[[float], float]:
    """Ten seconds of the peak in every period."""
    return lambda t: peak if t >= first_s and (t - first_s) % period_s < 10 else base


def test_a_burst_is_one_switch_up_and_one_back_in_time() -> None:
    model = Fluid(bursts(1_000), switcher=Switcher()).run(25)
    assert [form for _, form in model.switches] == [Form.BATCH, Form.RECORD]
    (up_s, _), (back_s, _) = model.switches
    assert 5 < up_s <= 5.3
    assert 15 < back_s <= 16.5
    # The numbers: under 1 s in the burst, under 10 ms from 2 s after it.
    assert model.worst_s(0, 16) < 1
    assert model.worst_s(17, 24) < 0.01
    assert model.worst_s(0, 4.9) < 0.01
    record_only = Fluid(bursts(1_000)).run(25)
    assert record_only.worst_s(5, 15) > 9


def test_repeated_bursts_are_no_thrashing() -> None:
    model = Fluid(bursts(20), switcher=Switcher()).run(200)
    starts = [5 + 20 * k for k in range(10)]
    assert [form for _, form in model.switches] == [Form.BATCH, Form.RECORD] * 10
    for start, (up_s, _), (back_s, _) in zip(starts, model.switches[::2], model.switches[1::2], strict=True):
        assert up_s - start <= 0.3
        assert back_s - start - 10 <= 1.5


def test_a_steady_rate_below_what_the_record_form_carries_never_switches() -> None:
    for share in (0.1, 0.5, 0.9, 0.97):
        assert Fluid(lambda t, share=share: share * 74_000, switcher=Switcher()).run(30).switches == []  # type: ignore[misc]


def test_a_steady_rate_above_switches_once_and_stays() -> None:
    for share in (1.1, 1.3, 5.0, 14.0):
        model = Fluid(lambda t, share=share: share * 74_000, switcher=Switcher()).run(60)  # type: ignore[misc]
        assert [form for _, form in model.switches] == [Form.BATCH]


def test_a_stall_in_record_form_is_no_burst() -> None:
    # Nothing for 100 ms, then all of it at once: the record form is through with it before a switch would be.
    def rate(t: float) -> float:
        return 0.0 if 5.0 <= t < 5.1 else 60_000 * 21 if 5.1 <= t < 5.105 else 60_000

    assert Fluid(rate, switcher=Switcher()).run(10).switches == []


def test_a_noisy_rate_around_capacity_switches_a_few_times_a_minute() -> None:
    random = Random(4)
    noise = [random.uniform(-0.2, 0.2) for _ in range(20_000)]
    model = Fluid(lambda t: 74_000 * (1 + noise[int(t * 10)]), switcher=Switcher()).run(180)
    assert 1 <= len(model.switches) <= 3 * 4


@pytest.mark.parametrize("period_s", [2.0, 5.0, 10.0, 30.0])
def test_a_rate_that_swings_around_capacity_switches_a_few_times_a_minute(period_s: float) -> None:
    model = Fluid(lambda t: 74_000 * (1 + 0.2 * math.sin(2 * math.pi * t / period_s)), switcher=Switcher()).run(240)
    for minute in range(1, 4):
        assert len([1 for at_s, _ in model.switches if 60 * minute <= at_s < 60 * minute + 60]) <= 4
    # The first minute pays for finding out.
    assert len([1 for at_s, _ in model.switches if at_s < 60]) <= 11


# --- the form is the better one ---------------------------------------------------------------------------------------

SHARES = (0.1, 0.3, 0.5, 0.7, 0.8, 0.89, 1.11, 1.3, 1.6, 2.0, 3.0, 5.0)
GAINS = (0.5, 0.8, 1.5, 3.0, 10.0, 30.0)


def chosen_well(lead_in_s: float) -> tuple[int, list[str]]:
    """Cells in all, and those in which the form after 10 s at a rate is not the one of lower mean latency."""
    cells, wrong = 0, []
    for record_eps in (5_000.0, 74_000.0):
        for gain in GAINS:
            for interval_us in (50_000, 200_000):
                for share in SHARES:
                    rate = share * record_eps

                    def load(t: float, rate: float = rate, peak: float = 3 * record_eps) -> float:
                        return peak if t < lead_in_s else rate

                    def model(rate: Callable[[float], float], switcher: Switcher | None, form: Form) -> Fluid:
                        return Fluid(rate, record_eps, gain * record_eps, interval_us, switcher, form)  # noqa: B023

                    means = {f: model(lambda t, rate=rate: rate, None, f).run(6).mean_s(1) for f in Form}  # type: ignore[misc]
                    better = min(means, key=means.__getitem__)
                    adaptive = model(load, Switcher(), Form.RECORD).run(lead_in_s + 10)
                    cells += 1
                    assert len(adaptive.switches) <= 2
                    if adaptive.form is not better:
                        wrong.append(f"PD {record_eps} gain {gain} T {interval_us} V/PD {share}: {adaptive.form}")
    return cells, wrong


def test_from_calm_the_form_after_10_s_is_the_better_one() -> None:
    cells, wrong = chosen_well(0.0)
    assert len(wrong) <= 0.05 * cells, wrong


def test_after_a_burst_the_form_after_10_s_is_the_better_one() -> None:
    cells, wrong = chosen_well(1.0)
    assert len(wrong) <= 0.05 * cells, wrong
