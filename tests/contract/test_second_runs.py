"""A job is run twice into the same place: afresh or resumed, under the same name or another. All rows are there.

Every run goes through what a real start goes through at the checkpoint directory and at the sinks; its processes are
those of the harness.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import penstock as ps
from penstock.connectors.base import Sink, WriterContext
from penstock.control.resume import anchors, outputs
from penstock.errors import CheckpointMismatch, SinkFailed
from penstock.pipeline.explain import explain_plan
from penstock.runtime.attempts import Attempt
from penstock.runtime.checkpoints import new_record
from penstock.runtime.job import plan_of
from penstock.testing.cluster import Cluster
from penstock.types import Schema

FOREVER_US = 1 << 62


def numbers(first: int, count: int, name: str = "numbers") -> ps.Stream:
    return ps.stream(name, ps.records([(first + i, f"k{i % 3}") for i in range(count)], schema="n bigint, k string"))


def run(pipeline: ps.Pipeline, *, name: str = "job", checkpoint: Path | None = None) -> Attempt:
    """Run a job to its end, as `Job` does."""
    durable = {} if checkpoint is None else {"checkpoint": checkpoint}
    plan = plan_of(pipeline, name=name, parallelism=2, epoch="100ms", **durable)
    if checkpoint is None:
        plan = replace(plan, options=replace(plan.options, checkpoint=tempfile.mkdtemp()))
    attempt = Attempt.begin(plan)
    plan, store = attempt.plan, attempt.store
    for sink in plan.sinks.values():
        sink.claim()
    resumption = attempt.restart.resumption() if attempt.restart is not None else None
    disk = {each.name: store.read_snapshot(each) for each in resumption.snapshots} if resumption else {}
    cluster = Cluster(plan, resumption, disk)
    cluster.run_until(FOREVER_US)
    for snapshot, data in cluster.disk.items():
        store.write_snapshot(snapshot, data)
    for each in cluster.commits:
        attempt.commit(
            new_record(
                job=name,
                job_id=plan.job_id,
                attempt=attempt.number,
                epoch=each.epoch,
                generation=each.generation,
                start_us=each.start_us,
                final=each.final,
                anchors=anchors(plan),
                sinks={sink: body.state() for sink, body in plan.sinks.items()},
                snapshots=each.snapshots,
                outputs=outputs(plan),
            )
        )
    for sink in plan.sinks.values():
        sink.release()
    attempt.release()
    return attempt


def sink_in(kind: str, place: Path) -> Sink:
    if kind == "files":
        return ps.files(place / "out", existing="append")
    return ps.sqlite(place / "out.db", kind, key="n")


def rows_in(kind: str, place: Path) -> Counter[int]:
    if kind == "files":
        lines = [line for part in (place / "out").glob("part-*") for line in part.read_text().splitlines()]
        return Counter(json.loads(line)["n"] for line in lines)
    with closing(sqlite3.connect(place / "out.db")) as database:
        return Counter(n for (n,) in database.execute(f"SELECT n FROM {kind}"))


@pytest.mark.parametrize("kind", ["files", "one"])
@pytest.mark.parametrize("second", ["job", "other"])
@pytest.mark.parametrize("durable", [False, True])
def test_every_row_of_two_fresh_runs_is_there(tmp_path: Path, kind: str, second: str, durable: bool) -> None:
    for at, (name, count) in enumerate((("job", 500), (second, 300), (second, 400))):
        checkpoint = tmp_path / f"checkpoint{at}" if durable else None
        run(numbers(1_000 * at, count).to(sink_in(kind, tmp_path), name="out"), name=name, checkpoint=checkpoint)
    expected = [*range(500), *range(1_000, 1_300), *range(2_000, 2_400)]
    assert rows_in(kind, tmp_path) == Counter(expected)


def test_two_tables_of_one_file_each_have_all_rows(tmp_path: Path) -> None:
    for kind, count in (("one", 400), ("two", 300)):
        run(numbers(0, count).to(sink_in(kind, tmp_path), name="out"))
    both = numbers(1_000, 50)
    run(both.to(sink_in("one", tmp_path), name="a") + both.to(sink_in("two", tmp_path), name="b"))
    for kind, count in (("one", 400), ("two", 300)):
        assert rows_in(kind, tmp_path) == Counter([*range(count), *range(1_000, 1_050)])


@pytest.mark.parametrize("kind", ["files", "one"])
def test_a_resumed_run_adds_what_is_new_and_an_older_checkpoint_under_newer_output_is_refused(
    tmp_path: Path, kind: str
) -> None:
    def pipeline(name: str = "out") -> ps.Pipeline:
        source = ps.generator({"n": ps.fields.sequence()}, rate=2_000, total=1_000, format="columns")
        return ps.stream("numbers", source).to(sink_in(kind, tmp_path), name=name)

    checkpoint = tmp_path / "checkpoint"
    first = run(pipeline(), checkpoint=checkpoint)
    older = tmp_path / "older"
    shutil.copytree(checkpoint, older)
    commits = sorted((older / "commits").iterdir())
    for newest in commits[-2:]:  # the last epoch may have no output
        newest.unlink()
    again = run(pipeline(), checkpoint=checkpoint)
    assert again.plan.job_id == first.plan.job_id
    assert rows_in(kind, tmp_path) == Counter(range(1_000))
    with pytest.raises(SinkFailed, match="checkpoint"):
        run(pipeline(), checkpoint=older)
    assert rows_in(kind, tmp_path) == Counter(range(1_000))


@pytest.mark.parametrize("kind", ["files", "one"])
def test_a_sink_under_another_name_in_the_same_place_is_refused(tmp_path: Path, kind: str) -> None:
    run(numbers(0, 10).to(sink_in(kind, tmp_path), name="out"), checkpoint=tmp_path / "checkpoint")
    with pytest.raises(CheckpointMismatch, match=r"'renamed'.*where sink 'out' did.*name='out'"):
        run(numbers(0, 10).to(sink_in(kind, tmp_path), name="renamed"), checkpoint=tmp_path / "checkpoint")


@pytest.mark.parametrize(("before", "after"), [("files", "one"), ("one", "files")])
def test_a_sink_of_another_kind_gets_nothing_of_the_one_before(tmp_path: Path, before: str, after: str) -> None:
    run(numbers(0, 10).to(sink_in(before, tmp_path), name="out"), checkpoint=tmp_path / "checkpoint")
    with pytest.raises(CheckpointMismatch, match=r"'out' was (files|sqlite), now (files|sqlite)"):
        run(numbers(0, 10).to(sink_in(after, tmp_path), name="out"), checkpoint=tmp_path / "checkpoint")


def test_a_source_under_another_name_is_refused(tmp_path: Path) -> None:
    run(numbers(0, 10).to(ps.memory(), name="out"), checkpoint=tmp_path / "checkpoint")
    with pytest.raises(CheckpointMismatch, match=r"source 'numbers' is gone, and 'digits' is new and like it"):
        run(numbers(0, 10, "digits").to(ps.memory(), name="out"), checkpoint=tmp_path / "checkpoint")


def test_state_does_not_go_to_an_operation_that_is_fed_by_something_else(tmp_path: Path) -> None:
    def both(first: str, second: str) -> ps.Pipeline:
        """Names that nobody chose go to operations in their order: count, count-2."""
        one = numbers(0, 10, first).key_by("k").count().to(ps.memory(), name=f"of-{first}")
        return one + numbers(100, 10, second).key_by("k").count().to(ps.memory(), name=f"of-{second}")

    run(both("a", "b"), checkpoint=tmp_path / "checkpoint")
    with pytest.raises(CheckpointMismatch, match=r"'count' was made of 'a', now of 'b'"):
        run(both("b", "a"), checkpoint=tmp_path / "checkpoint")


def test_a_job_leaves_alone_what_another_one_of_its_name_may_still_publish(tmp_path: Path) -> None:
    schema = Schema.parse("n bigint, k string")

    def left(context: WriterContext) -> bytes | None:
        """What a run has prepared and not published when it is killed."""
        writer = ps.files(tmp_path / "out").writer(schema, context)
        writer.write([schema.record_type(-1, "theirs")])
        writer.prepare(1)
        return writer.snapshot(1)

    theirs = WriterContext("job", "out", 0, 1, "0123456789abcdef", is_resumable=True)
    snapshot = left(theirs)
    left(WriterContext("job", "out", 0, 1, "fedcba9876543210"))  # had no checkpoint directory: nobody can go on from it
    run(numbers(0, 10).to(ps.files(tmp_path / "out", existing="append"), name="out"))
    assert rows_in("files", tmp_path) == Counter(range(10))
    assert len([path for path in (tmp_path / "out" / ".pending").iterdir() if path.name != "lock"]) == 1
    successor = ps.files(tmp_path / "out").writer(schema, theirs)
    successor.restore(1, snapshot)
    assert rows_in("files", tmp_path) == Counter([*range(10), -1]), "its job was resumed, and published it"


def test_planning_and_explaining_create_nothing(tmp_path: Path) -> None:
    stream = numbers(0, 10)
    pipeline = stream.to(ps.sqlite(tmp_path / "out.db", "t", key="n")) + stream.to(ps.files(tmp_path / "out"))
    plan = plan_of(pipeline, checkpoint=tmp_path / "checkpoint", parallelism=2)
    assert "sqlite" in explain_plan(plan, 100)
    assert list(tmp_path.iterdir()) == []
