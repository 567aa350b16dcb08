"""A unit that reads its share of a source's partitions and cuts them into blocks of bounded work."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.connectors.base import SourceReader
from penstock.dataset import Mark
from penstock.engine.chain import ClockNs
from penstock.engine.edges import EdgeOutput
from penstock.engine.snapshot import OpCounters, UnitSnapshot
from penstock.engine.unit import Unit, fit_records
from penstock.metrics import OpStats
from penstock.metrics.stats import StatsMessage
from penstock.metrics.times import later
from penstock.pipeline.plan import Plan, UnitSpec

_FIRST_BLOCK_RECORDS = 64


class SourceUnit(Unit):
    """A unit that reads its share of a source's partitions and cuts them into blocks."""

    def __init__(self, spec: UnitSpec, instance: int, plan: Plan, outputs: list[EdgeOutput], clock_ns: ClockNs) -> None:
        super().__init__(spec, instance, plan, outputs, clock_ns)
        assert spec.source is not None
        self.readers: dict[int, SourceReader] = {
            p: spec.source.reader(p, spec.partitions, plan.start_us)
            for p in range(spec.partitions)
            if p % spec.instances == instance
        }
        self.stats = OpStats(spec.name, "record")
        self._options = plan.options
        self._clock_ns = clock_ns
        self._next_id = 0
        self._marker: int | None = None
        self._drain = False
        self._paused = False
        self._not_before_us = 0
        self._active_us = 0
        # By partition: when it last showed an event time (the start counts), and the largest one.
        self._shown: dict[int, tuple[int, int | None]] = dict.fromkeys(self.readers, (plan.start_us, None))
        self._records_max = _FIRST_BLOCK_RECORDS

    @property
    def offsets(self) -> dict[int, int]:
        """Next offset of each partition."""
        return {partition: reader.offset for partition, reader in self.readers.items()}

    def _offsets(self) -> dict[int, int]:
        return self.offsets

    def _counters(self) -> list[OpCounters]:
        own = OpCounters(self.stats.name, self.stats.records_in, self.stats.records_out, 0, 0, 0)
        return [own, *super()._counters()]

    def restore(self, snapshots: Sequence[UnitSnapshot]) -> None:
        last = snapshots[-1]
        own = last.operations[0]
        self.stats.records_in, self.stats.records_out = own.records_in, own.records_out
        super().restore(snapshots)
        self._next_id = last.next_id
        for partition, offset in last.offsets.items():
            self.readers[partition].seek(offset)

    def close(self) -> None:
        super().close()
        for reader in self.readers.values():
            reader.close()

    def begin_epoch(self, epoch: int) -> None:
        """Put the marker of ``epoch`` into the output at the next step, unless it has been there."""
        if epoch > self.done_epoch:
            self._marker = epoch

    def drain(self) -> None:
        """Read nothing more and end."""
        self._drain = True

    def pause(self) -> None:
        """Read nothing more, but pass markers on."""
        self._paused = True

    def step(self, now_us: int) -> bool:
        """Send a marker, or read what is due and run it through the chain."""
        if self.finished:
            return False
        if self._marker is not None:
            self._span.epoch, self._marker = self._marker, None
            self._mark(Mark.EPOCH, self._next_id, self._next_id, [])
            self._next_id += 1
            return True
        if self._drain:
            return self._end()
        if self._paused or now_us < self._not_before_us or not self.has_room:
            return False
        if not self._active_us:
            # Partitions are waited for from the first read on: a restored source has been silent for its recovery.
            self._shown = {p: (max(now_us, shown_us), seen_us) for p, (shown_us, seen_us) in self._shown.items()}
        worked = False
        open_partitions = False
        for partition, reader in self.readers.items():
            wake_us = reader.wake_us(now_us)
            if wake_us is None:
                continue
            open_partitions = True
            if wake_us <= now_us and self._read(partition, reader, now_us):
                worked = True
        if not open_partitions:
            return self._end()
        if not self._span.idle and now_us - (self._active_us or now_us) >= self._options.idle_us:
            self._announce_idle()
        self._active_us = self._active_us or now_us
        return worked

    def _event_time_us(self, partition: int, now_us: int) -> int | None:
        """Least event time of the partitions that have shown one lately; None while one may still show its first."""
        newest = self.chain.event_time_us_max
        if len(self.readers) == 1 or not self.chain.has_event_time:
            return newest
        if newest is not None:
            self._shown[partition] = now_us, later(self._shown[partition][1], newest)
        reached: int | None = None
        for each, (shown_us, event_time_us) in self._shown.items():
            if now_us - shown_us >= self._options.idle_us or self.readers[each].wake_us(now_us) is None:
                continue
            if event_time_us is None:
                return None
            reached = event_time_us if reached is None else min(reached, event_time_us)
        return reached

    def _read(self, partition: int, reader: SourceReader, now_us: int) -> bool:
        batch = reader.poll(now_us, self._records_max)
        if batch is None:
            return False
        count, span, stats = len(batch.rows), self._span, self.stats
        before_ns = self._clock_ns()
        rows = self.chain.push(batch.rows, batch.due_us)
        span.first = span.last = self._next_id
        self._next_id += 1
        span.due_us = batch.due_us
        if not self.chain.has_event_time or self.chain.event_time_us_max is not None:
            # Records that a filter takes out before the window tell no event time, and must not hold it back for ever.
            self._active_us = now_us
            span.idle = False
        span.event_time_us_max = self._event_time_us(partition, now_us)
        self._emit(rows)
        after_ns = self._clock_ns()
        stats.records_in += count
        stats.records_out += count
        stats.blocks += 1
        stats.busy_ns += before_ns - now_us * 1000
        stats.latency_us.record(before_ns // 1000 - batch.due_us, count)
        full = count == self._records_max
        self._records_max = fit_records(self._records_max, count, after_ns - now_us * 1000, self._options.block_work_us)
        # A full block means that more is due: read on at once. Otherwise let a little gather.
        self._not_before_us = 0 if full else now_us + self._options.linger_us
        return True

    def _announce_idle(self) -> None:
        self._span.idle = True
        self._span.first = self._span.last = self._next_id
        self._next_id += 1
        self._span.event_time_us_max = None
        self._emit([])

    def _end(self) -> bool:
        self._mark(Mark.END, self._next_id, self._next_id, [])
        for reader in self.readers.values():
            reader.close()
        return True

    def wake_us(self, now_us: int) -> int | None:
        """When the source has something to do; None if only room, or nothing, is awaited."""
        if self.finished:
            return None
        if self._marker is not None or self._drain:
            return now_us
        if self._paused or not self.has_room:
            return None
        wakes = [wake for reader in self.readers.values() if (wake := reader.wake_us(now_us)) is not None]
        if not wakes:
            return max(now_us, self._not_before_us)
        soonest = max(min(wakes), self._not_before_us)
        if not self._span.idle:
            soonest = min(soonest, max(self._active_us + self._options.idle_us, now_us + 1))
        return soonest

    def figures(self) -> list[StatsMessage]:
        now_us = self._clock_ns() // 1000
        stats = self.stats
        stats.queue_records = sum(reader.backlog_records(now_us) for reader in self.readers.values())
        own = StatsMessage(
            stats.name, self.spec.id, self.instance, stats.form, stats.records_in, stats.records_out, stats.blocks,
            stats.busy_ns, stats.queue_records, 0, 0, 0, 0, stats.latency_us.counts, stats.latency_us.maximum,
        )  # fmt: skip
        return [own, *super().figures()]
