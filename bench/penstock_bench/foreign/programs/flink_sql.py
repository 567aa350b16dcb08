"""The workloads in Flink SQL, from the socket's lines to the print connector, with no Python on the way."""

from __future__ import annotations

from typing import Any

from .sql import Dialect

# Printed last, so that it is taken when the row is complete; milliseconds are all that Flink SQL has.
_NOW = "CAST(CURRENT_ROW_TIMESTAMP() AS STRING)"
_RESULTS = "sink STRING, k STRING, v STRING, t BIGINT, id BIGINT, out_at STRING"


class FlinkFile(Dialect):
    """A workload file."""

    def interval(self, time_us: int) -> str:
        seconds, milliseconds = divmod(time_us // 1000, 1000)
        time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{milliseconds:03}"
        return f"INTERVAL '0 {time}' DAY TO SECOND(3)"

    def modify(self, step: dict[str, Any], read: str) -> str:
        copies = [self.copy(step, numbers, read) for numbers in step["relabels"]]
        last = copies.pop()
        if step["below"]:
            copies.append(f"{last} WHERE {self.draw(step)} < {step['below']}")
        return " UNION ALL ".join(copies)

    def windows(self, step: dict[str, Any], read: str) -> str:
        size, slide = self.interval(step["size_us"]), self.interval(step["slide_us"])
        table = f"HOP(TABLE {read}, DESCRIPTOR(rt), {slide}, {size})"
        if size == slide:
            table = f"TUMBLE(TABLE {read}, DESCRIPTOR(rt), {size})"
        start_us = "(EXTRACT(EPOCH FROM window_start) * 1000 + EXTRACT(MILLISECOND FROM window_start)) * 1000"
        return (
            f"SELECT k, COUNT(*) AS n, MIN(id) AS least, {start_us} AS start_us, window_time AS rt "
            f"FROM TABLE({table}) GROUP BY k, window_start, window_end, window_time"
        )

    def result(self, sinks: list[tuple[str, str]]) -> str:
        return " UNION ALL ".join(f"SELECT '{sink}', k, v, t, id, {_NOW} FROM {view}" for sink, view in sinks)


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


def views(spec: dict[str, Any], unit: int = 1) -> str:
    """The table ``joined`` of yahoo's views: campaigns and starts of their windows, in so many-th of milliseconds."""
    # A join with VALUES would keep every view as state for ever; a map is what a table lookup comes down to.
    ads = ", ".join(f"'{ad}', '{campaign}'" for ad, campaign in spec["ads"].items())
    return f"""
        WITH events AS (
            SELECT JSON_VALUE(line, '$.ad_id') AS ad_id, JSON_VALUE(line, '$.event_type') AS event_type,
                   CAST(JSON_VALUE(line, '$.event_time') AS BIGINT) AS event_time
            FROM lines
        ),
        joined AS (
            SELECT MAP[{ads}][ad_id] AS campaign_id, (event_time - MOD(event_time, 10000)) * {unit} AS window_start
            FROM events WHERE event_type = 'view'
        )"""


def statements(spec: dict[str, Any]) -> tuple[str, str]:
    """Return the columns of the output and the query."""
    if spec["workload"] == "yahoo":
        counts = "SELECT campaign_id, window_start, COUNT(*) AS n FROM joined GROUP BY campaign_id, window_start"
        select = f"{views(spec)} SELECT campaign_id, window_start, n, {_NOW} FROM ({counts})"
        return "campaign STRING, start_ms BIGINT, n BIGINT, out_at STRING", select
    if spec["workload"] == "wordcount":
        words = "lines CROSS JOIN UNNEST(SPLIT(line, ' ')) AS w(word)"
        select = f"SELECT word, n, {_NOW} FROM (SELECT word, COUNT(*) AS n FROM {words} GROUP BY word)"
        return "word STRING, n BIGINT, out_at STRING", select
    number, line = (f"SPLIT_INDEX(line, '\t', {i})" for i in range(2))
    found = f"REGEXP({line}, '(^| ){spec['needle']}( |$)')"
    select = f"SELECT CAST({number} AS BIGINT), {line}, {_NOW} FROM lines WHERE {found}"
    return "number BIGINT, line STRING, out_at STRING", select


def configured(environment: Any, spec: dict[str, Any]) -> Any:
    """Open the tables with the settings of a specification."""
    from pyflink.table import StreamTableEnvironment  # type: ignore[import-not-found]

    tables = StreamTableEnvironment.create(environment)
    for name, value in spec["configuration"].items():
        tables.get_config().set(name, value)
    return tables


def run_sql(environment: Any, lines: Any, spec: dict[str, Any]) -> None:
    """Run the query of a specification; every change of a row is printed to standard output."""
    from pyflink.table import Schema

    tables = configured(environment, spec)
    if spec["workload"] == "file":
        tables.create_temporary_view("lines", lines, schema(Schema.new_builder()))
        file = FlinkFile(spec)
        views, sinks = file.views()
        for name, query in views:
            tables.execute_sql(f"CREATE TEMPORARY VIEW {name} AS {query}")
        columns, select = _RESULTS, file.result(sinks)
    else:
        tables.create_temporary_view("lines", tables.from_data_stream(lines).alias("line"))
        columns, select = statements(spec)
    tables.execute_sql(f"CREATE TEMPORARY TABLE results ({columns}) WITH ('connector' = 'print')")
    tables.execute_sql(f"INSERT INTO results {select}").wait()
