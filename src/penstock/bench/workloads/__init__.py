"""Workloads by name, each with its pipeline and its exact result."""

from typing import Any

from penstock.bench.workloads.base import Comparison, Workload, replay
from penstock.bench.workloads.grep import GREP
from penstock.bench.workloads.identity import IDENTITY
from penstock.bench.workloads.lookup import LOOKUP
from penstock.bench.workloads.scoring import SCORING
from penstock.bench.workloads.wordcount import WORDCOUNT
from penstock.bench.workloads.yahoo import YAHOO, YAHOO_UPDATES

WORKLOADS: dict[str, Workload[Any]] = {
    workload.name: workload for workload in (YAHOO, YAHOO_UPDATES, WORDCOUNT, GREP, SCORING, IDENTITY)
}
SERVED: dict[str, Workload[Any]] = {LOOKUP.name: LOOKUP}
"""Workloads that need a server beside them, which `penstock.bench.redis_server` runs; all others need nothing."""

__all__ = ["SERVED", "WORKLOADS", "Comparison", "Workload", "replay"]
