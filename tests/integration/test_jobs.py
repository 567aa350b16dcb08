"""Jobs on real Spark with several workers: exact results, back-pressure, every way to end, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

import penstock as ps
from penstock.errors import CheckpointNotShared, OperationFailed, SinkFailed
from penstock.runtime.scratch import ScratchServer
from penstock_bench.workloads import WORKLOADS, replay

pytestmark = pytest.mark.spark


def rows_of(directory: Path) -> list[dict]:
    return [json.loads(line) for path in sorted(directory.glob("part-*")) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("name", ["yahoo", "wordcount", "grep", "scoring"])
def test_workloads_are_exact_on_several_workers(tmp_path: Path, name: str, parallelism: int) -> None:
    workload = WORKLOADS[name]
    total = 20_000
    pipeline = workload.pipeline(20_000, ps.files(tmp_path / "out"), total=total)
    report = ps.run(pipeline, parallelism=parallelism, name=f"exact-{name}")
    source = workload.source(20_000, total=total)
    exact = workload.expected(replay(source, report.start_us))
    assert workload.compare(exact, rows_of(tmp_path / "out"), parallelism).exact
    assert report.events_in == total
    assert (report.lost, report.duplicated, report.reordered, report.late) == (0, 0, 0, 0)
    assert report.epochs >= 1
    assert len(report.workers) == parallelism


def test_order_of_each_key_is_kept_through_a_shuffle() -> None:
    sink = ps.memory()
    rows = [{"key": f"k{i % 17}", "n": i} for i in range(5_000)]
    source = ps.records(rows, schema="key string, n bigint", partitions=1)
    ps.run(ps.stream("numbers", source).key_by("key").filter(ps.col("n") >= 0).to(sink), parallelism=3, name="order")
    assert Counter((r.key, r.n) for r in sink.rows) == Counter((r["key"], r["n"]) for r in rows)
    for key in {r["key"] for r in rows}:
        assert [r.n for r in sink.rows if r.key == key] == [r["n"] for r in rows if r["key"] == key]


class Gate:
    """A function that waits for a file to appear: a consumer that is stuck for as long as the test wants."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open = False

    def __call__(self, record: object) -> tuple[int]:
        from threading import Event

        while not self._open:
            self._open = self._path.exists()
            if not self._open:
                Event().wait(0.01)
        return (record.n,)


class Seen:
    """Notes on disk how many records have come: a process that is stuck can tell nobody else."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, record: object) -> tuple[int]:
        with (self._directory / f"seen-{os.getpid()}").open("ab") as file:
            file.write(b".")
        return (record.n,)


def test_a_starved_consumer_stops_the_source_and_loses_nothing(tmp_path: Path, eventually) -> None:
    gate, total, queue = tmp_path / "open", 40_000, 500
    sink = ps.memory()
    source = ps.generator({"n": ps.fields.sequence()}, rate=None, total=total, format="columns", partitions=2)
    seen = ps.stream("numbers", source).map(Seen(tmp_path), schema="n bigint")
    pipeline = seen.key_by("n").map(Gate(gate), schema="n bigint").to(sink)
    with ps.start(pipeline, parallelism=2, queue_records=queue, name="starved") as job:
        reads: list[int] = []

        def stalled() -> bool:
            read = sum(each.stat().st_size for each in tmp_path.glob("seen-*"))
            reads.append(read)
            return read > 0 and len(reads) > 100 and len(set(reads[-100:])) == 1

        eventually(stalled)
        # 2 producers x 2 consumers: each log holds its bound and one block; a channel's window is half a bound more.
        assert reads[-1] < total / 2
        gate.touch()
        report = job.wait()
    assert report.events_in == total
    assert sorted(r.n for r in sink.rows) == list(range(total))
    assert (report.lost, report.duplicated, report.reordered) == (0, 0, 0)


def test_drain_commits_everything_that_was_read(tmp_path: Path, eventually) -> None:
    source = ps.generator({"n": ps.fields.sequence()}, rate=5_000, format="columns")
    pipeline = ps.stream("numbers", source).to(ps.files(tmp_path / "out"))
    with ps.start(pipeline, parallelism=2, name="drained") as job:
        eventually(lambda: any(op.records_in > 1_000 for op in job.status().operations))
        job.drain()
        report = job.wait()
    numbers = sorted(row["n"] for row in rows_of(tmp_path / "out"))
    assert len(numbers) == report.events_in == report.results_out
    assert len(set(numbers)) == len(numbers)
    assert not list((tmp_path / "out" / ".pending").glob("*.jsonl"))


def test_stop_ends_at_once_and_shows_nothing_uncommitted(tmp_path: Path, eventually) -> None:
    source = ps.generator({"n": ps.fields.sequence()}, rate=20_000, format="columns")
    kept = ps.stream("numbers", source).key_by("n").filter(ps.col("n") >= 0)
    with ps.start(kept.to(ps.files(tmp_path / "out")), parallelism=2, epoch="1h", name="stopped") as job:
        eventually(lambda: any(op.records_in > 10_000 for op in job.status().operations))
        job.stop()
        report = job.wait()
    assert rows_of(tmp_path / "out") == []
    # What was under way is neither lost nor doubled: nobody was to finish it.
    assert (report.lost, report.duplicated) == (0, 0)


def test_a_raising_function_fails_the_job_with_the_users_traceback() -> None:
    def explode(record: object) -> tuple[int]:
        return (1 // (record.n - 7),)

    source = ps.records([(i,) for i in range(100)], schema="n bigint")
    with pytest.raises(OperationFailed) as raised:
        ps.run(
            ps.stream("numbers", source).map(explode, schema="n bigint", name="divide").to(ps.memory()), name="fails"
        )
    assert raised.value.operation == "divide"
    text = str(raised.value)
    assert "ZeroDivisionError" in text
    assert "in explode" in text
    assert """{"n":7} (source 'numbers', partition 0, offset 7).""" in text
    assert "on_error" in text


def test_dead_letters_are_kept_and_counted(tmp_path: Path) -> None:
    good = [b'{"n": %d}' % i for i in range(50)]
    source = ps.records([(v,) for v in [*good, b"{broken", b'{"n": "x"}']], schema="value binary", partitions=2)
    sink = ps.memory()
    pipeline = ps.stream("lines", source).parse_json("n int", on_error="dead_letter").to(sink)
    report = ps.run(pipeline, dead_letters=ps.files(tmp_path / "dead"), parallelism=2, name="dead")
    dead = rows_of(tmp_path / "dead")
    assert sorted(r.n for r in sink.rows) == list(range(50))
    assert report.dead_letters == 2
    assert report.events_in == report.results_out + report.dead_letters
    assert {row["operation"] for row in dead} == {"parse_json"}
    found = [(json.loads(row["record"])["value"], row["source"], row["partition"], row["offset"]) for row in dead]
    assert sorted(found) == sorted([("{broken", "lines", 0, 25), ('{"n": "x"}', "lines", 1, 25)])


def test_a_failing_sink_is_named() -> None:
    def refuse(record: object) -> None:
        raise OSError("the store is down")

    source = ps.records([(1,)], schema="n bigint")
    with pytest.raises(SinkFailed, match="the store is down") as raised:
        ps.run(ps.stream("numbers", source).to(ps.foreach(refuse), name="store"), name="bad-sink")
    assert raised.value.operation == "store"


def test_a_killed_worker_is_replaced_and_nothing_is_lost(eventually) -> None:
    sink = ps.memory()
    source = ps.generator({"n": ps.fields.sequence()}, rate=4_000, format="columns", partitions=2)
    with ps.start(ps.stream("numbers", source).to(sink), parallelism=2, name="killed") as job:
        eventually(lambda: len(job.status().workers) == 2 and job.status().epoch > 0)
        killed = job.status().workers[0].pid
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: job.status().committed_us > job.status().resumed_us > 0)
        job.drain()
        report = job.wait()
    read = [offset * 2 + part for part, count in enumerate(report.offsets["numbers"]) for offset in range(count)]
    assert sorted(row.n for row in sink.rows) == sorted(read)
    assert (report.events_in, report.lost, report.duplicated, report.reordered) == (len(read), 0, 0, 0)
    eventually(lambda: not psutil.pid_exists(killed) or psutil.Process(killed).status() == psutil.STATUS_ZOMBIE)


def test_workers_that_do_not_see_the_drivers_directory_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("penstock.runtime.job.leave_sign", lambda checkpoint: "/nowhere/sign-0")
    numbers = ps.stream("numbers", ps.records([(1,), (2,)], schema="n bigint"))
    with pytest.raises(CheckpointNotShared, match=r"'/nowhere'.* a URL"):
        ps.run(numbers.to(ps.memory()), parallelism=2, name="unshared", checkpoint=tmp_path / "checkpoint")


def test_without_a_shared_disk_the_driver_keeps_the_state(monkeypatch: pytest.MonkeyPatch, eventually: Any) -> None:
    monkeypatch.setattr("penstock.runtime.job.leave_sign", lambda checkpoint: "/nowhere/sign-0")
    monkeypatch.setattr("penstock.runtime.job.shares_nothing", lambda options, master: True)
    answered, answer = Counter(), ScratchServer._answer

    def counted(server: ScratchServer, request: Any) -> Any:
        answered[request[0]] += 1
        return answer(server, request)

    monkeypatch.setattr(ScratchServer, "_answer", counted)
    sink = ps.memory()
    source = ps.generator({"k": ps.fields.integers(0, 9)}, rate=2_000, format="columns", partitions=2)
    counts = ps.stream("keys", source).key_by("k").count().to(sink)
    with ps.start(counts, parallelism=2, name="unshared", epoch="200ms") as job:
        eventually(lambda: job.status().epoch >= 2 and len(job.status().workers) == 2)
        lost = job.status().workers[1].pid
        os.kill(lost, signal.SIGKILL)
        eventually(lambda: job.status().recoveries == 1 and job.status().committed_us > job.status().resumed_us > 0)
        job.drain()
        report = job.wait()
    assert report is not None
    assert (report.recoveries, report.lost, report.duplicated) == (1, 0, 0)
    newest: dict[int, int] = {}
    for row in sink.rows:
        newest[row.k] = row.count
    assert sum(newest.values()) == report.events_in
    assert answered[b"put"] > 4
    assert answered[b"get"] >= 1


def test_two_jobs_share_one_spark() -> None:
    sinks = [ps.memory(), ps.memory()]
    jobs = [
        ps.start(ps.stream("n", ps.records([(i,)], schema="n bigint")).to(sink), parallelism=1, name=f"shared-{i}")
        for i, sink in enumerate(sinks)
    ]
    for job in jobs:
        job.wait()
    assert [sink.rows[0].n for sink in sinks] == [0, 1]


def kill_on_777(record: object) -> tuple[int]:
    if record.n == 777:
        os.kill(os.getpid(), signal.SIGKILL)
    return (record.n,)


def test_a_record_that_kills_its_process_is_quarantined() -> None:
    sink, dead = ps.memory(), ps.memory()
    source = ps.generator({"n": ps.fields.sequence()}, rate=4_000, total=4_000, format="columns", partitions=2)
    pipeline = (
        ps.stream("numbers", source).map(kill_on_777, schema="n bigint", name="deadly", on_error="dead_letter").to(sink)
    )
    report = ps.run(pipeline, dead_letters=dead, parallelism=2, name="poison")
    assert sorted(row.n for row in sink.rows) == [n for n in range(4_000) if n != 777]
    assert [(row.operation, row.record) for row in dead.rows] == [("deadly", '{"n":777}')]
    assert dead.rows[0].error == "[POISON_RECORD] the process was lost with the record 2 times"
    assert (dead.rows[0].source, dead.rows[0].partition, dead.rows[0].offset) == ("numbers", 1, 388)
    assert (report.events_in, report.results_out, report.dead_letters) == (4_000, 3_999, 1)
    assert (report.lost, report.duplicated, report.reordered) == (0, 0, 0)


def test_a_drained_job_goes_on_where_it_was(tmp_path: Path, eventually) -> None:
    total = 20_000
    fields = {"k": ps.fields.integers(0, 9), "t": ps.fields.event_time()}
    source = ps.generator(fields, rate=5_000, total=total, format="columns", partitions=2)

    def pipeline() -> ps.Pipeline:
        windows = ps.stream("events", source).key_by("k").window(ps.tumbling("1s", on="t", lateness="1s"))
        return windows.count().to(ps.files(tmp_path / "out"))

    with ps.start(pipeline(), checkpoint=tmp_path / "checkpoint", parallelism=2, name="resumed") as job:
        eventually(lambda: any(op.records_in > 4_000 for op in job.status().operations))
        job.drain()
        first = job.wait()
    assert first.events_in < total
    report = ps.run(pipeline(), checkpoint=tmp_path / "checkpoint", parallelism=2, name="resumed")
    assert report.total is not None
    assert (first.events_in + report.events_in, report.total.events_in) == (total, total)
    assert first.seconds + report.seconds < report.total.seconds
    got = Counter()
    rows = rows_of(tmp_path / "out")
    for row in rows:
        got[row["k"], row["window_start"]] += row["count"]
    assert len(rows) == len(got)
    assert sum(got.values()) + first.late + report.late == total
