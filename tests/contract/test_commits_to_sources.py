"""A reader hears which position is committed: a slot, or a spool, can let go of what lies before it."""

from __future__ import annotations

import penstock as ps
from penstock.connectors import At
from penstock.connectors.base import Position, SourceReader
from penstock.connectors.memory import Records, records
from penstock.runtime.job import plan_of
from penstock.testing.cluster import Cluster


class Noting(Records):
    """Rows that note what is committed of each partition."""

    def reader(self, partition: int, partitions: int, start_us: int) -> SourceReader:
        reader = super().reader(partition, partitions, start_us)
        NOTED.setdefault(partition, [])

        def committed(position: Position) -> None:
            assert isinstance(position, int)
            NOTED[partition].append(position)

        reader.committed = committed  # type: ignore[method-assign]
        return reader


NOTED: dict[int, list[int]] = {}


def test_a_reader_hears_of_every_commit_in_order_and_of_the_end() -> None:
    NOTED.clear()
    rows = [each for i in range(30) for each in (At(i / 10), i)]
    made = records(rows, schema="n bigint", partitions=2)
    source = Noting(made._scripts, made._schema)
    sink = ps.memory()
    plan = plan_of(ps.stream("numbers", source).to(sink), parallelism=2, epoch="500ms")
    cluster = Cluster(plan)
    cluster.run_until(1 << 62)
    assert len(sink.rows) == 30
    for positions in NOTED.values():
        assert positions == sorted(positions)
        assert len(set(positions)) > 3, "it has heard while the job ran"
        assert positions[-1] == 15, "and of what it read last"


def test_what_is_not_committed_is_not_told() -> None:
    NOTED.clear()
    made = records([1, 2, At("5s"), 3], schema="n bigint")
    plan = plan_of(ps.stream("n", Noting(made._scripts, made._schema)).to(ps.memory()), parallelism=1, epoch="1s")
    cluster = Cluster(plan)
    begun_us = cluster.now_us
    cluster.run_until(begun_us + 500_000)
    assert NOTED[0] == []
    cluster.run_until(begun_us + 3_000_000)
    assert set(NOTED[0]) == {2}
