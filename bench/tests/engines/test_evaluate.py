"""What is made of an engine's output: latency from the scheduled time, exactness, throughput, backlog."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from penstock_bench.engines import Observation, Output, RunOptions, Subject, subject
from penstock_bench.meter.evaluate import Evaluation, backlog_of, evaluate
from penstock_bench.meter.job import Run
from penstock_bench.meter.timeline import NEVER_US
from penstock_bench.workloads.text import NEEDLE

RATE, SECONDS, START_US, EVENT_START_US = 1_000.0, 4.0, 50_000_000, 20_000_000
OPTIONS = RunOptions(warm_up_s=1.0)


def perfect(wanted: Any, delay_us: int = 0) -> list[Output]:
    """What an engine would give out that takes the same time for every line; counted here without any engine."""
    source = wanted.input(RATE, OPTIONS.warm_up_s + SECONDS)
    counts: Counter[object] = Counter()
    outputs = []
    for i, record in enumerate(source.replay(EVENT_START_US)):
        due_us = np.array([START_US + int(source.times_us[i])])
        if wanted.name == "grep":
            found = [[record.number, record.line]] if NEEDLE in record.line.split(" ") else []
        else:
            found = []
            for group, times_us in wanted.workload.due([record], due_us).items():
                for _ in times_us:
                    counts[group] += 1
                    found.append([*group, counts[group]])
        outputs += [Output(int(due_us[0]) + delay_us, values) for values in found]
    return outputs


def judge(wanted: Subject, outputs: list[Output]) -> Evaluation:
    observation = Observation(START_US, EVENT_START_US, outputs, partitions=1, processes=[])
    return evaluate(wanted, observation, RATE, SECONDS, OPTIONS)


@pytest.mark.parametrize("name", ["yahoo", "wordcount", "grep"])
def test_a_perfect_run(name: str) -> None:
    wanted = subject(name)
    found = judge(wanted, perfect(wanted, delay_us=3_000))
    assert found.found.exact
    assert found.events == 5_000
    assert found.latency.maximum == 3_000
    assert found.latency.quantile(0.5) == 3_000
    assert found.throughput_eps == pytest.approx(RATE, rel=0.3 if name == "grep" else 0.05)
    assert found.sustained


def test_the_warm_up_is_cut_by_the_scheduled_time() -> None:
    wanted = subject("yahoo")
    first_us = START_US + 1_000_000
    outputs = [
        Output(output.out_us + (900_000 if output.out_us < first_us else 0), output.values)
        for output in perfect(wanted)
    ]
    # A count that came late in the warm-up is overtaken by the one that follows: sorted, as logs are read.
    found = judge(wanted, sorted(outputs, key=lambda output: output.out_us))
    assert found.latency.maximum == 0


def test_what_is_lost_doubled_wrong_or_out_of_order_is_found() -> None:
    wanted = subject("grep")
    outputs = perfect(wanted)
    assert judge(wanted, outputs[1:]).found.lost == 1
    assert not judge(wanted, outputs[1:]).sustained
    assert judge(wanted, [*outputs, outputs[-1]]).found.duplicated == 1
    assert judge(wanted, [*outputs, Output(0, [-1, "x"])]).found.wrong == 1
    assert judge(wanted, [outputs[1], outputs[0], *outputs[2:]]).found.reordered == 1


def test_latency_counts_every_event_that_a_row_accounts_for() -> None:
    wanted = subject("wordcount")
    outputs = perfect(wanted)
    last: dict[str, Output] = {output.values[0]: output for output in outputs}
    end_us = START_US + 5_000_000
    found = judge(wanted, [Output(end_us, output.values) for output in last.values()])
    assert found.found.exact
    assert found.latency.total == 40_000
    assert found.latency.maximum == 4_000_000
    assert found.throughput_eps == 0
    assert not found.sustained


def test_the_backlog_of_an_engine_that_keeps_up_does_not_grow() -> None:
    due_us = np.arange(0, 8_000_000, 1_000, dtype=np.int64)
    # Micro-batches of a second: an event waits for the end of its batch and half a second more.
    seen_us = (due_us // 1_000_000 + 1) * 1_000_000 + 500_000
    found = backlog_of(due_us, seen_us, 0, 8_000_000)
    assert found.growth == pytest.approx(0, abs=0.001)
    assert found.last_quarter == pytest.approx(1_000, rel=0.02)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95])
def test_the_backlog_of_an_engine_that_is_too_slow_grows_by_what_it_lacks(share: float) -> None:
    due_us = np.arange(0, 8_000_000, 100, dtype=np.int64)
    found = backlog_of(due_us, (due_us / share).astype(np.int64), 0, 8_000_000)
    assert found.growth == pytest.approx(1 - share, abs=0.01)


def test_events_that_never_come_out_are_a_backlog() -> None:
    due_us = np.arange(0, 8_000_000, 1_000, dtype=np.int64)
    seen_us = np.where(due_us < 4_000_000, due_us, NEVER_US)
    assert backlog_of(due_us, seen_us, 0, 8_000_000).growth > 0.5


def test_a_job_of_ours_is_held_against_the_same_growth() -> None:
    """What waits at its sources, looked at ten times a second: the same, or more and more of what comes."""
    steady, behind = (Run(None, None) for _ in range(2))  # type: ignore[arg-type]
    for at in range(80):
        steady.looks.append((at / 10, 900 + 100 * (at % 2)))
        behind.looks.append((at / 10, 40 * at))
    assert steady.sustained(10_000.0, 0.0, 8.0)
    assert not behind.sustained(10_000.0, 0.0, 8.0), "400 events/s more of 10,000 offered wait: 4 %"
    assert behind.sustained(20_000.0, 0.0, 8.0)
    assert not Run(None, None).sustained(1.0, 0.0, 8.0)  # type: ignore[arg-type]
