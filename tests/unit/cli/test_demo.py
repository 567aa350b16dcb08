"""The demonstration's proof: it accepts the exact output only, whatever the partitions had read."""

from __future__ import annotations

import msgspec
import pytest

from penstock.bench.demo import SOURCE, Demo
from penstock.bench.workloads import replay
from penstock.bench.workloads.yahoo import WINDOW_MS, YAHOO
from penstock.control.monitor import Audit
from penstock.runtime.report import Latency, Report
from penstock.types import Schema

START_US = 1_700_000_000_000_000
READ = [1_203, 1_190]
ROWS = Schema.parse("campaign_id string, window_start timestamp, window_end timestamp, count bigint")


def report(**changes: object) -> Report:
    made = Report(
        job="demo",
        seconds=2.4,
        events_in=sum(READ),
        results_out=0,
        lost=0,
        duplicated=0,
        reordered=0,
        late=0,
        skipped=0,
        dead_letters=0,
        latency_ms=Latency(0.0, 0.0, 0.0, 0.0, 0.0),
        measured_at="count",
        epochs=3,
        start_us=START_US,
        offsets={SOURCE: READ},
        first_result_s=None,
        operations=[],
        workers=[],
        audit=Audit(),
        switches=[],
    )
    return msgspec.structs.replace(made, **changes)


@pytest.fixture
def demo() -> Demo:
    return Demo(1_000)


def rows() -> list[list[object]]:
    exact = YAHOO.expected(replay(YAHOO.source(1_000), START_US, READ))
    return [[campaign, start, start + WINDOW_MS * 1000, count] for (campaign, start), count in exact.items()]


def deliver(demo: Demo, given: list[list[object]]) -> None:
    demo.sink.deliver([ROWS.record_type(*row) for row in given], ROWS)


def test_the_exact_output_is_accepted(demo: Demo) -> None:
    deliver(demo, rows())
    told, verified = demo.verify(report())
    assert verified.exact
    assert verified.views == sum(row[3] for row in rows())  # type: ignore[misc]
    assert verified.sentence.startswith("exact: ")
    assert (told.lost, told.duplicated, told.reordered) == (0, 0, 0)


def test_a_single_view_that_is_missing_is_lost(demo: Demo) -> None:
    given = rows()
    given[7][3] -= 1  # type: ignore[operator]
    deliver(demo, given)
    told, verified = demo.verify(report())
    assert not verified.exact
    assert (told.lost, told.duplicated) == (1, 0)
    assert verified.sentence.startswith("NOT EXACT")


def test_a_single_view_too_many_is_a_duplicate(demo: Demo) -> None:
    given = rows()
    given[7][3] += 1  # type: ignore[operator]
    deliver(demo, given)
    told, verified = demo.verify(report())
    assert not verified.exact
    assert (told.lost, told.duplicated) == (0, 1)


def test_late_views_are_left_out_on_purpose(demo: Demo) -> None:
    given = rows()
    given[7][3] -= 1  # type: ignore[operator]
    deliver(demo, given)
    assert demo.verify(report(late=1))[1].exact


def test_views_counted_as_late_must_be_missing(demo: Demo) -> None:
    deliver(demo, rows())
    assert not demo.verify(report(late=1))[1].exact


@pytest.mark.parametrize("finding", ["lost", "duplicated", "reordered"])
def test_what_the_edges_report_counts_too(demo: Demo, finding: str) -> None:
    deliver(demo, rows())
    assert not demo.verify(report(**{finding: 1}))[1].exact


def test_a_run_that_read_nothing_has_nothing_to_show(demo: Demo) -> None:
    told, verified = demo.verify(report(offsets={SOURCE: [0, 0]}, events_in=0))
    assert verified.exact
    assert told.events_in == verified.views == 0
