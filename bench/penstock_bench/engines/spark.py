"""Spark Structured Streaming: micro-batches in SQL or with Arrow functions in Python, and Real-Time Mode."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import ClassVar

from penstock.durations import parse_us
from penstock.errors import JavaMissing
from penstock.runtime.java import check_java
from penstock_bench.engines.file_subject import FileSubject
from penstock_bench.engines.socket_run import Launch, run_fed
from penstock_bench.engines.spark_session import SHUFFLE_PARTITIONS
from penstock_bench.meter.engine import Engine, Observation, Rate, RunOptions, cannot
from penstock_bench.meter.subject import Subject

REAL_TIME_BATCH = "5s"
"""Length of Real-Time Mode's batches: how often it checkpoints, not how soon results come. The least it allows."""

SETTINGS = {
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming.checkpointing."
    "FileSystemBasedCheckpointFileManager"
}
"""Spark's default starts a process, readlink, for every file of a checkpoint on a local disk, which takes longer than
many a batch."""

_NO_LOADS = "it runs built-in functions only; spark:python has them"


class Spark(Engine):
    """Micro-batches from Spark's in-memory source; each batch is stored by the driver."""

    name = "spark"
    variants: ClassVar = {
        "sql": "built-in functions only",
        "python": "parsing, filter and join in Python with Arrow (mapInArrow), counting in SQL",
    }
    options: ClassVar = {"trigger": "time between micro-batches, '0s' (as fast as possible, the default), '1s' …"}

    @property
    def form(self) -> str:
        return "batch"

    def version(self) -> str:
        return version("pyspark")

    def supports(self, subject: Subject) -> str | None:
        try:
            check_java()
        except JavaMissing as error:
            return str(error)
        if self.variant == "sql" and subject.not_in_sql:
            return subject.not_in_sql
        if self.variant == "python":
            return cannot(subject)
        if isinstance(subject, FileSubject) and subject.nested:
            return (
                f"'{subject.nested}' has state behind state, for which it needs a watermark that a join does not give"
            )
        if isinstance(subject, FileSubject) and subject.once:
            return f"'{subject.once[0]}' pairs every message once, which no join of SQL does"
        return cannot(subject, ("window", "join"), loads=_NO_LOADS)

    def run(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Observation:
        self.check(options.settings)
        trigger_us = parse_us(options.settings.get("trigger", "0s"), option="trigger", allow_zero=True)
        trigger = f"{trigger_us // 1000} milliseconds" if trigger_us else ""
        found = run_fed(self.label, subject, rate, seconds, options, _launch(self.variant, trigger, closing=True))
        found.settings.update(
            {
                "trigger": trigger or "as fast as possible",
                "spark.master": f"local[{options.parallelism}]",
                "spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS,
                "spark.driver.memory": "2g",
                **SETTINGS,
            }
        )
        return found


class SparkRealTime(Engine):
    """Real-Time Mode, which reads, shuffles and writes all the time; in SQL, as it allows no Arrow functions."""

    name = "spark-realtime"
    variants: ClassVar = {"sql": "built-in functions only"}
    options: ClassVar = {"batch": f"time between its checkpoints, '{REAL_TIME_BATCH}' (the default) or longer"}

    @property
    def form(self) -> str:
        return "record"

    def version(self) -> str:
        return version("pyspark")

    def supports(self, subject: Subject) -> str | None:
        try:
            check_java()
        except JavaMissing as error:
            return str(error)
        if subject.not_in_sql:
            return subject.not_in_sql
        if isinstance(subject, FileSubject) and subject.branches:
            return "Real-Time Mode does not read one source for several branches"
        return cannot(subject, loads=_NO_LOADS)

    def run(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Observation:
        self.check(options.settings)
        batch_us = parse_us(options.settings.get("batch", REAL_TIME_BATCH), option="batch")
        trigger = f"{batch_us // 1000} milliseconds"
        found = run_fed(self.label, subject, rate, seconds, options, _launch("real-time", trigger, closing=False))
        found.settings.update(
            {
                "trigger": f"realTime={trigger}",
                "spark.master": f"local[{options.parallelism + 2}]",
                "spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS,
                "spark.driver.memory": "2g",
                **SETTINGS,
            }
        )
        found.notes.extend(
            [
                "fed through Spark's LowLatencyMemoryStream: its only other source for Real-Time Mode is Kafka",
                "no watermark (not allowed there): windows are kept for ever",
            ]
        )
        return found


def _launch(variant: str, trigger: str, *, closing: bool) -> Launch:
    return Launch(
        commands=[[sys.executable, "-m", "penstock_bench.engines.spark_program"]],
        specification={"variant": variant, "trigger": trigger, "settings": SETTINGS},
        closing=closing,
        lead_s=2.0,
    )
