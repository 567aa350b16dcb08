"""Workers die at random steps: the output equals that of an undisturbed run, and so do the counters."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

import penstock as ps
from penstock.connectors.memory import At, Memory
from penstock.control.recovery import downstream, hosted
from penstock.control.scheduler import Resumption
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing.cluster import Cluster

S = 1_000_000
CRASHES_MAX = 8
KEYS = [f"k{i}" for i in range(13)]


@dataclass
class Case:
    """A pipeline with the memory sinks it ends in, and what must be in them."""

    pipeline: ps.Pipeline
    sinks: dict[str, Memory]
    check: Callable[[Case, list[Any], Cluster], None]
    source: Any = None
    dead: Memory = field(default_factory=ps.memory)


def bag(rows: Any) -> Counter[Any]:
    return Counter(tuple(row) if isinstance(row, (tuple, list)) else _plain(row) for row in rows)


def _plain(row: Any) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in row.__struct_fields__)


def events(total: int, partitions: int) -> Any:
    """Events with random keys and numbers, at a rate that makes them last for some epochs."""
    columns = {"k": ps.fields.choice(KEYS), "n": ps.fields.integers(0, 99), "t": ps.fields.event_time()}
    return ps.generator(columns, rate=2000, total=total, format="columns", partitions=partitions)


def crash_at_random(cluster: Cluster, random: Random, workers: int, crashes_max: int = CRASHES_MAX) -> int:
    """Run a job to its end; every now and then lose one of its workers, at times several at once."""
    crashes = 0
    while not cluster.ended:
        for _ in range(random.choice([1, 5, 40, 150])):
            if cluster.ended:
                break
            step(cluster)
        while not cluster.ended and crashes < crashes_max and random.random() < 0.5:
            cluster.crash(random.randrange(workers))
            crashes += 1
    assert cluster.error is None
    return crashes


def step(cluster: Cluster) -> None:
    """Do what can be done at this moment, or let time pass until there is something to do."""
    if not cluster._step():
        cluster.now_us = max(cluster.now_us, cluster._wake_us())
        cluster._driver.tick(cluster.now_us)


def figure(cluster: Cluster, operation: str, name: str) -> int:
    return sum(getattr(f, name) for w in cluster.workers for f in w.figures() if f.operation == operation)


def sound(cluster: Cluster) -> None:
    """No block was taken out of order, and every edge delivered what was written to it."""
    edges: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for worker in cluster.workers:
        for each in worker.edge_figures():
            sums = edges[each.edge]
            sums[0] += each.records_written
            sums[1] += each.records_read
            sums[2] += each.blocks_disordered
    for written, read, disordered in edges.values():
        assert written == read
        assert disordered == 0


# --- pipelines --------------------------------------------------------------------------------------------------------


def windowed(total: int, partitions: int) -> Case:
    source, sink = events(total, partitions), ps.memory()
    stream = ps.stream("in", source).filter(ps.col("k") != "k3").key_by("k")
    stream = stream.window(ps.tumbling("500ms", on="t", lateness="500ms")).aggregate(
        c=ps.agg.count(), s=ps.agg.sum("n"), m=ps.agg.max("n")
    )

    def check(case: Case, rows: list[Any], cluster: Cluster) -> None:
        groups: dict[Any, list[int]] = defaultdict(list)
        for row in rows:
            if row.k != "k3":
                groups[row.k, row.t - row.t % (S // 2)].append(row.n)
        expected = [(k, w, w + S // 2, len(ns), sum(ns), max(ns)) for (k, w), ns in groups.items()]
        assert bag(sink.rows) == bag(expected)
        assert figure(cluster, "aggregate", "late") == 0
        assert figure(cluster, "filter", "records_in") == total

    return Case(stream.to(sink), {"out": sink}, check, source)


def overlapping(total: int, partitions: int) -> Case:
    source, sink = events(total, partitions), ps.memory()
    stream = ps.stream("in", source).key_by("k").window("500ms", on="t", slide="200ms", lateness="500ms")

    def check(case: Case, rows: list[Any], cluster: Cluster) -> None:
        groups: dict[Any, list[int]] = defaultdict(list)
        slide = S // 5
        for row in rows:
            for start in range(row.t - row.t % slide - 2 * slide, row.t + 1, slide):
                if start + S // 2 > row.t:
                    groups[row.k, start].append(row.n)
        expected = [(k, w, w + S // 2, len(ns), sum(ns), max(ns)) for (k, w), ns in groups.items()]
        assert sum(len(ns) for ns in groups.values()) > 2 * total
        assert bag(sink.rows) == bag(expected)
        assert figure(cluster, "aggregate", "late") == 0

    counted = stream.aggregate(c=ps.agg.count(), s=ps.agg.sum("n"), m=ps.agg.max("n"))
    return Case(counted.to(sink), {"out": sink}, check, source)


def joined(total: int, partitions: int, how: str = "inner") -> Case:
    left, right, sink = events(total, partitions), seen(total // 2), ps.memory()
    pairs = ps.stream("in", left).join(
        ps.stream("seen", right), on="k", within="30ms", left_time="t", right_time="u", lateness="500ms", how=how
    )

    def check(case: Case, rows: list[Any], cluster: Cluster) -> None:
        by_key = defaultdict(list)
        for other in right.records(0, total // 2, cluster.start_us):
            by_key[other.k].append(other)
        expected: list[Any] = []
        alone = 0
        for row in rows:
            near = [(other.m, other.u) for other in by_key[row.k] if abs(row.t - other.u) <= 30_000]
            alone += not near
            expected += [(row.k, row.n, row.t, *other) for other in near or ([(None, None)] if how == "left" else [])]
        assert 0 < alone < total
        assert len(expected) > total
        assert bag(sink.rows) == bag(expected)
        assert figure(cluster, "join", "late") == 0
        assert figure(cluster, "seen", "records_in") == total // 2

    return Case(pairs.to(sink), {"out": sink}, check, left)


def joined_outer(total: int, partitions: int) -> Case:
    return joined(total, partitions, "left")


def seen(total: int) -> Any:
    """The other side of a join: half as many, keys that not all others have, and one partition."""
    columns = {"k": ps.fields.choice(KEYS[3:]), "m": ps.fields.integers(0, 9), "u": ps.fields.event_time()}
    return ps.generator(columns, rate=1000, total=total, format="columns", partitions=1, seed=1)


def running(total: int, partitions: int) -> Case:
    source, sink = events(total, partitions), ps.memory()
    stream = ps.stream("in", source).key_by("k").aggregate(c=ps.agg.count(), s=ps.agg.sum("n"))

    def check(case: Case, rows: list[Any], cluster: Cluster) -> None:
        counts, sums = Counter(row.k for row in rows), Counter[str]()
        for row in rows:
            sums[row.k] += row.n
        shown: dict[str, list[int]] = defaultdict(list)
        last = {}
        for row in sink.rows:
            shown[row.k].append(row.c)
            last[row.k] = (row.c, row.s)
        assert last == {k: (counts[k], sums[k]) for k in counts}
        for values in shown.values():
            assert all(a < b for a, b in pairwise(values)), "per key, updates are in order, once"

    return Case(stream.to(sink), {"out": sink}, check, source)


def stateless(total: int, partitions: int) -> Case:
    source, sink = events(total, partitions), ps.memory()
    stream = ps.stream("in", source).filter(ps.col("n") >= 50).select(k=ps.col("k"), m=ps.col("n") * 2, t=ps.col("t"))

    def check(case: Case, rows: list[Any], cluster: Cluster) -> None:
        kept = [(row.k, row.n * 2, row.t) for row in rows if row.n >= 50]
        assert bag(sink.rows) == bag(kept)
        assert figure(cluster, "filter", "records_out") == len(kept)
        if partitions == 1:
            assert [_plain(row) for row in sink.rows] == kept, "in order"

    return Case(stream.to(sink), {"out": sink}, check, source)


def split_and_merge(total: int, partitions: int) -> Case:
    source, sink = events(total, partitions), ps.memory()
    parts = ps.stream("in", source).split(low=ps.col("n") < 30, high=ps.col("n") >= 60)
    low = parts["low"].select(k=ps.col("k"), n=ps.col("n"), t=ps.col("t"))
    high = parts["high"].select(k=ps.col("k"), n=-ps.col("n"), t=ps.col("t"))
    merged = low.merge(high).key_by("k").window(ps.tumbling("500ms", on="t", lateness="1s"))

    def check(case: Case, rows: list[Any], cluster: Cluster) -> None:
        groups: Counter[Any] = Counter()
        sums: Counter[Any] = Counter()
        for row in rows:
            if row.n < 30 or row.n >= 60:
                key = row.k, row.t - row.t % (S // 2)
                groups[key] += 1
                sums[key] += row.n if row.n < 30 else -row.n
        assert bag(sink.rows) == bag([(k, w, w + S // 2, c, sums[k, w]) for (k, w), c in groups.items()])

    return Case(merged.aggregate(c=ps.agg.count(), s=ps.agg.sum("n")).to(sink), {"out": sink}, check, source)


def fan_out(total: int, partitions: int) -> Case:
    source, everything, counts = events(total, partitions), ps.memory(), ps.memory()
    stream = ps.stream("in", source)
    counted = stream.key_by("k").window(ps.tumbling("500ms", on="t", lateness="500ms")).count()

    def check(case: Case, rows: list[Any], cluster: Cluster) -> None:
        assert bag(everything.rows) == bag(map(_plain, rows))
        groups = Counter((row.k, row.t - row.t % (S // 2)) for row in rows)
        assert bag(counts.rows) == bag([(k, w, w + S // 2, c) for (k, w), c in groups.items()])

    pipeline = stream.to(everything, name="everything") + counted.to(counts, name="counts")
    return Case(pipeline, {"everything": everything, "counts": counts}, check, source)


def _refuse_some(record: Any) -> int:
    if record.n % 7 == 0:
        raise ValueError(f"seven divides {record.n}")
    return int(record.n) * 3


def dead_letters(total: int, partitions: int) -> Case:
    source, sink = events(total, partitions), ps.memory()
    stream = ps.stream("in", source).map(
        lambda r: {"k": r.k, "n": _refuse_some(r)}, schema="k string, n bigint", on_error="dead_letter", name="refuse"
    )

    def check(case: Case, rows: list[Any], cluster: Cluster) -> None:
        bad = [row for row in rows if row.n % 7 == 0]
        assert bag(sink.rows) == bag([(row.k, row.n * 3) for row in rows if row.n % 7])
        assert len(case.dead.rows) == len(bad)
        if len(cluster.workers) == cluster._plan.workers:  # one that is lost behind the last commit is not rebuilt
            assert figure(cluster, "refuse", "dead_letters") == len(bad)
        places = [(i % partitions, i // partitions) for i, row in enumerate(rows) if row.n % 7 == 0]
        assert bag((row.partition, row.offset) for row in case.dead.rows) == bag(places)
        assert sum("seven divides 49" in str(_plain(row)) for row in case.dead.rows) == sum(r.n == 49 for r in bad)

    return Case(stream.to(sink), {"out": sink}, check, source)


def two_stages(total: int, partitions: int) -> Case:
    source, sink = events(total, partitions), ps.memory()
    first = ps.stream("in", source).key_by("k").window(ps.tumbling("250ms", on="t", lateness="500ms")).count()
    second = first.key_by("count").window(ps.tumbling("1s", on="window_start", lateness="2s"))
    second = second.aggregate(keys=ps.agg.count(), total=ps.agg.sum("count"))

    def check(case: Case, rows: list[Any], cluster: Cluster) -> None:
        counts = Counter((row.k, row.t - row.t % (S // 4)) for row in rows)
        groups = Counter((c, w - w % S) for (_, w), c in counts.items())
        assert bag(sink.rows) == bag([(c, w, w + S, keys, keys * c) for (c, w), keys in groups.items()])

    return Case(second.to(sink), {"out": sink}, check, source)


PIPELINES = [
    windowed,
    overlapping,
    joined,
    joined_outer,
    running,
    stateless,
    split_and_merge,
    fan_out,
    dead_letters,
    two_stages,
]


def plan_of(case: Case, width: int, epoch: str) -> Plan:
    return Plan.of(case.pipeline.graph(), Options.of(parallelism=width, epoch=epoch), case.dead)


@pytest.mark.parametrize("make", PIPELINES)
@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_the_output_is_that_of_an_undisturbed_run(make: Any, width: int, seed: int) -> None:
    random = Random(f"{make.__name__} {width} {seed}")
    total = random.choice([300, 1500, 4000])
    case = make(total, random.choice([width, width + 1]))
    cluster = Cluster(plan_of(case, width, random.choice(["50ms", "200ms", "1s"])))
    crash_at_random(cluster, random, width)
    case.check(case, case.source.records(0, total, cluster.start_us), cluster)
    if len(cluster.workers) == width:  # one that is lost behind the last commit is not rebuilt
        assert figure(cluster, "in", "records_in") == total
        assert figure(cluster, "in", "records_out") == total
        sound(cluster)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("seed", range(2))
def test_files_hold_every_record_once(tmp_path: Path, width: int, seed: int) -> None:
    random = Random(f"files {width} {seed}")
    source = events(2000, width)
    stream = ps.stream("in", source)
    counted = stream.key_by("k").window(ps.tumbling("500ms", on="t", lateness="500ms")).count()
    pipeline = stream.select("k", "n").to(ps.files(tmp_path / "all"), name="all")
    pipeline += counted.select("k", "count").to(ps.files(tmp_path / "counts"), name="counts")
    cluster = cluster_of(pipeline, width, random.choice(["50ms", "200ms"]))
    crash_at_random(cluster, random, width)
    rows = source.records(0, 2000, cluster.start_us)
    assert bag(lines(tmp_path / "all")) == bag([(row.k, row.n) for row in rows])
    groups = Counter((row.k, row.t // (S // 2)) for row in rows)
    assert bag(lines(tmp_path / "counts")) == bag([(k, c) for (k, _), c in groups.items()])
    assert [path for path in tmp_path.rglob("*") if ".pending/" in str(path) and path.name != "lock"] == []


def lines(directory: Path) -> list[tuple[Any, ...]]:
    parts = sorted(directory.glob("part-*"))
    return [tuple(json.loads(line).values()) for part in parts for line in part.read_text().splitlines()]


# --- particular moments -----------------------------------------------------------------------------------------------

EVENT = "k string, t timestamp"


def counted(partitions: list[list[Any]], sink: Memory, **window: str) -> ps.Pipeline:
    stream = ps.stream("in", ps.records(partitions=partitions, schema=EVENT)).key_by("k")
    return stream.window(ps.tumbling("1s", on="t", **window)).count().to(sink)


def window_counts(partitions: list[list[Any]]) -> Counter[Any]:
    rows = [row for rows in partitions for row in rows if not isinstance(row, At)]
    groups = Counter((k, t - t % S) for k, t in rows)
    return bag([(k, w, w + S, c) for (k, w), c in groups.items()])


def run_to_end(cluster: Cluster) -> None:
    cluster.run_until(1 << 62)
    assert cluster.ended


def cluster_of(pipeline: ps.Pipeline, width: int, epoch: str = "1s") -> Cluster:
    return Cluster(Plan.of(pipeline.graph(), Options.of(parallelism=width, epoch=epoch)))


def test_a_restored_source_waits_for_its_slowest_partition_again() -> None:
    ahead, behind = [], []
    for i in range(200):
        ahead += [At(i / 10), (f"a{i % 3}", i * S // 10 + 5 * S)]
        behind += [At(i / 10), (f"b{i % 3}", i * S // 10)]
    sink = ps.memory()
    cluster = cluster_of(counted([ahead, behind], sink), 1)
    cluster.run_until(cluster.start_us + 10 * S + S // 4)
    cluster.crash(0)
    run_to_end(cluster)
    assert figure(cluster, "count", "late") == 0
    assert bag(sink.rows) == window_counts([ahead, behind])


@pytest.mark.parametrize("lost", [0, 1])
def test_a_source_that_was_idle_at_the_commit_is_waited_for_again(lost: int) -> None:
    """It woke up after the commit: until it has said so again, nobody may take it for idle."""
    busy: list[Any] = []
    for i in range(400):
        busy += [At(i / 10), (f"a{i % 5}", i * S // 10)]
    quiet: list[Any] = [("q", 0)]
    for i in range(120, 300):
        quiet += [At(i / 10), (f"q{i % 5}", i * S // 10)]
    sink = ps.memory()
    cluster = cluster_of(counted([busy, quiet], sink, lateness="100ms"), 2, epoch="10s")
    cluster.run_until(cluster.start_us + 19 * S)
    assert cluster.committed_epoch == 1
    cluster.crash(lost)
    run_to_end(cluster)
    assert figure(cluster, "count", "late") == 0
    assert bag(sink.rows) == window_counts([busy, quiet])


@pytest.mark.parametrize("make", [windowed, fan_out])
@pytest.mark.parametrize("lost", [[0], [1], [2], [0, 2], [2, 1, 0]])
def test_losses_at_the_very_end(make: Any, lost: list[int]) -> None:
    case = make(500, 3)
    cluster = Cluster(plan_of(case, 3, "200ms"))
    while not (cluster.commits and cluster.commits[-1].final):
        step(cluster)
    for worker in lost:
        if not cluster.ended and worker in cluster._driver.scheduler.inspect().waiting_stop:
            cluster.crash(worker)
    run_to_end(cluster)
    case.check(case, case.source.records(0, 500, cluster.start_us), cluster)
    assert figure(cluster, "in", "records_in") == 500


def test_losses_before_the_first_commit_begin_anew() -> None:
    case = windowed(1000, 2)
    cluster = Cluster(plan_of(case, 2, "1h"))
    cluster.run_until(cluster.start_us + S // 4)
    for worker in (0, 1, 1, 0):
        cluster.crash(worker)
        for _ in range(3):
            step(cluster)
    run_to_end(cluster)
    assert len(cluster.commits) == 1
    case.check(case, case.source.records(0, 1000, cluster.start_us), cluster)


def test_a_drain_during_a_recovery_is_not_forgotten() -> None:
    case = running(10_000_000, 2)
    cluster = Cluster(plan_of(case, 2, "200ms"))
    cluster.run_until(cluster.start_us + S)
    cluster.crash(1)
    cluster.drain()
    run_to_end(cluster)
    read = figure(cluster, "in", "records_in")
    shown = {row.k: row.c for row in case.sinks["out"].rows}
    assert sum(shown.values()) == read
    assert 0 < read < 10_000


def test_a_branch_that_is_not_downstream_of_the_loss_goes_on() -> None:
    """Worker 1 hosts the second partition of `wide` only; `narrow` lives on worker 0 and must not be built anew."""
    narrow_sink, wide_sink = ps.memory(), ps.memory()
    rows = [[("a", i) for i in range(500)], [("b", i) for i in range(500)]]
    paced = [[each for i, row in enumerate(part) for each in (At(i / 100), row)] for part in rows]
    narrow = ps.stream("narrow", ps.records(partitions=paced[:1], schema=EVENT)).to(narrow_sink, name="left")
    wide = ps.stream("wide", ps.records(partitions=paced, schema=EVENT)).to(wide_sink, name="right")
    plan = Plan.of((narrow + wide).graph(), Options.of(parallelism=2, epoch="500ms"))
    cluster = Cluster(plan)
    cluster.run_until(cluster.start_us + S)
    before = set(map(id, cluster.workers[0].units))
    concerned = downstream(plan, hosted(plan, 1))
    assert {plan.units[unit].name for unit, _ in concerned} == {"wide"}
    assert {instance for _, instance in concerned} == {1}
    cluster.crash(1)
    for _ in range(5):
        step(cluster)
    assert set(map(id, cluster.workers[0].units)) == before
    run_to_end(cluster)
    assert bag(narrow_sink.rows) == bag(rows[0])
    assert bag(wide_sink.rows) == bag(rows[0] + rows[1])
    assert [row.t for row in wide_sink.rows if row.k == "b"] == list(range(500)), "in order"


def test_a_job_that_is_started_again_goes_on_from_its_last_commit() -> None:
    case = windowed(3000, 3)
    plan = plan_of(case, 3, "200ms")
    first = Cluster(plan)
    first.run_until(first.start_us + S)
    last = first.commits[-1]
    resumption = Resumption(last.epoch, last.start_us, last.generation, last.snapshots)
    second = Cluster(plan, resumption, first.disk)
    run_to_end(second)
    assert second.start_us == first.start_us
    # The driver's process is new: what the last commit had prepared is delivered once more, and nothing else.
    groups = Counter((row.k, row.t - row.t % (S // 2)) for row in case.source.records(0, 3000, first.start_us))
    expected = {(k, w, c) for (k, w), c in groups.items() if k != "k3"}
    assert {(row.k, row.window_start, row.c) for row in case.sinks["out"].rows} == expected
    assert len(case.sinks["out"].rows) <= len(expected) + 2 * len(KEYS)
    assert figure(second, "in", "records_in") == 3000
