"""The workloads on Flink over Kafka: PyFlink between its connector's tables, or Flink SQL alone; run by `run_flink`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyflink.common import Row, Types  # type: ignore[import-not-found]

from .flink_sql import configured, views

_SOURCE = """
CREATE TEMPORARY TABLE lines (line STRING) WITH (
    'connector' = 'kafka', 'topic' = '{events}', 'properties.bootstrap.servers' = '{servers}',
    'properties.group.id' = 'bench', 'scan.startup.mode' = 'earliest-offset', 'format' = 'raw'
)"""
_RESULTS = """
CREATE TEMPORARY TABLE results (
    campaign_id STRING, window_start BIGINT, `count` BIGINT{key}
) WITH (
    'topic' = '{results}', 'properties.bootstrap.servers' = '{servers}', 'key.format' = 'json',
    'value.format' = 'json', {connector}
)"""
_UPSERTED = {
    "key": ", PRIMARY KEY (campaign_id, window_start) NOT ENFORCED",
    "connector": "'connector' = 'upsert-kafka'",
}
_APPENDED = {
    "key": "",
    "connector": "'connector' = 'kafka', 'key.fields' = 'campaign_id', 'sink.delivery-guarantee' = 'none'",
}
COUNTED = Types.ROW_NAMED(["campaign_id", "window_start", "n"], [Types.STRING(), Types.LONG(), Types.LONG()])


def counted(key: str, count: int) -> Iterable[Row]:
    """The row of a campaign's count."""
    campaign, _, start_ms = key.partition("\t")
    return (Row(campaign, int(start_ms) * 1000, count),)


def run(environment: Any, spec: dict[str, Any], count: Any) -> None:
    """Run until it is ended; ``count`` turns a stream of lines into one of counts, each made by `counted`."""
    tables = configured(environment, spec)
    tables.execute_sql(_SOURCE.format(**spec))
    if spec["variant"] == "sql":
        tables.execute_sql(_RESULTS.format(**spec, **_UPSERTED))
        select = "SELECT campaign_id, window_start, COUNT(*) FROM joined GROUP BY campaign_id, window_start"
        tables.execute_sql(f"INSERT INTO results {views(spec, 1000)} {select}").wait()
        return
    tables.execute_sql(_RESULTS.format(**spec, **_APPENDED))
    lines = tables.to_data_stream(tables.from_path("lines")).map(lambda row: row[0], Types.STRING())
    tables.create_temporary_view("counted", tables.from_data_stream(count(lines)))
    tables.execute_sql("INSERT INTO results SELECT campaign_id, window_start, n FROM counted").wait()
