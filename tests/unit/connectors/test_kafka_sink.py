"""The sink's writers on a real broker: a crash at every step, two writers of one name, an older checkpoint."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer

import penstock as ps
from penstock.connectors.base import WriterContext
from penstock.connectors.kafka import publisher as publishing
from penstock.connectors.kafka import transactions
from penstock.connectors.kafka.publisher import Publisher
from penstock.connectors.kafka.transactions import Held, TransactionWriter
from penstock.errors import BadRecord, CheckpointMismatch, KafkaFailed, TypeMismatch
from penstock.types import Schema
from waiting import WAIT_S, wait_for

SCHEMA = Schema.parse("k string, n bigint")
STEPS = ["begin", "token", "ahead", "committed"]


class Crash(BaseException):
    """Ends the publisher's thread where it is, and leaves its transaction open, as a kill does."""


@pytest.fixture
def place(kafka_server: Any) -> tuple[Any, str, Callable[[], TransactionWriter]]:
    topic, job_id = kafka_server.topic("out", 2), uuid.uuid4().hex
    sink = ps.kafka(kafka_server.servers, topic, key="k").sink()
    sink.check(SCHEMA)

    def writer() -> TransactionWriter:
        return sink.writer(SCHEMA, WriterContext("job", "to_kafka", 0, 1, job_id))  # type: ignore[return-value]

    return kafka_server, topic, writer


def rows(*numbers: int) -> list[Any]:
    return [SCHEMA.record_type(f"k{n % 3}", n) for n in numbers]


def found(server: Any, topic: str) -> list[int]:
    return sorted(json.loads(each.value())["n"] for each in server.read(topic))


@pytest.mark.parametrize(("step", "late"), [*((step, False) for step in STEPS), ("token", True)])
def test_an_epoch_is_there_once_whatever_step_of_its_transaction_a_crash_hits(
    place: Any, step: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch is sent ahead when it is prepared, or, after an error, when it is committed."""
    server, topic, writer = place
    first = writer()
    first.write(rows(1, 2, 3))
    first.prepare(1)
    first.snapshot(1)
    first.commit(1)
    first.finish()
    first._publisher._course._is_late = late
    crash_at(monkeypatch, step)
    first.write(rows(4, 5))
    first.prepare(2)
    snapshot = first.snapshot(2)
    first.write(rows(6))  # of the epoch that is lost
    first.commit(2)
    first._publisher._thread.join(WAIT_S)
    monkeypatch.undo()
    assert not first._publisher._thread.is_alive()
    visible = found(server, topic) if step == "committed" else [1, 2, 3]
    assert visible == ([1, 2, 3, 4, 5] if step == "committed" else [1, 2, 3])
    second = writer()
    second.restore(2, snapshot)
    second.commit(2)
    second.write(rows(7))
    second.prepare(3)
    second.commit(3)
    second.finish()
    second.close()
    assert found(server, topic) == [1, 2, 3, 4, 5, 7]


def test_an_epoch_is_on_the_broker_before_its_commit_and_seen_behind_it_or_never(
    place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, topic, writer = place
    first = writer()
    first.write(rows(1, 2))
    first.prepare(1)
    wait_for(lambda: first._publisher._course.ahead == 1)
    first._publisher._producer.flush()
    assert len(server.read(topic, committed=False)) == 2
    assert found(server, topic) == []
    first.commit(1)
    first.finish()
    snapshot = first.snapshot(1)
    first.write(rows(3))
    first.prepare(2)
    wait_for(lambda: first._publisher._course.ahead == 2)
    first._publisher._producer.flush()
    first.close()  # the epoch is rolled back: it is aborted, and holds no reader up
    assert found(server, topic) == [1, 2]
    second = writer()
    second.restore(1, snapshot)
    monkeypatch.setattr(publishing, "AHEAD_S_MAX", 0.0)  # a commit that is late: aborted, and sent with its commit
    second.write(rows(4))
    second.prepare(2)
    wait_for(lambda: second._publisher._course._is_late)
    second.commit(2)
    second.finish()
    second.close()
    assert found(server, topic) == [1, 2, 4]


def test_a_transaction_that_the_broker_has_ended_by_its_time_out_is_sent_again(
    place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time-out and another client of the name end a transaction alike: its producer is fenced at the commit."""
    server, topic, writer = place
    ended: list[str] = []
    send = Publisher._send

    def overtaken(publisher: Publisher, epochs: Any) -> None:
        client, name = publisher._producer, publisher._channel.name

        class Late:
            def __getattr__(self, attribute: str) -> Any:
                return getattr(client, attribute)

            def commit_transaction(self, *arguments: Any) -> None:
                assert client is not None
                client.flush()  # its records are in the topic, and nobody may see them
                Producer({"bootstrap.servers": server.servers, "transactional.id": name}).init_transactions(WAIT_S)
                ended.append(name)
                client.commit_transaction(*arguments)

        if not ended:
            publisher._producer = Late()  # type: ignore[assignment]
        send(publisher, epochs)

    monkeypatch.setattr(Publisher, "_send", overtaken)
    sink = writer()
    sink.write(rows(1, 2))
    sink.prepare(1)
    sink.snapshot(1)
    sink.commit(1)
    sink.write(rows(3))
    sink.prepare(2)
    sink.commit(2)
    sink.finish()
    sink.close()
    assert len(ended) == 1
    assert found(server, topic) == [1, 2, 3]


def crash_at(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """End the publisher's thread behind a step of the next transaction."""
    send = Publisher._send

    def crash(*_: Any, **__: Any) -> None:
        raise Crash

    class Dying:
        """A client that dies behind a step."""

        def __init__(self, producer: Any) -> None:
            self._producer = producer

        def begin_transaction(self) -> None:
            self._producer.begin_transaction()
            if step == "begin":
                raise Crash

        def produce(self, *arguments: Any, **named: Any) -> None:
            is_token = "on_delivery" in named
            self._producer.produce(*arguments, **named)
            if is_token and step == "token":
                self._producer.flush()
                raise Crash

        def commit_transaction(self, *arguments: Any) -> None:
            if step == "ahead":
                raise Crash
            self._producer.commit_transaction(*arguments)
            raise Crash

    def dying(self: Publisher, epochs: Any) -> None:
        self._producer = Dying(self._producer)  # type: ignore[assignment]
        send(self, epochs)

    monkeypatch.setattr(Publisher, "_send", dying)
    monkeypatch.setattr("threading.excepthook", lambda _: None)


def test_two_writers_of_one_name_write_every_epoch_once(place: Any) -> None:
    """A process that was taken for dead goes on: both have the same committed epochs, and each fences the other."""
    server, topic, writer = place
    first = writer()
    first.write(rows(1))
    first.prepare(1)
    snapshot = first.snapshot(1)
    second = writer()
    second.restore(1, snapshot)
    for each in (first, second):
        each.commit(1)
    for each in (first, second):
        each.finish()
        each.close()
    assert found(server, topic) == [1]


def test_an_older_checkpoint_under_newer_output_is_refused(place: Any) -> None:
    server, topic, writer = place
    first = writer()
    for epoch in (1, 2, 3):
        first.write(rows(epoch))
        first.prepare(epoch)
        first.commit(epoch)
    first.finish()
    first.close()
    second = writer()
    second.restore(2, None)
    with pytest.raises(CheckpointMismatch, match="has epoch 3 of this job, and the checkpoint ends with epoch 2"):
        second.finish()
    second.close()
    assert found(server, topic) == [1, 2, 3]


def test_tokens_that_are_gone_are_not_guessed(place: Any) -> None:
    _, _, writer = place
    second = writer()
    held = Held(1 << 40, {1: [(b"k", b"v", None, -1)]})  # of a time when the topic of the tokens was longer
    second.restore(1, msgspec.msgpack.encode(held))
    with pytest.raises(CheckpointMismatch, match=r"which says what of this job is in topic '.*', was made anew"):
        second.finish()
    second.close()


def test_a_token_is_found_behind_those_of_others_and_an_open_transaction_is_waited_for(place: Any) -> None:
    """Readers of committed records see nothing behind an open transaction: the token must not be taken for missing."""
    server, topic, writer = place
    first = writer()
    first.write(rows(1))
    first.prepare(1)
    snapshot = first.snapshot(1)
    assert first._publisher.wait(WAIT_S)  # it has looked
    channel = first._channel
    other = Producer({"bootstrap.servers": server.servers, "transactional.id": f"other-{topic}"})
    other.init_transactions()
    other.begin_transaction()
    other.produce(channel.tokens, b"7", "somebody", channel.partition)
    other.flush()
    first.commit(1)
    first.finish()
    second = writer()
    second.restore(1, snapshot)
    second.commit(1)
    assert not second._publisher.wait(1.0)
    other.commit_transaction()
    second.finish()
    for each in (first, second):
        each.close()
    assert found(server, topic) == [1]


def test_a_job_is_resumed_without_waiting_for_a_transaction_that_the_run_before_has_left_open(place: Any) -> None:
    """Its own writer ends it, once the job runs; the time-out would come a minute later."""
    server, topic, writer = place
    first = writer()
    for epoch in (1, 2):
        first.write(rows(epoch))
        first.prepare(epoch)
        first.commit(epoch)
    first.finish()
    first.close()
    channel, job_id = first._channel, first._channel.name.split("-")[1]
    left = Producer({"bootstrap.servers": server.servers, "transactional.id": channel.name})
    left.init_transactions()
    left.begin_transaction()
    left.produce(channel.tokens, b"3", channel.name, channel.partition)
    left.flush()
    state: dict[str, object] = {"job_id": job_id, "operation": "to_kafka"}
    sink = ps.kafka(server.servers, topic, key="k").sink()
    sink.check(SCHEMA)
    sink.resume({**state, "epoch": 2})
    with pytest.raises(CheckpointMismatch, match="has epoch 2 of this job, and the checkpoint ends with epoch 1"):
        sink.resume({**state, "epoch": 1})
    left.commit_transaction()  # it was still open


def replaced(messages: list[Any]) -> list[int]:
    """What is left of an immediate sink's records, by the rule that docs/kafka.md gives."""
    sent = [(*map(int, dict(m.headers())["penstock"].split(b"/")[3:]), json.loads(m.value())["n"]) for m in messages]
    return [
        n
        for epoch, attempt, _, n in sorted(sent)
        if not any(later > attempt and first <= epoch for first, later, *_ in sent)
    ]


def test_what_an_immediate_sink_sends_again_in_another_epoch_replaces_what_it_has_sent(kafka_server: Any) -> None:
    """After a crash an epoch may be over before its records come again."""
    topic = kafka_server.topic("out", 1)
    sink = ps.kafka(kafka_server.servers, topic, delivery="immediate").sink()
    sink.check(SCHEMA)
    context, epoch, snapshot = WriterContext("job", "to_kafka", 0, 1, uuid.uuid4().hex), 0, None
    lost, committed = False, True
    for sent, fate in (
        ([1], committed), ([2, 3], lost), ([], committed), ([2], lost), ([], committed), ([2, 3], committed),
        ([4], lost), ([4], committed),
    ):  # fmt: skip
        writer = sink.writer(SCHEMA, context)
        writer.restore(epoch, snapshot)
        writer.write(rows(*sent))
        writer.finish()
        if fate is committed:
            epoch += 1
            writer.prepare(epoch)
            snapshot = writer.snapshot(epoch)
            writer.commit(epoch)
        writer.close()
        begun_ms = time.time_ns() // 1_000_000
        wait_for(lambda: time.time_ns() // 1_000_000 > begun_ms)  # noqa: B023  # attempts are told apart by it
    assert replaced(kafka_server.read(topic)) == [1, 2, 3, 4]


def test_what_the_broker_refuses_ends_the_job_with_its_reason(kafka_server: Any) -> None:
    topic = kafka_server.topic("out", 1, max_message_bytes="1000")
    sink = ps.kafka(kafka_server.servers, topic).sink()
    sink.check(SCHEMA)
    writer = sink.writer(SCHEMA, WriterContext("job", "to_kafka", 0, 1, uuid.uuid4().hex))
    writer.write([SCHEMA.record_type("k" * 5000, 1)])
    writer.prepare(1)
    writer.commit(1)
    with pytest.raises(KafkaFailed, match="larger than the topic takes"):
        writer.finish()
    writer.close()
    with pytest.raises(BadRecord, match="larger than the 999800"):
        writer._encode([SCHEMA.record_type("k" * 1_000_000, 1)])


def test_columns_become_key_value_headers_and_partition(kafka_server: Any) -> None:
    schema = Schema.parse("id bigint, body binary, top string, p int, t timestamp")
    topic = kafka_server.topic("out", 3)
    options = {"key": "id", "headers": "top", "partition": "p"}
    row = schema.record_type(7, b"\x00raw", '[["a","b"],["c",null]]', 2, 1_000_000)
    for delivery in ("exactly-once", "immediate"):
        for value in ("body", None):
            sink = ps.kafka(kafka_server.servers, topic, value=value, delivery=delivery, **options).sink()
            sink.check(schema)
            writer = sink.writer(schema, WriterContext("job", f"to_{value}", 0, 1, uuid.uuid4().hex))
            writer.write([row, schema.record_type(None, None, None, 0, None)])
            staged = sink.stager(schema, "sink")(schema.to_batch([row]))
            writer.adopt(staged, schema)
            writer.prepare(1)
            writer.commit(1)
            writer.finish()
            writer.close()
    messages = kafka_server.read(topic)
    assert [each.partition() for each in messages].count(2) == 8
    written = {(each.key(), each.value()) for each in messages}
    whole = b'{"id":7,"body":"AHJhdw==","t":"1970-01-01T00:00:01.000000Z"}'
    assert written == {
        (b"7", b"\x00raw"), (None, None), (b"7", whole), (None, b'{"id":null,"body":null,"t":null}'),
    }  # fmt: skip
    tops = [[pair for pair in each.headers() or [] if pair[0] != "penstock"] for each in messages if each.key()]
    assert tops == [[("a", b"b"), ("c", None)]] * 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "nothing"}, "no column 'nothing'"),
        ({"value": "n"}, "value='n' is bigint, and has to be string or binary"),
        ({"headers": "n"}, "headers='n' is bigint"),
        ({"partition": "k"}, "partition='k' is string"),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_anything_starts(options: Any, message: str) -> None:
    with pytest.raises((TypeMismatch, ps.PenstockError), match=message):
        ps.kafka("localhost:1", "t", **options).sink().check(SCHEMA)


def test_every_instance_of_every_sink_of_a_job_has_a_transactional_id_of_its_own() -> None:
    sink = ps.kafka("127.0.0.1:1", "t").sink()
    sink._token_ends = (0,)
    names = {sink._channel("job", operation, instance).name for operation in ("a", "b") for instance in (0, 1)}
    assert len(names) == 4
    assert names == {sink._channel("job", operation, instance).name for operation in "ab" for instance in (0, 1)}


def test_a_broker_that_is_away_leaves_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = ps.kafka("127.0.0.1:1", "t").sink()
    sink._token_ends = (0,)
    monkeypatch.setattr(transactions, "QUEUED_BYTES_MAX", 100)
    monkeypatch.setattr(publishing, "CLOSE_S", 0.1)
    writer = sink.writer(SCHEMA, WriterContext("job", "to_kafka", 0, 1, "id"))
    writer.write(rows(1))
    writer.prepare(1)
    writer.commit(1)
    assert not writer.is_blocked
    writer.write(rows(2, 3))
    writer.prepare(2)
    assert not writer.is_blocked  # what is not committed must not stop the marker that would commit it
    writer.commit(2)
    assert writer.is_blocked
    writer.close()
