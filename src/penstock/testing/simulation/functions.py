"""Process functions and calls that are simulated, and a plain loop that says what the ordered one must give."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable
from heapq import heappop, heappush
from math import inf
from typing import Any
from zlib import crc32

from penstock.connectors.base import Sink
from penstock.operators import Process, retry
from penstock.operators.keyed.process import state
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.streams.stream import Stream
from penstock.testing.simulation.oracle import SCHEMA, WINDOW_US, Row

WINDOWS = "key string, start timestamp, end timestamp, n bigint, total bigint"
TOLD = "key string, at timestamp, word string, x bigint"
PAUSE_US = 30_000


class Windowing(Process):
    """Counts by window with a map and timers: whatever order records come in, each is there before its timer."""

    windows = state.map(int, list[int])

    def on_record(self, record: Any, ctx: Any) -> None:
        start = record.at - record.at % WINDOW_US
        held = self.windows.setdefault(start, [0, 0])
        held[0] += 1
        held[1] += record.seq
        ctx.set_timer(start + WINDOW_US)

    def on_timer(self, at_us: int, ctx: Any) -> Any:
        n, total = self.windows.pop(at_us - WINDOW_US)
        yield ctx.key, at_us - WINDOW_US, at_us, n, total
        if not self.windows:
            ctx.forget()


class Buffering(Process):
    """Holds records back for a while of the clock: each comes once, in order, whenever that is."""

    held = state.list(list[int])

    def on_record(self, record: Any, ctx: Any) -> None:
        if not self.held:
            ctx.set_clock_timer(PAUSE_US / 1e6)
        self.held.append([record.partition, record.seq, record.key_seq, record.at])

    def on_clock(self, at_us: int, ctx: Any) -> Any:
        for partition, seq, key_seq, at in self.held:
            yield partition, seq, ctx.key, key_seq, at
        self.held = []


class Following(Process):
    """Depends on the order of records and timers: a pause of a key is told, and what came before it forgotten."""

    count = state.value(int, default=0)
    due = state.value(int)
    last = state.value(int, default=-1, ttl=5 * PAUSE_US / 1e6)

    def on_record(self, record: Any, ctx: Any) -> Any:
        if self.due is not None:
            ctx.cancel_timer(self.due)
        self.count += 1
        self.due = record.at + PAUSE_US
        ctx.set_timer(self.due)
        yield record.key, record.at, "record", self.count * 1_000 + self.last
        self.last = record.seq

    def on_timer(self, at_us: int, ctx: Any) -> Any:
        yield ctx.key, at_us, "pause", self.count
        self.count, self.due = 0, None


def followed(rows: Iterable[Row]) -> Counter[tuple[object, ...]]:
    """What `Following` tells, from the rows in the order of time."""
    told: Counter[tuple[object, ...]] = Counter()
    counts: dict[str, int] = defaultdict(int)
    due: dict[str, int] = {}
    last: dict[str, tuple[int, int]] = {}
    timers: list[tuple[int, str]] = []

    def fire(until_us: float) -> None:
        while timers and timers[0][0] <= until_us:
            at_us, key = heappop(timers)
            if due.get(key) == at_us:
                told[key, at_us, "pause", counts[key]] += 1
                counts[key] = 0
                del due[key]
                if key in last and at_us - last[key][1] <= 5 * PAUSE_US:
                    last[key] = last[key][0], at_us

    for partition, seq, key, key_seq, at_us in sorted(rows, key=lambda row: (row[4], *row[:4])):
        del partition, key_seq
        fire(at_us)
        counts[key] += 1
        due[key] = at_us + PAUSE_US
        heappush(timers, (due[key], key))
        before, seen_us = last.get(key, (-1, at_us))
        told[key, at_us, "record", counts[key] * 1_000 + (before if at_us - seen_us <= 5 * PAUSE_US else -1)] += 1
        last[key] = seq, at_us
    fire(inf)
    return told


class Service:
    """A service that takes its time, and fails or hangs at the first call for some; which, depends on the record."""

    def __init__(self) -> None:
        self._known: set[tuple[int, int]] = set()

    async def __call__(self, record: Any) -> Any:
        which = record.partition, record.seq
        drawn = crc32(b"%d %d" % which)
        await asyncio.sleep((0.0, 0.0005, 0.01, 0.2)[drawn % 4])
        if which not in self._known:
            self._known.add(which)
            if drawn % 5 == 0:
                raise ConnectionError("try again")
            if drawn % 11 == 0:
                await asyncio.sleep(1_000)
        return record


def windowed(records: Stream, out: Sink) -> Pipeline:
    """`Windowing`, with late records dropped: there are none."""
    return records.key_by("key").process(Windowing, schema=WINDOWS, time="at").to(out, name="out")


def buffered(records: Stream, out: Sink) -> Pipeline:
    """`Buffering`."""
    return records.key_by("key").process(Buffering, schema=SCHEMA).to(out, name="out")


def following(records: Stream, out: Sink) -> Pipeline:
    """`Following`, in the order of time."""
    return records.key_by("key").process(Following, schema=TOLD, time="at", order="time").to(out, name="out")


def called(records: Stream, out: Sink, *, ordered: bool) -> Pipeline:
    """Calls, in order or by key."""
    stream = records if ordered else records.key_by("key")
    made = stream.map_async(
        Service(), schema=SCHEMA, capacity=3, timeout="1s", retry=retry(9, wait="5ms"), ordered=ordered, name="call"
    )
    return made.to(out, name="out")
