"""Operations change form on real Spark, under load, while slots and workers are killed; exact output."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.control.changes import ChangeReport
from penstock.errors import InvalidOption, WorkerFailed
from penstock.runtime.job import Job
from penstock.runtime.report import Report
from penstock_bench.meter.job import read_rows
from penstock_bench.workloads import WORKLOADS, replay
from waiting import kill_one

pytestmark = pytest.mark.spark

Eventually = Callable[[Callable[[], object]], None]
YAHOO = WORKLOADS["yahoo-updates"]
RATE_EPS = 10_000.0
FRONT = ("events", "parse_json", "filter", "select", "lookup", "count")


def forms(job: Job) -> dict[str, str]:
    return {each.name: each.form for each in job.status().operations}


def slot_pids(job: Job) -> list[int]:
    return job.status().slots


def start(out: Path, **options: object) -> Job:
    return ps.start(YAHOO.pipeline(RATE_EPS, ps.files(out)), name="switching", parallelism=2, **options)


def finish(job: Job, out: Path) -> Report:
    """Drain, and compare with what the input that was read must give."""
    job.drain()
    report = job.wait()
    assert report is not None
    read = report.offsets["events"]
    exact = YAHOO.expected(replay(YAHOO.source(RATE_EPS), report.start_us, read))
    found = YAHOO.compare(exact, read_rows(out), len(read))
    assert found.exact, found
    assert (report.lost, report.duplicated, report.reordered, report.late) == (0, 0, 0, 0)
    return report


def test_ranges_go_over_and_come_back_by_hand(tmp_path: Path, eventually: Eventually) -> None:
    with start(tmp_path / "out", forms="record") as job:
        eventually(lambda: job.status().epoch >= 1)
        job.switch(*FRONT, to="batch")
        eventually(lambda: forms(job)["count.combine"] == "batch" and len(job.adaptation().switches) == 1)
        eventually(lambda: next(o.block_records for o in job.status().operations if o.name == "events") > 50)
        job.switch(*FRONT, to="record")
        eventually(lambda: len(job.adaptation().switches) == 2)
        job.switch("filter", "select", to="batch")
        eventually(lambda: len(job.adaptation().switches) == 3)
        eventually(
            lambda: [forms(job)[name][0] for name in ("parse_json", "filter", "select", "lookup")] == list("rbbr")
        )
        report = finish(job, tmp_path / "out")
    assert [each.to for each in report.switches] == ["batch", "record", "batch"]
    assert [each.operations for each in report.switches][2] == ["filter", "select"]
    assert all(each.total_ms >= each.pause_ms >= 0 for each in report.switches)


def test_slots_and_workers_are_killed_in_batch_form(tmp_path: Path, eventually: Eventually) -> None:
    with start(tmp_path / "out", forms="batch", group_size=20) as job:
        eventually(lambda: forms(job)["count.combine"] == "batch" and job.status().slots)
        for _ in range(3):
            epoch = job.status().epoch
            victim = kill_one(lambda: slot_pids(job))
            eventually(
                lambda epoch=epoch, victim=victim: job.status().epoch > epoch + 1 and victim not in slot_pids(job)
            )
        lost = job.status().workers[0].pid
        os.kill(lost, signal.SIGKILL)
        eventually(lambda: job.status().recoveries == 1 and job.status().workers[0].pid != lost)
        epoch = job.status().epoch
        eventually(lambda: job.status().epoch > epoch + 1)
        eventually(lambda: forms(job)["count.combine"] == "batch")
        report = finish(job, tmp_path / "out")
    assert report.adaptation is not None
    assert len(report.adaptation.groups) > 1, "groups end and others take over"


class Elsewhere:
    """Can be opened by workers and not by slots, as on a machine that lacks a module."""

    def __reduce__(self) -> tuple[Any, ...]:
        def load() -> None:
            import inspect

            if any(each.function == "run_slot" for each in inspect.stack()):
                raise ModuleNotFoundError("No module named 'scores'")

        return load, ()


def lacking() -> ps.Pipeline:
    module = Elsewhere()
    numbers = ps.stream("numbers", ps.generator({"n": ps.fields.sequence()}, rate=2_000, format="columns"))
    return numbers.map(lambda record: (record.n, module)[:1], schema="n bigint", name="score").to(ps.memory())


def test_slots_that_cannot_open_the_pipeline_are_done_without(eventually: Eventually) -> None:
    with ps.start(lacking(), name="lacking", parallelism=2) as job:
        eventually(lambda: job.adaptation().given_up)
        epoch = job.status().epoch
        eventually(lambda: job.status().epoch > epoch + 1)
        job.drain()
        report = job.wait()
    assert report is not None
    assert report.adaptation is not None
    assert "No module named 'scores'" in (report.adaptation.given_up or "")
    assert (report.lost, report.duplicated, report.reordered, report.switches) == (0, 0, 0, [])
    assert report.results_out == report.events_in > 0


def test_a_job_in_batch_form_whose_slots_cannot_open_the_pipeline_fails_and_says_why() -> None:
    with (
        ps.start(lacking(), name="lacking", parallelism=2, forms="batch") as job,
        pytest.raises(WorkerFailed, match=r"No module named 'scores'.*forms="),
    ):
        job.wait()


def test_a_burst_is_met_and_passes(tmp_path: Path, eventually: Eventually) -> None:
    scoring = WORKLOADS["scoring"]
    # Several times what the record form carries on two idle cores.
    schedule = ps.rates.steps([(4, 2_000), (2, 1_200_000), (600, 2_000)])
    pipeline = scoring.pipeline(schedule, ps.foreach(lambda record: None))

    found: list[ChangeReport] = []

    def is_back() -> bool:
        """Whether the last switch is a way back, when the burst is over; a busy machine may see others before."""
        found[:] = job.adaptation().switches
        return [each.to for each in found[-2:]] == ["batch", "record"] and found[-1].at_s > 6.0

    with ps.start(pipeline, name="burst", parallelism=2) as job:
        eventually(is_back)
        job.drain()
        report = job.wait()
    assert report is not None
    assert (report.lost, report.duplicated, report.reordered) == (0, 0, 0)
    there = found[-2]
    assert "score" in there.operations
    assert there.inputs["L"] > there.inputs["L_up"]


def test_wrong_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"parse_json"):
        start(tmp_path / "a", pin={"parse_jsn": "batch"})
    with pytest.raises(InvalidOption, match=r"record, batch"):
        start(tmp_path / "b", pin={"filter": "both"})
    with pytest.raises(InvalidOption, match=r"adaptive, record, batch"):
        start(tmp_path / "c", forms="fast")
    with pytest.raises(InvalidOption, match=r"between them"):
        start(tmp_path / "d", pin={"parse_json": "batch", "select": "batch"})
