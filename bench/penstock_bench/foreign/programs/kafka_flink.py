"""The workloads on Flink over Kafka: PyFlink between its connector's tables, or Flink SQL alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyflink.common import Row, Types  # type: ignore[import-not-found]
from pyflink.datastream import KeyedProcessFunction  # type: ignore[import-not-found]
from pyflink.datastream.state import ValueStateDescriptor  # type: ignore[import-not-found]
from pyflink.table import StreamTableEnvironment  # type: ignore[import-not-found]

from .run_flink import Keys, make_environment

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
_QUERY = """
INSERT INTO results
WITH events AS (
    SELECT JSON_VALUE(line, '$.ad_id') AS ad_id, JSON_VALUE(line, '$.event_type') AS event_type,
           CAST(JSON_VALUE(line, '$.event_time') AS BIGINT) AS event_time
    FROM lines
),
joined AS (
    SELECT MAP[{ads}][ad_id] AS campaign_id, (event_time - MOD(event_time, 10000)) * 1000 AS window_start
    FROM events WHERE event_type = 'view'
)
SELECT campaign_id, window_start, COUNT(*) FROM joined GROUP BY campaign_id, window_start"""
_UPSERTED = {
    "key": ", PRIMARY KEY (campaign_id, window_start) NOT ENFORCED",
    "connector": "'connector' = 'upsert-kafka'",
}
_APPENDED = {
    "key": "",
    "connector": "'connector' = 'kafka', 'key.fields' = 'campaign_id', 'sink.delivery-guarantee' = 'none'",
}
_COUNTED = Types.ROW_NAMED(["campaign_id", "window_start", "n"], [Types.STRING(), Types.LONG(), Types.LONG()])


class _Count(KeyedProcessFunction):  # type: ignore[misc]
    """The running count of a campaign and window in Flink's state."""

    def open(self, runtime_context: Any) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: Any) -> Iterable[Row]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        campaign, _, start_ms = value.partition("\t")
        yield Row(campaign, int(start_ms) * 1000, count)


def main() -> None:
    """Run the query of a specification until it is ended."""
    spec = json.loads(Path(os.environ["PENSTOCK_SPEC"]).read_text())
    environment = make_environment(spec)
    tables = StreamTableEnvironment.create(environment)
    for name, value in spec["configuration"].items():
        tables.get_config().set(name, value)
    tables.execute_sql(_SOURCE.format(**spec))
    if spec["variant"] == "sql":
        tables.execute_sql(_RESULTS.format(**spec, **_UPSERTED))
        # A join with VALUES would keep every view as state for ever; a map is what a table lookup comes down to.
        ads = ", ".join(f"'{ad}', '{campaign}'" for ad, campaign in spec["ads"].items())
        tables.execute_sql(_QUERY.format(ads=ads)).wait()
        return
    tables.execute_sql(_RESULTS.format(**spec, **_APPENDED))
    lines = tables.to_data_stream(tables.from_path("lines")).map(lambda row: row[0], Types.STRING())
    counted = (
        lines.flat_map(Keys(spec), Types.STRING()).key_by(lambda key: key, Types.STRING()).process(_Count(), _COUNTED)
    )
    tables.create_temporary_view("counted", tables.from_data_stream(counted))
    tables.execute_sql("INSERT INTO results SELECT campaign_id, window_start, n FROM counted").wait()


if __name__ == "__main__":
    main()
