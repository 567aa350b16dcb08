"""Scoring: the demonstration's model, called for every event, with its exact result."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from itertools import islice

import numpy as np

from penstock.demo.scoring import FEATURE_NAMES, FIELDS, exact_scores, score
from penstock.types import Record
from penstock_bench.workloads.base import REPLAY_RECORDS, Workload, by_number


def expected(records: Iterable[Record]) -> dict[int, float]:
    """Score the events without the operation."""
    scores: dict[int, float] = {}
    records = iter(records)
    while events := list(islice(records, REPLAY_RECORDS)):
        features = np.array([[getattr(event, name) for name in FEATURE_NAMES] for event in events], dtype=np.int64)
        scores.update(zip((event.number for event in events), exact_scores(features).tolist(), strict=True))
    return scores


SCORING = Workload(
    name="scoring",
    title="a neural network of 8 x 32 x 1, called for every event",
    fields=FIELDS,
    format="columns",
    build=lambda events: events.map(score),
    expected=expected,
    # The libraries' exponentials differ in the last bits.
    compare=by_number("score", partial(math.isclose, rel_tol=1e-12)),
)
