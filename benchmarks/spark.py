"""What Spark adds: ``python benchmarks/spark.py [transform|start] [own] [SECONDS]``.

``transform``: 20,000 records/s, each joined to one of 10,000 customers by a DataFrame function (a broadcast join);
latency counts from when a record was scheduled, the first one included. ``start``: from `ps.start` on a session that is
up to the first result, three times. With ``own`` Penstock starts Spark itself; without, the program has a session.
"""

from __future__ import annotations

import os
import sys
from time import monotonic
from typing import Any

import penstock as ps

RATE = 20_000
CUSTOMERS = 10_000


def session() -> Any:
    """A session as users make one; the second figure lets Spark start a lost worker again."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    made = SparkSession.builder.master("local[6,10000]").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def joined(rate: int, customers: Any) -> ps.Pipeline:
    """Orders with the name of their customer."""
    fields = {"id": ps.fields.integers(0, CUSTOMERS - 1), "price": ps.fields.integers(1, 99)}
    orders = ps.stream("orders", ps.generator(fields, rate=rate, format="columns"))
    named = orders.transform(lambda df: df.join(customers(df), "id"), schema="id bigint, price bigint, name string")
    return named.to(ps.foreach(_nothing))


def _nothing(_row: object) -> None:
    pass


def table(spark: Any) -> Any:
    """The customers."""
    from pyspark.sql import functions as F

    return spark.range(CUSTOMERS).select("id", F.concat(F.lit("customer "), "id").alias("name"))


def transform(spark: Any, seconds: int) -> None:
    """Measure the join at a fixed rate, from the first record on and after a warm-up."""
    given = table(spark) if spark is not None else None
    pipeline = joined(RATE, lambda df: given if given is not None else table(df.sparkSession))
    with ps.start(pipeline, parallelism=1, name="bench-transform") as job:
        while not job.began_us:
            job.wait(0.05)
        until = monotonic() + seconds / 3
        while monotonic() < until:
            job.wait(0.1)
        first = job.latency_us()
        job.begin_measuring()
        job.wait(seconds)
        job.drain()
        report = job.wait()
    assert report is not None
    began = {f"p{q}": round(first.quantile(q / 100) / 1e3) for q in (50, 99)}
    _tell(f"transform: {report.latency_ms} first {seconds / 3:.0f} s: {began} parts={report.components_ms}")
    if report.adaptation is not None:
        _tell(f"  groups: {report.adaptation.groups[-1:]} switches: {len(report.switches)} lost={report.lost}")


def start(spark: Any, rounds: int = 3) -> None:
    """Measure from the start to the first result, the first time and after that."""
    del spark
    for _ in range(rounds):
        sink = ps.memory()
        began_s = monotonic()
        source = ps.generator({"n": ps.fields.sequence()}, rate=1_000, format="columns")
        with ps.start(ps.stream("in", source).filter("n >= 0").to(sink), parallelism=1, name="bench-start") as job:
            while not sink.rows:
                job.wait(0.005)
            took_s = monotonic() - began_s
            job.drain()
            job.wait()
        _tell(f"start: first result after {took_s:.2f} s")


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measure what was asked for."""
    chosen = [each for each in sys.argv[1:] if each in ("transform", "start")] or ["start", "transform"]
    seconds = next((int(each) for each in sys.argv[1:] if each.isdigit()), 30)
    spark = None if "own" in sys.argv else session()
    if spark is not None:
        spark.range(1).collect()
    if "start" in chosen:
        start(spark)
    if "transform" in chosen:
        transform(spark, seconds)


if __name__ == "__main__":
    main()
