"""The workloads as queries of Structured Streaming, in SQL and with Arrow functions; `spark_program` runs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from penstock.demo.scoring import FEATURE_NAMES, score
from penstock_bench.workloads import lookup
from penstock_bench.workloads.text import NEEDLE, words
from penstock_bench.workloads.yahoo import CAMPAIGN_OF_AD, WINDOW_MS, parsed

WINDOW_US = WINDOW_MS * 1000
WATERMARK = "1 second"
_PATTERN = f"(^| ){NEEDLE}( |$)"

Batches = Iterator[pa.RecordBatch]


def query(spark: Any, lines: Any, workload: str, variant: str, *, watermark: bool) -> Any:
    """Build the query from the lines to rows in the subject's columns.

    Without a ``watermark`` windows are never forgotten: Real-Time Mode has none.
    """
    if workload == "yahoo":
        in_python = partial(lines.mapInArrow, _views, "campaign_id string, event_time timestamp")
        return _count_views(_views_in_sql(spark, lines) if variant == "sql" else in_python(), watermark=watermark)
    if workload == "wordcount":
        found = (
            lines.selectExpr("explode(split(value, ' ')) AS word")
            if variant == "sql"
            else lines.mapInArrow(_split, "word string")
        )
        return found.groupBy("word").count()
    if workload == "scoring":
        return lines.mapInArrow(_score, "number bigint, score double")
    if workload == "lookup":
        return lines.mapInArrow(partial(_look_up, lookup.address()), "number bigint, segment string")
    if variant == "sql":
        parts = lines.selectExpr("split(value, '\\t') AS p").selectExpr(
            "CAST(p[0] AS bigint) AS number", "p[1] AS line"
        )
        return parts.filter(parts["line"].rlike(_PATTERN))
    return lines.mapInArrow(_grep, "number bigint, line string")


def _count_views(views: Any, *, watermark: bool) -> Any:
    from pyspark.sql import functions as f

    if watermark:
        window = f.window("event_time", f"{WINDOW_MS} milliseconds")
        counts = views.withWatermark("event_time", WATERMARK).groupBy("campaign_id", window).count()
        return counts.selectExpr("campaign_id", "unix_micros(window.start) AS window_start", "count")
    start = f.expr(f"unix_micros(event_time) DIV {WINDOW_US} * {WINDOW_US}").alias("window_start")
    return views.groupBy("campaign_id", start).count()


def _views_in_sql(spark: Any, lines: Any) -> Any:
    """Parse, filter and join: the campaign and time of every view."""
    from pyspark.sql import functions as f

    # A table of literals stays in the JVM; createDataFrame would bring Python workers into every batch.
    values = ", ".join(f"('{ad}', '{campaign}')" for ad, campaign in CAMPAIGN_OF_AD.items())
    ads = spark.sql(f"SELECT * FROM VALUES {values} AS ads(ad_id, campaign_id)")
    parsed = lines.select(f.from_json("value", "ad_id string, event_type string, event_time bigint").alias("e")).select(
        "e.ad_id", "e.event_type", f.timestamp_millis("e.event_time").alias("event_time")
    )
    return parsed.filter("event_type = 'view'").select("ad_id", "event_time").join(f.broadcast(ads), "ad_id")


def _views(batches: Batches) -> Batches:
    ads, campaigns = pa.array(CAMPAIGN_OF_AD.keys()), pa.array(CAMPAIGN_OF_AD.values())
    for batch in batches:
        text = b"\n".join(batch.column(0).cast(pa.binary()).to_pylist())
        if not text:
            continue
        events = parsed(text)
        views = events.filter(pc.equal(events["event_type"], "view"))
        found = pc.index_in(views["ad_id"], ads)
        views = views.filter(found.is_valid())
        campaign = campaigns.take(found.drop_null().combine_chunks())
        times = pc.multiply(views["event_time"].combine_chunks(), 1000).cast(pa.timestamp("us", "UTC"))
        yield pa.RecordBatch.from_arrays([campaign, times], names=["campaign_id", "event_time"])


def _split(batches: Batches) -> Batches:
    assert words.batch_form is not None
    yield from map(words.batch_form, batches)


def _grep(batches: Batches) -> Batches:
    for batch in batches:
        # A search for the substring first: it is quick, and leaves little to the pattern and to the splitting.
        few = batch.filter(pc.match_substring(batch.column(0), NEEDLE))
        parts = pc.split_pattern(few.column(0), "\t", max_splits=1)
        numbers, lines = (pc.list_element(parts, i) for i in (0, 1))
        found = pc.match_substring_regex(lines, _PATTERN)
        yield pa.RecordBatch.from_arrays(
            [numbers.filter(found).cast(pa.int64()), lines.filter(found)], names=["number", "line"]
        )


def _score(batches: Batches) -> Batches:
    assert score.batch_form is not None
    for events in _numbers(batches, ("number", *FEATURE_NAMES)):
        yield score.batch_form(events)


def _look_up(address: str, batches: Batches) -> Batches:
    look_up = lookup.enrich(address).batch_form
    assert look_up is not None
    for events in _numbers(batches, ("number", "user")):
        yield look_up(events)


def _numbers(batches: Batches, names: Sequence[str]) -> Batches:
    """Parse lines of whole numbers; a batch comes out as one batch, so that it is worked on at once."""
    options = pa.csv.ConvertOptions(column_types={name: pa.int64() for name in names})
    for batch in batches:
        text = b"\n".join(batch.column(0).cast(pa.binary()).to_pylist())
        if text:
            read = pa.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(text) + 1)
            yield from pa.csv.read_csv(pa.BufferReader(text), read, convert_options=options).to_batches()
