"""Replicas on real Spark, told from another terminal how many, killed under load: in order, exactly once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.cli import app
from waiting import kill_one

pytestmark = pytest.mark.spark

Eventually = Callable[[Callable[[], object]], None]


def triple(record: Any) -> Any:
    if record.n % 100 == 99:
        raise ValueError("not this one")
    return {"n": record.n * 3, "pid": os.getpid()}


def test_replicas_are_killed_activated_and_deactivated_under_load(eventually: Eventually) -> None:
    source = ps.generator({"n": ps.fields.sequence()}, rate=500, format="columns", partitions=1)
    stream = ps.stream("in", source).filter(ps.col("n") >= 0)
    schema = "n bigint, pid bigint"
    stream = stream.map(triple, schema=schema, name="triple", on_error="dead_letter", replicas=(2, 3))
    out, letters = ps.memory(), ps.memory()
    options, run = {"epoch": "200ms", "forms": "record"}, CliRunner()
    job = ps.start(stream.to(out), dead_letters=letters, parallelism=1, name="replicated", **options)
    with job:
        eventually(lambda: job.adaptation().replicas[0].degree == 2 and len(job.status().replica_pids) == 3)
        for operation, number, why in (("filter", "2", "with replicas=: triple"), ("triple", "4", "2 to 3")):
            refused = run.invoke(app, ["replicate", "replicated", operation, number])
            assert refused.exit_code == 2
            assert why in refused.output
        for degree in (3, 2):
            epoch, victim = job.status().epoch, kill_one(lambda: job.status().replica_pids)
            # What is settled stays, however much the law would like another number on a busy machine.
            told = run.invoke(app, ["replicate", "replicated", "triple", str(degree)])
            assert told.output == f"'triple' is computed by {degree} processes from here on\n"
            eventually(lambda victim=victim: victim not in job.status().replica_pids)
            eventually(lambda degree=degree: job.adaptation().replicas[0].degree == degree)
            if degree == 3:
                eventually(lambda: len({*job.status().replica_pids} & {row.pid for row in out.rows}) == 3)
            eventually(lambda epoch=epoch: job.status().epoch > epoch + 1)
        job.replicate("triple", "auto")
        eventually(lambda: not job.adaptation().replicas[0].pinned)
        assert job.adaptation().actions[-1].what == "triple: as many processes as the job chooses"
        os.kill(job.status().workers[0].pid, signal.SIGKILL)
        eventually(lambda: job.status().recoveries == 1 and job.adaptation().replicas[0].service_eps > 0)
        job.drain()
        report = job.wait()
    assert report is not None
    (total,) = report.offsets["in"]
    good = [n for n in range(total) if n % 100 != 99]
    assert [row.n for row in out.rows] == [3 * n for n in good]
    assert sorted(row.offset for row in letters.rows) == [n for n in range(total) if n % 100 == 99]
    assert len({row.pid for row in out.rows}) >= 4, "of replicas that came and went, or the worker before"
    assert (report.lost, report.duplicated, report.reordered) == (0, 0, 0)
    assert report.adaptation is not None
    assert report.adaptation.replicas[0].activations >= 3
    assert all(each > 0 for each in report.adaptation.replicas[0].activation_ms)
    assert report.adaptation.replicas[0].activation_ms, "the third one began to work after it was wanted"
