"""Workloads by name, each with its pipeline and its exact result."""

from typing import Any

from penstock_bench.workloads.base import Comparison, Workload, replay
from penstock_bench.workloads.lookup import LOOKUP
from penstock_bench.workloads.numbered import IDENTITY, SHUFFLES
from penstock_bench.workloads.scoring import SCORING
from penstock_bench.workloads.text import GREP, WORDCOUNT
from penstock_bench.workloads.yahoo import YAHOO, YAHOO_UPDATES

WORKLOADS: dict[str, Workload[Any]] = {
    workload.name: workload for workload in (YAHOO, YAHOO_UPDATES, WORDCOUNT, GREP, SCORING, IDENTITY, SHUFFLES)
}
SERVED: dict[str, Workload[Any]] = {LOOKUP.name: LOOKUP}
"""Workloads that need a server beside them, which `engines/redis_server.py` runs; all others need nothing."""

AT_SINK: dict[str, Workload[Any]] = {YAHOO.name: YAHOO_UPDATES}
"""What is counted at the sink in the place of a workload whose rows come too seldom for that."""

__all__ = ["AT_SINK", "SERVED", "WORKLOADS", "Comparison", "Workload", "replay"]
