"""The peer through the same failure: the Yahoo pipeline on Structured Streaming, whose processes are killed.

Run as a program of its own, with its own JVM; prints one JSON object with a row and a check. Two kinds of loss: an
executor of a real standalone cluster (the query is SQL, so that its JVM is what works), and a Python worker of Spark in
one process (parse, filter and join are a Python function on Arrow batches).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import psutil

from penstock.connectors.generator import Generator
from penstock.runtime.report import Latency
from penstock_bench.engines.spark_queries import query
from penstock_bench.engines.spark_session import SETTINGS, open_spark
from penstock_bench.engines.standalone import executors, python_workers, standalone
from penstock_bench.meter.processes import ProcessMeter
from penstock_bench.meter.rows import Check, ResultRow
from penstock_bench.meter.timeline import DEFINITION, Recovery, Shown, Timeline
from penstock_bench.meter.views import views_due
from penstock_bench.workloads import WORKLOADS

WARM_UP_BATCHES = 12
"""Of a second's events each, before the query that is measured."""
START_S = 1.0
SETTLE_S = 3.0
"""Cut: the query that is measured begins."""
CALM_S = 5.0
RUN_S_MAX = 300.0
FILE_S = 0.1
"""How often a file of input is closed."""
LOCAL_MASTER = "local[2,4]"
"""A failed task is tried up to 4 times, as on a cluster; in one process the default is not to try again."""
EXECUTOR_SETTINGS = {"spark.executor.cores": "1", "spark.executor.memory": "1g", "spark.cores.max": "2"}


class Victim(Enum):
    """What is killed."""

    EXECUTOR = "executor"
    PYTHON_WORKER = "python-worker"


KILLS_S = {Victim.EXECUTOR: (0.0,), Victim.PYTHON_WORKER: (0.0, 7.0)}
"""When, after the calm time; an executor takes long to replace."""
AFTER_S = {Victim.EXECUTOR: 20.0, Victim.PYTHON_WORKER: 7.0}
"""How long events go on after the last kill."""


class Store:
    """The store: the newest count of every window, and when each was shown."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, int], int] = {}
        self.shown: list[Shown] = []

    def take(self, batch: Any, batch_id: int) -> None:
        """Collect one micro-batch's updates."""
        del batch_id
        rows = batch.collect()
        now_us = time.time_ns() // 1000
        for campaign, start_us, count in rows:
            self.counts[campaign, start_us] = count
            self.shown.append(Shown(now_us, (campaign, start_us), count))

    def rows(self) -> list[dict[str, Any]]:
        """The last counts as rows of the workload's output; a table has no order of its own."""
        return [
            {"campaign_id": campaign, "window_start": start_us, "window_end": start_us + 10_000_000, "count": count}
            for (campaign, start_us), count in sorted(self.counts.items())
        ]


def _writer(victim: Victim, spark: Any, directory: Path, results: Store, files_per_batch: int = 0) -> Any:
    """The query on the files that come into ``directory/input``."""
    (directory / "input").mkdir(parents=True)
    lines = spark.readStream.format("text")
    if files_per_batch:
        lines = lines.option("maxFilesPerTrigger", files_per_batch)
    variant = "python" if victim is Victim.PYTHON_WORKER else "sql"
    return (
        query(spark, lines.load(str(directory / "input")), "yahoo", variant, watermark=True)
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .foreachBatch(results.take)
    )


def _warm_up(victim: Victim, spark: Any, directory: Path, rate: float) -> None:
    """Run the same query on input that lies ready: executors start and code is compiled before events become due."""
    source = WORKLOADS["yahoo"].source(rate, seconds=WARM_UP_BATCHES, partitions=1)
    writer = _writer(victim, spark, directory, Store(), files_per_batch=1).trigger(availableNow=True)
    records = int(rate)
    for first in range(0, source.total or 0, records):
        rows = source.records(first, records, 0)
        (directory / "input" / f"{first:09}.json").write_bytes(b"".join(row.value + b"\n" for row in rows))
    writer.start().awaitTermination()


def _feed(directory: Path, source: Generator, start_us: int) -> None:
    """Write the events that have become due into a new file, again and again.

    Files can be read again by whoever takes a lost task over, and by all executors; a socket ends in the driver, which
    then packs every event into its tasks and falls behind at this rate.
    """
    reader = source.reader(0, 1, start_us)
    number = 0
    while (wake_us := reader.wake_us(time.time_ns() // 1000)) is not None:
        time.sleep(max(0.0, wake_us / 1e6 - time.time(), FILE_S))
        lines: list[bytes] = []
        while (batch := reader.poll(time.time_ns() // 1000, 4096)) is not None:
            lines += [row.value for row in batch.rows]
        if lines:
            written = directory / "next"
            written.write_bytes(b"\n".join(lines) + b"\n")
            written.rename(directory / "input" / f"{number:06}.json")
            number += 1


def measure(victim: Victim, rate: float) -> tuple[ResultRow, Check]:
    """Kill one process after the other at fixed times; measure latency from the scheduled time of every event."""
    workload = WORKLOADS["yahoo"]
    seconds = SETTLE_S + CALM_S + KILLS_S[victim][-1] + AFTER_S[victim]
    source = workload.source(rate, seconds=seconds, partitions=1)
    results = Store()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        meter = stack.enter_context(ProcessMeter())
        spark, find = _open(victim, directory, stack)
        _warm_up(victim, spark, directory / "warm-up", rate)
        query = _writer(victim, spark, directory, results).start()
        start_us = time.time_ns() // 1000 + int(START_S * 1e6)
        feeder = threading.Thread(target=_feed, args=(directory, source, start_us), daemon=True)
        feeder.start()
        calm_us = [start_us + int(s * 1e6) for s in (SETTLE_S, SETTLE_S + CALM_S)]
        killed_us = _kill(find, meter, calm_us, KILLS_S[victim])
        feeder.join()
        failure = _drain(query)
    due = views_due(source, start_us, keyed=True)
    timeline = Timeline.of(due, results.shown)
    found = workload.compare({group: len(times) for group, times in due.items()}, results.rows(), 1)
    latency = Latency.of(timeline.between(calm_us[0], start_us + int(seconds * 1e6)).latency_us)
    row = ResultRow(
        workload="yahoo",
        engine="spark",
        form="batch",
        rate=rate,
        seconds=seconds - SETTLE_S,
        events=source.total or 0,
        p50_ms=latency.p50,
        p90_ms=latency.p90,
        p99_ms=latency.p99,
        p999_ms=latency.p999,
        max_ms=latency.max,
        cpu_cores=round(meter.cpu_cores, 3),
        rss_mb=round(meter.rss_mb_max, 1),
        lost=found.lost,
        duplicated=found.duplicated + found.wrong,
        reordered=found.reordered,
        note=f"Structured Streaming, {len(killed_us)} x {victim.value} killed, {WARM_UP_BATCHES} batches of warm-up"
        + (f"; the query failed: {failure}" if failure else ""),
    )
    calm = timeline.calm(calm_us[0], killed_us[0])
    ends_us = [*killed_us[1:], start_us + int(seconds * 1e6)]
    recoveries = [timeline.recovery(at, end, calm.p99_us) for at, end in zip(killed_us, ends_us, strict=True)]
    silent_ms = timeline.silent_us(calm_us[0], calm_us[1]) / 1000
    return row, _check(victim, recoveries, calm, silent_ms, exact=found.exact and failure is None)


def _open(victim: Victim, directory: Path, stack: ExitStack) -> tuple[Any, Callable[[], list[psutil.Process]]]:
    """Start Spark, and return it with the function that finds whom to kill."""
    if victim is Victim.PYTHON_WORKER:
        return stack.enter_context(open_spark(LOCAL_MASTER)), python_workers
    master = stack.enter_context(standalone(directory, cores=2, memory_gb=2))
    return stack.enter_context(open_spark(master, EXECUTOR_SETTINGS)), executors


def _kill(
    find: Callable[[], list[psutil.Process]], meter: ProcessMeter, calm_us: list[int], kills_s: tuple[float, ...]
) -> list[int]:
    killed_us: list[int] = []
    time.sleep(max(0.0, calm_us[0] / 1e6 - time.time()))
    meter.restart()
    for after_s in kills_s:
        time.sleep(max(0.0, calm_us[1] / 1e6 + after_s - time.time()))
        find()[0].kill()
        killed_us.append(time.time_ns() // 1000)
    return killed_us


def _drain(query: Any) -> str | None:
    """Wait until everything is stored; return what the query has failed with, if it has."""
    from pyspark.errors import StreamingQueryException

    try:
        query.processAllAvailable()
    except StreamingQueryException as error:
        return str(error).splitlines()[0]
    finally:
        query.stop()
    return None


def _check(victim: Victim, recoveries: list[Recovery], calm: Timeline, calm_silent_ms: float, *, exact: bool) -> Check:
    never = sum(each.caught_up_s is None for each in recoveries)
    slowest = max((each.caught_up_s for each in recoveries if each.caught_up_s is not None), default=0.0)
    settings = {Victim.EXECUTOR: {"master": "standalone", **EXECUTOR_SETTINGS}, Victim.PYTHON_WORKER: LOCAL_MASTER}
    return Check(
        name=f"Structured Streaming catches up after a killed {victim.value}, longest",
        value=round(slowest, 2),
        unit="s",
        target="reported, and an exact result",
        met=exact and not never,
        detail={
            "never": never,
            "caught_up": "every event that was due before the kill is counted in what the sink has",
            "caught_up_s": [each.caught_up_s for each in recoveries],
            "normal": DEFINITION,
            "normal_s": [each.normal_s for each in recoveries],
            "silent_ms": [each.silent_ms for each in recoveries],
            "peak_ms": [each.peak_ms for each in recoveries],
            "calm_p99_ms": round(calm.p99_us / 1000, 1),
            "calm_silent_ms": calm_silent_ms,
            "exact": exact,
            "settings": settings[victim],
            **SETTINGS,
        },
    )


def measure_peer(victim: Victim, rate: float) -> tuple[ResultRow, Check]:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", "penstock_bench.studies.short.peer_failure", victim.value, str(rate)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=RUN_S_MAX)
    told = json.loads(done.stdout.splitlines()[-1])
    return msgspec.convert(told["row"], ResultRow), msgspec.convert(told["check"], Check)


def main() -> None:
    """Run one measurement: ``executor|python-worker RATE``."""
    victim, rate = sys.argv[1:]
    row, check = measure(Victim(victim), float(rate))
    print(json.dumps({"row": msgspec.to_builtins(row), "check": msgspec.to_builtins(check)}))


if __name__ == "__main__":
    main()
