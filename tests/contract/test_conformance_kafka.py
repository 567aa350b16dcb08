"""The conformance suite over a topic of a real broker."""

from __future__ import annotations

from typing import Any

import penstock as ps
from penstock.testing import check_source


def test_a_topic_is_read(kafka_server: Any) -> None:
    topic = kafka_server.topic("conform", 1)
    kafka_server.fill(topic, [(0, f"k{n}", {"id": n}) for n in range(4)])
    wanted = [{"key": b"k%d" % n, "value": b'{"id": %d}' % n} for n in range(4)]
    source = ps.kafka(kafka_server.servers, topic, columns=["key", "value"], stop="latest")
    check_source(source, wanted)
