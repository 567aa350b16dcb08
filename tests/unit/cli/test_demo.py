"""The demonstration's proof: it accepts the exact output only, whatever the partitions had read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.control.monitor import Audit
from penstock.demo.series import Scene
from penstock.demo.story import SOURCE, Demo, compare
from penstock.pipeline.options import Forms
from penstock.runtime.report import Latency, Report
from penstock_bench.workloads import replay
from penstock_bench.workloads.scoring import SCORING

READ = [203, 190]
FORMS = Forms.ADAPTIVE


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
        measured_at="to_files",
        epochs=3,
        start_us=0,
        offsets={SOURCE: READ},
        first_result_s=None,
        operations=[],
        workers=[],
        audit=Audit(),
        switches=[],
    )
    return msgspec.structs.replace(made, **changes)


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    return Demo(Scene.of(100.0, 1_000.0, 12.0), tmp_path)


def rows(demo: Demo) -> list[tuple[int, float]]:
    """What a run that has read as far as READ must write, in order."""
    return sorted(SCORING.expected(replay(demo.source, 0, READ)).items())


def write(demo: Demo, given: list[tuple[int, float]], parts: int = 2) -> None:
    """Write rows as the files sink would: the parts' names in the order of the epochs."""
    directory = demo.directory / FORMS.value
    directory.mkdir()
    size = -(-len(given) // parts)
    for part in range(parts):
        own = given[part * size : (part + 1) * size]
        table = pa.table({"number": pa.array([n for n, _ in own], pa.int64()), "score": [score for _, score in own]})
        pq.write_table(table, directory / f"part-{part:08}-0000.parquet")


def test_the_exact_output_is_accepted(demo: Demo) -> None:
    write(demo, rows(demo))
    verified = demo.verify(FORMS, report())
    assert verified.exact
    assert verified.events == sum(READ)
    assert verified.sentence == f"exact: {sum(READ):,} events, each scored once, in order"


def test_a_single_event_that_is_missing_is_lost(demo: Demo) -> None:
    given = rows(demo)
    del given[17]
    write(demo, given)
    verified = demo.verify(FORMS, report())
    assert (verified.exact, verified.lost, verified.duplicated, verified.wrong) == (False, 1, 0, 0)
    assert verified.sentence.startswith("NOT EXACT")


def test_a_single_event_too_many_is_a_duplicate(demo: Demo) -> None:
    given = rows(demo)
    write(demo, [*given[:18], given[17], *given[18:]])
    verified = demo.verify(FORMS, report())
    assert (verified.exact, verified.lost, verified.duplicated, verified.reordered) == (False, 0, 1, 0)


def test_a_wrong_score_is_no_score(demo: Demo) -> None:
    given = rows(demo)
    given[17] = (given[17][0], given[17][1] + 1e-6)
    write(demo, given)
    verified = demo.verify(FORMS, report())
    assert (verified.exact, verified.lost, verified.wrong) == (False, 1, 1)


def test_an_event_that_nobody_has_read_is_wrong(demo: Demo) -> None:
    write(demo, [*rows(demo), (10_000, 0.5), (-1, 0.5)])
    assert demo.verify(FORMS, report()).wrong == 2


def test_order_counts_within_a_partition_only() -> None:
    exact = np.array([0.1, 0.2, 0.3, 0.4])
    between = compare(exact, 2, np.array([1, 0, 3, 2]), np.array([0.2, 0.1, 0.4, 0.3]))
    within = compare(exact, 2, np.array([2, 1, 0, 3]), np.array([0.3, 0.2, 0.1, 0.4]))
    assert (between.exact, within.exact, within.reordered) == (True, False, 1)


@pytest.mark.parametrize("finding", ["lost", "duplicated", "reordered"])
def test_what_the_edges_report_counts_too(demo: Demo, finding: str) -> None:
    write(demo, rows(demo))
    assert not demo.verify(FORMS, report(**{finding: 1})).exact


def test_a_run_that_read_nothing_has_nothing_to_show(demo: Demo) -> None:
    verified = demo.verify(FORMS, report(offsets={SOURCE: [0, 0]}, events_in=0))
    assert verified.exact
    assert verified.events == 0


def test_every_run_has_the_same_input_and_a_plan_of_its_own(demo: Demo) -> None:
    plans = [demo.plan(forms, parallelism=2) for forms in Forms]
    assert {plan.options.forms for plan in plans} == set(Forms)
    assert demo.source.records(0, 50, 0) == demo.source.records(0, 50, 0)
