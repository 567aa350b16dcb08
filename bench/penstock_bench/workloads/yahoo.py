"""The Yahoo streaming benchmark: views of ads, counted for each campaign in windows of 10 s."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

import penstock as ps
from penstock.types import Record
from penstock_bench.workloads.base import (
    REPLAY_RECORDS,
    Comparison,
    Numbers,
    Row,
    Workload,
    compare_counts,
    compare_updates,
    time_us,
)

CAMPAIGNS = 100
ADS_PER_CAMPAIGN = 10
WINDOW_MS = 10_000
EVENT_TYPES = ("view", "click", "purchase")

Windows = dict[tuple[str, int], int]  # views by campaign and start of the window in microseconds


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
    "event_type": ps.fields.choice(EVENT_TYPES),
    "event_time": ps.fields.event_time(unit="ms"),
    "ip_address": "1.2.3.4",
}


def build(events: ps.Stream, emit: str, *, keyed: bool = True) -> ps.Stream:
    """The pipeline; without the key everything behind a source of one partition lives on worker 0."""
    ads = ps.table(CAMPAIGN_OF_AD.items(), schema="ad_id string, campaign_id string", key="ad_id")
    found = (
        events.parse_json("ad_id string, event_type string, event_time timestamp")
        .filter(ps.col("event_type") == "view")
        .select("ad_id", "event_time")
        .lookup(ads, on="ad_id")
    )
    window = ps.tumbling("10s", on="event_time", lateness="1s", emit=emit)
    return found.key_by("campaign_id").window(window).count() if keyed else found.window(window).count()


def parsed(text: bytes) -> pa.Table:
    columns = pa.schema([("ad_id", pa.string()), ("event_type", pa.string()), ("event_time", pa.int64())])
    options = pa.json.ParseOptions(explicit_schema=columns, unexpected_field_behavior="ignore")
    return pa.json.read_json(pa.BufferReader(text), parse_options=options)


def views(records: Iterable[Record]) -> Iterator[tuple[int, Numbers, list[str], Numbers]]:
    """Read events with Arrow, from the JSON text on, some at a time.

    Yields how many they are, and of those that are views their places, their ads, and the starts of their windows in
    microseconds.
    """
    records = iter(records)
    while lines := [record.value for record in islice(records, REPLAY_RECORDS)]:
        events = parsed(b"\n".join(lines))
        is_view = pc.equal(events["event_type"], "view")
        viewed = events.filter(is_view)
        starts_us = viewed["event_time"].to_numpy() // WINDOW_MS * WINDOW_MS * 1000
        yield len(lines), np.flatnonzero(is_view.to_numpy()), viewed["ad_id"].to_pylist(), starts_us


def expected(records: Iterable[Record]) -> Windows:
    counts: Counter[tuple[str, int]] = Counter()
    for _, _, ads, starts_us in views(records):
        counts.update(zip(map(CAMPAIGN_OF_AD.__getitem__, ads), starts_us.tolist(), strict=True))
    return dict(counts)


def due(records: Iterable[Record], times_us: Numbers, *, keyed: bool = True) -> dict[tuple[Any, ...], Numbers]:
    """Scheduled times of the views of each campaign (or, without key, of all) and window, ascending."""
    found: defaultdict[tuple[str, int], list[Numbers]] = defaultdict(list)
    first = 0
    for count, places, ads, starts_us in views(records):
        campaigns, campaign = np.unique([CAMPAIGN_OF_AD[ad] if keyed else "" for ad in ads], return_inverse=True)
        for start_us in np.unique(starts_us):
            inside = starts_us == start_us
            for i in np.unique(campaign[inside]):
                found[str(campaigns[i]), int(start_us)].append(times_us[first + places[inside & (campaign == i)]])
        first += count
    return {group: np.concatenate(times) for group, times in found.items()}


def _split(rows: Iterable[Row]) -> tuple[list[tuple[tuple[str, int], int]], int]:
    """Return windows with their counts, in order, and how many rows have an end that is not their window's."""
    windows, wrong = [], 0
    for row in rows:
        start_us = time_us(row["window_start"])
        # Other engines name a window by its start alone.
        end_us = start_us + WINDOW_MS * 1000
        wrong += time_us(row.get("window_end", end_us)) != end_us
        windows.append(((row["campaign_id"], start_us), row["count"]))
    return windows, wrong


def compare_closed(exact: Windows, rows: Iterable[Row], _: int) -> Comparison:
    """Compare rows of closed windows: one each, in order for each campaign."""
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


def compare_changed(exact: Windows, rows: Iterable[Row], _: int) -> Comparison:
    """Compare rows of changed windows, of which the last holds the result."""
    windows, wrong = _split(rows)
    found = compare_updates(exact, windows)
    return replace(found, wrong=found.wrong + wrong)


YAHOO = Workload(
    name="yahoo",
    title="views of ads by campaign in windows of 10 s; a row when a window closes",
    fields=FIELDS,
    format="json",
    build=partial(build, emit="close"),
    expected=expected,
    compare=compare_closed,
)
YAHOO_UPDATES = replace(
    YAHOO,
    name="yahoo-updates",
    title="views of ads by campaign in windows of 10 s; a row whenever a count changes",
    build=partial(build, emit="update"),
    compare=compare_changed,
    yields=1 / len(EVENT_TYPES),
    group=("campaign_id", "window_start"),
    columns=("campaign_id", "window_start", "count"),
    line=attrgetter("value"),
    program=lambda: {"ads": CAMPAIGN_OF_AD},
    due=due,
)
