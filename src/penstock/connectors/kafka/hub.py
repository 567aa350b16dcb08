"""Fetches what a process reads of a topic: one client for all partitions that the readers here follow.

The client's own threads fetch ahead, within its bounds; nothing here blocks.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.access import Access, Troubles, client_library
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

PUMP_US = 200
"""Messages are taken from the client at most so often."""
PUMP_RECORDS = 2_000
HELD_RECORDS_MAX = 20_000
"""A partition of which so many are held is not fetched until half of them are given out."""
ENDS_US = 10_000
"""How often the ends of partitions are asked for that others read."""
DISCOVER_US = 5_000_000
ASK_S = 10.0


@dataclass(slots=True)
class Track:
    """One partition of the topic, and how far it has been given out."""

    partition: int
    next: int
    """The offset to go on from."""
    stop: int | None = None
    """Where it ends for this job."""
    is_fresh: bool = False
    """Nothing of it was read, and it is read from its earliest record, whichever that is by then."""
    held: deque[Message] = field(default_factory=deque)
    is_fetched: bool = False
    is_whole: bool = False
    """All that there is of it before its stop has been fetched."""
    is_paused: bool = False
    end: int = 0
    """Where it is known to go on to."""

    @property
    def is_done(self) -> bool:
        """Whether all of it was given out."""
        return self.stop is not None and self.next >= self.stop

    def settle(self) -> None:
        """Where nothing is left but gaps up to the stop, it is done."""
        if self.is_whole and not self.held and self.stop is not None:
            self.next = max(self.next, self.stop)

    @property
    def due(self) -> int:
        """Offsets that are there and were not given out."""
        end = self.end if self.stop is None else min(self.end, self.stop)
        return max(0, end - self.next)


class Hub:
    """Reads the partitions that are followed; whoever gives out what it holds calls `pump` before."""

    def __init__(self, access: Access, topic: str, topic_id: str, group: str, isolation: str) -> None:
        self._access = access
        self._topic = topic
        self._topic_id = topic_id
        self._isolation = isolation
        self.troubles = Troubles(was_reached=True)  # by the driver, when it checked
        self._consumer = access.consumer(
            self.troubles,
            **{
                "group.id": group,
                "isolation.level": isolation,
                "enable.partition.eof": True,
                # A partition that is fetched again waits for the answer to the fetch before.
                "fetch.wait.max.ms": 100,
                "fetch.queue.backoff.ms": 5,
                "fetch.error.backoff.ms": 50,
                "reconnect.backoff.max.ms": 1_000,
            },
        )
        self._admin = access.admin(self.troubles)
        self.tracks: dict[int, Track] = {}
        self.partitions = 0
        """How many the topic has, as far as that is known; 0: not yet."""
        self.pumped_us = 0
        """When messages were last taken from the client."""
        self.pumped_records = 0
        """How many records they were, when there were last any."""
        self._ends_us = 0
        self._asked: dict[int, Future[Any]] = {}
        self._discover_us = 0
        self._described: Future[Any] | None = None
        self._unknown = 0
        """How often in a row the broker has not known the topic: one that starts may not know it yet."""
        self._at = client_library().TopicPartition

    # --- partitions ---------------------------------------------------------------------------------------------------

    def add(self, track: Track) -> None:
        """Know of a partition; whoever read it before in this process reads it no more."""
        before = self.tracks.get(track.partition)
        if before is not None and before is not track:
            self.rest(before)
        self.tracks[track.partition] = track

    def fetch(self, track: Track, *, earliest: bool = False) -> None:
        """Fetch a partition from where it is, or from its earliest record, which takes the client half a second."""
        if not track.is_fetched:
            self.add(track)
            track.is_fetched, track.is_paused = True, False
            offset = client_library().OFFSET_BEGINNING if earliest else track.next
            self._consumer.incremental_assign([self._at(self._topic, track.partition, offset)])

    def rest(self, track: Track) -> None:
        """Fetch it no more: others read it, or nobody; what is held of it is forgotten."""
        if track.is_fetched:
            track.is_fetched = track.is_whole = False
            track.held.clear()
            if track.is_paused:  # the client would remember it, and fetch nothing when it is assigned again
                track.is_paused = False
                self._consumer.resume([self._at(self._topic, track.partition)])
            self._consumer.incremental_unassign([self._at(self._topic, track.partition)])

    def leave(self, track: Track) -> None:
        """Forget a partition."""
        self.rest(track)
        if self.tracks.get(track.partition) is track:
            del self.tracks[track.partition]
            self._asked.pop(track.partition, None)

    def close(self) -> None:
        """End the clients."""
        self._consumer.close()

    # --- messages -----------------------------------------------------------------------------------------------------

    def pump(self, now_us: int) -> None:
        """Take what the client has fetched."""
        if now_us - self.pumped_us < PUMP_US:
            return
        self.pumped_us = now_us
        messages = self._consumer.consume(PUMP_RECORDS, 0)
        if messages:
            self._deal(messages)
        elif self.troubles.latest:
            self.troubles.raise_fatal(self._access)

    def _deal(self, messages: list[Message]) -> None:
        tracks, found = self.tracks, 0
        for message in messages:
            error = message.error()
            if error is not None:
                self._on_error(error, message)
                continue
            track = tracks.get(message.partition())  # type: ignore[arg-type]
            if track is None or not track.is_fetched:
                continue
            offset: int = message.offset()  # type: ignore[assignment]
            if track.stop is not None and offset >= track.stop:
                self._end(track)
            elif offset >= track.next:
                track.held.append(message)
                found += 1
        self.pumped_records = found or self.pumped_records
        for track in tracks.values():
            if len(track.held) > HELD_RECORDS_MAX and not track.is_paused:
                track.is_paused = True
                self._consumer.pause([self._at(self._topic, track.partition)])
        self.troubles.passed()

    def _end(self, track: Track) -> None:
        """What is left of a partition is held, or there is nothing but gaps up to its stop."""
        track.is_whole = True
        track.settle()

    def _on_error(self, error: KafkaError, message: Message) -> None:
        kinds = client_library().KafkaError
        code, track = error.code(), self.tracks.get(message.partition() if message.partition() is not None else -1)  # type: ignore[arg-type]
        if code == kinds._PARTITION_EOF:
            reached = message.offset() or 0
            if track is not None:
                track.end = max(track.end, reached)
                if track.stop is not None and reached >= track.stop:
                    self._end(track)
            return
        if code in (kinds._AUTO_OFFSET_RESET, kinds.OFFSET_OUT_OF_RANGE) and track is not None:
            self._out_of_range(track)
            return
        if code in (
            kinds.UNKNOWN_TOPIC_OR_PART,
            kinds._UNKNOWN_TOPIC,
            kinds._UNKNOWN_PARTITION,
            kinds.UNKNOWN_TOPIC_ID,
        ):
            raise self._gone()
        if code in (kinds.TOPIC_AUTHORIZATION_FAILED, kinds.GROUP_AUTHORIZATION_FAILED) or error.fatal():
            raise self._access.failed(f"topic '{self._topic}': {error.str()}.")
        self.troubles.note(error)

    def _gone(self) -> PenstockError:
        what = f"topic '{self._topic}' is not there any more."
        return self._access.failed(what, hint="Restore it, or begin anew with another checkpoint directory.")

    def _out_of_range(self, track: Track) -> None:
        if track.is_fresh:
            self.rest(track)
            track.next = 0
            self.fetch(track, earliest=True)
            return
        raise self._access.failed(
            f"partition {track.partition} of topic '{self._topic}' does not have offset {track.next}, where reading "
            "would go on: its records were deleted before they were read, or the topic was made anew.",
            hint="Give the topic a longer retention. To go on without them, begin anew with another checkpoint "
            "directory and start=.",
        )

    def taken(self, track: Track) -> None:
        """Some of what is held was given out."""
        if track.is_paused and 2 * len(track.held) < HELD_RECORDS_MAX:
            track.is_paused = False
            self._consumer.resume([self._at(self._topic, track.partition)])

    # --- ends and new partitions --------------------------------------------------------------------------------------

    def look(self, track: Track) -> None:
        """Learn from the last fetch how far a partition goes."""
        if track.is_fetched:
            _, high = self._consumer.get_watermark_offsets(self._at(self._topic, track.partition), cached=True)
            track.end = max(track.end, high)

    def ask_ends(self, now_us: int) -> None:
        """Have the broker say how far the partitions go that are not fetched here; take what it has answered."""
        for partition, answer in list(self._asked.items()):
            if answer.done():
                del self._asked[partition]
                if answer.exception() is None and partition in self.tracks:
                    self.tracks[partition].end = max(self.tracks[partition].end, answer.result().offset)
                    self.troubles.passed()
        if self._asked or now_us - self._ends_us < ENDS_US:
            return
        self._ends_us = now_us
        self.troubles.raise_fatal(self._access)
        admin = client_library().admin
        wanted = {
            self._at(self._topic, each): admin.OffsetSpec.latest()
            for each, track in self.tracks.items()
            if not track.is_fetched
        }
        if wanted:
            level = getattr(client_library().IsolationLevel, self._isolation.upper())
            asked = self._admin.list_offsets(wanted, isolation_level=level, request_timeout=ASK_S)
            self._asked = {at.partition: answer for at, answer in asked.items()}

    def discover(self, now_us: int) -> None:
        """Look now and then how many partitions there are, and whether it is still the same topic."""
        if self._described is not None:
            if not self._described.done():
                return
            answer, self._described = self._described, None
            error, kinds = answer.exception(), client_library().KafkaError
            if error is not None:
                code = error.args[0].code() if isinstance(error, client_library().KafkaException) else None
                self._unknown += code == kinds.UNKNOWN_TOPIC_OR_PART
                if self._unknown > 1:
                    raise self._gone()
            else:
                found, self._unknown = answer.result(), 0
                if str(found.topic_id) != self._topic_id:
                    raise self._access.failed(
                        f"topic '{self._topic}' was deleted and made anew while it was read.",
                        hint="Begin anew with another checkpoint directory.",
                    )
                self.partitions = max(self.partitions, len(found.partitions))
        if now_us - self._discover_us >= DISCOVER_US:
            self._discover_us = now_us
            topics = client_library().TopicCollection([self._topic])
            (self._described,) = self._admin.describe_topics(topics, request_timeout=ASK_S).values()

    def commit(self, offsets: dict[int, int]) -> None:
        """Tell the group how far it is; nobody waits for the answer."""
        self._consumer.commit(offsets=[self._at(self._topic, *each) for each in offsets.items()], asynchronous=True)
