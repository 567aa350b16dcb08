"""The workloads as queries of Structured Streaming, in SQL and with Arrow functions; `spark_program` runs them.

Workload files too: in SQL, and those without state in Python.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from penstock.demo.scoring import FEATURE_NAMES, score
from penstock.types import Schema
from penstock_bench.foreign.programs.graph import Routes
from penstock_bench.foreign.programs.messages import Message, parse
from penstock_bench.foreign.programs.sql import Dialect
from penstock_bench.workloads import lookup
from penstock_bench.workloads.text import NEEDLE, words
from penstock_bench.workloads.yahoo import CAMPAIGN_OF_AD, WINDOW_MS, parsed

WINDOW_US = WINDOW_MS * 1000
WATERMARK = "1 second"
_PATTERN = f"(^| ){NEEDLE}( |$)"

Batches = Iterator[pa.RecordBatch]


def query(spark: Any, lines: Any, spec: dict[str, Any], *, watermark: bool) -> tuple[Any, str]:
    """Build the query from the lines to rows in the subject's columns; with it comes the output mode that suits it.

    Without a ``watermark`` windows are never forgotten: Real-Time Mode has none.
    """
    in_python, workload = spec["variant"] == "python", spec["workload"]
    if workload == "file":
        made = _file_in_python(lines, spec) if in_python else _file_in_sql(spark, lines, spec, watermark=watermark)
        return made, "append"
    made = (_built_in_python if in_python else _built_in_sql)(spark, lines, workload)
    if workload == "yahoo":
        made = _count_views(made, watermark=watermark)
    elif workload == "wordcount":
        made = made.groupBy("word").count()
    return made, "update"


def _built_in_sql(spark: Any, lines: Any, workload: str) -> Any:
    if workload == "yahoo":
        return _views_in_sql(spark, lines)
    if workload == "wordcount":
        return lines.selectExpr("explode(split(value, ' ')) AS word")
    parts = lines.selectExpr("split(value, '\\t') AS p").selectExpr("CAST(p[0] AS bigint) AS number", "p[1] AS line")
    return parts.filter(parts["line"].rlike(_PATTERN))


def _built_in_python(_: Any, lines: Any, workload: str) -> Any:
    match workload:
        case "yahoo":
            return lines.mapInArrow(_views, "campaign_id string, event_time timestamp")
        case "wordcount":
            return lines.mapInArrow(_split, "word string")
        case "scoring":
            return lines.mapInArrow(_score, "number bigint, score double")
        case "lookup":
            return lines.mapInArrow(partial(_look_up, lookup.address()), "number bigint, segment string")
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
        columns = [numbers.filter(found).cast(pa.int64()), lines.filter(found)]
        yield pa.RecordBatch.from_arrays(columns, names=["number", "line"])


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


_RESULTS = "sink string, key string, value string, time bigint, id bigint"


class SparkFile(Dialect):
    """A workload file in Spark's SQL; without ``watermark`` nothing is ever forgotten."""

    def __init__(self, spec: dict[str, Any], *, watermark: bool) -> None:
        super().__init__(spec)
        self._watermark = watermark

    def mine(self, source: int) -> str:
        mine = super().mine(source)
        if not self._watermark:
            return mine
        # As one condition on the time, so that it is not moved before the watermark, which the last line advances.
        return f"CASE WHEN rt < timestamp_micros({self.spec['end_us']}) THEN {mine} ELSE false END"

    def interval(self, time_us: int) -> str:
        return f"make_dt_interval(0, 0, 0, {time_us / 1e6})"

    def modify(self, step: dict[str, Any], read: str) -> str:
        ids = ", ".join(map(self.relabel, step["relabels"]))
        copies = f"{step['copies']} + CASE WHEN {self.draw(step)} < {step['below']} THEN 1 ELSE 0 END"
        made = f"explode(slice(array({ids}), 1, {copies})) AS id"
        return f"SELECT k, {self.resized(step['ratio'])} AS v, t, {made}, rt FROM {read}"

    def windows(self, step: dict[str, Any], read: str) -> str:
        size, slide = (f"{step[name]} microseconds" for name in ("size_us", "slide_us"))
        return (
            "SELECT k, n, least, unix_micros(window.start) AS start_us, window.end - INTERVAL 1 MICROSECOND AS rt FROM "
            f"(SELECT k, window, COUNT(*) AS n, MIN(id) AS least FROM {read} "
            f"GROUP BY k, window(rt, '{size}', '{slide}'))"
        )


def _file_in_sql(spark: Any, lines: Any, spec: dict[str, Any], *, watermark: bool) -> Any:
    parts = lines.selectExpr("split(value, '\\t', 4) AS p").selectExpr(
        "p[2] AS k", "p[3] AS v", "CAST(p[1] AS bigint) AS t", "CAST(p[0] AS bigint) AS id"
    )
    parts = parts.selectExpr("*", "timestamp_micros(t) AS rt")
    (parts.withWatermark("rt", "0 seconds") if watermark else parts).createOrReplaceTempView("lines")
    views, sinks = SparkFile(spec, watermark=watermark).views()
    for name, text in views:
        spark.sql(text).createOrReplaceTempView(name)
    results = [f"SELECT '{sink}' AS sink, k AS key, v AS value, t AS time, id FROM {view}" for sink, view in sinks]
    return spark.sql(" UNION ALL ".join(results))


def _file_in_python(lines: Any, spec: dict[str, Any]) -> Any:
    """Build the query of a file without state: all its steps are one function of Arrow batches."""
    text, schema = json.dumps(spec), Schema.parse(_RESULTS).arrow

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        routes, found = _routes(text)
        for batch in batches:
            for line in batch.column(0).to_pylist():
                routes.put(parse(line.encode()))
            columns = zip(*found, strict=True) if found else [()] * len(schema)
            made = dict(zip(schema.names, columns, strict=True))
            found.clear()
            yield pa.RecordBatch.from_pydict(made, schema=schema)

    return lines.mapInArrow(rows, _RESULTS)


@cache
def _routes(text: str) -> tuple[Routes, list[tuple[Any, ...]]]:
    """The steps, and where their results are put; once in a process, as what a load holds belongs to a process."""
    found: list[tuple[Any, ...]] = []

    def out(sink: str, message: Message) -> None:
        found.append((sink, *message[:4]))

    def into(name: str, *_: object) -> None:
        raise AssertionError(f"'{name}' keeps state")

    return Routes(json.loads(text), out, into), found
