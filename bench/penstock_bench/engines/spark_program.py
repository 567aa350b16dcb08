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
from collections.abc import Callable
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


def _micro_batches(spark: Any, spec: dict[str, Any]) -> None:
    log = OutLog(spec["out"], "driver")
    order = {"file": "time", "grep": "number", "scoring": "number", "lookup": "number"}.get(spec["workload"])

    def store(batch: Any, _: int) -> None:
        rows = batch.collect()
        if order is not None:
            # A batch leaves as a whole, its rows have no order among each other; the check looks at that of batches.
            rows.sort(key=itemgetter(order))
        log.rows([json.dumps(list(row)).encode() for row in rows])
        log.flush()

    if "files" in spec:
        lines = spark.readStream.format("text").option("maxFilesPerTrigger", spec["files_per_batch"])
        writer = _writer(*_query(spark, lines.load(spec["files"]), spec), spec).trigger(availableNow=True)
        writer.foreachBatch(store).start().awaitTermination()
    else:
        _from_socket(spark, spec, store)
    log.close()


def _query(spark: Any, lines: Any, spec: dict[str, Any]) -> tuple[Any, str]:
    return query(spark, lines, spec, watermark=spec["variant"] != "real-time")


def _writer(rows: Any, mode: str, spec: dict[str, Any], checkpoint: str = "checkpoint") -> Any:
    return rows.writeStream.outputMode(mode).option("checkpointLocation", str(Path(spec["out"]) / checkpoint))


def _until(running: Any, over: Callable[[], bool]) -> None:
    while not over():
        time.sleep(POLL_S)
        if running.exception() is not None:
            raise running.exception()


def _from_socket(spark: Any, spec: dict[str, Any], store: Any) -> None:
    with (Path(spec["out"]) / LINES.format(0)).open("rb") as file:
        lines = [line.rstrip(b"\n") for line in islice(file, PRIME_LINES)]
    # The same query over some lines, its rows thrown away: an engine that is up has compiled its query.
    first = _MemorySource(spark, 0, "runtime.MemoryStream", spec["parallelism"])
    first.add(lines)
    writer = _writer(*_query(spark, first.lines, spec), spec, "primed").trigger(availableNow=True)
    writer.foreachBatch(lambda batch, _: batch.collect()).start().awaitTermination()
    source = _MemorySource(spark, spec["port"], "runtime.MemoryStream", spec["parallelism"])
    writer = _writer(*_query(spark, source.lines, spec), spec)
    if spec["trigger"]:
        writer = writer.trigger(processingTime=spec["trigger"])
    running = writer.foreachBatch(store).start()
    threading.Thread(target=source.feed, daemon=True).start()
    _until(running, lambda: source.ended)
    # Also the batch without data, which brings out what the last watermark has closed.
    running.processAllAvailable()
    running.stop()


class _RealTimeWriter:
    """Takes rows in Python, some time after they have left; their stamps say when that was."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def open(self, partition: int, epoch: int) -> bool:
        self._log = OutLog(self._directory, f"{partition}-{epoch}")
        return True

    def process(self, row: Any) -> None:
        *values, out_us = row
        self._log.rows([json.dumps(values).encode()], out_us)

    def close(self, error: Exception | None) -> None:
        self._log.close()


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
        self._stream.addData(self._convert(self._list(b"\n".join(lines).decode())))
        self.pieces += 1

    def feed(self) -> None:
        """Pass everything on until the input ends."""
        lines = Lines(self._port, blocking=True)
        while (batch := lines.read()) is not None:
            if batch:
                self.add(batch)
        self.ended = True


def _between_topics(spark: Any, spec: dict[str, Any]) -> None:
    """From one topic to the other, until the end of the standard input."""
    kafka = {"kafka.bootstrap.servers": spec["servers"]}
    read = {**kafka, "subscribe": spec["events"], "startingOffsets": "earliest"}
    lines = spark.readStream.format("kafka").options(**read).load().selectExpr("CAST(value AS string) AS value")
    rows, mode = _query(spark, lines, spec)
    writer = _writer(rows.selectExpr("campaign_id AS key", "to_json(struct(*)) AS value"), mode, spec)
    writer = writer.format("kafka").options(**kafka, topic=spec["results"])
    if spec["trigger"]:
        kind = "realTime" if spec["variant"] == "real-time" else "processingTime"
        writer = writer.trigger(**{kind: spec["trigger"]})
    running = writer.start()
    threading.Thread(target=lambda: (sys.stdin.read(), running.stop()), daemon=True).start()
    running.awaitTermination()


def _real_time(spark: Any, spec: dict[str, Any]) -> None:
    source = _MemorySource(spark, spec["port"], "sources.LowLatencyMemoryStream", 1)
    rows, _ = _query(spark, source.lines, spec)
    writer = _writer(rows.selectExpr("*", STAMP), "update", spec).trigger(realTime=spec["trigger"])
    running = writer.foreach(_RealTimeWriter(spec["out"])).start()
    _until(running, lambda: any(each.batchId >= 0 for each in running.recentProgress))
    threading.Thread(target=source.feed, daemon=True).start()
    _until(
        running,
        lambda: source.ended and sum(each.numInputRows for each in running.recentProgress) >= source.pieces,
    )
    running.stop()


if __name__ == "__main__":
    given = json.loads(Path(os.environ["PENSTOCK_SPEC"]).read_text())
    with open_spark(given["master"], given["settings"]) as session:
        if "servers" in given:
            _between_topics(session, given)
        else:
            (_real_time if given["variant"] == "real-time" else _micro_batches)(session, given)
