"""The Spark session that DataFrames are made in: the user's, that of an input, or one of our own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.errors import SessionRefused
from penstock.spark.columns import Dialect
from penstock.spark.guard import GROUP_SETTING, guarded

TASK_FAILURES_MAX = 10_000
"""Spark starts a lost worker's task again; how often in vain is for the scheduler to judge."""
BATCH_RECORDS = 10_000
_MASTER = "MASTER"
"""Where Spark looks last for the name of its master."""
_LOGGING = Path(__file__).parents[1] / "runtime" / "log4j2.properties"
_QUERIES = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_RECORDS),
}
"""What queries need. The session that hosts a job's workers has other settings: it computes nothing."""
_SMALL_QUERIES = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
}


def session_for(given: Any, inputs: Iterable[Any]) -> Any:
    """The session to use: the one given, that of a DataFrame among the inputs, the active one, or a new one."""
    from pyspark.sql import SparkSession

    found = [each.sparkSession for each in inputs if hasattr(each, "sparkSession")]
    session = (
        given or (found[0] if found else None) or SparkSession.getActiveSession() or SparkSession._instantiatedSession
    )
    if session is None or session.sparkContext._jsc is None:
        return new_session()
    if not given and not found and hosts_workers(session):
        return guarded(query_session(session))
    if session.conf.get("spark.sql.ansi.enabled").lower() != "true":
        # Overflow and bad casts would give wrong values and nulls where the stream fails.
        raise SessionRefused(["it computes without errors: set spark.sql.ansi.enabled=true"])
    return session


def any_session(given: Any = None) -> Any:
    """The session to read and hand over DataFrames in: the one given, that of the process, or a new one."""
    from pyspark.sql import SparkSession

    session = given or SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if session is None or session.sparkContext._jsc is None:
        return new_session()
    return query_session(session) if given is None and hosts_workers(session) else session


def hosts_workers(session: Any) -> bool:
    """Whether a session is one that Penstock has started to host a job's workers."""
    return bool(session.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "1")


def query_session(session: Any) -> Any:
    """A session of the same Spark with the settings that queries need."""
    beside = session.newSession()
    for key, value in _QUERIES.items():
        beside.conf.set(key, value)
    return beside


def small_query_session(session: Any) -> Any:
    """A session for queries over few rows, one after the other: ours beside the workers', or a copy of the user's.

    The copy has the settings, views and functions that the user's has now. What a query over few rows would spend more
    time on than it saves is off: plans that are made anew from what was seen, compiled stages, many partitions.
    """
    beside = query_session(session) if hosts_workers(session) else _copied(session)
    for key, value in _SMALL_QUERIES.items():
        beside.conf.set(key, value)
    return beside


def _copied(session: Any) -> Any:
    from pyspark import RDD

    # A new session would take over what `RDD.toDF` means to the user.
    before = RDD.toDF
    try:
        copied = session.__class__(session.sparkContext, session._jsparkSession.cloneSession())
        copied.conf.unset(GROUP_SETTING)  # micro-batches have groups of their own
        return copied
    finally:
        RDD.toDF = before


def dialect_of(session: Any) -> Dialect:
    """What of a session's settings expressions depend on."""
    zone = session.conf.get("spark.sql.session.timeZone")
    ansi = session.conf.get("spark.sql.ansi.enabled", "true")
    return Dialect(is_utc=zone in ("UTC", "Etc/UTC", "Z", "GMT", "+00:00"), is_ansi=ansi == "true")


def local_master(cores: int) -> str:
    """The master of a session for queries that can host a job of the same program too, as `bootstrap` leads to one.

    Workers, slots and a query find a place, and a lost worker is started again.
    """
    return f"local[{2 * cores + 2},{TASK_FAILURES_MAX}]"


def new_session(master: str | None = None) -> Any:
    """Start Spark for queries, where the user has not: on a master, or on all cores of this machine."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {**_QUERIES, "spark.ui.showConsoleProgress": "false"}
    if (master or "local").startswith("local"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        settings["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    builder = SparkSession.builder.appName("penstock-backfill")
    builder = builder.master(master) if master is not None else builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    own = local_master(os.cpu_count() or 1)
    with _master_unless_named(own):
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return guarded(session) if session.sparkContext.master == own else session


@contextmanager
def _master_unless_named(master: str) -> Iterator[None]:
    """Have Spark take a master where neither its settings nor `spark-submit` name one."""
    named = os.environ.get(_MASTER)
    os.environ.setdefault(_MASTER, master)
    try:
        yield
    finally:
        if named is None:
            os.environ.pop(_MASTER, None)
