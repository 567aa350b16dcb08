"""How soon a replica works that stands by, and what that costs: ``python benchmarks/activation.py [TIMES] [SECONDS]``.

A map gets 500 records each second and computes for some 0.3 ms. Its three replicas first stand by for SECONDS,
while the worker computes: the pool's processor time and memory (PSS) are those of its processes. Then the number of
replicas changes, TIMES times up and down. An activation takes from the decision until the replica begins an item,
which includes waiting for a record. The law looks once an hour: every decision is the script's. Each record must
come out once and in order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import monotonic
from typing import Any

import psutil

import penstock as ps
from asking import numbers
from keeping import keep, spread
from penstock.control.replicas import ReplicasView
from penstock_bench.meter.processes import memory_mb
from penstock_bench.studies.findings import at_most

POOL = 3
RATE = 500
WORK = 20_000
WAIT_S = 60.0
SETTLED_S = 5.0
"""Replicas have come up and imported what they need."""
GOAL_MS = 10.0


def work(record: Any) -> tuple[int, int]:
    """Compute for a while."""
    return record.n, sum(range(WORK + record.n % 7))


class Measured:
    """A job whose only operation may have replicas."""

    def __init__(self, job: ps.Job) -> None:
        self.job = job

    @property
    def view(self) -> ReplicasView:
        """The replicas of the operation; before any were wanted, none."""
        return next(iter(self.job.adaptation().replicas), ReplicasView([], 0, 1, 1, POOL, []))

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait, but not for ever."""
        deadline = monotonic() + WAIT_S
        while not condition():
            if monotonic() > deadline:
                sys.exit(f"waited in vain until {what}")
            self.job.wait(0.02)

    def stand_by(self, seconds: float) -> dict[str, Any]:
        """What the pool uses while nobody wants it, beside a worker that computes."""
        pool = [psutil.Process(pid) for pid in self.job.status().replica_pids]
        worker = psutil.Process(self.job.status().workers[0].pid)
        before, began = _cpu_s([*pool, worker]), monotonic()
        self.job.wait(seconds)
        passed_s = monotonic() - began
        *used, worker_s = (now - then for now, then in zip(_cpu_s([*pool, worker]), before, strict=True))
        return {
            "replicas": len(pool),
            "seconds": round(passed_s, 1),
            "cpu_share_each": [round(each / passed_s, 5) for each in used],
            "pss_mb_each": [round(memory_mb(each), 1) for each in pool],
            "worker_cpu_share": round(worker_s / passed_s, 4),
            "worker_pss_mb": round(memory_mb(worker), 1),
        }

    def change(self, replicas: int) -> list[float]:
        """Have another number of replicas, and return how long each that was added took."""
        before = self.view
        self.job.replicate("work", replicas)
        new = max(0, replicas - before.degree) if replicas > 1 else 0
        due = before.activations + new
        self.until(
            lambda: (
                self.view.degree == (replicas if replicas > 1 else 0)
                and self.view.activations >= due
                and len(self.view.activation_ms) >= len(before.activation_ms) + new
            ),
            f"{replicas} replicas work",
        )
        return self.view.activation_ms[len(before.activation_ms) :]


def _cpu_s(processes: list[psutil.Process]) -> list[float]:
    found = [each.cpu_times() for each in processes]
    return [each.user + each.system for each in found]


def main() -> None:
    """Measure, print, keep."""
    times, seconds = numbers(__doc__, times=50, seconds=20.0)
    source = ps.generator({"n": ps.fields.sequence()}, rate=RATE, format="columns", partitions=1)
    worked = ps.stream("in", source).map(work, schema="n bigint, sum bigint", name="work", replicas=(1, POOL))
    out = ps.memory()
    options = {"parallelism": 1, "forms": "record", "replica_interval": "1h", "name": "bench-activation"}
    first: list[float] = []
    from_worker: list[float] = []
    warm: list[float] = []
    with ps.start(worked.to(out), **options) as job:
        of = Measured(job)
        of.until(lambda: len(job.status().replica_pids) == POOL and job.status().epoch >= 1, "the pool is up")
        job.wait(SETTLED_S)
        standing = of.stand_by(seconds)
        first += of.change(POOL)
        for _ in range(int(times)):
            of.change(1)
            from_worker += of.change(2)
            warm += of.change(POOL)
            of.change(2)
        job.drain()
        report = job.wait()
    assert report is not None
    read = sum(report.offsets["in"])
    exact = [row.n for row in out.rows] == list(range(read))
    figures = {
        "standing_by": standing,
        "activation_ms": {
            "first": spread(first),
            "from_the_worker": spread(from_worker),
            "one_more": spread(warm),
        },
        "records": read,
        "exact": exact,
        "switch_pause_ms": spread([each.pause_ms for each in report.switches]),
    }
    sys.stdout.write(f"standing by: {standing}\n")
    for name, values in (("first", first), ("from the worker", from_worker), ("one more", warm)):
        sys.stdout.write(f"{name:<16} {spread(values)} ms\n")
    sys.stdout.write(f"{read:,} records, {'each once and in order' if exact else 'NOT EXACT'}\n")
    warmed = at_most("activation of a replica that stands by, p95", spread(warm)["p95"], "ms", GOAL_MS)
    settings = {"times": int(times), "seconds": seconds, "rate": RATE, "pool": POOL}
    keep("activation", settings, [warmed, at_most("records not exact", int(not exact), "runs", 0)], figures)
    sys.exit(0 if exact else 1)


if __name__ == "__main__":
    main()
