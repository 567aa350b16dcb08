"""How many records are taken at once: about 2 ms of their own work, however long others are waited for."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

import penstock as ps
from penstock.operators import Finder, LookupTable
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing.cluster import Cluster
from penstock.types import Record, Schema

ROUND_TRIP_US, RECORD_US = 5_000, 10


class Away(LookupTable):
    """A table on a server that answers after a while, in the made-up time of a test."""

    schema, key = Schema.parse("k bigint, v bigint"), "k"

    def __init__(self) -> None:
        self.pass_us: Callable[[int], None] = lambda _: None
        self.asked: list[int] = []
        self._waited_us = 0

    def finder(self) -> Finder:
        return Finder(self._get, self._columns, self._many, waited_ns=self._waited)

    def _columns(self, keys: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
        raise NotImplementedError("the test stays in record form")

    def _get(self, key: object) -> Record:
        return self.schema.record_type(key, 0)

    def _many(self, keys: list[object]) -> Callable[[object], Record]:
        self.asked.append(len(keys))
        self.pass_us(ROUND_TRIP_US + RECORD_US * len(keys))
        self._waited_us += ROUND_TRIP_US
        return self._get

    def _waited(self) -> int:
        waited_us, self._waited_us = self._waited_us, 0
        return 1000 * waited_us

    def describe(self) -> str:
        return "away"


def test_a_slow_server_is_asked_for_many_records_at_once() -> None:
    rows, table, out = [(i,) for i in range(4_000)], Away(), ps.memory()
    pipeline = ps.stream("in", ps.records(rows, schema="k bigint")).lookup(table, on="k").to(out)
    cluster = Cluster(Plan.of(pipeline.graph(), Options.of(parallelism=1, epoch="1s")))

    def passes(us: int) -> None:
        cluster.now_us += us

    table.pass_us = passes
    cluster.run_until(cluster.now_us + 60_000_000)
    assert [row.k for row in out.rows] == list(range(4_000))
    # 200 records are 2 ms of their own work; the server takes more than that for one.
    assert len(table.asked) < 60
    assert max(table.asked) <= 400
