"""A unit that reads its share of a source's partitions and cuts them into blocks of bounded work.

On a detour that begins at the source, only offsets are cut here; the slots read the records.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.connectors.base import SourceReader
from penstock.dataset import Block, Mark
from penstock.engine.chain import ClockNs, Passed
from penstock.engine.detour import Detour, Item, Route
from penstock.engine.edges import EdgeOutput
from penstock.engine.pool import SlotPool
from penstock.engine.rerouting import ReroutableUnit
from penstock.engine.snapshot import OpCounters, UnitSnapshot
from penstock.engine.unit import fit_records
from penstock.metrics import OpStats
from penstock.metrics.stats import StatsMessage
from penstock.metrics.times import later
from penstock.operators import Form
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.protocol import slots as s

_FIRST_BLOCK_RECORDS = 64
PIECE_RECORDS_MIN = 256
"""What is due is not cut into smaller micro-batches than this to give every slot its share."""


class SourceUnit(ReroutableUnit):
    """A unit that reads its share of a source's partitions and cuts them into blocks."""

    def __init__(
        self,
        spec: UnitSpec,
        instance: int,
        plan: Plan,
        outputs: list[EdgeOutput],
        clock_ns: ClockNs,
        pool: SlotPool,
        owner: tuple[int, int],
    ) -> None:
        super().__init__(spec, instance, plan, outputs, clock_ns, pool, owner)
        assert spec.source is not None
        self._start_us = plan.start_us
        self.readers: dict[int, SourceReader] = {
            p: spec.source.reader(p, spec.partitions, plan.start_us)
            for p in range(spec.partitions)
            if p % spec.instances == instance
        }
        self.stats = OpStats(spec.name, "record")
        self._options = plan.options
        self._next_id = 0
        self._marker: int | None = None
        self._marked_epoch = 0
        self._cut_ids: dict[int, int] = {}
        """By partition: the id of its last micro-batch."""
        self._cut_us = 0
        """When offsets were last cut."""
        self._drain = False
        self._paused = False
        self._not_before_us = 0
        self._active_us = 0
        # By partition: when it last showed an event time (the start counts), and the largest one.
        self._shown: dict[int, tuple[int, int | None]] = dict.fromkeys(self.readers, (plan.start_us, None))
        self._records_max = _FIRST_BLOCK_RECORDS
        self._blocked_us: int | None = None
        self._stalled_us = 0
        """How long the unit could not read, for want of room, of slots or of the processor: then nobody was silent."""
        self._awaited_us = 0
        """When it is to be woken up next, or was last at work."""

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
        if epoch > max(self.done_epoch, self._marked_epoch):
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
        self._wake_up(now_us)
        if self._order is not None:
            self._settle(now_us)
        if self.detour is not None:
            return self._step_detour(self.detour, now_us)
        if self._marker is not None:
            self._span.epoch, self._marker = self._marker, None
            self._mark(Mark.EPOCH, self._next_id, self._next_id, Passed([]))
            self._next_id += 1
            return True
        if self._drain:
            return self._end()
        if self._paused or now_us < self._not_before_us:
            return False
        if not self.has_room:
            self._block(now_us)
            return False
        self._unblock(now_us)
        self._begin_reading(now_us)
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
        self._watch_idle(now_us)
        if self._hand_over is not None and not worked:
            self._nothing_to_do(now_us)
        return worked

    def _begin_reading(self, now_us: int) -> None:
        """Wait for partitions from the first read on: a restored source has been silent for its recovery."""
        if not self._active_us:
            self._active_us = heard_us = now_us - self._stalled_us
            self._shown = {p: (max(heard_us, shown_us), seen_us) for p, (shown_us, seen_us) in self._shown.items()}

    def _wake_up(self, now_us: int) -> None:
        """Find out whether the process stood still: then this is much later than it was to be woken up."""
        if self._blocked_us is None and self._awaited_us:
            self._stall(now_us - self._awaited_us)
        self._awaited_us = now_us

    def _stall(self, stalled_us: int) -> None:
        # Short ones are the rhythm of a full unit, in which a partition that shows no event time is found out too.
        self._stalled_us += stalled_us if 4 * stalled_us >= self._options.idle_us else 0

    def _block(self, now_us: int) -> None:
        if self._blocked_us is None:
            self._blocked_us = now_us

    def _unblock(self, now_us: int) -> None:
        if self._blocked_us is not None:
            self._stall(now_us - self._blocked_us)
            self._blocked_us = None

    def _came_back(self, now_us: int) -> None:
        self._active_us = 0
        self._begin_reading(now_us)

    def _watch_idle(self, now_us: int) -> None:
        if not self._span.idle and now_us - self._stalled_us - self._active_us >= self._options.idle_us:
            self._announce_idle()

    def _event_time_us(self, partition: int, now_us: int, newest: int | None) -> int | None:
        """Least event time of the partitions that have shown one lately; None while one may still show its first."""
        if len(self.readers) == 1 or not self.chain.has_event_time:
            return newest
        if newest is not None:
            self._shown[partition] = now_us, later(self._shown[partition][1], newest)
        reached: int | None = None
        for each, (shown_us, event_time_us) in self._shown.items():
            if now_us - shown_us >= self._options.idle_us or self._has_ended(each, now_us):
                continue
            if event_time_us is None:
                return None
            reached = event_time_us if reached is None else min(reached, event_time_us)
        return reached

    def _has_ended(self, partition: int, now_us: int) -> bool:
        away = self.detour is not None and self.detour.holds(partition)
        return not away and self.readers[partition].wake_us(now_us) is None

    def _read(self, partition: int, reader: SourceReader, now_us: int) -> bool:
        offset = reader.offset
        batch = reader.poll(now_us, self._records_max)
        if batch is None:
            return False
        count, span = len(batch.rows), self._span
        if self._tapped is not None:
            self._tapped += batch.rows
        before_ns = self._clock_ns()
        passed = self.chain.push(batch.rows, batch.due_us, origin=(partition, offset))
        span.first = span.last = self._next_id
        self._next_id += 1
        span.due_us = batch.due_us
        self._show_event_time(partition, passed.event_time_us_max, now_us - self._stalled_us)
        self._emit(passed)
        after_ns = self._clock_ns()
        self._count_read(count, before_ns - now_us * 1000, batch.due_us, before_ns // 1000)
        if self._hand_over is not None:
            self._output(batch.due_us, after_ns // 1000)
        full = count == self._records_max
        self._records_max = fit_records(self._records_max, count, after_ns - now_us * 1000, self._options.block_work_us)
        # A full block means that more is due: read on at once. Otherwise let a little gather.
        self._not_before_us = 0 if full else now_us + self._options.linger_us
        return True

    def _count_read(self, count: int, took_ns: int, due_us: int, read_us: int) -> None:
        stats, latency_us = self.stats, read_us - due_us
        stats.records_in += count
        stats.records_out += count
        stats.blocks += 1
        stats.busy_ns += took_ns
        stats.latency_us.record(latency_us, count)
        stats.entered_us += max(0, latency_us - took_ns // 1000) * count
        stats.left_us += latency_us * count

    def _show_event_time(self, partition: int, newest: int | None, now_us: int) -> None:
        span = self._span
        if not self.chain.has_event_time or newest is not None:
            # Records that a filter takes out before the window tell no event time, and must not hold it back for ever.
            self._active_us = now_us
            span.idle = False
        span.event_time_us_max = self._event_time_us(partition, now_us, newest)

    # --- the detour ---------------------------------------------------------------------------------------------------

    def _step_detour(self, detour: Detour, now_us: int) -> bool:
        worked = self._release(detour, now_us)
        if self.finished or self._ending:
            return worked
        if self._marker is not None or self._drain:
            return self._line_up_marker(detour, now_us) or worked
        if detour.closing:
            return self._cut_ripe(detour, now_us) or worked
        if self._paused:
            return worked
        if all(self._has_ended(partition, now_us) for partition in self.readers) and detour.is_empty:
            self._in_line(detour, Mark.END, (self._next_id, self._next_id))
            return self._release(detour, now_us)
        self._begin_reading(now_us)
        if detour.route.first < 0:
            worked |= self._cut_offsets(detour, now_us)
        else:
            worked |= self._feed(detour, now_us)
        if detour.is_empty:
            self._watch_idle(now_us)
            if self._hand_over is not None:
                self._nothing_to_do(now_us)
        return worked

    def _line_up_marker(self, detour: Detour, now_us: int) -> bool:
        """Put the marker, or the end, into the line behind everything that came before it."""
        for key in list(detour.gathering):
            self._cut(detour, key, now_us)
        ids = (self._next_id, self._next_id)
        self._next_id += 1
        if self._marker is not None:
            self._in_line(detour, Mark.EPOCH, ids, self._marker)
            self._marked_epoch, self._marker = self._marker, None
        else:
            self._in_line(detour, Mark.END, ids)
        self._release(detour, now_us)
        return True

    def _cut(self, detour: Detour, key: int, now_us: int) -> None:
        place = key, detour.gathering[key].blocks[0].first
        schema = self.spec.schema_at(detour.route.first)
        detour.cut(key, (self._next_id, self._next_id), schema, now_us, place=place)
        self._next_id += 1
        self._stamp(detour, now_us)

    def _stamp(self, detour: Detour, now_us: int) -> None:
        self._unblock(now_us)
        item = detour.line[-1]
        assert isinstance(item, Item)
        item.clock_us = now_us - self._stalled_us
        if detour.room <= 0:
            self._block(now_us)

    def _cut_ripe(self, detour: Detour, now_us: int) -> bool:
        worked = False
        for key in detour.ripe(now_us):
            if detour.room > 0 or detour.closing:
                self._cut(detour, key, now_us)
                worked = True
        return worked

    def _cut_offsets(self, detour: Detour, now_us: int) -> bool:
        """Cut what is due into micro-batches, shared out over the slots; the slots read them."""
        due = {partition: reader.due_records(now_us) or 0 for partition, reader in self.readers.items()}
        full = any(records >= detour.records_max for records in due.values())
        if not full and now_us - self._cut_us < detour.route.interval_us:
            return False
        room = detour.room
        if room <= 0 or not any(due.values()):
            return False
        shares = max(1, detour.slots // self.spec.instances)
        share = {p: min(detour.records_max, max(-(-n // shares), PIECE_RECORDS_MIN)) for p, n in due.items()}
        since_us, self._cut_us = self._cut_us or now_us, now_us
        while room > 0 and any(due.values()):
            # Who has waited longest comes first: where slots are few, the last partitions must not starve.
            for partition in sorted(self.readers, key=lambda each: self._cut_ids.get(each, -1)):
                reader, count = self.readers[partition], min(due[partition], share[partition])
                if count and room > 0:
                    offset, self._cut_ids[partition] = reader.offset, self._next_id
                    detour.send_offsets(partition, offset, count, self._next_id, since_us, now_us)
                    self._stamp(detour, now_us)
                    reader.seek(offset + count)
                    self._next_id += 1
                    due[partition] -= count
                    room -= 1
        return True

    def _feed(self, detour: Detour, now_us: int) -> bool:
        """Read what is due, run it through the operations before the range, and gather it."""
        worked = self._cut_ripe(detour, now_us)
        if now_us < self._not_before_us:
            return worked
        first, full = detour.route.first, False
        for partition, reader in self.readers.items():
            held = detour.gathering.get(partition)
            wake_us = reader.wake_us(now_us)
            if wake_us is None or wake_us > now_us or (held is not None and held.count >= detour.records_max):
                continue
            read_ns, offset = self._clock_ns(), reader.offset
            batch = reader.poll(now_us, self._records_max)
            if batch is None:
                continue
            full = full or len(batch.rows) == self._records_max
            before_ns = self._clock_ns()
            self._count_read(len(batch.rows), before_ns - read_ns, batch.due_us, before_ns // 1000)
            passed = self.chain.push(batch.rows, batch.due_us, 0, first, (partition, offset))
            sides = self._sides(passed, first)
            # What it was made of, for the case that a record of it is bad: offsets in place of ids.
            rows = passed.rows
            block = Block(offset, reader.offset - 1, 0, rows or None, None, len(rows), batch.due_us)
            detour.gather(partition, partition, block, sides, now_us)
            took_ns, work_us = self._clock_ns() - read_ns, self._options.block_work_us
            self._records_max = fit_records(self._records_max, len(batch.rows), took_ns, work_us)
            worked = True
        self._not_before_us = 0 if full else now_us + self._options.linger_us
        return self._cut_ripe(detour, now_us) or worked

    def _passed(self, item: Item, event_time_us_max: int | None, now_us: int) -> None:
        assert isinstance(item.origin, int)
        del now_us
        self._show_event_time(item.origin, event_time_us_max, item.clock_us)

    def _count(self, route: Route, item: Item, done: s.Done, now_us: int) -> None:
        if route.first < 0:
            stats, count, due_us = self.stats, item.count, item.due_us
            read_us = done.began_us + done.source_ns // 1000
            stats.records_in += count
            stats.records_out += count
            stats.blocks += 1
            stats.busy_ns += done.source_ns
            stats.latency_us.record(read_us - due_us, count)
            came_us = max(item.gathered_us, due_us)
            stats.entered_us += max(0, came_us - due_us) * count
            stats.wait_us += max(0, item.cut_us - came_us) * count
            stats.schedule_us += (done.began_us - item.cut_us) * count
            stats.left_us += (read_us - due_us) * count
        super()._count(route, item, done, now_us)

    def _show_forms(self) -> None:
        super()._show_forms()
        away = self.detour is not None and self.detour.route.first < 0
        self.stats.form = (Form.BATCH if away else Form.RECORD).value

    def _read_again(self, item: Item, do: s.Do) -> pa.RecordBatch:
        assert self.spec.source is not None
        reader = self.spec.source.reader(do.partition, self.spec.partitions, self._start_us)
        before_ns = self._clock_ns()
        reader.seek(do.offset)
        read = reader.read(do.count)
        reader.close()
        after_ns = self._clock_ns()
        item.due_us = read.due_us or item.cut_us
        self._count_read(do.count, after_ns - before_ns, item.due_us, after_ns // 1000)
        return read.columns

    def waiting_records(self, now_us: int) -> int:
        return sum(reader.backlog_records(now_us) for reader in self.readers.values())

    def arrived_records(self, now_us: int) -> int:
        return sum(reader.offset for reader in self.readers.values()) + self.waiting_records(now_us)

    # ------------------------------------------------------------------------------------------------------------------

    def _announce_idle(self) -> None:
        self._span.idle = True
        self._span.first = self._span.last = self._next_id
        self._next_id += 1
        self._span.event_time_us_max = None
        self._emit(Passed([]))

    def _end(self) -> bool:
        self._mark(Mark.END, self._next_id, self._next_id, Passed([]))
        for reader in self.readers.values():
            reader.close()
        return True

    def wake_us(self, now_us: int) -> int | None:
        """When the source has something to do; None if only room, or nothing, is awaited."""
        wake_us = self._soonest_us(now_us)
        # Nothing is awaited, and only a message brings work: whenever that comes, it is not too late.
        self._awaited_us = 0 if wake_us is None else max(wake_us, now_us)
        return wake_us

    def _soonest_us(self, now_us: int) -> int | None:
        if self.finished:
            return None
        if (self._marker is not None or self._drain) and not self._ending:
            return now_us
        if self._can_settle:
            return now_us
        if self.detour is not None and not self._paused:
            return self._wake_detour_us(self.detour, now_us)
        if self._paused or not self.has_room:
            return None
        wakes = [wake for reader in self.readers.values() if (wake := reader.wake_us(now_us)) is not None]
        if not wakes:
            return max(now_us, self._not_before_us)
        soonest = max(min(wakes), self._not_before_us)
        if not self._span.idle:
            soonest = min(soonest, max(self._active_us + self._stalled_us + self._options.idle_us, now_us + 1))
        return soonest

    def _wake_detour_us(self, detour: Detour, now_us: int) -> int | None:
        if self._ending or detour.closing:
            return None
        soonest: int | None = None
        if detour.room > 0:
            soonest = detour.wake_us()
            wakes = [wake for reader in self.readers.values() if (wake := reader.wake_us(now_us)) is not None]
            if wakes:
                cut_us = self._cut_us + detour.route.interval_us if detour.route.first < 0 else self._not_before_us
                due_us = max(min(wakes), min(cut_us, now_us + detour.route.interval_us))
                soonest = due_us if soonest is None else min(soonest, due_us)
        if detour.is_empty and not self._span.idle:
            idle_us = max(self._active_us + self._stalled_us + self._options.idle_us, now_us + 1)
            soonest = idle_us if soonest is None else min(soonest, idle_us)
        return soonest

    def figures(self) -> list[StatsMessage]:
        now_us = self._clock_ns() // 1000
        stats = self.stats
        stats.queue_records = sum(reader.backlog_records(now_us) for reader in self.readers.values())
        return [stats.message(self.spec.id, self.instance), *super().figures()]
