"""Alternatives are exchanged at a place in the line: nothing is lost, doubled or reordered, whatever happens there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import penstock as ps
from penstock.connectors.memory import Memory
from penstock.control.scheduler import Resumption
from penstock.errors import OperationFailed
from penstock.pipeline.graph import Graph
from penstock.pipeline.options import Options
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.plan import Plan
from penstock.pipeline.streams.stream import Stream
from penstock.testing.cluster import Cluster

MS = 1_000
SCHEMA = "id bigint, k bigint, at timestamp"
FOREVER_US = 1 << 62


def events(count: int = 60, every_ms: int = 10) -> Stream:
    script: list[object] = []
    for number in range(count):
        script += [ps.testing.At(number * every_ms / 1000), (number, number % 3, number * every_ms * MS)]
    return ps.stream("in", ps.records(script, schema=SCHEMA))


def tagged(word: str) -> Callable[[Stream], Stream]:
    return lambda s: s.map(lambda r: (r.id, r.k, word), schema="id bigint, k bigint, by string")


def scored(stream: Stream, **options: object) -> Stream:
    return stream.alternatives("score", exact=tagged("exact"), fast=tagged("fast"), **options)  # type: ignore[arg-type]


class Run:
    """A cluster over one pipeline, and what its sink got."""

    def __init__(self, stream: Stream, parallelism: int = 1, resumed: Run | None = None) -> None:
        self.sink: Memory = ps.memory()
        options = Options.of(name="test", parallelism=parallelism, epoch="50ms", checkpoint="/nowhere")
        plan = Plan.of(Graph.check(Pipeline((*stream.to(self.sink)._sinks,)).nodes()), options)
        self.cluster: Cluster
        if resumed is None:
            self.cluster = Cluster(plan)
        else:
            last = resumed.cluster.commits[-1]
            resumption = Resumption(last.epoch, last.start_us, last.generation, last.snapshots, last.alternatives)
            self.cluster = Cluster(plan, resumption, resumed.cluster.disk)

    def after(self, ms: int) -> Run:
        self.cluster.run_until(self.cluster.start_us + ms * MS)
        return self

    def end(self) -> list[dict[str, object]]:
        self.cluster.run_until(FOREVER_US)
        return self.rows

    @property
    def rows(self) -> list[dict[str, object]]:
        return [{name: getattr(row, name) for name in row.__struct_fields__} for row in self.sink.rows]


def is_one_exchange(rows: list[dict[str, object]], count: int = 60) -> bool:
    """Whether all records are there once, in order, and those of the second alternative behind those of the first."""
    by = [str(row["by"]) for row in rows]
    return [row["id"] for row in rows] == list(range(count)) and by == sorted(by) and len(set(by)) == 2


def test_what_comes_after_an_exchange_is_computed_by_the_other_alternative() -> None:
    run = Run(scored(events())).after(300)
    run.cluster.use("score", "fast")
    rows = run.end()
    assert is_one_exchange(rows)
    assert [row["by"] for row in rows].index("fast") == pytest.approx(31, abs=2)
    (report,) = run.cluster.adaptation.switches
    assert (report.operations, report.to, report.case, report.moved_records) == (["score"], "fast", "equal", 0)
    assert report.pause_ms <= 10


def test_micro_batches_under_way_stay_with_their_alternative_and_keep_their_order() -> None:
    run = Run(scored(events()))
    run.cluster.add_slot(0)
    run.after(100)
    run.cluster.switch(0, -1, 0)
    run.after(300)
    run.cluster.use("score", "fast")
    assert is_one_exchange(run.end())


def test_a_micro_batch_whose_slot_is_lost_after_the_exchange_is_computed_as_it_was_to_be() -> None:
    run = Run(scored(events()))
    name = run.cluster.add_slot(0)
    run.after(100)
    run.cluster.switch(0, 0, 0)
    run.after(290)
    run.cluster.use("score", "fast")
    run.cluster.lose_slot(name)
    assert is_one_exchange(run.end())


def test_a_worker_that_is_lost_goes_on_with_what_was_wanted() -> None:
    run = Run(scored(events()), parallelism=2).after(300)
    run.cluster.use("score", "fast")
    run.cluster.crash(0)
    rows = run.end()
    assert sorted(row["id"] for row in rows) == list(range(60))  # type: ignore[type-var]
    assert rows[-1]["by"] == "fast"


def test_a_job_that_is_resumed_goes_on_with_the_alternative_of_its_commit() -> None:
    first = Run(scored(events()), parallelism=1).after(200)
    first.cluster.use("score", "fast")
    first.after(400)
    assert first.cluster.commits[-1].alternatives["score"].alternative == "fast"
    second = Run(scored(events()), resumed=first)
    rows = second.end()
    assert [row["id"] for row in rows] == list(range(60 - len(rows), 60))
    assert len(rows) >= 20
    assert {row["by"] for row in rows} == {"fast"}
    assert second.cluster.adaptation.alternatives["score"].pinned


def test_a_checkpoint_without_the_alternative_begins_with_the_pipelines_own() -> None:
    first = Run(scored(events())).after(200)
    first.cluster.use("score", "fast")
    first.after(400)
    changed = events().alternatives("score", exact=tagged("exact"), third=tagged("fast"))
    assert Run(changed, resumed=first).end()[-1]["by"] == "exact"


def sums(stream: Stream, **options: object) -> Stream:
    """The same state in both, and results that tell them apart."""

    def built(word: str) -> Callable[[Stream], Stream]:
        return lambda s: s.key_by("k").aggregate(n=ps.agg.count(), emit="every").select("k", "n", by=ps.lit(word))

    return stream.alternatives("sum", one=built("one"), two=built("two"), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("crash", [False, True])
def test_state_of_the_same_type_is_handed_over_as_it_is(crash: bool) -> None:
    run = Run(sums(events()), parallelism=2).after(200)
    run.cluster.use("sum", "two")
    run.after(320)
    if crash:
        run.cluster.crash(1)
    run.after(400)
    run.cluster.use("sum", "one")
    rows = run.end()
    for key in range(3):
        assert [row["n"] for row in rows if row["k"] == key] == list(range(1, 21))
    assert {row["by"] for row in rows} == {"one", "two"}
    assert [each.warm_ms for each in run.cluster.adaptation.switches] == [0.0, 0.0]


def test_state_of_another_type_is_converted_key_by_key() -> None:
    stream = (
        events()
        .key_by("k")
        .alternatives(
            "agg",
            counts=lambda s: s.aggregate(n=ps.agg.count(), emit="every"),
            lasts=lambda s: s.aggregate(n=ps.agg.max("id"), emit="every"),
            convert={("counts", "lasts"): lambda key, state: [1000 + key], ("lasts", "counts"): lambda key, state: [0]},
        )
    )
    run = Run(stream).after(300)
    run.cluster.use("agg", "lasts")
    rows = [row for row in run.end() if row["k"] == 1]
    assert [row["n"] for row in rows] == [*range(1, 11), *[1001] * 10]


def windows(stream: Stream, at: str = "at", **options: object) -> Stream:
    return stream.with_watermark(at, "20ms").alternatives(
        "agg",
        counts=lambda s: s.key_by("k").window("90ms", on=at).aggregate(n=ps.agg.count(), total=ps.agg.sum("id")),
        others=lambda s: (
            s.key_by("k")
            .window("90ms", on=at)
            .aggregate(lo=ps.agg.min("id"), n=ps.agg.count(), total=ps.agg.sum("id"))
            .select("k", "window_start", "window_end", "n", "total")
        ),
        **options,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("crash_ms", [None, 330, 400, 450])
def test_windows_are_warmed_up_until_those_that_were_open_have_closed(crash_ms: int | None) -> None:
    """Both compute the same results: every window is there once, and complete, whoever sent it."""
    expected = sorted(map(str, Run(windows(events())).end()))
    run = Run(windows(events()), parallelism=2).after(300)
    run.cluster.use("agg", "others")
    if crash_ms is not None:
        run.after(crash_ms)
        run.cluster.crash(1)
    found = sorted(map(str, run.end()))
    assert found == expected
    (report,) = run.cluster.adaptation.switches
    assert report.to == "others"
    assert report.warm_ms >= 90 or crash_ms is not None


def test_windows_by_a_time_of_any_name_are_warmed_up() -> None:
    def made() -> Stream:
        return windows(events().rename(at="the time"), "the time")

    expected = sorted(map(str, Run(made()).end()))
    run = Run(made()).after(300)
    run.cluster.use("agg", "others")
    assert sorted(map(str, run.end())) == expected
    (report,) = run.cluster.adaptation.switches
    assert report.to == "others"


def test_an_order_that_is_taken_back_leaves_everything_as_it_was() -> None:
    expected = sorted(map(str, Run(windows(events())).end()))
    run = Run(windows(events())).after(300)
    run.cluster.use("agg", "others")
    run.after(340)
    run.cluster.use("agg", "counts")
    assert sorted(map(str, run.end())) == expected
    assert run.cluster.adaptation.alternatives["agg"].active == "counts"


def test_an_order_that_comes_with_the_end_is_answered() -> None:
    run = Run(windows(events())).after(590)
    run.cluster.use("agg", "others")
    run.end()
    assert run.cluster.adaptation.alternatives["agg"].wanted == "others"


def test_bad_records_inside_an_alternative_are_dead_letters_with_their_place() -> None:
    def fails(r: object) -> object:
        if r.id == 7:  # type: ignore[attr-defined]
            raise ValueError("seven")
        return r.id, r.k, "x"  # type: ignore[attr-defined]

    stream = events(10).alternatives(
        "score",
        exact=lambda s: s.filter(ps.col("id") > 2).map(
            fails, schema="id bigint, k bigint, by string", name="deep", on_error="dead_letter"
        ),
        fast=tagged("fast"),
    )
    harness = ps.testing.Harness(stream.to(ps.memory()))
    harness.run()
    assert [row["id"] for row in harness.rows()] == [3, 4, 5, 6, 8, 9]
    (letter,) = harness.dead_letters()
    assert (letter["operation"], letter["offset"]) == ("score.exact.deep", 7)


def test_a_function_that_raises_fails_the_job_and_is_named() -> None:
    stream = events(5).alternatives(
        "score", exact=lambda s: s.map(lambda r: 1 / 0, schema="x double"), fast=lambda s: s.select(x=ps.lit(1.0))
    )
    with pytest.raises(OperationFailed, match=r"score\.exact\.map.*ZeroDivisionError"):
        ps.testing.collect(stream)


class Service:
    """A service that is away for a while, and counts its calls."""

    def __init__(self, path: Path) -> None:
        self._down = path

    def __call__(self, r: object) -> object:
        if self._down.exists():
            raise ConnectionError("refused")
        return r.id, r.k, "remote"  # type: ignore[attr-defined]


def test_a_block_that_the_active_one_fails_on_goes_to_the_next_best(tmp_path: Path) -> None:
    down = tmp_path / "down"
    stream = events().alternatives(
        "score",
        remote=lambda s: s.map(Service(down), schema="id bigint, k bigint, by string"),
        local=tagged("local"),
        prefer=["remote", "local"],
    )
    run = Run(stream).after(200)
    down.touch()
    run.after(400)
    down.unlink()
    rows = run.end()
    assert [row["id"] for row in rows] == list(range(60))
    assert {row["by"] for row in rows[22:38]} == {"local"}
    assert rows[10]["by"] == "remote"


def test_an_error_of_a_record_is_no_failure_of_the_alternative() -> None:
    stream = events(5).alternatives(
        "score",
        exact=lambda s: s.map(lambda r: 1 / 0, schema="x double"),
        fast=lambda s: s.select(x=ps.lit(1.0)),
        prefer=["exact", "fast"],
    )
    with pytest.raises(OperationFailed, match="ZeroDivisionError"):
        ps.testing.collect(stream)


def test_users_test_an_exchange_with_the_harness() -> None:
    harness = ps.testing.Harness(scored(events()).to(ps.memory()))
    harness.advance("200ms")
    harness.use("score", "fast")
    harness.run()
    assert is_one_exchange(harness.rows())
