"""The peer: the Yahoo pipeline on Spark Structured Streaming, fed through a socket on the same schedule.

Run as a program of its own, so that it has its own JVM with Spark's own settings; prints one JSON row.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from penstock.bench.processes import ProcessMeter
from penstock.bench.rows import ResultRow
from penstock.bench.timeline import Shown
from penstock.bench.workloads import WORKLOADS, replay
from penstock.bench.workloads.yahoo import CAMPAIGN_OF_AD
from penstock.metrics import Histogram

SHUFFLE_PARTITIONS = 2
"""As many as there are cores; the default of 200 would only be slower."""
WARM_UP_S = 8.0
"""Its first batches compile; they are cut."""
DRAIN_S_MAX = 60.0
FILE_RECORDS = 100_000
SETTINGS = {"trigger": "as fast as possible", "spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS}


@contextmanager
def open_spark(master: str = "local[2]", settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Start Spark with its own settings, but for those named here and in ``settings``."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master)
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    session = (
        builder.config("spark.sql.shuffle.partitions", SHUFFLE_PARTITIONS)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def views_in_sql(spark: Any, lines: Any) -> Any:
    """Parse, filter and join in SQL: the campaign and time of every view."""
    from pyspark.sql import functions as f

    # A table of literals stays in the JVM; createDataFrame would bring Python workers into every batch.
    values = ", ".join(f"('{ad}', '{campaign}')" for ad, campaign in CAMPAIGN_OF_AD.items())
    ads = spark.sql(f"SELECT * FROM VALUES {values} AS ads(ad_id, campaign_id)")
    parsed = lines.select(f.from_json("value", "ad_id string, event_type string, event_time bigint").alias("e")).select(
        "e.ad_id", "e.event_type", f.timestamp_millis("e.event_time").alias("event_time")
    )
    return parsed.filter("event_type = 'view'").select("ad_id", "event_time").join(f.broadcast(ads), "ad_id")


def count_views(views: Any) -> Any:
    """Count views of each campaign in windows of 10 s."""
    from pyspark.sql import functions as f

    return (
        views.withWatermark("event_time", "1 second")
        .groupBy("campaign_id", f.window("event_time", "10 seconds"))
        .count()
    )


class Store:
    """The store: the newest count of every window, and when each batch was done."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, int], int] = {}
        self.shown: list[Shown] = []
        self.done_us: dict[int, int] = {}

    def take(self, batch: Any, batch_id: int) -> None:
        """Collect one micro-batch's updates."""
        rows = batch.collect()
        now_us = self.done_us[batch_id] = time.time_ns() // 1000
        for row in rows:
            group = row["campaign_id"], int(row["window"]["start"].timestamp() * 1e6)
            self.counts[group] = row["count"]
            self.shown.append(Shown(now_us, group, row["count"]))


def feed(server: socket.socket, source: Any, start_us: int) -> None:
    """Send every event at its scheduled time."""
    connection, _ = server.accept()
    reader = source.reader(0, 1, start_us)
    with connection:
        while (wake_us := reader.wake_us(time.time_ns() // 1000)) is not None:
            time.sleep(max(0.0, wake_us / 1e6 - time.time()))
            batch = reader.poll(time.time_ns() // 1000, 4096)
            if batch is not None:
                connection.sendall(b"".join(row.value + b"\n" for row in batch.rows))
        time.sleep(DRAIN_S_MAX)  # closing the socket would end the query before its last batch


def measure_latency(rate: float, seconds: float) -> ResultRow:
    """Measure the latency of every event from its scheduled time to the end of the batch that stored it."""
    workload = WORKLOADS["yahoo"]
    source = workload.source(rate, seconds=WARM_UP_S + seconds, partitions=1)
    events = source.total or 0
    with open_spark() as spark, socket.create_server(("127.0.0.1", 0)) as server:
        start_us = time.time_ns() // 1000 + 6_000_000  # the query needs some seconds to start
        threading.Thread(target=feed, args=(server, source, start_us), daemon=True).start()
        port = server.getsockname()[1]
        lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
        results = Store()
        with ProcessMeter() as meter, tempfile.TemporaryDirectory() as checkpoint:
            query = (
                count_views(views_in_sql(spark, lines))
                .writeStream.outputMode("update")
                .option("checkpointLocation", checkpoint)
                .foreachBatch(results.take)
                .start()
            )
            progress: dict[int, tuple[int, int]] = {}
            deadline = time.time() + 6 + WARM_UP_S + seconds + DRAIN_S_MAX
            restarted = False
            while time.time() < deadline and max((end for _, end in progress.values()), default=-1) < events - 1:
                time.sleep(0.2)
                if not restarted and time.time() * 1e6 > start_us + WARM_UP_S * 1e6:
                    meter.restart()
                    restarted = True
                for each in query.recentProgress:
                    begun, ended = each.sources[0].startOffset, each.sources[0].endOffset
                    progress[each.batchId] = (int(begun) if begun not in (None, "null") else -1, int(ended))
            query.stop()
        latency = _latencies(source, start_us, results, progress)
    found = workload.compare(workload.expected(replay(source, start_us)), as_rows(results.counts), 1)
    return ResultRow(
        workload="yahoo",
        engine="spark",
        form="batch",
        rate=rate,
        seconds=seconds,
        events=events,
        p50_ms=latency.quantile(0.5) / 1000,
        p90_ms=latency.quantile(0.9) / 1000,
        p99_ms=latency.quantile(0.99) / 1000,
        p999_ms=latency.quantile(0.999) / 1000,
        max_ms=latency.maximum / 1000,
        cpu_cores=round(meter.cpu_cores, 3),
        rss_mb=round(meter.rss_mb_max, 1),
        lost=found.lost,
        duplicated=found.duplicated + found.wrong,
        reordered=found.reordered,
        note=f"Structured Streaming, SQL, {len(results.done_us)} batches, warm-up of {WARM_UP_S:g} s cut",
    )


def _latencies(source: Any, start_us: int, results: Store, progress: dict[int, tuple[int, int]]) -> Histogram:
    histogram = Histogram()
    for batch_id, (begun, ended) in progress.items():
        for offset in range(begun + 1, ended + 1):
            scheduled_us = source.schedule.time_us(offset)
            if scheduled_us >= WARM_UP_S * 1e6 and batch_id in results.done_us:
                histogram.record(results.done_us[batch_id] - start_us - scheduled_us)
    return histogram


def as_rows(counts: dict[tuple[str, int], int]) -> list[dict[str, Any]]:
    """The last counts as rows of the workload's output; a table has no order of its own."""
    return [
        {"campaign_id": campaign, "window_start": start_us, "window_end": start_us + 10_000_000, "count": count}
        for (campaign, start_us), count in sorted(counts.items())
    ]


def measure_sustained(events: int, files_per_batch: int) -> ResultRow:
    """Measure the throughput on input that lies ready in files: no generator to wait for, large batches."""
    workload = WORKLOADS["yahoo"]
    source = workload.source(None, total=events, partitions=1)
    start_us = 1_700_000_000_000_000
    with open_spark() as spark, tempfile.TemporaryDirectory() as directory:
        files = Path(directory) / "input"
        files.mkdir()
        for i in range(0, events, FILE_RECORDS):
            rows = source.records(i, min(FILE_RECORDS, events - i), start_us)
            (files / f"{i:09}.json").write_bytes(b"".join(row.value + b"\n" for row in rows))
        lines = spark.readStream.format("text").option("maxFilesPerTrigger", files_per_batch).load(str(files))
        results = Store()
        with ProcessMeter() as meter:
            query = (
                count_views(views_in_sql(spark, lines))
                .writeStream.outputMode("update")
                .option("checkpointLocation", str(Path(directory) / "checkpoint"))
                .trigger(availableNow=True)
                .foreachBatch(results.take)
                .start()
            )
            query.awaitTermination()
        done = [results.done_us[b] for b in sorted(results.done_us)]
        batch_events = FILE_RECORDS * files_per_batch
        warm = len(done) // 2  # the first half compiles and warms up
        rate = batch_events * (len(done) - 1 - warm) / ((done[-1] - done[warm]) / 1e6)
    found = workload.compare(workload.expected(replay(source, start_us)), as_rows(results.counts), 1)
    return ResultRow(
        workload="yahoo",
        engine="spark",
        form="batch",
        rate=None,
        seconds=(done[-1] - done[warm]) / 1e6,
        events=events,
        sustained_eps=round(rate),
        cpu_cores=round(meter.cpu_cores, 3),
        rss_mb=round(meter.rss_mb_max, 1),
        lost=found.lost,
        duplicated=found.duplicated + found.wrong,
        note=f"Structured Streaming, SQL, batches of {batch_events:,} events ready in files, first half cut",
    )


def main() -> None:
    """Run one measurement: ``latency RATE SECONDS`` or ``sustained EVENTS FILES_PER_BATCH``."""
    what, first, second = sys.argv[1:]
    row = (
        measure_latency(float(first), float(second))
        if what == "latency"
        else measure_sustained(int(first), int(second))
    )
    print(json.dumps(msgspec.to_builtins(row)))


if __name__ == "__main__":
    main()
