"""What every client of Kafka is told, and what users may change of it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.connectors.kafka import access as module
from penstock.connectors.kafka.access import Access, Troubles

pytest.importorskip("confluent_kafka")


def test_small_requests_are_sent_at_once_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    clients = module.client_library()
    for kind, place in (("Consumer", clients), ("Producer", clients), ("AdminClient", clients.admin)):
        monkeypatch.setattr(place, kind, told.append)
    for options in ({}, {"socket.nagle.disable": False}):
        access = Access.of("host:9092", options)
        access.consumer(Troubles())
        access.producer(Troubles())
        access.admin(Troubles())
    assert [each["socket.nagle.disable"] for each in told] == [True] * 3 + [False] * 3
