"""Second runs on real Spark: two drivers at one checkpoint, one that was overtaken, runs with figures of their own."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import CheckpointFenced, CheckpointInUse
from penstock.runtime.checkpoints import CheckpointStore
from penstock_bench.meter.job import read_rows

pytestmark = pytest.mark.spark

PENSTOCK = str(Path(sys.executable).with_name("penstock"))
Eventually = Callable[[Callable[[], object]], None]


def numbers(sink: ps.Sink) -> ps.Pipeline:
    source = ps.generator({"n": ps.fields.sequence()}, rate=2_000, format="columns", partitions=2)
    return ps.stream("numbers", source).key_by("n").map(lambda r: (r.n,), schema="n bigint").to(sink, name="out")


def test_one_driver_at_a_time_and_one_that_was_overtaken_commits_nothing(
    tmp_path: Path, eventually: Eventually
) -> None:

    def pipeline() -> ps.Pipeline:
        return numbers(ps.files(tmp_path / "out"))

    options = {"checkpoint": tmp_path / "checkpoint", "parallelism": 2, "name": "fenced", "epoch": "200ms"}
    with ps.start(pipeline(), **options) as job:
        eventually(lambda: job.status().epoch >= 3)
        with pytest.raises(CheckpointInUse, match="in use by job 'fenced', process"):
            ps.start(pipeline(), **options)
        assert not job.ended, "the one that was there first goes on"
        # As if this process had lost its lock: another driver, elsewhere, has begun.
        assert CheckpointStore(str(tmp_path / "checkpoint"), durable=True).claim(2)
        with pytest.raises(CheckpointFenced, match="run 2 has taken over"):
            job.wait()
        assert job.status().phase == "failed"
    seen = [row["n"] for row in read_rows(tmp_path / "out")]
    assert 0 < len(seen) == len(set(seen))
    report = ps.run(pipeline(), duration="1s", **options)
    read = [offset * 2 + part for part, count in enumerate(report.offsets["numbers"]) for offset in range(count)]
    assert sorted(row["n"] for row in read_rows(tmp_path / "out")) == sorted(read)
    assert report.total is not None
    assert (report.total.runs, report.total.events_in) == (3, len(read))
    assert 0 < report.events_in < len(read)


def test_two_fresh_runs_of_one_name_into_one_table(tmp_path: Path) -> None:
    for first, count in ((0, 500), (1_000, 300)):
        rows = ps.stream("rows", ps.records([(first + i,) for i in range(count)], schema="n bigint"))
        ps.run(rows.to(ps.sqlite(tmp_path / "db", "t", key="n"), name="out"), parallelism=1, name="twice", epoch="50ms")
    with closing(sqlite3.connect(tmp_path / "db")) as database:
        found = [n for (n,) in database.execute("SELECT n FROM t ORDER BY n")]
    assert found == [*range(500), *range(1_000, 1_300)]


def test_a_resumed_run_has_its_own_time_and_its_own_figures(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import penstock as ps\n"
        "print('this is read by nobody')\n"
        "numbers = ps.generator({'n': ps.fields.sequence()}, rate=1_000, format='columns')\n"
        "stream = ps.stream('numbers', numbers)\n"
        "pipeline = stream.to(ps.files('out')) + stream.filter(ps.col('n') % 500 == 0).to(ps.console())\n"
    )
    reports = []
    for _ in range(2):
        done = subprocess.run(
            [PENSTOCK, "run", "job.py", "--for", "2s", "--checkpoint", "ck", "--parallelism", "1", "--json", "-"],
            cwd=tmp_path,
            env={**os.environ, "PENSTOCK_STATE": str(tmp_path / "state")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        reports.append(json.loads(done.stdout))
        assert "n=" in done.stderr, "rows of the console"
    first, second = reports
    assert second["events_in"] > 0, "it was not drained at once"
    assert second["seconds"] >= 1.5
    assert first["seconds"] + second["seconds"] < second["total"]["seconds"], "Spark was started in between"
    assert first["events_in"] + second["events_in"] == second["total"]["events_in"] == len(read_rows(tmp_path / "out"))
    assert (first["total"]["runs"], second["total"]["runs"]) == (1, 2)
    assert f"{second['total']['events_in']:,} in" in done.stderr, "the last lines say it too"
