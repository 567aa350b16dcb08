"""The Yahoo streaming benchmark: views of ads, counted for each campaign in windows of 10 s."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from uuid import NAMESPACE_URL, uuid5

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

import penstock as ps
from penstock.types import Record
from penstock_bench.workloads.base import (
    REPLAY_RECORDS,
    Comparison,
    Row,
    Workload,
    compare_counts,
    compare_updates,
    time_us,
)

CAMPAIGNS = 100
ADS_PER_CAMPAIGN = 10
WINDOW_MS = 10_000

Windows = dict[tuple[str, int], int]
"""Views by campaign and start of the window in microseconds."""


def _ids(kind: str, count: int) -> list[str]:
    return [str(uuid5(NAMESPACE_URL, f"{kind}/{i}")) for i in range(count)]


_CAMPAIGN_IDS = _ids("campaign", CAMPAIGNS)
CAMPAIGN_OF_AD = {
    ad: _CAMPAIGN_IDS[i // ADS_PER_CAMPAIGN] for i, ad in enumerate(_ids("ad", CAMPAIGNS * ADS_PER_CAMPAIGN))
}
FIELDS = {
    "user_id": ps.fields.choice(_ids("user", 100)),
    "page_id": ps.fields.choice(_ids("page", 100)),
    "ad_id": ps.fields.choice(list(CAMPAIGN_OF_AD)),
    "ad_type": ps.fields.choice(["banner", "modal", "sponsored-search", "mail", "mobile"]),
    "event_type": ps.fields.choice(["view", "click", "purchase"]),
    "event_time": ps.fields.event_time(unit="ms"),
    "ip_address": "1.2.3.4",
}


def _build(emit: str) -> Callable[[ps.Stream], ps.Stream]:
    ads = ps.table(CAMPAIGN_OF_AD.items(), schema="ad_id string, campaign_id string", key="ad_id")

    def build(events: ps.Stream) -> ps.Stream:
        return (
            events.parse_json("ad_id string, event_type string, event_time timestamp")
            .filter(ps.col("event_type") == "view")
            .select("ad_id", "event_time")
            .lookup(ads, on="ad_id")
            .key_by("campaign_id")
            .window(ps.tumbling("10s", on="event_time", lateness="1s", emit=emit))
            .count()
        )

    return build


def expected(records: Iterable[Record]) -> Windows:
    """Count the views of each campaign and window with Arrow, from the JSON text on."""
    columns = pa.schema([("ad_id", pa.string()), ("event_type", pa.string()), ("event_time", pa.int64())])
    options = pa.json.ParseOptions(explicit_schema=columns, unexpected_field_behavior="ignore")
    counts: Counter[tuple[str, int]] = Counter()
    records = iter(records)
    while lines := [record.value for record in islice(records, REPLAY_RECORDS)]:
        events = pa.json.read_json(pa.BufferReader(b"\n".join(lines)), parse_options=options)
        views = events.filter(pc.equal(events["event_type"], "view"))
        starts_ms = pc.multiply(pc.divide(views["event_time"], WINDOW_MS), WINDOW_MS)
        groups = pa.table({"ad": views["ad_id"], "start_ms": starts_ms, "n": starts_ms})
        for group in groups.group_by(["ad", "start_ms"]).aggregate([("n", "count")]).to_pylist():
            counts[CAMPAIGN_OF_AD[group["ad"]], group["start_ms"] * 1000] += group["n_count"]
    return dict(counts)


def _split(rows: Iterable[Row]) -> tuple[list[tuple[tuple[str, int], int]], int]:
    """Return windows with their counts, in order, and how many rows have an end that is not their window's."""
    windows, wrong = [], 0
    for row in rows:
        start_us = time_us(row["window_start"])
        wrong += time_us(row["window_end"]) != start_us + WINDOW_MS * 1000
        windows.append(((row["campaign_id"], start_us), row["count"]))
    return windows, wrong


def compare_closed(exact: Windows, rows: Iterable[Row], partitions: int) -> Comparison:
    """Compare rows of closed windows: one each, in order for each campaign."""
    del partitions
    windows, wrong = _split(rows)
    got: Counter[tuple[str, int]] = Counter()
    newest_us: dict[str, int] = {}
    reordered = 0
    for (campaign, start_us), count in windows:
        # A window that is closed twice has its records twice.
        got[campaign, start_us] += count
        reordered += start_us < newest_us.get(campaign, start_us)
        newest_us[campaign] = max(start_us, newest_us.get(campaign, start_us))
    found = compare_counts(exact, got)
    return replace(found, wrong=found.wrong + wrong, reordered=reordered)


def compare_changed(exact: Windows, rows: Iterable[Row], partitions: int) -> Comparison:
    """Compare rows of changed windows, of which the last holds the result."""
    del partitions
    windows, wrong = _split(rows)
    found = compare_updates(exact, windows)
    return replace(found, wrong=found.wrong + wrong)


YAHOO = Workload(
    name="yahoo",
    title="views of ads by campaign in windows of 10 s; a row when a window closes",
    fields=FIELDS,
    format="json",
    build=_build("close"),
    expected=expected,
    compare=compare_closed,
)
YAHOO_UPDATES = Workload(
    name="yahoo-updates",
    title="views of ads by campaign in windows of 10 s; a row whenever a count changes",
    fields=FIELDS,
    format="json",
    build=_build("update"),
    expected=expected,
    compare=compare_changed,
)
