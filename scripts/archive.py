"""Writes an archive of the classes that Spark loads, so that the many JVMs that tests start take half the time.

``python scripts/archive.py .venv/spark.jsa``; the JVM ignores an archive that was made for other classes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

target = Path(sys.argv[1]).absolute()
written = target.with_suffix(f".{os.getpid()}")
os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={written} -Xlog:disable"

import penstock as ps  # noqa: E402
from penstock.runtime.spark import close_session, open_session  # noqa: E402

session = open_session("local", 2, "archive")
numbers = ps.stream("numbers", ps.records([(n,) for n in range(9)], schema="n bigint"))
ps.run(numbers.filter(ps.col("n") > 0).key_by("n").count().to(ps.memory()), parallelism=2, name="archive")
session.range(9).selectExpr("id % 2 AS k").groupBy("k").count().collect()
gateway = session.sparkContext._gateway
close_session()
gateway.shutdown()
gateway.proc.stdin.close()  # the JVM ends, and writes
gateway.proc.wait()
written.replace(target)
