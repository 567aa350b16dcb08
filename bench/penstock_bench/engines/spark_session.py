"""Spark for the peers: Structured Streaming gets a session of its own, with Spark's settings but for a few."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

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
