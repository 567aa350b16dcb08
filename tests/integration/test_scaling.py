"""Workers join and leave a job on real Spark, from another terminal, under load, while one of them is killed."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.cli import app
from penstock.runtime.clock import now_us
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


def test_two_migrations_overlap_a_recovery(tmp_path: Path, eventually: Eventually) -> None:
    """A worker dies while a column leaves it and others are still to follow; before that is made good, more is wanted.

    The worker that the column goes to is stopped meanwhile: neither the move nor the recovery can end without it.
    """
    out = tmp_path / "out"
    numbers = ps.stream("in", ps.generator({"n": ps.fields.sequence()}, rate=2_000, format="columns"))
    counts = numbers.with_columns(k=ps.col("n") % KEYS).key_by("k").count(emit="every")
    options = {"parallelism": 6, "workers": 1, "epoch": "200ms", "forms": "record"}
    with ps.start(counts.to(ps.files(out)), name="overlapping", **options) as job:
        machine = job._driver._machine
        rescaling, placement = machine.scheduler.rescaling, machine.scheduler.placement
        stopped: list[psutil.Process] = []

        def pids() -> dict[int, int]:
            return {each.worker: each.pid for each in job.status().workers}

        def stop_one_that_is_moved_to() -> bool:
            """Stop the new owner of a column on its way, of which it has some: of six, two are to stay on worker 0."""
            move = rescaling.move
            if move is None and len(set(placement)) == len(rescaling.wanted):
                job.scale(4 - len(rescaling.wanted))  # it went too fast: back to one worker, and to three again
            if move is None or move.old != 0 or move.new not in placement or placement.count(0) < 4:
                return False
            new = psutil.Process(pids()[move.new])
            new.suspend()
            if rescaling.move is not move:
                new.resume()  # it was over before
                return False
            stopped.append(new)
            return True

        eventually(lambda: job.status().epoch >= 1)
        try:
            eventually(stop_one_that_is_moved_to)
            done, victim = len(rescaling.reports), psutil.Process(pids()[0])
            victim.kill()
            killed_us = now_us()
            assert len(rescaling.reports) == done, "the column was on its way when its worker died"
            assert placement.count(0) >= 4, "and another one was to follow"
            eventually(lambda: job.status().recoveries == 1 and pids()[0] != victim.pid)
            assert job.status().resumed_us < killed_us, "the recovery waits for the worker that is stopped"
            job.scale(4)
            eventually(lambda: len(rescaling.wanted) == 4)
            assert job.status().resumed_us < killed_us
        finally:
            for each in stopped:
                each.resume()

        def on(workers: int) -> bool:
            now = job.status()
            return len(set(now.placement)) == workers == len({each.pid for each in now.workers}) and not now.waiting

        eventually(lambda: on(4))
        # And once more, while columns go together again; the one that they come to dies.
        job.scale(2)
        eventually(lambda: rescaling.move is not None and rescaling.move.new in pids())
        assert rescaling.move is not None
        os.kill(pids()[rescaling.move.new], signal.SIGKILL)
        eventually(lambda: job.status().recoveries >= 2 and on(2))
        job.drain()
        report = job.wait()
    assert report is not None
    assert (report.lost, report.duplicated, report.reordered) == (0, 0, 0)
    assert len(report.moves) >= 5, "three workers have got a column each, at the least, and two gave theirs back"
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
