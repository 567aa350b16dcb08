"""Sinks and sources that are Spark's, on real Spark: exact through crashes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import penstock as ps
from penstock.errors import OperationFailed, SourceFailed, TypeMismatch
from penstock.spark.streaming import Spool
from waiting import WAIT_S

pytestmark = pytest.mark.spark

PROGRAM = """
import json, os, sys
import penstock as ps

out, checkpoint, crash_at, duration = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
calls = 0

def write(df, epoch):
    global calls
    calls += 1
    with open(f"{out}.calls", "a") as file:
        print(json.dumps([epoch, sorted(row.n for row in df.collect())]), file=file)
    if calls == crash_at:
        os._exit(7)  # with the rows written, and the epoch not over

numbers = ps.stream("numbers", ps.generator({"n": ps.fields.sequence()}, rate=400, format="columns"))
kept = numbers.filter("n % 3 = 0")
job = kept.to(ps.spark_sink(write), name="spark") + kept.to(ps.parquet(f"{out}.parquet", every="1s"), name="files")
job += kept.to(ps.delta(f"{out}.delta"), name="delta")
report = ps.run(job, parallelism=2, name="ends", epoch="300ms", checkpoint=checkpoint, duration=duration)
print(json.dumps(report.offsets["numbers"]))
"""


def test_a_driver_that_dies_in_the_function_calls_it_again_with_the_same_rows(tmp_path: Path, queries: Any) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    out = tmp_path / "out"
    for crash_at, duration, code in ((2, "1h", 7), (-1, "1s", 0)):
        command = [sys.executable, "program.py", str(out), str(tmp_path / "checkpoint"), str(crash_at), duration]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=2 * WAIT_S, check=False)
        assert done.returncode == code, done.stderr
    calls = [json.loads(line) for line in Path(f"{out}.calls").read_text().splitlines()]
    epochs = [epoch for epoch, _ in calls]
    assert epochs == sorted(epochs)
    assert calls[1] == calls[2], "the epoch that was under way comes again, as it was"
    assert len(set(epochs)) == len(calls) - 1
    read = json.loads(done.stdout.splitlines()[-1])
    numbers = (offset * len(read) + part for part, count in enumerate(read) for offset in range(count))
    wanted = sorted(n for n in numbers if n % 3 == 0)
    assert sorted(n for _, rows in dict(calls).items() for n in rows) == wanted
    assert sorted(row.n for row in queries.read.parquet(f"{out}.parquet").collect()) == wanted
    assert sorted(DeltaTable(f"{out}.delta").to_pyarrow_table()["n"].to_pylist()) == wanted


def test_parquet_and_delta_are_exact_and_readable_while_a_worker_is_killed(
    tmp_path: Path, queries: Any, eventually: Callable[[Callable[[], object]], None]
) -> None:
    out = tmp_path / "out"
    source = ps.generator({"n": ps.fields.sequence()}, rate=500, format="columns", partitions=2)
    parts = ps.stream("numbers", source).with_columns(part=ps.expr("n % 3"))

    def seen() -> list[tuple[int, int]]:
        found = queries.read.schema("n bigint, part bigint").parquet(str(out)).collect() if out.exists() else []
        rows = [(row.n, row.part) for row in found]
        assert len(set(rows)) == len(rows), "no row is there twice"
        return rows

    sink = ps.parquet(out, partition_by="part", every="500ms")
    table = parts.to(ps.delta(tmp_path / "table", partition_by="part", compact="500ms"), name="table")
    with ps.start(parts.to(sink) + table, parallelism=2, epoch="200ms", name="parquet") as job:
        eventually(seen)
        os.kill(job.status().workers[0].pid, signal.SIGKILL)
        before = len(seen())
        eventually(lambda: job.status().recoveries and len(seen()) > before)
        job.drain()
        report = job.wait()
    assert report is not None
    read = [offset * 2 + part for part, count in enumerate(report.offsets["numbers"]) for offset in range(count)]
    assert Counter(seen()) == Counter((n, n % 3) for n in read)
    added = DeltaTable(tmp_path / "table").to_pyarrow_table().to_pylist()
    assert Counter((row["n"], row["part"]) for row in added) == Counter(seen())


def test_a_function_of_a_spark_sink_that_fails_ends_the_job_with_its_traceback(queries: Any) -> None:
    def write(df: Any, epoch: int) -> None:
        raise ValueError(f"no table for {df.count()} rows")

    stream = ps.stream("in", ps.records([(1,), (2,)], schema="n bigint"))
    with pytest.raises(OperationFailed, match=r"(?s)operation 'out'.*no table for 2 rows.*in write"):
        ps.run(stream.to(ps.spark_sink(write), name="out"), parallelism=1)


ROWS = "n bigint, t string, at timestamp, d date, b binary, x double, l array<bigint>"


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_committed_output_is_read_by_spark_with_its_types(tmp_path: Path, queries: Any, form: str) -> None:
    given = [(i, None if i % 2 else f"t{i}", i * 1_000_001, i, bytes([i]), i / 2, [i, i]) for i in range(9)]
    ps.run(
        ps.stream("in", ps.records(given, schema=ROWS, partitions=3)).to(ps.files(tmp_path / "out", format=form)),
        parallelism=2,
    )
    ps.register(queries)
    df = queries.read.format("penstock").load(str(tmp_path / "out"))
    assert df.schema.simpleString() == queries.createDataFrame([], ROWS).schema.simpleString()
    found = df.orderBy("n").toArrow().to_pylist()
    assert [(r["n"], r["t"], r["x"], r["l"], bytes(r["b"])) for r in found] == [
        (*g[:2], g[5], g[6], g[4]) for g in given
    ]
    assert [round(r["at"].timestamp() * 1e6) for r in found] == [g[2] for g in given]
    assert [(r["d"].toordinal() - 719163) for r in found] == [g[3] for g in given]
    with pytest.raises(Exception, match="no committed output"):
        queries.read.format("penstock").load(str(tmp_path)).collect()


def test_a_streaming_query_reads_each_epoch_once_through_its_own_restarts(tmp_path: Path, queries: Any) -> None:
    out, copy = tmp_path / "out", tmp_path / "copy"
    ps.register(queries)

    def follow() -> list[int]:
        stream = queries.readStream.format("penstock").load(str(out))
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "offsets"))
        query = writer.trigger(availableNow=True).start(str(copy))
        assert query.awaitTermination(WAIT_S)
        assert query.exception() is None
        return sorted(row.n for row in queries.read.parquet(str(copy)).collect())

    def run(total: int) -> None:
        source = ps.generator({"n": ps.fields.sequence()}, rate=2000, total=total, format="columns", partitions=2)
        ps.run(
            ps.stream("numbers", source).to(ps.files(out, existing="append")), parallelism=2, epoch="100ms", name="out"
        )

    run(600)
    assert follow() == list(range(600))
    assert follow() == list(range(600))
    run(100)
    assert follow() == sorted([*range(600), *range(100)])


def test_a_streaming_dataframe_is_a_source_each_row_once_over_runs(tmp_path: Path, queries: Any) -> None:
    (tmp_path / "in").mkdir()

    def run(*files: tuple[str, range]) -> list[int]:
        for name, numbers in files:
            (tmp_path / "in" / name).write_text("".join(f'{{"n": {n}}}\n' for n in numbers))
        stream = queries.readStream.schema("n bigint").option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
        source = ps.spark_source(stream.where("n % 2 = 0"), spool=tmp_path / "spool", follow=False)
        pipeline = ps.stream("numbers", source).to(ps.files(tmp_path / "out"))
        ps.run(pipeline, parallelism=2, name="from-spark", checkpoint=str(tmp_path / "checkpoint"))
        parts = (tmp_path / "out").glob("part-*")
        return sorted(json.loads(line)["n"] for part in parts for line in part.read_text().splitlines())

    first = sorted([*range(0, 100, 2), *range(0, 100, 2), *range(100, 200, 2)])
    assert run(("a.json", range(100)), ("b.json", range(100)), ("c.json", range(100, 200))) == first
    assert run() == first
    assert run(("d.json", range(200, 300))) == first + list(range(200, 300, 2))


def test_a_batch_counts_from_one_moment_on(tmp_path: Path, queries: Any) -> None:
    spool = Spool(tmp_path, 1 << 30)
    first, again = queries.range(5), queries.range(100, 103)
    crash = pytest.MonkeyPatch()
    crash.setattr(Spool, "_show", lambda *_: None)
    spool.take(first, 0)  # and the driver dies before the file has its name
    crash.undo()
    assert not list(tmp_path.glob("batch-*"))
    Spool(tmp_path, 1 << 30).begin()
    assert [row.id for row in queries.read.parquet(str(tmp_path / "batch-0000000000.parquet")).collect()] == [*range(5)]
    (tmp_path / "batch-0000000000.parquet").unlink()  # read, and committed
    spool.take(again, 0)
    assert not list(tmp_path.glob("*batch-*"))


def test_a_query_that_fails_ends_the_job_and_what_is_no_stream_is_refused(tmp_path: Path, queries: Any) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"n": 0}\n')
    with pytest.raises(TypeMismatch, match="no streaming DataFrame"):
        ps.spark_source(queries.range(5), spool=tmp_path / "spool")
    stream = queries.readStream.schema("n bigint").json(str(tmp_path / "in")).selectExpr("1 / n AS x")
    source = ps.spark_source(stream, spool=tmp_path / "spool", follow=False)
    with pytest.raises(SourceFailed, match=r"spark_source.*(?i:divi)"):
        ps.run(ps.stream("numbers", source).to(ps.memory()), parallelism=1)
