"""Workers join and leave a job on real Spark, from another terminal, under load, while one of them is killed."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.cli import app
from penstock_bench.meter.job import read_rows

pytestmark = pytest.mark.spark

Eventually = Callable[[Callable[[], object]], None]
KEYS = 97


def expected(offsets: list[int]) -> dict[int, int]:
    """How often each key came: partitions take turns in the numbers."""
    parts, counts = len(offsets), Counter[int]()
    for at, read in enumerate(offsets):
        counts.update(number % KEYS for number in range(at, at + parts * read, parts))
    return dict(counts)


def test_workers_come_and_go_while_one_dies(tmp_path: Path, eventually: Eventually) -> None:
    out, run = tmp_path / "out", CliRunner()
    numbers = ps.stream("in", ps.generator({"n": ps.fields.sequence()}, rate=2_000, format="columns"))
    counts = numbers.with_columns(k=ps.col("n") % KEYS).key_by("k").count(emit="every")
    options = {"parallelism": 3, "workers": 1, "epoch": "200ms", "forms": "record"}
    with ps.start(counts.to(ps.files(out)), name="scaled", **options) as job:
        eventually(lambda: job.status().epoch >= 1)
        refused = run.invoke(app, ["scale", "scaled", "4"])
        assert refused.exit_code == 2
        assert "1 to 3, which is the parallelism of the job" in refused.output
        first = job.status().workers[0].pid

        def on(workers: int) -> bool:
            placement = job.status().placement
            return len(set(placement)) == workers == len({each.pid for each in job.status().workers})

        for workers in (3, 1, 2):
            told = run.invoke(app, ["scale", "scaled", str(workers)])
            assert told.output == f"the job goes over to {workers} worker{'s' * (workers > 1)}\n"
            if workers == 2:
                os.kill(first, signal.SIGKILL)
                eventually(lambda: job.status().recoveries >= 1)
            eventually(lambda n=workers: on(n))
        # And key groups go from one instance to another, as they do by themselves where one is hot.
        shifting = job._driver._machine.scheduler.rescaling.shifting
        eventually(lambda: shifting.want(1, 0, 2, shifting.owned(1, 0)[::2], "half of it"))
        eventually(lambda: shifting.reports)
        job.drain()
        report = job.wait()
    assert report is not None
    assert (report.lost, report.duplicated, report.reordered) == (0, 0, 0)
    assert len(report.moves) >= 4
    assert [(each.old, each.new, each.groups) for each in report.adaptation.workers.shifts] == [(0, 2, 683)]
    rows = Counter((row["k"], row["count"]) for row in read_rows(out))
    assert rows == Counter((k, n + 1) for k, count in expected(report.offsets["in"]).items() for n in range(count))


def test_workers_follow_the_load_by_themselves(tmp_path: Path, eventually: Eventually) -> None:
    out, slow = tmp_path / "out", tmp_path / "slow"

    def wait(record: Any) -> Any:
        if slow.exists():
            time.sleep(0.004)
        return record

    # While it waits, 300 records each second keep more than one worker busy.
    load = ps.generator({"n": ps.fields.sequence()}, rate=300, format="columns", partitions=2)
    numbers = ps.stream("in", load).map(wait, schema="n bigint")
    counts = numbers.with_columns(k=ps.col("n") % KEYS).key_by("k").count(emit="every")
    options = {"workers": (1, 2), "worker_interval": "100ms", "epoch": "100ms", "forms": "record"}
    with ps.start(counts.to(ps.files(out)), name="elastic", **options) as job:
        eventually(lambda: job.status().epoch >= 1)
        slow.touch()
        eventually(lambda: len(set(job.status().placement)) == 2)
        slow.unlink()
        eventually(lambda: len(set(job.status().placement)) == 1)
        job.drain()
        report = job.wait()
    assert report is not None
    assert (report.lost, report.duplicated, report.reordered) == (0, 0, 0)
    assert report.adaptation is not None
    assert report.adaptation.workers is not None
    first, *later = [(each.before, each.workers) for each in report.adaptation.workers.decisions]
    assert first == (1, 2)
    assert (2, 1) in later
    rows = Counter((row["k"], row["count"]) for row in read_rows(out))
    assert rows == Counter((k, n + 1) for k, count in expected(report.offsets["in"]).items() for n in range(count))
