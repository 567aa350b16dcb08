"""Spark Structured Streaming: micro-batches in SQL or with Arrow functions in Python, and Real-Time Mode."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, ClassVar

from penstock.durations import parse_us
from penstock_bench.engines.launch import Launch, Launched
from penstock_bench.engines.spark_session import SHUFFLE_PARTITIONS
from penstock_bench.meter.engine import Rate, RunOptions, cannot, no_java
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


class Spark(Launched):
    """Micro-batches from Spark's in-memory source; each batch is stored by the driver."""

    name = "spark"
    variants: ClassVar = {
        "sql": "built-in functions only",
        "python": "parsing, filter and join in Python with Arrow (mapInArrow), counting in SQL",
    }
    options: ClassVar = {"trigger": "time between micro-batches, '0s' (as fast as possible, the default), '1s' …"}
    form = "batch"

    def version(self) -> str:
        return version("pyspark")

    def supports(self, subject: Subject) -> str | None:
        if self.variant == "python":
            return no_java() or cannot(subject)
        needs = "for which it needs a watermark that a join does not give"
        nested = f"'{subject.nested}' has state behind state, {needs}" if subject.nested else None
        return no_java() or nested or subject.not_in_sql or cannot(subject, ("window", "join"), loads=_NO_LOADS)

    def launch(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Launch:
        trigger_us = parse_us(options.settings.get("trigger", "0s"), option="trigger", allow_zero=True)
        trigger = f"{trigger_us // 1000} milliseconds" if trigger_us else ""
        master = f"local[{options.parallelism}]"
        return launched(self.variant, trigger, master, trigger or "as fast as possible", closing=True)


class SparkRealTime(Spark):
    """Real-Time Mode, which reads, shuffles and writes all the time; in SQL, as it allows no Arrow functions."""

    name = "spark-realtime"
    variants: ClassVar = {"sql": "built-in functions only"}
    options: ClassVar = {"batch": f"time between its checkpoints, '{REAL_TIME_BATCH}' (the default) or longer"}
    form = "record"
    beside_tasks = 2
    """All stages run at once, so each of their tasks needs a core: these, and the others after the shuffle."""
    notes: ClassVar[tuple[str, ...]] = (
        "fed through Spark's LowLatencyMemoryStream: its only other source for this mode is Kafka",
        "no watermark (not allowed there): windows are kept for ever",
    )

    def supports(self, subject: Subject) -> str | None:
        branches = "Real-Time Mode does not read one source for several branches" if subject.branches else None
        return no_java() or branches or subject.not_in_sql or cannot(subject, loads=_NO_LOADS)

    def launch(self, subject: Subject, rate: Rate, seconds: float, options: RunOptions) -> Launch:
        batch_us = parse_us(options.settings.get("batch", REAL_TIME_BATCH), option="batch")
        trigger = f"{batch_us // 1000} milliseconds"
        master = f"local[{options.parallelism + self.beside_tasks}]"
        return launched("real-time", trigger, master, f"realTime={trigger}", notes=self.notes)


def launched(
    variant: str, trigger: str, master: str, told: str, settings: Mapping[str, str] | None = None, **more: Any
) -> Launch:
    """How `spark_program` is started; ``settings`` come on top of those that all runs have."""
    settings = {**SETTINGS, **(settings or {})}
    sized = {"spark.master": master, "spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS, "spark.driver.memory": "2g"}
    return Launch(
        commands=[[sys.executable, "-m", "penstock_bench.engines.spark_program"]],
        specification={"variant": variant, "trigger": trigger, "master": master, "settings": settings},
        lead_s=2.0,
        settings={"trigger": told, **sized, **settings},
        **more,
    )
