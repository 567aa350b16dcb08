"""The workloads in Flink SQL, from the socket's lines to the print connector, with no Python on the way."""

from __future__ import annotations

from typing import Any

from pyflink.table import Schema, StreamTableEnvironment  # type: ignore[import-not-found]

from . import flink_files

# Printed last, so that it is taken when the row is complete; milliseconds are all that Flink SQL has.
_NOW = "CAST(CURRENT_ROW_TIMESTAMP() AS STRING)"


def statements(spec: dict[str, Any]) -> tuple[str, str]:
    """Return the columns of the output and the query."""
    name = spec["workload"]
    if name == "yahoo":
        # A join with VALUES would keep every view as state for ever; a map is what a table lookup comes down to.
        ads = ", ".join(f"'{ad}', '{campaign}'" for ad, campaign in spec["ads"].items())
        return (
            "campaign STRING, start_ms BIGINT, n BIGINT, out_at STRING",
            f"""
            WITH events AS (
                SELECT JSON_VALUE(line, '$.ad_id') AS ad_id, JSON_VALUE(line, '$.event_type') AS event_type,
                       CAST(JSON_VALUE(line, '$.event_time') AS BIGINT) AS event_time
                FROM lines
            ),
            viewed AS (SELECT ad_id, event_time FROM events WHERE event_type = 'view'),
            joined AS (
                SELECT MAP[{ads}][ad_id] AS campaign_id, event_time - MOD(event_time, 10000) AS start_ms FROM viewed
            )
            SELECT campaign_id, start_ms, n, {_NOW} FROM (
                SELECT campaign_id, start_ms, COUNT(*) AS n FROM joined GROUP BY campaign_id, start_ms
            )""",
        )
    if name == "wordcount":
        return (
            "word STRING, n BIGINT, out_at STRING",
            f"""
            SELECT word, n, {_NOW} FROM (
                SELECT word, COUNT(*) AS n
                FROM lines CROSS JOIN UNNEST(SPLIT(line, ' ')) AS w(word) GROUP BY word
            )""",
        )
    return (
        "number BIGINT, line STRING, out_at STRING",
        f"""
        SELECT CAST(SPLIT_INDEX(line, '\t', 0) AS BIGINT), SPLIT_INDEX(line, '\t', 1), {_NOW}
        FROM lines WHERE REGEXP(SPLIT_INDEX(line, '\t', 1), '(^| ){spec["needle"]}( |$)')""",
    )


def run_sql(environment: Any, lines: Any, spec: dict[str, Any]) -> None:
    """Run the query of a specification; every change of a row is printed to standard output."""
    tables = StreamTableEnvironment.create(environment)
    for name, value in spec["configuration"].items():
        tables.get_config().set(name, value)
    if spec["workload"] == "file":
        tables.create_temporary_view("lines", lines, flink_files.schema(Schema.new_builder()))
        views, select = flink_files.statements(spec, _NOW)
        for name, query in views:
            tables.execute_sql(f"CREATE TEMPORARY VIEW {name} AS {query}")
        columns = flink_files.COLUMNS
    else:
        tables.create_temporary_view("lines", tables.from_data_stream(lines).alias("line"))
        columns, select = statements(spec)
    tables.execute_sql(f"CREATE TEMPORARY TABLE results ({columns}) WITH ('connector' = 'print')")
    tables.execute_sql(f"INSERT INTO results {select}").wait()
