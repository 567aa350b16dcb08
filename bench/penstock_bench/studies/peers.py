"""Structured Streaming beside our own runs, where a study has a place for it and was asked to.

What it carries is measured in a process of its own (this module, run as a program), on lines that lie ready in files,
so that no generator limits it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock_bench.engines import RunOptions, open_engine, subject
from penstock_bench.engines.spark_queries import query
from penstock_bench.engines.spark_session import open_spark
from penstock_bench.meter.apart import apart, tell
from penstock_bench.meter.processes import Processes
from penstock_bench.meter.rows import ResultRow
from penstock_bench.meter.runner import measure, new_run
from penstock_bench.meter.subject import Came
from penstock_bench.report.words import number
from penstock_bench.studies.base import Desk

ENGINES = ("penstock:adaptive", "spark:sql")
SHORT_WARM_UP_S = 4.0
FILES = {"yahoo": (2_400_000, (2, 6)), "wordcount": (1_200_000, (3,)), "grep": (2_400_000, (6,))}
"""By workload: events, and how many files of 100,000 events each make a micro-batch; the best one counts."""
QUICK_EVENTS = 400_000
FILE_RECORDS = 100_000
EVENT_START_US = 1_700_000_000_000_000
SCHEDULE_EPS = 1e6
"""Of the times in the events; the files are read as fast as it goes."""


def latency_beside(desk: Desk, workload: str, rate: float, seconds: float) -> None:
    """Measure ours and theirs at a rate through the meter of the engines: fed alike, judged by what came out."""
    options = RunOptions(parallelism=desk.options.parallelism)
    if desk.options.short:
        options = replace(options, warm_up_s=SHORT_WARM_UP_S)
    run = new_run()
    for engine in ENGINES:
        desk.tell(f"{workload} at {number(rate)}/s, {engine}, from outside")
        row, _ = measure(open_engine(engine), subject(workload), rate, desk.seconds(seconds), options, run)
        # Not to be compared with what a job says of itself: a table of its own.
        row.workload = outside(workload)
        desk.add(row)


def outside(workload: str) -> str:
    """What a workload is called where engines are measured from outside."""
    return f"{workload}, engines"


def carried_from_files(desk: Desk, workload: str) -> None:
    """Measure the throughput of its query on input that lies ready in files."""
    events, files = FILES[workload] if not desk.options.quick else (QUICK_EVENTS, (1,))
    for each in files[-1:] if desk.options.short else files:
        desk.add(apart("penstock_bench.studies.peers", workload, str(events), str(each), kind=ResultRow))


def from_files(name: str, events: int, files_per_batch: int, variant: str = "sql", cores: int = 2) -> ResultRow:
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

        with Processes() as processes:
            asked = query(spark, lines, workload.specification()["workload"], variant, watermark=True)
            running = asked.writeStream.outputMode("update").trigger(availableNow=True).foreachBatch(store)
            running.option("checkpointLocation", str(Path(directory) / "checkpoint")).start().awaitTermination()
            cores_used = processes.cpu_cores
    batch_events, warm = FILE_RECORDS * files_per_batch, len(done_us) // 2
    took_s = (done_us[-1] - done_us[warm]) / 1e6
    # One file after the other, each read by one task: there is no order among the rows of a micro-batch.
    rows.sort(key=lambda row: (row[0], row[1][0] if isinstance(row[1][0], int) else 0))
    _, found = workload.judge(given, Came(rows, 0, EVENT_START_US))
    return ResultRow(
        workload=workload.name,
        engine="spark",
        form="batch",
        rate=None,
        seconds=took_s,
        events=events,
        sustained_eps=round(batch_events * (len(done_us) - 1 - warm) / took_s),
        cpu_cores=round(cores_used, 3),
        pss_mb=round(processes.memory_mb, 1),
        lost=found.lost,
        duplicated=found.duplicated + found.wrong,
        variant=variant,
        note=f"Structured Streaming, {variant}, batches of {batch_events:,} events ready in files, first half cut",
    )


if __name__ == "__main__":
    tell(from_files(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
