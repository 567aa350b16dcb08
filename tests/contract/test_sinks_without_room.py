"""A sink that has no room stops its unit, and with it the source, until it has; what was committed is waited for."""

from __future__ import annotations

from typing import Any

import penstock as ps
from penstock.connectors.base import Sink, SinkWriter, WriterContext
from penstock.pipeline.graph import Graph
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing.cluster import Cluster
from penstock.types import Schema

S = 1_000_000
HELD_MAX = 100


class _Writer(SinkWriter):
    """Takes what it gets, and has room while it holds little that is not cleared."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.cleared = 0
        self.finished = False

    def write(self, rows: list[Any]) -> None:
        self.rows += rows

    @property
    def is_blocked(self) -> bool:
        return len(self.rows) - self.cleared > HELD_MAX

    def finish(self) -> None:
        self.finished = True


class _Narrow(Sink):
    def __init__(self, writer: _Writer) -> None:
        self._writer = writer

    @property
    def kind(self) -> str:
        return "narrow"

    def writer(self, schema: Schema, context: WriterContext) -> SinkWriter:
        return self._writer


def test_a_source_waits_while_the_sink_has_no_room_and_epochs_go_on() -> None:
    writer = _Writer()
    rows = ps.generator({"n": ps.fields.integers(0, 9)}, rate=2_000, total=4_000, format="columns")
    plan = Plan.of(
        Graph.check(ps.stream("in", rows).to(_Narrow(writer)).nodes()), Options.of(parallelism=1, epoch="100ms")
    )
    cluster = Cluster(plan)
    cluster.run_until(cluster.now_us + 3 * S)
    held, epoch = len(writer.rows), cluster.committed_epoch
    assert HELD_MAX < held < 1_000
    cluster.run_until(cluster.now_us + S)
    assert len(writer.rows) == held
    assert cluster.committed_epoch > epoch
    while not cluster.ended:
        writer.cleared = len(writer.rows)
        cluster.run_until(cluster.now_us + S // 10)
    assert len(writer.rows) == 4_000
    assert writer.finished
