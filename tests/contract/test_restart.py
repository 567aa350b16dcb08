"""A driver dies between the commit record and the sinks' commit, and the pipeline is changed before the next run."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.connectors.base import Sink
from penstock.control.events import RecordCommit
from penstock.control.resume import anchors, outputs
from penstock.errors import CheckpointMismatch, SinkFailed
from penstock.pipeline.plan import Plan
from penstock.runtime.attempts import Attempt
from penstock.runtime.checkpoints import new_record
from penstock.runtime.job import plan_of
from penstock.testing.cluster import Cluster

TOTAL = 2_000
KEYS = ["a", "b", "c"]
CRASH_EPOCH = 4
Pipeline = Callable[[Sink], ps.Pipeline]


class Killed(Exception):
    pass


class Commits(list[RecordCommit]):
    """Kills the driver when it has written the commit record of an epoch, before anybody hears of it."""

    def append(self, command: RecordCommit) -> None:
        super().append(command)
        if command.epoch == CRASH_EPOCH:
            raise Killed


def numbers(partitions: int = 1) -> ps.Stream:
    columns = {"n": ps.fields.sequence(), "k": ps.fields.choice(KEYS)}
    source = ps.generator(columns, rate=2_000, total=TOTAL, format="columns", partitions=partitions)
    return ps.stream("numbers", source)


def direct(sink: Sink) -> ps.Pipeline:
    return numbers().select("n", "k").to(sink, name="out")


def branch(sink: Sink) -> ps.Pipeline:
    stream = numbers()
    return stream.select("n", "k").to(sink, name="out") + stream.filter(ps.col("n") < 0).to(ps.memory(), name="none")


def keyed(sink: Sink) -> ps.Pipeline:
    return numbers().key_by("k").filter(ps.col("n") >= 0).to(sink, name="out")


def turned(sink: Sink) -> ps.Pipeline:
    return numbers().select("k", "n").to(sink, name="out")


def counted(sink: Sink) -> ps.Pipeline:
    return numbers().key_by("n").aggregate(k=ps.agg.first("k")).to(sink, name="out")


def counted_and_turned(sink: Sink) -> ps.Pipeline:
    return numbers().key_by("n").aggregate(k=ps.agg.first("k")).select("k", "n").to(sink, name="out")


def planned(pipeline: ps.Pipeline, directory: Path) -> Plan:
    return plan_of(pipeline, checkpoint=directory / "checkpoint", parallelism=2, epoch="100ms", name="restarted")


def run_until_killed(pipeline: ps.Pipeline, directory: Path) -> None:
    attempt = Attempt.begin(planned(pipeline, directory))
    plan, store = attempt.plan, attempt.store
    cluster = Cluster(plan)
    cluster.commits = Commits()
    with pytest.raises(Killed):
        cluster.run_until(1 << 62)
    attempt.release()  # as the system does when a process ends
    last = cluster.commits[-1]
    for name, data in cluster.disk.items():
        store.write_snapshot(name, data)
    sinks = {o.name: o.operation.state() for u in plan.units for o in u.ops if isinstance(o.operation, Sink)}
    record = new_record(
        job="restarted",
        job_id=plan.job_id,
        attempt=attempt.number,
        epoch=last.epoch,
        generation=last.generation,
        start_us=last.start_us,
        final=last.final,
        anchors=anchors(plan),
        sinks=sinks,
        snapshots=last.snapshots,
        outputs=outputs(plan),
    )
    store.write_commit(record)


def run_to_the_end(pipeline: ps.Pipeline, directory: Path, restarts: int = 1) -> None:
    for _ in range(restarts):
        attempt = Attempt.begin(planned(pipeline, directory))
        assert attempt.restart is not None
        resumption = attempt.restart.resumption()
        attempt.release()
    disk = {stored.name: attempt.store.read_snapshot(stored) for stored in resumption.snapshots}
    cluster = Cluster(attempt.plan, resumption, disk)
    cluster.run_until(1 << 62)
    assert cluster.ended


def files_in(directory: Path) -> list[int]:
    parts = sorted((directory / "out").glob("part-*"))
    return [json.loads(line)["n"] for part in parts for line in part.read_text().splitlines()]


def table_in(directory: Path) -> list[int]:
    with closing(sqlite3.connect(directory / "out.db")) as database:
        rows = database.execute("SELECT n, k FROM out").fetchall()
    assert {k for _, k in rows} <= set(KEYS), "no column has taken the place of another"
    return [n for n, _ in rows]


SINKS: dict[str, tuple[Callable[[Path], Sink], Callable[[Path], list[int]]]] = {
    "files": (lambda directory: ps.files(directory / "out"), files_in),
    "sqlite": (lambda directory: ps.sqlite(directory / "out.db", "out", key="n"), table_in),
}
CHANGES = [
    (direct, direct),
    (direct, branch),
    (branch, direct),
    (keyed, direct),
    (direct, keyed),
    (keyed, branch),
    (direct, counted),
    (direct, turned),
    (branch, turned),
    (counted, counted_and_turned),
]


@pytest.mark.parametrize("kind", SINKS)
@pytest.mark.parametrize(("before", "after"), CHANGES, ids=[f"{a.__name__}-{b.__name__}" for a, b in CHANGES])
@pytest.mark.parametrize("restarts", [1, 2])
def test_what_was_prepared_is_published_wherever_the_sink_is_now(
    tmp_path: Path, kind: str, before: Pipeline, after: Pipeline, restarts: int
) -> None:
    sink, read = SINKS[kind]
    run_until_killed(before(sink(tmp_path)), tmp_path)
    published = read(tmp_path)
    assert len(published) == len(set(published)) < CRASH_EPOCH * TOTAL / 10, "the last epoch is not visible yet"
    run_to_the_end(after(sink(tmp_path)), tmp_path, restarts)
    assert sorted(read(tmp_path)) == list(range(TOTAL))
    assert [path for path in tmp_path.rglob(".pending/*") if path.name != "lock"] == []


@pytest.mark.parametrize(("before", "after"), [(direct, branch), (keyed, direct)])
def test_what_belongs_into_the_drivers_process_gets_there(tmp_path: Path, before: Pipeline, after: Pipeline) -> None:
    first, second = ps.memory(), ps.memory()
    run_until_killed(before(first), tmp_path)
    run_to_the_end(after(second), tmp_path)
    assert sorted(row.n for row in first.rows + second.rows) == list(range(TOTAL))


def test_files_keep_the_format_that_they_were_prepared_in(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    run_until_killed(direct(ps.files(tmp_path / "out")), tmp_path)
    run_to_the_end(direct(ps.files(tmp_path / "out", format="parquet")), tmp_path)
    found = [json.loads(row)["n"] for part in (tmp_path / "out").glob("*.jsonl") for row in part.open()]
    found += [n for part in (tmp_path / "out").glob("*.parquet") for n in pq.read_table(part)["n"].to_pylist()]
    assert sorted(found) == list(range(TOTAL))


@pytest.mark.parametrize("make", [direct, branch, keyed, counted])
def test_a_sink_of_another_kind_under_the_same_name_is_refused(tmp_path: Path, make: Pipeline) -> None:
    run_until_killed(make(ps.files(tmp_path / "out")), tmp_path)
    with pytest.raises(CheckpointMismatch, match=r"'out' was files, now sqlite") as refusal:
        planned(make(ps.sqlite(tmp_path / "out.db", "out", key="n")), tmp_path)
    assert "name=" in str(refusal.value)
    assert "as it was" in str(refusal.value)


@pytest.mark.parametrize("place", ["elsewhere", "out"])
def test_a_directory_with_output_to_publish_is_not_left_behind(tmp_path: Path, place: str) -> None:
    run_until_killed(direct(ps.files(tmp_path / "out")), tmp_path)
    if place == "out":
        run_to_the_end(direct(ps.files(tmp_path / "out")), tmp_path)
        assert sorted(files_in(tmp_path)) == list(range(TOTAL))
        return
    with pytest.raises(SinkFailed, match=r"(?s)operation 'out'.*not published yet.*as it was"):
        planned(direct(ps.files(tmp_path / place)), tmp_path)


def test_another_table_under_the_same_name_is_refused(tmp_path: Path) -> None:
    run_until_killed(direct(ps.sqlite(tmp_path / "out.db", "out", key="n")), tmp_path)
    with pytest.raises(SinkFailed, match=r"table 'out' of .*out.db', now it is 'other'"):
        planned(direct(ps.sqlite(tmp_path / "out.db", "other", key="n")), tmp_path)


def test_a_sink_that_is_gone_is_not_wanted_any_more(tmp_path: Path) -> None:
    sink: Any = ps.memory()
    run_until_killed(branch(ps.files(tmp_path / "out")), tmp_path)
    run_to_the_end(numbers().to(sink, name="other"), tmp_path)
    assert 0 < len(sink.rows) < TOTAL
