"""Structured Streaming and Real-Time Mode over Kafka as a program of its own."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from penstock_bench.engines.spark_queries import query
from penstock_bench.engines.spark_session import open_spark


def _run(spec: dict[str, Any]) -> None:
    is_real_time = spec["variant"] == "real-time"
    with open_spark(spec["master"], spec["settings"]) as spark:
        lines = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", spec["servers"])
            .option("subscribe", spec["events"])
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr("CAST(value AS string) AS value")
        )
        variant = "sql" if is_real_time else spec["variant"]
        rows = query(spark, lines, spec["workload"], variant, watermark=not is_real_time)
        writer = (
            rows.selectExpr("campaign_id AS key", "to_json(struct(*)) AS value")
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", spec["servers"])
            .option("topic", spec["results"])
            .option("checkpointLocation", str(Path(spec["out"]) / "checkpoint"))
            .outputMode("update")
        )
        if is_real_time:
            writer = writer.trigger(realTime=spec["trigger"])
        elif spec["trigger"]:
            writer = writer.trigger(processingTime=spec["trigger"])
        running = writer.start()
        threading.Thread(target=lambda: (sys.stdin.read(), running.stop()), daemon=True).start()
        running.awaitTermination()


if __name__ == "__main__":
    _run(json.loads(Path(os.environ["PENSTOCK_SPEC"]).read_text()))
