"""Spark for the peers: a session with Spark's settings but for a few, and its processes, to kill some."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psutil

SHUFFLE_PARTITIONS = 2  # as many as there are cores; the default of 200 would only be slower
SETTINGS = {"trigger": "as fast as possible", "spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS}


OWN = {
    "spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "2g",
}


def open_spark(master: str, settings: Mapping[str, str]) -> Any:
    """Start Spark with its own settings, but for those named here and in ``settings``; ends with the context."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.master(master).config(map={**settings, **OWN}).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def executors() -> list[psutil.Process]:
    """JVMs of executors below this process."""
    return _below("CoarseGrainedExecutorBackend")


def python_workers() -> list[psutil.Process]:
    """Processes that run Python functions for Spark below this process: the forks of pyspark's daemon."""
    daemons = _below("pyspark.daemon")
    parents = {process.pid for process in daemons}
    return [process for process in daemons if process.ppid() in parents]


def _below(word: str) -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if word in " ".join(process.cmdline()):
                found.append(process)
    return found
