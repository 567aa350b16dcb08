"""Reads a source partition of a topic: a partition of the topic, and those that were added to it while the job ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from penstock.connectors.base import Position, Run, SourceBatch, SourceColumns, SourceReader, check_count
from penstock.connectors.kafka.columns import Columns
from penstock.connectors.kafka.hub import Hub, Track
from penstock.connectors.kafka.ranges import Ranges
from penstock.types import Record

if TYPE_CHECKING:
    from confluent_kafka import Message

WAKE_US = 1_000
"""How often a partition is looked at while records come."""
GATHER_US = 2_000
"""How often while many come: each look costs the worker a turn, and each turn the broker a request for its output."""
GATHER_RECORDS = 8
"""So many, found at one look, are many."""
CALM_US = 2_000
"""How often while none have come for a while: each look wakes the worker up."""
CALM_AFTER_US = 1_000_000


class At(msgspec.Struct, array_like=True, frozen=True):
    """Where a run begins: a partition of the topic and an offset."""

    partition: int
    first: int
    end: int | None = None
    """The offset behind its last record, where the run was named by offsets; its count may be more than there are."""


class Progress(msgspec.Struct, array_like=True):
    """A reader's position."""

    records: int
    topic: str
    """The topic's identity: one that was made anew is another."""
    offsets: dict[int, int]
    """By partition of the topic: the offset to go on from."""


def pause_us(found: int, quiet_us: int) -> int:
    """How long after a look the next one is, by how many records were found last, and how long ago."""
    if quiet_us > CALM_AFTER_US:
        return CALM_US
    return GATHER_US if found >= GATHER_RECORDS else WAKE_US


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Progress).decode
decode_at = msgspec.msgpack.Decoder(At).decode


def progress_in(position: Position) -> Progress:
    """Open a position."""
    assert isinstance(position, bytes)
    return _decode(position)


class KafkaReader(SourceReader):
    """Reads the partitions of a topic that belong to one partition of the source.

    Parameters
    ----------
    tracks : list of Track
        What it reads from the beginning on.
    owned : callable
        Whether a partition of the topic that is found later is its own; None: none is looked for.
    join : callable
        Returns the process's hub for the topic, made when it is first needed; ``leave`` gives it back.
    """

    def __init__(
        self,
        columns: Columns,
        topic_id: str,
        tracks: list[Track],
        owned: Callable[[int], bool] | None,
        start_us: int,
        join: Callable[[], Hub],
        leave: Callable[[Hub], None],
        ranges: Callable[[], Ranges],
        commit: Callable[[dict[int, int], Hub | None], None] | None,
    ) -> None:
        self._columns = columns
        self._topic_id = topic_id
        self._tracks = {track.partition: track for track in tracks}
        self._owned = owned
        self._start_us = start_us
        self._join, self._leave = join, leave
        self._open_ranges = ranges
        self._commit = commit
        self._hub: Hub | None = None
        self._ranges: Ranges | None = None
        self._wake_us = 0
        self._heard_us = 0
        self._turn = 0
        self._last: tuple[int, int] | None = None
        """Partition of the topic and offset behind what was last given out by `poll`."""
        self._recent: At | None = None

    # --- records ------------------------------------------------------------------------------------------------------

    def poll(self, now_us: int, records_max: int) -> SourceBatch | None:
        hub = self._fetching()
        self._find_new(hub, now_us)
        track = self._held()
        if track is None:
            hub.pump(now_us)
            track = self._held()
        if track is None:
            # All readers of the client look together: each look wakes the worker up.
            pumped_us = max(hub.pumped_us, now_us - WAKE_US)
            self._wake_us = pumped_us + pause_us(hub.pumped_records, now_us - self._heard_us)
            return None
        self._heard_us = now_us
        messages = self._take(hub, track, records_max)
        first: int = messages[0].offset()  # type: ignore[assignment]
        follows = self._last is not None and self._last[0] == track.partition
        self._last = track.partition, track.next
        self._recent = At(track.partition, max(first, track.next - len(messages)), track.next)
        at = _encode(At(track.partition, first))
        return SourceBatch(self._columns.rows(messages), self._due_us(messages[0], now_us), at, follows)

    def _take(self, hub: Hub, track: Track, records_max: int) -> list[Message]:
        held = track.held
        if len(held) <= records_max:
            messages = list(held)
            held.clear()
        else:
            messages = [held.popleft() for _ in range(records_max)]
        track.next = messages[-1].offset() + 1  # type: ignore[operator]
        track.is_fresh = False
        hub.taken(track)
        track.settle()
        self.offset += len(messages)
        return messages

    def _held(self) -> Track | None:
        """The next partition of the topic, in turn, of which something is held."""
        tracks = list(self._tracks.values())
        for step in range(len(tracks)):
            track = tracks[(self._turn + step) % len(tracks)]
            if track.held:
                self._turn += step + 1
                return track
        return None

    def _due_us(self, message: Message, now_us: int) -> int:
        """When a record was written, if that was after the job began and is told truly; else it has come now."""
        kind, time_ms = message.timestamp()
        written_us = 1000 * time_ms if kind else now_us
        return written_us if self._start_us <= written_us <= now_us else now_us

    def wake_us(self, now_us: int) -> int | None:
        del now_us
        if self._held() is not None:
            return 0
        if self._owned is None and all(track.is_done for track in self._tracks.values()):
            return None
        return self._wake_us

    # --- the process's client -----------------------------------------------------------------------------------------

    def _fetching(self) -> Hub:
        """Have the hub fetch every partition."""
        hub = self._joined()
        for track in self._tracks.values():
            if not track.is_fetched and not track.is_done:
                hub.fetch(track)
        return hub

    def _joined(self) -> Hub:
        if self._hub is None:
            self._hub = self._join()
            for track in self._tracks.values():
                self._hub.add(track)
        return self._hub

    def _find_new(self, hub: Hub, now_us: int) -> None:
        hub.discover(now_us)
        for partition in range(hub.partitions if self._owned is not None else 0):
            if partition not in self._tracks and self._owned is not None and self._owned(partition):
                self._tracks[partition] = track = Track(partition, 0, is_fresh=True)
                hub.add(track)

    def close(self) -> None:
        if self._hub is not None:
            for track in self._tracks.values():
                self._hub.leave(track)
            self._leave(self._hub)
            self._hub = None
        if self._ranges is not None:
            self._ranges.close()
            self._ranges = None

    # --- positions ----------------------------------------------------------------------------------------------------

    def position(self) -> Position:
        offsets = {track.partition: track.next for track in self._tracks.values()}
        return _encode(Progress(self.offset, self._topic_id, offsets))

    def seek(self, position: Position) -> None:
        progress = progress_in(position)
        self.offset = progress.records
        for partition, offset in progress.offsets.items():
            # One that was found while the job ran is known from positions alone. Nothing of it was read at 0 only.
            track = self._tracks.setdefault(partition, Track(partition, offset, is_fresh=offset == 0))
            if self._hub is not None:
                self._hub.rest(track)
                self._hub.add(track)
            track.next, track.is_fresh = offset, track.is_fresh and offset == track.next
        self._last = self._recent = None
        self._wake_us = 0

    def committed(self, position: Position) -> None:
        if self._commit is not None:
            self._commit(progress_in(position).offsets, self._hub)

    # --- what is due, and reading it elsewhere ------------------------------------------------------------------------

    def backlog_records(self, now_us: int) -> int:
        hub = self._hub
        if hub is None:
            return 0
        for track in self._tracks.values():
            hub.look(track)
        return sum(track.due for track in self._tracks.values())

    def due_records(self, now_us: int) -> int:
        """Count the offsets up to the last that is known, of partitions that somebody else reads."""
        hub = self._joined()
        self._find_new(hub, now_us)
        for track in self._tracks.values():
            hub.rest(track)
        hub.ask_ends(now_us)
        self._wake_us = now_us + WAKE_US
        due = sum(track.due for track in self._tracks.values())
        if not due:
            hub.pump(now_us)  # errors come with the messages
        return due

    def skip(self, count: int) -> list[Run]:
        check_count(count, sum(track.due for track in self._tracks.values()))
        runs = []
        self._last = None
        for track in self._tracks.values():
            here = min(count, track.due)
            if here:
                at = At(track.partition, track.next, track.next + here)
                runs.append(Run(_encode(at), here))
                self._recent = at
                track.next, track.is_fresh = track.next + here, False
                self.offset += here
                count -= here
        return runs

    def recent(self, count: int) -> Run | None:
        if self._recent is None or self._recent.end is None:
            return None
        partition, end = self._recent.partition, self._recent.end
        first = max(self._recent.first, end - count)
        return Run(_encode(At(partition, first, end)), end - first)

    def messages(self, run: Run) -> list[Message]:
        """Read a run."""
        check_count(run.count, None)
        assert isinstance(run.at, bytes)
        at = decode_at(run.at)
        if self._ranges is None:
            self._ranges = self._open_ranges()
        return self._ranges.read(at.partition, at.first, at.end, run.count)

    def read(self, run: Run) -> SourceColumns:
        messages = self.messages(run)
        due_us = 0
        if messages:
            kind, time_ms = messages[0].timestamp()
            due_us = 1000 * time_ms if kind and 1000 * time_ms >= self._start_us else 0
        return SourceColumns(self._columns.batch(messages), due_us)

    def rows(self, run: Run) -> list[Record]:
        return self._columns.rows(self.messages(run))
