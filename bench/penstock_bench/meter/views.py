"""The Yahoo pipeline for the measurements of failures: when each view was due, and a branch that one worker has."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

import penstock as ps
from penstock.connectors.generator import Generator
from penstock_bench.meter.timeline import Times
from penstock_bench.workloads import replay
from penstock_bench.workloads.base import REPLAY_RECORDS
from penstock_bench.workloads.yahoo import CAMPAIGN_OF_AD, WINDOW_MS

_COLUMNS = pa.schema([("ad_id", pa.string()), ("event_type", pa.string()), ("event_time", pa.int64())])


def count_as_a_whole(events: ps.Stream) -> ps.Stream:
    """The six operations without the key: from a source of one partition on, everything lives on worker 0."""
    ads = ps.table(CAMPAIGN_OF_AD.items(), schema="ad_id string, campaign_id string", key="ad_id")
    return (
        events.parse_json("ad_id string, event_type string, event_time timestamp")
        .filter(ps.col("event_type") == "view")
        .select("ad_id", "event_time")
        .lookup(ads, on="ad_id")
        .window(ps.tumbling("10s", on="event_time", lateness="1s", emit="update"))
        .count()
    )


def views_due(source: Generator, start_us: int, *, keyed: bool) -> dict[tuple[str, int], Times]:
    """Scheduled times of the views of each campaign (or, without key, of all) and window, ascending.

    Windows are named by their start in microseconds.
    """
    assert source.schedule is not None
    assert source.total is not None
    due_us = start_us + source.schedule.times_us(0, source.total)
    options = pa.json.ParseOptions(explicit_schema=_COLUMNS, unexpected_field_behavior="ignore")
    records, groups = replay(source, start_us), []
    while lines := [record.value for record in islice(records, REPLAY_RECORDS)]:
        events = pa.json.read_json(pa.BufferReader(b"\n".join(lines)), parse_options=options)
        groups.append(events.select(["ad_id", "event_type", "event_time"]))
    events = pa.concat_tables(groups)
    is_view = pc.equal(events["event_type"], "view")
    views = events.filter(is_view)
    due_us = due_us[is_view.to_numpy()]
    starts_us = views["event_time"].to_numpy() // WINDOW_MS * WINDOW_MS * 1000
    names = [""] * len(views) if not keyed else [CAMPAIGN_OF_AD[ad] for ad in views["ad_id"].to_pylist()]
    campaigns, campaign = np.unique(np.array(names), return_inverse=True)
    found: dict[tuple[str, int], Times] = {}
    for i, name in enumerate(campaigns):
        mine = campaign == i
        for start_us_ in np.unique(starts_us[mine]):
            found[str(name), int(start_us_)] = np.sort(due_us[mine & (starts_us == start_us_)])
    return found
