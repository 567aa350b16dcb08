"""What is refused before anything starts where the user may not do it, on a real broker that knows who may what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

import penstock as ps
from penstock.connectors.kafka import sink as sinks
from penstock.errors import InvalidOption, KafkaFailed
from penstock.testing.kafka_broker import PASSWORD
from penstock.types import Schema
from services.kafka import GUEST

COLUMNS = Schema.parse("a int")
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": GUEST,
    "sasl.password": PASSWORD,
}


@pytest.fixture
def server(kafka_server: Any) -> Iterator[Any]:
    yield kafka_server
    kafka_server.forbid()


def test_a_topic_and_a_group_that_the_user_may_not_read_are_refused(server: Any) -> None:
    topic = server.topic("in", 1)
    group = f"group-{topic}"

    def check(**options: Any) -> None:
        ps.kafka(server.secured_servers, topic, options=LOGIN, **options).source().check()

    with pytest.raises(KafkaFailed, match=rf"topic '{topic}': .*authorization failed.*ask for the right"):
        check()
    server.allow(ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    with pytest.raises(KafkaFailed, match=rf"the user may not read topic '{topic}'.*READ on the topic"):
        check()
    server.allow(ResourceType.TOPIC, topic, AclOperation.READ)
    check()
    with pytest.raises(KafkaFailed, match=rf"group '{group}': .*authorization failed.*ask for the right"):
        check(group=group)
    server.allow(ResourceType.GROUP, group, AclOperation.DESCRIBE)
    with pytest.raises(KafkaFailed, match=rf"may not commit offsets to group '{group}'.*READ on the group"):
        check(group=group)
    server.allow(ResourceType.GROUP, group, AclOperation.READ)
    check(group=group)


def test_what_output_exactly_once_needs_is_asked_for_and_immediate_output_needs_less(server: Any) -> None:
    topic, tokens = server.topic("out", 1), server.topic("tokens", 1)

    def check(**options: Any) -> None:
        given = {**LOGIN, **options.pop("options", {})}
        ps.kafka(server.secured_servers, topic, tokens=tokens, options=given, **options).sink().check(COLUMNS)

    server.allow(ResourceType.TOPIC, topic, AclOperation.READ)
    with pytest.raises(KafkaFailed, match=rf"the user may not write topic '{topic}'"):
        check(delivery="immediate")
    server.allow(ResourceType.TOPIC, topic, AclOperation.WRITE)
    check(delivery="immediate")
    with pytest.raises(KafkaFailed, match=r"transactional id 'penstock-\*': .*authorization failed.*ask for the right"):
        check()
    server.allow(ResourceType.TRANSACTIONAL_ID, "penstock-*", AclOperation.WRITE)
    server.allow(ResourceType.TOPIC, tokens, AclOperation.WRITE)
    with pytest.raises(KafkaFailed, match=rf"the user may not read topic '{tokens}'"):
        check()
    server.allow(ResourceType.TOPIC, tokens, AclOperation.READ)
    check()
    # Who may not ask what the broker allows finds out by trying.
    with pytest.raises(InvalidOption, match=r"transaction.timeout.ms=10000000.*at most transaction.max.timeout.ms"):
        check(options={"transaction.timeout.ms": 10_000_000})


def test_the_time_out_is_compared_with_the_brokers_most_also_where_none_is_given(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = ps.kafka(server.servers, server.topic("out", 1)).sink()
    sink.check(COLUMNS)
    monkeypatch.setattr(sinks, "TIMEOUT_MS", 1_000_000)
    with pytest.raises(InvalidOption, match=r"transaction.timeout.ms=1000000.*10000 to 900000"):
        sink.check(COLUMNS)
