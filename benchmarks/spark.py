"""What Spark adds: ``python benchmarks/spark.py [transform|start|backfill] [own] [SECONDS]``.

``transform``: 20,000 records/s, each joined to one of 10,000 customers by a DataFrame function (a broadcast join);
latency counts from when a record was scheduled, the first one included. ``start``: from `ps.start` on a session that is
up to the first result, three times. ``backfill``: 20 million events of the Yahoo benchmark from Parquet, by
`ps.backfill` and by the same query written by hand, in turns; their results are compared. With ``own`` Penstock starts
Spark itself; without, the program has a session.
"""

from __future__ import annotations

import os
import sys
import tempfile
from statistics import median
from time import monotonic
from typing import Any

import penstock as ps
from asking import words

RATE = 20_000
CUSTOMERS = 10_000
EVENTS = 20_000_000


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


def backfill(spark: Any, rounds: int = 5) -> None:
    """Measure the Yahoo query over history, from Parquet files to rows in this process."""
    from pyspark.sql import functions as F

    from penstock_bench.workloads.yahoo import CAMPAIGN_OF_AD, EVENT_TYPES, build

    spark.conf.set("spark.sql.shuffle.partitions", "2")
    with tempfile.TemporaryDirectory() as directory:

        def drawn(values: list[str], seed: int) -> Any:
            return F.element_at(F.array(*map(F.lit, values)), F.pmod(F.hash("id", F.lit(seed)), len(values)) + 1)

        events = spark.range(0, EVENTS, 1, 4).select(
            drawn(list(CAMPAIGN_OF_AD), 1).alias("ad_id"),
            drawn(list(EVENT_TYPES), 2).alias("event_type"),
            F.timestamp_millis(F.col("id")).alias("event_time"),
        )
        events.write.parquet(f"{directory}/events")
        ads = spark.createDataFrame(list(CAMPAIGN_OF_AD.items()), "ad_id string, campaign_id string")
        source = ps.stream("events", ps.generator({"x": 1}, rate=1))
        pipeline = build(source, "close").to(ps.memory(), name="counts")

        def by_hand() -> Any:
            views = spark.read.parquet(f"{directory}/events").where("event_type = 'view'").select("ad_id", "event_time")
            windows = F.window("event_time", "10 seconds")
            return views.join(F.broadcast(ads), "ad_id").groupBy("campaign_id", windows).count()

        def ours() -> Any:
            return ps.backfill(pipeline, {"parse_json": f"{directory}/events"}, spark=spark)["counts"]

        took: dict[str, list[float]] = {"by hand": [], "backfill": []}
        found: dict[str, set[tuple[object, ...]]] = {}
        for _ in range(rounds):
            for name, make in (("by hand", by_hand), ("backfill", ours)):
                began_s = monotonic()
                rows = make().collect()
                took[name].append(monotonic() - began_s)
                starts = ((row.window.start if "window" in row else row.window_start) for row in rows)
                found[name] = {(row.campaign_id, at, row["count"]) for row, at in zip(rows, starts, strict=True)}
        assert found["by hand"] == found["backfill"], "the two give different results"
    one, two = median(took["by hand"]), median(took["backfill"])
    _tell(f"backfill: {EVENTS:,} events, {len(found['backfill']):,} windows: by hand {one:.2f} s, ours {two:.2f} s")
    _tell(f"  {two / one:.2f} times as long; rounds: {took}")


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measure what was asked for."""
    chosen, seconds = words(__doc__, ["transform", "start", "backfill", "own"], 30, usual=["start", "transform"])
    spark = None if "own" in chosen else session()
    chosen = [each for each in chosen if each != "own"] or ["start", "transform"]
    if spark is not None:
        spark.range(1).collect()
    if "start" in chosen:
        start(spark)
    if "transform" in chosen:
        transform(spark, seconds)
    if "backfill" in chosen:
        backfill(spark or session())


if __name__ == "__main__":
    main()
