"""A sink whose store is away for minutes: the source stops, what waits is bounded, and everything comes afterwards."""

from __future__ import annotations

import json
from collections import Counter
from uuid import uuid4

import pytest

import penstock as ps
from penstock.connectors import object_files
from penstock.connectors.object_files import _ObjectWriter
from penstock.connectors.store import Store
from penstock.engine.snapshot import Persist
from penstock.engine.worker import Chore, WorkerMachine
from penstock.pipeline.options import Options
from penstock.pipeline.plan import Plan
from penstock.testing.cluster import Cluster

S = 1_000_000
SPOOL_BYTES = 4_000


class SlowCluster(Cluster):
    """While the store is away, what is to be stored waits, and nobody is told that it was."""

    away = False

    def _do_for(self, machine: WorkerMachine, chore: Chore) -> None:
        self._held: list[tuple[WorkerMachine, Chore]] = getattr(self, "_held", [])
        if self.away and isinstance(chore, Persist):
            self._held.append((machine, chore))
        else:
            super()._do_for(machine, chore)

    def come_back(self) -> None:
        self.away, held = False, self._held
        for machine, chore in held:
            super()._do_for(machine, chore)


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_sink_that_is_away_for_minutes_stops_the_source_and_gets_everything(
    monkeypatch: pytest.MonkeyPatch, parallelism: int, keyed: bool
) -> None:
    monkeypatch.setattr(object_files, "SPOOL_BYTES_MAX", SPOOL_BYTES)
    url, minutes, rate = f"memory://{uuid4().hex}", 3, 60
    total = 60 * (minutes + 2) * rate
    numbers = ps.generator({"n": ps.fields.sequence()}, rate=rate, total=total, format="columns", partitions=2)
    stream = ps.stream("numbers", numbers)
    stream = stream.key_by("n").filter(ps.col("n") >= 0, name="spread") if keyed else stream
    options = Options.of(parallelism=parallelism, queue_records=500)
    cluster = SlowCluster(Plan.of(stream.to(ps.files(url), name="rows").graph(), options))

    def read() -> int:
        figures = [each for worker in cluster.workers for each in worker.figures()]
        return sum(each.records_in for each in figures if each.operation == "numbers")

    def spooled() -> list[int]:
        sinks = [sink.writer for worker in cluster.workers for unit in worker.units for sink in unit.chain.sinks]
        return [writer._size_bytes for writer in sinks if isinstance(writer, _ObjectWriter)]

    cluster.run_until(cluster.now_us + 30 * S)
    before = read()
    cluster.away = True
    cluster.run_until(cluster.now_us + 60 * S)
    stopped, committed = read(), cluster.committed_epoch
    for _ in range(minutes - 1):
        cluster.run_until(cluster.now_us + 60 * S)
        assert read() == stopped, "the source has stopped"
        assert max(spooled()) < 2 * SPOOL_BYTES, "what waits at the sink is bounded"
    assert 0 < stopped - before < 60 * rate
    assert cluster.committed_epoch == committed
    cluster.come_back()
    cluster.run_until(1 << 62)
    store = Store(url, "path")
    parts = [store.read(name) for name in store.names() if name.startswith("part-")]
    found = Counter(json.loads(line)["n"] for part in parts for line in part.splitlines())
    assert found == Counter(range(total))
