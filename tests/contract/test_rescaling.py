"""A job goes on with another parallelism: key groups, partitions and prepared output are dealt out anew, exactly."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.control.events import RecordCommit
from penstock.control.resume import anchors, outputs
from penstock.errors import CheckpointMismatch
from penstock.pipeline.plan import Plan
from penstock.runtime.attempts import Attempt
from penstock.runtime.checkpoints import new_record
from penstock.runtime.job import plan_of
from penstock.testing import At, collect
from penstock.testing.cluster import Cluster

SCHEMA = "k string, n bigint, at timestamp"
PARTITIONS = 3
STEP_US = 5_000


class Killed(Exception):
    pass


class Commits(list[RecordCommit]):
    """Kills the driver when it has written the commit record of an epoch, before anybody hears of it."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self._epoch = epoch

    def append(self, command: RecordCommit) -> None:
        super().append(command)
        if command.epoch == self._epoch:
            raise Killed


def rows_of(seed: int, count: int = 30) -> list[list[Any]]:
    """Records of each partition, in the order of time."""
    random = Random(seed)
    return [
        [(random.choice("abcdefgh"), number * PARTITIONS + p, number * STEP_US) for number in range(count)]
        for p in range(PARTITIONS)
    ]


def events(name: str, seed: int) -> ps.Stream:
    scripts = [[each for row in rows for each in (At(row[2] / 1e6), row)] for rows in rows_of(seed)]
    return ps.stream(name, ps.records(partitions=scripts, schema=SCHEMA)).with_watermark("at", 0)


def joined(seed: int, **options: Any) -> ps.Stream:
    views = events("views", seed + 1).select("k", v=ps.col("n"), seen=ps.col("at"))
    times = {"left_time": "at", "right_time": "seen"}
    return events("events", seed).join(views, on="k", within="20ms", **times, **options)


SHAPES: dict[str, Callable[[int], ps.Stream]] = {
    "counts": lambda seed: events("events", seed).key_by("k").count(emit="every"),
    "windows": lambda seed: events("events", seed).key_by("k").window("20ms", on="at").aggregate(
        c=ps.agg.count(), s=ps.agg.sum("n")
    ),
    "sliding": lambda seed: events("events", seed).key_by("k").window("20ms", slide="10ms", on="at").count(),
    "sessions": lambda seed: events("events", seed).key_by("k").window(ps.session("7ms", on="at")).count(),
    "distinct": lambda seed: events("events", seed).drop_duplicates("k", on="at", within="11ms").select("k", "at"),
    "expiring": lambda seed: events("events", seed).key_by("k").count(emit="every", ttl="11ms", on="at"),
    "joins": joined,
    "outer joins": lambda seed: joined(seed, how="left"),
    "joins, once": lambda seed: joined(seed, match="once", how="left"),
}  # fmt: skip


def planned(stream: ps.Stream, directory: Path, parallelism: int) -> Plan:
    pipeline = stream.to(ps.files(directory / "out"), name="out")
    options = {"checkpoint": directory / "checkpoint", "epoch": "10ms", "name": "rescaled"}
    return plan_of(pipeline, parallelism=parallelism, **options)


def run_part(stream: ps.Stream, directory: Path, parallelism: int, crash_epoch: int | None) -> bool:
    """Run until the driver dies right after a commit record; say whether it did, or came to its end."""
    attempt = Attempt.begin(planned(stream, directory, parallelism))
    plan, store = attempt.plan, attempt.store
    resumption = attempt.restart.resumption() if attempt.restart is not None else None
    disk = {each.name: store.read_snapshot(each) for each in resumption.snapshots} if resumption else {}
    cluster = Cluster(plan, resumption, disk)
    killed = False
    if crash_epoch is not None:
        cluster.commits = Commits(crash_epoch + (resumption.epoch if resumption else 0))
    try:
        cluster.run_until(1 << 62)
        assert cluster.error is None
        assert cluster.ended
    except Killed:
        killed = True
    attempt.release()
    last = cluster.commits[-1]
    for name, data in cluster.disk.items():
        store.write_snapshot(name, data)
    store.write_commit(
        new_record(
            job="rescaled",
            job_id=plan.job_id,
            attempt=attempt.number,
            epoch=last.epoch,
            generation=last.generation,
            start_us=last.start_us,
            final=last.final,
            anchors=anchors(plan),
            sinks={spec.name: spec.sink.state() for unit in plan.units for spec in unit.ops if spec.sink is not None},
            snapshots=last.snapshots,
            outputs=outputs(plan),
        )
    )
    return killed


def written(directory: Path) -> list[dict[str, Any]]:
    parts = sorted((directory / "out").glob("part-*"))
    return [json.loads(line) for part in parts for line in part.read_text().splitlines()]


def plain(rows: list[Any]) -> Counter[str]:
    """Rows to be compared, without times, which files spell otherwise."""
    names = [name for name in rows[0] if name not in ("window_start", "window_end", "at", "seen")] if rows else []
    return Counter(json.dumps([row[name] for name in names]) for row in rows)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_result_is_that_of_a_batch(tmp_path: Path, shape: str) -> None:
    seed = len(shape)
    for parallelism, crash_epoch in ((2, 15), (5, 20)):
        assert run_part(SHAPES[shape](seed), tmp_path, parallelism, crash_epoch)
    assert not run_part(SHAPES[shape](seed), tmp_path, 1, None)
    assert plain(written(tmp_path)) == plain(collect(SHAPES[shape](seed)))


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_files_are_dealt_out_anew_and_each_record_is_read_once(tmp_path: Path, kind: str) -> None:
    directory = tmp_path / "in"
    directory.mkdir()
    numbers = iter(range(1_000_000))
    expected: list[int] = []

    def add(name: str, count: int) -> None:
        """A file, or more lines of one; Parquet files do not grow."""
        rows = [next(numbers) for _ in range(count)]
        expected.extend(rows)
        if kind == "parquet":
            pq.write_table(pa.table({"n": rows}), directory / f"{name}-{rows[0]}.parquet")
            return
        path = directory / f"{name}.{'csv' if kind == 'csv' else 'jsonl'}"
        head = "n\n" if kind == "csv" and not path.exists() else ""
        with path.open("a") as file:
            file.write(head + "".join(f"{n}\n" if kind == "csv" else f'{{"n": {n}}}\n' for n in rows))

    def stream() -> ps.Stream:
        if kind == "parquet":
            return ps.stream("files", ps.parquet_files(directory)).filter(ps.col("n") >= 0)
        if kind == "csv":
            return ps.stream("files", ps.csv_files(directory, schema="n bigint")).filter(ps.col("n") >= 0)
        return ps.stream("files", ps.json_files(directory)).parse_json("n bigint")

    for number in range(5):
        add(f"a{number}", 40)
    for round, (parallelism, crash_epoch) in enumerate([(2, 1), (5, 1), (3, 1), (1, None)]):
        assert run_part(stream(), tmp_path, parallelism, crash_epoch) == (crash_epoch is not None)
        if crash_epoch is not None:
            add("a1", 30)
            add(f"b{round}", 20)
    assert sorted(row["n"] for row in written(tmp_path)) == expected


def test_a_source_with_other_partitions_is_refused(tmp_path: Path) -> None:
    def numbers() -> ps.Stream:
        source = ps.generator({"n": ps.fields.sequence()}, rate=2_000, total=500, format="columns")
        return ps.stream("numbers", source).key_by("n").count()

    assert run_part(numbers(), tmp_path, 2, 15)
    with pytest.raises(CheckpointMismatch, match=r"'numbers' was generator of 2 partitions .* now generator of 3"):
        Attempt.begin(planned(numbers(), tmp_path, 3))
    assert not run_part(numbers(), tmp_path, 2, None), "as it was, it goes on"
    assert len(written(tmp_path)) == 500


def test_figures_and_late_records_are_counted_once(tmp_path: Path) -> None:
    old = [("a", 1, 0), ("b", 2, 90_000), ("a", 3, 0), ("c", 4, 200_000), ("b", 5, 0)]

    def stream() -> ps.Stream:
        script = [each for i, row in enumerate(old) for each in (At(i * 0.02), row)]
        return (
            ps.stream("in", ps.records(partitions=[script], schema=SCHEMA)).key_by("k").window("20ms", on="at").count()
        )

    assert run_part(stream(), tmp_path, 2, 17)
    attempt = Attempt.begin(planned(stream(), tmp_path, 3))
    assert attempt.restart is not None
    resumption = attempt.restart.resumption()
    attempt.release()
    disk = {each.name: attempt.store.read_snapshot(each) for each in resumption.snapshots}
    cluster = Cluster(attempt.plan, resumption, disk)
    cluster.run_until(1 << 62)
    figures = [each for worker in cluster.workers for each in worker.figures()]
    assert sum(each.late for each in figures) == 2
    assert sum(each.records_in for each in figures if each.operation == "in") == len(old)
