"""The state in a checkpoint, read as rows and as a DataFrame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.connectors import At
from penstock.errors import CheckpointMismatch, InvalidOption

pytestmark = pytest.mark.spark

EVENTS = [(f"k{i % 7}", i * 100_000) for i in range(200)]


class Visits(ps.Process):
    seen = ps.state.value(int, default=0)

    def on_record(self, record: Any, ctx: Any) -> None:
        self.seen += 1


def pipeline(sink: ps.connectors.Sink) -> ps.Pipeline:
    rows = [*EVENTS, At("1h")]  # and then nothing, for longer than the test takes
    events = ps.stream("events", ps.records(rows, schema="k string, at timestamp", partitions=2))
    running = events.key_by("k").count(name="running")
    windows = events.key_by("k").window("5s", on="at").aggregate(n=ps.agg.count(), name="windows")
    visits = events.key_by("k").process(Visits, schema="k string", name="visits")
    return running.to(sink, name="a") + windows.to(ps.memory(), name="b") + visits.to(ps.memory(), name="c")


def test_the_state_of_a_checkpoint_is_read_while_the_job_runs_as_stored_and_as_results(
    tmp_path: Path, queries: Any, eventually: Callable[[Callable[[], object]], None]
) -> None:
    checkpoint = tmp_path / "checkpoint"

    def has_read_all() -> bool:
        try:
            counted = [row["value"][0] for row in ps.read_state(checkpoint, operation="running").rows]
        except (CheckpointMismatch, InvalidOption):  # nothing is committed yet
            return False
        return bool(sum(counted) == len(EVENTS))

    made = pipeline(ps.files(tmp_path / "out"))
    with ps.start(made, parallelism=2, checkpoint=str(checkpoint), name="state", epoch="200ms") as job:
        eventually(has_read_all)
        job.stop()
        job.wait()
    counts = Counter(key for key, _ in EVENTS)
    stored = ps.read_state(checkpoint, operation="running")
    assert {row["key"]: row["value"] for row in stored.rows} == {key: [n] for key, n in counts.items()}
    frame = stored.to_df(queries)
    assert sorted((r.key, r.value) for r in frame.collect()) == sorted((f'"{k}"', f"[{n}]") for k, n in counts.items())
    read = ps.read_state(checkpoint, operation="running", pipeline=pipeline(ps.files(tmp_path / "out")))
    assert {row["k"]: row["count"] for row in read.rows} == counts
    windows = ps.read_state(checkpoint, operation="windows", pipeline=pipeline(ps.files(tmp_path / "out")))
    assert {row["window_start"] for row in windows.rows} == {15_000_000}
    assert {row["k"]: row["n"] for row in windows.rows} == Counter(key for key, at in EVENTS if at >= 15_000_000)
    assert {r.k: r.n for r in windows.to_df(queries).collect()} == {row["k"]: row["n"] for row in windows.rows}
    visits = ps.read_state(checkpoint, operation="visits").rows
    assert {row["key"]: row["value"] for row in visits} == {key: {"seen": n} for key, n in counts.items()}
    with pytest.raises(InvalidOption, match=r"running.*Did you mean 'windows'"):
        ps.read_state(checkpoint, operation="window")
    with pytest.raises(InvalidOption, match="the checkpoint directory of a job"):
        ps.read_state(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointMismatch, match="nothing is committed"):
        ps.read_state(tmp_path / "empty")
