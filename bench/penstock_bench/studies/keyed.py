"""A running count whose state is as large as is asked for, held at a calm rate and struck once; for the study of state.

The first events touch every key once, so that the state has its size when the calm time begins; the keys after them are
drawn.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import penstock as ps
from penstock.connectors.generator import Generator
from penstock.demo.chaos import Campaign, Killer
from penstock.runtime.clock import now_us
from penstock.types import Record
from penstock_bench.meter.job import POLL_S, Run, read_rows, row_of, running, waiting
from penstock_bench.meter.rows import ResultRow
from penstock_bench.meter.stamped import Witness
from penstock_bench.meter.timeline import NEVER_US, Shown, Timeline
from penstock_bench.studies import kills
from penstock_bench.workloads import Workload, replay
from penstock_bench.workloads.base import compare_updates

FILL_EPS = 150_000.0
SETTLE_S = 2.0
WATCH_S = 4.0
"""After the lost instances are there again: how long the effects of the kill are looked at."""
RESTORED_S_MAX = 20.0
FILLED_S_MAX = 60.0
SEED = 1
_NUMBER_BITS = 32
_TIME_BITS = 40


class Store(Enum):
    """Where snapshots go, and how safely."""

    OFF = "no snapshots"
    LOCAL = "a local directory"
    DURABLE = "a local directory, forced to disk"

    def options(self, directory: str) -> dict[str, Any]:
        return {Store.OFF: {"epoch": "1h"}, Store.LOCAL: {}, Store.DURABLE: {"checkpoint": directory}}[self]


def counting(keys: int, zipf: float | None = None) -> Workload[dict[int, int]]:
    """Build a running count of so many keys: drawn evenly, or by Zipf's law."""
    drawn = ps.fields.integers(0, keys - 1) if zipf is None else ps.fields.choice(range(keys), zipf=zipf)

    def build(events: ps.Stream) -> ps.Stream:
        number = ps.col("number")
        key = ps.when(number < keys, number).otherwise(ps.col("drawn"))
        counted = events.select("number", key=key).key_by("key")
        return counted.aggregate(count=ps.agg.count(), newest=ps.agg.max("number"), name="count")

    def expected(records: Iterable[Record]) -> dict[int, int]:
        return dict(Counter(_keys(records, keys)[1].tolist()))

    return Workload(
        name="keyed-count",
        title=f"running count of each of {keys:,} keys",
        fields={"number": ps.fields.sequence(), "drawn": drawn},
        format="columns",
        build=build,
        expected=expected,
        compare=lambda exact, rows, _: compare_updates(exact, ((row["key"], row["count"]) for row in rows)),
        group=("key",),
    )


def _keys(records: Iterable[Record], keys: int) -> tuple[Any, Any]:
    both: Any = [(record.number, record.drawn) for record in records]
    numbers, drawn = np.array(both, dtype=np.int64).reshape(-1, 2).T
    return numbers, np.where(numbers < keys, numbers, drawn)


class Epochs(msgspec.Struct):
    """What the snapshots of the calm time took; sizes are those of all instances together."""

    epoch_ms_p50: float
    epoch_ms_max: float
    """From an epoch's marker at the sources to its commit."""
    bytes_p50: int
    bytes_max: int
    """The largest epoch is one at which all of the state was written, not only what had changed."""


class Held(msgspec.Struct):
    """A state of one size."""

    keys: int
    store: str
    epochs: Epochs | None
    """None without snapshots."""
    loss: kills.Loss | None
    """What the kill of a worker did; None if none was killed."""
    restored_s: float | None
    """From the kill until the lost instances were built anew."""


@dataclass
class _Ledger:
    """Takes down epochs and the sizes of their snapshots while a job runs; old files vanish."""

    directory: Path
    first_epoch: int
    _times_ms: dict[int, float] = field(default_factory=dict)
    _sizes: dict[int, dict[str, int]] = field(default_factory=dict)

    def look(self, job: ps.Job) -> None:
        status = job.status()
        if status.epoch > self.first_epoch:
            self._times_ms[status.epoch] = status.epoch_ms
        for path in self.directory.glob("u*-i*-e*"):
            epoch = int(path.stem.split("-")[2][1:])
            if path.suffix != ".tmp" and epoch > self.first_epoch:
                with suppress(FileNotFoundError):
                    self._sizes.setdefault(epoch, {})[path.name] = path.stat().st_size

    def epochs(self) -> Epochs | None:
        times_ms, sizes = self._times_ms.values(), [sum(each.values()) for each in self._sizes.values()]
        if not times_ms or not sizes:
            return None
        most_ms, middle = round(max(times_ms), 2), round(statistics.median(sizes))
        return Epochs(round(statistics.median(times_ms), 2), most_ms, middle, max(sizes))


def hold(keys: int, rate_eps: float, seconds: float, workers: int, store: Store, kill: bool) -> tuple[ResultRow, Held]:
    """Fill a state, hold it at a calm rate and measure; then, if asked to, kill a worker. Every result is compared."""
    workload = counting(keys)
    source = workload.source(ps.rates.steps([(keys / FILL_EPS, FILL_EPS), (1, rate_eps)]))
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        options = store.options(f"{name}/checkpoint")
        seen, out = Witness(Path(name) / "seen"), Path(name) / "out"
        counts = workload.build(ps.stream("events", source))
        # The witness knows columns of these names: the number of the event stands for a window, the key for a count.
        shown = counts.filter(ps.col("newest") >= keys).select(window_start=ps.col("newest"), count=ps.col("key"))
        pipelines = [shown.to(seen, name="seen"), counts.to(ps.files(out), name="out")]
        with running(*pipelines, parallelism=workers, forms="record", **options) as run:
            _wait_filled(run, keys, rate_eps)
            run.warm_up(run.at_s + SETTLE_S)
            ledger = _Ledger(Path(run.job.plan.options.checkpoint) / "snapshots", run.job.status().epoch)
            began_us, began_s = now_us(), run.at_s
            ended_s = began_s + seconds
            run.watch(ledger.look, until_s=ended_s)
            latency_us, cores, memory_mb = run.job.latency_us(), run.processes.cpu_cores, run.processes.memory_mb
            killed_us, restored_s = (now_us(), _restored(run)) if kill else (0, None)
            ended_us = now_us()
            report = run.end(drain=True)
        read = report.offsets["events"]
        found = workload.compare(workload.expected(replay(source, report.start_us, read)), read_rows(out), workers)
        loss = None
        if killed_us:
            timeline = timeline_of(source, report.start_us, read, keys, seen.shown())
            # The judge leaves a warm-up of its own out; here it has been left out already.
            start_us = began_us - round(kills.WARM_UP_S * 1e6)
            loss = kills.judge(timeline, [(killed_us, 1)], start_us, ended_us, workers).losses[0]
    row = row_of(workload.name, rate_eps, "record", run, report, found, latency_us=latency_us)
    row.cpu_cores, row.pss_mb, row.warm_up_s = round(cores, 3), round(memory_mb, 1), SETTLE_S
    row.sustained = run.sustained(rate_eps, began_s, ended_s)
    row.settings, row.variant = {"keys": keys, "store": store.value}, variant(keys, store)
    row.note += f"; {store.value}" + ("; latency is that before a worker is struck" if kill else "")
    return row, Held(keys, store.value, ledger.epochs() if store is not Store.OFF else None, loss, restored_s)


def _restored(run: Run) -> float | None:
    """Kill a worker, and watch until the lost instances are there again and for a while; returns after how long."""
    campaign = Campaign(SEED, every_us=1)
    if not Killer(campaign).strike(run.job):
        return None
    until_s = run.at_s + RESTORED_S_MAX
    while (kill := campaign.kills[0]).restored_s is None and run.at_s < until_s:
        run.watch(lambda job: campaign.observe(job.status()), until_s=run.at_s + POLL_S)
    run.watch(until_s=run.at_s + WATCH_S)
    return kill.restored_s


def variant(keys: int, store: Store = Store.LOCAL) -> str:
    return f"{keys:,} keys" + ("" if store is Store.LOCAL else f", {store.value}")


def timeline_of(source: Generator, start_us: int, read: Sequence[int], keys: int, shown: Iterable[Shown]) -> Timeline:
    """When each event after the first ``keys`` was due, and when a count was first shown that it is in.

    A row shows an event if it is of the same key and its newest event is that one or a later one.
    """
    assert source.schedule is not None
    numbers, key = _keys(replay(source, start_us, read), keys)
    numbers, key = numbers[numbers >= keys], key[numbers >= keys]
    due_us = start_us + source.schedule.times_us(0, int(numbers[-1]) + 1 if len(numbers) else 0)[numbers]
    rows = np.array([(each.total, each.group[1], each.at_us - start_us) for each in shown], dtype=np.int64)
    rows = rows.reshape(-1, 3)
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    places = rows[:, 0] << _NUMBER_BITS | rows[:, 1]
    # The earliest of this row and all later ones of its key; larger keys come after it and have larger values.
    ranked = rows[:, 0] << _TIME_BITS | rows[:, 2]
    first_us = np.minimum.accumulate(ranked[::-1])[::-1] & ((1 << _TIME_BITS) - 1)
    at = np.searchsorted(places, key << _NUMBER_BITS | numbers)
    keyed = np.append(rows[:, 0], -1)[at] == key
    return Timeline(due_us, np.where(keyed, np.append(first_us, 0)[at] + start_us, NEVER_US))


def _wait_filled(run: Run, keys: int, rate_eps: float) -> None:
    """Wait until every key has been read, and what the filling has left behind is worked off."""
    deadline_s = run.at_s + FILLED_S_MAX
    while run.at_s < deadline_s and run.job.wait(POLL_S) is None:
        if run.read()[0] >= keys and waiting(run.job.status()) <= rate_eps * POLL_S:
            return
