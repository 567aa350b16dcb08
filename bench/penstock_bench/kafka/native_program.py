"""Penstock over Kafka as a program of its own: yahoo with Python functions between two topics."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.types import Record
from penstock_bench.workloads.yahoo import CAMPAIGN_OF_AD


def views(event: Record) -> list[tuple[str, int]]:
    """Filter and join: the campaign and time of a view."""
    if event.event_type != "view":
        return []
    return [(CAMPAIGN_OF_AD[event.ad_id], event.event_time)]


def pipeline(spec: dict[str, Any]) -> ps.Pipeline:
    """Build it between the topics of a specification."""
    events = ps.stream("events", ps.kafka(spec["servers"], spec["events"], columns=("value",)))
    found = events.parse_json("ad_id string, event_type string, event_time timestamp").flat_map(
        views, schema="campaign_id string, event_time timestamp"
    )
    counts = found.key_by("campaign_id").window(ps.tumbling("10s", on="event_time", lateness="1s", emit="update"))
    sink = ps.kafka(spec["servers"], spec["results"], key="campaign_id", delivery=spec["delivery"])
    return counts.count().to(sink)


def main() -> None:
    """Run a specification until the end of the input, which is the word to stop."""
    spec = json.loads(Path(os.environ["PENSTOCK_SPEC"]).read_text())
    with ps.start(pipeline(spec), name="bench", parallelism=spec["parallelism"], **spec["options"]):
        sys.stdin.read()


if __name__ == "__main__":
    main()
