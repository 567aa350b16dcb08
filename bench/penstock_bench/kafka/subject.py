"""A workload as it is measured over Kafka: also with probes, by whose results an engine is seen to be up."""

from __future__ import annotations

import json
from typing import Any

from penstock_bench.engines.subjects import Built
from penstock_bench.kafka.place import PARTITIONS
from penstock_bench.meter.errors import UnknownWorkload
from penstock_bench.meter.subject import Input
from penstock_bench.workloads.yahoo import CAMPAIGN_OF_AD, WINDOW_MS

NAMES = ("yahoo",)
PROBE_BEFORE_MS = 3_600_000
"""Probes belong to a window so long before the first event: whatever comes of them is told from results."""


class OverKafka(Built):
    """A built-in workload whose lines come from a topic."""

    def __init__(self, name: str) -> None:
        if name not in NAMES:
            raise UnknownWorkload(given=name, available=NAMES)
        super().__init__(name)
        self.base, self.name = name, f"{name}, Kafka"

    @property
    def reference(self) -> str:
        return self.base

    def probes(self, event_start_us: int) -> tuple[list[str], list[list[Any]]]:
        """A line for each partition, and the group of the result that it leads to."""
        time_ms = (event_start_us // 1000 - PROBE_BEFORE_MS) // WINDOW_MS * WINDOW_MS
        of_campaign = {campaign: ad for ad, campaign in CAMPAIGN_OF_AD.items()}
        chosen = list(of_campaign.items())[:PARTITIONS]
        lines = [json.dumps({"ad_id": ad, "event_type": "view", "event_time": time_ms}) for _, ad in chosen]
        return lines, [[campaign, time_ms * 1000] for campaign, _ in chosen]

    def results(self, given: Input, event_start_us: int) -> int:
        """What the counts of all groups add up to when everything is out."""
        return sum(self.workload.expected(given.replay(event_start_us)).values())
