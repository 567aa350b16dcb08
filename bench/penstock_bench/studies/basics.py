"""What the studies do not ask: start-up, idle cost, bounded memory, overhead, what a checkpoint costs."""

from __future__ import annotations

import cProfile
import pstats
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from typing import Any

import penstock as ps
from penstock.engine.share import Share
from penstock.runtime.clock import now_ns, now_us
from penstock.runtime.job import plan_of
from penstock_bench.meter.job import discard, running
from penstock_bench.meter.rows import Check
from penstock_bench.studies.base import RECORD, Desk
from penstock_bench.studies.findings import at_most
from penstock_bench.workloads import WORKLOADS

START_S_MAX = 10.0
IDLE_S, IDLE_CORES_MAX = 10.0, 0.05
SLOW_S, SLOW_EPS, SLOW_MEMORY_MB_MAX = 12.0, 2_000, 150.0
OVERHEAD_EVENTS = 500_000
COST_EPS, COST_S, COST_MAX, COST_P99_MS_MAX = 100_000, 8.0, 10.0, 5.0
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
        times.append(round(float(done.stdout.split()[0]), 2))
    detail: dict[str, object] = {"runs_s": times, "includes": "Python imports, JVM, Spark session, workers"}
    return at_most("start to first result", min(times), "s", START_S_MAX, detail)


def check_idle(parallelism: int) -> Check:
    """CPU of all processes while the Yahoo pipeline waits for events that do not come."""
    nothing = ps.rates.steps([(1, 100), (3600, 0), (1, 1)])
    with running(WORKLOADS["yahoo"].pipeline(nothing, ps.memory()), parallelism=parallelism, memory=False) as run:
        run.warm_up(4.0)
        time.sleep(IDLE_S)
        cores = run.processes.cpu_cores
        run.end()
    detail: dict[str, object] = {"seconds": IDLE_S, "includes": "driver, JVM, workers"}
    return at_most("idle pipeline", cores, "cores", IDLE_CORES_MAX, detail, digits=4)


def check_slow_consumer(parallelism: int) -> Check:
    """Memory of the workers while events come ten times faster than a consumer behind a shuffle can take them."""

    def slow(record: Any) -> tuple[int, str]:
        time.sleep(parallelism / SLOW_EPS)
        return record.number, record.text

    fields = {"number": ps.fields.sequence(), "text": ps.fields.text(200)}
    events = ps.stream("events", ps.generator(fields, rate=10 * SLOW_EPS, format="columns")).key_by("number")
    pipeline = events.map(slow, schema="number bigint, text string").to(ps.foreach(discard))
    samples: list[dict[str, Any]] = []

    def look(job: ps.Job) -> None:
        status = job.status()
        memory_mb = sum(worker.rss_mb for worker in status.workers)
        queued = {op.name: op.queue_records for op in status.operations if op.queue_records}
        samples.append({"s": round(run.at_s, 1), "workers_rss_mb": round(memory_mb, 1), "queued": queued})

    with running(pipeline, parallelism=parallelism, memory=False) as run:
        run.warm_up(2.0)
        for second in range(int(SLOW_S)):
            run.watch(until_s=3.0 + second)
            look(run.job)
        consumed = next(op.records_out for op in run.job.status().operations if op.kind == "map")
        run.end()
    growth_mb = samples[-1]["workers_rss_mb"] - samples[0]["workers_rss_mb"]
    detail = {"offered": 10 * SLOW_EPS * (SLOW_S + 2), "consumed": consumed, "samples": samples}
    return at_most("memory growth with a consumer 10x too slow", growth_mb, "MB", SLOW_MEMORY_MB_MAX, detail, digits=1)


def check_overhead() -> Check:
    """Time per record of the engine itself: numbered records straight into a sink that drops them, in one process."""
    pipeline = WORKLOADS["identity"].pipeline(None, ps.foreach(discard), total=OVERHEAD_EVENTS, partitions=1)
    plan = plan_of(pipeline, parallelism=1, name="overhead")
    plain_s = _drive(plan, OVERHEAD_EVENTS)
    profile = cProfile.Profile()
    profile.runcall(_drive, plan, OVERHEAD_EVENTS // 10)
    stats: Any = pstats.Stats(profile)
    total = sum(own for _, _, own, _, _ in stats.stats.values())
    shares = sorted(((own / total, key) for key, (_, _, own, _, _) in stats.stats.items()), reverse=True)[:8]
    told = [{"share": round(share, 3), "function": f"{key[0].rsplit('/', 1)[-1]}:{key[2]}"} for share, key in shares]
    detail = {"records": OVERHEAD_EVENTS, "profile": told}
    record_us = round(plain_s / OVERHEAD_EVENTS * 1e6, 3)
    return Check("engine overhead, identity pipeline", record_us, "us/record", "reported", True, detail)


def _drive(plan: Any, events: int) -> float:
    """Run a one-worker plan in this process, without sockets."""
    from penstock.protocol import messages as m

    worker = Share(replace(plan, start_us=now_us()), 0, 1, now_ns)
    peers = [m.Peer(worker=0, incarnation=1, endpoint="")]
    worker.start(m.Start(peers=peers, start_us=now_us(), generation=0, restore=None, careful=False), {})
    began = time.perf_counter()
    while worker.figures()[0].records_in < events:
        worker.step(now_us())
        worker.to_store()
    took = time.perf_counter() - began
    worker.close()
    return took


def check_cost(desk: Desk) -> Check:
    """CPU and latency with durable checkpoints every second against none at all, in turns."""
    without, with_ = [], []
    for _ in range(2):
        without.append(desk.observe("yahoo", COST_EPS, RECORD, COST_S, epoch="1h"))
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
            with_.append(desk.observe("yahoo", COST_EPS, RECORD, COST_S, checkpoint=directory))
    cores = [min(row.cpu_cores or 0.0 for row in rows) for rows in (without, with_)]
    p99_ms = [min(row.p99_ms or 0.0 for row in rows) for rows in (without, with_)]
    cost, higher_ms = 100 * (cores[1] / cores[0] - 1), p99_ms[1] - p99_ms[0]
    name, where = "CPU cost of a durable checkpoint every second", f", and p99 at most {COST_P99_MS_MAX:g} ms higher"
    detail = {"rate": COST_EPS, "cores": cores, "p99_ms": p99_ms, "better of": len(without)}
    return at_most(name, cost, "%", COST_MAX, detail, digits=1, where=where, also=higher_ms <= COST_P99_MS_MAX)
