"""Workload files in Flink SQL: a view for every stream, up to the query whose rows are the result."""

from __future__ import annotations

from math import ceil
from typing import Any

COLUMNS = "sink STRING, k STRING, v STRING, t BIGINT, id BIGINT, out_at STRING"
# A message's key, value, time in microseconds, id, and its time as Flink knows it, in milliseconds.
MESSAGE = "k, v, t, id, rt"


def schema(builder: Any) -> Any:
    """Describe the lines: the columns of a message, with a watermark just behind the newest."""
    part = "SPLIT_INDEX(f0, '\t', {})"
    return (
        builder.column("f0", "STRING")
        .column_by_expression("id", f"CAST({part.format(0)} AS BIGINT)")
        .column_by_expression("t", f"CAST({part.format(1)} AS BIGINT)")
        .column_by_expression("k", part.format(2))
        .column_by_expression("v", part.format(3))
        .column_by_expression("rt", f"TO_TIMESTAMP_LTZ(CAST({part.format(1)} AS BIGINT) / 1000, 3)")
        .watermark("rt", "rt - INTERVAL '0.001' SECOND")
        .build()
    )


def statements(spec: dict[str, Any], now: str) -> tuple[list[tuple[str, str]], str]:
    """Return names and queries of the views, and the query of the result, over the view ``lines``."""
    views: list[tuple[str, str]] = []
    names: dict[tuple[str, int], str] = {}

    def add(place: tuple[str, int], query: str) -> None:
        names[place] = f"stream{len(names)}"
        views.append((names[place], query))

    count = len(spec["sources"])
    for i, name in enumerate(spec["sources"]):
        add((name, 0), f"SELECT {MESSAGE} FROM lines WHERE MOD(id, {count}) = {i}")
    for step in spec["steps"]:
        read = [names[node, output] for node, output in step["inputs"]]
        for i, query in enumerate(_queries(step, read, spec["prime"])):
            add((step["name"], i), query)
    results = [
        f"SELECT '{sink}', k, v, t, id, {now} FROM {names[node, output]}"
        for sink, (node, output) in spec["sinks"].items()
    ]
    return views, " UNION ALL ".join(results)


def _queries(step: dict[str, Any], read: list[str], prime: int) -> list[str]:
    big = f"CAST({prime} AS BIGINT)"
    match step["do"]:
        case "filter":
            return [f"SELECT {MESSAGE} FROM {read[0]} WHERE {_draw(step, big)} >= {step['below']}"]
        case "split":
            return [_copy(step, numbers, read[0], big) for numbers in step["relabels"]]
        case "modify":
            copies = [_copy(step, numbers, read[0], big) for numbers in step["relabels"]]
            if step["below"]:
                copies[-1] += f" WHERE {_draw(step, big)} < {step['below']}"
            else:
                copies.pop()
            return [" UNION ALL ".join(copies)]
        case "merge":
            return [" UNION ALL ".join(f"SELECT {MESSAGE} FROM {each}" for each in read)]
        case "join":
            return [_join(step, read, big)]
    return [_window(step, read[0], big)]


def _draw(step: dict[str, Any], big: str) -> str:
    a, b, c = step["draw"]
    return f"MOD(MOD({a} * id + {b}, {big}) * id + {c}, {big})"


def _copy(step: dict[str, Any], numbers: list[int], read: str, big: str) -> str:
    a, b = numbers
    ratio = step["ratio"]
    size = f"CAST(FLOOR(CHAR_LENGTH(v) * CAST({ratio} AS DOUBLE)) AS INT)"
    value = "v" if ratio == 1 else f"SUBSTRING(REPEAT(v, {ceil(ratio)}) FROM 1 FOR {size})"
    return f"SELECT k, {value} AS v, t, MOD({a} * id + {b}, {big}) AS id, rt FROM {read}"


def _combined(step: dict[str, Any], left: str, right: str, big: str) -> str:
    a, b, c = step["combine"]
    return f"MOD(MOD({a} * {left}, {big}) + {b} * MOD({right}, {big}) + {c}, {big})"


def _interval(time_us: int) -> str:
    seconds, milliseconds = divmod(time_us // 1000, 1000)
    time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{milliseconds:03}"
    return f"INTERVAL '0 {time}' DAY TO SECOND(3)"


def _join(step: dict[str, Any], read: list[str], big: str) -> str:
    left, right = read
    # Flink's own times are in milliseconds: they bound the state a little wider, the microseconds decide.
    near = _interval(step["ttl_us"] + 1_000)
    return f"""
        SELECT l.k AS k, l.v || r.v AS v, CASE WHEN l.t > r.t THEN l.t ELSE r.t END AS t,
               {_combined(step, "l.id", "r.id", big)} AS id, l.rt AS rt
        FROM {left} l JOIN {right} r ON l.k = r.k AND l.rt BETWEEN r.rt - {near} AND r.rt + {near}
        AND ABS(l.t - r.t) <= {step["ttl_us"]}"""


def _window(step: dict[str, Any], read: str, big: str) -> str:
    size, slide = _interval(step["size_us"]), _interval(step["slide_us"])
    tumbling = step["size_us"] == step["slide_us"]
    table = (
        f"TUMBLE(TABLE {read}, DESCRIPTOR(rt), {size})"
        if tumbling
        else f"HOP(TABLE {read}, DESCRIPTOR(rt), {slide}, {size})"
    )
    start_us = "(EXTRACT(EPOCH FROM window_start) * 1000 + EXTRACT(MILLISECOND FROM window_start)) * 1000"
    return f"""
        SELECT k, CAST(n AS STRING) AS v, start_us + {step["size_us"] - 1} AS t,
               {_combined(step, "least", f"(start_us / {step['slide_us']})", big)} AS id, rt
        FROM (
            SELECT k, COUNT(*) AS n, MIN(id) AS least, {start_us} AS start_us, window_time AS rt
            FROM TABLE({table}) GROUP BY k, window_start, window_end, window_time
        )"""
