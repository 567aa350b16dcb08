"""The source of a topic: what the driver finds out before the start, and the readers that the workers open."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.connectors.base import Position, Run, Source, Spot
from penstock.connectors.kafka.access import Access, Troubles, client_library, described
from penstock.connectors.kafka.columns import Columns
from penstock.connectors.kafka.hub import Hub, Track
from penstock.connectors.kafka.ranges import Ranges
from penstock.connectors.kafka.reader import KafkaReader, decode_at, progress_in
from penstock.connectors.kafka.rights import check_group
from penstock.connectors.kafka.starts import EARLIEST, LATEST, Where, check_where, resolved
from penstock.errors import KafkaFailed, PenstockError
from penstock.types import Schema


class KafkaSource(Source):
    """Reads a topic; build it with :func:`kafka`.

    The source has as many partitions as the topic had when it was looked up. Partition ``k`` of the topic belongs to
    partition ``k % n`` of the source, unless the run before has read it elsewhere. One that is added while the job runs
    is read together with another.
    """

    reads_ahead = True

    def __init__(
        self, access: Access, topic: str, columns: Columns, start: Where, stop: Where, group: str | None, isolation: str
    ) -> None:
        self._access = access
        self._topic = topic
        self._columns = columns
        self._start = start
        self._stop = stop
        self._group = group
        self._isolation = isolation
        self._topic_id = ""
        self._begin: dict[int, int] = {}
        self._end: dict[int, int] = {}
        self._kept: dict[int, int] = {}
        """Partitions of the source that have read a partition of the topic in the run before."""
        self._added: frozenset[int] = frozenset()
        """Partitions of the topic that the run before did not know."""
        self._goes_on = False
        """Whether the job goes on from a checkpoint."""
        self._hub: Hub | None = None
        self._followers = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_hub": None, "_followers": 0}

    def __repr__(self) -> str:
        return f"kafka({self._access!r}, {self._topic!r})"

    @property
    def schema(self) -> Schema:
        return self._columns.schema

    @property
    def kind(self) -> str:
        return "kafka"

    @property
    def is_split(self) -> bool:
        return True

    def ports(self, schemas: Sequence[Schema], resumed: dict[str, object] | None) -> dict[str, Schema]:
        self._goes_on = resumed is not None
        return super().ports(schemas, resumed)

    def check(self) -> None:
        self._look_up()
        if self._group is not None:
            check_group(self._access, self._group)

    def _look_up(self) -> None:
        """Find out where the topic begins and ends for this job; once, so that all workers agree on it."""
        self._topic_id, partitions = described(self._access, self._topic, "READ")
        ask: dict[str, Any] = {"group": self._group or "", "isolation": self._isolation}
        # A job that goes on from its checkpoint does not begin there: what is gone there may have been read.
        strict = not self._goes_on
        self._begin = resolved(
            self._access, self._topic, partitions, self._start, option="start", is_strict=strict, **ask
        )
        if self._stop is not None:
            self._end = resolved(self._access, self._topic, partitions, self._stop, option="stop", **ask)

    def signature(self, partitions: int) -> str:
        """A topic may have got more partitions."""
        del partitions
        return f"kafka topic '{self._topic}' ({self.schema.ddl})"

    def resumed(self, positions: Mapping[int, Position]) -> KafkaSource:
        source = copy.copy(self)
        source._kept = {}
        for each, position in positions.items():
            progress = progress_in(position)
            if progress.topic != self._topic_id:
                raise self._access.failed(
                    f"topic '{self._topic}' was deleted and made anew since the last run.",
                    hint="Begin anew with another checkpoint directory.",
                )
            source._kept.update(dict.fromkeys(progress.offsets, each))
            self._check_range(progress.offsets)
        # What was added since the last run is read from its beginning, wherever a new job would begin.
        source._added = frozenset(self._begin) - frozenset(source._kept)
        source._begin = {each: 0 if each in source._added else offset for each, offset in self._begin.items()}
        return source

    def _check_range(self, offsets: Mapping[int, int]) -> None:
        """Refuse to go on where records are gone, before anything starts."""
        ask: dict[str, Any] = {"group": "", "isolation": self._isolation}
        earliest = resolved(self._access, self._topic, len(self._begin), EARLIEST, option="start", **ask)
        for partition, offset in offsets.items():
            low = earliest.get(partition, 0)
            if offset < low:
                raise self._access.failed(
                    f"partition {partition} of topic '{self._topic}' begins at offset {low} by now, and the last run "
                    f"has read it up to {offset}: {low - offset} records were deleted before they were read.",
                    hint="Give the topic a longer retention. To go on without them, begin anew with another "
                    "checkpoint directory and start=.",
                )

    def up_to(self, where: object) -> KafkaSource:
        source = copy.copy(self)
        source._stop = LATEST if where is None else check_where("until", where, (LATEST,))
        source._look_up()
        source._group = None  # whoever reads history is no member, and commits nothing
        return source

    def partitions(self, parallelism: int) -> int:
        del parallelism
        if not self._begin:
            self._look_up()
        return len(self._begin)

    def spots(self, run: Run, indexes: Sequence[int]) -> list[Spot]:
        assert isinstance(run.at, bytes)
        first = decode_at(run.at).first
        try:
            reader = self._reader([], None, 0)
            try:
                messages = reader.messages(run)
            finally:
                reader.close()
            return [Spot(messages[index].offset() or 0) for index in indexes]
        except (PenstockError, IndexError):
            return [Spot(first + index) for index in indexes]  # they are gone: right where the topic has no gaps

    def reader(self, partition: int, partitions: int, start_us: int) -> KafkaReader:
        if not self._begin:
            self._look_up()

        def owned(each: int) -> bool:
            return self._kept.get(each, each % partitions) == partition

        def fresh(each: int) -> bool:
            return each not in self._kept and (self._start == EARLIEST or each in self._added)

        tracks = [
            Track(each, offset, self._end.get(each), fresh(each)) for each, offset in self._begin.items() if owned(each)
        ]
        return self._reader(tracks, None if self._stop is not None else owned, start_us)

    def _reader(self, tracks: list[Track], owned: Any, start_us: int) -> KafkaReader:
        return KafkaReader(
            self._columns,
            self._topic_id,
            tracks,
            owned,
            start_us,
            self._join,
            self._leave,
            lambda: Ranges(self._access, self._topic, self._isolation),
            self._commit if self._group is not None else None,
        )

    # --- the process's client -----------------------------------------------------------------------------------------

    def _join(self) -> Hub:
        if self._hub is None:
            # A consumer must name a group, also where nothing is committed.
            group = self._group or f"penstock-{uuid.uuid4().hex}"
            self._hub = Hub(self._access, self._topic, self._topic_id, group, self._isolation)
        self._followers += 1
        return self._hub

    def _leave(self, hub: Hub) -> None:
        self._followers -= 1
        if hub is self._hub and not self._followers:
            self._hub = None
            hub.close()

    def _commit(self, offsets: dict[int, int], hub: Hub | None) -> None:
        """Write a group's offsets, for those who watch it; the job itself goes on from its checkpoint."""
        if hub is not None:
            hub.commit(offsets)
            return
        # The job has come to its end, and its client is closed.
        clients = client_library()
        try:
            consumer = self._access.consumer(Troubles(), **{"group.id": self._group})
            try:
                at = [clients.TopicPartition(self._topic, *each) for each in offsets.items()]
                consumer.commit(offsets=at, asynchronous=False)
            finally:
                consumer.close()
        except (clients.KafkaException, KafkaFailed):
            pass
