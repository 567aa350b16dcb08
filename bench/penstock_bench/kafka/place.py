"""The broker of a comparison, and the two topics of each run."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

from penstock.testing.kafka_broker import KafkaBroker

PARTITIONS = 4


@dataclass(frozen=True)
class Topics:
    """Where a run reads and writes."""

    servers: str
    events: str
    results: str


class Place:
    """Starts a broker when it is first needed, and ends it. Every run has topics of its own."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._numbers = itertools.count(1)

    @cached_property
    def broker(self) -> KafkaBroker:
        """The one broker of all runs."""
        return self._stack.enter_context(KafkaBroker(lasting=True))

    def topics(self) -> Topics:
        """Make the topics of a run: equal for all engines, and empty."""
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        number = next(self._numbers)
        found = Topics(self.broker.servers, f"events-{number}", f"results-{number}")
        wanted = [NewTopic(name, PARTITIONS, 1) for name in (found.events, found.results)]
        for made in self.broker.admin.create_topics(wanted).values():
            made.result()
        return found

    def close(self) -> None:
        """End the broker."""
        self._stack.close()
