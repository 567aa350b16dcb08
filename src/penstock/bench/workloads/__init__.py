"""Workloads by name, each with its pipeline and its exact result."""

from typing import Any

from penstock.bench.workloads.base import Comparison, Workload, replay
from penstock.bench.workloads.grep import GREP
from penstock.bench.workloads.identity import IDENTITY
from penstock.bench.workloads.scoring import SCORING
from penstock.bench.workloads.wordcount import WORDCOUNT
from penstock.bench.workloads.yahoo import YAHOO, YAHOO_UPDATES

WORKLOADS: dict[str, Workload[Any]] = {
    workload.name: workload for workload in (YAHOO, YAHOO_UPDATES, WORDCOUNT, GREP, SCORING, IDENTITY)
}

__all__ = ["WORKLOADS", "Comparison", "Workload", "replay"]
