"""A record's latency, taken apart: the components on its way add up to the latency that is measured at its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import penstock as ps
from penstock.control.monitor import Monitor
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.protocol import messages as m
from penstock.testing.cluster import Cluster

S = 1_000_000
TOTAL = 3000
PLACES = ["in", "slow", "filter", "count.combine", "count"]
COST_US = 40
"""What the function takes for each record: it lets made-up time pass itself."""


class Run:
    """A job whose one slow operation takes a known time, and a monitor that hears of it."""

    def __init__(self, width: int, keep: int = 100) -> None:
        self.sink = ps.memory()
        columns = {"k": ps.fields.choice(["a", "b", "c"]), "n": ps.fields.integers(0, 99), "t": ps.fields.event_time()}
        source = ps.generator(columns, rate=4000, total=TOTAL, format="columns", partitions=width)

        def slow(record: Any) -> Any:
            self.cluster.now_us += COST_US
            return record.k, record.n, record.t

        stream = ps.stream("in", source).map(slow, schema="k string, n bigint, t timestamp", name="slow")
        stream = stream.filter(ps.col("n") < keep)
        counted = stream.key_by("k").window(ps.tumbling("100ms", on="t", lateness="1s")).count()
        # Blocks of several records: where each is one record, the window gets as many partials before the switch as
        # behind it, and they have waited for nothing.
        options = replace(Options.of(parallelism=width, epoch="200ms"), linger_us=1_000)
        plan = Plan.of(counted.to(self.sink, name="out").graph(), options)
        self.plan = plan
        self.monitor = Monitor(plan)
        self.cluster = Cluster(plan)
        self.beat()

    def beat(self) -> None:
        for worker in self.cluster.workers:
            figures, edges = worker.figures(), worker.edge_figures()
            now_us, offsets = self.cluster.now_us, worker.offsets()
            heartbeat = m.Heartbeat(
                worker=worker.worker,
                incarnation=worker.incarnation,
                at_us=now_us,
                stats=figures,
                rss_bytes=0,
                cpu_us=0,
                edges=edges,
                offsets=offsets,
            )
            heard = m.decode_from_worker(m.encode(heartbeat))
            assert isinstance(heard, m.Heartbeat)
            self.monitor.on_heartbeat(heard)

    def latency_us(self, operation: str) -> tuple[float, int]:
        """Mean latency at an operation as its instances have summed it up, and over how many records."""
        figures = [each for worker in self.cluster.workers for each in worker.figures() if each.operation == operation]
        count = sum(sum(each.latency_counts.values()) for each in figures)
        return sum(each.left_us for each in figures) / count, count

    def check(self, operation: str) -> dict[str, float]:
        """Components on the way to an operation; they add up, none is negative."""
        mean_us, count = self.latency_us(operation)
        figures = self.monitor.measured()
        path = self.monitor.path(operation)
        assert path[0] == "in"
        assert path[-1] == operation
        sums = {name: 1000 * mean_ms for name, mean_ms in self.monitor.components_ms(operation, figures).items()}
        assert all(value >= 0.0 for value in sums.values())
        assert sum(sums.values()) == pytest.approx(mean_us, rel=1e-6, abs=1.0)
        assert next(each.latency_us for each in figures if each.name == operation) == pytest.approx(mean_us)
        if operation in PLACES[: PLACES.index("filter") + 1]:
            plain = sum(sum(each.components_us.values()) for each in figures if each.name in path)
            assert plain == pytest.approx(mean_us, rel=1e-6), "without weighing, where every record goes on"
        # The histogram has counted the same records by itself; its buckets are 3 % wide.
        histogram = self.monitor.latency(operation)
        assert histogram.total == count
        assert histogram.quantile(0.0) / 1.04 <= mean_us <= histogram.maximum
        return sums


WIDTHS = pytest.mark.parametrize("width", [1, 2])


@WIDTHS
def test_in_record_form(width: int) -> None:
    run = Run(width)
    run.cluster.run_until(1 << 62)
    run.beat()
    for operation in PLACES:
        sums = run.check(operation)
        assert sums["wait"] == sums["schedule"] == 0.0
    assert run.check("slow")["process"] >= COST_US
    assert run.check("in")["process"] == 0.0
    assert sum(row.count for row in run.sink.rows) == TOTAL


@WIDTHS
@pytest.mark.parametrize("route", [(-1, 2), (0, 2), (0, 0), (1, 2), (-1, 0)], ids=str)
def test_with_a_range_in_batch_form(width: int, route: tuple[int, int]) -> None:
    run = Run(width)
    run.cluster.add_slot(0)
    run.cluster.switch(0, *route)
    run.cluster.run_until(1 << 62)
    run.beat()
    for operation in PLACES:
        run.check(operation)
    sums = run.check("count")
    assert sums["wait"] > 0.0, "records wait for the rest of their micro-batch"
    assert run.check("slow")["process"] >= COST_US
    # The window's state half counts partials where the others count records, so a mean may differ by a little.
    assert sums["process"] >= 0.99 * COST_US
    if width == 2 and route[0] == 0:
        assert sums["schedule"] > 0.0, "micro-batches of two workers take turns in the one slot"
    assert sum(row.count for row in run.sink.rows) == TOTAL


@WIDTHS
def test_while_forms_change(width: int) -> None:
    run = Run(width)
    run.cluster.add_slot(0)
    for part, route in enumerate([(-1, 2), (0, -1), (0, 1), (0, -1)], start=1):
        run.cluster.run_until(run.cluster.start_us + part * S // 5)
        run.beat()
        run.cluster.switch(0, *route)
    run.cluster.run_until(1 << 62)
    run.beat()
    for operation in PLACES:
        run.check(operation)


def test_a_filter_that_keeps_few() -> None:
    run = Run(1, keep=3)
    run.cluster.run_until(1 << 62)
    run.beat()
    for operation in PLACES:
        run.check(operation)


@WIDTHS
def test_after_a_recovery(width: int) -> None:
    run = Run(width)
    run.cluster.run_until(run.cluster.start_us + S // 3)
    run.beat()
    run.cluster.crash(0)
    run.cluster.run_until(1 << 62)
    run.beat()
    for each in run.monitor.measured():
        assert all(value >= 0.0 for value in each.components_us.values())
        assert each.latency_us > 0.0 or each.name not in PLACES
    assert sum(row.count for row in run.sink.rows) == TOTAL
