"""Partitions of a source as an input: what is due is read here, or named as stretches that slots read themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.connectors.base import Position, Run, SourceReader
from penstock.dataset import NEVER_US, Mark
from penstock.engine.event_time import Origin
from penstock.engine.inputs.base import Input, IsFull, Stretch, Taken
from penstock.engine.inputs.dropped import Cause, Dropped
from penstock.engine.inputs.rhythm import Rhythm
from penstock.engine.lineage import Place, read_place
from penstock.engine.snapshot import OpCounters, UnitSnapshot
from penstock.metrics import OpStats
from penstock.metrics.message import StatsMessage
from penstock.pipeline.plan import Plan, UnitSpec
from penstock.protocol import slots as s

STRETCH_RECORDS_MIN = 256
"""What is due is not cut into smaller stretches than this to give every slot its share."""


class Readers(Input):
    """Reads an instance's share of a source's partitions.

    A partition is idle when it could have been read for `idle` and nothing was there, or when it has ended. Time during
    which the process stood still, or the unit had no room, does not count.
    """

    is_source = True

    def __init__(self, spec: UnitSpec, instance: int, plan: Plan) -> None:
        self.logs = []
        assert spec.source is not None
        self._spec = spec
        self._instance = instance
        self._source = spec.source
        self._lane = spec.lane
        self._start_us = plan.start_us
        self.readers: dict[int, SourceReader] = {
            p: self._source.reader(p, spec.partitions, plan.start_us)
            for p in range(spec.partitions)
            if p % spec.instances == instance
        }
        self.stats = OpStats(spec.name, "record")
        self.dropped = Dropped()
        """What the unit has dropped of it."""
        self.turns = len(self.readers)
        self._partitions: list[tuple[int, Any]] = list(self.readers.items())
        """The same; a connector of somebody else's may answer with a float or one of NumPy's numbers."""
        self._idle_us = plan.options.idle_us
        self._linger_us = plan.options.linger_us
        self._epoch: int | None = None
        self._marked_epoch = 0
        self._drain = False
        self._paused = False
        self._ended = False
        self._at_end = False
        self._captured: dict[int, dict[int, Position]] = {}
        """By epoch: the positions of those that are not committed yet."""
        self._turn = 0
        self._read_on = False
        """A partition of this round had more than was taken."""
        self._is_open = False
        """A partition of this round has not ended."""
        self._found = 0
        """Records of this round."""
        self._not_before_us = 0
        """From here on it reads when the worker is awake; when it wakes the worker up is up to the rhythm."""
        self.rhythm = Rhythm(self._linger_us)
        """That of all sources of the worker."""
        self._cut_us = 0
        """When stretches were last cut."""
        self._cuts: dict[int, int] = {}
        """By partition: when, among all cuts, it had its last one."""
        self._cut = 0
        # Silence. A partition is waited for from the first look on: a restored one has been silent for its recovery.
        self._heard_us: dict[int, int] = {}
        """By partition: when it last had something to read, on the clock that leaves stalls out."""
        self._idle: set[int] = set()
        self._watch_us = 0
        """When there is nothing to see before."""
        self._blocked_us: int | None = None
        self._stalled_us = 0
        """How long the unit could not read, for want of room, of slots or of the processor."""
        self._awaited_us = 0
        """When it is to be woken up next, or was last at work."""

    # --- what the driver wants ----------------------------------------------------------------------------------------

    def begin_epoch(self, epoch: int) -> None:
        if epoch > self._marked_epoch:
            self._epoch = epoch

    def drain(self) -> None:
        self._drain = True

    def pause(self) -> None:
        self._paused = True

    def join(self, rhythm: Rhythm) -> None:
        self.rhythm = rhythm

    # --- records and markers ------------------------------------------------------------------------------------------

    def marker(self, now_us: int) -> tuple[Mark, int | None] | None:
        if self._epoch is not None:
            self._marked_epoch, self._epoch = self._epoch, None
            return Mark.EPOCH, self._marked_epoch
        if self._drain or (self._ended and not self._paused):
            self._at_end = True
            return Mark.END, None
        return None

    def take(self, now_us: int, records_max: int, is_full: IsFull | None, *, open_blocks: bool) -> Taken | None:
        del open_blocks
        if self._paused or now_us < self._not_before_us:
            return None
        while self._turn < len(self._partitions):
            partition, reader = self._partitions[self._turn]
            self._turn += 1
            wake_us = reader.wake_us(now_us)
            if wake_us is None:
                continue
            self._is_open = True
            if wake_us > now_us or (is_full is not None and is_full(partition)):
                continue
            batch = reader.poll(now_us, records_max)
            if batch is None:
                continue
            self._read_on = self._read_on or len(batch.rows) == records_max
            self._found += len(batch.rows)
            self._end_round(now_us)
            place = Place(partition, [Run(batch.at, len(batch.rows))])
            return Taken(batch.rows, batch.due_us, self.origin(partition, now_us), place, follows=batch.follows)
        self._end_round(now_us)
        return None

    def _end_round(self, now_us: int) -> None:
        """When every partition has had its turn: read on at once where more is due, otherwise let a little gather."""
        if self._turn < len(self._partitions):
            return
        self._turn = 0
        self.rhythm.read(now_us, self._found)
        self._not_before_us = 0 if self._read_on else now_us + self._linger_us // 2
        self._ended = not self._is_open
        self._read_on, self._is_open, self._found = False, False, 0

    def stretches(self, now_us: int, records_max: int, interval_us: int, slots: int, room: int) -> list[Stretch]:
        self.is_ripe = False
        if self._paused:
            return []
        due = {partition: int(reader.due_records(now_us) or 0) for partition, reader in self._partitions}
        self._ended = not any(due.values()) and all(r.wake_us(now_us) is None for _, r in self._partitions)
        is_full = any(records >= records_max for records in due.values())
        self.is_ripe = any(due.values()) and (is_full or now_us - self._cut_us >= interval_us)
        if room <= 0 or not self.is_ripe:
            return []
        shares = max(1, slots // self._spec.instances)
        share = {p: min(records_max, max(-(-n // shares), STRETCH_RECORDS_MIN)) for p, n in due.items()}
        since_us, self._cut_us = self._cut_us or now_us, now_us
        cut: list[Stretch] = []
        while len(cut) < room and any(due.values()):
            # Who has waited longest comes first: where slots are few, the last partitions must not starve.
            for partition in sorted(self.readers, key=lambda each: self._cuts.get(each, -1)):
                reader, count = self.readers[partition], min(due[partition], share[partition])
                if count and len(cut) < room:
                    self._cut += 1
                    self._cuts[partition] = self._cut
                    cut.append(Stretch(Place(partition, reader.skip(count)), since_us))
                    due[partition] -= count
        return cut

    def read_again(self, place: Place) -> tuple[pa.RecordBatch, int]:
        reader = self._source.reader(place.partition, self._spec.partitions, self._start_us)
        read = read_place(reader, place.runs)
        reader.close()
        return read.columns, read.due_us

    def recent(self, records: int) -> Place | None:
        for partition, reader in self._partitions:
            run = reader.recent(records)
            if run is not None:
                return Place(partition, [run])
        return None

    # --- silence ------------------------------------------------------------------------------------------------------

    def origin(self, partition: int, now_us: int) -> Origin:
        self._heard_us[partition] = now_us - self._stalled_us
        if partition in self._idle:
            self._idle.remove(partition)
            return Origin(partition, self._lane + partition, idle=False)
        return Origin(partition, self._lane + partition)

    def watch(self, now_us: int) -> Sequence[Origin]:
        if now_us < self._watch_us or self._paused or self._blocked_us is not None:
            return ()
        changes, clock_us = [], now_us - self._stalled_us
        soonest_us = clock_us + self._idle_us
        wakes = {partition: reader.wake_us(now_us) for partition, reader in self._partitions}
        if all(wake_us is None for wake_us in wakes.values()):
            return ()  # the end follows, which says more: what is held behind is to leave before nobody waits for it
        for partition, wake_us in wakes.items():
            if partition in self._idle:
                continue
            heard_us = self._heard_us.setdefault(partition, clock_us)
            if wake_us is not None and wake_us <= now_us:
                heard_us = self._heard_us[partition] = clock_us
            if wake_us is None or clock_us - heard_us >= self._idle_us:
                self._idle.add(partition)
                changes.append(Origin(partition, self._lane + partition, idle=True))
            else:
                soonest_us = min(soonest_us, heard_us + self._idle_us)
        self._watch_us = soonest_us + self._stalled_us
        return changes

    def wake_up(self, now_us: int) -> None:
        """Find out whether the process stood still: then this is much later than it was to be woken up."""
        if self._blocked_us is None and self._awaited_us:
            self._stall(now_us - self._awaited_us)
        self._awaited_us = now_us

    def _stall(self, stalled_us: int) -> None:
        # Short ones are the rhythm of a full unit.
        self._stalled_us += stalled_us if 4 * stalled_us >= self._idle_us else 0

    def block(self, now_us: int) -> None:
        if self._blocked_us is None:
            self._blocked_us = now_us

    def unblock(self, now_us: int) -> None:
        if self._blocked_us is not None:
            self._stall(now_us - self._blocked_us)
            self._blocked_us = None

    # --- time ---------------------------------------------------------------------------------------------------------

    @property
    def has_marker(self) -> bool:
        return self._epoch is not None or self._drain

    def wake_us(self, now_us: int, interval_us: int | None) -> int | None:
        self.ready_us = NEVER_US
        if self._paused:
            return None
        due_us = NEVER_US
        for _, reader in self._partitions:
            wake_us = reader.wake_us(now_us)
            if wake_us is not None and wake_us < due_us:
                due_us = int(wake_us)
        if due_us == NEVER_US:
            due_us = now_us
        not_before_us = self._not_before_us
        self.ready_us = due_us if due_us > not_before_us else not_before_us
        if interval_us is not None:
            next_us = min(self._cut_us + interval_us, now_us + interval_us)
        else:
            next_us = not_before_us
        if next_us < due_us:
            next_us = due_us
        if next_us > self._watch_us and len(self._idle) < len(self.readers):
            return min(next_us, max(self._watch_us, now_us + 1))
        return next_us

    def awaits(self, wake_us: int | None, now_us: int) -> None:
        # Where nothing is awaited only a message brings work: whenever that comes, it is not too late.
        self._awaited_us = 0 if wake_us is None else max(wake_us, now_us)

    # --- snapshots and figures ----------------------------------------------------------------------------------------

    def waiting_records(self, now_us: int) -> int:
        return sum(int(reader.backlog_records(now_us)) for _, reader in self._partitions)

    def arrived_records(self, now_us: int) -> int:
        return sum(self.offsets().values()) + self.waiting_records(now_us)

    def offsets(self) -> dict[int, int]:
        return {partition: int(reader.offset) for partition, reader in self._partitions}

    def positions(self) -> dict[int, Position]:
        positions = {partition: reader.position() for partition, reader in self.readers.items()}
        # The end has the next epoch, which nobody has named.
        self._captured[self._marked_epoch + self._at_end] = positions
        return positions

    def commit(self, epoch: int) -> None:
        reached = [each for each in self._captured if each <= epoch]
        for partition, position in self._captured[max(reached)].items() if reached else ():
            self.readers[partition].committed(position)
        for each in reached:
            del self._captured[each]

    def count_read(self, count: int, took_ns: int, due_us: int, read_us: int) -> None:
        stats, latency_us = self.stats, read_us - due_us
        stats.records_in += count
        stats.records_out += count
        stats.blocks += 1
        stats.busy_ns += took_ns
        stats.latency_us.record(latency_us, count)
        stats.entered_us += max(0, latency_us - took_ns // 1000) * count
        stats.left_us += latency_us * count

    def count_away(self, count: int, due_us: int, came_us: int, cut_us: int, done: s.Done) -> None:
        stats, read_us = self.stats, done.began_us + done.source_ns // 1000
        stats.records_in += count
        stats.records_out += count
        stats.blocks += 1
        stats.busy_ns += done.source_ns
        stats.latency_us.record(read_us - due_us, count)
        came_us = max(came_us, due_us)
        stats.entered_us += max(0, came_us - due_us) * count
        stats.wait_us += max(0, cut_us - came_us) * count
        stats.schedule_us += (done.began_us - cut_us) * count
        stats.left_us += (read_us - due_us) * count

    def count_dropped(self, cause: Cause, count: int, *, dead: bool) -> None:
        self.stats.records_in += count
        self.dropped.count(cause, count, dead=dead)

    def counters(self) -> list[OpCounters]:
        stats, dropped = self.stats, self.dropped
        return [
            OpCounters(
                name=stats.name,
                records_in=stats.records_in,
                records_out=stats.records_out,
                dead_letters=dropped.dead_letters,
                timed_out=dropped.timed_out,
                over_bound=dropped.over_bound,
            )
        ]

    def show_form(self, form: str) -> None:
        self.stats.form = form

    def figures(self, now_us: int) -> list[StatsMessage]:
        stats = self.stats
        stats.queue_records = self.waiting_records(now_us)
        dropped = self.dropped
        message = stats.message(
            self._spec.id,
            self._instance,
            dead_letters=dropped.dead_letters,
            timed_out=dropped.timed_out,
            over_bound=dropped.over_bound,
        )
        return [message]

    def begin_after(self, epoch: int) -> None:
        self._marked_epoch = epoch

    def restore(self, snapshots: Sequence[UnitSnapshot]) -> None:
        last = snapshots[-1]
        own = last.operations[0]
        self.stats.records_in, self.stats.records_out = own.records_in, own.records_out
        self.dropped = Dropped(own.timed_out, own.over_bound, own.dead_letters)
        self.begin_after(last.epoch)
        for partition, position in last.positions.items():
            self.readers[partition].seek(position)

    def close(self) -> None:
        for reader in self.readers.values():
            reader.close()
