"""The peer through the same failure: the Yahoo pipeline on Structured Streaming, whose processes are killed.

Run as a program of its own, with its own JVM, it tells what came out and when in one JSON object; the judge is that of
our own failures. Two kinds of loss: an executor of a real standalone cluster (the query is SQL, so that its JVM is what
works), and a Python worker of Spark in one process (parse, filter and join are a Python function on Arrow batches).
"""

from __future__ import annotations

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
from penstock_bench.engines.spark_queries import query
from penstock_bench.engines.spark_session import SETTINGS, open_spark
from penstock_bench.engines.standalone import executors, python_workers, standalone
from penstock_bench.meter.apart import apart, tell
from penstock_bench.meter.processes import Processes
from penstock_bench.meter.rows import Check, ResultRow, latency_fields
from penstock_bench.meter.timeline import DEFINITION, Shown, Timeline
from penstock_bench.studies.kills import WARM_UP_S, judge, views_due
from penstock_bench.workloads import WORKLOADS

WARM_UP_BATCHES = 12
"""Of a second's events each, before the query that is measured."""
START_S = 1.0
CALM_S = 5.0
FILE_S = 0.1
"""How often a file of input is closed."""
LOCAL_MASTER = "local[2,4]"
"""A failed task is tried up to 4 times, as on a cluster; in one process the default is not to try again."""
EXECUTOR_SETTINGS = {"spark.executor.cores": "1", "spark.executor.memory": "1g", "spark.cores.max": "2"}


class Victim(Enum):
    """What is killed."""

    EXECUTOR = "executor"
    PYTHON_WORKER = "python-worker"

    @property
    def kills_s(self) -> tuple[float, ...]:
        """When, after the calm time; an executor takes long to replace."""
        return (0.0,) if self is Victim.EXECUTOR else (0.0, 7.0)

    @property
    def seconds(self) -> float:
        """How long events come; they go on for a while after the last kill."""
        return WARM_UP_S + CALM_S + (20.0 if self is Victim.EXECUTOR else 14.0)


class Told(msgspec.Struct):
    """What the program tells."""

    start_us: int
    killed_us: list[int]
    shown: list[tuple[int, str, int, int]]
    """When, campaign, start of the window, count."""
    cpu_cores: float
    pss_mb: float
    failure: str | None
    """What the query has failed with, if it has."""


def _source(rate: float, seconds: float) -> Generator:
    return WORKLOADS["yahoo"].source(rate, seconds=seconds, partitions=1)


def lose(victim: Victim, rate: float) -> tuple[ResultRow, Check]:
    """Kill one process after the other at fixed times; measure latency from the scheduled time of every event."""
    told = apart("penstock_bench.studies.peer_kills", victim.value, str(rate), kind=Told)
    source = _source(rate, victim.seconds)
    due = views_due(source, told.start_us, keyed=True)
    timeline = Timeline.of(due, (Shown(at, (name, start), count) for at, name, start, count in told.shown))
    # The store keeps the newest count of every window.
    rows = [
        {"campaign_id": campaign, "window_start": start_us, "window_end": start_us + 10_000_000, "count": count}
        for (campaign, start_us), count in {(name, start): count for _, name, start, count in told.shown}.items()
    ]
    found = WORKLOADS["yahoo"].compare({group: len(times) for group, times in due.items()}, sorted(rows, key=str), 1)
    first_us, end_us = (told.start_us + round(s * 1e6) for s in (WARM_UP_S, victim.seconds))
    row = ResultRow(
        workload="yahoo",
        engine="spark",
        form="batch",
        rate=rate,
        seconds=victim.seconds - WARM_UP_S,
        events=source.total or 0,
        **latency_fields(timeline.between(first_us, end_us).latency_us),
        cpu_cores=told.cpu_cores,
        pss_mb=told.pss_mb,
        lost=found.lost,
        duplicated=found.duplicated + found.wrong,
        reordered=found.reordered,
        note=f"Structured Streaming, {len(told.killed_us)} x {victim.value} killed; {WARM_UP_BATCHES} batches before"
        + (f"; the query failed: {told.failure}" if told.failure else ""),
    )
    outcome = judge(timeline, [(at_us, 1) for at_us in told.killed_us], told.start_us, end_us, 2)
    exact = found.exact and told.failure is None
    caught_up = [loss.caught_up_s for loss in outcome.losses]
    settings: Any = LOCAL_MASTER if victim is Victim.PYTHON_WORKER else {"master": "standalone", **EXECUTOR_SETTINGS}
    return row, Check(
        f"Structured Streaming catches up after a killed {victim.value}, longest",
        round(max(filter(None, caught_up), default=0.0), 2),
        "s",
        "reported, and an exact result",
        exact and None not in caught_up,
        {
            "caught_up": "every event that was due before the kill is counted in what the sink has",
            "kills": [msgspec.to_builtins(loss) for loss in outcome.losses],
            "normal": DEFINITION,
            "calm_p99_ms": outcome.calm_p99_ms,
            "calm_silent_ms": timeline.silent_us(first_us, first_us + round(CALM_S * 1e6)) / 1000,
            "exact": exact,
            "settings": settings,
            **SETTINGS,
        },
    )


def _writer(victim: Victim, spark: Any, directory: Path, take: Callable[[Any, int], None], files: int = 0) -> Any:
    """The query on the files that come into ``directory/input``."""
    (directory / "input").mkdir(parents=True)
    lines = spark.readStream.format("text")
    if files:
        lines = lines.option("maxFilesPerTrigger", files)
    variant = "python" if victim is Victim.PYTHON_WORKER else "sql"
    asked = query(spark, lines.load(str(directory / "input")), "yahoo", variant, watermark=True)
    checkpoint = str(directory / "checkpoint")
    return asked.writeStream.outputMode("update").option("checkpointLocation", checkpoint).foreachBatch(take)


def _warm_up(victim: Victim, spark: Any, directory: Path, rate: float) -> None:
    """Run the same query on input that lies ready: executors start and code is compiled before events become due."""
    source, records = _source(rate, WARM_UP_BATCHES), int(rate)
    writer = _writer(victim, spark, directory, lambda batch, _: batch.collect(), 1).trigger(availableNow=True)
    for first in range(0, source.total or 0, records):
        rows = source.records(first, records, 0)
        (directory / "input" / f"{first:09}.json").write_bytes(b"".join(row.value + b"\n" for row in rows))
    writer.start().awaitTermination()


def _feed(directory: Path, source: Generator, start_us: int) -> None:
    """Write the events that have become due into a new file, again and again.

    Files can be read again by whoever takes a lost task over, and by all executors; a socket ends in the driver, which
    then packs every event into its tasks and falls behind at this rate.
    """
    reader, number = source.reader(0, 1, start_us), 0
    while (wake_us := reader.wake_us(time.time_ns() // 1000)) is not None:
        time.sleep(max(0.0, wake_us / 1e6 - time.time(), FILE_S))
        lines: list[bytes] = []
        while (batch := reader.poll(time.time_ns() // 1000, 4096)) is not None:
            lines += [row.value for row in batch.rows]
        if lines:
            (directory / "next").write_bytes(b"\n".join(lines) + b"\n")
            (directory / "next").rename(directory / "input" / f"{number:06}.json")
            number += 1


def run(victim: Victim, rate: float) -> Told:
    """Be the program."""
    shown: list[tuple[int, str, int, int]] = []
    killed_us: list[int] = []

    def take(batch: Any, batch_id: int) -> None:
        del batch_id
        rows, now_us = batch.collect(), time.time_ns() // 1000
        shown.extend((now_us, campaign, start_us, count) for campaign, start_us, count in rows)

    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        processes = stack.enter_context(Processes())
        spark, find = _open(victim, directory, stack)
        _warm_up(victim, spark, directory / "warm-up", rate)
        asked = _writer(victim, spark, directory, take).start()
        start_us = time.time_ns() // 1000 + int(START_S * 1e6)
        source = _source(rate, victim.seconds)
        feeder = threading.Thread(target=_feed, args=(directory, source, start_us), daemon=True)
        feeder.start()
        _sleep_until(start_us / 1e6 + WARM_UP_S)
        processes.restart()
        for after_s in victim.kills_s:
            _sleep_until(start_us / 1e6 + WARM_UP_S + CALM_S + after_s)
            find()[0].kill()
            killed_us.append(time.time_ns() // 1000)
        feeder.join()
        failure = _drain(asked)
        cores = processes.cpu_cores
    return Told(start_us, killed_us, shown, round(cores, 3), round(processes.memory_mb, 1), failure)


def _sleep_until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.time()))


def _open(victim: Victim, directory: Path, stack: ExitStack) -> tuple[Any, Callable[[], list[psutil.Process]]]:
    """Start Spark, and return it with the function that finds whom to kill."""
    if victim is Victim.PYTHON_WORKER:
        return stack.enter_context(open_spark(LOCAL_MASTER)), python_workers
    master = stack.enter_context(standalone(directory, cores=2, memory_gb=2))
    return stack.enter_context(open_spark(master, EXECUTOR_SETTINGS)), executors


def _drain(asked: Any) -> str | None:
    """Wait until everything is stored; return what the query has failed with, if it has."""
    from pyspark.errors import StreamingQueryException

    try:
        asked.processAllAvailable()
    except StreamingQueryException as error:
        return str(error).splitlines()[0]
    finally:
        asked.stop()
    return None


if __name__ == "__main__":
    tell(run(Victim(sys.argv[1]), float(sys.argv[2])))
