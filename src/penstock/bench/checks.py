"""Figures that are not latencies: start-up, the cost of being idle, bounded memory, the engine's own overhead."""

from __future__ import annotations

import cProfile
import pstats
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import penstock as ps
from penstock.bench.measure import wait_for_start
from penstock.bench.processes import ProcessMeter
from penstock.bench.rows import Check
from penstock.bench.workloads import WORKLOADS
from penstock.engine.worker import Worker
from penstock.runtime.clock import now_ns, now_us
from penstock.runtime.job import plan_of

START_S_MAX = 10.0
IDLE_CORES_MAX = 0.05
SLOW_MEMORY_MB_MAX = 150.0
_PROGRAM = """
import time
began = time.monotonic()
import penstock as ps
sink = ps.memory()
source = ps.generator({"n": ps.fields.sequence()}, rate=1000, format="columns")
with ps.start(ps.stream("numbers", source).to(sink), name="bench-start", epoch="100ms") as job:
    while not sink.rows:
        if job.wait(0.01) is not None:
            break
    print(time.monotonic() - began)
    job.drain()
    job.wait()
"""


def check_start() -> Check:
    """Time from nothing to the first committed result, in a new process with a new JVM; files are warm in the cache."""
    times = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
        times.append(float(done.stdout.split()[0]))
    best = min(times)
    return Check(
        name="start to first result",
        value=round(best, 2),
        unit="s",
        target=f"<= {START_S_MAX:g}",
        met=best <= START_S_MAX,
        detail={
            "runs_s": [round(each, 2) for each in times],
            "includes": "Python imports, JVM, Spark session, workers",
        },
    )


def check_idle(seconds: float, parallelism: int) -> Check:
    """CPU of all processes while the Yahoo pipeline waits for events that do not come."""
    nothing = ps.rates.steps([(1, 100), (3600, 0), (1, 1)])
    pipeline = WORKLOADS["yahoo"].pipeline(nothing, ps.memory())
    with ps.start(pipeline, name="bench-idle", parallelism=parallelism) as job, ProcessMeter() as meter:
        wait_for_start(job)
        time.sleep(4)
        meter.restart()
        time.sleep(seconds)
        meter._sample()
        cores = meter.cpu_cores
        job.stop()
        job.wait()
    return Check(
        name="idle pipeline",
        value=round(cores, 4),
        unit="cores",
        target=f"< {IDLE_CORES_MAX}",
        met=cores < IDLE_CORES_MAX,
        detail={"seconds": seconds, "includes": "driver, JVM, workers"},
    )


class _Slow:
    """A function that takes its time: the consumer that is ten times too slow."""

    def __init__(self, record_us: float) -> None:
        self._record_s = record_us / 1e6

    def __call__(self, record: Any) -> tuple[int, str]:
        time.sleep(self._record_s)
        return record.number, record.text


def check_slow_consumer(seconds: float, parallelism: int) -> Check:
    """Memory of the workers while events come ten times faster than a consumer behind a shuffle can take them."""
    capacity_eps = 2_000
    slow = _Slow(1e6 * parallelism / capacity_eps)
    fields = {"number": ps.fields.sequence(), "text": ps.fields.text(200)}
    source = ps.generator(fields, rate=10 * capacity_eps, format="columns")
    pipeline = (
        ps.stream("events", source)
        .key_by("number")
        .map(slow, schema="number bigint, text string")
        .to(ps.foreach(_drop))
    )
    samples: list[dict[str, object]] = []
    with ps.start(pipeline, name="bench-slow", parallelism=parallelism) as job:
        wait_for_start(job)
        time.sleep(2)
        job.begin_measuring()
        began = time.monotonic()
        first_mb = 0.0
        while time.monotonic() - began < seconds:
            time.sleep(1)
            status = job.status()
            rss_mb = sum(worker.rss_mb for worker in status.workers)
            first_mb = first_mb or rss_mb
            queued = {op.name: op.queue_records for op in status.operations if op.queue_records}
            samples.append(
                {"s": round(time.monotonic() - began, 1), "workers_rss_mb": round(rss_mb, 1), "queued": queued}
            )
        status = job.status()
        job.stop()
        job.wait()
    offered = 10 * capacity_eps * (seconds + 2)
    growth_mb = sum(worker.rss_mb for worker in status.workers) - first_mb
    consumed = next(op.records_out for op in status.operations if op.kind == "map")
    return Check(
        name="memory growth with a consumer 10x too slow",
        value=round(growth_mb, 1),
        unit="MB",
        target=f"< {SLOW_MEMORY_MB_MAX:g}",
        met=growth_mb < SLOW_MEMORY_MB_MAX,
        detail={"offered": offered, "consumed": consumed, "samples": samples},
    )


def check_overhead(events: int) -> Check:
    """Time per record of the engine itself: numbered records straight into a sink that drops them, in one process."""
    plan = plan_of(
        WORKLOADS["identity"].pipeline(None, ps.foreach(_drop), total=events, partitions=1),
        parallelism=1,
        name="overhead",
    )
    plain_s = _drive(plan, events)
    profile = cProfile.Profile()
    profile.enable()
    _drive(plan, events // 10)
    profile.disable()
    stats: Any = pstats.Stats(profile)
    total = sum(own for _, _, own, _, _ in stats.stats.values())
    shares = sorted(((own / total, key) for key, (_, _, own, _, _) in stats.stats.items()), reverse=True)[:8]
    return Check(
        name="engine overhead, identity pipeline",
        value=round(plain_s / events * 1e6, 3),
        unit="us/record",
        target="reported",
        met=True,
        detail={
            "records": events,
            "profile": [
                {"share": round(share, 3), "function": f"{key[0].rsplit('/', 1)[-1]}:{key[2]}"} for share, key in shares
            ],
        },
    )


def _drive(plan: Any, events: int) -> float:
    """Run a one-worker plan in this process, without sockets."""
    from penstock.protocol import messages as m

    worker = Worker(replace(plan, start_us=now_us()), 0, 1, now_ns)
    worker.start(
        m.Start(
            peers=[m.Peer(worker=0, incarnation=1, endpoint="")],
            start_us=now_us(),
            generation=0,
            restore=None,
            careful=False,
        ),
        {},
    )
    began = time.perf_counter()
    while worker.figures()[0].records_in < events:
        worker.step(now_us())
        worker.to_store()
    took = time.perf_counter() - began
    worker.close()
    return took


def _drop(record: object) -> None:
    """Take a record and do nothing with it."""
