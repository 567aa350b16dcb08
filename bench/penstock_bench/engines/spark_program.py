"""Structured Streaming as a program of its own, with its own JVM and Spark's own settings; `spark` starts it.

Lines come through Spark's own in-memory sources, or lie ready in files: its socket source takes time with the square of
a batch's size, and Real-Time Mode does not read from it. Micro-batches are stored in the driver; Real-Time Mode stamps
rows behind the last operator.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from penstock_bench.engines.inputs import LINES
from penstock_bench.engines.spark_queries import query
from penstock_bench.engines.spark_session import open_spark
from penstock_bench.foreign.programs.lines import Lines
from penstock_bench.foreign.programs.outlog import OutLog

POLL_S = 0.1
PRIME_LINES = 1_000
STAMP = "unix_micros(CAST(java_method('java.time.Instant', 'now') AS timestamp)) AS out_us"


def _micro_batches(spec: dict[str, Any]) -> None:
    log = OutLog(spec["out"], "driver")
    order = {"file": "time", "grep": "number", "scoring": "number", "lookup": "number"}.get(spec["workload"])

    def store(batch: Any, batch_id: int) -> None:
        del batch_id
        rows = batch.collect()
        if order is not None:
            # A batch leaves as a whole, its rows have no order among each other; the check looks at that of batches.
            rows.sort(key=itemgetter(order))
        log.rows([json.dumps(list(row)).encode() for row in rows])
        log.flush()

    with open_spark(spec["master"], spec["settings"]) as spark:
        if "files" in spec:
            lines = spark.readStream.format("text").option("maxFilesPerTrigger", spec["files_per_batch"])
            writer = _writer(spark, lines.load(spec["files"]), spec, "checkpoint").trigger(availableNow=True)
            writer.foreachBatch(store).start().awaitTermination()
        else:
            _from_socket(spark, spec, store)
    log.close()


def _from_socket(spark: Any, spec: dict[str, Any], store: Any) -> None:
    with (Path(spec["out"]) / LINES.format(0)).open("rb") as file:
        lines = [line.rstrip(b"\n") for line in islice(file, PRIME_LINES)]
    # The same query over some lines, its rows thrown away: an engine that is up has compiled its query.
    first = _MemorySource(spark, 0, "runtime.MemoryStream", spec["parallelism"])
    first.add(lines)
    writer = _writer(spark, first.lines, spec, "primed").trigger(availableNow=True)
    writer.foreachBatch(lambda batch, _: batch.collect()).start().awaitTermination()
    source = _MemorySource(spark, spec["port"], "runtime.MemoryStream", spec["parallelism"])
    writer = _writer(spark, source.lines, spec, "checkpoint")
    if spec["trigger"]:
        writer = writer.trigger(processingTime=spec["trigger"])
    running = writer.foreachBatch(store).start()
    threading.Thread(target=source.feed, daemon=True).start()
    while not source.ended:
        time.sleep(POLL_S)
        _check(running)
    # Also the batch without data, which brings out what the last watermark has closed.
    running.processAllAvailable()
    running.stop()


def _writer(spark: Any, lines: Any, spec: dict[str, Any], checkpoint: str) -> Any:
    rows, mode = query(spark, lines, spec, watermark=True)
    return rows.writeStream.outputMode(mode).option("checkpointLocation", str(Path(spec["out"]) / checkpoint))


class _RealTimeWriter:
    """Takes rows in Python, some time after they have left; their stamps say when that was."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def open(self, partition: int, epoch: int) -> bool:
        self._file = (Path(self._directory) / f"out-{partition}-{epoch}.log").open("wb", 1 << 20)
        return True

    def process(self, row: Any) -> None:
        *values, out_us = row
        self._file.write(b"%d\t%b\n" % (out_us, json.dumps(values).encode()))

    def close(self, error: Exception | None) -> None:
        self._file.close()


class _MemorySource:
    """Hands what comes over the socket to Spark's source; a piece holds all the lines that had come."""

    def __init__(self, spark: Any, port: int, name: str, partitions: int) -> None:
        from pyspark.sql.classic.dataframe import DataFrame

        jvm = spark._jvm
        package, _, kind = name.partition(".")
        streams = getattr(jvm.org.apache.spark.sql.execution.streaming, package)
        text = jvm.org.apache.spark.sql.Encoders.STRING()
        self._stream = getattr(streams, kind).apply(spark._jsparkSession, partitions, text)
        self._list = jvm.java.util.Collections.singletonList
        self._convert = jvm.scala.jdk.javaapi.CollectionConverters.asScala
        self._port = port
        self.lines = DataFrame(self._stream.toDF(), spark).selectExpr("explode(split(value, '\\n')) AS value")
        self.pieces = 0
        self.ended = False

    def add(self, lines: list[bytes]) -> None:
        """Hand lines over as one piece."""
        self._stream.addData(self._convert(self._list(b"\n".join(lines).decode())))
        self.pieces += 1

    def feed(self) -> None:
        """Pass everything on until the input ends."""
        lines = Lines(self._port, blocking=True)
        while (batch := lines.read()) is not None:
            if batch:
                self.add(batch)
        self.ended = True


def _between_topics(spec: dict[str, Any]) -> None:
    """From one topic to the other, until the end of the standard input."""
    is_real_time = spec["variant"] == "real-time"
    with open_spark(spec["master"], spec["settings"]) as spark:
        read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", spec["servers"])
        read = read.option("subscribe", spec["events"]).option("startingOffsets", "earliest")
        lines = read.load().selectExpr("CAST(value AS string) AS value")
        rows, mode = query(spark, lines, spec, watermark=not is_real_time)
        written = rows.selectExpr("campaign_id AS key", "to_json(struct(*)) AS value").writeStream.format("kafka")
        written = written.option("kafka.bootstrap.servers", spec["servers"]).option("topic", spec["results"])
        written = written.option("checkpointLocation", str(Path(spec["out"]) / "checkpoint")).outputMode(mode)
        if spec["trigger"]:
            written = written.trigger(**{"realTime" if is_real_time else "processingTime": spec["trigger"]})
        running = written.start()
        threading.Thread(target=lambda: (sys.stdin.read(), running.stop()), daemon=True).start()
        running.awaitTermination()


def _real_time(spec: dict[str, Any]) -> None:
    with open_spark(spec["master"], spec["settings"]) as spark:
        source = _MemorySource(spark, spec["port"], "sources.LowLatencyMemoryStream", 1)
        rows, _ = query(spark, source.lines, spec, watermark=False)
        running = (
            rows.selectExpr("*", STAMP)
            .writeStream.outputMode("update")
            .trigger(realTime=spec["trigger"])
            .option("checkpointLocation", str(Path(spec["out"]) / "checkpoint"))
            .foreach(_RealTimeWriter(spec["out"]))
            .start()
        )
        while not any(each.batchId >= 0 for each in running.recentProgress):
            time.sleep(POLL_S)
            _check(running)
        threading.Thread(target=source.feed, daemon=True).start()
        while not source.ended or _rows_read(running) < source.pieces:
            time.sleep(POLL_S)
            _check(running)
        running.stop()


def _rows_read(running: Any) -> int:
    return sum(each.numInputRows for each in running.recentProgress)


def _check(running: Any) -> None:
    if running.exception() is not None:
        raise running.exception()


if __name__ == "__main__":
    given = json.loads(Path(os.environ["PENSTOCK_SPEC"]).read_text())
    if "servers" in given:
        _between_topics(given)
    else:
        (_real_time if given["variant"] == "real-time" else _micro_batches)(given)
