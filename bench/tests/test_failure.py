"""The branch that a kill does not concern, the views' times, and the notes of the witness."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import penstock as ps
from penstock.connectors.base import WriterContext
from penstock.control.recovery import downstream, hosted
from penstock.runtime.job import plan_of
from penstock.types import Schema
from penstock_bench.meter.stamped import Witness
from penstock_bench.studies.kills import count_as_a_whole, views_due
from penstock_bench.workloads import WORKLOADS, replay

YAHOO = WORKLOADS["yahoo-updates"]
START_US = 1_700_000_004_000_000


def test_the_times_of_views_are_those_of_the_exact_result() -> None:
    source = YAHOO.source(1_000, seconds=8)
    due = views_due(source, START_US, keyed=True)
    assert {group: len(times) for group, times in due.items()} == YAHOO.expected(replay(source, START_US))
    whole = views_due(source, START_US, keyed=False)
    by_window = Counter({("", start_us): 0 for _, start_us in due})
    for (_, start_us), times in due.items():
        by_window["", start_us] += len(times)
    assert {group: len(times) for group, times in whole.items()} == by_window
    assert len(by_window) == 2
    times = sorted(int(each) for group in due.values() for each in group)
    assert times == sorted(int(each) for group in whole.values() for each in group)
    assert times[0] >= START_US
    assert times[-1] < START_US + 8_000_000


def test_a_kill_of_another_worker_does_not_concern_the_branch_on_worker_0() -> None:
    aside = ps.stream("aside", YAHOO.source(100, partitions=1))
    main = ps.stream("events", YAHOO.source(100))
    plan = plan_of(count_as_a_whole(aside).to(ps.memory()), YAHOO.build(main).to(ps.memory()), parallelism=2)
    first = next(unit.id for unit in plan.units if unit.name == "aside")
    branch = downstream(plan, {(first, 0)})
    assert branch <= hosted(plan, 0)
    assert len(branch) >= 2
    assert not branch & downstream(plan, hosted(plan, 1))
    assert branch <= downstream(plan, hosted(plan, 0))


def test_the_witness_has_every_row_that_was_written_whole(tmp_path: Path) -> None:
    schema = Schema.parse("campaign_id string, window_start timestamp, window_end timestamp, count bigint")
    keyed, whole = Witness(tmp_path / "keyed", "campaign_id"), Witness(tmp_path / "whole")
    rows = [schema.record_type("a", 0, 10, 1), schema.record_type("b", 10, 20, 7)]
    for witness in (keyed, whole):
        writer = witness.writer(schema, WriterContext("job", "seen", 0, 1))
        writer.write(rows)
        writer.write(rows[:1])
        assert len(witness.shown()) == 3  # before the end: a killed process does not close its files
        writer.close()
        path = next(witness.directory.iterdir())
        path.write_bytes(path.read_bytes() + b'[1, [["half a')
    assert [(each.group, each.total) for each in keyed.shown()] == [(("a", 0), 1), (("b", 10), 7), (("a", 0), 1)]
    assert [(each.group, each.total) for each in whole.shown()] == [(("", 0), 1), (("", 10), 7), (("", 0), 1)]
    times = [each.at_us for each in keyed.shown()]
    assert times[0] == times[1] <= times[2]
