"""Workload files as queries of Structured Streaming, in SQL and without state in Python; `spark_program` runs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pyarrow as pa

from penstock_bench.foreign.programs.graph import Routes
from penstock_bench.foreign.programs.messages import Message, parse
from penstock_bench.foreign.programs.sql import Dialect

_RESULTS = pa.schema(
    [("sink", pa.string()), ("key", pa.string()), ("value", pa.string()), ("time", pa.int64()), ("id", pa.int64())]
)


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


def query(spark: Any, lines: Any, spec: dict[str, Any], *, watermark: bool) -> Any:
    """Build the query from the lines to rows in the subject's columns."""
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


def query_in_python(lines: Any, spec: dict[str, Any]) -> Any:
    """Build the query of a file without state: all its steps are one function of Arrow batches."""
    text = json.dumps(spec)

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        routes, found = _routes(text)
        for batch in batches:
            for line in batch.column(0).to_pylist():
                routes.put(parse(line.encode()))
            columns = list(zip(*found, strict=True)) or [()] * len(_RESULTS)
            found.clear()
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, field.type) for column, field in zip(columns, _RESULTS, strict=True)], schema=_RESULTS
            )

    return lines.mapInArrow(rows, "sink string, key string, value string, time bigint, id bigint")


@cache
def _routes(text: str) -> tuple[Routes, list[tuple[Any, ...]]]:
    """The steps, and where their results are put; once in a process, as what a load holds belongs to a process."""
    found: list[tuple[Any, ...]] = []

    def out(sink: str, message: Message) -> None:
        found.append((sink, *message[:4]))

    def into(name: str, *_: object) -> None:
        raise AssertionError(f"'{name}' keeps state")

    return Routes(json.loads(text), out, into), found
