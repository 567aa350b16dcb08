"""What Structured Streaming carries: a workload's lines lie ready in files, so that no generator limits it.

Run as a program with a JVM of its own, it prints one JSON row. `make bench` and `study throughput` call it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from penstock_bench.engines import subject
from penstock_bench.engines.spark_queries import query
from penstock_bench.engines.spark_session import open_spark
from penstock_bench.meter.processes import ProcessMeter
from penstock_bench.meter.rows import ResultRow

FILE_RECORDS = 100_000
EVENT_START_US = 1_700_000_000_000_000
SCHEDULE_EPS = 1e6
"""Of the times in the events; the files are read as fast as it goes."""
RUN_S_MAX = 600.0


def measure(name: str, events: int, files_per_batch: int, variant: str = "sql", cores: int = 2) -> ResultRow:
    """Measure the events per second of the second half of the micro-batches; the first half compiles and warms up."""
    workload = subject(name)
    given = workload.input(SCHEDULE_EPS, None, total=events)
    with open_spark(f"local[{cores}]") as spark, tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        files = Path(directory) / "input"
        files.mkdir()
        for first in range(0, events, FILE_RECORDS):
            records = given.records(first, FILE_RECORDS, EVENT_START_US)
            (files / f"{first:09}.txt").write_bytes(b"".join(workload.line(each) + b"\n" for each in records))
        lines = spark.readStream.format("text").option("maxFilesPerTrigger", files_per_batch).load(str(files))
        rows: list[tuple[int, list[Any]]] = []
        done_us: list[int] = []

        def store(batch: Any, batch_id: int) -> None:
            del batch_id
            found = batch.collect()
            done_us.append(time.time_ns() // 1000)
            rows.extend((done_us[-1], list(row)) for row in found)

        with ProcessMeter() as meter:
            asked = query(spark, lines, workload.specification()["workload"], variant, watermark=True)
            running = asked.writeStream.outputMode("update").trigger(availableNow=True).foreachBatch(store)
            running.option("checkpointLocation", str(Path(directory) / "checkpoint")).start().awaitTermination()
    batch_events, warm = FILE_RECORDS * files_per_batch, len(done_us) // 2
    took_s = (done_us[-1] - done_us[warm]) / 1e6
    # One file after the other, each read by one task: there is no order among the rows of a micro-batch.
    rows.sort(key=lambda row: (row[0], row[1][0] if isinstance(row[1][0], int) else 0))
    _, found = workload.judge(given, rows, 0, EVENT_START_US, 1)
    return ResultRow(
        workload=workload.name,
        engine="spark",
        form="batch",
        rate=None,
        seconds=took_s,
        events=events,
        sustained_eps=round(batch_events * (len(done_us) - 1 - warm) / took_s),
        cpu_cores=round(meter.cpu_cores, 3),
        rss_mb=round(meter.rss_mb_max, 1),
        lost=found.lost,
        duplicated=found.duplicated + found.wrong,
        variant=variant,
        note=f"Structured Streaming, {variant}, batches of {batch_events:,} events ready in files, first half cut",
    )


def measure_apart(name: str, events: int, files_per_batch: int, variant: str = "sql") -> ResultRow:
    """Measure in a process of its own."""
    arguments = [name, str(events), str(files_per_batch), variant]
    command = [sys.executable, "-m", "penstock_bench.studies.short.peer_throughput", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=RUN_S_MAX)
    return msgspec.convert(json.loads(done.stdout.splitlines()[-1]), ResultRow)


def main() -> None:
    """Run one measurement: ``WORKLOAD EVENTS FILES_PER_BATCH VARIANT``."""
    name, events, files_per_batch, variant = sys.argv[1:]
    print(json.dumps(msgspec.to_builtins(measure(name, int(events), int(files_per_batch), variant))))


if __name__ == "__main__":
    main()
