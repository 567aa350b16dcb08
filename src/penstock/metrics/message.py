"""The figures of one operation instance as they travel."""

from __future__ import annotations

import msgspec


class StatsMessage(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
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
    entered_us: int = 0
    """Sums over records, counted from when each was scheduled: until it came to the operation, and until it left."""
    left_us: int = 0
    wait_us: int = 0
    """Of that, spent on waiting for the rest of a micro-batch."""
    schedule_us: int = 0
    """Of that, spent on the way of a micro-batch to a slot and in its queue."""
    fallbacks: int = 0
    """Batches that the vectorised form could not handle and the loop did."""
    built: int = 0
    """Generation in which the instance was built: what no snapshot holds, latencies above all, counts from then on."""
    timed_out: int = 0
    """Records that a source has dropped because they, or too many, had waited."""
    over_bound: int = 0
