"""Spark for the peers: a session with Spark's settings but for a few, and its processes, to kill some."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psutil

SHUFFLE_PARTITIONS = 2
"""As many as there are cores; the default of 200 would only be slower."""
SETTINGS = {"trigger": "as fast as possible", "spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS}


@contextmanager
def open_spark(master: str, settings: Mapping[str, str]) -> Iterator[Any]:
    """Start Spark with its own settings, but for those named here and in ``settings``."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
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
        try:
            if word in " ".join(process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found
