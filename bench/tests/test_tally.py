"""Throughput at the sink: what rows account for, however they come, and the same for every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.connectors.base import WriterContext
from penstock.types import Schema
from penstock_bench.engines import Output, subject
from penstock_bench.meter.tally import Counted, Growth, Tally, counted
from penstock_bench.workloads import AT_SINK, WORKLOADS, replay

UPDATES = WORKLOADS["yahoo-updates"]
SCHEMA = Schema.parse("campaign_id string, window_start timestamp, window_end timestamp, count bigint")
RECORDS = 60_000


def row(campaign: str, start_us: int, count: int) -> Any:
    return SCHEMA.record_type(campaign, start_us, start_us + 10, count)


def test_a_count_accounts_for_what_it_has_grown_by() -> None:
    growth = Growth(UPDATES.group)
    assert growth.take([row("a", 0, 3), row("a", 0, 5), row("b", 0, 1)]) == 6
    # What comes again after a failure accounts for nothing new.
    assert growth.take([row("a", 0, 5), row("a", 0, 4), row("a", 10, 2)]) == 2
    assert Growth(()).take([row("a", 0, 9), row("a", 0, 9)]) == 2


def test_workers_and_slots_count_into_one_tally(tmp_path: Path) -> None:
    tally = Tally(tmp_path, UPDATES)
    writers = [tally.writer(SCHEMA, WriterContext("job", "out", i, 2)) for i in range(2)]
    writers[0].write([row("a", 0, 10)])
    writers[1].write([row("b", 0, 5)])
    # Rows of one group may come from several slots: its worker counts them.
    stages = [tally.stager(SCHEMA, "out") for _ in range(2)]
    writers[1].adopt(stages[0](SCHEMA.to_batch([row("b", 0, 6)])), SCHEMA)
    writers[1].adopt(stages[1](SCHEMA.to_batch([row("b", 0, 6)])), SCHEMA)
    found = tally.counted()
    assert list(np.diff(found.at_us) >= 0) == [True] * 3
    assert found.events[-1] == 16 * 3, "every third event is a view"
    assert found.out(np.array([0, found.at_us[-1]])).tolist() == [0, 48]


def test_rows_without_a_group_are_counted_in_slots(tmp_path: Path) -> None:
    tally, schema = Tally(tmp_path, WORKLOADS["identity"]), Schema.parse("number bigint not null")
    batch = schema.to_batch([schema.record_type(i) for i in range(5)])
    writer = tally.writer(schema, WriterContext("job", "out", 0, 1))
    for _ in range(2):
        writer.adopt(tally.stager(schema, "out")(batch), schema)
    assert tally.counted().events[-1] == 10


def test_the_rate_is_that_of_the_time_asked_for() -> None:
    found = Counted.of([(3_000_000, 30), (1_000_000, 10), (2_000_000, 20)], yields=0.5)
    assert found.events.tolist() == [20, 60, 120]
    assert found.rate_eps(1_000_000, 3_000_000) == 50.0
    # From one output to another, however the time asked for lies to them.
    assert found.rate_eps(500_000, 3_900_000) == 50.0
    # The first one stands before this time: what came since then took longer than the time asked for.
    assert found.rate_eps(1_500_000, 2_500_000) == 40.0
    assert found.rate_eps(1_500_000, 1_900_000) == 0.0
    assert found.rate_eps(4_000_000, 5_000_000) == 0.0
    assert Counted.of([], yields=1.0).rate_eps(0, 1_000_000) == 0.0


def test_a_lump_after_a_pause_counts_for_the_time_of_the_pause() -> None:
    lumps = Counted.of([(1_000_000, 100), (9_000_000, 400), (9_100_000, 400)], yields=1.0)
    assert lumps.rate_eps(5_000_000, 10_000_000) == pytest.approx(800 / 8.1)


@pytest.mark.parametrize("name", ["yahoo", "wordcount", "grep", "scoring", "identity"])
def test_results_of_an_event_are_as_many_as_are_said(name: str) -> None:
    workload = AT_SINK.get(name, WORKLOADS[name])
    exact = workload.expected(replay(workload.source(1e5, total=RECORDS), 0))
    results = sum(exact.values()) if workload.group else len(exact)
    assert results / RECORDS == pytest.approx(workload.yields, rel=0.1 if name == "grep" else 0.02)


def test_the_log_of_another_engine_is_counted_alike() -> None:
    wanted = subject("yahoo")
    rows = [(1_000_000, ["a", 0, 4]), (1_000_000, ["b", 0, 2]), (2_000_000, ["a", 0, 10]), (3_000_000, ["a", 0, 7])]
    found = counted([Output(at_us, values) for at_us, values in rows], wanted.columns, UPDATES)
    assert found.events.tolist() == [18, 36, 36]
    assert found.rate_eps(1_000_000, 2_000_000) == 18.0
