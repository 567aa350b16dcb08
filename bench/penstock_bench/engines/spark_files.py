"""Workload files as queries of Structured Streaming, in SQL and without state in Python; `spark_program` runs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from math import ceil
from typing import Any

import pyarrow as pa

from penstock_bench.foreign.programs.graph import Routes
from penstock_bench.foreign.programs.messages import Message, parse

COLUMNS = ("key", "value", "time", "id")
Place = tuple[str, int]
_RESULTS = pa.schema(
    [("sink", pa.string()), ("key", pa.string()), ("value", pa.string()), ("time", pa.int64()), ("id", pa.int64())]
)


def query(lines: Any, spec: dict[str, Any], *, watermark: bool) -> Any:
    """Build the query from the lines to rows in the subject's columns."""
    parts = lines.selectExpr("split(value, '\\t', 4) AS p").selectExpr(
        "p[2] AS key", "p[3] AS value", "timestamp_micros(CAST(p[1] AS bigint)) AS time", "CAST(p[0] AS bigint) AS id"
    )
    if watermark:
        parts = parts.withWatermark("time", "0 seconds")
    streams: dict[Place, Any] = {}
    for i, name in enumerate(spec["sources"]):
        mine = f"id % {len(spec['sources'])} = {i}"
        if watermark:
            # As one condition on the time, so that it is not moved before the watermark, which the last line advances.
            mine = f"CASE WHEN time < timestamp_micros({spec['end_us']}) THEN {mine} ELSE false END"
        streams[name, 0] = parts.where(mine)
    for step in spec["steps"]:
        read = [streams[node, output] for node, output in step["inputs"]]
        for i, made in enumerate(_apply(step, read, spec["prime"])):
            streams[step["name"], i] = made
    results = [
        streams[node, output].selectExpr(f"'{sink}' AS sink", "key", "value", "unix_micros(time) AS time", "id")
        for sink, (node, output) in spec["sinks"].items()
    ]
    whole = results[0]
    for each in results[1:]:
        whole = whole.union(each)
    return whole


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


def _apply(step: dict[str, Any], read: list[Any], prime: int) -> list[Any]:
    match step["do"]:
        case "filter":
            return [read[0].where(f"{_draw(step, prime)} >= {step['below']}")]
        case "split":
            value = _resized(step["ratio"])
            return [
                read[0].selectExpr("key", f"{value} AS value", "time", f"{_relabel(numbers, prime)} AS id")
                for numbers in step["relabels"]
            ]
        case "modify":
            ids = ", ".join(_relabel(numbers, prime) for numbers in step["relabels"])
            copies = f"{step['copies']} + CASE WHEN {_draw(step, prime)} < {step['below']} THEN 1 ELSE 0 END"
            made = f"explode(slice(array({ids}), 1, {copies})) AS id"
            return [read[0].selectExpr("key", f"{_resized(step['ratio'])} AS value", "time", made)]
        case "merge":
            whole = read[0]
            for each in read[1:]:
                whole = whole.union(each)
            return [whole]
        case "join":
            return [_join(step, read, prime)]
    return [_window(step, read[0], prime)]


def _draw(step: dict[str, Any], prime: int) -> str:
    a, b, c = step["draw"]
    return f"((({a} * id + {b}) % {prime} * id + {c}) % {prime})"


def _relabel(numbers: list[int], prime: int) -> str:
    a, b = numbers
    return f"(({a} * id + {b}) % {prime})"


def _resized(ratio: float) -> str:
    if ratio == 1:
        return "value"
    return f"substring(repeat(value, {ceil(ratio)}), 1, CAST(floor(length(value) * {ratio}D) AS int))"


def _combined(step: dict[str, Any], left: str, right: str, prime: int) -> str:
    a, b, c = step["combine"]
    return f"(({a} * {left} % {prime} + {b} * ({right} % {prime}) + {c}) % {prime})"


def _join(step: dict[str, Any], read: list[Any], prime: int) -> Any:
    from pyspark.sql import functions as f

    left, right = (
        frame.selectExpr(*(f"{name} AS {side}_{name}" for name in COLUMNS))
        for side, frame in zip(("l", "r"), read, strict=True)
    )
    ttl = f"make_dt_interval(0, 0, 0, {step['ttl_us'] / 1e6})"
    near = f"l_key = r_key AND r_time >= l_time - {ttl} AND r_time <= l_time + {ttl}"
    pair = _combined(step, "l_id", "r_id", prime)
    return left.join(right, f.expr(near)).selectExpr(
        "l_key AS key", "concat(l_value, r_value) AS value", "greatest(l_time, r_time) AS time", f"{pair} AS id"
    )


def _window(step: dict[str, Any], read: Any, prime: int) -> Any:
    from pyspark.sql import functions as f

    size, slide = (f"{step[name]} microseconds" for name in ("size_us", "slide_us"))
    counts = read.groupBy(f.window("time", size, slide), "key").agg(f.expr("count(*) AS n"), f.expr("min(id) AS least"))
    id_ = _combined(step, "least", f"(unix_micros(window.start) DIV {step['slide_us']})", prime)
    return counts.selectExpr(
        "key", "CAST(n AS string) AS value", "window.end - INTERVAL 1 MICROSECOND AS time", f"{id_} AS id"
    )
