"""Replicas on real Spark: activated, deactivated and killed under load; in order, exactly once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from penstock.errors import InvalidOption
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
    # The law looks once in an hour: what is wanted by hand here stays wanted, however busy the machine is.
    options = {"epoch": "200ms", "forms": "record", "replica_interval": "1h"}
    job = ps.start(stream.to(out), dead_letters=letters, parallelism=1, **options)
    with job:
        eventually(lambda: job.adaptation().replicas[0].degree == 2 and len(job.status().replica_pids) == 3)
        with pytest.raises(InvalidOption, match="an operation with replicas=: triple"):
            job.replicate("filter", 2)
        for degree in (3, 2):
            epoch, victim = job.status().epoch, kill_one(lambda: job.status().replica_pids)
            job.replicate("triple", degree)
            eventually(lambda victim=victim: victim not in job.status().replica_pids)
            eventually(lambda degree=degree: job.adaptation().replicas[0].degree == degree)
            if degree == 3:
                eventually(lambda: len({*job.status().replica_pids} & {row.pid for row in out.rows}) == 3)
            eventually(lambda epoch=epoch: job.status().epoch > epoch + 1)
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
