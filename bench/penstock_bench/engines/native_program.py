"""Penstock as a program of its own, like every engine that it is compared with; `native` starts it.

Results leave through a sink that stamps them as soon as they come, without waiting for a commit, as the others do.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

import penstock as ps
from penstock.connectors.rates import RateSchedule
from penstock.types import Record
from penstock_bench.engines.subjects import subject
from penstock_bench.meter.stamped import Stamped
from penstock_bench.workloads.yahoo import CAMPAIGN_OF_AD

POLL_S = 0.05


def views(event: Record) -> list[tuple[str, int]]:
    return [(CAMPAIGN_OF_AD[event.ad_id], event.event_time)] if event.event_type == "view" else []


def between_topics(spec: dict[str, Any]) -> ps.Pipeline:
    """Build yahoo with Python functions between the topics of a specification."""
    events = ps.stream("events", ps.kafka(spec["servers"], spec["events"], columns=("value",)))
    found = events.parse_json("ad_id string, event_type string, event_time timestamp").flat_map(
        views, schema="campaign_id string, event_time timestamp"
    )
    counts = found.key_by("campaign_id").window(ps.tumbling("10s", on="event_time", lateness="1s", emit="update"))
    sink = ps.kafka(spec["servers"], spec["results"], key="campaign_id", delivery=spec["delivery"])
    return counts.count().to(sink)


def with_events(spec: dict[str, Any]) -> ps.Pipeline:
    wanted = subject(spec["reference"])
    sink = Stamped(Path(spec["out"]), wanted.columns, wanted.constants)
    rate = msgspec.convert(spec["rate"], RateSchedule | None)
    return wanted.pipeline(rate, spec["seconds"], sink, seed=spec["seed"])


def run(spec: dict[str, Any]) -> None:
    """Run a specification to its end, or over Kafka to that of its standard input; tells when the schedule began."""
    over_kafka = "servers" in spec
    pipeline = between_topics(spec) if over_kafka else with_events(spec)
    with ps.start(pipeline, name="bench", parallelism=spec["parallelism"], **spec["options"]) as job:
        if over_kafka:
            sys.stdin.read()
            return
        while not job.start_us and job.wait(POLL_S) is None:
            pass
        print(json.dumps({"start_us": job.start_us}), flush=True)
        job.wait()


if __name__ == "__main__":
    run(json.loads(Path(os.environ["PENSTOCK_SPEC"]).read_text()))
