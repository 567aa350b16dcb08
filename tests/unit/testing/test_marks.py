"""Scripts with marks: crashes, restarts, pauses, bursts and changes of form, with the exact output of a calm run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as ps
from penstock.errors import CheckpointMismatch, InvalidOption, TypeMismatch
from penstock.testing import BURST, CRASH, PAUSE, RESTART, SWITCH, At, Burst, Crash, Harness, Pause, Switch

EVENT = "k string, n bigint, at timestamp"
S = 1_000_000


def events() -> ps.Stream:
    return ps.stream("in", ps.records(schema=EVENT))


class Totals(ps.Process):
    """A running total, and the total once more when nothing has come for five seconds of event time."""

    total = ps.state.value(int, default=0)

    def on_record(self, record: Any, ctx: Any) -> Any:
        self.total += record.n
        ctx.set_timer(record.at + 5 * S)
        yield record.k, self.total

    def on_timer(self, at_us: int, ctx: Any) -> Any:
        yield ctx.key, -self.total


async def doubled(record: Any) -> tuple[str, int]:
    await asyncio.sleep(0.005)
    return record.k, 2 * record.n


PIPELINES: dict[str, Callable[[], ps.Stream]] = {
    "window": lambda: events().filter("n >= 0").key_by("k").window("10s", on="at").sum("n"),
    "process": lambda: events().key_by("k").process(Totals, schema="k string, t bigint", time="at", order="time"),
    "map_async": lambda: events().map_async(doubled, schema="k string, m bigint", timeout="1s"),
    "alternatives": lambda: events().alternatives(
        "double",
        times=lambda s: s.select("k", (ps.col("n") * 2).alias("m")),
        plus=lambda s: s.select("k", (ps.col("n") + ps.col("n")).alias("m")),
    ),
}
ROWS = [(f"k{i % 3}", i, S * i) for i in range(24)]
SCRIPTS: dict[str, list[object]] = {
    "crashes": [*ROWS[:5], CRASH, *ROWS[5:9], PAUSE, *ROWS[9:15], CRASH, CRASH, *ROWS[15:], CRASH],
    "one of them": [*ROWS[:12], Pause("3s"), Crash(0), *ROWS[12:]],
    "restarts": [RESTART, *ROWS[:5], RESTART, *ROWS[5:9], PAUSE, RESTART, *ROWS[9:]],
    "forms": [*ROWS[:5], SWITCH, *ROWS[5:9], CRASH, *ROWS[9:15], SWITCH, *ROWS[15:20], Switch("batch"), *ROWS[20:]],
}


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("name", PIPELINES)
def test_the_output_is_that_of_a_calm_run(name: str, script: str) -> None:
    pipeline = PIPELINES[name]().to(ps.memory())
    with Harness(pipeline, inputs={"in": ROWS}) as calm:
        calm.run()
    assert calm.rows()
    with Harness(pipeline, inputs={"in": SCRIPTS[script]}, parallelism=2) as harness:
        harness.run()
        harness.assert_rows(calm.rows())


def test_alternatives_are_exchanged_between_crashes() -> None:
    with Harness(PIPELINES["alternatives"]().to(ps.memory()), inputs={"in": [*ROWS[:9], PAUSE, *ROWS[9:]]}) as harness:
        harness.advance("2s")
        harness.use("double", "plus")
        harness.crash()
        harness.run()
        harness.assert_rows([(k, 2 * n) for k, n, _ in ROWS])


def test_operations_compute_in_the_form_that_a_mark_wants() -> None:
    calls: list[str] = []

    @ps.op(schema="n bigint")
    def same(record: Any) -> int:
        calls.append("record")
        return record.n

    @same.batch
    def _(batch: pa.RecordBatch) -> pa.RecordBatch:
        calls.append("batch")
        return pa.record_batch({"n": pc.add(batch["n"], 0)})

    script = [ROWS[0], SWITCH, ROWS[1], CRASH, ROWS[2], SWITCH, ROWS[3]]
    with Harness(events().map(same).to(ps.memory()), inputs={"in": script}) as harness:
        harness.run()
        harness.assert_rows([0, 1, 2, 3])
    assert calls[0] == calls[-1] == "record"
    assert "batch" in calls


def test_a_burst_repeats_the_row_that_follows() -> None:
    counts = events().key_by("k").window("10s", on="at").count().select("k", "count").to(ps.memory())
    with Harness(counts, inputs={"in": [ROWS[0], BURST, ROWS[1], Burst(20), ROWS[2]]}) as harness:
        harness.run()
        harness.assert_rows([("k0", 1), ("k1", 1_000), ("k2", 20)])


def test_a_crash_before_the_first_commit_begins_anew_and_a_pause_commits() -> None:
    with Harness(events().to(ps.memory()), inputs={"in": [ROWS[0], CRASH, PAUSE, CRASH, ROWS[1]]}) as harness:
        harness.advance("1ms")
        assert harness.committed_epoch == 0
        harness.advance("8s")
        assert harness.committed_epoch > 3
        harness.assert_rows(ROWS[:2], in_order=True)


def test_a_job_that_is_restarted_twice_without_a_commit_in_between_goes_on_from_the_one_before() -> None:
    with Harness(events().to(ps.memory()), inputs={"in": [ROWS[0], PAUSE, ROWS[1]]}) as harness:
        harness.advance("3s")
        committed = harness.committed_epoch
        assert committed > 0
        harness.restart(parallelism=3)
        harness.restart(parallelism=2)
        assert harness.committed_epoch == committed
        harness.run()
        harness.assert_rows(ROWS[:2], in_order=True)


def test_a_changed_pipeline_goes_on_or_is_refused_with_the_difference() -> None:
    def counts(*, keep: int, window: str = "10s") -> ps.Pipeline:
        kept = events().filter(ps.col("n") >= keep)
        return kept.key_by("k").window(window, on="at").count().select("k", "count").to(ps.memory())

    script = [("a", 1, 0), ("a", 2, 1), PAUSE, ("a", 3, 2), ("a", 9, 3)]
    with Harness(counts(keep=0), inputs={"in": script}) as harness:
        harness.advance("3s")
        harness.restart(counts(keep=9), parallelism=3)
        harness.run()
        harness.assert_rows([("a", 3)])
    with Harness(counts(keep=0), inputs={"in": script}) as harness:
        harness.advance("3s")
        with pytest.raises(CheckpointMismatch, match="'count' was"):
            harness.restart(counts(keep=0, window="20s"))
        harness.run()
        harness.assert_rows([("a", 4)])


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ([BURST], "a row behind it"),
        ([BURST, CRASH], "a row behind it"),
        ([Burst(0), ROWS[0]], "BURST"),
        ([Switch("bath")], "batch, record"),
        ([At("1s"), PAUSE, At("2s")], "do not go back"),
        ([Pause("soon")], "PAUSE"),
    ],
)
def test_marks_that_make_no_sense_are_refused(script: list[object], what: str) -> None:
    with pytest.raises(InvalidOption, match=what):
        Harness(events().to(ps.memory()), inputs={"in": script})


def test_a_worker_that_is_not_there_and_a_stream_without_a_sink_are_refused() -> None:
    with Harness(events().to(ps.memory()), inputs={"in": []}) as harness, pytest.raises(InvalidOption, match="0 to 0"):
        harness.crash(1)
    with pytest.raises(TypeMismatch, match=r"\.to\("):
        Harness(events())  # type: ignore[arg-type]
    with pytest.raises(TypeMismatch, match="Name the source"):
        Harness(events().to(ps.memory()), inputs=[("a", 1, 2)])  # type: ignore[arg-type]
