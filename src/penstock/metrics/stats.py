"""The figures of one operation instance, as the engine counts them and heartbeats carry them."""

from __future__ import annotations

import msgspec

from penstock.metrics.histogram import Histogram


class StatsMessage(msgspec.Struct, array_like=True, frozen=True):
    """Cumulative figures of one operation on one worker."""

    operation: str
    unit: int
    instance: int
    form: str
    records_in: int
    records_out: int
    blocks: int
    busy_ns: int
    queue_records: int
    late: int
    skipped: int
    retried: int
    dead_letters: int
    latency_counts: dict[int, int]
    latency_max_us: int


class OpStats:
    """Counters of one operation instance; plain attributes, because the hot path adds to them."""

    __slots__ = (
        "blocks",
        "busy_ns",
        "form",
        "latency_us",
        "name",
        "queue_records",
        "records_in",
        "records_out",
    )

    def __init__(self, name: str, form: str) -> None:
        self.name = name
        self.form = form
        self.records_in = 0
        self.records_out = 0
        self.blocks = 0
        self.busy_ns = 0
        self.queue_records = 0
        self.latency_us = Histogram()
