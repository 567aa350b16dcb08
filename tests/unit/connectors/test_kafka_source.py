"""The source on a real broker: where it begins and ends, what it refuses, and that no secret is ever shown."""

from __future__ import annotations

import pickle
import time
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic

import penstock as ps
from penstock.connectors.base import Run
from penstock.connectors.kafka import access, hub
from penstock.connectors.kafka.reader import (
    CALM_AFTER_US,
    CALM_US,
    GATHER_RECORDS,
    GATHER_US,
    WAKE_US,
    pause_us,
    progress_in,
)
from penstock.errors import InvalidOption, KafkaFailed
from penstock.pipeline.graph import Graph
from penstock.redaction import redacted
from penstock.testing.kafka_broker import PASSWORD, USER
from penstock.types import Schema
from waiting import WAIT_S

COLUMNS = Schema.parse("a int")


def read_all(source: Any) -> list[tuple[int, int]]:
    """Read a source that ends: partition and offset of every record."""
    source.check()
    found = []
    source = pickle.loads(pickle.dumps(source))  # as a worker has it
    partitions = source.partitions(2)
    for each in range(partitions):
        reader = source.reader(each, partitions, 0)
        found += drain(reader)
        reader.close()
    return sorted(found)


def drain(reader: Any, count: int | None = None) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    now_us, deadline = 0, time.monotonic() + WAIT_S
    while reader.wake_us(now_us) is not None and (count is None or len(found) < count):
        now_us += 1_000
        batch = reader.poll(now_us, 7)
        if batch is not None:
            found += [(row.partition, row.offset) for row in batch.rows]
        assert time.monotonic() < deadline
    return found


@pytest.fixture(scope="module")
def topic(kafka_server: Any) -> str:
    name: str = kafka_server.topic("in", 2)
    kafka_server.fill(name, [(n % 2, "k", n) for n in range(40)])
    return name


def test_reading_begins_and_ends_where_it_is_told(kafka_server: Any, topic: str) -> None:
    everything = [(p, n) for p in (0, 1) for n in range(20)]

    def read(**options: Any) -> list[tuple[int, int]]:
        options.setdefault("stop", "latest")
        return read_all(ps.kafka(kafka_server.servers, topic, **options).source())

    assert read() == everything
    assert read(start="latest") == []
    assert read(start={0: 15, 1: 20}) == [(0, n) for n in range(15, 20)]
    assert read(start={0: 15}) == [(0, n) for n in range(15, 20)] + [(1, n) for n in range(20)]
    assert read(stop={0: 3, 1: 0}) == [(0, 0), (0, 1), (0, 2)]
    middle = kafka_server.read(topic)[0].timestamp()[1] / 1000
    assert read(start=datetime.fromtimestamp(middle - 60, UTC)) == everything
    assert read(start=datetime.fromtimestamp(middle + 3600, UTC)) == []
    assert read(stop=datetime.fromtimestamp(middle - 60, UTC).isoformat()) == []
    assert read(start="committed", group=f"nobody-{topic}") == everything
    position = None
    source = ps.kafka(kafka_server.servers, topic, group=f"some-{topic}").source()
    source.check()
    reader = source.reader(0, 2, 0)
    drain(reader, 7)
    position = reader.position()
    reader.close()
    reader.committed(position)
    assert read(start="committed", group=f"some-{topic}") == everything[7:]


def test_runs_are_read_again_by_any_reader_and_named_by_their_offsets(kafka_server: Any, topic: str) -> None:
    source = ps.kafka(kafka_server.servers, topic, stop="latest").source()
    source.check()
    reader, other = source.reader(1, 2, 0), source.reader(1, 2, 0)
    now_us, batch = 0, None
    while batch is None:
        now_us += 1_000
        batch = reader.poll(now_us, 5)
    assert batch.at == other_run(batch).at
    assert [row.offset for row in other.rows(other_run(batch))] == [0, 1, 2, 3, 4]
    while reader.due_records(now_us) < 15:
        now_us += 20_000
    (run,) = reader.skip(10)
    assert other.read(run).columns.column("offset").to_pylist() == list(range(5, 15))
    assert [spot.offset for spot in source.spots(run, [0, 9])] == [5, 14]
    position = reader.position()
    assert [offset for _, offset in drain(reader)] == list(range(15, 20))
    assert reader.wake_us(now_us) is None
    reader.seek(position)
    assert reader.backlog_records(now_us) == 5
    assert [offset for _, offset in drain(reader)] == list(range(15, 20))
    reader.close()
    other.close()


def test_many_records_are_let_gather_a_little_and_few_are_not() -> None:
    assert pause_us(GATHER_RECORDS - 1, 0) == WAKE_US < pause_us(GATHER_RECORDS, 0) == GATHER_US
    assert pause_us(GATHER_RECORDS, CALM_AFTER_US + 1) == CALM_US


def test_no_more_of_a_topic_is_taken_than_a_range_has(kafka_server: Any, topic: str) -> None:
    """Slots share a topic range by range: what lies behind a range is for others, and is a hundred times as much."""
    source = ps.kafka(kafka_server.servers, topic, stop="latest").source()
    source.check()
    ranges, taken = source.reader(0, 2, 0)._open_ranges(), [0]
    consumer = ranges._consumer

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(consumer, name)

        def poll(self, seconds: float) -> Any:
            found = consumer.poll(seconds)
            taken[0] += found is not None
            return found

        def consume(self, *arguments: Any) -> Any:
            found = consumer.consume(*arguments)
            taken[0] += len(found)
            return found

    ranges._consumer = Counting()
    for partition, first, end in ((0, 0, 3), (1, 0, 3), (0, 3, 6), (1, 12, 14), (0, 5, 6)):
        found = ranges.read(partition, first, end, end - first)
        assert [(each.partition(), each.offset()) for each in found] == [(partition, at) for at in range(first, end)]
    assert [each.offset() for each in ranges.read(1, 7, None, 4)] == [7, 8, 9, 10]
    assert taken == [3 + 3 + 3 + 2 + 1 + 4]
    ranges.close()


def other_run(batch: Any) -> Any:
    return Run(batch.at, len(batch.rows))


def test_a_partition_that_is_given_out_slowly_is_held_within_bounds(
    kafka_server: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "HELD_RECORDS_MAX", 8)
    monkeypatch.setattr(hub, "PUMP_RECORDS", 3)
    source = ps.kafka(kafka_server.servers, topic, stop="latest").source()
    source.check()
    readers = [source.reader(each, 2, 0) for each in (0, 1)]
    found = [offset for _, offset in drain(readers[0])]
    readers[1].poll(0, 1)
    tracks, now_us = source._hub.tracks, 0
    while len(tracks[1].held) <= 8:
        now_us += 1_000
        source._hub.pump(now_us)
    for number in range(1_000):
        source._hub.pump(now_us + 1_000 * number)
    assert 8 < len(tracks[1].held) <= 8 + 3
    found += [offset for _, offset in drain(readers[1])]
    for each in readers:
        each.close()
    assert sorted(found) == sorted([*range(20), *range(20)])


def test_a_partition_that_was_held_back_when_slots_took_over_is_fetched_again_afterwards(
    kafka_server: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "HELD_RECORDS_MAX", 8)
    monkeypatch.setattr(hub, "PUMP_RECORDS", 3)
    source = ps.kafka(kafka_server.servers, topic, stop="latest").source()
    source.check()
    reader, now_us, found = source.reader(0, 2, 0), 0, []
    deadline = time.monotonic() + WAIT_S
    while not source._hub or not source._hub.tracks[0].is_paused:
        now_us += 1_000
        if (batch := reader.poll(now_us, 1)) is not None:
            found += [row.offset for row in batch.rows]
        source._hub.pump(now_us)
        assert time.monotonic() < deadline
    while reader.due_records(now_us) < 20 - len(found):
        now_us += 1_000
        assert time.monotonic() < deadline
    found += [offset for _, offset in drain(reader)]
    reader.close()
    assert found == list(range(20))


def test_a_topic_that_has_no_leader_yet_is_asked_again() -> None:
    place, troubles, asked = access.Access.of("127.0.0.1:1", {}), access.Troubles(), 0

    def question(wait_s: float) -> str:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise KafkaException(KafkaError(KafkaError._NOENT, "No leaders found"))
        return "answered"

    assert place.ask("offsets", question, place.admin(troubles), troubles) == "answered"


def test_a_topic_that_was_just_made_is_asked_for_again(kafka_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers hear of it one after the other: the next one that is asked may not know it yet."""
    name, place, ask = f"late-{uuid.uuid4().hex}", access.Access.of(kafka_server.servers, {}), access.Access.ask

    def late(self: Any, what: str, question: Any, *rest: Any) -> Any:
        def noted(wait_s: float) -> Any:
            try:
                return question(wait_s)
            except KafkaException:
                for each in kafka_server.admin.create_topics([NewTopic(name, 2, 1)]).values():
                    each.result()
                raise

        return ask(self, what, noted, *rest)

    monkeypatch.setattr(access.Access, "ask", late)
    identity, partitions = access.described(place, name, was_made=True)
    assert identity
    assert partitions == 2


def test_a_name_that_is_not_known_is_waited_for_once_a_broker_has_answered(kafka_server: Any) -> None:
    """The name of a broker that is started anew on another machine is gone for a while; a wrong one never was there."""
    unknown = KafkaError(KafkaError._RESOLVE, "Failed to resolve 'broker:9092': Name or service not known")
    topic = kafka_server.topic("in", 1)
    kafka_server.fill(topic, [(0, "k", n) for n in range(3)])
    source = ps.kafka(kafka_server.servers, topic).source()
    source.check()
    reader = source.reader(0, 1, 0)
    found = drain(reader, 3)
    assert source._hub is not None
    for _ in range(100):
        source._hub.troubles.note(unknown)
        assert reader.poll(source._hub.pumped_us + 1_000, 1) is None
    kafka_server.fill(topic, [(0, "k", n) for n in range(3)])
    found += drain(reader, 3)
    reader.close()
    assert found == [(0, n) for n in range(6)]
    # A process that begins while the name is gone has heard of nobody; the driver has.
    anew = ps.kafka(kafka_server.servers, topic).source().reader(0, 1, 0)
    anew._joined().troubles.note(unknown)
    assert drain(anew, 6) == found
    anew.close()
    ranges = ps.kafka(kafka_server.servers, topic).source().reader(0, 1, 0)._open_ranges()
    ranges._troubles.note(unknown)
    assert len(ranges.read(0, 0, 6, 6)) == 6
    assert not ranges._troubles.latest
    ranges.close()
    never = access.Troubles()
    never.note(unknown)
    with pytest.raises(KafkaFailed, match="Failed to resolve"):
        never.raise_fatal(source._access)


# --- what is refused --------------------------------------------------------------------------------------------------

SECURED = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": USER,
    "sasl.password": PASSWORD,
}


def test_a_password_opens_the_door_and_a_wrong_one_is_refused_without_being_shown(
    kafka_server: Any, topic: str
) -> None:
    servers = kafka_server.secured_servers
    assert len(read_all(ps.kafka(servers, topic, stop="latest", options=SECURED).source())) == 40
    secret = "do-not-show-this"
    wrong = ps.kafka(servers, topic, options={**SECURED, "sasl.password": secret})
    with pytest.raises(KafkaFailed, match=r"(?i)authentication failed") as caught:
        wrong.source().check()
    shown = [str(caught.value), caught.value.hint, repr(wrong), repr(wrong.source()), repr(wrong.sink())]
    assert not any(secret in each for each in shown)
    assert "sasl.password" in repr(wrong)
    assert secret not in redacted(f"a function of the user's says {secret}")


@pytest.mark.parametrize(
    ("servers", "message"),
    [("no-such-host.invalid:9092", "(?i)resolve"), ("127.0.0.1:1", "nobody answers at 127.0.0.1:1: .*refused")],
)
def test_brokers_that_are_not_there_are_named(servers: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "ANSWER_S", 1.0)
    place = ps.kafka(servers, "t")
    for check in (place.source().check, lambda: place.sink().check(COLUMNS)):
        with pytest.raises(KafkaFailed, match=message):
            check()


def test_a_topic_that_is_not_there_is_named_with_the_nearest_one(kafka_server: Any, topic: str) -> None:
    with pytest.raises(KafkaFailed, match=f"there is no topic '{topic}x'.*Did you mean '{topic}'"):
        ps.kafka(kafka_server.servers, f"{topic}x").source().check()


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (("", "t"), {}),
        (("user:secret@host:1", "t"), {}),
        (("h:1", "a b"), {}),
        (("h:1", "t"), {"start": "soon"}),
        (("h:1", "t"), {"start": "committed"}),
        (("h:1", "t"), {"start": {0: -1}}),
        (("h:1", "t"), {"stop": "earliest"}),
        (("h:1", "t"), {"columns": ("valu",)}),
        (("h:1", "t"), {"columns": "value"}),
        (("h:1", "t"), {"delivery": "twice"}),
        (("h:1", "t"), {"key": 1}),
        (("h:1", "t"), {"group": "a b"}),
        (("h:1", "t"), {"uncommitted": 1}),
        (("h:1", "t"), {"options": {"transactional.id": "x"}}),
        (("h:1", "t"), {"options": [1]}),
    ],
)
def test_options_are_checked_at_once(arguments: Any, options: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        ps.kafka(*arguments, **options)
    assert "secret" not in str(caught.value)


def test_settings_that_the_client_does_not_know_and_unsafe_time_outs_are_refused(kafka_server: Any, topic: str) -> None:
    with pytest.raises(KafkaFailed, match=r"no\.such\.setting"):
        ps.kafka(kafka_server.servers, topic, options={"no.such.setting": 1}).source().check()
    for timeout_ms, message in ((100, "10000 or more"), (10_000_000, "10000 to 900000")):
        with pytest.raises(InvalidOption, match=message):
            ps.kafka(kafka_server.servers, topic, options={"transaction.timeout.ms": timeout_ms}).sink().check(COLUMNS)


def test_offsets_and_partitions_that_are_not_there_are_refused(kafka_server: Any, topic: str) -> None:
    with pytest.raises(InvalidOption, match="offsets 0 to 20 of partition 1"):
        ps.kafka(kafka_server.servers, topic, start={1: 99}).source().check()
    with pytest.raises(InvalidOption, match="partitions 0 to 1"):
        ps.kafka(kafka_server.servers, topic, start={7: 0}).source().check()


def test_a_beginning_that_was_deleted_is_refused_unless_the_job_goes_on_from_its_checkpoint(kafka_server: Any) -> None:
    topic = kafka_server.topic("in", 1)
    group = f"left-{topic}"
    kafka_server.fill(topic, [(0, "k", n) for n in range(10)])

    def check(resumed: dict[str, dict[str, object]] | None = None, **options: Any) -> None:
        place = ps.kafka(kafka_server.servers, topic, group=group, **options)
        Graph.check(ps.stream("in", place).to(ps.memory()).nodes(), resumed)

    source = ps.kafka(kafka_server.servers, topic, group=group).source()
    source.check()
    reader = source.reader(0, 1, 0)
    drain(reader, 3)
    position = reader.position()
    reader.close()
    reader.committed(position)
    offset = progress_in(position).offsets[0]
    for each in kafka_server.admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        each.result()
    check(start="committed")
    for each in kafka_server.admin.delete_records([TopicPartition(topic, 0, offset + 2)]).values():
        each.result()
    message = rf"group '{group}' has read partition 0 .* up to offset {offset}.*at {offset + 2} by now: 2 records were"
    with pytest.raises(KafkaFailed, match=message):
        check(start="committed")
    with pytest.raises(InvalidOption, match=rf"offsets {offset + 2} to 10 of partition 0"):
        check(start={0: 0})
    for start in ("committed", {0: 0}):
        check({}, start=start)  # where it begins is not looked at: its positions are


def test_what_was_deleted_of_a_partition_found_while_running_is_not_passed_over(
    kafka_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that is made anew goes on at an offset; only where nothing was read may it begin behind a gap."""
    monkeypatch.setattr(hub, "DISCOVER_US", 1_000)
    topic = kafka_server.topic("in", 1)
    kafka_server.fill(topic, [(0, "k", n) for n in range(3)])
    source = ps.kafka(kafka_server.servers, topic).source()
    source.check()
    first = source.reader(0, 1, 0)
    found = drain(first, 3)
    for each in kafka_server.admin.create_partitions([NewPartitions(topic, 2)]).values():
        each.result()
    deadline, now_us = time.monotonic() + WAIT_S, 0
    while 1 not in progress_in(first.position()).offsets:
        now_us += 1_000
        assert first.poll(now_us, 7) is None
        assert time.monotonic() < deadline
    unread = recovered(source, first)
    kafka_server.fill(topic, [(1, "k", n) for n in range(4)])
    found += drain(first, 4)
    reader = recovered(source, first)
    first.close()
    kafka_server.fill(topic, [(1, "k", n) for n in range(6)])
    assert found == [(0, 0), (0, 1), (0, 2), *[(1, n) for n in range(4)]]
    for each in kafka_server.admin.delete_records([TopicPartition(topic, 1, 7)]).values():
        each.result()
    with pytest.raises(KafkaFailed, match=r"partition 1 of topic .* does not have offset 4.*deleted before they were"):
        drain(reader, 1)
    reader.close()
    # Nothing of it was read: it begins at its earliest record.
    assert drain(unread, 3) == [(1, n) for n in (7, 8, 9)]
    unread.close()


def test_a_partition_that_the_run_before_has_read_is_not_begun_anew_at_its_earliest_record(kafka_server: Any) -> None:
    """Its earliest record may be the one to go on from when the run begins, and be deleted before it is fetched."""
    topic = kafka_server.topic("in", 1)
    kafka_server.fill(topic, [(0, "k", n) for n in range(4)])
    source = ps.kafka(kafka_server.servers, topic).source()
    source.check()
    first = source.reader(0, 1, 0)
    drain(first, 4)
    position = first.position()
    first.close()
    kafka_server.fill(topic, [(0, "k", n) for n in range(6)])

    def delete(before: int) -> None:
        for each in kafka_server.admin.delete_records([TopicPartition(topic, 0, before)]).values():
            each.result()

    delete(4)
    second = ps.kafka(kafka_server.servers, topic).source()
    second.check()
    reader = second.resumed({0: position}).reader(0, 1, 0)
    reader.seek(position)
    delete(7)
    with pytest.raises(KafkaFailed, match=r"does not have offset 4.*deleted before they were"):
        drain(reader, 1)
    reader.close()


def recovered(source: Any, lost: Any) -> Any:
    """A reader that goes on where another one is, in another process."""
    reader = pickle.loads(pickle.dumps(source)).reader(0, 1, 0)
    reader.seek(lost.position())
    return reader


def test_a_topic_that_is_deleted_or_made_anew_ends_the_job(kafka_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "DISCOVER_US", 1_000)
    topic = kafka_server.topic("gone", 1)
    kafka_server.fill(topic, [(0, "k", 1)])
    source = ps.kafka(kafka_server.servers, topic).source()
    source.check()
    reader = source.reader(0, 1, 0)
    drain(reader, 1)
    for each in kafka_server.admin.delete_topics([topic]).values():
        each.result()
    with pytest.raises(KafkaFailed, match="is not there any more"):
        drain(reader, 2)
    reader.close()
