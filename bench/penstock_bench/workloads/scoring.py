"""Scoring: the demonstration's model, called for every event, with its exact result."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice

import numpy as np

from penstock.demo.scoring import FEATURE_NAMES, FIELDS, exact_scores, score
from penstock.types import Record
from penstock_bench.workloads.base import REPLAY_RECORDS, Comparison, Row, Workload, compare_rows


def expected(records: Iterable[Record]) -> dict[int, float]:
    """Score the events without the operation."""
    scores: dict[int, float] = {}
    records = iter(records)
    while events := list(islice(records, REPLAY_RECORDS)):
        features = np.array([[getattr(event, name) for name in FEATURE_NAMES] for event in events], dtype=np.int64)
        scores.update(zip((event.number for event in events), exact_scores(features).tolist(), strict=True))
    return scores


def compare(exact: dict[int, float], rows: Iterable[Row], partitions: int) -> Comparison:
    """Compare scores by the number of the event; the libraries' exponentials differ in the last bits."""
    return compare_rows(
        exact,
        ((row["number"], row["score"]) for row in rows),
        partitions,
        same=lambda left, right: math.isclose(left, right, rel_tol=1e-12),
    )


SCORING = Workload(
    name="scoring",
    title="a neural network of 8 x 32 x 1, called for every event",
    fields=FIELDS,
    format="columns",
    build=lambda events: events.map(score),
    expected=expected,
    compare=compare,
)
