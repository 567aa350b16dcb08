"""The figures of one operation instance, as the engine counts them and heartbeats carry them."""

from __future__ import annotations

from penstock.metrics.histogram import Histogram
from penstock.metrics.message import StatsMessage


class OpStats:
    """Counters of one operation instance; plain attributes, because the hot path adds to them."""

    __slots__ = (
        "blocks",
        "busy_ns",
        "entered_us",
        "fallbacks",
        "form",
        "late_records",
        "latency_us",
        "left_us",
        "name",
        "queue_records",
        "records_in",
        "records_out",
        "schedule_us",
        "wait_us",
    )

    def __init__(self, name: str, form: str) -> None:
        self.name = name
        self.form = form
        self.records_in = 0
        self.records_out = 0
        self.late_records = 0
        self.blocks = 0
        self.busy_ns = 0
        self.queue_records = 0
        self.latency_us = Histogram()
        self.entered_us = 0
        self.left_us = 0
        self.wait_us = 0
        self.schedule_us = 0
        self.fallbacks = 0

    def message(
        self,
        unit: int,
        instance: int,
        *,
        skipped: int = 0,
        retried: int = 0,
        dead_letters: int = 0,
        timed_out: int = 0,
        over_bound: int = 0,
    ) -> StatsMessage:
        """The figures as they are now, with what others count."""
        return StatsMessage(
            operation=self.name,
            unit=unit,
            instance=instance,
            form=self.form,
            records_in=self.records_in,
            records_out=self.records_out,
            blocks=self.blocks,
            busy_ns=self.busy_ns,
            queue_records=self.queue_records,
            late=self.late_records,
            skipped=skipped,
            retried=retried,
            dead_letters=dead_letters,
            latency_counts=self.latency_us.counts,
            latency_max_us=self.latency_us.maximum,
            entered_us=self.entered_us,
            left_us=self.left_us,
            wait_us=self.wait_us,
            schedule_us=self.schedule_us,
            fallbacks=self.fallbacks,
            timed_out=timed_out,
            over_bound=over_bound,
        )
